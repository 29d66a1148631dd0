"""Packets: decodes and encodes the fifteen control packets of MQTT 3.1, 3.1.1 and 5, as objects. No I/O.

A packet is (MQTT 5 §2)

    0     u8   packet type (upper half), flags (lower half)
    1     1-4  remaining length, a variable byte integer
    ...        variable header, payload

This module decodes every packet and checks it fully. The fast path, mqtt.wire.frames, handles plain PUBLISHes
and acknowledgements without objects and leaves all other packets to this module. Where MQTT 3.1 is vaguer
than 3.1.1, it is read as Mosquitto reads it: reserved bits are checked from 3.1.1 on.
"""
from typing import TYPE_CHECKING, Any, NamedTuple

from gomq_py.mqtt.wire import fields, reason_codes, topics
from gomq_py.mqtt.wire.constants import (
    AUTH, BRIDGE_FLAG, CLIENT, CONNACK, CONNECT, DISCONNECT, DUP_FLAG, MQTT_3_1, MQTT_3_1_1, MQTT_5, PINGREQ,
    PINGRESP, PROTOCOL_NAMES, PUBACK, PUBCOMP, PUBLISH, PUBREC, PUBREL, RETAIN_FLAG, SERVER, SUBACK,
    SUBSCRIBE, UNSUBACK, UNSUBSCRIBE, WILL, PacketLimits,
)
from gomq_py.mqtt.wire.errors import (
    ClientIdentifierNotValid, MalformedPacket, MQTTError, ProtocolError, QuotaExceeded,
    UnsupportedProtocolVersion, shown,
)
from gomq_py.mqtt.wire.fields import Reader
from gomq_py.mqtt.wire.properties import decode_properties, encode_properties

_BOTH = frozenset((CLIENT, SERVER))
# Limit for a SUBSCRIBE or UNSUBSCRIBE: more than 1024 of the longest filters that our server accepts.
# Checking so many octets takes some 15 ms; 60 MB, which a packet may have, took a second.
FILTERS_OCTETS_MAX = 1 << 20


class Decoding(NamedTuple):
    """What decoding a packet needs beside its bytes. ``flags``: lower half of the packet's first byte."""

    version: int
    sender: str
    limits: PacketLimits
    flags: int = 0


class Packet:
    """Base class of all packets.

        FIELDS     a tuple of (name, default) pairs, one for each field
        FLAGS      the lower half of the first byte
        SENDERS, SINCE    the sides that may send the packet, and the first protocol version that has it
    """

    TYPE = 0
    NAME = ""
    FLAGS = 0
    SENDERS = _BOTH
    SINCE = MQTT_3_1
    FIELDS: tuple = ()
    __slots__: tuple = ()

    if TYPE_CHECKING:  # the fields are slots named by FIELDS, which a type checker cannot see

        def __getattr__(self, name: str) -> Any: ...

        def decode(self, reader: Reader, how: Decoding) -> None: ...

        def body(self, version: int) -> bytes: ...

    def __init__(self, **values: Any) -> None:
        for name, default in self.FIELDS:
            value = values.pop(name) if name in values else default
            setattr(self, name, {} if value is None and name == "properties" else value)
        if values:
            raise TypeError(f"{self.NAME} has no field {', '.join(sorted(values))}")

    def flags(self) -> int:
        """Return the lower half of the packet's first byte."""
        return self.FLAGS

    def encode(self, version: int) -> bytes:
        """Return the packet's bytes. Raises ValueError or struct.error for values that do not fit."""
        body = self.body(version)
        return bytes((self.TYPE << 4 | self.flags(),)) + fields.variable_byte_integer(len(body)) + body

    def __eq__(self, other):
        return type(self) is type(other) and all(
            getattr(self, name) == getattr(other, name) for name, _ in self.FIELDS)

    def __repr__(self):
        values = ", ".join(f"{name}={getattr(self, name)!r}" for name, _ in self.FIELDS)
        return f"{type(self).__name__}({values})"


