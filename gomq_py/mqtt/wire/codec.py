"""Codec: decodes one packet of any type, cuts a stream of bytes into packets, and encodes the last packet
that a server sends before it closes. No I/O.
"""
from typing import NamedTuple

from gomq_py.mqtt.wire import reason_codes, topics
from gomq_py.mqtt.wire.constants import (
    CLIENT, CONNACK, DEFAULT_LIMITS, DISCONNECT, MQTT_3_1_1, MQTT_5, NO_VERSION, SERVER,
)
from gomq_py.mqtt.wire.errors import (
    MalformedPacket, PacketTooLarge, ProtocolError, UnsupportedProtocolVersion,
)
from gomq_py.mqtt.wire.fields import Reader, variable_byte_integer
from gomq_py.mqtt.wire.packets import (
    PACKETS, ConnackPacket, ConnectPacket, Decoding, DisconnectPacket, PublishPacket, check_flags,
)


def check_first_octet(first, version, sender):
    """Return the packet class for a packet's first byte. Raises an MQTTError if its type or flags are wrong,
    or if ``sender`` may not send this type. ``version`` is NO_VERSION before the CONNECT.
    """
    # Only the first packet may and must be CONNECT [MQTT-3.1.0-1, 3.1.0-2]; before it ``version`` is
    # NO_VERSION.
    packet = PACKETS.get(first >> 4)
    if packet is None or packet.SINCE > version > NO_VERSION:
        raise MalformedPacket(f"there is no packet type {first >> 4}")
    if version == NO_VERSION and packet is not ConnectPacket:
        raise ProtocolError(f"{packet.NAME} before CONNECT")
    if version != NO_VERSION and packet is ConnectPacket:
        raise ProtocolError("a second CONNECT")
    if sender not in packet.SENDERS or packet is DisconnectPacket and sender == SERVER and version < MQTT_5:
        raise ProtocolError(f"{packet.NAME} from a {sender}")
    check_flags(packet, first & 0x0F, version)
    return packet


def decode_fixed_header(octets, at, end, version, sender, limits=DEFAULT_LIMITS):
    """Decode the fixed header at ``octets[at:end]``. Returns (packet class, offset of the variable header,
    offset after the packet), or None if the header is incomplete. Raises an MQTTError for a wrong header or
    a packet that is too large.
    """
    if at >= end:
        return None
    packet = check_first_octet(octets[at], version, sender)
    length = size = 0
    while True:
        if at + 1 + size >= end:
            return None
        octet = octets[at + 1 + size]
        length |= (octet & 0x7F) << 7 * size
        size += 1
        if octet < 0x80:
            break
        if size == 4:
            raise MalformedPacket(f"{packet.NAME} with a remaining length of more than 4 bytes")
    if size > 1 and not octet and version >= MQTT_5:
        raise MalformedPacket(f"{packet.NAME} with a remaining length of more bytes than it needs")
    start = at + 1 + size
    size = start - at + length
    if size > limits.packet_octets:
        raise PacketTooLarge(f"{packet.NAME} of {size} bytes, {limits.packet_octets} are accepted")
    return packet, start, start + length


def decode_packet(octets, version, sender, limits=DEFAULT_LIMITS):
    """Decode bytes that are exactly one packet, and return the Packet. Raises an MQTTError."""
    head = decode_fixed_header(octets, 0, len(octets), version, sender, limits)
    if head is None or head[2] != len(octets):
        raise MalformedPacket(f"{len(octets)} bytes that are not one packet")
    return decode_body(octets, head, version, sender, limits)


def decode_body(octets, head, version, sender, limits=DEFAULT_LIMITS):
    """Decode the Packet at ``octets[0]``. ``head``: from decode_fixed_header(). Raises an MQTTError."""
    kind, start, end = head
    packet = kind.__new__(kind)
    reader = Reader(octets, start, end, kind.NAME, version)
    packet.decode(reader, Decoding(version, sender, limits, octets[0] & 0x0F))
    if reader:
        error = reader.fault(f"{end - reader.at} bytes too many at its end")
        error.version = reader.version
        raise error
    if kind is ConnectPacket and packet.version >= MQTT_5 and start > 1 + len(
            variable_byte_integer(end - start)):  # the version was unknown before
        error = reader.fault("its remaining length has more bytes than it needs")
        error.version = MQTT_5
        raise error
    return packet


class PublishHead(NamedTuple):
    """Fields of a PUBLISH that has only partly arrived. ``topic``: bytes, empty if ``topic_alias`` replaces
    it. ``payload_octets``: length of the complete payload in bytes.
    """

    qos: int
    packet_identifier: int
    topic: bytes
    topic_alias: int
    payload_octets: int


