"""Stream store: one stream's messages as a log that is read without being consumed, and drops whole segments
at its old end.

Beside message_store, on the same segment_log: append and files are the same, but there are no acks, and no
message is taken. A record's offset is its segment's first offset plus its ordinal, from 0 on, and is never
reused. Readers hold a cursor each (stream_cursor) and share the mappings; a segment without readers is
closed. A segment is readable once its file has its name: before that a kill loses its messages and reuses
their offsets. Segments are not recycled, so that a descriptor or mapping of a dropped one stays valid. Never
switches, never flushes.
"""
import os
from functools import partial

from gomq_py.observability.log import logger
from gomq_py.storage.errors import StoreFull
from gomq_py.storage.format import record
from gomq_py.storage.format.head import HEAD_BYTES
from gomq_py.storage.segments import damage
from gomq_py.storage.segments.opening import open_files
from gomq_py.storage.segments.pool import ALONE, FIRST_SEGMENT_BYTES
from gomq_py.storage.segments.segment import MSGS, Segment
from gomq_py.storage.stores import segment_log
from gomq_py.storage.stores.segment_log import LARGEST_SEGMENT_NUMBER
from gomq_py.storage.stores.store import LARGEST_SEGMENT_BYTES
from gomq_py.storage.stores.stream_offsets import StreamOffsets

LOG = logger("storage")

# After a batch of this size the next one uses the stage, which costs a call: up to two thirds of a fresh
# page's fault.
BUSY_OCTETS = 2048


