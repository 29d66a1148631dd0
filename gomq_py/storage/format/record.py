"""Record: encodes and checks the record of a message in a segment, its location, and the acks file's entries,
which say that records are gone.

Little-endian. In the msgs file every record begins at a multiple of 8 octets from the start of the file.

    offset size
         0    2  magic 0x4D52
         2    1  kind: 1 AMQP, 2 MQTT
         3    1  flags: bit 0 persistent; the others belong to the kind
         4    1  priority
         5    1  0
         6    2  routing length R
         8    4  properties length P
        12    4  body length B
        16    4  ordinal of the record in its segment
        20    8  timestamp, Unix milliseconds
        28    8  expires at, Unix milliseconds; 0: never
        36    4  CRC-32C of octets 0..35 and the routing
        40    R  exchange and routing key, two short strings as on the wire
         .    P  properties, as the publisher sent them
         .    B  body
         .    4  CRC-32C of properties and body
         .       zeros up to a multiple of 8

Both checksums continue from the segment's seed, the checksum of its head: so records of the file's earlier
use, and octets of a body that look like a record, fail the check. storage.segments.segment writes records;
segment, recovery, ``fsck`` and Spark read them. A leaf: octets in, offsets out; no I/O. A length is compared
with the end of the data before it is used.

A *location* says in one number where a record lies in a store: level of priority (8 bits) << 56 | number of
the segment (28 bits) << 28 | position (28 bits), in octets from the start of the msgs file. Locations of one
level grow from older to younger messages, so they sort by age. A location is valid for one run: after a
restart a different message may have it. A location kept on disk (mqtt.model.qos2_records) has beside it the
time when its message was stored.

The *acks file* says which records of its segment are gone, and how often remaining records were requeued.
Behind the head (format.head) it has entries of 8 octets.

    offset size
         0    4  word: a multiple of 8, plus the kind
         4    4  CRC-32C of the word, from the seed + the entry's index

    kind  word - kind
       1  position           ACKED: the record there is gone
       2  position           RUN_START, followed by
       3  position           RUN_END: all records from RUN_START's position up to, not including, this one are
                             gone
       4  position           REQUEUED: the record there came back, followed by
       5  count * 8          COUNT: how many deliveries of it have failed, counting the one in progress;
                             overwritten in place, perhaps followed by
       6  due * 8            DUE: when it may be delivered again (due_value), if COUNT is unchanged;
                             overwritten in place
       7  count * 8          EXCUSED, behind another REQUEUED: how many deliveries in COUNT were given back
                             without a failure; overwritten in place

An entry with a wrong checksum is ignored: its page never reached the disk, or is of the file's earlier use.
So ignored entries may lie between valid ones. A run costs two entries and is only written for three records
or more, so an acks file with one entry for each record its segment can hold always has room for the next ack;
REQUEUED, COUNT, DUE and EXCUSED never use that room.
"""
from array import array

from gomq_py import octets
from gomq_py.storage.format.head import HEAD_BYTES

MAGIC = 0x4D52
MAGIC_OCTETS = b"RM"
HEADER_BYTES = 40
ALIGNMENT = 8
PERSISTENT = 1

# Two empty names, no properties, no body: the acks file has room for records of this size.
SMALLEST_RECORD_BYTES = 48

# Two short strings of 255 octets.
LARGEST_ROUTING_BYTES = 512

# How much of a damaged region is copied at a time to look for the next record's magic.
SEARCH_BYTES = 65536

# Of a location.
NUMBER_BITS = POSITION_BITS = 28

# An entry of an acks file.
ENTRY_BYTES = 8
ACKED = 1
RUN_START = 2
RUN_END = 3
REQUEUED = 4
COUNT = 5
DUE = 6
EXCUSED = 7

# Where a record of the largest segment may end (a location has 28 bits for a position): octets beyond it were
# never written.
LARGEST_POSITION = 1 << 28

# A count is kept in 29 bits; nobody delivers a message that often.
LARGEST_COUNT = (1 << 29) - 1

# Reading stops after this much without a single entry: entries behind so long a gap were not flushed, and its
# records come back as redelivered.
GAP_BYTES = 65536


def size_of(routing_length, properties_length, body_length):
    """Octets of a record with these three parts: a header of 40, the parts, a checksum of 4, and zeros up to
    a multiple of 8.
    """
    return (44 + routing_length + properties_length + body_length + 7) & ~7


def level_bits(level):
    """The upper 8 bits, in place, that all locations in this level of priority have."""
    return level << 56


