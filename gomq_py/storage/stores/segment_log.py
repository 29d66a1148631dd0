"""Segment log: manages the files of one store's segments.

Begins segments, reports them to the group commit for flushing, seals them (writes their closing counts),
closes them, and returns their files to the pool. Base of message_store and stream_store, which decide what is
written. Segments in use are mapped into memory; segments between reader and writer are closed. Never
switches, never flushes.
"""
import os
from functools import partial

from gomq_py.storage.disk import pages
from gomq_py.storage.disk.data_dir import POWER_LOST
from gomq_py.storage.disk.segment_list import Listed
from gomq_py.storage.errors import StoreClosed, StoreError, StoreFull, StoreLater
from gomq_py.storage.format import record
from gomq_py.storage.format.head import ACKS_SEAL_AT, HEAD_BYTES, SCHEMA_VERSION, SEAL_AT
from gomq_py.storage.format.record import capacity_for, is_among
from gomq_py.storage.segments.opening import Opener, open_files, open_whole
from gomq_py.storage.segments.pool import FIRST_SEGMENT_BYTES, SEGMENT_GROWTH
from gomq_py.storage.segments.recovered import PROVEN_BYTES
from gomq_py.storage.segments.segment import ACKS, MSGS, Segment
from gomq_py.storage.stores import store as _store
from gomq_py.storage.stores.store import LARGEST_SEGMENT_BYTES

LARGEST_SEGMENT_NUMBER = (1 << record.NUMBER_BITS) - 1

# The next segment is made ahead when 1/EXPECT_PART of the write segment is filled: in time, and not for
# queues with few messages.
EXPECT_PART = 2
_NEVER = 1 << 62

# Larger bodies are written with a call if possible: through the mapping each page that is new or was flushed
# is a fault, and the flush interrupts other processors.
WRITTEN_OCTETS = 128 * 1024

# Progress of syncs, as a part of the data, after which the head is marked: damage before the mark is reported
# as the disk's fault. Marking each sync would dirty one more page each time.
MARK_EVERY = 0.125


