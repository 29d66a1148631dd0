"""Stream cursor: where one reader stands in a stream. Any number of them read one store; none of them changes it.

Above stream_store, below broker.queues.stream_reader. A cursor holds its segment open as long as it stands in it. Records of this run are shown as
they are; those of earlier runs are checked each time, and damaged ones stepped over. One that stands before the first message kept goes on there.
"""
from gomq_py import octets
from gomq_py.storage import stream_store as _stream_store  # noqa: F401  (its .pxd types the store)
from gomq_py.storage.format import record
from gomq_py.storage.format.head import HEAD_BYTES


class StreamCursor:
    """``offset`` is that of the record that peek shows, or that it waits for."""

    __slots__ = ("store", "offset", "_segment", "_at", "_size")

    def __init__(self, store, offset=0):
        self.store = store
        self._segment = None
        self._at = self._size = 0
        self.offset = 0
        self.seek(offset)

    def seek(self, offset):
        """Go to the message of this offset; one that is not kept any more is the first that is, one that is not there yet is waited for."""
        self._leave()
        self.store.flush()  # what was appended in this batch is found too
        self.offset = offset
        segment = self.store.last_segment()
        if offset == self.store.next_offset and segment is not None and segment.written_here:
            self._enter(segment, segment.end)  # at the end: nobody walks there

    def peek(self, message):
        """Show the message the cursor stands at. False: it has not come yet. Valid until the next peek or switch."""
        segment = self._segment
        if segment is None or not segment.is_direct or self._at >= segment.end:
            if not self._advance():
                return False
            segment = self._segment
        self._size = segment.fill(self._at, message)
        self.offset = segment.first_offset + octets.le32(segment.p, self._at + 16)
        message.location = self.offset
        message.delivery_count = 0
        message.redelivered = False
        return True

    def step(self):
        """Go past what peek showed."""
        self._at += self._size
        self.offset += 1
        return 0

    def skip_before(self, timestamp_ms):
        """Go on to the first message that came at this time (Unix milliseconds) or later. Returns its offset, or ``next_offset``."""
        while self._segment is not None or self.offset < self.store.next_offset:
            segment = self._segment
            if segment is None or not segment.is_direct or self._at >= segment.end:
                if not self._advance():
                    break
                segment = self._segment
            if octets.le64(segment.p, self._at + 20) >= timestamp_ms:
                break
            self._at += record.measure(segment.p, self._at, segment.end)
            self.offset += 1
        return self.offset

    def close(self):
        """Let go of the segment."""
        self._leave()
        return 0

    def _advance(self):
        """Move to the next record there is to show. False at the end."""
        while True:
            segment = self._segment
            if segment is None:
                if not self._arrive():
                    return False
            elif not segment.is_open:  # dropped from the log
                self._leave()
            elif self._find_record(segment, 0):
                return True
            elif segment.next is None:
                return False
            elif not self._enter(segment.next, HEAD_BYTES):
                return False

    def _arrive(self):
        """Come into the segment that holds the offset. False: there is none yet."""
        if self.offset >= self.store.next_offset:
            return False
        segment = self.store.find(self.offset)
        if segment is None or not self._enter(segment, HEAD_BYTES):
            return False
        if self.offset > segment.first_offset:
            self._find_record(segment, self.offset - segment.first_offset)
        return True

    def _enter(self, segment, at):
        if not self.store.enter(segment):
            return False
        self._leave()
        self._segment = segment
        self._at = at
        return True

    def _leave(self):
        segment = self._segment
        if segment is not None:
            self._segment = None
            self.store.leave(segment)
        return 0

    def _find_record(self, segment, ordinal):
        """Move on to the next sound record of this ordinal or later. False at the end of the segment."""
        at = self._at
        while at < segment.end:
            size = record.measure(segment.p, at, segment.end)
            if not segment.written_here:
                size = self._sound_size(segment, at, size)
            if size > 0:
                if octets.le32(segment.p, at + 16) >= ordinal:
                    self._at = at
                    return True
                at += size
            else:
                at -= size
        self._at = segment.end
        return False

    def _sound_size(self, segment, at, size):
        """The size of a record of an earlier run whose checksums hold; of one that is damaged, its size below 0."""
        if size > 0 and record.header_is_sound(segment.p, at, segment.seed):
            if record.content_is_sound(segment.p, at, segment.seed):
                return size
            end = at + size
        else:
            end = record.find(segment.p, at + record.ALIGNMENT, segment.end, segment.seed, 0)
            if end < 0:
                end = segment.end
        self.store.report_damage(segment, at, end, 1)
        return at - end
