"""Message store: one queue's messages as a log of segments and the acks beside them.

Below broker.queues, above segment and format. append() copies a message in; peek() shows the oldest ready one
and shift() takes it; delete() acks it, requeue() returns it to its place. No object per message: a location
is a number, and a backlog costs one Segment per 8 MiB. Never yields or flushes: durability belongs to
storage.flush.group_commit, which a store notifies once per sync if it has something to flush. A location
(storage.format.record) is returned with each message and identifies it until it is deleted.
"""
from gomq_py.observability.log import logger
from gomq_py.storage.errors import StoreError
from gomq_py.storage.format import record
from gomq_py.storage.format.head import ACKS_SEAL_AT, DELIVERED_AT, HEAD_BYTES
from gomq_py.storage.format.record import due_value
from gomq_py.storage.segments import damage
from gomq_py.storage.segments.opening import Proof
from gomq_py.storage.segments.pool import UNCACHED
from gomq_py.storage.segments.segment import MSGS
from gomq_py.storage.stores import segment_log
from gomq_py.storage.stores.requeued import DeliveryCounts, LocationHeap
from gomq_py.storage.stores.segment_log import PROVEN_BYTES

LOG = logger("storage")

# The next segment is opened ahead when 1/AHEAD_PART of a segment has been read: in time, and not for queues
# that are rarely read. If it is still open because it is being written, this is checked again every
# 1/LOOKS_AHEAD of a segment.
AHEAD_PART = 2
LOOKS_AHEAD = 8
# A thread reads so much of an earlier run's segment while the cursor is in the half before it.
AHEAD_BYTES = 1 << 20

# Growth of an acks file when messages keep coming back: 2048 counts.
ACKS_GROWTH_BYTES = 32768

# Fewest records for which a pair of entries in the acks file pays; fewer are written as single acks.
SMALLEST_RUN = 3

# Larger bodies are written with a call if possible: through the mapping each page that is new or was flushed
# is a fault, and the flush interrupts other processors.
WRITTEN_OCTETS = 128 * 1024

_FROM_CURSOR = 1
_FROM_REQUEUED = 2


