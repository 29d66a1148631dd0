"""Columns: decodes many records of a segment at once into one column per field, in buffers for Arrow.

For programs that read a stream in bulk (Spark); format.record defines the bytes. A Block holds up to
``capacity`` rows, one per record. It has the offset and the time of each row. For each field of variable
length it has the position and length in the segment (``starts`` and ``lengths``, 32 bits each), and likewise
for each basic property, with position -1 if the row lacks the property. gather() copies one field of all rows
into one buffer. A walk checks the checksums of every record that becomes a row. Does no I/O.
"""
from gomq_py import octets
from gomq_py.storage.format import record

# Reasons for the end of a walk.
END = 0  # the octets ended: the next record needs more
FULL = 1  # the block has no more rows or octets
DONE = 2  # the walk has reached ``until``
DAMAGED = 3  # there is no sound header at ``at``: seek() goes on behind it
SPOILED = 4  # the content of the record at ``at`` does not check: skip() goes on behind it
MISSING = 5  # the record at ``at`` is sound, but others before it are not there: accept() goes on with it

# Fields with a length, in the order in which a record has them.
EXCHANGE, ROUTING_KEY, PROPERTIES, BODY = range(4)
FIELDS = 4

# The basic properties behind the flags (content.properties): bit 15 is the first. Headers are the third.
PROPERTY_COUNT = 14
HEADERS_PROPERTY = 2
DELIVERY_MODE_PROPERTY = 3
PRIORITY_PROPERTY = 4
TIMESTAMP_PROPERTY = 9

LARGEST_START = 0x7FFFFFFF
# A small record has at most this many octets; with more room behind it, its lengths are damaged.
LARGEST_SMALL = 500
# The kind of records whose properties are basic ones.
AMQP = 1


