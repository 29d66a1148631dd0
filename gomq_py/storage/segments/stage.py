"""Stage: where records are put together that are written to their file with one call for a batch: those of a
busy stream, and of a queue that grows.

One per broker.

Below segment_log. A stream's segments are never recycled, and those of a queue only once they were consumed,
so that all of its pages are fresh: each one that is first written through the mapping is cleared and a fault,
3.4 us for 4 KiB, and the flush interrupts every processor that the process runs on to clean it. Writing a
batch with a call takes 1.2 us for 4 KiB, and readers have the pages in their mapping sixteen at a time. One
store has the stage, until the end of its batch; others write through their mappings meanwhile. Never yields.
"""
from gomq_py import octets

# As much as stays in a processor's nearest cache; four times as much was no faster.
STAGE_OCTETS = 32768


class Stage:
    """``user``: the store that has it, or None. ``p``: its octets, for records."""

    __slots__ = ("user", "p", "_octets")

    def __init__(self):
        self.user = self._octets = None

    def take(self, user):
        """Give it to this store. Returns whether it has it from here on."""
        if self.user is not None:
            return self.user is user
        if self._octets is None:
            self._octets = bytearray(STAGE_OCTETS)
            self.p = octets.pointer(self._octets)
        self.user = user
        return True

    def content(self, count):
        """The first ``count`` octets, as a view that dies at the next record."""
        return memoryview(self._octets)[:count]

    def release(self):
        """No store has it any more."""
        self.user = None
        return 0
