"""Limits the time of a login. The wait for its password check does not count, up to PAUSE_S seconds.

It is used in the greenlet that serves the client.
"""
import contextlib
import time

from gevent import Timeout

# Seconds that a login may wait for its password check: a minute behind others' failures
# (auth.login_throttle), and as long for the check. Hashes with a cost of 15 take 3 s each, and their wait
# queue has no limit.
PAUSE_S = 120


class LoginDeadline:
    """Context manager that raises ``error`` in this greenlet if its block takes longer than ``seconds``.

    The time in ``with deadline.paused():`` blocks does not count, up to PAUSE_S seconds in total.
    """

    def __init__(self, seconds, error, clock=time.monotonic):
        self._left_s = seconds
        self._pause_left_s = PAUSE_S
        self._error = error
        self._clock = clock
        self._timeout = None
        self._since_s = 0.0

    @property
    def left_s(self):
        """Seconds that were left when the ``with`` block ended."""
        return self._left_s

    def __enter__(self):
        self._since_s = self._clock()
        self._timeout = Timeout.start_new(self._left_s, self._error)
        return self

    def __exit__(self, *_):
        self._timeout.close()
        self._timeout = None
        self._left_s = max(0.0, self._left_s - (self._clock() - self._since_s))

    @contextlib.contextmanager
    def paused(self):
        """Context manager: stops the clock during its block, for at most PAUSE_S seconds over all blocks."""
        if self._timeout is None:
            yield
            return
        self.__exit__()
        pause_s, began_s = self._pause_left_s, self._clock()
        self._left_s += pause_s
        self.__enter__()
        try:
            yield
        finally:
            self.__exit__()
            self._pause_left_s = max(0.0, pause_s - (self._clock() - began_s))
            self._left_s = max(0.0, self._left_s - self._pause_left_s)
            self.__enter__()
