"""Record: encodes and checks message records of a segment, their locations, and the entries of acks files.

Numbers are little-endian. In the msgs file every record begins at a multiple of 4 bytes from the start of the
file. The first byte shows the form of the record: *small* (0x80 and more) or *long*. encode() uses the small
form for every persistent message that fits.

    offset size    small
         0    1  0x80, the kind << 5, 0x10 if an expiry follows, and the priority (0 to 15)
         1    1  flags
         2    1  properties length P
         3    1  body length B
         4  2.5  ordinal (20 bits)
       6.5  3.5  milliseconds (28 bits) from the segment's ``begun_ms`` (format.head) to the timestamp
        10    4  milliseconds from the timestamp to the expiry; only if byte 0 says so
        10    R  routing, P properties and B bytes of body, as below
         .    4  CRC-32C of all before, from the seed + 5
         .       zeros up to a multiple of 4, and to 44 bytes

    offset size    long
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
        36    4  CRC-32C of bytes 0..35 and the routing
        40    R  exchange and routing key, two short strings as on the wire
         .    P  properties, as the publisher sent them
         .    B  body
         .    4  CRC-32C of properties and body
         .       zeros up to a multiple of 8

All checksums start from the segment's seed, the checksum of its head. So records of the file's earlier use,
and bytes of a body that look like a record, fail the check. The checksum of small records has a salt in
addition: properties and body of a long record, with their checksum, must not look like a small record.
storage.segments.segment writes records; segment, recovery, ``fsck`` and Spark read them. Does no I/O. A
length is compared with the end of the data before it is used. Segments of schema version 1 have only long
records, at multiples of 8.

A *location* is a number that identifies a record in a store: level of priority (8 bits) << 56 | number of the
segment (28 bits) << 28 | position (28 bits), in bytes from the start of the msgs file. Locations of one level
sort by age, the oldest message first. A location is valid for one run: after a restart a different message
may have it. A location kept on disk (mqtt.model.qos2_records) is stored with the time of its message.

The *acks file* records which records of its segment are acked (gone), and how often other records were
requeued. After the head (format.head) it has entries of 8 bytes.

    offset size
         0    4  word: a multiple of 8, plus the kind. Bit 31: the position is 4 more than that multiple
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
       7  count * 8          EXCUSED, after another REQUEUED: how many deliveries in COUNT were given back
                             without a failure; overwritten in place

An entry with a wrong checksum is ignored, because its page never reached the disk, or is of the file's
earlier use. So ignored entries may lie between valid ones. The acks file has one entry for each record that
its segment can hold. A run costs two entries and is only written for three records or more. So there is
always an entry for the next ack; REQUEUED, COUNT, DUE and EXCUSED leave these entries free.
"""
from array import array

from gomq_py import octets
from gomq_py.storage.format.head import HEAD_BYTES, SCHEMA_VERSION

MAGIC = 0x4D52
HEADER_BYTES = 40
ALIGNMENT = 4
PERSISTENT = 1

# Of small records: bits of their first octet, and the largest values that they have room for.
SMALL = 0x80
EXPIRES = 0x10
SMALL_KIND = 3
SMALL_PRIORITY = 15
SMALL_LENGTH = 255
SMALL_ORDINAL = (1 << 20) - 1
SMALL_AGE_MS = (1 << 28) - 1  # three days
SMALL_EXPIRY_MS = (1 << 32) - 1
# Of the parts together: a record is checked whole before its lengths are believed, and reading ahead takes
# LOOK_BYTES.
SMALL_PARTS_BYTES = 480
SMALL_SALT = 5

# The acks file has room for records of this size; a smaller one is filled up.
LEAST_BYTES = 44
SMALLEST_RECORD_BYTES = LEAST_BYTES  # typed: Python sees only the other
# The same in segments of schema version 1.
SMALLEST_LONG_BYTES = 48

# Two short strings of 255 octets.
LARGEST_ROUTING_BYTES = 512

# How much of a damaged region is looked through at a time for the next record.
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
    """Return the size of a long record: a header of 40 bytes, these three parts, a checksum of 4 bytes, and
    zeros up to a multiple of 8. A small record takes fewer bytes.
    """
    return (44 + routing_length + properties_length + body_length + 7) & ~7


def small_size(content):
    """Return the size of a small record. ``content``: number of bytes before its checksum."""
    size = (content + 7) & ~3
    return size if size > SMALLEST_RECORD_BYTES else SMALLEST_RECORD_BYTES


def level_bits(level):
    """Return the upper 8 bits of all locations of this level of priority, shifted to their place."""
    return level << 56


def location_of(bits, number, position):
    """Return the location of a record. ``bits``: level_bits() of its level."""
    return bits | number << 28 | position


def level_of(location):
    return location >> 56


