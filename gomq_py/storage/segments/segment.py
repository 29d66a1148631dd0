"""Segment: a pair of mapped files, ``msgs.NNNNNNNNNN`` with records and ``acks.NNNNNNNNNN`` with their acks.

Used by stores.segment_log and stores.message_store, which decide the order of operations. Only the run of the
broker that made the segment appends records, so no position is reused. Never switches, never flushes.
"""
from gomq_py import octets
from gomq_py.storage.disk import pages
from gomq_py.storage.errors import StoreError
from gomq_py.storage.format import head as head_format
from gomq_py.storage.format import record

# Bits of ``unsynced``: what the next sync must flush.
MSGS = 1
ACKS = 2

# How far a clock may be set back, and how old a moved message may be, before records become long.
SET_BACK_MS = 60_000

# Read before a record's length is known: a header with its routing, or a small record.
LOOK_BYTES = 1024

# Fewest records for which a pair of entries in the acks file pays; fewer are written as single acks.
SMALLEST_RUN = 3

# Pages made at a time for an uncached segment that is written through its mapping: some 5 us, for each of
# hundreds of queues that get the same messages.
FETCHED_BYTES = 32768

# Fits into a processor's nearest cache; four times as much was no faster.
STAGE_OCTETS = 32768

_NOWHERE = b""


