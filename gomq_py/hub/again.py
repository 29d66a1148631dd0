"""Again: tries anew what the disk has refused: at once, then after pauses that double.

Beside jobs, below those whose stores get a successor or are opened again so. Never switches.
"""
from gomq_py.hub.job import Job

# Until the second attempt, and at the longest between two.
FIRST_PAUSE_MS, LONGEST_PAUSE_MS = 1000, 10_000


class Again(Job):
    """A subclass has ``start()``, which makes an attempt, by starting this job or otherwise. ``timers()``:
    those of the hub.
    """

    def __init__(self, timers):
        super().__init__()
        self._timers = timers
        self._pause_ms = 0
        self._last_ms = 0  # when the last attempt was asked for

    def begin(self):
        """Something has failed: make an attempt, at once unless one was made just now."""
        timers, before = self._timers(), self._last_ms
        self._last_ms = timers.now_ms()
        if not 0 <= self._last_ms - before < 2 * LONGEST_PAUSE_MS:
            self._pause_ms = 0
        timers.start(self._pause_ms, self.start)
        self._pause_ms = min(max(2 * self._pause_ms, FIRST_PAUSE_MS), LONGEST_PAUSE_MS)

    def start(self):
        """Make an attempt."""
        raise NotImplementedError

    def failed(self, error):
        """Another one is due."""
        self.begin()
        return False