def number_of(location):
    return location >> 28 & 0xFFFFFFF


def position_of(location):
    """Return the position in a location: bytes from the start of the segment's msgs file to the record."""
    return location & 0xFFFFFFF


def encode(
    p, at, seed, begun_ms, ordinal, kind, flags, priority, timestamp_ms, expires_at_ms,
    source, routing_at, routing_length, properties_at, properties_length, body_at, body_length, is_there,
):
    """Write a message's record at ``p[at]``, which must have enough space. Returns the record's size. The
    parts are copied from the buffer ``source``; with ``is_there`` not the body, which ``p`` has already.
    """
    if (
        body_length <= SMALL_LENGTH and properties_length <= SMALL_LENGTH
        and routing_length + properties_length + body_length <= SMALL_PARTS_BYTES
        and timestamp_ms >= begun_ms and timestamp_ms - begun_ms <= SMALL_AGE_MS
        and ordinal <= SMALL_ORDINAL and 1 <= kind <= SMALL_KIND and priority <= SMALL_PRIORITY
        and flags & PERSISTENT and not is_there
        and (expires_at_ms == 0
             or expires_at_ms >= timestamp_ms and expires_at_ms - timestamp_ms <= SMALL_EXPIRY_MS)
    ):
        return _encode_small(
            p, at, seed, timestamp_ms - begun_ms, ordinal, kind, flags, priority,
            expires_at_ms - timestamp_ms if expires_at_ms else 0, expires_at_ms > 0, source, routing_at,
            routing_length, properties_at, properties_length, body_at, body_length)
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


def _encode_small(
    p, at, seed, age_ms, ordinal, kind, flags, priority, expiry_ms, expires,
    source, routing_at, routing_length, properties_at, properties_length, body_at, body_length,
):
    octets.put_le16(p, at, flags << 8 | SMALL | kind << 5 | (EXPIRES if expires else 0) | priority)
    octets.put_le64(p, at + 2, age_ms << 36 | ordinal << 16 | body_length << 8 | properties_length)
    trailer = at + 10
    if expires:
        octets.put_le32(p, trailer, expiry_ms)
        trailer += 4
    octets.copy(p, trailer, source, routing_at, routing_length)
    trailer += routing_length
    octets.copy(p, trailer, source, properties_at, properties_length)
    trailer += properties_length
    octets.copy(p, trailer, source, body_at, body_length)
    trailer += body_length
    size = small_size(trailer - at)
    octets.put_le32(p, trailer, octets.crc32c((seed + SMALL_SALT) & 0xFFFFFFFF, p, at, trailer - at))
    for padding in range(trailer + 4, at + size):
        p[padding] = 0
    return size


def measure(p, at, end):
    """Return the size of the record at ``p[at]`` according to its header, without a check of checksums; 0 if
    no header is there, or if the record would reach beyond ``end``.
    """
    if at + SMALLEST_RECORD_BYTES > end:
        return 0
    if p[at] >= SMALL:
        size = content_end(p, at, end)
        size = small_size(size - at) if size else 0
    elif octets.le16(p, at) != MAGIC:
        return 0
    else:
        size = octets.le16(p, at + 6)
        if size > LARGEST_ROUTING_BYTES:
            return 0
        size = size_of(size, octets.le32(p, at + 8), octets.le32(p, at + 12))
    return size if size <= end - at else 0


def content_end(p, at, end):
    """Return the position of the checksum of the small record at ``p[at]``, according to its lengths; 0 if no
    small record is there, or if it reaches beyond ``end``. ``end`` is at least ``at`` + 44.
    """
    routing = at + small_head(p, at)
    key_at = routing + 1 + p[routing]
    if p[at] & 0x60 == 0 or key_at >= end:
        return 0
    content = key_at + 1 + p[key_at] + p[at + 2] + p[at + 3]
    return content if content - routing <= SMALL_PARTS_BYTES and content + 4 <= end else 0


def small_head(p, at):
    """Return the number of bytes before the routing of the small record at ``p[at]``."""
    return 14 if p[at] & EXPIRES else 10


def header_is_sound(p, at, seed):
    """Return whether header and routing of the record at ``p[at]``, found by measure(), are valid: the
    checksum and the two short strings. A small record is checked with its properties and body.
    """
    if p[at] >= SMALL:
        routing = at + small_head(p, at)
        length = routing - at + routing_length_at(p, at) + p[at + 2] + p[at + 3]
        return octets.crc32c((seed + SMALL_SALT) & 0xFFFFFFFF, p, at, length) == octets.le32(p, at + length)
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
    """Return whether properties and body of the record at ``p[at]``, found by measure(), match their
    checksum. True for a small record, which header_is_sound() checks.
    """
    if p[at] >= SMALL:
        return True
    start = at + 40 + octets.le16(p, at + 6)
    length = octets.le32(p, at + 8) + octets.le32(p, at + 12)
    return octets.crc32c(seed, p, start, length) == octets.le32(p, start + length)


