"""Properties: decodes, encodes and checks the properties of MQTT 5 (§2.2.2), by one table.

On the wire: the length of all properties (a variable byte integer), then the identifier and value of each. In
Python: {name: value}; a property that may repeat has a list of values in their order.
"""
from collections.abc import Callable
from typing import NamedTuple

from gomq_py.mqtt.wire import fields
from gomq_py.mqtt.wire.constants import (
    AUTH, CLIENT, CONNACK, CONNECT, DEFAULT_LIMITS, DISCONNECT, PUBACK, PUBCOMP, PUBLISH, PUBREC, PUBREL,
    SERVER, SUBACK, SUBSCRIBE, UNSUBACK, UNSUBSCRIBE, WILL,
)
from gomq_py.mqtt.wire.errors import ProtocolError, QuotaExceeded, TopicAliasInvalid
from gomq_py.mqtt.wire.topics import topic_name_fault


class Type(NamedTuple):
    """A data type of property values. ``decode`` reads one from a Reader, ``encode`` returns its bytes."""

    name: str
    decode: Callable
    encode: Callable


BYTE = Type("Byte", fields.Reader.byte, fields.byte)
TWO_BYTE_INTEGER = Type("Two Byte Integer", fields.Reader.two_byte_integer, fields.two_byte_integer)
FOUR_BYTE_INTEGER = Type("Four Byte Integer", fields.Reader.four_byte_integer, fields.four_byte_integer)
VARIABLE_BYTE_INTEGER = Type(
    "Variable Byte Integer", fields.Reader.variable_byte_integer, fields.variable_byte_integer)
UTF8_STRING = Type("UTF-8 Encoded String", fields.Reader.utf8_string, fields.utf8_string)
BINARY_DATA = Type("Binary Data", fields.Reader.binary_data, fields.binary_data)
UTF8_STRING_PAIR = Type("UTF-8 String Pair", fields.Reader.utf8_string_pair, fields.utf8_string_pair)


class Property(NamedTuple):
    """A property of MQTT 5.

        packets              packet types that may have it
        repeats              packet types that may have it several times
        check(name, value)   raises an MQTTError for a bad value
        senders              {packet type: the only side that may send the property in it}
    """

    identifier: int
    name: str
    type: Type
    packets: tuple
    check: Callable | None = None
    repeats: tuple = ()
    senders: dict = {}


def _zero_or_one(name, value):
    if value > 1:
        raise ProtocolError(f"property {name} is {value}, not 0 or 1")


def _not_zero(name, value):
    if not value:
        raise ProtocolError(f"property {name} is 0")


def _topic_alias(name, value):
    if not value:
        raise TopicAliasInvalid(f"property {name} is 0")  # [MQTT-3.3.2-8]


def _topic_name(name, value):
    if fault := topic_name_fault(value):
        raise ProtocolError(f"property {name}: {fault}")  # [MQTT-3.3.2-14]


_APPLICATION = (PUBLISH, WILL)
_LOGIN = (CONNECT, CONNACK, AUTH)
_ANSWERS = (CONNACK, PUBACK, PUBREC, PUBREL, PUBCOMP, SUBACK, UNSUBACK, DISCONNECT, AUTH)
_EVERY = (*_ANSWERS, CONNECT, PUBLISH, WILL, SUBSCRIBE, UNSUBSCRIBE)