def location_of(bits, number, position):
    """The location of a record; ``bits``: level_bits() of its level."""
    return bits | number << 28 | position


def level_of(location):
    """The level of priority in a location."""
    return location >> 56


def number_of(location):
    """The number of the segment in a location."""
    return location >> 28 & 0xFFFFFFF


def position_of(location):
    """The position in a location: where in the segment the record begins."""
    return location & 0xFFFFFFF


def encode(
    p, at, seed, ordinal, kind, flags, priority, timestamp_ms, expires_at_ms,
    source, routing_at, routing_length, properties_at, properties_length, body_at, body_length, is_there,
):
    """Write a message's record at ``p[at]``, where the caller has made sure of room. Returns its size. The
    parts are copied from the buffer ``source``; ``is_there``: the body is in place and is not copied.
    """
    routing = at + 40
    properties = routing + routing_length
    body = properties + properties_length
    trailer = body + body_length
    size = size_of(routing_length, properties_length, body_length)
    if is_there:
        for padding in range(trailer + 4, at + size):
            p[padding] = 0
    else:
        octets.put_le64(p, at + size - 8, 0)  # the padding; the last octets of the record go over it
    octets.put_le16(p, at, MAGIC)
    p[at + 2] = kind
    p[at + 3] = flags
    p[at + 4] = priority
    p[at + 5] = 0
    octets.put_le16(p, at + 6, routing_length)
    octets.put_le32(p, at + 8, properties_length)
    octets.put_le32(p, at + 12, body_length)
    octets.put_le32(p, at + 16, ordinal)
    octets.put_le64(p, at + 20, timestamp_ms)
    octets.put_le64(p, at + 28, expires_at_ms)
    octets.copy(p, routing, source, routing_at, routing_length)
    octets.copy(p, properties, source, properties_at, properties_length)
    octets.put_le32(p, at + 36, octets.crc32c(octets.crc32c(seed, p, at, 36), p, routing, routing_length))
    if is_there:  # what it was written from is in a nearer cache, and mapped
        checksum = octets.crc32c(seed, p, properties, properties_length)
        checksum = octets.crc32c(checksum, source, body_at, body_length)
    else:
        octets.copy(p, body, source, body_at, body_length)
        checksum = octets.crc32c(seed, p, properties, properties_length + body_length)
    octets.put_le32(p, trailer, checksum)
    return size


def measure(p, at, end):
    """Size of the record at ``p[at]`` by its header, without a check of checksums; 0 if no header is there,
    or if the record would end behind ``end``.
    """
    if at + SMALLEST_RECORD_BYTES > end or octets.le16(p, at) != MAGIC:
        return 0
    routing_length = octets.le16(p, at + 6)
    if routing_length > LARGEST_ROUTING_BYTES:
        return 0
    size = size_of(routing_length, octets.le32(p, at + 8), octets.le32(p, at + 12))
    return size if size <= end - at else 0


def header_is_sound(p, at, seed):
    """Whether header and routing of the record at ``p[at]``, found by measure(), have the right checksum, and
    the routing is two short strings.
    """
    routing_length = octets.le16(p, at + 6)
    if octets.crc32c(octets.crc32c(seed, p, at, 36), p, at + 40, routing_length) != octets.le32(p, at + 36):
        return False
    if routing_length < 2:  # the octets read next must lie inside
        return False
    exchange_length = p[at + 40]
    if exchange_length + 2 > routing_length:
        return False
    return exchange_length + p[at + 41 + exchange_length] + 2 == routing_length


def content_is_sound(p, at, seed):
    """Whether properties and body of the record at ``p[at]``, found by measure(), match their checksum."""
    start = at + 40 + octets.le16(p, at + 6)
    length = octets.le32(p, at + 8) + octets.le32(p, at + 12)
    return octets.crc32c(seed, p, start, length) == octets.le32(p, start + length)


def find(p, at, end, seed, ordinal):
    """Position of the first sound header in [``at``, ``end``) with an ordinal of ``ordinal`` or higher, or
    -1. ``at`` is a multiple of 8.
    """
    while at + SMALLEST_RECORD_BYTES <= end:
        count = min(SEARCH_BYTES, end - at)
        chunk = bytes(p[at:at + count])
        hit = chunk.find(MAGIC_OCTETS)
        while hit >= 0:
            position = at + hit
            if (
                hit % ALIGNMENT == 0 and measure(p, position, end)
                and octets.le32(p, position + 16) >= ordinal
            ):
                if header_is_sound(p, position, seed):
                    return position
            hit = chunk.find(MAGIC_OCTETS, hit + 1)
        at += count
    return -1


