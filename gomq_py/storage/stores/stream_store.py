"""Stream store: keeps one stream's messages in a log, which readers do not consume, and drops its oldest
segments.

Uses segment_log, as message_store does, but has no acks, and no message is taken. A record's offset is its
segment's first offset plus its ordinal, and is never reused. Each reader has a cursor (stream_cursor); all
cursors share the mappings. A segment is readable after its file has got its name. A kill before that loses
its messages, and the next run reuses their offsets. Segments are not recycled, so that a descriptor or
mapping of a dropped segment stays valid. Never switches, never flushes.
"""
import os
import time
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
    """Keeps one stream's messages. Made by storage.stores.stream_recovery.open_stream_store.

        first_offset     offset of the oldest message kept
        next_offset      offset of the next append
        ready_count      number of messages kept; ``ready_bytes``: bytes of their bodies
        synced_offset    messages before it are flushed; no crash makes the stream reuse their offsets
        rolled           True after a segment was begun; the owner clears it when it checks retention
        offsets          StreamOffsets of the stream's consumers
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
        """Copy the message into the stream, and set its location to its offset. Raises the errors of
        Store.append().
        """
        size = record.size_of(message.routing_length, message.properties_length, message.body_length)
        segment = self._write
        if segment is None or segment.end + self._staged + size > segment.capacity:
            segment = self._begin_segment(size, message.timestamp_ms, message.may_wait)
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
        """Append a record to the write buffer (Stage). If another store uses the buffer, or the record is too
        large, append to the segment. Raises StoreClosed if a full buffer could not be written.
        """
        if self._has_stage(size):
            self._put_on_stage(segment, message)
        else:
            segment.append(message)

    def write_out(self):
        """End a batch: write all appends to the file, and report them to replicators."""
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
                    self.announce(segment)
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
        """Return the Segment with this offset, or else the next Segment kept; None without one."""
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
        """Register a reader in the segment, which stays mapped until leave(). Returns True if it is readable.

        False after an I/O error, which stops the store. Also False if the reader must wait for the listener's
        ``segment_opened``, because the file has no name yet or because a thread opens it (``can_wait``).
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
        """Undo one enter(). The next flush closes a segment without readers."""
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
        """Report ``count`` damaged records at [start, end), once per run; see damage.set_aside()."""
        if (segment.number, start) not in self._reported:
            self._reported.add((segment.number, start))
            damage.set_aside(self, segment, start, end, count)

    def last_segment(self):
        """Return the newest Segment, or None without one."""
        return self._last

    def offset_for_timestamp(self, timestamp_ms):
        """Return the first offset of the segment that may have the first message with this timestamp or a
        later one. ``timestamp_ms``: Unix milliseconds.
        """
        self._note_newest()
        for segment in reversed(self._order):
            if segment.count and segment.timestamps[0] < timestamp_ms:
                return max(segment.first_offset, self.first_offset)
        return self.first_offset

    def open_for_reading(self, number):
        """Open a segment's file for a reader outside the store. Returns (descriptor, flushed bytes). The
        caller closes the descriptor. None if the segment is missing or the store stopped. Raises OSError.
        """
        # The content stays valid when the segment is dropped: files of streams are not recycled.
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
        """Return a list of dicts that describe the segments, oldest first.

            number, file                             segment number, and path of its file
            first_offset, next_offset, count         offsets and number of the segment's messages
            bytes, flushed_bytes                     end of the data, and of the flushed data, in the file
            body_bytes                               bytes of the messages' bodies
            sealed                                   True if the segment is complete
            first_timestamp_ms, last_timestamp_ms    Unix milliseconds; 0 while empty
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
        """Save a consumer's next offset, to be flushed with low priority. An I/O error is only logged."""
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
        """Delete a consumer's position, and request a flush. Returns whether it existed."""
        if not self.offsets.forget(tag):
            return False
        self.committer.mark(self)  # an operator waits until the deletion is on the disk
        return True

    # retention

    def oldest(self):
        """Return (messages, bytes of records, last timestamp in Unix milliseconds) of the oldest segment.
        None if there is only one segment, which is never dropped.
        """
        if len(self._order) < 2:
            return None
        segment = self._order[0]
        return segment.count, segment.end - HEAD_BYTES, segment.timestamps[1]

    def record_bytes(self):
        """Return the size in bytes of all records kept, including headers and properties."""
        return sum(segment.end - HEAD_BYTES for segment in self._order)

    def drop_oldest(self):
        """Drop the messages of the oldest segment. Its file is removed after the next flush."""
        segment = self._order.pop(0)
        self.first_offset = self._order[0].first_offset
        self.ready_count -= segment.count
        self.ready_bytes -= segment.body_bytes
        self._forget(segment)
        self._dropped.add(segment)
        # One request each: a running sync does not cover the present start of the log.
        self.committer.after_sync(partial(self._unlink_dropped, segment), hurry=False, about_logs=False)

    def purge(self):
        """Drop all messages, without reusing their offsets. Returns the number of dropped messages. Raises
        StoreFull if the disk has no space for a new segment.
        """
        # Before raising, all segments but the newest are dropped, so that a later call may find room.
        count = self.ready_count
        if count:
            try:
                self._mark_messages(self._begin_segment(0, int(time.time() * 1000)))
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
        """Set the size of new segments; see usable_segment_bytes()."""
        self.segment_bytes = usable_segment_bytes(segment_bytes)
        self._next_bytes = min(self._next_bytes, self.segment_bytes)

    # opening and closing

    def adopt(self, segment):
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
        """Begin a new segment at ``offset``, because the newest segments are missing. Only for recovery.
        Raises StoreFull.
        """
        self.next_offset = offset
        self._mark_messages(self._begin_segment(0, int(time.time() * 1000)))
        if len(self._order) == 1:
            self.first_offset = offset

    def listed(self):
        """Return the closed stream's segment_list.Listed, with next offset and positions; None on errors."""
        listed = segment_log.SegmentLog.listed(self)
        if listed is None:
            return None
        return listed._replace(next_offset=self.next_offset, positions=self.offsets.checksum())

    def delete_files(self):
        self._dropped = set()
        self._order = []
        self.offsets.close()
        segment_log.SegmentLog.delete_files(self)

    def forget_files(self):
        self._dropped = set()
        self._order = []
        self.offsets.close()
        segment_log.SegmentLog.forget_files(self)

    # called by SegmentLog

    def sync_files(self, acks_too):
        files = segment_log.SegmentLog.sync_files(self, acks_too)
        self._sync_offset = self.next_offset
        if self._last is not None:
            self._sync_number, self._sync_end = self._last.number, self._last.end
        if acks_too and self.offsets.dirty:
            self.offsets.dirty = False
            files.append(self.offsets.file)
        return files

    def synced(self):
        """Advance ``synced_offset``. Called when the files of the last sync_files() are flushed."""
        self.synced_offset = self._sync_offset
        self._synced_number, self._synced_end = self._sync_number, self._sync_end
        segment_log.SegmentLog.synced(self)

    def _has_unsynced(self):
        return bool(self._unsynced) or self.offsets.dirty

    def _begin_segment(self, size, came_ms, may_wait=False):
        """Begin a new write segment with space for a record of ``size``. Returns it. Raises like _roll()."""
        before = self._last
        segment = self._roll(size, may_wait, came_ms)
        self._order.append(segment)
        self.rolled = True
        if before is not None and before.ordinal == 0:
            self.drop_oldest_if_empty()
        return segment

    def drop_oldest_if_empty(self):
        """Drop the oldest segments up to the first one with records. Keeps the newest segment."""
        # An empty segment only records the next offset, and the segment after it records that offset, too.
        while len(self._order) > 1 and self._order[0].ordinal == 0:
            self.drop_oldest()

    def _is_idle(self, segment):
        return segment.readers == 0

    def _leave_behind(self, segment):
        """Have the next flush seal the segment, and close it if no cursor reads it."""
        if segment.recovered is None:
            segment.note_timestamps()
            self.announce(segment)
            self._mark_messages(segment)

    def _note_newest(self):
        self.write_out()
        if self._write is not None:
            self._write.note_timestamps()

    def _close_files(self):
        segment_log.SegmentLog._close_files(self)
        self.offsets.close()

    def _create_segment(self, capacity, came_ms):
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
        segment.begin(self.incarnation, self.pool.next_generation(), came_ms, self.next_offset)
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
        """Remove a segment from the stream and close it. Cursors in it then move to the next segment."""
        if self.opener is not None:
            self.opener.drop(self, segment)
        del self._segments[segment.number]
        if segment.unsynced:
            self._unsynced.remove(segment)
            segment.unsynced = 0
        self._let_go(segment)

    def _let_go(self, segment):
        if segment.is_open:
            self.announce(segment)
            self._close_segment(segment)

    def _unlink_dropped(self, segment, error):
        """Remove the file of a dropped segment after a flush. Keep the file after an ``error``."""
        # The next run then has the segment again.
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
    """Return the allowed segment size, in bytes, that is nearest to ``wanted``."""
    return max(FIRST_SEGMENT_BYTES, min(int(wanted), LARGEST_SEGMENT_BYTES))