# The fields of the record at ``p[at]``, found by measure(), in both forms.


def kind_at(p, at):
    return p[at] >> 5 & 3 if p[at] >= SMALL else p[at + 2]


def flags_at(p, at):
    return p[at + 1] if p[at] >= SMALL else p[at + 3]


def priority_at(p, at):
    return p[at] & SMALL_PRIORITY if p[at] >= SMALL else p[at + 4]


def ordinal_at(p, at):
    return octets.le32(p, at + 4) & SMALL_ORDINAL if p[at] >= SMALL else octets.le32(p, at + 16)


def timestamp_at(p, at, begun_ms):
    """Return the Unix milliseconds at which the message arrived. ``begun_ms``: from the segment's head."""
    return begun_ms + (octets.le64(p, at + 2) >> 36) if p[at] >= SMALL else octets.le64(p, at + 20)


def expiry_at(p, at, begun_ms):
    """Return the Unix milliseconds at which the message expires; 0: never."""
    if p[at] < SMALL:
        return octets.le64(p, at + 28)
    return timestamp_at(p, at, begun_ms) + octets.le32(p, at + 10) if p[at] & EXPIRES else 0


def routing_at(p, at):
    """Return the position of the record's routing, which begins with the length byte of the exchange name."""
    return at + (small_head(p, at) if p[at] >= SMALL else HEADER_BYTES)


def routing_length_at(p, at):
    """Return the length of exchange name and routing key, including their length bytes."""
    if p[at] < SMALL:
        return octets.le16(p, at + 6)
    at += small_head(p, at)
    return 2 + p[at] + p[at + 1 + p[at]]


def properties_length_at(p, at):
    return p[at + 2] if p[at] >= SMALL else octets.le32(p, at + 8)


def body_length_at(p, at):
    return p[at + 3] if p[at] >= SMALL else octets.le32(p, at + 12)


def find(p, at, end, seed, ordinal):
    """Return the position of the first valid header in [``at``, ``end``) with at least this ordinal, or -1.
    ``at`` is a multiple of 4.
    """
    while at + SMALLEST_RECORD_BYTES <= end:
        count = min(SEARCH_BYTES, end - at)
        if bytes(p[at:at + count]).strip(b"\0"):  # else the unwritten rest of a file
            for position in range(at, at + count, ALIGNMENT):
                if (
                    measure(p, position, end) and ordinal_at(p, position) >= ordinal
                    and header_is_sound(p, position, seed)
                ):
                    return position
        at += count
    return -1


class RecordScanner:
    """Reads the records of a segment that may be damaged.

    ``next`` moves to the next valid record, and sets the fields, such as ``position``, from that record.

        damaged     [(start, end, records lost)] of skipped regions that have a valid record after them
        at          end of the data, after ``next`` has returned False
    """

    __slots__ = (
        "buffer", "p", "at", "end", "seed", "begun_ms", "next_ordinal", "damaged",
        "count", "body_bytes", "acked", "acked_bytes", "first_timestamp_ms",
        "position", "size", "ordinal", "kind", "flags", "priority", "routing_at", "routing_length",
        "properties_length", "body_length", "timestamp_ms", "expires_at_ms",
    )

    def __init__(self, buffer, start, end, seed, begun_ms, ordinal=0):
        """Read ``buffer`` from ``start`` to ``end``. The buffer must stay open while the scanner is used.
        ``seed`` and ``begun_ms``: from the segment's head. ``ordinal``: lowest ordinal of a valid record.
        """
        if end > len(buffer):
            raise ValueError(f"scan to {end} in a buffer of {len(buffer)} octets")
        self.buffer = buffer  # keeps it alive: compiled, p does not
        self.p = octets.pointer(buffer)
        self.at = start
        self.end = end
        self.seed = seed
        self.begun_ms = begun_ms
        self.next_ordinal = ordinal
        self.damaged = []
        self.position = self.size = self.ordinal = 0
        self.routing_at = self.routing_length = self.properties_length = self.body_length = 0
        self.kind = self.flags = self.priority = 0
        self.timestamp_ms = self.expires_at_ms = self.first_timestamp_ms = 0
        self.count = self.body_bytes = self.acked = self.acked_bytes = 0

    def next(self):
        """Move to the next valid record. Returns False at the end of the data."""
        while True:
            size = self._step()
            if size == 0:
                return False
            if content_is_sound(self.p, self.position, self.seed):
                self._fill()
                return True
            self.damaged.append((self.position, self.position + size, 1))

    def tally(self, runs, check_content=True):
        """Read to the end of the data. ``count`` and ``body_bytes`` are then of all records.

        ``acked`` and ``acked_bytes`` count the records that are in ``runs`` (Acks.runs) or have damaged
        content. ``check_content=False`` checks headers only.
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
        """Move to the next record with a valid header. Returns the record's size, or 0 at the end."""
        p, at = self.p, self.at
        size = measure(p, at, self.end)
        if size == 0 or ordinal_at(p, at) < self.next_ordinal or not header_is_sound(p, at, self.seed):
            found = find(p, at + ALIGNMENT, self.end, self.seed, self.next_ordinal)
            if found < 0:
                return 0
            self.damaged.append((at, found, ordinal_at(p, found) - self.next_ordinal))
            at = found
            size = measure(p, at, self.end)
        self.position = at
        self.size = size
        self.ordinal = ordinal_at(p, at)
        self.next_ordinal = self.ordinal + 1
        self.at = at + size
        return size

    def _fill(self):
        p, at = self.p, self.position
        self.kind = kind_at(p, at)
        self.flags = flags_at(p, at)
        self.priority = priority_at(p, at)
        self.routing_at = routing_at(p, at)
        self.routing_length = routing_length_at(p, at)
        self.properties_length = properties_length_at(p, at)
        self.body_length = body_length_at(p, at)
        self.timestamp_ms = timestamp_at(p, at, self.begun_ms)
        self.expires_at_ms = expiry_at(p, at, self.begun_ms)


