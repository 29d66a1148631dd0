"""Slice clock: how long work may keep the hub before others get their turn,
for loops whose items do not all cost the same.

Beside turns and the scheduler. A slice of so many items is as long as its slowest item times that number; one
that asks ``is_over()`` after each item is as long as others should wait, and one item more. The time is what
passes, not what the processor spends: that is what others wait.
"""
import time

# Others wait for it once per poll of the loop: as long as a read of slow frames may take (hub.turns).
SLICE_S = 0.002


class SliceClock:
    """``is_over()`` after each item says whether the slice has had its time;
    ``begin()`` starts another slice.

    ``seconds``: SLICE_S unless told. ``every``: items between two looks at the clock, where an item costs
    less than a microsecond. ``clock``: in seconds.
    """

    __slots__ = ("_seconds", "_every", "_clock", "_until", "_left")

    def __init__(self, seconds=None, every=1, clock=time.perf_counter):
        self._seconds = SLICE_S if seconds is None else seconds
        self._every = every
        self._clock = clock
        self.begin()

    def begin(self):
        """The time counts from now."""
        self._until = self._clock() + self._seconds
        self._left = self._every

    def is_over(self):
        """After an item: is it time for others? Stays True until begin()."""
        self._left -= 1
        if self._left > 0:
            return False
        if self._clock() >= self._until:
            return True
        self._left = self._every
        return False
