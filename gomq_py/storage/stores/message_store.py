"""Message store: keeps one queue's messages in a log of segments, with a file of acks beside each segment.

Used by broker.queues. append() copies a message into the log. peek() shows the oldest ready message, and
shift() takes it. delete() acks a taken message; requeue() makes it ready again at its old position.

A location (storage.format.record) is a number that identifies a message until it is deleted. A backlog costs
one Segment object per 8 MiB. Never switches greenlets. Never flushes its files: storage.flush.group_commit
does, and the store tells it when changes are unflushed.
"""
from gomq_py.storage.errors import StoreError
from gomq_py.storage.format import record
from gomq_py.storage.format.head import ACKS_SEAL_AT, DELIVERED_AT, HEAD_BYTES
from gomq_py.storage.segments import segment as _segment
from gomq_py.storage.segments.pool import UNCACHED
from gomq_py.storage.segments.recovered import PROVEN_BYTES
from gomq_py.storage.segments.segment import MSGS, AckRun
from gomq_py.storage.stores import segment_log
from gomq_py.storage.stores.requeued import Requeued

# The next segment is opened ahead when 1/AHEAD_PART of a segment has been read: in time, and not for queues
# that are rarely read. If it is still open because it is being written, this is checked again every
# 1/LOOKS_AHEAD of a segment.
AHEAD_PART = 2
LOOKS_AHEAD = 8

_FROM_CURSOR = 1
_FROM_REQUEUED = 2


