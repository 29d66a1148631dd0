"""How long to wait before the next attempt, of a connection as of a task. A leaf."""

import random
import time


class Backoff:
    """Waits that double from ``first_s`` up to ``most_s``, so that a broker that comes back is not run over.

    Of each, up to the share ``jitter`` is taken off at random: clients that were cut off together come back
    one by one. ``retries`` is how many attempts may follow the first; None: for ever.
    """

    def __init__(self, first_s=1.0, most_s=30.0, retries=None, jitter=0.5, factor=2.0):
        # so that NaN is refused too
        if not 0 <= first_s <= most_s or not 0 <= jitter <= 1 or not factor >= 1:
            raise ValueError(f"a back-off from {first_s} to {most_s} s by {factor}, jitter {jitter}, is none")
        self.first_s = first_s
        self.most_s = most_s
        self.retries = retries
        self.jitter = jitter
        self.factor = factor

    def wait_s(self, attempt):
        """Seconds before attempt ``attempt`` (1: the first retry); None when there is to be none."""
        if self.retries is not None and attempt > self.retries:
            return None
        return self.longest_s(attempt) * (1 - self.jitter * random.random())

    def longest_s(self, attempt):
        """The same with nothing taken off, however many attempts there may be."""
        # 64 doublings are more than any clock knows; a power of a larger number is none of a float.
        return min(self.most_s, self.first_s * self.factor ** min(attempt - 1, 64))


class Attempts:
    """Failures in a row, of what is kept up: a connection, a consumer at another broker.

    A success that ends at once ends no row, or a peer that lets everybody in and then throws them out would
    be asked again and again after the shortest wait. One that did work does, or that lasted longer than the
    wait that would have been next.
    """

    __slots__ = ("count", "_backoff", "_clock", "_succeeded_at_s")

    def __init__(self, backoff, clock=time.monotonic):
        self.count = 0  # failures in the row
        self._backoff = backoff
        self._clock = clock
        self._succeeded_at_s = None

    def succeeded(self):
        """It is up, and has yet to show that it stays so."""
        self._succeeded_at_s = self._clock()

    def worked(self):
        """It did what it is for: the next failure is the first of a row."""
        self.count = 0

    def failed(self):
        """Seconds to wait before the next attempt; None when there is to be none."""
        at_s, self._succeeded_at_s = self._succeeded_at_s, None
        if at_s is not None and self._clock() - at_s > self._backoff.longest_s(self.count + 1):
            self.count = 0
        self.count += 1
        return self._backoff.wait_s(self.count)
