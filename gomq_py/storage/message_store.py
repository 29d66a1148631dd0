"""Message store: one queue's messages as a log of segments and the acks beside them.

Below broker.queues, above segment and format. append() copies a message in; peek() shows the oldest that is ready and shift() takes it; delete() acks it,
requeue() puts it back in its place. No object per message: a location is a number, and a backlog costs one Segment per 8 MiB. Never yields or
flushes: durability is storage.sync's business, which a store that has something to flush tells so once per sync.

Location: level (8 bits) << 56 | segment number (28) << 28 | position (28); positions are octets from the start of the msgs file.
"""
import os

from gomq_py.storage.errors import StoreClosed, StoreError, StoreFull
from gomq_py.storage.format.head import DELIVERED_AT, HEAD_BYTES
from gomq_py.storage.requeued import DeliveryCounts, LocationHeap
from gomq_py.storage.segment import ACKS, MSGS, Segment

# A location has 28 bits for each.
LARGEST_SEGMENT_BYTES = 1 << 28
LARGEST_SEGMENT_NUMBER = (1 << 28) - 1

# A queue's first segment, and how much larger each next one is until segment_bytes: many queues hold only a few messages.
FIRST_SEGMENT_BYTES = 65536
SEGMENT_GROWTH = 8

_FROM_CURSOR = 1
_FROM_REQUEUED = 2