class Block:
    """The rows (records) of one walk. The next walk replaces them.

        count             number of rows; ``body_bytes``: bytes of their bodies
        at                position in the segment after the last row
        offsets           little-endian 64-bit integers; also ``timestamps``, in Unix microseconds
        property_flags    the flags of all rows, joined by OR
        others            number of rows whose properties are not basic properties
    """

    __slots__ = (
        "capacity", "limit_bytes", "offsets", "timestamps", "starts", "lengths", "property_starts",
        "property_lengths", "kinds", "count", "body_bytes", "at", "next_ordinal", "skipped", "property_flags",
        "others",
    )

    def __init__(self, capacity, limit_bytes):
        self.capacity = capacity
        self.limit_bytes = limit_bytes
        self.offsets = bytearray(8 * capacity)
        self.timestamps = bytearray(8 * capacity)
        self.starts = bytearray(4 * capacity * FIELDS)
        self.lengths = bytearray(4 * capacity * FIELDS)
        self.kinds = bytearray(2 * capacity)  # kind and flags of each row
        self.property_starts = bytearray(4 * capacity * PROPERTY_COUNT)
        self.property_lengths = bytearray(4 * capacity * PROPERTY_COUNT)
        self.count = self.body_bytes = self.at = self.next_ordinal = self.skipped = self.property_flags = 0
        self.others = 0

    def walk(self, buffer, at, end, head, first, until):
        """Read the records in [``at``, ``end``) of ``buffer`` with ordinals from ``first`` to ``until`` - 1
        as rows.

        ``head``: the segment's format.head.Head. The caller sets ``next_ordinal`` to 0 before the walk at the
        segment's first record; later walks continue the count. Of records before ``first`` only the headers
        are checked. Returns why the walk ended:

            END        the data ends at ``at``, or within the record at ``at``, whose lengths may be damaged
            FULL       the Block has ``capacity`` rows or ``limit_bytes`` of bodies
            DONE       the record at ``at`` has the ordinal ``until`` or a higher one
            DAMAGED    no valid header is at ``at``; call seek()
            SPOILED    properties and body of the record at ``at`` do not match their checksum; call skip()
            MISSING    the record at ``at`` is valid, but records before it are missing; call accept()
        """
        self.count = self.body_bytes = self.skipped = self.others = 0
        if end > len(buffer) or end > LARGEST_START:
            raise ValueError(f"walk to {end} in a buffer of {len(buffer)} octets")
        return self._walk(
            octets.pointer(buffer), at, end, head.seed, head.begun_ms, head.first_offset, first, until,
            octets.pointer(self.offsets), octets.pointer(self.timestamps), octets.pointer(self.starts),
            octets.pointer(self.lengths), octets.pointer(self.kinds))

    def _walk(
        self, p, at, end, seed, begun_ms, first_offset, first, until, offsets, timestamps, starts, lengths,
        kinds,
    ):
        while True:
            self.at = at
            if self.count >= self.capacity or self.body_bytes >= self.limit_bytes:
                return FULL
            if end - at < record.SMALLEST_RECORD_BYTES:
                return END
            if p[at] >= record.SMALL:
                if record.measure(p, at, end) == 0:
                    return END if end - at < LARGEST_SMALL else DAMAGED
            elif octets.le16(p, at) != record.MAGIC or octets.le16(p, at + 6) > record.LARGEST_ROUTING_BYTES:
                return DAMAGED
            elif end - at < record.HEADER_BYTES + octets.le16(p, at + 6):
                return END
            ordinal = record.ordinal_at(p, at)
            if ordinal < self.next_ordinal or not record.header_is_sound(p, at, seed):
                return DAMAGED
            if ordinal >= until:
                return DONE
            routing_length = record.routing_length_at(p, at)
            properties_length = record.properties_length_at(p, at)
            body_length = record.body_length_at(p, at)
            content = record.routing_at(p, at) + routing_length
            size = record.size_of(routing_length, properties_length, body_length)
            if p[at] >= record.SMALL:
                size = record.small_size(content + properties_length + body_length - at)
            if size > end - at:
                self.skipped = size
                return END
            if ordinal >= first:
                if ordinal != self.next_ordinal and ordinal != first:
                    return MISSING
                if not record.content_is_sound(p, at, seed):
                    self.skipped = size
                    return SPOILED
                octets.put_le64(offsets, 8 * self.count, first_offset + ordinal)
                octets.put_le64(timestamps, 8 * self.count, record.timestamp_at(p, at, begun_ms) * 1000)
                self._place(
                    p, content - routing_length, content, properties_length, body_length, starts, lengths)
                kinds[2 * self.count] = record.kind_at(p, at)
                kinds[2 * self.count + 1] = record.flags_at(p, at)
                self.others += record.kind_at(p, at) != AMQP
                self.body_bytes += body_length
                self.count += 1
            self.next_ordinal = ordinal + 1
            at += size

    def _place(self, p, routing, content, properties_length, body_length, starts, lengths):
        exchange_length = p[routing]
        place = 4 * self.count
        octets.put_le32(starts, place, routing + 1)
        octets.put_le32(lengths, place, exchange_length)
        place += 4 * self.capacity
        octets.put_le32(starts, place, routing + 2 + exchange_length)
        octets.put_le32(lengths, place, p[routing + 1 + exchange_length])
        place += 4 * self.capacity
        octets.put_le32(starts, place, content)
        octets.put_le32(lengths, place, properties_length)
        place += 4 * self.capacity
        octets.put_le32(starts, place, content + properties_length)
        octets.put_le32(lengths, place, body_length)
        return 0

    def accept(self, buffer):
        """Let the next walk begin with the record at ``at``, although records before it are missing. Call
        after MISSING. Returns the record's ordinal.
        """
        self.next_ordinal = record.ordinal_at(octets.pointer(buffer), self.at)
        return self.next_ordinal

    def skip(self):
        """Let the next walk begin after the damaged record at ``at``. Call after SPOILED."""
        self.at += self.skipped
        self.next_ordinal += 1

    def seek(self, buffer, at, end, seed):
        """Return the position of the first valid header after ``at`` and before ``end``, or -1. Call after
        DAMAGED. ``at``: multiple of 4, counted from the segment's start; ``seed``: of the segment's head.
        """
        if end > len(buffer):
            raise ValueError(f"seek to {end} in a buffer of {len(buffer)} octets")
        return self._seek(octets.pointer(buffer), at + record.ALIGNMENT, end, seed)

    def _seek(self, p, at, end, seed):
        return record.find(p, at, end, seed, self.next_ordinal)

    def other_kind(self, row, buffer):
        """Return (kind, flags, routing, properties) of a row without AMQP basic properties, else None.
        ``routing`` and ``properties`` are bytes as stored.
        """
        if self.kinds[2 * row] == AMQP:
            return None
        exchange_at = octets.le32(octets.pointer(self.starts), 4 * row)
        place = 4 * (PROPERTIES * self.capacity + row)
        at = octets.le32(octets.pointer(self.starts), place)
        end = at + octets.le32(octets.pointer(self.lengths), place)
        return (
            self.kinds[2 * row], self.kinds[2 * row + 1], bytes(buffer[exchange_at - 1:at]),
            bytes(buffer[at:end]))

    def set_properties(self, row, at, length):
        """Set the place of a row's basic properties, which the caller has translated from MQTT properties."""
        place = 4 * (PROPERTIES * self.capacity + row)
        octets.put_le32(octets.pointer(self.starts), place, at)
        octets.put_le32(octets.pointer(self.lengths), place, length)

    def scan_properties(self, buffer):
        """Find each basic property of all rows, for gather_property(). Returns the OR of their flag words."""
        self.property_flags = self._scan_properties(
            octets.pointer(buffer), octets.pointer(self.starts), octets.pointer(self.lengths),
            octets.pointer(self.property_starts), octets.pointer(self.property_lengths))
        return self.property_flags

    def _scan_properties(self, p, starts, lengths, property_starts, property_lengths):
        found = 0
        for row in range(self.count):
            if octets.le32(lengths, 4 * (PROPERTIES * self.capacity + row)) >= 2:
                found |= octets.be16(p, octets.le32(starts, 4 * (PROPERTIES * self.capacity + row)))
        found &= 0xFFFC
        if found == 0:
            return 0
        for row in range(self.count):
            at = octets.le32(starts, 4 * (PROPERTIES * self.capacity + row))
            end = at + octets.le32(lengths, 4 * (PROPERTIES * self.capacity + row))
            flags = octets.be16(p, at) if end - at >= 2 else 0
            at += 2
            for place in range(PROPERTY_COUNT):
                if not found & (0x8000 >> place):
                    continue
                at_place = 4 * (place * self.capacity + row)
                length = -1
                if flags & (0x8000 >> place):
                    if place == HEADERS_PROPERTY:
                        length = octets.be32(p, at) if end - at >= 4 else LARGEST_START
                        at += 4
                    elif place == DELIVERY_MODE_PROPERTY or place == PRIORITY_PROPERTY:
                        length = 1
                    elif place == TIMESTAMP_PROPERTY:
                        length = 8
                    else:
                        length = p[at] if at < end else LARGEST_START
                        at += 1
                    if length > end - at:  # the broker accepts no such row; its rest is unreadable
                        flags = 0
                        length = -1
                octets.put_le32(property_starts, at_place, at if length >= 0 else 0xFFFFFFFF)
                octets.put_le32(property_lengths, at_place, length if length > 0 else 0)
                if length > 0:
                    at += length
        return found

    def gather(self, field, buffer):
        """Copy one field of all rows. Returns (ends, content). ``field``: EXCHANGE, ROUTING_KEY, PROPERTIES
        or BODY. ``ends``: count + 1 little-endian 32-bit numbers. Row n has the bytes
        ``content[ends[n]:ends[n + 1]]``.
        """
        ends, size = self._measured(self.lengths, field)
        content = bytearray(size)
        self._gather(
            field, octets.pointer(buffer), octets.pointer(self.starts), octets.pointer(ends),
            octets.pointer(content),
        )
        return ends, content

    def gather_property(self, place, buffer):
        """Copy one basic property of all rows, after scan_properties(). ``place``: the property's number, 0
        for content_type. Returns (bitmap of the rows with the property, ends, content), the last two as in
        gather().
        """
        present = bytearray((self.count + 7) // 8)
        ends, size = self._measured(self.property_lengths, place)
        content = bytearray(size)
        self._mark(place, octets.pointer(self.property_starts), octets.pointer(present))
        self._gather(
            place, octets.pointer(buffer), octets.pointer(self.property_starts), octets.pointer(ends),
            octets.pointer(content),
        )
        return present, ends, content

    def _measured(self, lengths, field):
        ends = bytearray(4 * (self.count + 1))
        size = self._measure(field, octets.pointer(lengths), octets.pointer(ends))
        if size > LARGEST_START:
            raise ValueError(f"a column of {size} octets")
        return ends, size

    def _measure(self, field, lengths, ends):
        size = 0
        for row in range(self.count):
            size += octets.le32(lengths, 4 * (field * self.capacity + row))
            octets.put_le32(ends, 4 * (row + 1), size & 0xFFFFFFFF)
        return size

    def _gather(self, field, p, starts, ends, content):
        begin = 0
        for row in range(self.count):
            end = octets.le32(ends, 4 * (row + 1))
            if end > begin:
                octets.copy(
                    content, begin, p, octets.le32(starts, 4 * (field * self.capacity + row)), end - begin
                )
            begin = end
        return 0

    def _mark(self, place, starts, present):
        for row in range(self.count):
            if octets.le32(starts, 4 * (place * self.capacity + row)) != 0xFFFFFFFF:
                present[row >> 3] |= 1 << (row & 7)
        return 0