def _packet_identifier(reader: Reader) -> int:
    packet_identifier = reader.two_byte_integer("packet identifier")
    if not packet_identifier:
        raise ProtocolError(f"{reader.packet} with packet identifier 0")
    return packet_identifier


def _names(rows):
    return tuple(name for name, _ in rows)


class Will(NamedTuple):
    """The message that the server publishes when the client is lost."""

    topic: str
    payload: bytes = b""
    qos: int = 0
    retain: bool = False
    properties: dict[str, Any] = {}


class ConnectPacket(Packet):
    """CONNECT. A field that was not sent is None. ``clean_start`` is 3.1.1's clean session. ``is_bridge``:
    the client is a Mosquitto bridge before MQTT 5, which must not get its own publishes back.
    """

    TYPE, NAME, SENDERS = CONNECT, "CONNECT", frozenset((CLIENT,))
    FIELDS = (
        ("version", MQTT_5), ("clean_start", True), ("keep_alive_s", 0), ("properties", None),
        ("client_identifier", ""),
        ("will", None), ("user_name", None), ("password", None), ("is_bridge", False),
    )
    __slots__ = _names(FIELDS)

    def decode(self, reader: Reader, how: Decoding) -> None:
        """Decode the fields. Raises UnsupportedProtocolVersion for an unknown version [MQTT-3.1.2-2]."""
        name = reader.utf8_string("protocol name")
        if name not in PROTOCOL_NAMES.values():
            raise reader.fault(f"protocol name {shown(name)}")  # [MQTT-3.1.2-1]
        version = reader.byte("protocol version")
        self.is_bridge = version & BRIDGE_FLAG != 0 and version & ~BRIDGE_FLAG in (MQTT_3_1, MQTT_3_1_1)
        self.version = version & ~BRIDGE_FLAG if self.is_bridge else version
        if PROTOCOL_NAMES.get(self.version) != name:
            raise UnsupportedProtocolVersion(f"protocol version {self.version} of {name}")
        reader.version = self.version
        try:
            self.properties = {}
            check_flags(self, how.flags, self.version)
            self._take_header(reader, how)
        except MQTTError as error:
            error.version = self.version
            error.packet_max = self.maximum_packet_size
            raise

    @property
    def maximum_packet_size(self):
        """Size in bytes of the largest packet that the client accepts; 0: any size."""
        return self.properties.get("maximum_packet_size", 0)

    def _take_header(self, reader, how):
        flags = reader.byte("connect flags")
        if flags & 1 and self.version >= MQTT_3_1_1:
            raise reader.fault("the reserved connect flag is set")  # [MQTT-3.1.2-3]
        self.clean_start = flags & 0x02 != 0
        self.keep_alive_s = reader.two_byte_integer("keep alive")
        self.properties = _properties(reader, CONNECT, how)
        self.client_identifier = _name(reader, "client identifier")
        self._take_will(reader, flags, how)
        self._take_credentials(reader, flags)
        if not self.client_identifier and self.version < MQTT_5:
            if self.version == MQTT_3_1:  # 1 to 23 characters (3.1, CONNECT); longer ones do no harm
                raise ClientIdentifierNotValid("MQTT 3.1 asks for a client identifier")
            if not self.clean_start:  # [MQTT-3.1.3-8]
                raise ClientIdentifierNotValid("a session that is kept needs a client identifier")

    def _take_will(self, reader, flags, how):
        qos, retain = flags >> 3 & 3, flags & 0x20 != 0
        self.will = None
        if not flags & 0x04:
            if (qos or retain) and self.version >= MQTT_3_1_1:
                raise reader.fault("will QoS or will retain without a will")
            return
        if qos == 3:
            raise reader.fault("will QoS 3")
        properties = _properties(reader, WILL, how)
        topic = reader.utf8_string("will topic")
        if fault := topics.topic_name_fault(topic):
            raise reader.fault(f"will: {fault}")
        self.will = Will(topic, reader.binary_data("will payload"), qos, retain, properties)

    def _take_credentials(self, reader, flags):
        has_user_name, has_password = flags & 0x80 != 0, flags & 0x40 != 0
        if self.version == MQTT_3_1:  # its remaining length takes precedence over the flags
            has_user_name = has_user_name and bool(reader)
        elif self.version == MQTT_3_1_1 and has_password and not has_user_name:
            raise reader.fault("a password without a user name")  # [MQTT-3.1.2-22]
        self.user_name = _name(reader, "user name") if has_user_name else None
        if self.version == MQTT_3_1:
            has_password = has_password and bool(reader)
        self.password = reader.binary_data("password") if has_password else None

    def body(self, version: int) -> bytes:
        version = self.version
        flags = self.clean_start << 1 | (self.user_name is not None) << 7 | (self.password is not None) << 6
        parts = [fields.utf8_string(PROTOCOL_NAMES[version]), b"", fields.two_byte_integer(self.keep_alive_s)]
        parts += _encoded(self.properties, CONNECT, version), fields.utf8_string(self.client_identifier)
        if self.will is not None:
            flags |= 0x04 | self.will.qos << 3 | self.will.retain << 5
            parts.append(_encoded(self.will.properties, WILL, version))
            parts += fields.utf8_string(self.will.topic), fields.binary_data(self.will.payload)
        if self.user_name is not None:
            parts.append(fields.utf8_string(self.user_name))
        if self.password is not None:
            parts.append(fields.binary_data(self.password))
        parts[1] = bytes((version | self.is_bridge * BRIDGE_FLAG, flags))
        return b"".join(parts)