class MessageStore(segment_log.SegmentLog):
    """The messages of one queue, or of one level of a priority queue. Made by
    storage.stores.recovery.open_store.

    The cursor is at ``_read_at`` of the segment ``_read``: messages before it were taken or requeued
    (``_requeued``), messages behind it are ready unless picked (taken out of order), which the segments
    record. ``_counts``: how often each message came back. Acks are written in runs (``_run``). ``_noted``:
    storage.segments.idle watches the store.
    """

    __slots__ = (
        "level", "_level_bits", "_read", "_read_at", "_ahead_at", "_proof", "_requeued", "_counts", "_run",
        "_noted", "_peeked", "_peeked_location", "_peeked_size", "_peeked_body", "_peeked_count",
        "_peeked_entry",
    )

    def __init__(
        self, folder, files, pool, committer, incarnation, segment_bytes=8388608, durable=True, level=0,
        listener=None,
    ):
        segment_log.SegmentLog.__init__(
            self, folder, files, pool, committer, incarnation, segment_bytes, durable, listener
        )
        if not 0 <= level <= 255:
            raise ValueError(f"level={level}")
        self.level = level
        self._level_bits = record.level_bits(level)
        self._read = self._proof = self._requeued = self._counts = None
        self._read_at = HEAD_BYTES
        self._ahead_at = 0  # position at which the cursor next checks what to open ahead
        self._run = AckRun()
        self._noted = False
        self._peeked = self._peeked_location = self._peeked_size = self._peeked_body = 0
        self._peeked_count = self._peeked_entry = 0

    # the hot verbs, in the order a message meets them

    def append(self, message):
        """Copy the message in and set its location.

        Raises StoreFull (no room on the disk; nothing changed), StoreClosed, or StoreError (larger than any
        segment).
        """
        size = record.size_of(message.routing_length, message.properties_length, message.body_length)
        segment = self._write
        if segment is None or segment.end + self._staged + size > segment.capacity:
            segment = self._roll(size, message.may_wait)
        at = segment.end + self._staged
        if at + size <= segment.cached or not self._append_uncached(segment, message, size):
            if message.body_length < WRITTEN_OCTETS or not self._write_body(segment, message):
                segment.append(message)
            else:
                segment.append_around(message)
        message.location = record.location_of(self._level_bits, segment.number, at)
        self.ready_count += 1
        self.ready_bytes += message.body_length
        if message.persistent and not segment.unsynced & MSGS:
            self._mark_messages(segment)
        return 0

    def _append_uncached(self, segment, message, size):
        """Segment.append for a part of the file without cached pages: writing to a new page through the
        mapping clears it and faults. The record is written with the batch's others, through the stage.

        False: the stage cannot take it, and holds nothing of this store. Raises StoreClosed if it was full
        and could not be written.
        """
        if not message.at_once and self._has_stage(size):
            self._put_on_stage(segment, message, size)
            return True
        if self._staged and not self._write_staged():
            raise self.failure
        if message.body_length < WRITTEN_OCTETS:
            segment.fetch_pages(segment.end + size)
        return False

    def _write_body(self, segment, message):
        """Write the body of the next record to the segment's file. False: the body can only be copied. Raises
        StoreError after fencing the store.
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

    def peek(self, message):
        """Show the oldest ready message without taking it. False if there is none, or if it ``is_waiting``.

        Valid until the next peek, read, shift, or switch.
        """
        if self._requeued is not None and self._requeued.count:
            return self._peek_requeued(message)
        segment = self._read
        self._peeked_count = self._peeked_entry = 0
        if segment is None or self._read_at >= segment.end or not segment.is_direct:
            if not self._advance():
                return False
            segment = self._read
        self._peeked_size = segment.fill(self._read_at, message)
        self._peeked = _FROM_CURSOR
        self._peeked_body = message.body_length
        self._peeked_location = message.location = record.location_of(
            self._level_bits, segment.number, self._read_at
        )
        message.delivery_count = self._peeked_count
        message.redelivered = self._peeked_count > 0
        return True

    def shift(self):
        """Take the message of the last peek: it is unacked until delete or requeue."""
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

    def is_waiting(self):
        """True while a thread still has to open or read the file of the next message: see ``open_aside``."""
        if self._read is None or (self._requeued is not None and self._requeued.count):
            return False
        if self._proof is not None and self._proof.segment is self._read:
            return self._proof.awaited
        opening = None if self._openings is None else self._openings.get(self._read.number)
        return opening is not None and opening.awaited and opening.files is None

    def shows_recovered(self):
        """Whether the last peek showed a message that an earlier run delivered and that has not come back in
        this run.
        """
        return self._peeked == _FROM_CURSOR and self._peeked_count > 0

    def postpone(self):
        """Take the message of the last peek, of which shows_recovered() is true, without delivering it.
        requeue() makes it ready again as it was.
        """
        count, entry = self._peeked_count, self._peeked_entry
        self._peeked_count = 0
        self.shift()
        if self._counts is None:
            self._counts = DeliveryCounts()
        self._counts.put(self._peeked_location, count - 1, entry)
        return 0

    def peeked_due_s(self, now_s):
        """Unix seconds until which the peeked message must wait, if an earlier run recorded an unfinished
        back-off; otherwise 0.
        """
        return self._read.due_before(self._read_at, self._peeked_count, now_s)

    def delete(self, location):
        """Remove an unacked message for good.

        Neighbours deleted in order become one entry of the acks file, at the latest in flush.
        """
        at = record.position_of(location)
        segment = self._run.segment
        if segment is None or segment.number != record.number_of(location):
            segment = self._turn_to(location)
            if segment is None:
                return 0
        size = segment.size_at(at)
        if at == self._run.end:
            self._run.count += 1
            self._run.last = at
            self._run.end = at + size
        else:
            self._run.begin(at, size)
        body_length = segment.body_length_at(at)
        self.unacked_count -= 1
        self.unacked_bytes -= body_length
        segment.acked += 1
        segment.acked_bytes += body_length
        if self._counts is not None:
            self._counts.discard(location)
        if segment.acked == segment.count:
            if segment is not self._write:
                self._finish(segment)
            if not self._noted:
                self._note()
        return 0

    def requeue(self, location):
        """Make an unacked message ready again, in its old place, marked as redelivered."""
        segment = self._find(location)
        if segment is None:
            return 0
        at = record.position_of(location)
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
        at = record.position_of(location)
        segment.size_at(at)
        segment.fill(at, message)
        message.location = location
        message.delivery_count = 0 if self._counts is None else self._counts.get(location)
        message.redelivered = message.delivery_count > 0
        return True

    def body_file(self, message):
        segment = self._find(message.location)
        if segment is None or message.buffer is not segment.p or self.pool.keeps(segment.capacity):
            return None
        try:
            return self.files.reading(segment.msgs)
        except OSError:
            return None

    def flush(self):
        """End of a batch: the appends, deliveries and deletions are in the mappings, so that a killed process
        keeps them, and announced.
        """
        if self._staged:
            self._write_staged()
        segment = self._write
        if segment is not None and segment.end >= self._expect_at:
            self._expect_next()
        if self.durable and self.failure is None:
            segment = self._run.segment
            if segment is not None:
                self._run.write()
                self.announce_acks(segment)
            segment = self._read
            if segment is not None and segment.delivered < self._read_at and segment.acks is not None:
                self._put_delivered(segment)
            if segment is not None and self._read_at >= self._ahead_at:
                self._look_ahead(segment)
            segment = self._write
            if segment is not None and segment.announced < segment.end:
                self._announce(segment)
        return 0

    # out of turn

    def pick(self, location):
        """Take a ready message out of its turn: it is unacked until delete, requeue or unpick.

        False: it is not ready (any more).
        """
        at = record.position_of(location)
        self._peeked = 0
        self._end_stage()  # may fence the store: then there is nothing to take
        if (
            self._counts is not None and self._requeued is not None and self._counts.get(location)
            and self._requeued.discard(location)
        ):
            body_length = self._find(location).body_length_at(at)
        else:
            segment = self._before_cursor(location)
            if (
                segment is None or segment.is_picked(at)
                or (not segment.is_open and not self._try_to_open(segment, False))
            ):
                return False
            if not segment.written_here and segment.proven < segment.end and not self._prove_all(segment):
                return False
            segment.size_at(at)
            segment.pick(at)
            body_length = segment.body_length_at(at)
            if not segment.written_here:
                self._remember_failures(segment, location)
        self._count_taken(1, body_length)
        return True

    def unpick(self, location):
        """Make a picked message ready again, as if it had not been picked."""
        at = record.position_of(location)
        segment = self._before_cursor(location)
        if segment is not None and segment.is_picked(at):
            segment.unpick(at)
        elif self._counts is not None and self._counts.get(location):
            if self._requeued is None:
                self._requeued = LocationHeap()
            self._requeued.push(location)
        else:
            return self.requeue(location)  # the cursor has passed it meanwhile
        self._count_taken(-1, self._find(location).body_length_at(at))
        return 0

    def wait_until(self, location, count, due_s):
        """Record for the next run that an unacked message must not be delivered before this time (Unix
        seconds). It came back for the ``count``-th time.
        """
        segment = self._find(location)
        if segment is None or segment.acks is None:
            return 0
        if self._counts is None:
            self._counts = DeliveryCounts()
        entry = self._counts.get_entry(location)
        if segment.spare_entries() < 3:
            self._grow_acks(segment)
        written = segment.put_due(record.position_of(location), count, entry, due_value(due_s, count))
        if entry and written == entry:
            self.files.overwritten(segment.acks, HEAD_BYTES + 8 * (entry - 1), HEAD_BYTES + 8 * (entry + 1))
            self._mark_acks(segment)
        self.announce_acks(segment)
        self._counts.put(location, self._counts.get(location), written or entry)
        return 0

    # the slow verbs

    def purge(self):
        """Drop all ready messages. Returns their count."""
        self._end_stage()
        count = self.ready_count
        self._peeked = 0
        if self._read is not None and self._read.acks is not None:
            self._put_delivered(self._read)
        if self._requeued is not None and self._requeued.count:
            self._purge_requeued()
        segment = self._read
        while segment is not None:
            if segment is not self._read:
                self._read = segment
                self._read_at = HEAD_BYTES
            following = segment.next
            self._purge_segment(segment)
            if following is not None:
                segment.next = None
            segment = following
        self._read = self._last
        self._read_at = HEAD_BYTES if self._last is None else self._last.end
        self._ahead_at = 0
        self.ready_count = 0
        self.ready_bytes = 0
        self.flush()
        if not self._noted:
            self._note()
        return count

    def oldest_ready_ms(self):
        """About when the oldest ready message came in, in Unix milliseconds. 0 if nothing is ready, or if a
        file would have to be opened to know.
        """
        if self.ready_count == 0:
            return 0
        self._end_stage()
        oldest = 0
        if self._requeued is not None and self._requeued.count:
            location = self._requeued.first()
            oldest = self._find(location).timestamp_at(record.position_of(location))
        segment = self._read
        if segment is not None and segment.count > segment.taken:
            at_cursor = segment.timestamp_at(self._read_at) if segment.is_open else segment.timestamps[0]
            if oldest == 0 or 0 < at_cursor < oldest:
                oldest = at_cursor
        elif oldest == 0 and segment is not None and segment.next is not None:
            oldest = (
                segment.next.timestamp_at(HEAD_BYTES) if segment.next.is_open else segment.next.timestamps[0]
            )
        return oldest

    def ready_octets(self):
        """Bytes of the ready messages: their bodies, and an average of the rest of the records."""
        beside = count = 0
        self._end_stage()
        segment = self._read
        while segment is not None:
            beside += segment.end - HEAD_BYTES - segment.body_bytes
            count += segment.count
            segment = segment.next
        return self.ready_bytes + (beside * self.ready_count // count if count else 0)

    def failed_deliveries(self, bounds):
        """Counts of messages, ready or unacked, that came back more than ``bounds[n - 1]`` and up to
        ``bounds[n]`` times, as a list; the last entry counts those above.
        """
        counted = [0] * (len(bounds) + 1)
        if self._counts is not None:
            self._counts.tally(bounds, counted)
        return counted

    def adopt(self, segment):
        """Add a segment of an earlier run. Called by recovery, oldest first, before any other method."""
        self._segments[segment.number] = segment
        if self._last is None:
            self._read = segment
        else:
            self._last.next = segment
        self._last = segment
        self.ready_count += segment.count - segment.acked
        self.ready_bytes += segment.body_bytes - segment.acked_bytes

    # called by Browser

    def requeued_locations(self):
        """The locations of requeued messages, in no order."""
        return None if self._requeued is None or not self._requeued.count else self._requeued.snapshot()

    def end_of_log(self):
        """(segment number, position) behind the newest message."""
        self._end_stage()
        if self._last is None:
            return 0, 0
        return self._last.number, self._last.end

    def read_segment(self):
        """The cursor's segment, or None."""
        return self._read

    def read_position(self):
        """The cursor's position in that segment."""
        return self._read_at

    def location_of(self, number, at):
        """The location of a record."""
        return record.location_of(self._level_bits, number, at)

    def browsable(self, number):
        """The first segment from this number on that the cursor has not passed."""
        segment = self._segments.get(number)
        if segment is not None and self._read is not None and number >= self._read.number:
            return segment
        segment = self._read
        while segment is not None and segment.number < number:
            segment = segment.next
        return segment

    def read_back(self, location, message):
        """Show a requeued message; False if it is no longer there."""
        return (
            record.number_of(location) in self._segments
            and self._counts is not None and self._counts.get(location) > 0
            and self.read(location, message)
        )

    # called by storage.segments.idle

    def resting_at(self):
        """The writer's position, if the store is empty and still has a write segment; 0: there is nothing to
        give back.
        """
        segment = self._write
        if segment is None or self.ready_count or self.unacked_count or len(self._segments) > 1:
            return 0
        return record.location_of(0, segment.number, segment.end)

    def forgotten(self):
        """Note that the store is no longer watched: it reports itself again the next time it becomes empty.
        """
        self._noted = False

    def give_segment_back(self):
        """Give the write segment of resting_at() back. The next message gets a small segment, as in a new
        queue.
        """
        self.flush()
        segment = self._write
        self._begin_small()
        self._peeked = 0
        self._finish(segment)

    def _note(self):
        if self.resting_at():
            self._noted = True
            self.pool.resting.note(self)
        return 0

    # called by SegmentLog

    def _next_shelf(self):
        """UNCACHED for a queue that grows, which is written with calls; a segment that the cursor is in is
        written through its mapping.
        """
        return UNCACHED if self.durable and self._read is not self._write else self._shelf

    def _stop(self, failure):
        segment_log.SegmentLog._stop(self, failure)
        self._run.turn_to(None)
        self._read = self._proof = self._requeued = self._counts = None
        self._peeked = 0
        return 0

    def _roll(self, size, may_wait):
        segment = segment_log.SegmentLog._roll(self, size, may_wait)
        if self._read is None:
            self._read = segment
            self._read_at = HEAD_BYTES
        return segment

    def _is_idle(self, segment):
        return (
            segment is not self._read and segment is not self._run.segment and segment.taken == segment.acked
        )

    def _leave_behind(self, segment):
        if segment.acked == segment.count:
            self._finish(segment)
        else:
            segment_log.SegmentLog._leave_behind(self, segment)

    def _finish(self, segment):
        """Discard a segment of which nothing is wanted any more; not the write segment."""
        if self._read is not None and segment.number > self._read.number:
            self._unlink(segment)
        if segment is self._run.segment:
            # its files are removed later: a kill before that must find all its messages acked
            self._run.write()
            self._run.turn_to(None)
        if segment is self._read:
            self._read = segment.next
            self._read_at = HEAD_BYTES
            self._ahead_at = 0
        if segment is self._last:
            self._last = None
        segment.next = None
        if self._openings is not None:
            self._drop_opening(segment)
        if self._proof is not None and self._proof.segment is segment:
            proof, self._proof = self._proof, None
            if proof.awaited and self.listener is not None:
                self.listener.segment_opened(self)
        del self._segments[segment.number]
        if self.durable and segment.unsynced:
            self._unsynced.remove(segment)
        self._discard(segment)
        return 0

    def _find(self, location):
        """The open segment of a location; None if the store has been fenced or closed."""
        self._end_stage()
        number = record.number_of(location)
        segment = self._segments.get(number)
        if segment is None or not segment.is_open:
            if self.failure is not None:
                return None
            raise StoreError(
                self.folder, record.position_of(location), f"segment {number} has no unacked message"
            )
        return segment

    # picked messages, which the cursor skips

    def _before_cursor(self, location):
        """The segment of a location that the cursor has not reached, or None."""
        self._end_stage()
        number = record.number_of(location)
        segment = self._segments.get(number)
        if segment is None or self._read is None or number < self._read.number:
            return None
        if segment is self._read and record.position_of(location) < self._read_at:
            return None
        return segment

    def _prove_all(self, segment):
        """Read a whole segment of an earlier run through the system, before its mapping is touched.

        False: the disk cannot read it; the store is fenced.
        """
        try:
            self.files.read_through(segment.msgs, 0, segment.end)
        except OSError as error:
            self.fence(error)
            return False
        segment.prove(segment.end)
        return True

    def _remember_failures(self, segment, location):
        """Keep the failed deliveries of a message of an earlier run, in case it comes back again."""
        failed, entry = segment.failed_before(record.position_of(location))
        if failed:
            if self._counts is None:
                self._counts = DeliveryCounts()
            self._counts.put(location, failed, entry)
        return 0

    def _count_taken(self, count, body_length):
        self.ready_count -= count
        self.unacked_count += count
        if count > 0:
            self.ready_bytes -= body_length
            self.unacked_bytes += body_length
        else:
            self.ready_bytes += body_length
            self.unacked_bytes -= body_length
        return 0

    def _unlink(self, segment):
        """Remove a segment ahead of the cursor, of which all messages were picked, from the chain."""
        before = self._read
        while before is not None and before.next is not segment:
            before = before.next
        if before is not None:
            before.next = segment.next
            if segment is self._last:
                self._last = before
        return 0

    # purge

    def _purge_requeued(self):
        """Drop the requeued messages: with their segment if nothing else of it is unacked, else one by one.
        """
        requeued, self._requeued = self._requeued, None
        self._end_run()
        counted = requeued.by_segment()
        whole = {number for number, count in counted.items() if self._is_only(self._segments[number], count)}
        for number in whole:
            self._forget_all(self._segments[number])
        if self.unacked_count == 0 and len(whole) == len(counted):
            self._counts = None
            return 0
        for location in sorted(requeued.snapshot()):
            if record.number_of(location) in whole:
                self._counts.discard(location)
            else:
                self._purge_one(location)
        return 0

    def _is_only(self, segment, count):
        """Whether ``count`` messages are all that is taken from the segment and not acked, and dropping it
        whole pays.
        """
        if segment.taken - segment.acked != count:
            return False
        return segment is not self._write or segment.count - segment.acked >= SMALLEST_RUN

    def _forget_all(self, segment):
        """Mark everything in the segment as acked."""
        segment.acked = segment.taken = segment.count
        segment.acked_bytes = segment.taken_bytes = segment.body_bytes
        if segment.acks is not None:
            segment.put_run(HEAD_BYTES, segment.end)
        if segment is not self._write:
            self._finish(segment)
        elif segment.acks is not None:
            self.announce_acks(segment)
        return 0

    def _purge_one(self, location):
        self.unacked_count += 1  # delete subtracts it again
        self.unacked_bytes += self._find(location).body_length_at(record.position_of(location))
        self.delete(location)

    def _purge_segment(self, segment):
        """Drop the ready messages of the cursor's segment."""
        if segment.picked_count:
            self._purge_between_picks(segment)
            if segment.number not in self._segments:
                return
        count = segment.count - segment.taken
        segment.write_off(count, segment.body_bytes - segment.taken_bytes)
        if count and segment.acks is not None:
            segment.put_run(self._read_at, segment.end)
        if segment.acked == segment.count and segment is not self._write:
            self._finish(segment)
        elif count and segment.acks is not None:
            self.announce_acks(segment)

    def _purge_between_picks(self, segment):
        """Delete ready messages one by one, from the cursor to the last picked message of the segment.

        Moves the cursor.
        """
        at = self._read_at
        while segment.picked_count and segment.acked < segment.count and segment.is_open:
            at = segment.skip_picked(at)
            if not segment.written_here:
                at = segment.find_ready(at)
                if at < 0 or segment.is_picked(at):
                    if at < 0:
                        break
                    continue
            if at >= segment.end:
                break
            size = segment.size_at(at)
            segment.take_waiting(at)
            self._count_taken(1, segment.body_length_at(at))
            self.delete(record.location_of(self._level_bits, segment.number, at))
            at += size
            self._read_at = at
        if segment.picked_count:
            segment.forget_picked()
        return 0

    # the cursor

    def _advance(self):
        """Move the cursor to the next ready record. False at the end."""
        self._end_stage()
        while self._read is not None:
            segment = self._read
            if not segment.is_open and not self._try_to_open(segment, True):
                return False
            if segment.written_here:
                self._read_at = segment.skip_picked(self._read_at)
                if self._read_at < segment.end:
                    return True
            elif self._find_readable(segment):
                return True
            if self.failure is not None or (self._proof is not None and self.is_waiting()):
                return False
            if segment.next is None:
                if not segment.written_here and segment.acked == segment.count:
                    self._finish(segment)
                return False
            self._pass(segment)
        return False

    def _try_to_open(self, segment, can_wait):
        try:
            if not self._come_to(segment, can_wait):
                return False
        except OSError as error:
            self.fence(error)
            return False
        if not segment.written_here:
            segment.load_acks()
            segment.break_acks_seal()
            self.files.overwritten(segment.acks, ACKS_SEAL_AT, HEAD_BYTES)
            self._mark_acks(segment)
        return True

    def _look_ahead(self, segment):
        """Have a thread open the next segment, if it is closed, once the cursor is past the middle of its
        segment.
        """
        if self._read_at < segment.end // AHEAD_PART:
            self._ahead_at = segment.end // AHEAD_PART
        else:
            self._ahead_at = self._read_at + segment.capacity // LOOKS_AHEAD
            self._open_next(segment)
        if not segment.written_here and segment.proven < segment.end and self._may_open_aside():
            self._ahead_at = min(self._ahead_at, self._prove_ahead(segment))
        return 0

    def _prove_ahead(self, segment):
        """Have a thread read the next part of an earlier run's segment, if it is time.

        Returns the position of the next check.
        """
        proof = self._proof
        proven = proof.end if proof is not None and proof.segment is segment else segment.proven
        due = max(proven - AHEAD_BYTES // 2, proven // 2)
        if self._read_at >= due and proven == segment.proven and segment.is_open:
            self._begin_proof(segment, proven, min(proven + AHEAD_BYTES, segment.end))
            due = max(self._proof.end - AHEAD_BYTES // 2, self._read_at + 1)
        return due

    def _begin_proof(self, segment, start, end):
        self._proof = Proof(self, segment, end)
        self.pool.openings.prove(self._proof, start)
        return 0

    def proven(self, proof, error):
        """A thread has read a part of an earlier run's segment, or failed."""
        if self._proof is not proof:
            return
        self._proof = None
        if error is None:
            if proof.segment.is_open and proof.segment.msgs is proof.file:
                proof.segment.prove(max(proof.end, proof.segment.proven))
            if proof.awaited and self.listener is not None:
                self.listener.segment_opened(self)
        elif proof.awaited:  # otherwise the next reader tries again
            self.fence(error)

    def _find_readable(self, segment):
        """_find_recovered, which fences the store if the disk cannot read a record."""
        try:
            return self._find_recovered(segment)
        except OSError as error:
            self.fence(error)
            return False

    def _prove_wanted(self, segment):
        """Read what find_ready() needs. False: a thread does it, and the cursor waits."""
        start, end = (
            segment.wanted_at, min(max(segment.wanted_end, segment.wanted_at + PROVEN_BYTES), segment.end)
        )
        if not self._may_open_aside():
            self._prove(segment, start, end)
            return True
        proof = self._proof
        if proof is None or proof.segment is not segment:
            self._begin_proof(segment, start, end)
        self._proof.awaited = True
        self._ahead_at = self._read_at + PROVEN_BYTES // 2  # reads on only if the cursor moves on
        return False

    def _prove(self, segment, start, end):
        """Read a part of the segment through the system before its mapping is touched, which could kill the
        process.
        """
        self.files.read_through(segment.msgs, start, end)
        segment.prove(end)
        return 0

    def _find_recovered(self, segment):
        """Move the cursor to the next record of an earlier run's segment that is neither acked nor damaged.

        False at its end.
        """
        while True:
            at = segment.find_ready(self._read_at)
            if at == -3:
                self._read_at = segment.looked_at
                if not self._prove_wanted(segment):
                    return False
            elif at < 0:
                self._read_at = self._step_over_damage(segment)
            elif at < segment.end and segment.is_picked(at):
                self._read_at = segment.skip_picked(at)
            else:
                break
        self._read_at = at
        if at < segment.end:
            if segment.taken >= segment.count:
                # more records than seal and acks promise
                self._write_off(segment, -1, -segment.body_length_at(at))
            self._peeked_count, self._peeked_entry = segment.failed_before(at)
            return True
        if segment.taken < segment.count:
            self._write_off(segment, segment.count - segment.taken, segment.body_bytes - segment.taken_bytes)
        return False

    def _step_over_damage(self, segment):
        """Report and quarantine the damage at the cursor, and mark it as acked.

        Returns the position behind it.
        """
        start, end = segment.damaged_at, segment.damaged_end
        if segment.proven < segment.end:
            self._prove(segment, segment.proven, segment.end)  # to count the records left
        lost_count, lost_bytes = damage.count_lost(segment, end)
        damage.set_aside(self, segment, start, end, lost_count)
        self._write_off(segment, lost_count, lost_bytes)
        return end

    def _write_off(self, segment, lost_count, lost_bytes):
        segment.write_off(lost_count, lost_bytes)
        self.ready_count -= lost_count
        self.ready_bytes -= lost_bytes
        return 0

    def _pass(self, segment):
        """Move the cursor to the next segment."""
        if segment.acks is not None:
            self._put_delivered(segment)
        self._read = segment.next
        self._read_at = HEAD_BYTES
        self._ahead_at = 0
        segment.next = None  # otherwise one stuck message keeps every later Segment alive
        if segment.acked == segment.count:
            self._finish(segment)
        return 0

    def _put_delivered(self, segment):
        segment.put_delivered(self._read_at)
        self.files.overwritten(segment.acks, DELIVERED_AT, DELIVERED_AT + 8)
        self._mark_acks(segment)
        return 0

    # requeued messages

    def _peek_requeued(self, message):
        location = self._requeued.first()
        segment = self._find(location)
        if segment is None:
            return False
        self._peeked_size = segment.fill(record.position_of(location), message)
        self._peeked = _FROM_REQUEUED
        self._peeked_body = message.body_length
        self._peeked_location = message.location = location
        self._peeked_count = message.delivery_count = self._counts.get(location)
        self._peeked_entry = self._counts.get_entry(location)
        message.redelivered = True
        return True

    def _take_requeued(self):
        if self._requeued.first() == self._peeked_location:
            self._requeued.pop()
        else:  # an older one was requeued since the peek
            self._requeued.remove(self._peeked_location)
        return 0

    def _remember_count(self):
        """Record that a message is being redelivered: if the process dies now, this delivery counts as failed
        in the next run.
        """
        location = self._peeked_location
        if self._counts is None:
            self._counts = DeliveryCounts()
        entry = self._peeked_entry
        segment = self._find(location)
        if segment is None:
            return 0
        if segment.acks is not None:
            if entry == 0 and segment.spare_entries() < 2:
                self._grow_acks(segment)
            written = segment.put_count(record.position_of(location), self._peeked_count + 1, entry)
            if entry:
                self.files.overwritten(segment.acks, HEAD_BYTES + 8 * (entry - 1), HEAD_BYTES + 8 * entry)
                self._mark_acks(segment)
            entry = written
            self.announce_acks(segment)
        self._counts.put(location, self._peeked_count, entry)
        return 0

    # acks

    def _end_run(self):
        """Write the run of acks and start a new one."""
        segment = self._run.segment
        if segment is not None:
            self._run.write()
            self.announce_acks(segment)
            self._run.turn_to(None)
        return 0

    def _turn_to(self, location):
        """Start a run of acks in another segment."""
        self._end_run()
        segment = self._find(location)
        self._run.turn_to(segment)
        return segment

    def announce_acks(self, segment):
        """Announce new ack entries to the listeners of files, after new messages: a deleted message may have
        been written anew at the end.
        """
        if segment.announced_entries < segment.entries:
            if self._write is not None:
                self._announce(self._write)
            self._announce(segment)
            self._mark_acks(segment)
        return 0

    def _grow_acks(self, segment):
        """Make room for counts, which must not use the room of acks.

        On a full disk, counts are not kept over a restart.
        """
        try:
            self.files.extend(segment.acks, segment.acks.size + ACKS_GROWTH_BYTES)
        except OSError as error:
            LOG.warning("delivery counts of %s are not kept over a restart: %s", segment.path(), error)
        segment.attach(segment.msgs, segment.acks)
        return 0


class AckRun:
    """Consecutive messages of one segment that are deleted and become one entry of its acks file: sixteen
    bytes for a whole batch instead of eight for each.

    Written when a delete does not follow on, when a batch ends, and before the segment's files are removed.

    ``segment``: the one of these messages, or None. ``count`` records from ``start`` to ``end`` are not
    written yet; the last begins at ``last``.
    """

    __slots__ = ("segment", "start", "last", "end", "count")

    def __init__(self):
        self.segment = None
        self.start = self.last = self.end = self.count = 0

    def begin(self, at, size):
        """Start a run with the record at this position, which does not follow on.

        The store itself adds a record that begins at ``end``: the call would cost a tenth of taking a
        message.
        """
        self.write()
        self.start = self.last = at
        self.end = at + size
        self.count = 1
        return 0

    def write(self):
        """Write the run; the owner of the segment announces it."""
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
        """Start runs in another segment, or in none.

        Drops what was not written.
        """
        self.segment = segment
        self.end = self.count = 0
        return 0
