"""Job: long work that is done in slices, has a name, and hears when it fails; the scheduler (hub.scheduler)
runs it. SliceClock: ends a slice, or a loop over items of unequal cost, in time for others to get their turn.

Below everything that works in slices; imports nothing of ours. A kind of job is a class: the log and the
metrics use its name, and its ``failed``, which has no default, decides the cost of a fault.
"""
import time

# Others wait for a slice once per poll of the loop: as long as a read of slow frames may take (hub.turns).
SLICE_S = 0.002


class SliceClock:
    """``is_over()`` after each item says whether the slice has had its time; ``begin()`` starts another.

    A slice of a fixed number of items may last as long as its slowest item times that number; a slice by the
    clock lasts its time and one item more. The time is wall-clock time and not the processor's, because
    others wait as long.

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
        """Start the slice's time now."""
        self._until = self._clock() + self._seconds
        self._left = self._every

    def is_over(self):
        """Whether the slice has had its time; ask after each item. Stays True until begin()."""
        self._left -= 1
        if self._left > 0:
            return False
        if self._clock() >= self._until:
            return True
        self._left = self._every
        return False


class Job:
    """One piece of long work.

    ``running`` is the scheduler's: a job that runs is not started a second time.
    """

    __slots__ = ("running",)

    name = ""

    def __init__(self):
        self.running = False

    def step(self):
        """Do the next slice, a few milliseconds of it at most.

        Returns whether there is more to do after the next poll of the loop.
        """
        raise NotImplementedError

    def failed(self, error):
        """A slice raised, which has been logged and counted: repair the job's state.

        Returns whether the job goes on.
        """
        raise NotImplementedError
