"""Frames: finds the packets in a read buffer, and writes packets into an output buffer, without an object per
packet.

For the fast path (mqtt.server.fast_lane). PacketWalk finds the complete packets in a buffer. In a well-formed
PUBLISH, PUBACK, PUBREC, PUBREL or PUBCOMP it also finds the fields, and marks the packet ``plain``. Every
other packet is left to the codec (PacketWalk.decode), which reports its faults. No I/O. A buffer is not kept
beyond the read that filled it.

In functions with offsets, ``p`` points to the bytes that are read, ``out`` to the buffer that is written.
"""
from gomq_py import octets
from gomq_py.mqtt.wire import codec, topics
from gomq_py.mqtt.wire.constants import (
    CLIENT, CONTENT_TYPE, CORRELATION_DATA, DEFAULT_LIMITS, HEADER_MAX, MESSAGE_EXPIRY_INTERVAL, MQTT_5,
    PAYLOAD_FORMAT_INDICATOR, PUBACK, PUBCOMP, PUBLISH, PUBREL, RESPONSE_TOPIC,
    SUBSCRIPTION_IDENTIFIER, TOPIC_ALIAS, USER_PROPERTY,
)
from gomq_py.mqtt.wire.errors import MQTTError

# Octets of the longest acknowledgement, which has a reason code.
ANSWER_MAX = 5
# Octets allocated first for the answers of a read, and the most that are kept for the next read.
ROOM, ROOM_KEPT = 160, 4096


def first_octets(version, sender):
    """Return a table of 256 bytes: 1 for each first byte of a packet that ``sender`` may send, else 0."""
    allowed = bytearray(256)
    for first in range(256):
        try:
            codec.check_first_octet(first, version, sender)
        except MQTTError:
            continue
        allowed[first] = 1
    return bytes(allowed)


_first_octets: dict = {}


