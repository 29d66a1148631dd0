"""Stage: a buffer in which the records of a batch are collected and written with one call, for a busy stream
or a growing queue. One per broker.

Below segment_log. A stream's segments are never recycled, and a queue's only after they were consumed, so
these write fresh pages: each page first written through the mapping is cleared and faults, 3.4 us for 4 KiB,
and the flush interrupts every processor of the process to clean it. Writing a batch with a call takes 1.2 us
for 4 KiB, and readers map the pages sixteen at a time. One store uses the stage until the end of its batch;
others write through their mappings meanwhile. Never yields.
"""
from gomq_py import octets

# Fits into a processor's nearest cache; four times as much was no faster.
STAGE_OCTETS = 32768


class Stage:
    """``user``: the store that uses it, or None. ``p``: pointer to its bytes."""

    __slots__ = ("user", "p", "_octets")

    def __init__(self):
        self.user = self._octets = None

    def take(self, user):
        """Reserve it for this store; False if another store has it."""
        if self.user is not None:
            return self.user is user
        if self._octets is None:
            self._octets = bytearray(STAGE_OCTETS)
            self.p = octets.pointer(self._octets)
        self.user = user
        return True

    def content(self, count):
        """A view of the first ``count`` bytes, valid until the next record."""
        return memoryview(self._octets)[:count]

    def release(self):
        """Free it for other stores."""
        self.user = None
        return 0