def _name(reader, what):
    """Read a string. Refuses control characters, because it will be in logs and queue names."""
    text = reader.utf8_string(what)
    if fault := topics.text_fault(what, text):
        raise reader.fault(fault)
    return text


def _properties(reader: Reader, packet: int, how: Decoding) -> dict[str, Any]:
    """Return the properties {name: value} of a packet type or of WILL; {} before MQTT 5."""
    return decode_properties(reader, packet, how.sender, how.limits) if reader.version >= MQTT_5 else {}


def _encoded(properties: dict[str, Any], packet: int, version: int) -> bytes:
    return encode_properties(properties, packet) if version >= MQTT_5 else b""


class ConnackPacket(Packet):
    """CONNACK: the answer to CONNECT. Before MQTT 5 ``reason_code`` is a return code."""

    TYPE, NAME, SENDERS = CONNACK, "CONNACK", frozenset((SERVER,))
    FIELDS = (("session_present", False), ("reason_code", 0), ("properties", None))
    __slots__ = _names(FIELDS)

    def decode(self, reader: Reader, how: Decoding) -> None:
        flags = reader.byte("connect acknowledge flags")
        if flags > 1 and how.version >= MQTT_3_1_1:
            raise reader.fault("reserved connect acknowledge flags are set")  # [MQTT-3.2.2-1]
        self.session_present = flags & 1 != 0 and how.version >= MQTT_3_1_1
        self.reason_code = _reason_code(reader, self, how)
        self.properties = _properties(reader, CONNACK, how)

    def body(self, version: int) -> bytes:
        octets = bytes((self.session_present and version >= MQTT_3_1_1, self.reason_code))
        return octets + _encoded(self.properties, CONNACK, version)


def _reason_code(reader: Reader, packet: Packet, how: Decoding) -> int:
    code = reader.byte("reason code")
    if not reason_codes.may_carry(packet.TYPE, code, how.version):
        raise ProtocolError(f"{packet.NAME} with reason code 0x{code:02X}")
    return code


