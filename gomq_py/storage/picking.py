"""Picking log: messages taken out of their turn, from the middle of a store, by whoever moves them elsewhere.

Between segment_log and message_store, whose cursor steps over what was picked. A picked message is unacked like any other: ``delete`` and
``requeue`` end that, or ``unpick``, as if nothing had been. Costs a store nothing until somebody picks. Until when a message that came
back waits is noted here, too, for the next run. Never yields, never flushes.
"""
from gomq_py.observability.log import logger
from gomq_py.storage import locations, segment_log
from gomq_py.storage.format.acks import due_value
from gomq_py.storage.format.head import HEAD_BYTES
from gomq_py.storage.requeued import DeliveryCounts, LocationHeap

LOG = logger("storage")

# What an acks file grows by when messages keep coming back: 2048 counts.
ACKS_GROWTH_BYTES = 32768


class PickingLog(segment_log.SegmentLog):
    """``_read`` and ``_read_at`` say where the cursor stands. MessageStore fills in the rest."""

    __slots__ = ("level", "_level_bits", "_read", "_read_at", "_peeked", "_requeued", "_counts")

    def __init__(self, folder, files, pool, committer, incarnation, segment_bytes, durable, level, listener):
        super().__init__(folder, files, pool, committer, incarnation, segment_bytes, durable, listener)
        self.level = level
        self._level_bits = locations.level_bits(level)
        self._read = None
        self._read_at = HEAD_BYTES
        self._peeked = 0
        self._requeued = self._counts = None

    def pick(self, location):
        """Take a ready message out of its turn: it is unacked until delete, requeue or unpick. False: it is not ready (any more)."""
        at = locations.position_of(location)
        self._peeked = 0
        if self._counts is not None and self._requeued is not None and self._counts.get(location) and self._requeued.discard(location):
            body_length = self._find(location).body_length_at(at)
        else:
            segment = self._before_cursor(location)
            if segment is None or segment.is_picked(at) or (not segment.is_open and not self._try_to_open(segment, False)):
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
        """A picked message is ready again as if nothing had been."""
        at = locations.position_of(location)
        segment = self._before_cursor(location)
        if segment is not None and segment.is_picked(at):
            segment.unpick(at)
        elif self._counts is not None and self._counts.get(location):
            if self._requeued is None:
                self._requeued = LocationHeap()
            self._requeued.push(location)
        else:
            return self.requeue(location)  # the cursor has come past meanwhile
        self._count_taken(-1, self._find(location).body_length_at(at))
        return 0

    def wait_until(self, location, count, due_s):
        """An unacked message that came back for the ``count``-th time is not to be delivered before this (Unix seconds): the next run must know."""
        segment = self._find(location)
        if segment is None or segment.acks is None:
            return 0
        if self._counts is None:
            self._counts = DeliveryCounts()
        entry = self._counts.get_entry(location)
        if segment.spare_entries() < 3:
            self._grow_acks(segment)
        written = segment.put_due(locations.position_of(location), count, entry, due_value(due_s, count))
        if entry and written == entry:
            self.files.overwritten(segment.acks, HEAD_BYTES + 8 * (entry - 1), HEAD_BYTES + 8 * (entry + 1))
            self._mark_acks(segment)
        self.announce_acks(segment)
        self._counts.put(location, self._counts.get(location), written or entry)
        return 0

    def _before_cursor(self, location):
        """The segment of a location that the cursor has not come to, or None."""
        number = locations.number_of(location)
        segment = self._segments.get(number)
        if segment is None or self._read is None or number < self._read.number:
            return None
        if segment is self._read and locations.position_of(location) < self._read_at:
            return None
        return segment

    def _prove_all(self, segment):
        """Read a segment of an earlier run through the system before it is touched. False: the disk does not give it; the store is fenced."""
        try:
            self.files.read_through(segment.msgs, 0, segment.end)
        except OSError as error:
            self.fence(error)
            return False
        segment.prove(segment.end)
        return True

    def _remember_failures(self, segment, location):
        """How often a message of an earlier run had come back, should it come back again."""
        failed, entry = segment.failed_before(locations.position_of(location))
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
        """A segment before the cursor goes, all its messages having been picked: the one before it leads to the one behind."""
        before = self._read
        while before is not None and before.next is not segment:
            before = before.next
        if before is not None:
            before.next = segment.next
            if segment is self._last:
                self._last = before
        return 0

    # what a Browser asks

    def requeued_locations(self):
        """The locations that came back and wait, in no order."""
        return None if self._requeued is None or not self._requeued.count else self._requeued.snapshot()

    def end_of_log(self):
        """(segment number, position) behind the newest message."""
        if self._last is None:
            return 0, 0
        return self._last.number, self._last.end

    def read_segment(self):
        """The segment that the cursor is in, or None."""
        return self._read

    def read_position(self):
        """Where in that segment it stands."""
        return self._read_at

    def location_of(self, number, at):
        """The location of a record."""
        return locations.pack(self._level_bits, number, at)

    def browsable(self, number):
        """The segment of this number, or the next one there is, that the cursor has not left behind."""
        segment = self._segments.get(number)
        if segment is not None and self._read is not None and number >= self._read.number:
            return segment
        segment = self._read
        while segment is not None and segment.number < number:
            segment = segment.next
        return segment

    def read_back(self, location, message):
        """Show a message that came back and waits; False when it is not there any more."""
        return locations.number_of(location) in self._segments and self._counts is not None and self._counts.get(location) > 0 \
            and self.read(location, message)

    def oldest_ready_ms(self):
        """When about the oldest ready message came in, in Unix milliseconds; 0: nothing is ready, or nobody knows without opening a file."""
        if self.ready_count == 0:
            return 0
        oldest = 0
        if self._requeued is not None and self._requeued.count:
            location = self._requeued.first()
            oldest = self._find(location).timestamp_at(locations.position_of(location))
        segment = self._read
        if segment is not None and segment.count > segment.taken:
            at_cursor = segment.timestamp_at(self._read_at) if segment.is_open else segment.timestamps[0]
            if oldest == 0 or 0 < at_cursor < oldest:
                oldest = at_cursor
        elif oldest == 0 and segment is not None and segment.next is not None:
            oldest = segment.next.timestamp_at(HEAD_BYTES) if segment.next.is_open else segment.next.timestamps[0]
        return oldest

    def failed_deliveries(self, bounds):
        """How many messages, ready or out, came back up to ``bounds[n]`` times and more than ``bounds[n - 1]``, as a list; last those above."""
        counted = [0] * (len(bounds) + 1)
        if self._counts is not None:
            self._counts.tally(bounds, counted)
        return counted

    # what message_store fills in

    def _find(self, location):
        """The open segment of a location that was handed out."""
        raise NotImplementedError

    def _try_to_open(self, segment, can_wait):
        """Open a closed segment; False when the disk refuses, and the store is fenced, or when who ``can_wait`` has to."""
        raise NotImplementedError

    # acks

    def announce_acks(self, segment):
        """Tell who follows the files about the entries written since the last time."""
        if segment.announced_entries < segment.entries:
            self._announce(segment)
            self._mark_acks(segment)
        return 0

    def _grow_acks(self, segment):
        """Room for counts, which must not take that of acks. Without it, a full disk, counts are not kept over a restart."""
        try:
            self.files.extend(segment.acks, segment.acks.size + ACKS_GROWTH_BYTES)
        except OSError as error:
            LOG.warning("delivery counts of %s are not kept over a restart: %s", segment.path(), error)
        segment.attach(segment.msgs, segment.acks)
        return 0