class PacketWalk:
    """Finds the packets and their fields in the read buffer of one connection. Reused for every read.

    ``next_packet`` finds one packet and sets the attributes, which hold until its next call. All offsets are
    into the buffer. A packet lies from ``at`` to ``position``, its variable header begins at ``start``.
    ``plain``: it is a well-formed PUBLISH or an acknowledgement of success. A plain acknowledgement has
    ``packet_identifier``. A plain PUBLISH has:

        qos, dup, retain, packet_identifier
        topic_at, topic_length                    length 0: an alias replaces the topic
        payload_at, payload_length
        properties_at, properties_length          its MQTT 5 properties, without their length field
        topic_alias                               the alias itself
        payload_format_at, message_expiry_at, topic_alias_at
                                                  offsets of properties' values

    The offset of an absent property is -1; any other absent field is 0.
    """

    __slots__ = (
        "version", "sender", "limits", "packet_max", "property_max", "from_client", "first_octets", "buffer",
        "p", "position", "end", "at", "start", "plain", "topic_at", "topic_length", "qos", "dup", "retain",
        "packet_identifier", "properties_at", "properties_length", "payload_at", "payload_length",
        "topic_alias", "payload_format_at", "message_expiry_at", "topic_alias_at", "value", "known",
        "is_known",
    )

    def __init__(self, version, sender, limits=DEFAULT_LIMITS):
        self.sender = sender
        self.from_client = sender == CLIENT
        self.set_limits(limits)
        self.set_version(version)
        self.buffer = None
        self.position = self.end = self.at = self.start = 0
        self.plain = False
        self.topic_at = self.topic_length = self.payload_at = self.payload_length = 0
        self.packet_identifier = self.qos = 0
        self.dup = self.retain = self.is_known = False
        self.value = 0
        self.known = b""
        self.forget_properties(0)

    def know(self, topic):
        """Remember a valid topic (bytes) that may recur. ``is_known`` is then True for a PUBLISH to it."""
        self.known = topic

    def set_version(self, version):
        """Set the protocol version, once the CONNECT has been accepted."""
        self.version = version
        key = version, self.sender
        if key not in _first_octets:
            _first_octets[key] = first_octets(version, self.sender)
        self.first_octets = _first_octets[key]

    def set_limits(self, limits):
        self.limits = limits
        self.packet_max = limits.packet_octets
        self.property_max = limits.properties

    def begin(self, buffer, start, end):
        """Begin to walk over ``buffer[start:end]``. The caller must keep the buffer until finish()."""
        if not 0 <= start <= end <= len(buffer):
            raise IndexError("more bytes than the buffer holds")
        self.buffer = buffer
        self.p = octets.pointer(buffer)
        self.position = start
        self.end = end

    def finish(self):
        """Release the buffer. Returns the offset after the last complete packet."""
        self.buffer = None
        self.end = self.position
        return self.position

    def next_packet(self):
        """Find the next complete packet and its fields. Returns its type, 0 for none. Raises an MQTTError."""
        p = self.p
        at = self.position
        end = self.end
        if at >= end:
            return 0
        first = p[at]
        if not self.first_octets[first]:
            self.refuse(at)
        start = at + 1
        if start >= end:
            return 0
        octet = p[start]
        start += 1
        length = octet & 0x7F
        shift = 7
        while octet >= 0x80:
            if shift == 28:
                self.refuse(at)
            if start >= end:
                return 0
            octet = p[start]
            start += 1
            length |= (octet & 0x7F) << shift
            shift += 7
        if shift > 7 and octet == 0 and self.version >= MQTT_5 or start - at + length > self.packet_max:
            self.refuse(at)
        if length > end - start:
            return 0
        self.at = at
        self.start = start
        self.position = start + length
        kind = first >> 4
        if kind == PUBLISH:
            self.qos = first >> 1 & 3
            self.dup = first & 8 != 0
            self.retain = first & 1 != 0
            self.plain = self.take_publish(p, start, start + length)
        elif kind >= PUBACK and kind <= PUBCOMP:
            self.plain = self.take_acknowledgement(p, start, start + length)
        else:
            self.plain = False
        return kind

    def refuse(self, at):
        """Raise the MQTTError for the invalid fixed header at offset ``at``."""
        end = min(self.end, at + HEADER_MAX)
        head = bytes(self.buffer[at:end])
        codec.decode_fixed_header(head, 0, len(head), self.version, self.sender, self.limits)
        raise AssertionError("the walk refuses what the codec accepts")

    def decode(self):
        """Return the packet that was found last as a Packet object. Raises an MQTTError."""
        raw = bytes(self.buffer[self.at:self.position])
        return codec.decode_packet(raw, self.version, self.sender, self.limits)

    def part(self, at, length):
        return bytes(self.buffer[at:at + length])

    def take_publish(self, p, at, end):
        """Store a PUBLISH's fields from ``p[at:end]``, after the fixed header. Returns False if malformed."""
        if end - at < 2:
            return False
        self.topic_length = octets.be16(p, at)
        self.topic_at = at = at + 2
        if self.topic_length > end - at:
            return False
        self.is_known = self.topic_length == len(self.known) and octets.same(
            p, at, self.known, 0, self.topic_length)
        if not self.is_known and topics.scan_text(p, at, at + self.topic_length) != 0:
            return False
        at += self.topic_length
        self.packet_identifier = 0
        if self.qos:
            if end - at < 2:
                return False
            self.packet_identifier = octets.be16(p, at)
            if self.packet_identifier == 0:
                return False
            at += 2
        self.forget_properties(at)
        if self.version >= MQTT_5:
            at = self.take_variable(p, at, end)
            if at < 0 or self.value > end - at:
                return False
            self.properties_at = at
            self.properties_length = self.value
            at += self.properties_length
            if self.properties_length and not self.take_properties(p, self.properties_at, at):
                return False
        if self.topic_length == 0 and self.topic_alias == 0:
            return False
        self.payload_at = at
        self.payload_length = end - at
        return True

    def forget_properties(self, at):
        """Set the attributes as for a packet without properties. ``at``: where its properties would begin."""
        self.properties_at = at
        self.properties_length = self.topic_alias = 0
        self.payload_format_at = self.message_expiry_at = self.topic_alias_at = -1

    def take_properties(self, p, at, end):
        """Store a PUBLISH's properties, ``p[at:end]``. Returns False if malformed, forbidden or too many."""
        count = 0
        has_content_type = has_response = has_correlation = False
        while at < end:
            identifier = p[at]
            at += 1
            start = at
            count += 1
            if count > self.property_max:
                return False
            if identifier == USER_PROPERTY:
                at = self.take_text(p, at, end, topics.CONTROL | topics.WILDCARD)
                if at < 0:
                    return False
                at = self.take_text(p, at, end, topics.CONTROL | topics.WILDCARD)
            elif identifier == CONTENT_TYPE and not has_content_type:
                has_content_type = True
                at = self.take_text(p, at, end, topics.CONTROL | topics.WILDCARD)
            elif identifier == RESPONSE_TOPIC and not has_response:
                has_response = True
                at = self.take_text(p, at, end, 0)
                if at == start + 2:
                    return False
            elif identifier == CORRELATION_DATA and not has_correlation:
                has_correlation = True
                at = self.take_binary(p, at, end)
            else:
                at = self.take_number(p, at, end, identifier)
            if at < 0:
                return False
        return True

    def take_number(self, p, at, end, identifier):
        """Store the numeric property ``identifier``, whose value is at ``p[at]``. Returns the offset after
        the value; -1 if it is invalid, repeated or forbidden.
        """
        if identifier == MESSAGE_EXPIRY_INTERVAL and self.message_expiry_at < 0 and end - at >= 4:
            self.message_expiry_at = at
            return at + 4
        if identifier == PAYLOAD_FORMAT_INDICATOR and self.payload_format_at < 0 and end > at and p[at] <= 1:
            self.payload_format_at = at
            return at + 1
        if identifier == TOPIC_ALIAS and self.topic_alias_at < 0 and end - at >= 2:
            self.topic_alias_at = at
            self.topic_alias = octets.be16(p, at)
            return at + 2 if self.topic_alias else -1
        if identifier == SUBSCRIPTION_IDENTIFIER and not self.from_client:
            at = self.take_variable(p, at, end)
            return at if self.value else -1
        return -1

    def take_text(self, p, at, end, accepted):
        """Return the offset after the string at ``p[at]``; -1 if it is incomplete or not well-formed UTF-8,
        or if topics.scan_text() finds characters (WILDCARD, CONTROL) that are not among the bits
        ``accepted``.
        """
        after = self.take_binary(p, at, end)
        if after < 0:
            return -1
        found = topics.scan_text(p, at + 2, after)
        return -1 if found < 0 or found & ~accepted else after

    def take_binary(self, p, at, end):
        """Return the offset after the binary data at ``p[at]``; -1 if bytes are missing."""
        if end - at < 2:
            return -1
        after = at + 2 + octets.be16(p, at)
        return after if after <= end else -1

    def take_variable(self, p, at, end):
        """Read a variable byte integer at ``p[at]`` into ``value``. Returns its end offset; -1 if invalid."""
        self.value = 0
        shift = 0
        while at < end and shift < 28:
            octet = p[at]
            at += 1
            self.value |= (octet & 0x7F) << shift
            if octet < 0x80:
                return at if octet or not shift else -1
            shift += 7
        return -1

    def take_acknowledgement(self, p, at, end):
        """Store the packet identifier of an acknowledgement, ``p[at:end]``. Returns whether the
        acknowledgement is well-formed, means success and has no properties.
        """
        length = end - at
        if length < 2:
            return False
        self.packet_identifier = octets.be16(p, at)
        if self.packet_identifier == 0:
            return False
        if length == 2:
            return True
        if self.version < MQTT_5 or length > 4 or p[at + 2] != 0:
            return False
        return length == 3 or p[at + 3] == 0  # no properties