def decode_publish_head(octets, at, version, limits=DEFAULT_LIMITS):
    """Return the PublishHead at ``octets[at]``, or None if more bytes are needed. Raises an MQTTError."""
    end = len(octets)
    head = decode_fixed_header(octets, at, end, version, CLIENT, limits)
    if head is None:
        return None
    _, start, packet_end = head
    flags = octets[at] & 0x0F
    qos = flags >> 1 & 3
    if end - start < 2:
        return None
    topic_end = start + 2 + int.from_bytes(octets[start:start + 2], "big")
    after = topic_end + (2 if qos else 0)
    if after > packet_end:
        raise MalformedPacket("PUBLISH: a topic name of more bytes than the packet")
    if after > end:
        return None
    topic = bytes(octets[start + 2:topic_end])
    if topic:
        reader = Reader(bytes(octets[start:topic_end]), 0, topic_end - start, PublishPacket.NAME, version)
        if fault := topics.topic_name_fault(reader.utf8_string("topic name")):
            raise reader.fault(fault)
    alias = 0
    if version >= MQTT_5:
        after = _after_properties(octets, after, min(end, after + 4), packet_end)
        if after is None or not topic and after > end:
            return None
        if not topic:
            packet = PublishPacket.__new__(PublishPacket)
            reader = Reader(bytes(octets[start:after]), 0, after - start, PublishPacket.NAME, version)
            packet.decode(reader, Decoding(version, CLIENT, limits, flags))
            alias = packet.properties["topic_alias"]
    identifier = int.from_bytes(octets[topic_end:topic_end + 2], "big") if qos else 0
    return PublishHead(qos, identifier, topic, alias, packet_end - after)


def _after_properties(octets, at, end, packet_end):
    """Return the offset after a PUBLISH's properties; None if their length field, ``at``, is incomplete."""
    length = 0
    for place in range(at, end):
        length |= (octets[place] & 0x7F) << 7 * (place - at)
        if octets[place] < 0x80:
            if place + 1 + length > packet_end:
                raise MalformedPacket("PUBLISH: properties of more bytes than the packet")
            return place + 1 + length
    if end - at == 4:
        raise MalformedPacket("PUBLISH: a length of properties of more than 4 bytes")
    return None


def last_packet(error, version, connected):
    """Return the packet, as bytes, that a server sends before it closes a connection because of ``error`` (an
    MQTTError). It is b"" if the protocol version has none. ``connected``: whether the CONNECT was accepted.
    """
    # Before that, the error may name the version.
    if connected:
        if version < MQTT_5:
            return b""  # [MQTT-4.8.0-1] of 3.1.1: close
        return DisconnectPacket(reason_code=_code_in(DISCONNECT, error)).encode(MQTT_5)
    version = version or error.version
    if version >= MQTT_5:
        return fitting(ConnackPacket(reason_code=_code_in(CONNACK, error)).encode(MQTT_5), error.packet_max)
    if version == NO_VERSION and not isinstance(error, UnsupportedProtocolVersion):
        return b""
    return_code = reason_codes.connack_return_code(error.reason_code)
    return b"" if return_code is None else ConnackPacket(reason_code=return_code).encode(MQTT_3_1_1)


def _code_in(packet, error):
    told = reason_codes.may_carry(packet, error.reason_code)
    return error.reason_code if told else reason_codes.UNSPECIFIED_ERROR


def fitting(octets, packet_max):
    """Return a packet's bytes; b"" if over the receiver's maximum packet size (0: any) [MQTT-3.1.2-24]."""
    return octets if not 0 < packet_max < len(octets) else b""


class PacketReader:
    """Cuts a stream of bytes into packets, for clients and tests. The server uses frames.PacketWalk.

    If ``version`` is NO_VERSION, the first packet must be a CONNECT, which sets the version.
    """

    __slots__ = ("version", "sender", "limits", "buffer")

    def __init__(self, version, sender, limits=DEFAULT_LIMITS):
        self.version = version
        self.sender = sender
        self.limits = limits
        self.buffer = bytearray()

    def feed(self, octets):
        self.buffer += octets

    def next_packet(self):
        """Return the next complete Packet, or None. Raises an MQTTError, which makes the reader unusable."""
        head = decode_fixed_header(self.buffer, 0, len(self.buffer), self.version, self.sender, self.limits)
        if head is None or head[2] > len(self.buffer):
            return None
        packet = decode_packet(bytes(self.buffer[:head[2]]), self.version, self.sender, self.limits)
        del self.buffer[:head[2]]
        if self.version == NO_VERSION:
            self.version = packet.version
        return packet