class Segment:
    """Counts and positions of one segment, and pointers to its mapped files while it is open.

        count           number of its records
        taken           number of records before the store's read position, or picked
        acked           number of acked records
        end             end of the data, at most ``capacity``
        begun_ms        base of the timestamps of small records; 0 in files of schema version 1
        first_offset    of streams: the offset of the record with ordinal 0
        readers         of streams: number of cursors in the segment
        cached          end of the msgs file's pages in the page cache; before it the mapping may be written
        recovered       the Recovered of an earlier run's segment; None for a segment of this run
        picked          the Picked of records taken out of order, or None
        is_direct       True if the segment is open, and ``recovered`` and ``picked`` are None
        flushed         records before this position are on the disk
        synced          end of the msgs file's flushed part, according to the mark in its head
        synced_once     True after the segment's first flush has begun
        named_in        the committer's flush counter ``begun`` when the files were renamed
    """

    __slots__ = (
        "number", "next", "msgs", "acks", "is_open", "is_direct", "p", "ack_p", "capacity", "end",
        "cached", "seed", "ack_seed", "begun_ms", "ordinal", "last_at", "count", "body_bytes", "taken",
        "taken_bytes", "acked", "acked_bytes", "entries", "entry_capacity", "delivered", "announced",
        "announced_entries", "unsynced", "syncing", "flushed", "synced_once", "named_in", "sealed",
        "timestamps", "synced", "first_offset", "readers", "picked", "recovered",
    )

    def __init__(self, number, recovered=None):
        self.number = number
        self.recovered = recovered
        self.next = self.msgs = self.acks = self.picked = None
        self.capacity = self.end = self.cached = self.seed = self.ack_seed = self.ordinal = self.last_at = 0
        self.count = self.body_bytes = self.taken = self.taken_bytes = self.acked = self.acked_bytes = 0
        self.entries = self.entry_capacity = self.delivered = self.announced = self.announced_entries = 0
        self.unsynced = self.syncing = self.flushed = self.named_in = 0
        self.is_open = self.is_direct = self.synced_once = self.sealed = False
        self.timestamps = (0, 0)
        self.synced = self.first_offset = self.begun_ms = self.readers = 0
        self.p = self.ack_p = octets.pointer(_NOWHERE)

    # files

    def attach(self, msgs, acks):
        """Use these open, mapped files. ``acks`` is None if the store keeps no acks."""
        self.msgs = msgs
        self.acks = acks
        self.p = octets.pointer(msgs.map)
        self.cached = msgs.cached
        self.is_open = True
        self.is_direct = self.recovered is None and self.picked is None
        if acks is not None:
            self.ack_p = octets.pointer(acks.map)
            self.entry_capacity = (acks.size - head_format.HEAD_BYTES) // record.ENTRY_BYTES

    def detach(self):
        """Drop the files and all pointers into their mappings, without closing the files."""
        self.unpoint()
        self.msgs = self.acks = None

    def unpoint(self):
        """Drop all pointers into the mappings. The segment then counts as closed."""
        self.p = self.ack_p = octets.pointer(_NOWHERE)
        self.is_open = self.is_direct = False
        if self.recovered is not None:
            self.recovered.forget()

    def path(self):
        """Return the path of the msgs file, for logs and errors; "segment N" if no file is attached."""
        return self.msgs.path if self.msgs is not None else f"segment {self.number}"

    def begin(self, incarnation, generation, came_ms, first_offset=0):
        """Write the heads of a new segment's files, which invalidates older content of the files.
        ``came_ms``: Unix milliseconds at which its first message arrived.
        """
        self.capacity = self.msgs.size
        self.begun_ms = came_ms - min(came_ms, SET_BACK_MS)
        head = head_format.Head(
            head_format.MSGS_MAGIC, self.number, incarnation, generation, first_offset, self.capacity,
            self.begun_ms
        ).encode()
        self.msgs.map[:head_format.HEAD_BYTES] = head.ljust(head_format.HEAD_BYTES, b"\0")
        self.seed = int.from_bytes(head[60:], "little")
        if self.acks is not None:
            head = head_format.decode(head).twin(head_format.ACKS_MAGIC).encode()
            self.acks.map[:head_format.HEAD_BYTES] = head.ljust(head_format.HEAD_BYTES, b"\0")
            self.ack_seed = int.from_bytes(head[60:], "little")
        self.first_offset = first_offset
        self.end = self.announced = head_format.HEAD_BYTES

    # records

    def append(self, message):
        """Write a record at the end. Returns its position. The record must fit."""
        at = self.end
        self.last_at = at
        self.end = at + self.encode(self.p, at, message, False)
        return at

    def append_around(self, message):
        """Write a record around its body, which is already at body_place(). Returns the record's position."""
        at = self.end
        self.last_at = at
        self.end = at + self.encode(self.p, at, message, True)
        self._has_pages()
        return at

    def body_place(self, message):
        """Return where the body of this message will be, if it becomes the next record, and no small one."""
        return self.end + record.HEADER_BYTES + message.routing_length + message.properties_length

    def encode(self, p, at, message, body_is_there):
        """Write the next record at ``p[at]`` and count it. Returns its size. If ``p`` is not the mapping, the
        caller writes the bytes to the file and calls wrote().
        """
        size = record.encode(
            p, at, self.seed, self.begun_ms, self.ordinal, message.kind,
            (message.flags & 0xFE) | message.persistent, message.priority, message.timestamp_ms,
            message.expires_at_ms, message.buffer, message.routing_at, message.routing_length,
            message.properties_at, message.properties_length, message.body_at, message.body_length,
            body_is_there)
        self.ordinal += 1
        self.count += 1
        self.body_bytes += message.body_length
        return size

    def wrote(self, size, last):
        """Record that ``size`` bytes of encoded records were written to the end of the file. ``last``: offset
        of the last record in these bytes.
        """
        self.last_at = self.end + last
        self.end += size
        self.announced = self.end
        self._has_pages()

    def _has_pages(self):
        if self.cached < self.end:
            self.cached = self.msgs.cached = self.end

    def fetch_pages(self, end):
        """Have the system read the msgs file into the page cache up to ``end`` and a little more."""
        pages.fetch_on(self.msgs, min(self.capacity, end + FETCHED_BYTES))
        self.cached = self.msgs.cached

    def fill(self, at, message):
        return fill(self.p, at, self.begun_ms, message)

    def size_at(self, at):
        """Return the size of the record at ``at``. Raises StoreError if no record begins there."""
        if at < 128 or at & 3:
            raise StoreError(self.path(), at, "no record begins here")
        size = record.measure(self.p, at, self.end)
        if size == 0:
            raise StoreError(self.path(), at, "no record is here")
        return size

    def head_end(self, at):
        """Return the end of the bytes that must be read to get header and routing of a record at ``at``."""
        return min(self.end, at + LOOK_BYTES)

    def size_of(self, at):
        """Return the size of the record at ``at`` (header read already); 0 if no record begins there."""
        return record.measure(self.p, at, self.end)

    def is_whole(self, at, came_ms):
        """Return whether a complete record with valid checksums begins at ``at``. Its bytes must have been
        read already. ``came_ms``: the timestamp that it must have; 0: any.
        """
        return (
            record.measure(self.p, at, self.end) > 0 and record.header_is_sound(self.p, at, self.seed)
            and record.content_is_sound(self.p, at, self.seed)
            and (came_ms == 0 or record.timestamp_at(self.p, at, self.begun_ms) == came_ms))

    def body_length_at(self, at):
        """Return the length of the body of the record at ``at``, which must be valid."""
        return self.p[at + 3] if self.p[at] >= record.SMALL else octets.le32(self.p, at + 12)

    def timestamp_at(self, at):
        """Return the Unix milliseconds at which the record at ``at`` arrived; 0 without a record. Returns the
        time of the segment's first record if these bytes were not read yet.
        """
        if self.recovered is not None and self.recovered.proven < min(self.end, at + LOOK_BYTES):
            return self.timestamps[0]
        return record.timestamp_at(self.p, at, self.begun_ms) if record.measure(self.p, at, self.end) else 0

    # records taken out of order

    def is_picked(self, at):
        """Return whether the record at ``at`` was picked: taken out of order, before reading reached it."""
        return self.picked is not None and self.picked.has(at)

    def pick(self, at):
        """Count a record after the store's read position as taken, so that reading skips it."""
        if self.picked is None:
            self.picked = Picked(self.capacity)
            self.is_direct = False
        self.picked.put(at)
        self.take(at)

    def unpick(self, at):
        """Undo a pick, before the store's read position has reached the record."""
        self.taken -= 1
        self.taken_bytes -= self.body_length_at(at)
        self._remove_pick(at)

    def skip_picked(self, at):
        """Return the first position from ``at`` on where no picked record begins; forget earlier picks."""
        while at < self.end and self.is_picked(at):
            self._remove_pick(at)
            at += self.size_at(at)
        return at

    def take(self, at):
        self.taken += 1
        self.taken_bytes += self.body_length_at(at)

    def _remove_pick(self, at):
        self.picked.remove(at)
        if self.picked.count == 0:
            self.picked = None
            self.is_direct = self.is_open and self.recovered is None

    # acks

    def put_ack(self, position):
        """Write one ACKED entry for the record at ``position`` into the acks file."""
        self._put(record.word_of(position, record.ACKED))

    def put_run(self, start, end):
        """Write two entries into the acks file, which ack all records in [start, end)."""
        self._find_room(2)
        self._put(record.word_of(start, record.RUN_START))
        self._put(record.word_of(end, record.RUN_END))

    def put_delivered(self, position):
        """Write into the acks file that records before ``position`` were delivered once."""
        self.delivered = position
        seed = (self.ack_seed + head_format.DELIVERED_SALT) & 0xFFFFFFFF
        record.put_mark(self.ack_p, head_format.DELIVERED_AT, seed, position)

    def put_count(self, position, count, entry, due, kind):
        """Write a record's count of deliveries into the acks file, and ``due`` (record.due_value) unless -1.
        Returns the index + 1 of the entry with the count; 0 if only space for acks is left.
        ``kind``: record.COUNT for failed deliveries, record.EXCUSED for those without failure.
        ``entry``: index + 1 of the record's entry of this kind, to be overwritten, or 0.
        """
        count = min(count, record.LARGEST_COUNT)
        if entry and (due < 0 or self._has_due(entry)):
            record.put_entry(self.ack_p, entry - 1, self.ack_seed, count << 3 | kind)
            if due >= 0:
                record.put_entry(self.ack_p, entry, self.ack_seed, due << 3 | record.DUE)
            return entry
        if self.spare_entries() < (2 if due < 0 else 3):
            return 0
        self._put(record.word_of(position, record.REQUEUED))
        self._put(count << 3 | kind)
        entry = self.entries
        if due >= 0:
            self._put(due << 3 | record.DUE)
        return entry

    def _has_due(self, entry):
        return (
            entry < self.entries
            and record.get_entry(self.ack_p, entry, self.ack_seed) & 7 == record.DUE
        )

    def spare_entries(self):
        """Return the number of free entries in the acks file that are not reserved for acks."""
        # Reserved: one for each unacked or still possible record, and two for an AckRun.
        to_come = 0
        if self.recovered is None:
            to_come = (self.capacity - self.end) // record.SMALLEST_RECORD_BYTES
        elif self.recovered.patchy:
            return 0
        return self.entry_capacity - self.entries - (self.count + to_come - self.acked) - 2

    def _find_room(self, count):
        """Set ``entries`` to the next index with ``count`` free entries, if a power failure has left gaps."""
        if self.recovered is None or not self.recovered.patchy:
            return 0
        free = 0
        while free < count and self.entries + free < self.entry_capacity:
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

    # segments of an earlier run

    def restore(self, head, seal):
        """Set counts and positions from the msgs file's head and seal (closing counts), found by recovery."""
        self.capacity = head.capacity
        self.seed = head.seed
        self.begun_ms = head.begun_ms
        self.first_offset = head.first_offset
        self.end = self.announced = self.flushed = seal.end
        self.count = seal.records
        self.body_bytes = seal.body_bytes
        self.ordinal = seal.next_ordinal
        self.timestamps = seal.first_timestamp_ms, seal.last_timestamp_ms
        self.synced_once = self.sealed = True

    def restore_synced(self, position):
        """Set the position up to which an earlier run has flushed the msgs file."""
        self.synced = position

    def restore_acks(self, seed, seal, delivered):
        """Set the values of the acks file that recovery has read: the seed of its checksums, its closing
        counts (``seal``, or None), and the position before which records were delivered.
        """
        self.ack_seed = seed
        self.delivered = self.recovered.delivered = delivered
        self.recovered.sealed_entries = -1 if seal is None else seal.entries
        self.restore_acked(*(0, 0) if seal is None else (seal.acked, seal.body_bytes))

    def restore_acked(self, count, body_bytes):
        """Set the counts of acked and of taken records to ``count``, with ``body_bytes`` of bodies."""
        self.acked = self.taken = count
        self.acked_bytes = self.taken_bytes = body_bytes

    def load_acks(self):
        """Decode the attached acks file: as many entries as its seal (closing counts) says, or else all."""
        self.entries = self.announced_entries = self.recovered.load(self.acks.map, self.ack_seed)

    def break_acks_seal(self):
        """Invalidate the acks file's seal (closing counts), because more entries follow."""
        self.recovered.sealed_entries = -1
        self.acks.map[
            head_format.ACKS_SEAL_AT:head_format.ACKS_SEAL_AT + head_format.ACKS_SEAL_BYTES
        ] = bytes(head_format.ACKS_SEAL_BYTES)

    def write_off(self, lost_count, lost_bytes):
        """Count missing records, which the segment's counts still include, as taken and acked."""
        self.taken += lost_count
        self.acked += lost_count
        self.taken_bytes += lost_bytes
        self.acked_bytes += lost_bytes

    def ack_taken(self):
        self.acked = self.taken
        self.acked_bytes = self.taken_bytes

    # seals

    def put_synced(self, position):
        """Write into the msgs file that everything before ``position`` was flushed."""
        self.synced = position
        record.put_mark(
            self.p, head_format.SYNCED_AT, (self.seed + head_format.SYNCED_SALT) & 0xFFFFFFFF, position
        )

    def seal(self):
        """Write the msgs file's seal (closing counts), because the segment is complete and flushed."""
        self.note_timestamps()
        self._write_seal()

    def note_timestamps(self):
        """Set ``timestamps`` from the first and last record of a segment of this run."""
        if self.count and self.recovered is None:
            self.timestamps = (
                record.timestamp_at(self.p, head_format.HEAD_BYTES, self.begun_ms),
                record.timestamp_at(self.p, self.last_at, self.begun_ms))

    def write_head(self, head):
        """Write the msgs file's head and seal (closing counts), after a scan has rebuilt them."""
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
        """Write the acks file's seal (closing counts): all entries are flushed, and no more follow."""
        if self.recovered is not None and self.recovered.patchy:
            return
        seal = head_format.encode_acks_seal(
            self.ack_seed, head_format.AcksSeal(self.entries, self.acked, self.acked_bytes)
        )
        self.acks.map[head_format.ACKS_SEAL_AT:head_format.ACKS_SEAL_AT + len(seal)] = seal