def variable_size(value):
    """Return the number of bytes that ``value`` takes as a variable byte integer."""
    if value < 128:
        return 1
    if value < 16384:
        return 2
    return 3 if value < 2097152 else 4


def put_variable(out, at, value):
    """Write a variable byte integer at ``out[at]``. Returns the offset after it."""
    while value > 0x7F:
        out[at] = value & 0x7F | 0x80
        value >>= 7
        at += 1
    out[at] = value
    return at + 1


def publish_body(version, qos, topic_length, properties_length, payload_length):
    """Return the remaining length of a PUBLISH: the number of its bytes after the fixed header."""
    size = 2 + topic_length + payload_length
    if qos:
        size += 2
    if version >= MQTT_5:
        size += variable_size(properties_length) + properties_length
    return size


def publish_size(version, qos, topic_length, properties_length, payload_length):
    """Return the size of a complete PUBLISH in bytes. Before MQTT 5 ``properties_length`` is ignored."""
    size = publish_body(version, qos, topic_length, properties_length, payload_length)
    return 1 + variable_size(size) + size


def write_publish_head(
        out, at, version, flags, topic, topic_at, topic_length, packet_identifier, properties_length,
        payload_length):
    """Write the beginning of a PUBLISH at ``out[at]``, up to the length of its properties. Returns the offset
    after it, where the caller writes properties and payload. ``flags``: DUP, QoS and RETAIN as in the first
    byte. ``topic``: a pointer to bytes, in which the topic begins at ``topic_at``.
    """
    out[at] = 0x30 | flags
    at = put_variable(
        out, at + 1, publish_body(version, flags & 6, topic_length, properties_length, payload_length))
    octets.put_be16(out, at, topic_length)
    octets.copy(out, at + 2, topic, topic_at, topic_length)
    at += 2 + topic_length
    if flags & 6:
        octets.put_be16(out, at, packet_identifier)
        at += 2
    if version >= MQTT_5:
        at = put_variable(out, at, properties_length)
    return at