class MessageStore:
    """The messages of one queue, or of one level of a priority queue.

    ``ready_*`` wait, ``unacked_*`` were shifted and not deleted; bytes are of bodies. ``listener`` (optional) hears ``store_fenced(store, error)`` and
    ``record_damaged(store, path, start, end, count)``. ``durable=False``: the files have no names and no acks. Made by storage.recovery.open_store.
    """

    __slots__ = (
        "folder", "files", "pool", "committer", "incarnation", "segment_bytes", "durable", "level", "listener", "failure",
        "ready_count", "unacked_count", "ready_bytes", "unacked_bytes",
        "_segments", "_read", "_write", "_last", "_acking", "_read_at", "_next_number", "_next_bytes", "_level_bits", "_marked", "_unsynced", "_syncing",
        "_closing",
        "_peeked", "_peeked_location", "_peeked_size", "_peeked_body", "_peeked_count",
        "_run_start", "_run_last", "_run_end", "_run_count", "_requeued", "_counts",
    )

    def __init__(self, folder, files, pool, committer, incarnation, segment_bytes=8388608, durable=True, level=0, listener=None):
        if not FIRST_SEGMENT_BYTES <= segment_bytes <= LARGEST_SEGMENT_BYTES or len(incarnation) != 16 or not 0 <= level <= 255:
            raise ValueError(f"segment_bytes={segment_bytes} incarnation={incarnation!r} level={level}")
        self.folder = os.fspath(folder)
        self.files = files
        self.pool = pool
        self.committer = committer
        self.incarnation = incarnation
        self.segment_bytes = segment_bytes
        self.durable = durable
        self.level = level
        self.listener = listener
        self.failure = None
        self.ready_count = self.unacked_count = 0
        self.ready_bytes = self.unacked_bytes = 0
        self._segments = {}
        self._read = self._write = self._last = self._acking = None
        self._read_at = HEAD_BYTES
        self._next_number = 1
        self._next_bytes = min(FIRST_SEGMENT_BYTES, segment_bytes)
        self._level_bits = level << 56
        self._marked = self._closing = False
        self._unsynced = []
        self._syncing = []
        self._peeked = self._peeked_location = self._peeked_size = self._peeked_body = self._peeked_count = 0
        self._run_start = self._run_last = self._run_end = self._run_count = 0
        self._requeued = self._counts = None

    # the hot verbs, in the order a message meets them

    def append(self, message):
        """Copy the message in and set its location. Raises StoreFull (no room on the disk; nothing changed), StoreClosed, StoreError (too large)."""
        size = (44 + message.routing_length + message.properties_length + message.body_length + 7) & ~7
        segment = self._write
        if segment is None or segment.end + size > segment.capacity:
            segment = self._roll(size)
        at = segment.append(message)
        message.location = self._level_bits | segment.number << 28 | at
        self.ready_count += 1
        self.ready_bytes += message.body_length
        if message.persistent and not segment.unsynced & MSGS:
            self._mark_messages(segment)
        return 0

    def peek(self, message):
        """Show the oldest ready message, without taking it; False when there is none. Valid until the next peek, read, shift, or switch."""
        if self._requeued is not None and self._requeued.count:
            return self._peek_requeued(message)
        segment = self._read
        self._peeked_count = 0
        if segment is None or self._read_at >= segment.end or not segment.written_here:
            if not self._advance():
                return False
            segment = self._read
        self._peeked_size = segment.fill(self._read_at, message)
        self._peeked = _FROM_CURSOR
        self._peeked_body = message.body_length
        self._peeked_location = message.location = self._level_bits | segment.number << 28 | self._read_at
        message.delivery_count = self._peeked_count
        message.redelivered = self._peeked_count > 0
        return True

    def shift(self):
        """Take what the last peek showed: it is unacked until delete or requeue."""
        if self._peeked == _FROM_CURSOR:
            self._read.taken += 1
            self._read.taken_bytes += self._peeked_body
            self._read_at += self._peeked_size
        elif self._peeked == _FROM_REQUEUED:
            self._take_requeued()
        else:
            raise StoreError(self.folder, 0, "shift without peek")
        self._peeked = 0
        if self._peeked_count:
            self._remember_count()
        self.ready_count -= 1
        self.unacked_count += 1
        self.ready_bytes -= self._peeked_body
        self.unacked_bytes += self._peeked_body
        return 0

    def delete(self, location):
        """An unacked message is done with. Neighbours deleted in order become one entry of the acks file, at the latest in flush."""
        at = location & 0xFFFFFFF
        segment = self._acking
        if segment is None or segment.number != (location >> 28) & 0xFFFFFFF:
            segment = self._turn_to(location)
            if segment is None:
                return 0
        size = segment.size_at(at)
        if at == self._run_end:
            self._run_count += 1
        else:
            self._write_run()
            self._run_start = at
            self._run_count = 1
        self._run_last = at
        self._run_end = at + size
        body_length = segment.body_length_at(at)
        self.unacked_count -= 1
        self.unacked_bytes -= body_length
        segment.acked += 1
        if self._counts is not None:
            self._counts.discard(location)
        if segment.acked == segment.count and segment is not self._write:
            self._finish(segment)
        return 0

    def requeue(self, location):
        """An unacked message is ready again, in its old place, as redelivered."""
        segment = self._find(location)
        if segment is None:
            return 0
        at = location & 0xFFFFFFF
        segment.size_at(at)
        body_length = segment.body_length_at(at)
        if self._requeued is None:
            self._requeued = LocationHeap()
        if self._counts is None:
            self._counts = DeliveryCounts()
        self._counts.put(location, self._counts.get(location) + 1, self._counts.get_entry(location))
        self._requeued.push(location)
        self.unacked_count -= 1
        self.unacked_bytes -= body_length
        self.ready_count += 1
        self.ready_bytes += body_length
        return 0

    def read(self, location, message):
        """Show an unacked message again, by its location. False when the store was fenced meanwhile."""
        segment = self._find(location)
        if segment is None:
            return False
        at = location & 0xFFFFFFF
        segment.size_at(at)
        segment.fill(at, message)
        message.location = location
        message.delivery_count = 0 if self._counts is None else self._counts.get(location)
        message.redelivered = message.delivery_count > 0
        return True

    def flush(self):
        """End of a batch: what was appended, delivered and deleted is in the mappings (a killed process keeps it) and announced to who follows the files."""
        if self.durable and self.failure is None:
            if self._acking is not None:
                self._write_run()
                self._announce_acks(self._acking)
            if self._read is not None and self._read.delivered < self._read_at:
                self._put_delivered(self._read)
            segment = self._write
            if segment is not None and segment.announced < segment.end:
                self.files.appended(segment.msgs, segment.announced, segment.end)
                segment.announced = segment.end
        return 0

    # the slow verbs

    def purge(self):
        """Forget all ready messages. Returns how many there were."""
        count = self.ready_count
        self._peeked = 0
        if self.durable and self._read is not None and self._read.is_open():
            self._put_delivered(self._read)
        while self._requeued is not None and self._requeued.count:
            self._purge_one(self._requeued.pop())
        segment = self._read
        while segment is not None:
            following = segment.next
            self._purge_segment(segment)
            if following is not None:
                segment.next = None
            segment = following
        self._read = self._last
        self._read_at = HEAD_BYTES if self._last is None else self._last.end
        self.ready_count = 0
        self.ready_bytes = 0
        self.flush()
        return count

    def close(self):
        """No more messages in or out. The files stay; they are sealed and closed after the next sync, which ``committer.stop`` waits for."""
        if self.failure is not None:
            return
        self.flush()
        self._stop(StoreClosed(self.folder, 0, "the store is closed"))
        self._closing = True
        for segment in self._segments.values():
            if segment.is_open() and self.durable and not segment.sealed:
                self._mark_unsynced(segment, MSGS | ACKS)
        if self._unsynced:
            self.committer.mark(self)
        else:
            self._close_files()

    def delete_files(self):
        """No more messages in or out, and nothing stays of them on the disk."""
        self._stop(StoreClosed(self.folder, 0, "the store is deleted"))
        self._unsynced = []
        for segment in list(self._segments.values()):
            self._discard(segment)
        self._segments = {}
        if self.durable:
            self.pool.forget(self.folder)
            if os.path.isdir(self.folder):
                self.files.remove_tree(self.folder)
                self.committer.mark_folder(os.path.dirname(self.folder))

    def fence(self, error):
        """An I/O error: what is on the disk is not known any more, so nothing goes in or out until a restart reads it again."""
        if self.failure is not None:
            return
        self._stop(StoreClosed(self.folder, 0, f"closed after {error}"))
        if self.listener is not None:
            self.listener.store_fenced(self, error)

    # what storage.sync calls

    def sync_files(self):
        """The files the sync that begins now must flush. Raises StoreClosed when the store was fenced."""
        if self.failure is not None and not self._closing:
            raise self.failure
        self.flush()
        self._marked = False
        files = []
        for segment in self._unsynced:
            if segment.unsynced & MSGS:
                files.append(segment.msgs)
                segment.syncing = segment.end
            if segment.unsynced & ACKS and segment.acks is not None:
                files.append(segment.acks)
            segment.unsynced = 0
            segment.synced_once = True
        self._syncing, self._unsynced = self._unsynced, []
        return files

    def synced(self):
        """What sync_files gave last has been flushed."""
        for segment in self._syncing:
            if segment.is_open():
                self._note_synced(segment)
        self._syncing = []
        if self._closing and not self._unsynced:
            self._close_files()

    # segments

    def _roll(self, size):
        """A new segment to write to, with room for a record of this size."""
        if self.failure is not None:
            raise self.failure
        if HEAD_BYTES + size > LARGEST_SEGMENT_BYTES:
            raise StoreError(self.folder, 0, f"a record of {size} octets does not fit into a segment")
        segment = self._create_segment(self._capacity_for(size))
        before = self._last
        self._segments[segment.number] = segment
        self._next_number += 1
        self._write = self._last = segment
        if before is not None:
            before.next = segment
        if self._read is None:
            self._read = segment
            self._read_at = HEAD_BYTES
        if before is not None:
            self._leave_behind(before)
        return segment

    def _capacity_for(self, size):
        """Room for the next segment: small at first, segment_bytes later, and a segment of its own for a record that does not fit into that."""
        capacity = self._next_bytes
        if HEAD_BYTES + size > capacity:
            capacity = self.segment_bytes
        self._next_bytes = min(self._next_bytes * SEGMENT_GROWTH, self.segment_bytes)
        if HEAD_BYTES + size > capacity:
            capacity = (HEAD_BYTES + size + 4095) & ~4095
        return capacity

    def _create_segment(self, capacity):
        if self._next_number > LARGEST_SEGMENT_NUMBER:
            raise StoreError(self.folder, 0, "segment numbers are used up")
        segment = Segment(self._next_number)
        acks = None
        try:
            if self.durable:
                if not self._segments and not os.path.isdir(self.folder):
                    self.files.make_folder(self.folder)
                    self.committer.mark_folder(os.path.dirname(self.folder))
                msgs, acks = self.pool.take(self._path_of("msgs", segment.number), self._path_of("acks", segment.number), capacity)
                self.committer.mark_folder(self.folder)
            else:
                msgs = self.pool.take_unnamed(self.folder, capacity)
        except OSError as error:
            raise StoreFull(self.folder, 0, f"no new segment: {error}") from error
        segment.attach(msgs, acks)
        segment.begin(self.incarnation, self.pool.next_generation())
        if self.durable:
            self.files.overwritten(msgs, 0, HEAD_BYTES)
            self.files.overwritten(acks, 0, HEAD_BYTES)
            segment.announced = HEAD_BYTES
        else:
            segment.unsynced = MSGS  # for ever: nobody flushes it
        return segment

    def _path_of(self, kind, number):
        return os.path.join(self.folder, f"{kind}.{number:010d}")

    def _leave_behind(self, segment):
        """The write segment has moved on from this one."""
        if self.durable and segment.announced < segment.end and segment.msgs is not None:
            self.files.appended(segment.msgs, segment.announced, segment.end)
            segment.announced = segment.end
        if segment.acked == segment.count:
            self._finish(segment)

    def _finish(self, segment):
        """Nothing in the segment is wanted any more; it is not the write segment."""
        if segment is self._acking:
            self._acking = None
            self._run_end = self._run_count = 0
        if segment is self._read:
            self._read = segment.next
            self._read_at = HEAD_BYTES
        if segment is self._last:
            self._last = None
        segment.next = None
        del self._segments[segment.number]
        if self.durable and segment.unsynced:
            self._unsynced.remove(segment)
        self._discard(segment)
        return 0

    def _discard(self, segment):
        """Give the segment's files away, or unlink them."""
        msgs, acks = segment.msgs, segment.acks
        segment.detach()
        if not self.durable:
            self.pool.retire_unnamed(msgs)
        else:
            self.pool.retire(msgs, acks, self._path_of("msgs", segment.number), self._path_of("acks", segment.number), segment.synced_once)

    def _find(self, location):
        """The open segment of a location that was handed out; None when the store was fenced or closed since."""
        segment = self._segments.get((location >> 28) & 0xFFFFFFF)
        if segment is None or not segment.is_open():
            if self.failure is not None:
                return None
            raise StoreError(self.folder, location & 0xFFFFFFF, f"segment {(location >> 28) & 0xFFFFFFF} holds no unacked message")
        return segment

    def _open(self, segment):
        raise NotImplementedError

    def _find_recovered(self, segment):
        raise NotImplementedError

    def _note_synced(self, segment):
        """Everything written to the segment before the sync began is on the disk."""
        return 0

    def _stop(self, failure):
        self.failure = failure
        self._read = self._write = self._last = self._acking = None
        self._requeued = self._counts = None
        self._peeked = self._run_count = self._run_end = 0
        return 0

    def _close_files(self):
        """Close what is open."""
        for segment in self._segments.values():
            if segment.is_open():
                msgs, acks = segment.msgs, segment.acks
                segment.detach()
                self.files.close(msgs)
                if acks is not None:
                    self.files.close(acks)
        self._closing = False
        return 0

    # the cursor

    def _advance(self):
        """Move the cursor to the next record there is to show. False at the end."""
        while self._read is not None:
            segment = self._read
            if not segment.is_open():
                self._open(segment)
            if segment.written_here:
                if self._read_at < segment.end:
                    return True
            elif self._find_recovered(segment):
                return True
            if segment.next is None:
                return False
            self._pass(segment)
        return False

    def _pass(self, segment):
        """The cursor leaves a segment behind it for the next one."""
        if self.durable:
            self._put_delivered(segment)
        self._read = segment.next
        self._read_at = HEAD_BYTES
        segment.next = None  # or one stuck message would keep every later Segment alive
        if segment.acked == segment.count:
            self._finish(segment)
        return 0

    def _put_delivered(self, segment):
        segment.put_delivered(self._read_at)
        self.files.overwritten(segment.acks, DELIVERED_AT, DELIVERED_AT + 8)
        self._mark_unsynced(segment, ACKS)
        return 0

    # requeued messages

    def _peek_requeued(self, message):
        location = self._requeued.first()
        segment = self._find(location)
        if segment is None:
            return False
        self._peeked_size = segment.fill(location & 0xFFFFFFF, message)
        self._peeked = _FROM_REQUEUED
        self._peeked_body = message.body_length
        self._peeked_location = message.location = location
        self._peeked_count = message.delivery_count = self._counts.get(location)
        message.redelivered = True
        return True

    def _take_requeued(self):
        if self._requeued.first() == self._peeked_location:
            self._requeued.pop()
        else:  # an older one came back since the peek
            self._requeued.remove(self._peeked_location)
        return 0

    def _remember_count(self):
        """A message is delivered again: should the process die now, the next run must know that this delivery failed too."""
        location = self._peeked_location
        if self._counts is None:
            self._counts = DeliveryCounts()
        entry = self._counts.get_entry(location)
        if self.durable:
            segment = self._find(location)
            entry = segment.put_count(location & 0xFFFFFFF, self._peeked_count + 1, entry)
            self._announce_acks(segment)
        self._counts.put(location, self._peeked_count, entry)
        return 0

    # acks

    def _turn_to(self, location):
        """Acks go to another segment from here on."""
        if self._acking is not None and self.durable:
            self._write_run()
            self._announce_acks(self._acking)
        segment = self._find(location)
        self._acking = segment
        self._run_end = self._run_count = 0
        return segment

    def _write_run(self):
        """Write what was deleted in a row; a pair of entries is worth it from three records on."""
        if self._run_count and self.durable:
            if self._run_count > 2:
                self._acking.put_run(self._run_start, self._run_end)
            else:
                self._acking.put_ack(self._run_start)
                if self._run_count == 2:
                    self._acking.put_ack(self._run_last)
        self._run_end = self._run_count = 0
        return 0

    def _announce_acks(self, segment):
        if segment.announced_entries < segment.entries:
            self.files.appended(segment.acks, HEAD_BYTES + 8 * segment.announced_entries, HEAD_BYTES + 8 * segment.entries)
            segment.announced_entries = segment.entries
            self._mark_unsynced(segment, ACKS)
        return 0

    def _purge_one(self, location):
        self.unacked_count += 1  # delete takes it off again
        self.unacked_bytes += self._find(location).body_length_at(location & 0xFFFFFFF)
        self.delete(location)

    def _purge_segment(self, segment):
        """All that waits in the segment is gone."""
        start = self._read_at if segment is self._read else HEAD_BYTES
        count = segment.count - segment.taken
        segment.taken += count
        segment.acked += count
        segment.taken_bytes = segment.body_bytes
        if segment.acked == segment.count and segment is not self._write:
            self._finish(segment)
        elif count and self.durable:
            segment.put_gone(start, segment.end, count)
            self._announce_acks(segment)

    # what must be flushed

    def _mark_messages(self, segment):
        """A persistent message came into a segment whose messages were all flushed."""
        self._mark_unsynced(segment, MSGS)
        if not self._marked:
            self._marked = True
            self.committer.mark(self)
        return 0

    def _mark_unsynced(self, segment, what):
        if not segment.unsynced:
            self._unsynced.append(segment)
        segment.unsynced |= what
        return 0
