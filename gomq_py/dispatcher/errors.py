"""Errors that the task queue raises to senders of tasks and to workers."""

# 30 000 years: a longer delay is a mistake, and its milliseconds would not fit into a header.
LONGEST_DELAY_S = 1e12


class DispatcherError(Exception):
    """Base of all errors of the task queue."""


class BadTask(DispatcherError, ValueError):
    """The task cannot be encoded or has invalid options, or the received message is not a task."""


class BadArgument(BadTask):
    """An argument does not match its type. The error's text names the task and the argument."""


class UnknownTask(DispatcherError):
    """The worker knows no task of this name."""


class NotSupported(DispatcherError):
    """The broker lacks a feature that the task or app needs."""


class NotDelivered(DispatcherError):
    """The broker refused the task, or no queue is bound with its routing key."""


class ServiceDisconnected(NotDelivered):
    """There is no connection to the broker, or no answer in time. The broker may have got the task."""


class TaskTimeout(DispatcherError, TimeoutError):
    """The task ran longer than its ``timeout_s``."""


class ProcessDied(DispatcherError):
    """The child process that ran the task ended before the task did."""


class Retry(DispatcherError):
    """Raised by a task that wants to run again, after ``delay_s`` seconds (None: after its backoff). The
    constructor raises BadTask if the delay is invalid.
    """

    def __init__(self, reason: str = "the task asks for it", delay_s: float | None = None) -> None:
        super().__init__(reason)
        self.delay_s = None if delay_s is None else checked_seconds("delay_s", delay_s)


class Dropped(DispatcherError):
    """The task must not begin any more. Workers then drop it."""


class Revoked(Dropped):
    """The task was revoked before it began."""


class Expired(Dropped):
    """The task did not begin before it expired (``expires_s``)."""


class Reject(DispatcherError):
    """Raised by a task that wants to be dead-lettered at once, without further attempts."""


def checked_seconds(what: str, seconds: float) -> float:
    """Return the seconds as a float. Raises BadTask unless they are an int or float from 0 to 1e12. Decimal
    and Fraction are refused. ``what``: the value's name, for the error's text.
    """
    is_number = isinstance(seconds, (int, float)) and not isinstance(seconds, bool)
    if not is_number or not 0 <= seconds <= LONGEST_DELAY_S:
        raise BadTask(f"{what} is {seconds!r}, and not a number of seconds from 0 to {LONGEST_DELAY_S:g}")
    return float(seconds)