class PublishPacket(Packet):
    """PUBLISH. ``packet_identifier`` is 0 at QoS 0; ``topic_name`` is empty if a topic alias replaces it."""

    TYPE, NAME = PUBLISH, "PUBLISH"
    FIELDS = (
        ("topic_name", ""), ("payload", b""), ("qos", 0), ("retain", False), ("dup", False),
        ("packet_identifier", 0),
        ("properties", None),
    )
    __slots__ = _names(FIELDS)

    def decode(self, reader: Reader, how: Decoding) -> None:
        self.dup, self.retain = how.flags & DUP_FLAG != 0, how.flags & RETAIN_FLAG != 0
        self.qos = how.flags >> 1 & 3
        self.topic_name = reader.utf8_string("topic name")
        self.packet_identifier = _packet_identifier(reader) if self.qos else 0
        self.properties = _properties(reader, PUBLISH, how)
        if self.topic_name or how.version < MQTT_5:
            if fault := topics.topic_name_fault(self.topic_name):
                raise reader.fault(fault)
        elif "topic_alias" not in self.properties:
            raise ProtocolError("PUBLISH with neither a topic name nor a topic alias")  # §3.3.2.1
        self.payload = bytes(reader.take(reader.end - reader.at, "payload"))

    def flags(self) -> int:
        return self.dup << 3 | self.qos << 1 | self.retain

    def body(self, version: int) -> bytes:
        identifier = fields.two_byte_integer(self.packet_identifier) if self.qos else b""
        properties = _encoded(self.properties, PUBLISH, version)
        return b"".join((fields.utf8_string(self.topic_name), identifier, properties, self.payload))


class _Acknowledgement(Packet):
    """Base class of PUBACK, PUBREC, PUBREL and PUBCOMP."""

    FIELDS = (("packet_identifier", 0), ("reason_code", 0), ("properties", None))
    __slots__ = _names(FIELDS)

    def decode(self, reader: Reader, how: Decoding) -> None:
        """Decode the fields. Properties, or reason code and properties, may be missing (§3.4.2.1)."""
        self.packet_identifier = _packet_identifier(reader)
        self.reason_code, self.properties = 0, {}
        if how.version >= MQTT_5 and reader:
            self.reason_code = _reason_code(reader, self, how)
            if reader:
                self.properties = _properties(reader, self.TYPE, how)

    def body(self, version: int) -> bytes:
        octets = fields.two_byte_integer(self.packet_identifier)
        if version >= MQTT_5 and (self.reason_code or self.properties):
            octets += bytes((self.reason_code,))
            if self.properties:
                octets += encode_properties(self.properties, self.TYPE)
        return octets


class PubackPacket(_Acknowledgement):
    """PUBACK: the answer to PUBLISH at QoS 1."""

    TYPE, NAME = PUBACK, "PUBACK"
    __slots__ = ()


class PubrecPacket(_Acknowledgement):
    """PUBREC: the first answer to PUBLISH at QoS 2."""

    TYPE, NAME = PUBREC, "PUBREC"
    __slots__ = ()


class PubrelPacket(_Acknowledgement):
    """PUBREL: the publisher's answer to PUBREC."""

    TYPE, NAME, FLAGS = PUBREL, "PUBREL", 2
    __slots__ = ()


class PubcompPacket(_Acknowledgement):
    """PUBCOMP: the answer to PUBREL, and the last packet of QoS 2."""

    TYPE, NAME = PUBCOMP, "PUBCOMP"
    __slots__ = ()


class Subscription(NamedTuple):
    """A topic filter of a SUBSCRIBE with its options. Before MQTT 5 only ``qos`` is sent."""

    topic_filter: str
    qos: int = 0
    no_local: bool = False
    retain_as_published: bool = False
    retain_handling: int = 0

    @property
    def options(self):
        return self.qos | self.no_local << 2 | self.retain_as_published << 3 | self.retain_handling << 4


class SubscribePacket(Packet):
    """SUBSCRIBE: a client subscribes to topic filters."""

    TYPE, NAME, FLAGS, SENDERS = SUBSCRIBE, "SUBSCRIBE", 2, frozenset((CLIENT,))
    FIELDS = (("packet_identifier", 0), ("subscriptions", ()), ("properties", None))
    __slots__ = _names(FIELDS)

    def decode(self, reader: Reader, how: Decoding) -> None:
        self.packet_identifier = _packet_identifier(reader)
        self.properties = _properties(reader, SUBSCRIBE, how)
        self.subscriptions = tuple(
            _subscription(reader, topic_filter, how.version) for topic_filter in _filters(reader, self, how))

    def body(self, version: int) -> bytes:
        parts = [
            fields.two_byte_integer(self.packet_identifier), _encoded(self.properties, SUBSCRIBE, version)]
        for each in self.subscriptions:
            options = each.options if version >= MQTT_5 else each.qos
            parts += fields.utf8_string(each.topic_filter), bytes((options,))
        return b"".join(parts)


