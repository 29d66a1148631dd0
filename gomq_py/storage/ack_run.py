"""Ack run: messages of one segment that are deleted one after the other, and become one entry of its acks file.

Part of message_store, which has one. A queue whose messages are acked in order writes sixteen octets for a whole
batch of them instead of eight for each. Written when another message is deleted than the next one, when a batch ends,
and before the segment's files go. Never yields, never flushes.
"""
# A pair of entries is worth it from so many records on; fewer are written as single acks.
SMALLEST_RUN = 3


class AckRun:
    """``segment``: whose messages are being deleted, or None. Not written yet are ``count`` records from ``start``
    up to ``end``, the last of which begins at ``last``.
    """

    __slots__ = ("segment", "start", "last", "end", "count")

    def __init__(self):
        self.segment = None
        self.start = self.last = self.end = self.count = 0

    def begin(self, at, size):
        """The record at this position is deleted, and does not follow on those before. One that does, which begins at
        ``end``, the store adds by itself: the call would cost a tenth of taking a message.
        """
        self.write()
        self.start = self.last = at
        self.end = at + size
        self.count = 1
        return 0

    def write(self):
        """Write what was deleted in a row. Whoever has the segment announces it."""
        if self.count and self.segment.acks is not None:
            if self.count >= SMALLEST_RUN:
                self.segment.put_run(self.start, self.end)
            else:
                self.segment.put_ack(self.start)
                if self.count == 2:
                    self.segment.put_ack(self.last)
        self.end = self.count = 0
        return 0

    def turn_to(self, segment):
        """Messages of another segment are deleted from here on, or of none. What was not written is forgotten."""
        self.segment = segment
        self.end = self.count = 0
        return 0