def write_acknowledgement(out, at, version, kind, packet_identifier, reason_code):
    """Write a PUBACK, PUBREC, PUBREL or PUBCOMP (4 or 5 bytes) at ``out[at]``. Returns the offset after it.
    ``kind``: the packet type. Before MQTT 5 the reason code is left out.
    """
    out[at] = kind << 4 | (2 if kind == PUBREL else 0)
    octets.put_be16(out, at + 2, packet_identifier)
    if version < MQTT_5 or reason_code == 0:
        out[at + 1] = 2
        return at + 4
    out[at + 1] = 3
    out[at + 4] = reason_code
    return at + 5


def encode_publish(version, flags, topic, packet_identifier, properties, payload):
    """Return a PUBLISH as bytes. Topic, properties (without their length) and payload are bytes, which are
    not checked. Raises ValueError for a topic of more than 65,535 bytes.
    """
    topic_length = len(topic)
    properties_length = len(properties) if version >= MQTT_5 else 0
    payload_length = len(payload)
    if topic_length > 0xFFFF:
        raise ValueError(f"a topic name of {topic_length} bytes")
    size = publish_size(version, flags & 6, topic_length, properties_length, payload_length)
    packet = bytearray(size)
    out = octets.pointer(packet)
    source = octets.pointer(topic)
    at = write_publish_head(
        out, 0, version, flags, source, 0, topic_length, packet_identifier, properties_length, payload_length)
    source = octets.pointer(properties)
    octets.copy(out, at, source, 0, properties_length)
    source = octets.pointer(payload)
    octets.copy(out, at + properties_length, source, 0, payload_length)
    return bytes(packet)


def encode_acknowledgement(version, kind, packet_identifier, reason_code=0):
    """Return PUBACK, PUBREC, PUBREL or PUBCOMP (``kind``) as bytes; before MQTT 5 without a reason code."""
    packet = bytearray(ANSWER_MAX)
    out = octets.pointer(packet)
    at = write_acknowledgement(out, 0, version, kind, packet_identifier, reason_code)
    return bytes(packet[:at])


class Acknowledgements:
    """Collects encoded acknowledgements, to send them together. ``used``: bytes collected since take()."""

    __slots__ = ("version", "used", "room", "answers", "at")

    def __init__(self, version):
        self.version = version
        self.used = self.room = 0
        self.answers = bytearray()
        self.at = octets.pointer(self.answers)

    def add(self, kind, packet_identifier, reason_code):
        """Add one acknowledgement. ``kind``: its packet type. Before MQTT 5 the reason code is left out."""
        if self.used + ANSWER_MAX > self.room:
            self._make_room(max(2 * self.room, ROOM))
        self.used = write_acknowledgement(
            self.at, self.used, self.version, kind, packet_identifier, reason_code)

    def take(self):
        taken = bytes(self.answers[:self.used])
        self.used = 0
        if self.room > ROOM_KEPT:
            self._make_room(0)
        return taken

    def _make_room(self, room):
        answers = bytearray(room)
        if self.used:
            answers[:self.used] = self.answers[:self.used]
        self.answers = answers
        self.at = octets.pointer(answers)
        self.room = room
