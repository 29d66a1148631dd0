"""Back-off: computes how long to wait before the next attempt to connect or to run a task."""

import random
import time
from collections.abc import Callable


class Backoff:
    """The waits between attempts: ``first_s`` seconds, then each ``factor`` times as long as the one before,
    up to ``most_s`` seconds.

    The waits grow so that clients do not overload a broker that restarts. Each wait is shortened at random by
    up to the fraction ``jitter`` (0 to 1), so that clients do not reconnect all at once. ``retries``: the
    most attempts after the first one; None: no limit.
    """

    def __init__(
        self, first_s: float = 1.0, most_s: float = 30.0, retries: int | None = None, jitter: float = 0.5,
        factor: float = 2.0,
    ) -> None:
        # this form refuses NaN, too
        if not 0 <= first_s <= most_s or not 0 <= jitter <= 1 or not factor >= 1:
            raise ValueError(f"a back-off from {first_s} to {most_s} s by {factor}, jitter {jitter}, is none")
        self.first_s = first_s
        self.most_s = most_s
        self.retries = retries
        self.jitter = jitter
        self.factor = factor

    def wait_s(self, attempt: int) -> float | None:
        """Return the seconds to wait before retry ``attempt`` (from 1), or None if no retry is left."""
        if self.retries is not None and attempt > self.retries:
            return None
        return self.longest_s(attempt) * (1 - self.jitter * random.random())

    def longest_s(self, attempt: int) -> float:
        """Return the seconds before retry number ``attempt`` (from 1) without jitter. Ignores ``retries``."""
        # 64 doublings exceed any clock; a larger power overflows a float.
        return min(self.most_s, self.first_s * self.factor ** min(attempt - 1, 64))


class Attempts:
    """Counts consecutive failures (``count``), for example of attempts to connect, and computes the wait
    after each.

    ``worked()`` sets the count to 0. ``failed()`` counts from 1 again if more time than the next wait has
    passed since ``succeeded()``.
    """

    # A success does not reset the count at once: a peer that accepts clients and drops them at once would be
    # tried after the shortest wait each time.
    __slots__ = ("count", "_backoff", "_clock", "_succeeded_at_s")

    def __init__(self, backoff: Backoff, clock: Callable[[], float] = time.monotonic) -> None:
        self.count = 0  # failures in the row
        self._backoff = backoff
        self._clock = clock
        self._succeeded_at_s: float | None = None

    def succeeded(self) -> None:
        """Record the time at which an attempt succeeded. Does not change the count."""
        self._succeeded_at_s = self._clock()

    def worked(self) -> None:
        """Set the count of failures to 0, because the connection has done useful work."""
        self.count = 0

    def failed(self) -> float | None:
        """Count a failure. Returns the seconds until the next attempt, or None if no attempt is left."""
        at_s, self._succeeded_at_s = self._succeeded_at_s, None
        if at_s is not None and self._clock() - at_s > self._backoff.longest_s(self.count + 1):
            self.count = 0
        self.count += 1
        return self._backoff.wait_s(self.count)