class MessageStore(segment_log.SegmentLog):
    """Keeps the messages of one queue, or of one level of a priority queue. Made by recovery.open_store.

        read_segment    Segment of the read position (the cursor). Messages before it were taken. Messages
                        after it are ready, unless they were picked (taken out of order)
        read_at         the read position in this segment
        requeued        the Requeued, which has the messages that came back; or None
        _run            collects acks until they are written
        _noted          True while storage.segments.idle watches the store
    """

    __slots__ = (
        "level", "_level_bits", "read_segment", "read_at", "_ahead_at", "requeued", "_run", "_noted",
        "_peeked", "_peeked_location", "_peeked_size", "_peeked_body", "_peeked_count", "_peeked_entry",
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
        self.read_segment = self.requeued = None
        self.read_at = HEAD_BYTES
        self._ahead_at = 0  # position at which the cursor next checks what to open ahead
        self._run = AckRun()
        self._noted = False
        self._peeked = self._peeked_location = self._peeked_size = self._peeked_body = 0
        self._peeked_count = self._peeked_entry = 0

    # the hot verbs, in the order a message meets them

    def append(self, message):
        size = record.size_of(message.routing_length, message.properties_length, message.body_length)
        segment = self._write
        if segment is None or segment.end + self._staged + size > segment.capacity:
            segment = self._roll(size, message.may_wait, message.timestamp_ms)
        at = segment.end + self._staged
        if at + size <= segment.cached or not self._append_uncached(segment, message, size):
            if message.body_length < segment_log.WRITTEN_OCTETS or not self._write_body(segment, message):
                segment.append(message)
            else:
                segment.append_around(message)
        message.location = record.location_of(self._level_bits, segment.number, at)
        self.ready_count += 1
        self.ready_bytes += message.body_length
        if message.persistent and not segment.unsynced & MSGS:
            self._mark_messages(segment)

    def peek(self, message):
        if self.requeued is not None and self.requeued.heap.count:
            return self._peek_requeued(message)
        segment = self.read_segment
        self._peeked_count = self._peeked_entry = 0
        if segment is None or self.read_at >= segment.end or not segment.is_direct:
            if not self._advance():
                return False
            segment = self.read_segment
        self._peeked_size = segment.fill(self.read_at, message)
        self._peeked = _FROM_CURSOR
        self._peeked_body = message.body_length
        self._peeked_location = message.location = record.location_of(
            self._level_bits, segment.number, self.read_at
        )
        message.delivery_count = self._peeked_count
        message.redelivered = self._peeked_count > 0
        return True

    def shift(self):
        if self._peeked == _FROM_CURSOR:
            self.read_segment.taken += 1
            self.read_segment.taken_bytes += self._peeked_body
            self.read_at += self._peeked_size
        elif self._peeked == _FROM_REQUEUED:
            self.requeued.take(self._peeked_location)
        else:
            raise StoreError(self.folder, 0, "shift without peek")
        self._peeked = 0
        if self._peeked_count:
            self._remember_count()
        self.ready_count -= 1
        self.unacked_count += 1
        self.ready_bytes -= self._peeked_body
        self.unacked_bytes += self._peeked_body

    def is_waiting(self):
        if self.read_segment is None or (self.requeued is not None and self.requeued.heap.count):
            return False
        recovered = self.read_segment.recovered
        if recovered is not None and recovered.proof is not None:
            return recovered.proof.awaited
        return self.opener is not None and self.opener.is_awaited(self.read_segment)

    def shows_recovered(self):
        return self._peeked == _FROM_CURSOR and self._peeked_count > 0

    def postpone(self):
        count, entry = self._peeked_count, self._peeked_entry
        self._peeked_count = 0
        self.shift()
        self._have_requeued().counts.put(self._peeked_location, count - 1, entry)

    def peeked_due_s(self, now_s):
        recovered = self.read_segment.recovered
        return 0 if recovered is None else recovered.due_before(self.read_at, self._peeked_count, now_s)

    def delete(self, location):
        """Remove an unacked message. Its ack is in the file after write_out() at the latest."""
        at = record.position_of(location)
        segment = self._run.segment
        if segment is None or segment.number != record.number_of(location):
            segment = self._find(location)
            self._turn_run_to(segment)
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
        if self.requeued is not None:
            self.requeued.forget(location)
        if segment.acked == segment.count:
            if segment is not self._write:
                self._finish(segment)
            if not self._noted:
                self._note()
        return 0

    def requeue(self, location):
        segment = self._find(location)
        if segment is None:
            return 0
        at = record.position_of(location)
        segment.size_at(at)
        body_length = segment.body_length_at(at)
        self._have_requeued().come_back(location)
        self._count_taken(-1, body_length)
        return 0

    def _have_requeued(self):
        if self.requeued is None:
            self.requeued = Requeued()
        return self.requeued

    def read(self, location, message):
        segment = self._find(location)
        if segment is None:
            return False
        at = record.position_of(location)
        segment.size_at(at)
        segment.fill(at, message)
        message.location = location
        message.delivery_count = 0 if self.requeued is None else self.requeued.counts.get(location)
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

    def write_out(self):
        """End a batch: write messages, acks and the read position to files, so that they survive a kill."""
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
            segment = self.read_segment
            if segment is not None and segment.delivered < self.read_at and segment.acks is not None:
                self._put_delivered(segment)
            if segment is not None and self.read_at >= self._ahead_at:
                self._look_ahead(segment)
            segment = self._write
            if segment is not None and segment.announced < segment.end:
                self.announce(segment)

    # out of turn

    def pick(self, location):
        at = record.position_of(location)
        self._peeked = 0
        self._end_stage()  # may fence the store: then there is nothing to take
        if self.requeued is not None and self.requeued.take_early(location):
            body_length = self._find(location).body_length_at(at)
        else:
            segment = self._before_cursor(location)
            if (
                segment is None or segment.is_picked(at)
                or (not segment.is_open and not self._try_to_open(segment, False))
            ):
                return False
            recovered = segment.recovered
            if recovered is not None and not recovered.prove_all(self, segment):
                return False
            segment.size_at(at)
            segment.pick(at)
            body_length = segment.body_length_at(at)
            if recovered is not None:
                failed, entry = recovered.failed_before(at)
                if failed:  # kept in case it comes back again
                    self._have_requeued().counts.put(location, failed, entry)
        self._count_taken(1, body_length)
        return True

    def unpick(self, location):
        at = record.position_of(location)
        segment = self._before_cursor(location)
        if segment is not None and segment.is_picked(at):
            segment.unpick(at)
        elif self.requeued is not None and self.requeued.counts.get(location):
            self.requeued.heap.push(location)
        else:
            return self.requeue(location)  # the cursor has passed it meanwhile
        self._count_taken(-1, self._find(location).body_length_at(at))
        return 0

    def wait_until(self, location, count, due_s):
        segment = self._find(location)
        if segment is not None and segment.acks is not None:
            self._have_requeued().wait_until(self, segment, location, count, due_s)

    def excuse(self, location, more):
        segment = self._find(location)
        return 0 if segment is None else self._have_requeued().excuse(self, segment, location, more)

    # the slow verbs

    def purge(self):
        self._end_stage()
        count = self.ready_count
        self._peeked = 0
        if self.read_segment is not None and self.read_segment.acks is not None:
            self._put_delivered(self.read_segment)
        if self.requeued is not None and self.requeued.heap.count:
            self._purge_requeued()
        while self.read_segment is not None and self.failure is None:
            segment = self.read_segment
            self._delete_few(segment)
            if self.read_segment is not segment:  # the cursor has passed it, and perhaps others
                continue
            following = segment.next
            self._drop_ready(segment, self.read_at, segment.count - segment.taken)
            if self.read_segment is segment:
                segment.next = None
                self.read_segment = following
                self.read_at = HEAD_BYTES
        self.read_segment = self._last
        self.read_at = HEAD_BYTES if self._last is None else self._last.end
        self._ahead_at = 0
        self.ready_count = self.ready_bytes = 0
        self.write_out()
        if not self._noted:
            self._note()
        return count

    def oldest_ready_ms(self):
        if self.ready_count == 0:
            return 0
        self._end_stage()
        oldest = 0
        if self.requeued is not None and self.requeued.heap.count:
            location = self.requeued.heap.first()
            oldest = self._find(location).timestamp_at(record.position_of(location))
        segment, at = self.read_segment, self.read_at
        if segment is not None and segment.count == segment.taken:
            segment, at = segment.next, HEAD_BYTES
        if segment is not None:
            at_cursor = segment.timestamp_at(at) if segment.is_open else segment.timestamps[0]
            if oldest == 0 or 0 < at_cursor < oldest:
                oldest = at_cursor
        return oldest

    def ready_octets(self):
        """Return the ready messages' size in bytes: bodies, and an estimate of headers and properties."""
        beside = count = 0
        self._end_stage()
        segment = self.read_segment
        while segment is not None:
            beside += segment.end - HEAD_BYTES - segment.body_bytes
            count += segment.count
            segment = segment.next
        return self.ready_bytes + (beside * self.ready_count // count if count else 0)

    def failed_deliveries(self, bounds):
        counted = [0] * (len(bounds) + 1)
        if self.requeued is not None:
            self.requeued.counts.tally(bounds, counted)
        return counted

    def adopt(self, segment):
        """Add a segment of an earlier run, oldest first. Only for recovery, before any other method."""
        self._segments[segment.number] = segment
        if self._last is None:
            self.read_segment = segment
        else:
            self._last.next = segment
        self._last = segment
        self.ready_count += segment.count - segment.acked
        self.ready_bytes += segment.body_bytes - segment.acked_bytes

    # called by Browser

    def end_of_log(self):
        """Return (segment number, position) of the end of the newest message; (0, 0) without segments."""
        self._end_stage()
        if self._last is None:
            return 0, 0
        return self._last.number, self._last.end

    def browsable(self, number):
        """Return the first Segment from ``number`` on that may have ready messages, or None."""
        segment = self._segments.get(number)
        if segment is not None and self.read_segment is not None and number >= self.read_segment.number:
            return segment
        segment = self.read_segment
        while segment is not None and segment.number < number:
            segment = segment.next
        return segment

    # called by storage.segments.idle

    def resting_at(self):
        """Return the location of the log's end if the store is empty, with only its write segment; else 0."""
        segment = self._write
        if segment is None or self.ready_count or self.unacked_count or len(self._segments) > 1:
            return 0
        return record.location_of(0, segment.number, segment.end)

    def forgotten(self):
        """Record that storage.segments.idle no longer watches the store, so that the store can ask again."""
        self._noted = False

    def give_segment_back(self):
        """Return an empty store's write segment to the pool. The next message begins a small new segment."""
        self.write_out()
        segment = self._write
        self._begin_small()
        self._peeked = 0
        self._finish(segment)

    def _note(self):
        if self.resting_at():
            self._noted = True
            self.pool.resting.note(self)

    # called by SegmentLog

    def _next_shelf(self):
        """Return the kind of files for the next segment: UNCACHED, for system calls, if the queue grows."""
        return UNCACHED if self.durable and self.read_segment is not self._write else self._shelf

    def _stop(self, failure):
        segment_log.SegmentLog._stop(self, failure)
        self._run.turn_to(None)
        self.read_segment = self.requeued = None
        self._peeked = 0
        return 0

    def _roll(self, size, may_wait, came_ms):
        segment = segment_log.SegmentLog._roll(self, size, may_wait, came_ms)
        if self.read_segment is None:
            self.read_segment = segment
            self.read_at = HEAD_BYTES
        return segment

    def _is_idle(self, segment):
        return (
            segment is not self.read_segment and segment is not self._run.segment
            and segment.taken == segment.acked
        )

    def _leave_behind(self, segment):
        if segment.acked == segment.count:
            self._finish(segment)
        else:
            segment_log.SegmentLog._leave_behind(self, segment)

    def _finish(self, segment):
        """Give the files of a fully acked segment back to the pool. Not for the write segment."""
        if self.read_segment is not None and segment.number > self.read_segment.number:
            self._unlink(segment)
        if segment is self._run.segment:
            # its files are removed later: a kill before that must find all its messages acked
            self._run.write()
            self._run.turn_to(None)
        if segment is self.read_segment:
            self.read_segment = segment.next
            self.read_at = HEAD_BYTES
            self._ahead_at = 0
        if segment is self._last:
            self._last = None
        segment.next = None
        if self.opener is not None:
            self.opener.drop(self, segment)
        if segment.recovered is not None and segment.recovered.drop_proof() and self.listener is not None:
            self.listener.segment_opened(self)
        del self._segments[segment.number]
        if self.durable and segment.unsynced:
            self._unsynced.remove(segment)
        self._discard(segment)

    def _find(self, location):
        """Return the open Segment of a location; None if the store was stopped. Raises StoreError."""
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
        """Return the Segment of a location that the read position has not reached yet; otherwise None."""
        self._end_stage()
        number = record.number_of(location)
        segment = self._segments.get(number)
        if segment is None or self.read_segment is None or number < self.read_segment.number:
            return None
        if segment is self.read_segment and record.position_of(location) < self.read_at:
            return None
        return segment

    def _count_taken(self, count, body_length):
        """Move a message from the ready to the unacked counts (``count`` 1), or back (-1)."""
        self.ready_count -= count
        self.unacked_count += count
        self.ready_bytes -= count * body_length
        self.unacked_bytes += count * body_length

    def _unlink(self, segment):
        """Remove a segment ahead of the cursor, whose messages were all picked, from the ``next`` chain."""
        before = self.read_segment
        while before is not None and before.next is not segment:
            before = before.next
        if before is not None:
            before.next = segment.next
            if segment is self._last:
                self._last = before

    # purge

    def _purge_requeued(self):
        self._turn_run_to(None)
        whole, others = self.requeued.empty(self._segments, self._write, self.unacked_count > 0)
        for segment in whole:
            count = segment.count - segment.acked
            segment.ack_taken()
            self._drop_ready(segment, HEAD_BYTES, count)
        for location in others:
            segment = self._find(location)
            self._count_taken(1, segment.body_length_at(record.position_of(location)))
            self.delete(location)

    def _delete_few(self, segment):
        # Those before its last picked message, and a few of the write segment. Otherwise many small purges
        # would fill the acks file with runs.
        while (
            (segment.picked is not None
             or (segment is self._write and 0 < segment.count - segment.taken < _segment.SMALLEST_RUN))
            and self._advance() and self.read_segment is segment
        ):
            at = self.read_at
            segment.take(at)
            self._count_taken(1, segment.body_length_at(at))
            self.read_at += segment.size_at(at)
            self.delete(record.location_of(self._level_bits, segment.number, at))

    def _drop_ready(self, segment, start, count):
        """Count ready messages as taken and acked. If ``count`` > 0, write acks from record ``start`` on."""
        segment.write_off(segment.count - segment.taken, segment.body_bytes - segment.taken_bytes)
        has_new_acks = count > 0 and segment.acks is not None
        if has_new_acks:
            segment.put_run(start, segment.end)
        if segment.acked == segment.count and segment is not self._write:
            self._finish(segment)
        elif has_new_acks:
            self.announce_acks(segment)

    # the cursor

    def _advance(self):
        """Move the read position to the next ready record. Returns False if none can be read yet."""
        self._end_stage()
        while self.read_segment is not None:
            segment = self.read_segment
            if not segment.is_open and not self._try_to_open(segment, True):
                return False
            if segment.recovered is None:
                self.read_at = segment.skip_picked(self.read_at)
                if self.read_at < segment.end:
                    return True
            elif self._find_recovered(segment):
                return True
            if self.failure is not None or (segment.recovered is not None and self.is_waiting()):
                return False
            if segment.next is None:
                if segment.recovered is not None and segment.acked == segment.count:
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
        if segment.recovered is not None:
            segment.load_acks()
            segment.break_acks_seal()
            self.files.overwritten(segment.acks, ACKS_SEAL_AT, HEAD_BYTES)
            self._mark_acks(segment)
        return True

    def _look_ahead(self, segment):
        """Have threads open the next segment, and read more of this one, ahead of the cursor."""
        if self.read_at < segment.end // AHEAD_PART:
            self._ahead_at = segment.end // AHEAD_PART
        else:
            self._ahead_at = self.read_at + segment.capacity // LOOKS_AHEAD
            self._open_next(segment)
        recovered = segment.recovered
        if recovered is not None and recovered.proven < segment.end and self.may_open_aside():
            self._ahead_at = min(self._ahead_at, recovered.look_ahead(self, segment, self.read_at))

    def _find_recovered(self, segment):
        """Move the read position to the next ready record of an earlier run's segment. Returns False at the
        segment's end, if a thread must read the file first, or after an I/O error.
        """
        recovered = segment.recovered
        try:
            at = recovered.find(self, segment, self.read_at)
        except OSError as error:
            self.fence(error)
            return False
        if at < 0:
            self.read_at = recovered.looked_at
            self._ahead_at = self.read_at + PROVEN_BYTES // 2  # reads on only if the cursor moves on
            return False
        self.read_at = at
        if at < segment.end:
            if segment.taken >= segment.count:
                # more records than seal and acks promise
                self.write_off(segment, -1, -segment.body_length_at(at))
            self._peeked_count, self._peeked_entry = recovered.failed_before(at)
            return True
        if segment.taken < segment.count:
            self.write_off(segment, segment.count - segment.taken, segment.body_bytes - segment.taken_bytes)
        return False

    def write_off(self, segment, lost_count, lost_bytes):
        """Count missing messages, which the segment's counts still include, as acked."""
        segment.write_off(lost_count, lost_bytes)
        self.ready_count -= lost_count
        self.ready_bytes -= lost_bytes

    def _pass(self, segment):
        if segment.acks is not None:
            self._put_delivered(segment)
        self.read_segment = segment.next
        self.read_at = HEAD_BYTES
        self._ahead_at = 0
        segment.next = None  # otherwise one stuck message keeps every later Segment alive
        if segment.acked == segment.count:
            self._finish(segment)

    def _put_delivered(self, segment):
        segment.put_delivered(self.read_at)
        self.files.overwritten(segment.acks, DELIVERED_AT, DELIVERED_AT + 8)
        self._mark_acks(segment)

    # requeued messages

    def _peek_requeued(self, message):
        location = self.requeued.heap.first()
        segment = self._find(location)
        if segment is None:
            return False
        self._peeked_size = segment.fill(record.position_of(location), message)
        self._peeked = _FROM_REQUEUED
        self._peeked_body = message.body_length
        self._peeked_location = message.location = location
        self._peeked_count = message.delivery_count = self.requeued.counts.get(location)
        self._peeked_entry = self.requeued.counts.get_entry(location)
        message.redelivered = True
        return True

    def _remember_count(self):
        """Record on disk that the peeked message is being redelivered."""
        segment = self._find(self._peeked_location)
        if segment is not None:
            self._have_requeued().redeliver(
                self, segment, self._peeked_location, self._peeked_count, self._peeked_entry
            )

    # acks

    def _turn_run_to(self, segment):
        """Write the present run of acks, and use this segment, or None, for the next run."""
        if self._run.segment is not None:
            self._run.write()
            self.announce_acks(self._run.segment)
        self._run.turn_to(segment)