def _filters(reader: Reader, packet: Packet, how: Decoding) -> Any:
    """Read and yield the topic filters of a SUBSCRIBE or UNSUBSCRIBE. The caller reads each one's options."""
    if reader.end - reader.at > FILTERS_OCTETS_MAX:
        raise QuotaExceeded(f"{packet.NAME} with topic filters of more than {FILTERS_OCTETS_MAX} bytes")
    if not reader:
        raise ProtocolError(f"{packet.NAME} without a topic filter")  # [MQTT-3.8.3-2], [MQTT-3.10.3-2]
    count = 0
    while reader:
        count += 1
        if count > how.limits.subscriptions:
            raise QuotaExceeded(f"{packet.NAME} with more than {how.limits.subscriptions} topic filters")
        topic_filter = reader.utf8_string("topic filter")
        fault = topics.topic_filter_fault(topic_filter)
        if not fault and how.version >= MQTT_5 and topics.is_shared(topic_filter):
            fault = topics.shared_fault(topic_filter)
        if fault:
            raise reader.fault(fault)
        yield topic_filter


def _subscription(reader, topic_filter, version):
    options = reader.byte("subscription options")
    qos = options & 3
    if version < MQTT_5:
        if qos == 3 or options > 3 and version >= MQTT_3_1_1:
            raise reader.fault(f"requested QoS 0x{options:02X}")  # [MQTT-3-8.3-4]
        return Subscription(topic_filter, qos)
    if options & 0xC0:
        raise reader.fault(f"reserved subscription options are set: 0x{options:02X}")  # [MQTT-3.8.3-5]
    if qos == 3:
        raise ProtocolError(f"SUBSCRIBE with QoS 3 for {shown(topic_filter)}")
    if options >> 4 == 3:
        raise ProtocolError(f"SUBSCRIBE with retain handling 3 for {shown(topic_filter)}")
    if options & 4 and topics.is_shared(topic_filter):
        raise ProtocolError(f"SUBSCRIBE with no local for the shared {shown(topic_filter)}")  # [MQTT-3.8.3-4]
    return Subscription(topic_filter, qos, options & 4 != 0, options & 8 != 0, options >> 4)


class SubackPacket(Packet):
    """SUBACK: has a reason code for each topic filter of the SUBSCRIBE, in its order."""

    TYPE, NAME, SENDERS = SUBACK, "SUBACK", frozenset((SERVER,))
    FIELDS = (("packet_identifier", 0), ("reason_codes", ()), ("properties", None))
    __slots__ = _names(FIELDS)

    def decode(self, reader: Reader, how: Decoding) -> None:
        self.packet_identifier = _packet_identifier(reader)
        self.properties = _properties(reader, self.TYPE, how)
        codes: list[int] = []
        while reader:
            codes.append(_reason_code(reader, self, how))
        self.reason_codes = tuple(codes)

    def body(self, version: int) -> bytes:
        octets = fields.two_byte_integer(self.packet_identifier)
        return octets + _encoded(self.properties, self.TYPE, version) + bytes(self.reason_codes)


class UnsubscribePacket(Packet):
    """UNSUBSCRIBE: a client ends subscriptions."""

    TYPE, NAME, FLAGS, SENDERS = UNSUBSCRIBE, "UNSUBSCRIBE", 2, frozenset((CLIENT,))
    FIELDS = (("packet_identifier", 0), ("topic_filters", ()), ("properties", None))
    __slots__ = _names(FIELDS)

    def decode(self, reader: Reader, how: Decoding) -> None:
        self.packet_identifier = _packet_identifier(reader)
        self.properties = _properties(reader, UNSUBSCRIBE, how)
        self.topic_filters = tuple(_filters(reader, self, how))

    def body(self, version: int) -> bytes:
        octets = fields.two_byte_integer(self.packet_identifier)
        octets += _encoded(self.properties, UNSUBSCRIBE, version)
        return octets + b"".join(map(fields.utf8_string, self.topic_filters))