def capacity_for(msgs_bytes, version=SCHEMA_VERSION):
    """Return the size of the acks file for a msgs file of ``msgs_bytes`` full of the smallest records.
    ``version``: schema version.
    """
    smallest = SMALLEST_LONG_BYTES if version == 1 else SMALLEST_RECORD_BYTES
    return HEAD_BYTES + (msgs_bytes - HEAD_BYTES) // smallest * ENTRY_BYTES


def word_of(position, kind):
    """Return the word of an acks file entry: a position, which is a multiple of 4, and the kind of entry."""
    return position & 0x7FFFFFF8 | (position & 4) << 29 | kind


def put_entry(p, index, seed, word):
    """Write a word and its checksum into acks file entry ``index``."""
    at = 128 + index * 8
    octets.put_le32(p, at, word)
    octets.put_le32(p, at + 4, octets.crc32c((seed + index) & 0xFFFFFFFF, p, at, 4))


def get_entry(p, index, seed):
    """Return the word in acks file entry ``index``, which must lie inside the file; 0 if empty or damaged."""
    at = 128 + index * 8
    word = octets.le32(p, at)
    if word == 0 or octets.le32(p, at + 4) != octets.crc32c((seed + index) & 0xFFFFFFFF, p, at, 4):
        return 0
    return word


def put_mark(p, at, seed, position):
    """Write a position and its checksum at ``p[at]``. ``seed``: the file's, plus a salt of format.head."""
    octets.put_le32(p, at, position)
    octets.put_le32(p, at + 4, octets.crc32c(seed, p, at, 4))


def due_value(due_s, count):
    """Return a DUE entry's value: lowest 28 bits of the time (Unix seconds), and lowest bit of ``count``."""
    return (due_s & 0xFFFFFFF) << 1 | (count & 1)


def due_of(value, count, now_s):
    """Return the time in a DUE entry's ``value``, in Unix seconds; 0 if the entry belongs to another
    ``count``. The entry has only 28 bits of the time, which must be within four years of ``now_s``.
    """
    if value & 1 != count & 1:
        return 0
    return now_s + (((value >> 1) - now_s + 0x8000000) & 0xFFFFFFF) - 0x8000000


def is_among(position, runs):
    """Return whether a position is in one of the ranges ``runs``, a flat list [start, end, start, end...]."""
    return any(start <= position < end for start, end in zip(runs[::2], runs[1::2]))


class Acks:
    """The decoded content of an acks file.

        runs        ranges of acked positions in a flat array [start, end, start, end...]: sorted, without
                    overlap, each end exclusive
        counts      {position: (failed deliveries, index of the COUNT entry)}
        excused     {position: (deliveries without a failure, index of the EXCUSED entry)}
        dues        {position: due_value()}
        entries     index after the last valid entry
        holes       number of invalid entries before ``entries``; these may be written again
    """

    __slots__ = ("runs", "counts", "excused", "dues", "entries", "holes")

    def __init__(self):
        self.runs = array("Q")
        self.counts = {}
        self.excused = {}
        self.dues = {}
        self.entries = self.holes = 0


def load_acks(buffer, seed, entries=-1):
    """Decode an acks file into Acks. ``entries``: number to read, from the file's seal; -1: all."""
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
            position = word & 0x7FFFFFF8 | word >> 29 & 4
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
    """Append the sorted ranges ``found``, packed as start << 32 | end, to ``runs``; join overlaps."""
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
