"""Segment: a pair of mapped files, ``msgs.NNNNNNNNNN`` with records and ``acks.NNNNNNNNNN`` with their acks.

Below segment_log and message_store, which decide the order of operations; above format (encoding) and files.
A segment is written only in the run of the broker that made it: no position is reused. Never yields, never
flushes.
"""
from array import array

from gomq_py import octets
from gomq_py.storage.disk import pages
from gomq_py.storage.errors import StoreError
from gomq_py.storage.format import head as head_format
from gomq_py.storage.format import record

# Bits of ``unsynced``: what the next sync must flush.
MSGS = 1
ACKS = 2

# Read before a record's length is known: a header with its routing.
LOOK_BYTES = 1024

# Pages made at a time for an uncached segment that is written through its mapping: some 5 us, for each of
# hundreds of queues that get the same messages.
FETCHED_BYTES = 32768

_NOWHERE = b""


class Segment:
    """Counts and positions of one segment, and pointers into its mappings while it is open.

    It has ``count`` records; the store's cursor has passed ``taken`` of them, and ``acked`` are gone. Data
    ends at ``end``, at most at ``capacity``. For streams: ``first_offset`` of the record with ordinal 0, and
    ``readers``, the count of cursors in it.

    The system has pages of the msgs file up to ``cached``; the mapping must not be written behind it.

    ``written_here``: made in this run, so its records need no check; ``is_direct``: and open. The msgs file
    is on the disk up to ``flushed``. For a segment of an earlier run: ``runs`` and ``counts`` as read from
    the acks file, ``delivered_before``: end of the records that had been delivered. ``synced_once``: a flush
    of its content was begun. ``named_in``: count of flushes begun when its files were named.
    """

    __slots__ = (
        "number", "next", "msgs", "acks", "is_open", "is_direct", "p", "ack_p", "capacity", "end", "cached",
        "seed", "ack_seed", "generation", "ordinal", "last_at", "count", "body_bytes", "taken", "taken_bytes",
        "acked", "acked_bytes", "entries", "entry_capacity", "patchy", "delivered", "announced",
        "announced_entries", "unsynced", "syncing", "flushed", "synced_once", "named_in", "written_here",
        "sealed", "runs", "run_count", "run_at", "counts", "dues", "delivered_before", "next_ordinal",
        "checked_at", "damaged_at", "damaged_end", "sealed_entries", "timestamps", "synced", "first_offset",
        "readers", "proven", "looked_at", "wanted_at", "wanted_end", "picked", "picked_count",
    )

    def __init__(self, number):
        self.number = number
        self.next = self.msgs = self.acks = None
        self.capacity = self.end = self.cached = self.seed = self.ack_seed = 0
        self.generation = self.ordinal = self.last_at = 0
        self.count = self.body_bytes = self.taken = self.taken_bytes = self.acked = self.acked_bytes = 0
        self.entries = self.entry_capacity = self.delivered = self.announced = self.announced_entries = 0
        self.unsynced = self.syncing = self.flushed = self.named_in = 0
        self.is_open = self.is_direct = self.patchy = False
        self.synced_once = self.written_here = self.sealed = False
        self.runs = self.counts = self.dues = None
        self.run_count = self.run_at = self.delivered_before = self.next_ordinal = 0
        self.checked_at = self.damaged_at = self.damaged_end = 0
        self.sealed_entries = -1
        self.timestamps = (0, 0)
        self.synced = self.first_offset = self.readers = self.picked_count = 0
        self.proven = self.looked_at = self.wanted_at = self.wanted_end = 0
        self.picked = None
        self.p = self.ack_p = octets.pointer(_NOWHERE)

    # files

    def attach(self, msgs, acks):
        """Take the open, mapped files; ``acks`` is None if the store keeps none."""
        self.msgs = msgs
        self.acks = acks
        self.p = octets.pointer(msgs.map)
        self.cached = msgs.cached
        self.proven = 0
        self.is_open = True
        self.is_direct = self.written_here and self.picked is None
        if acks is not None:
            self.ack_p = octets.pointer(acks.map)
            self.entry_capacity = (acks.size - head_format.HEAD_BYTES) // record.ENTRY_BYTES
        return 0

    def detach(self):
        """Drop the files and all pointers into them, without closing."""
        self.unpoint()
        self.msgs = self.acks = None
        return 0

    def unpoint(self):
        """Drop all pointers into the mappings."""
        self.p = self.ack_p = octets.pointer(_NOWHERE)
        self.is_open = self.is_direct = False
        self.runs = self.counts = self.dues = None
        return 0

    def path(self):
        """The path of the msgs file, for logs and errors."""
        return self.msgs.path if self.msgs is not None else f"segment {self.number}"

    def begin(self, incarnation, generation, first_offset=0):
        """Write the heads of a new, attached segment, which invalidates its earlier content."""
        self.capacity = self.msgs.size
        head = head_format.Head(
            head_format.MSGS_MAGIC, self.number, incarnation, generation, first_offset, self.capacity, 0
        ).encode()
        self.msgs.map[:head_format.HEAD_BYTES] = head.ljust(head_format.HEAD_BYTES, b"\0")
        self.seed = int.from_bytes(head[60:], "little")
        if self.acks is not None:
            head = head_format.decode(head).twin(head_format.ACKS_MAGIC).encode()
            self.acks.map[:head_format.HEAD_BYTES] = head.ljust(head_format.HEAD_BYTES, b"\0")
            self.ack_seed = int.from_bytes(head[60:], "little")
        self.generation = generation
        self.first_offset = first_offset
        self.end = self.announced = head_format.HEAD_BYTES
        self.written_here = self.is_direct = True

    # records

    def append(self, message):
        """Write a record at the end, for which the caller has checked the room. Returns its position."""
        at = self.end
        self.last_at = at
        self.end = at + self.encode(self.p, at, message, False)
        return at

    def append_around(self, message):
        """append() for a body that is already written at body_place()."""
        at = self.end
        self.last_at = at
        self.end = at + self.encode(self.p, at, message, True)
        self._has_pages()
        return at

    def body_place(self, message):
        """Position of the body, if this message is the next record."""
        return self.end + record.HEADER_BYTES + message.routing_length + message.properties_length

    def encode(self, p, at, message, body_is_there):
        """Write the next record at ``p[at]``; outside of the mapping, call wrote() later.

        Returns its size.
        """
        size = record.encode(
            p, at, self.seed, self.ordinal, message.kind, (message.flags & 0xFE) | message.persistent,
            message.priority, message.timestamp_ms, message.expires_at_ms, message.buffer, message.routing_at,
            message.routing_length,
            message.properties_at, message.properties_length, message.body_at, message.body_length,
            body_is_there)
        self.ordinal += 1
        self.count += 1
        self.body_bytes += message.body_length
        return size

    def wrote(self, size, last):
        """Note that ``size`` bytes of encoded records were written at the end of the file and announced. The
        last record begins ``last`` bytes into them.
        """
        self.last_at = self.end + last
        self.end += size
        self.announced = self.end
        self._has_pages()
        return 0

    def _has_pages(self):
        """Note that written records are in the system's cache."""
        if self.cached < self.end:
            self.cached = self.msgs.cached = self.end
        return 0

    def fetch_pages(self, end):
        """Have the system make pages for the msgs file up to ``end`` and a little more."""
        pages.fetch_on(self.msgs, min(self.capacity, end + FETCHED_BYTES))
        self.cached = self.msgs.cached
        return 0

    def fill(self, at, message):
        """Point ``message`` at the record, without checks. Returns the record's size."""
        p = self.p
        routing_length = octets.le16(p, at + 6)
        properties_length = octets.le32(p, at + 8)
        body_length = octets.le32(p, at + 12)
        message.buffer = p
        message.kind = p[at + 2]
        message.flags = p[at + 3] & 0xFE
        message.persistent = p[at + 3] & 1
        message.priority = p[at + 4]
        message.ordinal = octets.le32(p, at + 16)
        message.timestamp_ms = octets.le64(p, at + 20)
        message.expires_at_ms = octets.le64(p, at + 28)
        message.routing_at = at + 40
        message.routing_length = routing_length
        message.properties_at = at = at + 40 + routing_length
        message.properties_length = properties_length
        message.body_at = at + properties_length
        message.body_length = body_length
        return record.size_of(routing_length, properties_length, body_length)

    def size_at(self, at):
        """Size of the record at a position that the store has returned.

        Raises StoreError if none can be there.
        """
        if at < 128 or at & 7:
            raise StoreError(self.path(), at, "no record begins here")
        size = record.measure(self.p, at, self.end)
        if size == 0:
            raise StoreError(self.path(), at, "no record is here")
        return size

    def head_end(self, at):
        """Latest end of the header and routing of a record at ``at``."""
        return min(self.end, at + LOOK_BYTES)

    def size_of(self, at):
        """Size of the record at ``at``, whose head has been read; 0: there is none."""
        return record.measure(self.p, at, self.end)

    def is_whole(self, at, came_ms):
        """Whether a record at ``at``, which has been read, is complete and checks; with this time, unless
        that is 0.
        """
        return (
            record.measure(self.p, at, self.end) > 0 and record.header_is_sound(self.p, at, self.seed)
            and record.content_is_sound(self.p, at, self.seed)
            and (came_ms == 0 or octets.le64(self.p, at + 20) == came_ms))

    def body_length_at(self, at):
        """Length of the body of a record at a checked position."""
        return octets.le32(self.p, at + 12)

    def timestamp_at(self, at):
        """When the record at ``at`` came in, in Unix milliseconds; approximate while its place is not
        verified; 0 if there is no record.
        """
        if not self.written_here and self.proven < self.end and at + LOOK_BYTES > self.proven:
            return self.timestamps[0]
        return octets.le64(self.p, at + 20) if record.measure(self.p, at, self.end) else 0

    # records taken out of order

    def is_picked(self, at):
        """Whether the record at ``at``, which the store's cursor has not passed, was taken out of order."""
        slot = at // record.SMALLEST_RECORD_BYTES  # no two records begin in one
        return self.picked is not None and (self.picked[slot >> 3] >> (slot & 7)) & 1 == 1

    def pick(self, at):
        """Note that a record ahead of the cursor is taken.

        A bitmap has one bit for each place where the smallest record could begin: 22 KiB for 8 MiB, until the
        cursor has passed.
        """
        if self.picked is None:
            self.picked = bytearray(self.capacity // (8 * record.SMALLEST_RECORD_BYTES) + 1)
            self.is_direct = False
        self._turn_pick(at, 1)
        return 0

    def unpick(self, at):
        """Undo a pick. The cursor has not reached the record yet."""
        self._turn_pick(at, -1)
        return 0

    def skip_picked(self, at):
        """Position from which a cursor at ``at`` goes on: behind picked records, if any begin there."""
        while at < self.end and self.is_picked(at):
            size = self.size_at(at)
            self._clear_pick(at)
            at += size
        return at

    def take_waiting(self, at):
        """Count the record as taken."""
        self.taken += 1
        self.taken_bytes += self.body_length_at(at)
        return 0

    def forget_picked(self):
        """Free the bitmap: the cursor has passed all picked records."""
        self.picked = None
        self.picked_count = 0
        self.is_direct = self.is_open and self.written_here
        return 0

    def _turn_pick(self, at, count):
        slot = at // record.SMALLEST_RECORD_BYTES
        body_length = self.body_length_at(at)
        self.taken += count
        if count > 0:
            self.picked[slot >> 3] |= 1 << (slot & 7)
            self.picked_count += 1
            self.taken_bytes += body_length
        else:
            self.taken_bytes -= body_length
            self._clear_pick(at)
        return 0

    def _clear_pick(self, at):
        slot = at // record.SMALLEST_RECORD_BYTES
        self.picked[slot >> 3] &= 255 ^ (1 << (slot & 7))
        self.picked_count -= 1
        if self.picked_count == 0:
            self.forget_picked()
        return 0

    # acks

    def put_ack(self, position):
        """Write one ACKED entry."""
        self._put(position | record.ACKED)
        return 0

    def put_run(self, start, end):
        """Write that all records in [start, end) are acked."""
        self._find_room(2)
        self._put(start | record.RUN_START)
        self._put(end | record.RUN_END)
        return 0

    def put_delivered(self, position):
        """Overwrite the mark: records before ``position`` have been delivered."""
        self.delivered = position
        seed = (self.ack_seed + head_format.DELIVERED_SALT) & 0xFFFFFFFF
        record.put_mark(self.ack_p, head_format.DELIVERED_AT, seed, position)
        return 0

    def put_count(self, position, count, entry):
        """Write the failed deliveries of a record: over its COUNT entry, given as index + 1, or as a new pair
        (``entry`` 0).

        Returns the COUNT entry's index + 1; 0 if the remaining room is reserved for acks, so that the count
        is not kept over a restart.
        """
        if count > record.LARGEST_COUNT:
            count = record.LARGEST_COUNT
        if entry == 0:
            if self.spare_entries() < 2:
                return 0
            self._put(position | record.REQUEUED)
            entry = self.entries + 1
            self._put(count << 3 | record.COUNT)
        else:
            record.put_entry(self.ack_p, entry - 1, self.ack_seed, count << 3 | record.COUNT)
        return entry

    def put_due(self, position, count, entry, due):
        """put_count with the value of a DUE entry (acks.due_value): over the entries at ``entry`` if they
        have one, else as three new ones.
        """
        if (
            entry == 0 or entry >= self.entries
            or record.get_entry(self.ack_p, entry, self.ack_seed) & 7 != record.DUE
        ):
            if self.spare_entries() < 3:
                return 0
            self._put(position | record.REQUEUED)
            self._put(count << 3 | record.COUNT)
            entry = self.entries
            self._put(due << 3 | record.DUE)
        else:
            record.put_entry(self.ack_p, entry - 1, self.ack_seed, count << 3 | record.COUNT)
            record.put_entry(self.ack_p, entry, self.ack_seed, due << 3 | record.DUE)
        return entry

    def spare_entries(self):
        """Free entries of the acks file beyond the reserved ones: one for each record present or still to
        come (all counted as smallest), and two for an unwritten run.
        """
        if self.patchy:
            return 0
        to_come = (self.capacity - self.end) // record.SMALLEST_RECORD_BYTES if self.written_here else 0
        return self.entry_capacity - self.entries - (self.count + to_come - self.acked) - 2

    def _find_room(self, count):
        """In a file with gaps (after a power cut), go to ``count`` free entries in a row."""
        free = 0
        while self.patchy and free < count and self.entries + free < self.entry_capacity:
            if record.get_entry(self.ack_p, self.entries + free, self.ack_seed):
                self.entries += free + 1
                free = 0
            else:
                free += 1
        return 0

    def _put(self, word):
        self._find_room(1)
        if self.entries >= self.entry_capacity:
            raise StoreError(self.path(), self.entries, "no room for another ack")
        record.put_entry(self.ack_p, self.entries, self.ack_seed, word)
        self.entries += 1
        return 0

    # segments of an earlier run

    def restore(self, head, seal):
        """Take over the msgs file's head and seal, as read or rebuilt by recovery."""
        self.capacity = head.capacity
        self.seed = head.seed
        self.generation = head.generation
        self.first_offset = head.first_offset
        self.end = self.announced = self.flushed = seal.end
        self.count = seal.records
        self.body_bytes = seal.body_bytes
        self.ordinal = seal.next_ordinal
        self.timestamps = seal.first_timestamp_ms, seal.last_timestamp_ms
        self.synced_once = self.sealed = True

    def restore_synced(self, position):
        """Note that the segment's run had flushed everything before this position."""
        self.synced = position

    def restore_acks(self, seed, seal, delivered):
        """Take over recovery's facts about the acks file: the checksum of its head, its seal (or None), and
        its mark.
        """
        self.ack_seed = seed
        self.delivered = self.delivered_before = delivered
        self.sealed_entries = -1 if seal is None else seal.entries
        self.restore_acked(*(0, 0) if seal is None else (seal.acked, seal.body_bytes))

    def restore_acked(self, count, body_bytes):
        """Note how many records, and bytes of bodies, are acked."""
        self.acked = self.taken = count
        self.acked_bytes = self.taken_bytes = body_bytes

    def load_acks(self):
        """Read the entries of the attached acks file: as many as its seal says, else all.

        Breaks the seal, because more entries may be written.
        """
        acks = record.load_acks(self.acks.map, self.ack_seed, self.sealed_entries)
        self.runs = acks.runs
        self.run_count = len(acks.runs)
        self.run_at = 0
        self.counts = acks.counts
        self.dues = acks.dues
        self.patchy = acks.holes > 0
        self.entries = self.announced_entries = 0 if self.patchy else acks.entries

    def get_runs(self):
        """The runs of records that were acked when the acks were loaded (format.record)."""
        return array("Q", self.runs) if self.runs is not None else array("Q")

    def break_acks_seal(self):
        """Invalidate the acks file's seal, because more entries are about to be written."""
        self.sealed_entries = -1
        self.acks.map[
            head_format.ACKS_SEAL_AT:head_format.ACKS_SEAL_AT + head_format.ACKS_SEAL_BYTES
        ] = bytes(head_format.ACKS_SEAL_BYTES)

    def find_ready(self, at):
        """Position of the next record from ``at`` on that is not acked; ``end`` if there is none.

        -1: damage at [``damaged_at``, ``damaged_end``). -3: [``wanted_at``, ``wanted_end``) must be read
        first, see prove(). The next call then goes on from ``looked_at``, behind acked records: starting at
        ``at`` again would take them for damage, because their ordinals have been seen.
        """
        if at == self.checked_at:  # for repeated peeks
            return at
        while at < self.end:
            if self.proven < self.end and at + LOOK_BYTES > self.proven:
                return self._want(at, at + LOOK_BYTES)
            size = record.measure(self.p, at, self.end)
            if self.proven < self.end and at + size > self.proven:
                return self._want(at, at + size)
            sound = (
                size > 0 and octets.le32(self.p, at + 16) >= self.next_ordinal
                and record.header_is_sound(self.p, at, self.seed)
            )
            if sound:
                self.next_ordinal = octets.le32(self.p, at + 16) + 1
            elif self.proven < self.end:
                return self._want(at, self.end)  # to search for the next sound record
            else:
                self._find_damage_end(at)
                size = self.damaged_end - at
            gone = self._gone_until(at)
            if gone:
                # A run ends between two records; a single entry says only where its record begins.
                at = at + size if gone == at + record.ENTRY_BYTES else gone
                continue
            if sound and record.content_is_sound(self.p, at, self.seed):
                self.checked_at = at
                return at
            self.damaged_at = at
            self.damaged_end = at + size
            return -1
        return self.end

    def _want(self, start, end):
        self.looked_at = start
        self.wanted_at = start if start > self.proven else self.proven
        self.wanted_end = end if end < self.end else self.end
        return -3

    def prove(self, end):
        """Note that everything from ``wanted_at`` to ``end`` was read through the system, so that its mapping
        is safe to touch.
        """
        self.proven = end
        return 0

    def _gone_until(self, at):
        """End of the run of acked records at ``at``; 0 if it is not acked."""
        while self.run_at < self.run_count and self.runs[self.run_at + 1] <= at:
            self.run_at += 2
        if self.run_at < self.run_count and self.runs[self.run_at] <= at:
            return self.runs[self.run_at + 1]
        return 0

    def _find_damage_end(self, at):
        found = record.find(self.p, at + 8, self.end, self.seed, self.next_ordinal)
        self.damaged_end = found if found >= 0 else self.end
        return 0

    def failed_before(self, at):
        """(count, entry): the record's failed deliveries before this run, and the index + 1 of their entry.
        """
        kept = self.counts.get(at)
        if kept is not None:
            return kept[0], kept[1] + 1
        return (1 if at < self.delivered_before else 0), 0

    def due_before(self, at, count, now_s):
        """Unix seconds until which the last run postponed the record; 0 if it did not, or delivered the
        record since.
        """
        return record.due_of(self.dues[at], count, now_s) if at in self.dues else 0

    def write_off(self, lost_count, lost_bytes):
        """Count missing records, which the seal and the acks promise, as taken and acked."""
        self.taken += lost_count
        self.acked += lost_count
        self.taken_bytes += lost_bytes
        self.acked_bytes += lost_bytes
        return 0

    # seals

    def put_synced(self, position):
        """Record in the head that everything before ``position`` has been flushed."""
        self.synced = position
        record.put_mark(
            self.p, head_format.SYNCED_AT, (self.seed + head_format.SYNCED_SALT) & 0xFFFFFFFF, position
        )
        return 0

    def seal(self):
        """Write the msgs file's seal: all is flushed, and the segment is complete."""
        self.note_timestamps()
        self._write_seal()

    def note_timestamps(self):
        """Update ``timestamps`` of the first and last record of an open segment."""
        if self.count and self.written_here:
            self.timestamps = (
                octets.le64(self.p, head_format.HEAD_BYTES + 20), octets.le64(self.p, self.last_at + 20)
            )

    def write_head(self, head):
        """Write the head proper and the seal of a scanned segment."""
        proper = head.encode()
        if head_format.decode(self.msgs.map[:len(proper)], head_format.MSGS_MAGIC) != head:
            self.msgs.map[:len(proper)] = proper
        self._write_seal()

    def _write_seal(self):
        seal = head_format.encode_seal(
            self.seed,
            head_format.Seal(self.count, self.ordinal, self.body_bytes, self.end, *self.timestamps))
        self.msgs.map[head_format.SEAL_AT:head_format.SEAL_AT + len(seal)] = seal
        self.sealed = True

    def seal_acks(self):
        """Write the acks file's seal: all is flushed, and no more acks come in this run."""
        if self.patchy:
            return
        seal = head_format.encode_acks_seal(
            self.ack_seed, head_format.AcksSeal(self.entries, self.acked, self.acked_bytes)
        )
        self.acks.map[head_format.ACKS_SEAL_AT:head_format.ACKS_SEAL_AT + len(seal)] = seal