class UnsubackPacket(SubackPacket):
    """UNSUBACK: has a reason code for each topic filter of the UNSUBSCRIBE; none before MQTT 5."""

    TYPE, NAME = UNSUBACK, "UNSUBACK"
    __slots__ = ()

    def body(self, version: int) -> bytes:
        return super().body(version) if version >= MQTT_5 else fields.two_byte_integer(self.packet_identifier)


class PingreqPacket(Packet):
    """PINGREQ: the client shows that it is alive, and requests PINGRESP."""

    TYPE, NAME, SENDERS = PINGREQ, "PINGREQ", frozenset((CLIENT,))

    def decode(self, reader: Reader, how: Decoding) -> None:
        """Do nothing: the packet has no fields."""

    def body(self, version: int) -> bytes:
        return b""


class PingrespPacket(PingreqPacket):
    """PINGRESP: the answer to PINGREQ."""

    TYPE, NAME, SENDERS = PINGRESP, "PINGRESP", frozenset((SERVER,))


class DisconnectPacket(Packet):
    """DISCONNECT: announces a close. Before MQTT 5 only clients send it, without a reason code."""

    TYPE, NAME = DISCONNECT, "DISCONNECT"
    FIELDS = (("reason_code", 0), ("properties", None))
    __slots__ = _names(FIELDS)

    def decode(self, reader: Reader, how: Decoding) -> None:
        """Decode the fields. Properties, or reason code and properties, may be missing (§3.14.2)."""
        self.reason_code, self.properties = 0, {}
        if how.version >= MQTT_5 and reader:
            self.reason_code = _reason_code(reader, self, how)
            if reader:
                self.properties = _properties(reader, DISCONNECT, how)

    def body(self, version: int) -> bytes:
        if version < MQTT_5 or not self.reason_code and not self.properties:
            return b""
        octets = bytes((self.reason_code,))
        return octets + encode_properties(self.properties, DISCONNECT) if self.properties else octets


class AuthPacket(Packet):
    """AUTH: one step of an authentication exchange (MQTT 5)."""

    TYPE, NAME, SINCE = AUTH, "AUTH", MQTT_5
    FIELDS = (("reason_code", 0), ("properties", None))
    __slots__ = _names(FIELDS)

    def decode(self, reader: Reader, how: Decoding) -> None:
        """Decode the fields. Reason code and properties may be missing together (§3.15.2.1)."""
        self.reason_code, self.properties = 0, {}
        if reader:
            self.reason_code = _reason_code(reader, self, how)
            self.properties = _properties(reader, AUTH, how)

    def body(self, version: int) -> bytes:
        if not self.reason_code and not self.properties:
            return b""
        return bytes((self.reason_code,)) + encode_properties(self.properties, AUTH)


PACKETS = {
    packet.TYPE: packet
    for packet in (
        ConnectPacket, ConnackPacket, PublishPacket, PubackPacket, PubrecPacket, PubrelPacket, PubcompPacket,
        SubscribePacket, SubackPacket, UnsubscribePacket, UnsubackPacket, PingreqPacket, PingrespPacket,
        DisconnectPacket, AuthPacket,
    )
}


def check_flags(packet, flags, version):
    """Raise MalformedPacket if a packet class may not have these flags in its first byte [MQTT-2.1.3-1]."""
    if packet.TYPE == PUBLISH:
        if flags & 6 == 6:
            raise MalformedPacket("PUBLISH with QoS 3")  # [MQTT-3.3.1-4]
        if flags & 6 == 0 and flags & DUP_FLAG and version >= MQTT_3_1_1:
            raise MalformedPacket("PUBLISH with DUP at QoS 0")  # [MQTT-3.3.1-2]
    elif flags != packet.FLAGS and version >= MQTT_3_1_1:
        raise MalformedPacket(f"{packet.NAME} with flags 0x{flags:X} instead of 0x{packet.FLAGS:X}")
