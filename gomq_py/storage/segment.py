"""Segment: a pair of mapped files, ``msgs.NNNNNNNNNN`` with records and ``acks.NNNNNNNNNN`` with what became of them.

Below message_store, which owns the order of things; above format (the octets) and files (the seam). A segment is written in the run of the broker that
made it and never again after: positions are not used twice. Never yields, never flushes, decides nothing.
"""
from gomq_py import octets
from gomq_py.storage.errors import StoreError
from gomq_py.storage.format import acks as acks_format
from gomq_py.storage.format import head as head_format
from gomq_py.storage.format import record

_NOWHERE = b""

# Bits of ``unsynced``: what the next sync must flush.
MSGS = 1
ACKS = 2


class Segment:
    """Counts and positions of one segment, and pointers into its mappings while it is open.

    ``count`` records; ``taken`` of them no longer wait for the store's cursor; ``acked`` of them are gone. ``end`` is where the data ends, ``capacity`` where
    it must. ``written_here``: made in this run, so that what is read needs no check.
    """

    __slots__ = (
        "number", "msgs", "acks", "p", "ack_p", "capacity", "end", "count", "taken", "acked", "body_bytes", "taken_bytes", "ordinal", "seed", "ack_seed", "entries",
        "entry_capacity", "delivered", "announced", "announced_entries", "unsynced", "written_here", "persistent", "sealed", "patchy", "next", "loaded",
        "first_timestamp_ms", "last_timestamp_ms", "generation", "syncing", "synced_once",
    )

    def __init__(self, number):
        self.number = number
        self.msgs = self.acks = self.next = self.loaded = None
        self.capacity = self.end = self.count = self.taken = self.acked = self.body_bytes = self.ordinal = self.seed = self.ack_seed = 0
        self.entries = self.entry_capacity = self.delivered = self.announced = self.announced_entries = self.unsynced = 0
        self.first_timestamp_ms = self.last_timestamp_ms = self.generation = self.taken_bytes = self.syncing = 0
        self.written_here = self.persistent = self.sealed = self.patchy = self.synced_once = False
        self.detach()

    def attach(self, msgs, acks):
        """Take the open, mapped files; ``acks`` may be None."""
        self.msgs = msgs
        self.acks = acks
        self.p = octets.pointer(msgs.map)
        self.capacity = msgs.size
        if acks is not None:
            self.ack_p = octets.pointer(acks.map)
            self.entry_capacity = (acks.size - head_format.HEAD_BYTES) // acks_format.ENTRY_BYTES
        return 0

    def detach(self):
        """Forget the files and every pointer into them, without closing."""
        self.msgs = self.acks = None
        self.p = self.ack_p = octets.pointer(_NOWHERE)

    def is_open(self):
        """Whether the files are mapped."""
        return self.msgs is not None

    def begin(self, incarnation, generation, first_offset=0):
        """Write the heads of a new, attached segment and forget what its files held before."""
        head = head_format.encode(head_format.MSGS_MAGIC, self.number, incarnation, generation, first_offset, self.capacity)
        self.msgs.map[:head_format.HEAD_BYTES] = head.ljust(head_format.HEAD_BYTES, b"\0")
        self.seed = int.from_bytes(head[60:], "little")
        if self.acks is not None:
            head = head_format.encode(head_format.ACKS_MAGIC, self.number, incarnation, generation, first_offset, self.capacity)
            self.acks.map[:head_format.HEAD_BYTES] = head.ljust(head_format.HEAD_BYTES, b"\0")
            self.ack_seed = int.from_bytes(head[60:], "little")
        self.generation = generation
        self.end = head_format.HEAD_BYTES
        self.written_here = True

    def append(self, message):
        """Write a record at the end; the caller has made sure of the room. Returns its position."""
        at = self.end
        self.end = at + record.encode(
            self.p, at, self.seed, self.ordinal, message.kind, (message.flags & 0xFE) | message.persistent, message.priority,
            message.timestamp_ms, message.expires_at_ms, message.buffer, message.routing_at, message.routing_length,
            message.properties_at, message.properties_length, message.body_at, message.body_length)
        self.ordinal += 1
        self.count += 1
        self.body_bytes += message.body_length
        return at

    def fill(self, at, message):
        """Point ``message`` at the record; nothing is checked here. Returns the record's size."""
        p = self.p
        routing_length = octets.le16(p, at + 6)
        properties_length = octets.le32(p, at + 8)
        body_length = octets.le32(p, at + 12)
        message.buffer = p
        message.kind = p[at + 2]
        message.flags = p[at + 3] & 0xFE
        message.persistent = p[at + 3] & 1
        message.priority = p[at + 4]
        message.timestamp_ms = octets.le64(p, at + 20)
        message.expires_at_ms = octets.le64(p, at + 28)
        message.routing_at = at + 40
        message.routing_length = routing_length
        message.properties_at = at = at + 40 + routing_length
        message.properties_length = properties_length
        message.body_at = at + properties_length
        message.body_length = body_length
        return (44 + routing_length + properties_length + body_length + 7) & ~7

    def size_at(self, at):
        """Size of the record at a position that the store has handed out. Raises StoreError when none can be there."""
        if at < 128 or at & 7:
            raise StoreError(self.get_path(), at, "no record begins here")
        size = record.measure(self.p, at, self.end)
        if size == 0:
            raise StoreError(self.get_path(), at, "no record is here")
        return size

    def body_length_at(self, at):
        """Body octets of a record whose place was checked."""
        return octets.le32(self.p, at + 12)

    def put_ack(self, position):
        """Write one ACKED entry."""
        self._put(position | acks_format.ACKED)
        return 0

    def put_run(self, start, end):
        """Write that all records in [start, end) are gone."""
        self._find_room(2)
        self._put(start | acks_format.RUN_START)
        self._put(end | acks_format.RUN_END)
        return 0

    def put_gone(self, start, end, count):
        """Write that the ``count`` records between two record boundaries are gone."""
        if count > 2:
            return self.put_run(start, end)
        while start < end:
            self.put_ack(start)
            start += self.size_at(start)
        return 0

    def put_delivered(self, position):
        """Overwrite the mark: records before ``position`` have been given to a consumer."""
        self.delivered = position
        acks_format.put_mark(self.ack_p, head_format.DELIVERED_AT, (self.ack_seed + head_format.DELIVERED_SALT) & 0xFFFFFFFF, position)
        return 0

    def put_count(self, position, count, entry):
        """Write how many deliveries of a record have failed: over its COUNT entry, given as index + 1, or as a new pair when ``entry`` is 0.

        Returns the COUNT entry's index + 1; 0 when the room left is needed for acks: the count is then not kept over a restart.
        """
        if count > acks_format.LARGEST_COUNT:
            count = acks_format.LARGEST_COUNT
        if entry == 0:
            if self.spare_entries() < 2:
                return 0
            self._put(position | acks_format.REQUEUED)
            entry = self.entries + 1
            self._put(count << 3 | acks_format.COUNT)
        else:
            acks_format.put_entry(self.ack_p, entry - 1, self.ack_seed, count << 3 | acks_format.COUNT)
        return entry

    def spare_entries(self):
        """Entries left over when each record that is or may yet be here has one, less two for a run that is not yet written."""
        if self.patchy:
            return 0
        to_come = (self.capacity - self.end) // record.SMALLEST_RECORD_BYTES if self.written_here else 0
        return self.entry_capacity - self.entries - (self.count + to_come - self.acked) - 2

    def _find_room(self, count):
        """Where the file has gaps (after a power cut), move on to ``count`` free entries in a row."""
        free = 0
        while self.patchy and free < count and self.entries + free < self.entry_capacity:
            if acks_format.get_entry(self.ack_p, self.entries + free, self.ack_seed):
                self.entries += free + 1
                free = 0
            else:
                free += 1
        return 0

    def _put(self, word):
        self._find_room(1)
        if self.entries >= self.entry_capacity:
            raise StoreError(self.acks.path, self.acks.size, "no room for another ack")
        acks_format.put_entry(self.ack_p, self.entries, self.ack_seed, word)
        self.entries += 1
        return 0

    def get_path(self):
        """The path of the msgs file, for messages to the operator."""
        return self.msgs.path if self.msgs is not None else f"segment {self.number}"