def fill(p, at, begun_ms, message):
    """Set ``message`` to the record at ``p[at]``, in a mapped msgs file. Returns the record's size."""
    if p[at] >= record.SMALL:
        return _fill_small(p, at, begun_ms, message)
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


def _fill_small(p, at, begun_ms, message):
    start = at
    message.buffer = p
    message.kind = p[at] >> 5 & 3
    message.flags = p[at + 1] & 0xFE
    message.persistent = p[at + 1] & 1
    message.priority = p[at] & record.SMALL_PRIORITY
    fields = octets.le64(p, at + 2)
    message.properties_length = fields & 255
    message.body_length = fields >> 8 & 255
    message.ordinal = fields >> 16 & record.SMALL_ORDINAL
    message.timestamp_ms = begun_ms + (fields >> 36)
    message.expires_at_ms = 0
    if p[at] & record.EXPIRES:
        message.expires_at_ms = message.timestamp_ms + octets.le32(p, at + 10)
        at += 4
    message.routing_at = at = at + 10
    at += 1 + p[at]
    message.properties_at = at = at + 1 + p[at]
    message.routing_length = at - message.routing_at
    message.body_at = at = at + message.properties_length
    return record.small_size(at + message.body_length - start)


class Picked:
    """Set of the positions of a segment's records that were taken out of order, as a bitmap."""

    __slots__ = ("count", "_bits")

    def __init__(self, capacity):
        self.count = 0
        self._bits = bytearray(capacity // (8 * record.SMALLEST_RECORD_BYTES) + 1)

    def has(self, at):
        slot = at // record.SMALLEST_RECORD_BYTES  # no two records begin in one slot
        return (self._bits[slot >> 3] >> (slot & 7)) & 1 == 1

    def put(self, at):
        slot = at // record.SMALLEST_RECORD_BYTES
        self._bits[slot >> 3] |= 1 << (slot & 7)
        self.count += 1

    def remove(self, at):
        slot = at // record.SMALLEST_RECORD_BYTES
        self._bits[slot >> 3] &= 255 ^ (1 << (slot & 7))
        self.count -= 1


class AckRun:
    """Collects acks of adjacent records of one segment. SMALLEST_RUN or more acks become two entries of the
    acks file, 16 bytes in all, instead of one entry of 8 bytes for each.

    A run is written when the next ack is not adjacent, at the end of a batch, and before the segment's files
    are removed. ``segment``: the records' segment, or None. ``count`` records from ``start`` to ``end`` have
    no ack in the file yet; the last of these records begins at ``last``.
    """

    __slots__ = ("segment", "start", "last", "end", "count")

    def __init__(self):
        self.segment = None
        self.start = self.last = self.end = self.count = 0

    def begin(self, at, size):
        """Write the present run, and start a new one with the record at ``at``, which is not adjacent."""
        # The message store adds adjacent records inline: a call would make taking a message a tenth slower.
        self.write()
        self.start = self.last = at
        self.end = at + size
        self.count = 1

    def write(self):
        """Write the run into the acks file. The caller announces the new entries to replicators."""
        if self.count and self.segment.acks is not None:
            if self.count >= SMALLEST_RUN:
                self.segment.put_run(self.start, self.end)
            else:
                self.segment.put_ack(self.start)
                if self.count == 2:
                    self.segment.put_ack(self.last)
        self.end = self.count = 0

    def turn_to(self, segment):
        """Use another segment, or None, for the next runs. An unwritten run is lost."""
        self.segment = segment
        self.end = self.count = 0


class Stage:
    """A write buffer that collects a batch of records, which one system call then writes to a file.

    For busy streams and growing queues. A write through a mapping to a fresh page causes a page fault, clears
    it, and makes the flush interrupt every processor: 3.4 us for 4 KiB. A system call takes 1.2 us.

    ``user``: the store that has the buffer until the end of its batch, or None. While a store has it, others
    write through their mappings. ``p``: pointer to the buffer's ``capacity`` bytes. One Stage per broker.
    """

    __slots__ = ("user", "p", "capacity", "_octets")

    def __init__(self):
        self.capacity = STAGE_OCTETS
        self.user = self._octets = None

    def take(self, user):
        """Reserve the buffer for the store ``user``. Returns False if another store has it."""
        if self.user is not None:
            return self.user is user
        if self._octets is None:
            self._octets = bytearray(STAGE_OCTETS)
            self.p = octets.pointer(self._octets)
        self.user = user
        return True

    def content(self, count):
        """Return a view of the buffer's first ``count`` bytes, valid until the next record is written."""
        return memoryview(self._octets)[:count]

    def release(self):
        """Let other stores reserve the buffer."""
        self.user = None