# Table 2-4 of the specification, in its order.
_ROWS = (
    Property(1, "payload_format_indicator", BYTE, _APPLICATION, _zero_or_one),
    Property(2, "message_expiry_interval", FOUR_BYTE_INTEGER, _APPLICATION),
    Property(3, "content_type", UTF8_STRING, _APPLICATION),
    Property(8, "response_topic", UTF8_STRING, _APPLICATION, _topic_name),
    Property(9, "correlation_data", BINARY_DATA, _APPLICATION),
    Property(11, "subscription_identifier", VARIABLE_BYTE_INTEGER, (PUBLISH, SUBSCRIBE), _not_zero,
             repeats=(PUBLISH,), senders={PUBLISH: SERVER}),  # [MQTT-3.3.4-6]
    Property(17, "session_expiry_interval", FOUR_BYTE_INTEGER, (CONNECT, CONNACK, DISCONNECT),
             senders={DISCONNECT: CLIENT}),  # [MQTT-3.14.2-2]
    Property(18, "assigned_client_identifier", UTF8_STRING, (CONNACK,)),
    Property(19, "server_keep_alive", TWO_BYTE_INTEGER, (CONNACK,)),
    Property(21, "authentication_method", UTF8_STRING, _LOGIN),
    Property(22, "authentication_data", BINARY_DATA, _LOGIN),
    Property(23, "request_problem_information", BYTE, (CONNECT,), _zero_or_one),
    Property(24, "will_delay_interval", FOUR_BYTE_INTEGER, (WILL,)),
    Property(25, "request_response_information", BYTE, (CONNECT,), _zero_or_one),
    Property(26, "response_information", UTF8_STRING, (CONNACK,)),
    Property(28, "server_reference", UTF8_STRING, (CONNACK, DISCONNECT), senders={DISCONNECT: SERVER}),
    Property(31, "reason_string", UTF8_STRING, _ANSWERS),
    Property(33, "receive_maximum", TWO_BYTE_INTEGER, (CONNECT, CONNACK), _not_zero),
    Property(34, "topic_alias_maximum", TWO_BYTE_INTEGER, (CONNECT, CONNACK)),
    Property(35, "topic_alias", TWO_BYTE_INTEGER, (PUBLISH,), _topic_alias),
    Property(36, "maximum_qos", BYTE, (CONNACK,), _zero_or_one),
    Property(37, "retain_available", BYTE, (CONNACK,), _zero_or_one),
    Property(38, "user_property", UTF8_STRING_PAIR, _EVERY, repeats=_EVERY),
    Property(39, "maximum_packet_size", FOUR_BYTE_INTEGER, (CONNECT, CONNACK), _not_zero),
    Property(40, "wildcard_subscription_available", BYTE, (CONNACK,), _zero_or_one),
    Property(41, "subscription_identifier_available", BYTE, (CONNACK,), _zero_or_one),
    Property(42, "shared_subscription_available", BYTE, (CONNACK,), _zero_or_one),
)
PROPERTIES = {row.identifier: row for row in _ROWS}
_BY_NAME = {row.name: row for row in _ROWS}


def decode_properties(reader, packet, sender, limits=DEFAULT_LIMITS):
    """Read the properties of ``packet`` (packet type or WILL) as {name: value}. Raises an MQTTError."""
    left = reader.part(reader.variable_byte_integer("property length"), "the properties")
    found = {}
    count = 0
    while left:
        count += 1
        if count > limits.properties:
            raise QuotaExceeded(f"{reader.packet}: more than {limits.properties} properties")
        identifier = left.variable_byte_integer("a property's identifier")
        row = PROPERTIES.get(identifier)
        if row is None:
            raise reader.fault(f"there is no property {identifier}")
        value = row.type.decode(left, f"property {row.name}")
        if packet not in row.packets:
            raise reader.fault(f"property {row.name} does not belong there")  # §2.2.2.2
        if row.senders.get(packet, sender) != sender:
            raise ProtocolError(f"{reader.packet}: property {row.name} may not come from a {sender}")
        if row.check is not None:
            row.check(row.name, value)
        if packet in row.repeats:
            found.setdefault(row.name, []).append(value)
        elif row.name in found:
            raise ProtocolError(f"{reader.packet}: property {row.name} occurs more than once")
        else:
            found[row.name] = value
    if "authentication_data" in found and "authentication_method" not in found:
        raise ProtocolError(f"{reader.packet}: authentication data without an authentication method")
    return found


def encode_properties(properties, packet):
    """Encode properties {name: value} after their length. Raises ValueError if ``packet`` cannot have one."""
    octets = encode_values(properties, packet)
    return fields.variable_byte_integer(len(octets)) + octets


def encode_values(properties, packet):
    """Encode properties {name: value} without a length. Raises ValueError if ``packet`` cannot have one."""
    parts = []
    for name, value in properties.items():
        row = _BY_NAME.get(name)
        if row is None or packet not in row.packets:
            raise ValueError(f"property {name!r} does not belong to packet type {packet}")
        for each in value if packet in row.repeats else (value,):
            parts += fields.variable_byte_integer(row.identifier), row.type.encode(each)
    return b"".join(parts)
