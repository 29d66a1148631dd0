"""What can go wrong with a task. A leaf: senders and workers raise the same."""

# 30 000 years: what is longer is a mistake, and its milliseconds would not fit into a header.
LONGEST_DELAY_S = 1e12


class DispatcherError(Exception):
    """Base of everything the task queue raises."""


class BadTask(DispatcherError, ValueError):
    """A task that cannot be sent, or a message that is none."""


class BadArgument(BadTask):
    """An argument that is not of its type; the text names task, worker and argument."""


class UnknownTask(DispatcherError):
    """No function is registered under the name."""


class NotSupported(DispatcherError):
    """The broker cannot do what is asked for."""


class NotDelivered(DispatcherError):
    """The broker refused the task, or has no queue for it."""


class ServiceDisconnected(NotDelivered):
    """There is no connection. A task that was being sent may have arrived."""


class TaskTimeout(DispatcherError, TimeoutError):
    """The task took longer than its ``timeout_s``."""


class ProcessDied(DispatcherError):
    """The process in which the task ran ended before the task did."""


class Retry(DispatcherError):
    """Raised by a task: run me again, after ``delay_s`` seconds where that is given.

    Raises BadTask for a delay that is none.
    """

    def __init__(self, reason="the task asks for it", delay_s=None):
        super().__init__(reason)
        self.delay_s = None if delay_s is None else checked_delay_s(delay_s)


class Reject(DispatcherError):
    """Raised by a task: never run me again; it goes to the dead letters."""


def checked_delay_s(seconds):
    """Seconds to wait as a float, 0 for a time that is over.

    Raises BadTask for what is neither an int nor a float: a Decimal, a Fraction or numpy's numbers are
    converted by who has them.
    """
    if isinstance(seconds, bool) or not isinstance(seconds, (int, float)) or not seconds <= LONGEST_DELAY_S:
        raise BadTask(f"a delay of {seconds!r} s is none: it is a number of up to {LONGEST_DELAY_S:g}")
    return max(0.0, float(seconds))
