"""Stream cursor: where one reader stands in a stream.

Any number of them read one store; none of them changes it.

Above stream_store, below broker.queues.stream_reader. A cursor holds its segment open as long as it stands in
it. Records of this run are shown as they are; those of earlier runs are checked each time, and damaged ones
stepped over. One that stands before the first message kept goes on there. One that has stepped over the last
record stands at ``next_offset``: who is behind has something to read.
"""
from gomq_py import octets
from gomq_py.storage.format import record
from gomq_py.storage.format.head import HEAD_BYTES
from gomq_py.storage.stores import stream_store as _stream_store  # noqa: F401  (its .pxd types the store)

# Damaged octets stepped over before the others get their turn: checked, copied aside and said in some 2 ms.
SKIPPED_AT_ONCE = 1 << 20


class StreamCursor:
    """``offset`` is that of the record that peek shows, or that it waits for.

    A segment that is closed is opened at once, until ``let_wait``.
    """

    __slots__ = ("store", "offset", "_segment", "_at", "_size", "_skipped", "_can_wait")

    def __init__(self, store, offset=0):
        self.store = store
        self._segment = None
        self._at = self._size = self._skipped = 0
        self.offset = 0
        self._can_wait = False
        self.seek(offset)

    def let_wait(self):
        """Let a thread open what the cursor comes to from here on: peek() answers False until the store's
        listener hears ``segment_opened``.
        """
        self._can_wait = True

    def seek(self, offset):
        """Go to the message of this offset; one that is not kept any more is the first that is, one that is
        not there yet is waited for.
        """
        self._leave()
        self.store.flush()  # what was appended in this batch is found too
        self.offset = offset
        segment = self.store.last_segment()
        if offset == self.store.next_offset and segment is not None and segment.written_here:
            self._enter(segment, segment.end)  # at the end: nobody walks there

    def peek(self, message):
        """Show the message the cursor stands at.

        False: it has not come yet, or the cursor has stepped over so much damage that the others come first
        (forget_skipped). Valid until the next peek or switch.
        """
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
        """Go on to the first message that came at this time (Unix milliseconds) or later.

        Returns its offset, or ``next_offset``.
        """
        while self._segment is not None or self.offset < self.store.next_offset:
            segment = self._segment
            if segment is None or not segment.is_direct or self._at >= segment.end:
                if not self._advance():
                    if self._skipped == 0:
                        self._skip_unnamed(timestamp_ms)
                        break
                    self._skipped = 0
                    continue
                segment = self._segment
            if octets.le64(segment.p, self._at + 20) >= timestamp_ms:
                break
            self._at += segment.size_at(self._at)
            self.offset += 1
        return self.offset

    def _skip_unnamed(self, timestamp_ms):
        """As skip_before, through segments that no cursor comes into before their files have their names."""
        segment = self.store.find(self.offset)
        while segment is not None and segment.is_open and segment.written_here:
            at = HEAD_BYTES
            self.offset = segment.first_offset
            while at < segment.end:
                if octets.le64(segment.p, at + 20) >= timestamp_ms:
                    return 0
                at += segment.size_at(at)
                self.offset += 1
            segment = segment.next
        return 0

    def forget_skipped(self):
        """Octets of damage that were stepped over since this was last asked."""
        skipped, self._skipped = self._skipped, 0
        return skipped

    def close(self):
        """Let go of the segment."""
        self._leave()
        return 0

    def _advance(self):
        """Move to the next record there is to show.

        False at the end, and where much damage was stepped over.
        """
        while self._skipped < SKIPPED_AT_ONCE:
            segment = self._segment
            if segment is None:
                if not self._arrive():
                    return False
            elif not segment.is_open:  # dropped from the log
                self._leave()
            elif self._find_record(segment, self._ordinal_in(segment)):
                return True
            elif self._skipped >= SKIPPED_AT_ONCE or segment.next is None:
                return False
            elif not self._enter(segment.next, HEAD_BYTES):
                return False
            elif self.offset < self._segment.first_offset:
                self.offset = self._segment.first_offset
        return False

    def _arrive(self):
        """Come into the segment that holds the offset. False: there is none yet."""
        if self.offset >= self.store.next_offset:
            return False
        segment = self.store.find(self.offset)
        return segment is not None and self._enter(segment, HEAD_BYTES)

    def _ordinal_in(self, segment):
        """Where in the segment the offset lies."""
        return self.offset - segment.first_offset if self.offset > segment.first_offset else 0

    def _enter(self, segment, at):
        if not self.store.enter(segment, self._can_wait):
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
        """Move on to the next sound record of this ordinal or later.

        False at the end of the segment, which may lie behind damaged records, and where much damage was
        stepped over.
        """
        if segment.written_here:
            return self._find_written(segment, ordinal)
        at = damaged_at = self._at
        damaged_count = 0
        while at < segment.end:
            size = record.measure(segment.p, at, segment.end)
            is_sound = False
            if size and record.header_is_sound(segment.p, at, segment.seed):
                is_sound = record.content_is_sound(segment.p, at, segment.seed)
            else:
                found = record.find(segment.p, at + record.ALIGNMENT, segment.end, segment.seed, 0)
                size = (segment.end if found < 0 else found) - at
            if is_sound:
                if damaged_count:
                    self._skip_damage(segment, damaged_at, at, damaged_count)
                    damaged_count = 0
                if octets.le32(segment.p, at + 16) >= ordinal:
                    self._at = at
                    self.offset = segment.first_offset + octets.le32(segment.p, at + 16)
                    return True
                damaged_at = at + size
            else:
                damaged_count += 1
            at += size
            if at - damaged_at >= SKIPPED_AT_ONCE:
                break
        if damaged_count:
            self._skip_damage(segment, damaged_at, at, damaged_count)
        self._at = at
        if at >= segment.end and self.offset < segment.first_offset + segment.ordinal:
            self.offset = segment.first_offset + segment.ordinal
        return False

    def _find_written(self, segment, ordinal):
        """As _find_record, in a segment of this run."""
        at = self._at
        while at < segment.end:
            if octets.le32(segment.p, at + 16) >= ordinal:
                self._at = at
                return True
            at += segment.size_at(at)
        self._at = segment.end
        return False

    def _skip_damage(self, segment, start, end, count):
        """Step over damaged records; all in a row are said together."""
        self._skipped += end - start
        self.store.report_damage(segment, start, end, count)
        return 0