class RecordScanner:
    """Walks the records of a segment that may be damaged. ``next`` moves to the next sound record, and sets
    the fields, such as ``position``, to those of that record.

        damaged     [(start, end, records lost)] of skipped regions, without the ordinary tail of a crash: it
                    has no sound record behind it
        at          end of the data, once ``next`` has returned False
    """

    __slots__ = (
        "buffer", "p", "at", "end", "seed", "next_ordinal", "damaged",
        "count", "body_bytes", "acked", "acked_bytes", "first_timestamp_ms",
        "position", "size", "ordinal", "kind", "flags", "priority", "routing_length", "properties_length",
        "body_length", "timestamp_ms", "expires_at_ms",
    )

    def __init__(self, buffer, start, end, seed, ordinal=0):
        """``buffer`` must have at least ``end`` octets, and must stay open while the scanner is used."""
        if end > len(buffer):
            raise ValueError(f"scan to {end} in a buffer of {len(buffer)} octets")
        self.buffer = buffer  # keeps it alive: compiled, p does not
        self.p = octets.pointer(buffer)
        self.at = start
        self.end = end
        self.seed = seed
        self.next_ordinal = ordinal
        self.damaged = []
        self.position = self.size = self.ordinal = 0
        self.routing_length = self.properties_length = self.body_length = 0
        self.kind = self.flags = self.priority = 0
        self.timestamp_ms = self.expires_at_ms = self.first_timestamp_ms = 0
        self.count = self.body_bytes = self.acked = self.acked_bytes = 0

    def next(self):
        """Move to the next sound record. Returns False at the end of the data."""
        while True:
            size = self._step()
            if size == 0:
                return False
            if content_is_sound(self.p, self.position, self.seed):
                self._fill()
                return True
            self.damaged.append((self.position, self.position + size, 1))

    def tally(self, runs, check_content=True):
        """Walk to the end of the data and set ``count`` and ``body_bytes`` of all records. ``acked`` and
        ``acked_bytes`` count those in ``runs`` (Acks.runs) or with damaged content. ``check_content=False``:
        only headers are checked.
        """
        at, count = 0, len(runs)
        while self._step():
            while at < count and runs[at + 1] <= self.position:
                at += 2
            acked = at < count and runs[at] <= self.position
            if check_content and not acked and not content_is_sound(self.p, self.position, self.seed):
                self.damaged.append((self.position, self.position + self.size, 1))
                acked = True
            self._fill()
            if self.count == 0:
                self.first_timestamp_ms = self.timestamp_ms
            self.count += 1
            self.body_bytes += self.body_length
            if acked:
                self.acked += 1
                self.acked_bytes += self.body_length
        return 0

    def _step(self):
        """Move to the next record with a sound header. Returns the record's size, or 0 at the end."""
        p, at = self.p, self.at
        size = measure(p, at, self.end)
        if size == 0 or octets.le32(p, at + 16) < self.next_ordinal or not header_is_sound(p, at, self.seed):
            found = find(p, at + ALIGNMENT, self.end, self.seed, self.next_ordinal)
            if found < 0:
                return 0
            self.damaged.append((at, found, octets.le32(p, found + 16) - self.next_ordinal))
            at = found
            size = measure(p, at, self.end)
        self.position = at
        self.size = size
        self.ordinal = octets.le32(p, at + 16)
        self.next_ordinal = self.ordinal + 1
        self.at = at + size
        return size

    def _fill(self):
        p, at = self.p, self.position
        self.kind = p[at + 2]
        self.flags = p[at + 3]
        self.priority = p[at + 4]
        self.routing_length = octets.le16(p, at + 6)
        self.properties_length = octets.le32(p, at + 8)
        self.body_length = octets.le32(p, at + 12)
        self.timestamp_ms = octets.le64(p, at + 20)
        self.expires_at_ms = octets.le64(p, at + 28)


def capacity_for(msgs_bytes):
    """Octets of the acks file for a msgs file of ``msgs_bytes``: an entry for each smallest record."""
    return HEAD_BYTES + (msgs_bytes - HEAD_BYTES) // SMALLEST_RECORD_BYTES * ENTRY_BYTES