class SegmentLog(_store.Store):
    """Base of stores that keep their messages in segments. Subclasses implement ``write_out`` and
    ``_is_idle``.

        _segments       {number: Segment}, linked by ``next``
        _last           the newest Segment, or None
        _write          the Segment being written, or None
        _staged         bytes of records in the pool's write buffer (Stage), which belong at ``_write.end``
        _last_staged    position of the last of these records in the buffer
    """

    __slots__ = (
        "_segments", "_write", "_last", "_next_number", "_next_bytes", "_expect_at", "_expected_bytes",
        "_marked", "_closing", "_fenced", "_unsynced", "_syncing", "opener", "_shelf",
        "_expected_shelf", "_outer", "_is_unawaited", "_stage", "_staged", "_last_staged",
    )

    def __init__(self, folder, files, pool, committer, incarnation, segment_bytes, durable, listener):
        _store.Store.__init__(
            self, folder, files, pool, committer, incarnation, segment_bytes, durable, listener
        )
        # kind of files that it takes from the pool
        self._shelf = self._expected_shelf = None if durable else self.folder
        self._stage = pool.stage
        self._staged = self._last_staged = 0
        self._outer = None
        self._segments = {}
        self._write = self._last = None
        self._next_number = 1
        self._next_bytes = self._expect_at = self._expected_bytes = 0
        self._begin_small()
        self._marked = self._closing = self._fenced = False
        self._unsynced = []
        self._syncing = []
        self.opener = None
        self._is_unawaited = False

    def open_aside(self):
        """Have threads open closed segments, for readers that can wait. If a reader waits, the store calls
        ``listener.segment_opened(store)`` when the reader can go on.
        """
        if self.opener is None:
            self.opener = Opener()

    def be_unawaited(self):
        """Make confirms no longer wait for the flush of appends, except after mark()."""
        self._is_unawaited = True

    def lie_in(self, folder):
        """Set the parent folder, which the store creates together with its own folder."""
        self._outer = folder

    def begin_behind(self, number):
        """Give new segments numbers above ``number``."""
        # Positions must not be reused, and an acks file of this number may exist.
        self._next_number = number + 1

    # its end

    def close(self):
        """Refuse all further calls. Files of a durable store are sealed (get their closing counts) and closed
        at once or, if they have unflushed changes, after the next flush. Other files are dropped.
        """
        # committer.stop() waits for that sync.
        self.write_out()  # may fence
        if self.failure is not None:
            return
        self._stop(StoreClosed(self.folder, 0, "the store is closed"))
        if not self.durable:
            for segment in self._segments.values():
                self._discard(segment)
            self._segments = {}
            return
        self._closing = True
        for segment in self._segments.values():
            if segment.is_open:
                if max(segment.flushed, segment.syncing) < segment.end:
                    self._mark_unsynced(segment, MSGS)
                if not segment.unsynced and segment not in self._syncing:
                    self._note_synced(segment)
        if self._has_unsynced():
            self.committer.mark(self)
        elif not self._syncing:
            self._close_files()

    def listed(self):
        """Return the closed store's segment_list.Listed; None without segments or if an error stopped it."""
        if self._fenced or not self._segments:
            return None
        left = {segment.number: segment.count - segment.acked for segment in self._segments.values()}
        return Listed({number: count for number, count in left.items() if count > 0})

    def delete_files(self):
        self.listener = None  # store and listener hold each other
        self._stop(StoreClosed(self.folder, 0, "the store is deleted"))
        self._fenced = False
        self._unsynced = []
        segments, self._segments = self._segments, {}
        for segment in segments.values():
            self._discard(segment)
        if self.durable:
            self.pool.forget(self.folder)
            if os.path.isdir(self.folder):
                self.files.remove_tree(self.folder)
                self.committer.mark_folder(os.path.dirname(self.folder))

    def forget_files(self):
        """Stop the store and close its files. The caller removes the folder later."""
        self.listener = None  # store and listener hold each other
        self._stop(StoreClosed(self.folder, 0, "the store is deleted"))
        self._fenced = self._closing = False
        self._unsynced = []
        segments, self._segments = self._segments, {}
        for segment in segments.values():
            if segment.is_open:
                self._close_segment(segment)
        self.pool.forget(self.folder)

    def fence(self, error):
        """Stop the store after an I/O error. The disk's content is unknown until a restart has read it."""
        if self.failure is not None and not self._closing:
            return
        try:
            self._stop(StoreClosed(self.folder, 0, f"closed after an error: {error}"))
            self._fenced = True
            self._unsynced = []
            self._close_files()
        finally:  # the queue must count as failed in any case
            if self.listener is not None:
                self.listener.store_fenced(self, error)

    def layout(self):
        """Return a list of (segment number, capacity, approximate bytes of unacked records), oldest first."""
        found = []
        self._end_stage()
        for number in sorted(self._segments):
            segment = self._segments[number]
            overhead = segment.end - HEAD_BYTES - segment.body_bytes
            left = segment.count - segment.acked
            wanted = segment.body_bytes - segment.acked_bytes + overhead * left // max(1, segment.count)
            found.append((number, segment.capacity, wanted))
        return found

    # place of the next message, for records elsewhere

    def place_of(self, size):
        """Return the location, on priority level 0, where a record of ``size`` bytes would go next."""
        segment = self._write
        if segment is None or segment.end + self._staged + size > segment.capacity:
            return record.location_of(0, self._next_number, HEAD_BYTES)
        return record.location_of(0, segment.number, segment.end + self._staged)

    def has_record(self, place, came_ms):
        """Return whether a message record is at ``place``, a location from place_of(), or was there until its
        ack. Blocks while reading. ``came_ms``: the message's timestamp; 0: any.
        """
        # The pool takes a segment back once all its messages are acked. So a missing segment counts as acked
        # if a later one exists, unless the power has failed.
        number, position = record.number_of(place), record.position_of(place)
        self._end_stage()
        settled = self.pool.boot.settled.get(self.folder, {})
        segment, runs = settled.get(number, (self._segments.get(number), None))
        if segment is not None:
            return position < segment.end and self._is_whole(segment, position, came_ms)
        if runs is not None:
            return is_among(position, runs)
        return self.pool.last_end != POWER_LOST and number < max((*self._segments, *settled), default=0)

    def _is_whole(self, segment, at, came_ms):
        """Return whether a record at ``at`` is whole (see has_record). Blocks. Read errors stop the store."""
        # A kill while a body is copied leaves a valid header and an invalid body.
        was_open = segment.is_open
        try:
            if not was_open:
                segment.attach(open_whole(self, "msgs", segment.number, segment.end), None)
            try:
                self.files.read_through(segment.msgs, at, segment.head_end(at))
                self.files.read_through(segment.msgs, at, at + segment.size_of(at))
                return segment.is_whole(at, came_ms)
            finally:
                if not was_open:
                    self.files.close(segment.msgs)
                    segment.detach()
        except OSError as error:
            self.fence(error)
            return False

    # flushes

    def mark(self):
        """Have the next group commit flush all earlier writes, including acks."""
        # For a commit of a transaction, or an operator's request.
        self.write_out()
        if self._unsynced:
            self.committer.mark(self)

    # called by storage.flush.group_commit

    def sync_files(self, acks_too):
        """Return the list of Files that the present flush must cover. Raises StoreClosed if an I/O error has
        stopped the store. ``acks_too``: include the acks of segments in use.
        """
        self.write_out()  # before the check for a fence, because it may fence
        if self._fenced:
            raise self.failure
        self._marked = False
        files = []
        unsynced, self._unsynced, self._syncing = self._unsynced, [], []
        for segment in unsynced:
            what = segment.unsynced
            if not acks_too and (segment is self._write or not what & MSGS):  # otherwise sealed and closed
                what &= MSGS
            if what:
                self._syncing.append(segment)
                segment.synced_once = True
                if what & MSGS:
                    files.append(segment.msgs)
                    segment.syncing = segment.end
                if what & ACKS and segment.acks is not None:
                    files.append(segment.acks)
                segment.unsynced &= ~what
            if segment.unsynced:
                self._unsynced.append(segment)
                self.committer.mark_acks(self)
        return files

    def synced(self):
        """Seal and close finished segments. Called when the files of the last sync_files() are flushed."""
        syncing, self._syncing = self._syncing, []
        for segment in syncing:
            if segment.is_open:
                self._note_synced(segment)
        if self._closing and not self._has_unsynced():
            self._close_files()

    def _has_unsynced(self):
        return bool(self._unsynced)

    def _note_synced(self, segment):
        """Record how much of a segment is flushed. Seal it if complete, and close it if idle."""
        if segment.syncing:
            segment.flushed, segment.syncing = segment.syncing, 0
        flushed = segment.flushed
        is_whole = segment is not self._write and flushed == segment.end
        if flushed and not segment.sealed and (is_whole or flushed - segment.synced >= MARK_EVERY * flushed):
            segment.put_synced(flushed)
            if is_whole:
                segment.seal()
            self.files.overwritten(segment.msgs, SEAL_AT, HEAD_BYTES)
        if self._closing and segment.acks is not None and not segment.unsynced:
            segment.seal_acks()
            self.files.overwritten(segment.acks, ACKS_SEAL_AT, HEAD_BYTES)
        if segment is not self._write and not segment.unsynced and self._is_idle(segment):
            self._close_segment(segment)

    # the stage: records that are collected before they are written

    def _has_stage(self, size):
        """Reserve space for a record in the write buffer, after writing a full buffer to the file.

        Returns False for a record larger than the buffer, or while another store uses the buffer; then the
        buffer has no record of this store. Raises StoreClosed if the write has failed.
        """
        if self._staged and self._staged + size > self._stage.capacity and not self._write_staged():
            raise self.failure
        return size <= self._stage.capacity and self._stage.take(self)

    def _put_on_stage(self, segment, message):
        self._last_staged = self._staged
        self._staged += segment.encode(self._stage.p, self._staged, message, False)

    def _append_uncached(self, segment, message, size):
        """Append a record to the write buffer. Returns False if that is impossible; then the buffer has no
        record of this store. Raises StoreClosed if a full buffer could not be written.
        """
        # For a part of the segment's file that is not in the page cache: a first write through the mapping
        # clears a page and faults.
        if not message.at_once and self._has_stage(size):
            self._put_on_stage(segment, message)
            return True
        if self._staged and not self._write_staged():
            raise self.failure
        if message.body_length < WRITTEN_OCTETS:
            segment.fetch_pages(segment.end + size)
        return False

    def _write_body(self, segment, message):
        """Write the body of the next record to the segment's file with a system call. Returns False if the
        message has no body_view(). Raises StoreClosed after an I/O error, which stops the store.
        """
        view = message.body_view()
        if view is None:
            return False
        try:
            self.files.put(segment.msgs, segment.body_place(message), view)
        except OSError as error:
            self.fence(error)
            raise self.failure
        return True

    def _write_staged(self):
        """Write the records in the write buffer to the segment's file, and release the buffer. Returns False
        after an I/O error, which stops the store.
        """
        segment = self._write
        count, self._staged = self._staged, 0
        self._stage.release()
        self.announce(segment)
        try:
            self._put_staged(segment, self._stage.content(count))
        except OSError as error:
            self.fence(error)
            return False
        segment.wrote(count, self._last_staged)
        return True

    def _put_staged(self, segment, octets):
        self.files.put(segment.msgs, segment.end, octets)
        self.files.appended(segment.msgs, segment.end, segment.end + len(octets))

    def _end_stage(self):
        if self._staged:
            self._write_staged()

    # segments

    def _roll(self, size, may_wait, came_ms):
        """Begin a new write segment with space for a record of this size. Returns the segment.

        ``came_ms``: timestamp of the record's message. Raises StoreFull. Raises StoreLater if ``may_wait`` is
        set and a thread must make files first.
        """
        self._end_stage()
        if self.failure is not None:
            raise self.failure
        if HEAD_BYTES + size > LARGEST_SEGMENT_BYTES:
            # fails this message, not the queue
            raise StoreFull(self.folder, 0, f"a record of {size} bytes does not fit into a segment")
        capacity = self._capacity_for(size)
        if may_wait:
            self._check_ready(capacity)
        segment = self._create_segment(capacity, came_ms)
        self._next_bytes = min(self._next_bytes * SEGMENT_GROWTH, self.segment_bytes)
        self._unexpect()
        self._expect_at = segment.capacity // EXPECT_PART
        before = self._last
        self._segments[segment.number] = segment
        self._next_number += 1
        self._write = self._last = segment
        if before is not None:
            before.next = segment
            self._leave_behind(before)
        return segment

    def _capacity_for(self, size):
        """Return the next segment's size: more each time, up to segment_bytes or a large record's need."""
        capacity = self._next_bytes
        if HEAD_BYTES + size > capacity:
            capacity = self.segment_bytes
        if HEAD_BYTES + size > capacity:
            capacity = (HEAD_BYTES + size + 4095) & ~4095
        return capacity

    def _check_ready(self, capacity):
        """Raise StoreLater if the next segment's folder or files do not exist yet."""
        folders = self._folders() if self._write is None else ()
        if not self.pool.has(capacity, self._shelf, folders):
            raise StoreLater(
                self.folder, partial(self.pool.wait_for, capacity, self._shelf, folders, store=self)
            )

    def _folders(self):
        """Return the paths of the folders that the segment files need, outermost first."""
        if not self.durable:
            return ()
        return (self.folder,) if self._outer is None else (self._outer, self.folder)

    def _begin_small(self):
        self._unexpect()
        self._write = None
        self._expect_at = _NEVER
        self._next_bytes = min(FIRST_SEGMENT_BYTES, self.segment_bytes)

    def _expect_next(self):
        """Tell the pool that files for another segment will soon be needed."""
        self._expect_at = _NEVER
        self._expected_bytes = self._next_bytes
        self._expected_shelf = self._next_shelf()
        self.pool.expect(self._expected_bytes, self._expected_shelf)

    def _next_shelf(self):
        """Return the kind of files that the next segment takes from the pool; see SegmentPool.expect."""
        return self._shelf

    def _unexpect(self):
        if self._expected_bytes:
            self.pool.unexpect(self._expected_bytes, self._expected_shelf)
            self._expected_bytes = 0

    def _create_segment(self, capacity, came_ms):
        if self._next_number > LARGEST_SEGMENT_NUMBER:
            raise StoreError(self.folder, 0, "segment numbers are used up")
        segment = Segment(self._next_number)
        acks = None
        try:
            if self.durable:
                self._make_folder()
                msgs, acks = self.pool.take(
                    self.path_of("msgs", segment.number), self.path_of("acks", segment.number), capacity,
                    self.fence,
                )
                self.committer.mark_folder(self.folder)
                segment.named_in = self.committer.begun
            else:
                msgs = self.pool.take_unnamed(self.folder, capacity)
        except OSError as error:
            if (
                os.path.exists(self.path_of("msgs", segment.number))
                or os.path.exists(self.path_of("acks", segment.number))
            ):
                # a file that cannot be removed must not block this number for ever
                self._next_number += 1
            raise StoreFull(self.folder, 0, f"no new segment: {error}") from error
        segment.attach(msgs, acks)
        segment.begin(self.incarnation, self.pool.next_generation(), came_ms)
        if self.durable:
            self.files.overwritten(msgs, 0, HEAD_BYTES)
            self.files.overwritten(acks, 0, HEAD_BYTES)
            # Marked now: otherwise the end of the run would have to flush the acks head of each queue without
            # acks.
            self._mark_acks(segment)
        else:
            segment.unsynced = MSGS  # never flushed
        return segment

    def has_name(self, segment):
        """Return whether the open segment's file was renamed into the store's folder, to survive a kill."""
        return segment.msgs.path == self.path_of("msgs", segment.number)

    def named(self):
        """Wake readers that wait for a segment. Called by the pool when the file is in the store's folder."""
        if self.listener is not None and self.failure is None:
            self.listener.segment_opened(self)

    def _make_folder(self):
        if self._write is None:
            for folder in self._folders():
                self.files.have_folder(folder)
                # An existing one, too: the run that made it may have been killed before its name was flushed.
                self.committer.mark_folder(os.path.dirname(folder))

    def path_of(self, kind, number):
        """Return the path of a segment's file. ``kind``: "msgs" or "acks"."""
        return os.path.join(self.folder, f"{kind}.{number:010d}")

    def _leave_behind(self, segment):
        """Have a segment sealed and closed after a flush, unless in use, because a newer one was begun."""
        # Unless it is being read, it is sealed and closed after a flush.
        if segment.recovered is not None:
            return
        if not self.durable:
            if self._is_idle(segment):
                self._close_segment(segment)
            return
        self.announce(segment)
        if self._is_idle(segment):
            pages.let_go(segment.msgs)
            self._mark_messages(segment)

    def _come_to(self, segment, can_wait):
        """Open and map the files of a closed segment, for a reader. Returns False if a thread opens them,
        which happens only with ``can_wait``. Raises OSError.
        """
        if self.opener is not None:
            return self.opener.come_to(self, segment, can_wait)
        self.open_now(segment)
        return True

    def open_now(self, segment):
        """Open and map the files of a closed segment, without a thread. Raises OSError."""
        if not self.durable:
            segment.msgs.remap()
            segment.attach(segment.msgs, None)
            return
        # Earlier runs' segments are read piece by piece, as the cursor reaches them.
        read_to = segment.end if segment.recovered is None else 0
        files = open_files(
            self, segment.number, segment.end, self.acks_bytes(segment), segment.recovered is None, read_to
        )
        segment.attach(*files)

    def acks_bytes(self, segment):
        """Return the least size in bytes of the segment's acks file."""
        return capacity_for(segment.capacity, SCHEMA_VERSION if segment.begun_ms else 1)

    def read_when_opened(self, segment):
        """Return the number of bytes of a segment's msgs file that a thread reads when it opens the file."""
        # Of an earlier run's segment only the first part, because the reader may go no further.
        return segment.end if segment.recovered is None else min(segment.end, PROVEN_BYTES)

    # segments that threads open

    def may_open_aside(self):
        """Return whether threads may open segments for the readers of this store."""
        return (
            self.opener is not None and self.durable and self.failure is None
            and self.pool.openings.in_threads
        )

    def _open_next(self, segment):
        following = segment.next
        if (
            following is not None and not following.is_open and self.may_open_aside()
            and not self.opener.has(following)
        ):
            self.opener.begin(self, following)

    def _close_segment(self, segment):
        """Close the segment's files. Of a non-durable store, only unmap them, because closing would delete
        them.
        """
        msgs, acks = segment.msgs, segment.acks
        if not self.durable:
            segment.unpoint()
            msgs.unmap()
            return
        segment.detach()
        self.pool.let_go(msgs)
        if acks is not None:
            self.pool.let_go(acks)

    def _close_files(self):
        self._closing = False
        for segment in self._segments.values():
            if segment.is_open:
                self._close_segment(segment)

    def _discard(self, segment):
        """Return the segment's files to the pool, which recycles or deletes them."""
        # Files of an earlier run are closed first, and so unlinked.
        msgs, acks = segment.msgs, segment.acks
        if not self.durable:
            segment.detach()
            self.pool.retire_unnamed(msgs)
            return
        if segment.is_open:
            self.announce(segment)
            if segment.recovered is not None:
                self._close_segment(segment)
                msgs = acks = None
        segment.detach()
        # Its name is enough: the system may have written the messages by itself, and their acks, which a
        # client may wait for, are no longer flushed.
        may_be_found = segment.synced_once or segment.named_in != self.committer.begun
        self.pool.retire(
            msgs, acks, self.path_of("msgs", segment.number), self.path_of("acks", segment.number),
            may_be_found,
        )

    # announcing to replicators

    def announce(self, segment=None):
        """Report to replicators a segment's bytes and acks since the last report. None: the write segment."""
        segment = self._write if segment is None else segment
        if segment is None:
            return 0
        if segment.announced < segment.end:
            self.files.appended(segment.msgs, segment.announced, segment.end)
            segment.announced = segment.end
        if segment.announced_entries < segment.entries:
            self.files.overwritten(  # not appended: COUNT and DUE of an entry may change
                segment.acks, HEAD_BYTES + 8 * segment.announced_entries, HEAD_BYTES + 8 * segment.entries
            )
            segment.announced_entries = segment.entries

    def announce_acks(self, segment):
        """Report new messages of a segment, and then its new acks, to the replicators."""
        # In this order: an entry may ack a message whose copy has just been appended.
        if segment.announced_entries < segment.entries:
            self.announce(self._write)
            self.announce(segment)
            self._mark_acks(segment)

    def entries_changed(self, segment, start, end):
        """Report to the replicators that the ack entries ``start`` to ``end`` - 1 were overwritten."""
        self.files.overwritten(segment.acks, HEAD_BYTES + 8 * start, HEAD_BYTES + 8 * end)
        self._mark_acks(segment)

    # notifying the committer

    def _mark_messages(self, segment):
        """Request a flush of the segment's messages. Needed once after each flush."""
        self._mark_unsynced(segment, MSGS)
        if self._is_unawaited:
            self.committer.mark_acks(self)
        elif not self._marked:
            self._marked = True
            self.committer.mark_messages(self)

    def _mark_unsynced(self, segment, what):
        if not segment.unsynced:
            self._unsynced.append(segment)
        segment.unsynced |= what

    def _mark_acks(self, segment):
        # Before the segment's first flush they need no flush: a power cut loses the acks with their messages.
        if not segment.unsynced & ACKS:
            self._mark_unsynced(segment, ACKS)
            if segment.synced_once:
                self.committer.mark_acks(self)

    # for subclasses

    def _stop(self, failure):
        self.failure = failure
        if self._staged:
            self._staged = 0
            self._stage.release()
        self._unexpect()
        self._write = self._last = None
        if self.opener is not None:
            self.opener.drop_all(self)

    def _is_idle(self, segment):
        """Return whether the segment can be closed: no reader is in it, and it has no unacked message."""
        raise NotImplementedError