class StreamStore(segment_log.SegmentLog):
    """One stream's messages. ``first_offset``: of the oldest message kept; ``next_offset``: of the next
    message; ``ready_count`` and ``ready_bytes``: sums of the messages kept.

    ``synced_offset``: messages before this offset have been flushed, so no crash makes the stream reuse their
    offsets. ``rolled``: segments were begun since the owner last reset it, so retention has to be checked.
    ``offsets``: StreamOffsets of its consumers. Made by storage.stores.stream_recovery.open_stream_store.
    """

    __slots__ = (
        "first_offset", "next_offset", "synced_offset", "rolled", "offsets", "_unstaged", "_is_busy",
        "_order", "_dropped", "_reported", "_sync_offset",
        "_sync_number", "_sync_end", "_synced_number", "_synced_end",
    )

    def __init__(self, folder, files, pool, committer, incarnation, segment_bytes=8388608, listener=None):
        super().__init__(
            folder, files, pool, committer, incarnation, usable_segment_bytes(segment_bytes), True, listener
        )
        self.first_offset = self.next_offset = self.synced_offset = self._sync_offset = 0
        self._sync_number = self._sync_end = self._synced_number = self._synced_end = 0
        self.rolled = self._is_busy = False
        self._unstaged = 0  # bytes written from the stage in this batch
        self.offsets = StreamOffsets(self.folder, files, incarnation)
        self._order = []
        self._dropped = set()  # dropped from the log, file not yet removed
        self._reported = set()
        self._shelf = self._expected_shelf = ALONE

    # the hot verb

    def append(self, message):
        """Copy the message in; its location is its offset.

        Raises StoreFull (no room on the disk; nothing changed), StoreClosed, or StoreError (larger than any
        segment).
        """
        size = record.size_of(message.routing_length, message.properties_length, message.body_length)
        segment = self._write
        if segment is None or segment.end + self._staged + size > segment.capacity:
            segment = self._begin_segment(size, message.may_wait)
        if message.at_once and self._staged and not self._write_staged():
            raise self.failure
        if self._is_busy and not message.at_once:
            self._append_staged(segment, message, size)
        else:
            segment.append(message)
        message.location = self.next_offset
        self.next_offset += 1
        self.ready_count += 1
        self.ready_bytes += message.body_length
        # Transient messages, too: an offset that was shown to readers must show the same message in later
        # runs.
        if not segment.unsynced & MSGS:
            self._mark_messages(segment)

    def _append_staged(self, segment, message, size):
        """Append a record to the segment, through the stage if that is free.

        Raises StoreClosed if the stage was full and could not be written.
        """
        if self._has_stage(size):
            self._put_on_stage(segment, message, size)
        else:
            segment.append(message)

    def write_out(self):
        """End a batch: the appends are then in the file and announced.

        Fences the store if that fails.
        """
        segment = self._write
        if segment is not None:
            if segment.end >= self._expect_at:
                self._expect_next()
            count = segment.end - segment.announced + self._staged + self._unstaged
            if count:
                self._is_busy = count >= BUSY_OCTETS
                if self._staged:
                    self._write_staged()
                else:
                    self._announce(segment)
                self._unstaged = 0

    def _write_staged(self):
        count = self._staged
        if not segment_log.SegmentLog._write_staged(self):
            return False
        self._unstaged += count
        return True

    def _put_staged(self, segment, octets):
        self.files.write(segment.msgs, segment.end, octets)

    # reading

    def find(self, offset):
        """The segment that holds this offset, or else the next segment kept; None if there is none."""
        low, high = 0, len(self._order)
        while low < high:
            middle = (low + high) // 2
            segment = self._order[middle]
            if segment.first_offset + segment.ordinal <= offset:
                low = middle + 1
            else:
                high = middle
        return self._order[low] if low < len(self._order) else None

    def enter(self, segment, can_wait):
        """Register a cursor in the segment, which stays mapped until leave().

        Returns False if the segment cannot be read: then the store is fenced. Also returns False if the
        cursor must wait for ``segment_opened``: a thread opens the segment (only if ``can_wait``), or its
        file has no name yet.
        """
        if self.pool.has_unnamed and segment.is_open and not self.has_name(segment):
            return False
        if not segment.is_open:
            try:
                if not self._come_to(segment, can_wait):
                    return False
            except OSError as error:
                self.fence(error)
                return False
        segment.readers += 1
        if can_wait:
            self._open_next(segment)
        return True

    def leave(self, segment):
        """Remove a cursor from the segment."""
        segment.readers -= 1
        if (
            segment.readers == 0 and segment.is_open and segment is not self._write and not segment.unsynced
            and not segment.syncing
        ):
            if segment.sealed:
                self._close_segment(segment)
            else:
                self._mark_messages(segment)  # sealed and closed by the sync

    def report_damage(self, segment, start, end, count):
        """Report ``count`` damaged records that a cursor had to skip, unless they were reported before."""
        if (segment.number, start) not in self._reported:
            self._reported.add((segment.number, start))
            damage.set_aside(self, segment, start, end, count)

    def last_segment(self):
        """The newest segment there is, or None."""
        return self._last

    def offset_for_timestamp(self, timestamp_ms):
        """The offset from which a cursor has to search for the first message of this time (Unix milliseconds)
        or later: the first offset of a segment.
        """
        self._note_newest()
        for segment in reversed(self._order):
            if segment.count and segment.timestamps[0] < timestamp_ms:
                return max(segment.first_offset, self.first_offset)
        return self.first_offset

    def open_for_reading(self, number):
        """Open a segment's file. Returns (descriptor, which the caller closes; count of flushed bytes from
        the start), or None if there is no such segment or the store was stopped.

        The file's content stays valid when the segment is dropped: files of streams are not recycled. Raises
        OSError.
        """
        segment = self._segments.get(number)
        if segment is None or self.failure is not None:
            return None
        try:
            fd = os.open(self.path_of("msgs", number), os.O_RDONLY | os.O_CLOEXEC)
        except FileNotFoundError:
            if not segment.is_open:
                raise
            fd = os.open(segment.msgs.path, os.O_RDONLY | os.O_CLOEXEC)  # it has no name yet
        return fd, self._flushed_bytes(segment)

    def _flushed_bytes(self, segment):
        if segment.number < self._synced_number:
            return segment.end
        return self._synced_end if segment.number == self._synced_number else 0

    def describe(self):
        """The segments, oldest first, as dicts: ``number, first_offset, next_offset, count, bytes`` (of the
        file, up to the end of the data), ``flushed_bytes, body_bytes, sealed`` (nothing more comes),
        ``file, first_timestamp_ms, last_timestamp_ms`` (0 while empty).
        """
        self._note_newest()
        return [{
            "number": segment.number, "first_offset": segment.first_offset,
            "next_offset": segment.first_offset + segment.ordinal,
            "count": segment.count, "bytes": segment.end, "flushed_bytes": self._flushed_bytes(segment),
            "body_bytes": segment.body_bytes,
            "sealed": segment is not self._write, "file": self.path_of("msgs", segment.number),
            "first_timestamp_ms": segment.timestamps[0], "last_timestamp_ms": segment.timestamps[1],
        } for segment in self._order]

    # consumers

    def put_offset(self, tag, offset, now_ms):
        """Save the next offset of a consumer for later runs. The committer flushes it without hurry.

        On a full disk the old offset stays.
        """
        try:
            is_new = self.offsets.file is None
            self.offsets.put(tag, offset, now_ms)
        except OSError as error:
            LOG.warning("%s: the position of consumer %r is not kept: %s", self.folder, tag, error)
            return
        if is_new:
            self.committer.mark_folder(self.folder)
        self.committer.mark_acks(self)

    def forget_offset(self, tag):
        """Delete a consumer's position. Returns whether there was one."""
        if not self.offsets.forget(tag):
            return False
        self.committer.mark(self)  # an operator waits until the deletion is on the disk
        return True

    # retention

    def oldest(self):
        """(messages, bytes of records, last timestamp) of the oldest segment, or None if it is also the
        newest, which is never dropped.
        """
        if len(self._order) < 2:
            return None
        segment = self._order[0]
        return segment.count, segment.end - HEAD_BYTES, segment.timestamps[1]

    def record_bytes(self):
        """Bytes of records kept."""
        return sum(segment.end - HEAD_BYTES for segment in self._order)

    def drop_oldest(self):
        """Drop the oldest segment from the log; its file is removed once the rest of the log is flushed."""
        segment = self._order.pop(0)
        self.first_offset = self._order[0].first_offset
        self.ready_count -= segment.count
        self.ready_bytes -= segment.body_bytes
        self._forget(segment)
        self._dropped.add(segment)
        # One request each: a running sync does not cover the present start of the log.
        self.committer.after_sync(partial(self._unlink_dropped, segment), hurry=False, about_logs=False)

    def purge(self):
        """Drop all messages; offsets go on. Returns their count.

        Raises StoreFull without room for a new segment; then all segments but the newest are dropped, which
        makes room.
        """
        count = self.ready_count
        if count:
            try:
                self._mark_messages(self._begin_segment(0))
            except StoreFull:
                self._drop_all_but_newest()
                raise
            self._drop_all_but_newest()
            self.write_out()
        return count

    def _drop_all_but_newest(self):
        while len(self._order) > 1:
            self.drop_oldest()

    def set_segment_bytes(self, segment_bytes):
        """Set the size of new segments."""
        self.segment_bytes = usable_segment_bytes(segment_bytes)
        self._next_bytes = min(self._next_bytes, self.segment_bytes)

    # opening and closing

    def adopt(self, segment):
        """Add a segment of an earlier run. Called by recovery, oldest first, before any other method."""
        self._segments[segment.number] = segment
        if self._last is not None:
            self._last.next = segment
        else:
            self.first_offset = segment.first_offset
        self._order.append(segment)
        self._last = segment
        self.ready_count += segment.count
        self.ready_bytes += segment.body_bytes
        self.next_offset = self.synced_offset = self._sync_offset = segment.first_offset + segment.ordinal
        self._synced_number = self._sync_number = segment.number
        self._synced_end = self._sync_end = segment.end

    def go_on_at(self, offset):
        """Set the next offset, because the newest segments, which had the offsets before, are gone.

        For recovery, after the last ``adopt``.

        Raises StoreFull.
        """
        self.next_offset = offset
        self._mark_messages(self._begin_segment(0))
        if len(self._order) == 1:
            self.first_offset = offset

    def listed(self):
        """SegmentLog.listed() with the next offset and the checksum of the consumers' positions."""
        listed = segment_log.SegmentLog.listed(self)
        if listed is None:
            return None
        return listed._replace(next_offset=self.next_offset, positions=self.offsets.checksum())

    def delete_files(self):
        """Stop the store and remove its files."""
        self._dropped = set()
        self._order = []
        self.offsets.close()
        segment_log.SegmentLog.delete_files(self)

    def forget_files(self):
        """Stop the store. The caller removes the folder."""
        self._dropped = set()
        self._order = []
        self.offsets.close()
        segment_log.SegmentLog.forget_files(self)

    # called by SegmentLog

    def sync_files(self, acks_too):
        """The files that the sync must flush, as SegmentLog.sync_files; notes up to which offset."""
        files = segment_log.SegmentLog.sync_files(self, acks_too)
        self._sync_offset = self.next_offset
        if self._last is not None:
            self._sync_number, self._sync_end = self._last.number, self._last.end
        if acks_too and self.offsets.dirty:
            self.offsets.dirty = False
            files.append(self.offsets.file)
        return files

    def synced(self):
        """Note that the files of the last sync_files() are flushed."""
        self.synced_offset = self._sync_offset
        self._synced_number, self._synced_end = self._sync_number, self._sync_end
        segment_log.SegmentLog.synced(self)

    def _has_unsynced(self):
        return bool(self._unsynced) or self.offsets.dirty

    def _begin_segment(self, size, may_wait=False):
        """Begin a new write segment."""
        before = self._last
        segment = self._roll(size, may_wait)
        self._order.append(segment)
        self.rolled = True
        if before is not None and before.ordinal == 0:
            self.drop_oldest_if_empty()
        return segment

    def drop_oldest_if_empty(self):
        """Drop empty segments at the old end: they only recorded the next offset, which later ones tell, too.
        """
        while len(self._order) > 1 and self._order[0].ordinal == 0:
            self.drop_oldest()

    def _is_idle(self, segment):
        return segment.readers == 0

    def _leave_behind(self, segment):
        """After a roll: seal the old segment once it is flushed, and close it unless it is being read."""
        if segment.recovered is None:
            segment.note_timestamps()
            self._announce(segment)
            self._mark_messages(segment)

    def _note_newest(self):
        self.write_out()
        if self._write is not None:
            self._write.note_timestamps()

    def _close_files(self):
        segment_log.SegmentLog._close_files(self)
        self.offsets.close()

    def _create_segment(self, capacity):
        if self._next_number > LARGEST_SEGMENT_NUMBER:
            raise StoreFull(self.folder, 0, "segment numbers are used up")
        segment = Segment(self._next_number)
        try:
            self._make_folder()
            msgs = self.pool.take_alone(self.path_of("msgs", segment.number), capacity, self)
        except OSError as error:
            raise StoreFull(self.folder, 0, f"no new segment: {error}") from error
        self.committer.mark_folder(self.folder)
        segment.attach(msgs, None)
        segment.begin(self.incarnation, self.pool.next_generation(), self.next_offset)
        self.files.overwritten(msgs, 0, HEAD_BYTES)
        return segment

    def open_now(self, segment):
        segment.attach(*open_files(self, segment.number, segment.end, 0, segment.recovered is None, 0))

    def read_when_opened(self, segment):
        return segment.end

    def acks_bytes(self, segment):
        return 0

    def _discard(self, segment):
        self._let_go(segment)
        self.committer.names.change(
            [self.files.unlinking(self.path_of("msgs", segment.number), self.committer.background.short.add)]
        )

    def _forget(self, segment):
        """Remove the segment from the log; its readers notice that it is closed."""
        if self.opener is not None:
            self.opener.drop(self, segment)
        del self._segments[segment.number]
        if segment.unsynced:
            self._unsynced.remove(segment)
            segment.unsynced = 0
        self._let_go(segment)

    def _let_go(self, segment):
        if segment.is_open:
            self._announce(segment)
            self._close_segment(segment)

    def _unlink_dropped(self, segment, error):
        """Remove a dropped segment's file, unless the sync failed: then the segment is there again after a
        restart.
        """
        if segment not in self._dropped:  # the whole stream was deleted meanwhile
            return
        self._dropped.remove(segment)
        if error is None:
            self.committer.names.change(
                [self.files.unlinking(
                    self.path_of("msgs", segment.number), self.committer.background.short.add)]
            )
            self.committer.mark_folder(self.folder)


def usable_segment_bytes(wanted):
    """The nearest size to ``wanted`` that a segment can have."""
    return max(FIRST_SEGMENT_BYTES, min(int(wanted), LARGEST_SEGMENT_BYTES))