def put_entry(p, index, seed, word):
    """Write the entry ``index`` of an acks file: ``word`` and its checksum."""
    at = 128 + index * 8
    octets.put_le32(p, at, word)
    octets.put_le32(p, at + 4, octets.crc32c((seed + index) & 0xFFFFFFFF, p, at, 4))


def get_entry(p, index, seed):
    """The word of entry ``index``; 0 if empty or damaged. The file must have room for the entry."""
    at = 128 + index * 8
    word = octets.le32(p, at)
    if word == 0 or octets.le32(p, at + 4) != octets.crc32c((seed + index) & 0xFFFFFFFF, p, at, 4):
        return 0
    return word


def put_mark(p, at, seed, position):
    """Write a mark of format.head at ``p[at]``: a position and its checksum. The caller has added the mark's
    salt to ``seed``.
    """
    octets.put_le32(p, at, position)
    octets.put_le32(p, at + 4, octets.crc32c(seed, p, at, 4))


def due_value(due_s, count):
    """The value of a DUE entry: the time's lowest 28 bits (Unix seconds), and the lowest bit of ``count``."""
    return (due_s & 0xFFFFFFF) << 1 | (count & 1)


def due_of(value, count, now_s):
    """The time in a DUE entry's ``value``, in Unix seconds; 0 if the entry is for another count. Only 28 bits
    of the time are stored, so the time must be within four years of ``now_s``.
    """
    if value & 1 != count & 1:
        return 0
    return now_s + (((value >> 1) - now_s + 0x8000000) & 0xFFFFFFF) - 0x8000000


def is_among(position, runs):
    """Whether a position lies in one of the ranges ``runs``, a flat list [start, end, start, end...]."""
    return any(start <= position < end for start, end in zip(runs[::2], runs[1::2]))


class Acks:
    """The decoded content of an acks file.

        runs        positions of acked records as ranges, in a flat array [start, end, start, end...]: sorted,
                    without overlap, each end exclusive
        counts      {position: (failed deliveries, index of the COUNT entry)}
        dues        {position: due_value()}
        entries     index behind the last valid entry
        holes       count of ignored entries before this index, which may be written again
    """

    __slots__ = ("runs", "counts", "excused", "dues", "entries", "holes")

    def __init__(self):
        self.runs = array("Q")
        self.counts = {}
        self.excused = {}
        self.dues = {}
        self.entries = self.holes = 0


def load_acks(buffer, seed, entries=-1):
    """Decode an acks file into Acks: ``entries`` of them, as its seal says; -1: all."""
    acks = Acks()
    limit = (len(buffer) - HEAD_BYTES) // ENTRY_BYTES
    if limit <= 0:
        return acks
    if 0 <= entries < limit:
        limit = entries
    found = []
    _collect(octets.pointer(buffer), seed, limit, acks, found)
    found.sort()
    _merge(found, acks.runs)
    return acks


def _collect(p, seed, limit, acks, found):
    index = valid = start = requeued = 0
    gap = GAP_BYTES // ENTRY_BYTES
    before = 0  # the kind of the entry just before, for paired entries
    while index < limit and index - acks.entries <= gap:
        word = get_entry(p, index, seed)
        kind = word & 7
        if word:
            valid += 1
            acks.entries = index + 1
            position = word - kind
            if position > LARGEST_POSITION and kind < COUNT:
                kind = 0
            elif kind == ACKED:
                found.append(position << 32 | (position + ENTRY_BYTES))
            elif kind == RUN_START:
                start = position
            elif kind == RUN_END and before == RUN_START and position > start:
                found.append(start << 32 | position)
            elif kind == REQUEUED:
                requeued = position
            elif kind == COUNT and before == REQUEUED:
                acks.counts[requeued] = (word >> 3, index)
            elif kind == DUE and before == COUNT and requeued:
                acks.dues[requeued] = word >> 3
            elif kind == EXCUSED and before == REQUEUED:
                acks.excused[requeued] = (word >> 3, index)
        before = kind
        index += 1
    acks.holes = acks.entries - valid
    return 0


def _merge(found, runs):
    """Append the sorted ``found``, ranges packed as start << 32 | end, to ``runs``; overlapping ranges become
    one.
    """
    # Adjacent ranges stay apart, because the range of a single ACKED entry does not end at its record's end:
    # readers know such a range by its length.
    last_end = -1
    for item in found:
        start, end = item >> 32, item & 0xFFFFFFFF
        if last_end > start:
            if end > last_end:
                runs[len(runs) - 1] = last_end = end
        else:
            runs.append(start)
            runs.append(end)
            last_end = end
    return 0
