"""Stream cursor: one reader's position in a stream.

Any number of cursors read one store without changing it. Used by broker.queues.stream_reader; uses
stream_store. A cursor keeps its segment open. Records of this run are not checked; records of earlier runs
are checked each time, and damaged ones are skipped. If retention has dropped the message at the cursor,
reading continues at the oldest message kept. A cursor after the last record has the offset ``next_offset``.
"""
from gomq_py.storage.format import record
from gomq_py.storage.format.head import HEAD_BYTES
from gomq_py.storage.stores import stream_store as _stream_store  # noqa: F401  (its .pxd types the store)

# Damaged bytes skipped before others get their turn: checked, copied aside and logged in some 2 ms.
SKIPPED_AT_ONCE = 1 << 20


class StreamCursor:
    """One reader's position in a stream. ``offset``: offset of the message that peek shows or waits for.
    Opens closed segments itself or, after ``let_wait``, in a thread.
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
        """Have threads open closed segments. While a thread opens one, peek() returns False. The store then
        calls its listener's ``segment_opened``.
        """
        self._can_wait = True

    def seek(self, offset):
        """Move to the message with this offset. If it was dropped, move to the oldest message kept. Until a
        message gets this offset, peek() returns False.
        """
        self._leave()
        self.store.write_out()  # includes the appends of this batch
        self.offset = offset
        segment = self.store.last_segment()
        if offset == self.store.next_offset and segment is not None and segment.recovered is None:
            self._enter(segment, segment.end)  # at the end, without a walk

    def peek(self, message):
        """Set ``message`` to the message at the cursor, valid until the next peek or switch.

        Returns False if the message has not arrived, or if its file is not open or has no name yet. Also
        returns False after skipping much damage (forget_skipped).
        """
        # A pause after much skipped damage lets other readers go first.
        segment = self._segment
        if segment is None or not segment.is_direct or self._at >= segment.end:
            if not self._advance():
                return False
            segment = self._segment
        self._size = segment.fill(self._at, message)
        self.offset = segment.first_offset + record.ordinal_at(segment.p, self._at)
        message.location = self.offset
        message.delivery_count = 0
        message.redelivered = False
        return True

    def step(self):
        """Move to the message after the one that peek() has shown."""
        self._at += self._size
        self.offset += 1

    def skip_before(self, timestamp_ms):
        """Move forward to the first message with this timestamp (Unix milliseconds) or a later one. Returns
        the message's offset or, without one, the store's ``next_offset``.
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
            if record.timestamp_at(segment.p, self._at, segment.begun_ms) >= timestamp_ms:
                break
            self._at += segment.size_at(self._at)
            self.offset += 1
        return self.offset

    def _skip_unnamed(self, timestamp_ms):
        """Continue skip_before() in segments whose files have no name yet. Cursors may not enter these."""
        segment = self.store.find(self.offset)
        while segment is not None and segment.is_open and segment.recovered is None:
            at = HEAD_BYTES
            self.offset = segment.first_offset
            while at < segment.end:
                if record.timestamp_at(segment.p, at, segment.begun_ms) >= timestamp_ms:
                    return 0
                at += segment.size_at(at)
                self.offset += 1
            segment = segment.next
        return 0

    def forget_skipped(self):
        """Return the number of damaged bytes skipped since the last call."""
        skipped, self._skipped = self._skipped, 0
        return skipped

    def close(self):
        """Leave the segment, which the store may then close."""
        self._leave()

    def _advance(self):
        """Move to the next sound record, in this segment or a later one. Returns False if none can be read
        yet. Also returns False after skipping much damage.
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
        """Enter the segment of the cursor's offset. Returns False if none exists or is not readable yet."""
        if self.offset >= self.store.next_offset:
            return False
        segment = self.store.find(self.offset)
        return segment is not None and self._enter(segment, HEAD_BYTES)

    def _ordinal_in(self, segment):
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

    def _find_record(self, segment, ordinal):
        """Move to the segment's next sound record with at least this ordinal. Returns False at the end of the
        segment, or after skipping much damage.
        """
        if segment.recovered is None:
            return self._find_written(segment, ordinal)
        at = damaged_at = self._at
        expected = 0 if at == HEAD_BYTES else ordinal
        damaged_count = 0
        while at < segment.end:
            size = record.measure(segment.p, at, segment.end)
            is_sound, lost = False, 1
            if size and record.header_is_sound(segment.p, at, segment.seed):
                is_sound = record.content_is_sound(segment.p, at, segment.seed)
                expected = record.ordinal_at(segment.p, at) + 1
            else:
                found = record.find(segment.p, at + record.ALIGNMENT, segment.end, segment.seed, 0)
                behind = segment.ordinal if found < 0 else record.ordinal_at(segment.p, found)
                size = (segment.end if found < 0 else found) - at
                lost, expected = max(1, behind - expected), behind
            if is_sound:
                if damaged_count:
                    self._skip_damage(segment, damaged_at, at, damaged_count)
                    damaged_count = 0
                if record.ordinal_at(segment.p, at) >= ordinal:
                    self._at = at
                    self.offset = segment.first_offset + record.ordinal_at(segment.p, at)
                    return True
                damaged_at = at + size
            else:
                damaged_count += lost
            at += size
            if at - damaged_at >= SKIPPED_AT_ONCE:
                break
        if damaged_count:
            self._skip_damage(segment, damaged_at, at, damaged_count)
        self._at = at
        behind = segment.ordinal if at >= segment.end else expected
        if self.offset < segment.first_offset + behind:
            self.offset = segment.first_offset + behind
        return False

    def _find_written(self, segment, ordinal):
        """Do the same as _find_record(), for a segment of this run, whose records need no check."""
        at = self._at
        while at < segment.end:
            if record.ordinal_at(segment.p, at) >= ordinal:
                self._at = at
                return True
            at += segment.size_at(at)
        self._at = segment.end
        return False

    def _skip_damage(self, segment, start, end, count):
        """Count the bytes [start, end) as skipped, and report them as damage of ``count`` records."""
        self._skipped += end - start
        self.store.report_damage(segment, start, end, count)
