"""Errors that senders and workers of the task queue raise."""

# 30 000 years: a longer delay is a mistake, and its milliseconds would not fit into a header.
LONGEST_DELAY_S = 1e12


class DispatcherError(Exception):
    """Base of all errors of the task queue."""


class BadTask(DispatcherError, ValueError):
    """The task cannot be sent, or the received message is not a task."""


class BadArgument(BadTask):
    """An argument does not match its type; the text names task, worker and argument."""


class UnknownTask(DispatcherError):
    """The worker has no function for the name of the task."""


class NotSupported(DispatcherError):
    """The broker lacks a needed feature."""


class NotDelivered(DispatcherError):
    """The broker refused the task, or has no queue for it."""


class ServiceDisconnected(NotDelivered):
    """There is no connection to the broker. The task may have arrived all the same."""


class TaskTimeout(DispatcherError, TimeoutError):
    """The task took longer than its ``timeout_s``."""


class ProcessDied(DispatcherError):
    """The process in which the task ran ended before the task did."""


class Retry(DispatcherError):
    """A task raises Retry to be run again, after ``delay_s`` seconds or, if None, after the task's backoff.

    The constructor raises BadTask if the delay is invalid.
    """

    def __init__(self, reason="the task asks for it", delay_s=None):
        super().__init__(reason)
        self.delay_s = None if delay_s is None else checked_delay_s(delay_s)


class Reject(DispatcherError):
    """A task raises Reject to be dead-lettered at once, without further attempts."""


def checked_delay_s(seconds):
    """Return the seconds as a float; 0 if they are negative.

    Raises BadTask unless the seconds are an int or a float: callers convert a Decimal, a Fraction or numpy's
    numbers.
    """
    if isinstance(seconds, bool) or not isinstance(seconds, (int, float)) or not seconds <= LONGEST_DELAY_S:
        raise BadTask(f"a delay of {seconds!r} s is none: it is a number of up to {LONGEST_DELAY_S:g}")
    return max(0.0, float(seconds))
