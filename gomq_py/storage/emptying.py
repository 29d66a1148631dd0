"""Emptying log: forgetting all that is ready, and giving back the last segment of a store that stays empty.

Between picking and message_store. A purge costs as much as there are segments; one by one go only messages that came back to a segment that others
are out of, or that were passed over by a pick. storage.resting decides when an empty store has been so for long enough. Never yields, never flushes.
"""
from gomq_py.storage import locations, picking
from gomq_py.storage.format.head import HEAD_BYTES

# Fewer deleted in a row than this are written as single acks.
SMALLEST_RUN = 3


class EmptyingLog(picking.PickingLog):
    """``_noted``: storage.resting watches the store. MessageStore fills in the rest."""

    __slots__ = ("_noted",)

    def __init__(self, folder, files, pool, committer, incarnation, segment_bytes, durable, level, listener):
        super().__init__(folder, files, pool, committer, incarnation, segment_bytes, durable, level, listener)
        self._noted = False

    # purge

    def purge(self):
        """Forget all ready messages. Returns how many there were."""
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
        self.ready_count = 0
        self.ready_bytes = 0
        self.flush()
        if not self._noted:
            self._note()
        return count

    def _purge_requeued(self):
        """Forget what came back and waits: with its segment, where nothing of that is out, else one by one."""
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
            if locations.number_of(location) in whole:
                self._counts.discard(location)
            else:
                self._purge_one(location)
        return 0

    def _is_only(self, segment, count):
        """Whether ``count`` messages are all that has been taken from the segment and is not gone, and it is worth to forget it as a whole."""
        if segment.taken - segment.acked != count:
            return False
        return segment is not self._write or segment.count - segment.acked >= SMALLEST_RUN

    def _forget_all(self, segment):
        """Everything in the segment is gone."""
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
        self.unacked_count += 1  # delete takes it off again
        self.unacked_bytes += self._find(location).body_length_at(locations.position_of(location))
        self.delete(location)

    def _purge_segment(self, segment):
        """All that waits in the segment at the cursor is gone."""
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
        """Delete what waits in a segment from the cursor up to the last picked message, one by one, but not what was picked. Moves the cursor."""
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
            self.delete(locations.pack(self._level_bits, segment.number, at))
            at += size
            self._read_at = at
        if segment.picked_count:
            segment.forget_picked()
        return 0

    # rest, as storage.resting asks for it

    def resting_at(self):
        """Where the writer stands, for a store that holds nothing and still has a segment to write to; 0: there is nothing to give back."""
        segment = self._write
        if segment is None or self.ready_count or self.unacked_count or len(self._segments) > 1:
            return 0
        return locations.pack(0, segment.number, segment.end)

    def forgotten(self):
        """Nobody watches the store any more: it notes itself the next time it becomes empty."""
        self._noted = False

    def give_segment_back(self):
        """What resting_at() found. The next message comes to a small segment, as a new queue's first does."""
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

    # what message_store fills in

    def _finish(self, segment):
        """Nothing in the segment is wanted any more."""
        raise NotImplementedError

    def _put_delivered(self, segment):
        """Note how far the segment at the cursor was delivered."""
        raise NotImplementedError

    def _end_run(self):
        """Write what was deleted so far."""
        raise NotImplementedError
