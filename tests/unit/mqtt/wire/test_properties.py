"""Properties: the table against the specification's, each property in octets, and what is refused with which
reason code.
"""
import pytest

from gomq_py.mqtt.wire import constants
from gomq_py.mqtt.wire.constants import (
    AUTH, CLIENT, CONNACK, CONNECT, DISCONNECT, MQTT_5, PUBACK, PUBLISH, SERVER, SUBSCRIBE, UNSUBSCRIBE, WILL,
    PacketLimits,
)
from gomq_py.mqtt.wire.errors import MQTTError
from gomq_py.mqtt.wire.fields import Reader
from gomq_py.mqtt.wire.properties import PROPERTIES, decode_properties, encode_properties, encode_values

# Table 2-4 (§2.2.2.2), written down by hand: identifier, type, packets.
TABLE = """
1 Byte | PUBLISH WILL
2 Four Byte Integer | PUBLISH WILL
3 UTF-8 Encoded String | PUBLISH WILL
8 UTF-8 Encoded String | PUBLISH WILL
9 Binary Data | PUBLISH WILL
11 Variable Byte Integer | PUBLISH SUBSCRIBE
17 Four Byte Integer | CONNECT CONNACK DISCONNECT
18 UTF-8 Encoded String | CONNACK
19 Two Byte Integer | CONNACK
21 UTF-8 Encoded String | CONNECT CONNACK AUTH
22 Binary Data | CONNECT CONNACK AUTH
23 Byte | CONNECT
24 Four Byte Integer | WILL
25 Byte | CONNECT
26 UTF-8 Encoded String | CONNACK
28 UTF-8 Encoded String | CONNACK DISCONNECT
31 UTF-8 Encoded String | CONNACK PUBACK PUBREC PUBREL PUBCOMP SUBACK UNSUBACK DISCONNECT AUTH
33 Two Byte Integer | CONNECT CONNACK
34 Two Byte Integer | CONNECT CONNACK
35 Two Byte Integer | PUBLISH
36 Byte | CONNACK
37 Byte | CONNACK
38 UTF-8 String Pair | CONNECT CONNACK PUBLISH WILL PUBACK PUBREC PUBREL PUBCOMP SUBSCRIBE SUBACK UNSUBSCRIBE UNSUBACK DISCONNECT AUTH
39 Four Byte Integer | CONNECT CONNACK
40 Byte | CONNACK
41 Byte | CONNACK
42 Byte | CONNACK
"""
EVERY_PUBLISH = {
    "payload_format_indicator": 1, "message_expiry_interval": 10, "content_type": "t",
    "response_topic": "r/s",
    "correlation_data": b"\x00\xff", "topic_alias": 5, "user_property": [("k", "v"), ("k", "")],
}


def decode(octets, packet, sender=CLIENT, limits=constants.DEFAULT_LIMITS):
    reader = Reader(octets, 0, len(octets), "PACKET", MQTT_5)
    found = decode_properties(reader, packet, sender, limits)
    assert not reader
    return found


def refusal(values, packet, sender=CLIENT, limits=constants.DEFAULT_LIMITS):
    with pytest.raises(MQTTError) as caught:
        decode(bytes((len(values),)) + values, packet, sender, limits)
    return caught.value.reason_code, caught.value.text


def test_table_is_the_specifications():
    rows = [line.replace("|", "").split() for line in TABLE.strip().splitlines()]
    packets = {int(words[0]): {word for word in words if hasattr(constants, word)} for words in rows}
    types = {
        int(line.split()[0]): line.split("|")[0].split(None, 1)[1].strip()
        for line in TABLE.strip().splitlines()
    }

    assert {number: {getattr(constants, name) for name in names} for number, names in packets.items()} == {
        number: set(row.packets) for number, row in PROPERTIES.items()}
    assert types == {number: row.type.name for number, row in PROPERTIES.items()}


@pytest.mark.parametrize(("properties", "packet", "octets"), [
    ({}, PUBLISH, b"\x00"),
    ({"payload_format_indicator": 1}, PUBLISH, b"\x02\x01\x01"),
    ({"message_expiry_interval": 10}, WILL, b"\x05\x02\x00\x00\x00\x0a"),
    ({"session_expiry_interval": 10}, CONNECT, b"\x05\x11\x00\x00\x00\x0a"),
    ({"receive_maximum": 20}, CONNECT, b"\x03\x21\x00\x14"),
    ({"subscription_identifier": 128}, SUBSCRIBE, b"\x03\x0b\x80\x01"),
    (
        {"user_property": [("a", "b"), ("a", "c")]}, UNSUBSCRIBE,
        b"\x0e\x26\x00\x01a\x00\x01b\x26\x00\x01a\x00\x01c",
    ),
    ({"reason_string": "no"}, PUBACK, b"\x05\x1f\x00\x02no"),
    (
        {"authentication_method": "m", "authentication_data": b"\x00"}, AUTH,
        b"\x08\x15\x00\x01m\x16\x00\x01\x00",
    ),
    ({"maximum_packet_size": 20}, CONNECT, b"\x05\x27\x00\x00\x00\x14"),
])
def test_properties_are_these_octets(properties, packet, octets):
    assert encode_properties(properties, packet) == octets
    assert decode(octets, packet) == properties


@pytest.mark.parametrize("length", range(len(encode_values(EVERY_PUBLISH, PUBLISH))))
def test_properties_cut_short_are_malformed_or_end_between_two(length):
    values = encode_values(EVERY_PUBLISH, PUBLISH)[:length]
    ends = [
        len(encode_values(dict(list(EVERY_PUBLISH.items())[:count]), PUBLISH))
        for count in range(len(EVERY_PUBLISH))
    ]
    ends.append(len(encode_values(EVERY_PUBLISH, PUBLISH)) - len(b"\x26\x00\x01k\x00\x00"))

    if length in ends:
        decode(bytes((length,)) + values, PUBLISH)
    else:
        assert refusal(values, PUBLISH)[0] == 0x81


@pytest.mark.parametrize(("values", "packet", "code", "text"), [
    (b"\x7f\x00", PUBLISH, 0x81, "there is no property 127"),
    (b"\x00\x00", PUBLISH, 0x81, "there is no property 0"),
    (b"\x80\x01\x00", PUBLISH, 0x81, "there is no property 128"),
    (b"\x81\x00\x01", PUBLISH, 0x81, "more bytes than it needs"),
    (b"\x11\x00\x00\x00\x01", PUBLISH, 0x81, "session_expiry_interval does not belong there"),
    (b"\x01\x01", CONNECT, 0x81, "payload_format_indicator does not belong there"),
    (b"\x01\x02", PUBLISH, 0x82, "payload_format_indicator is 2, not 0 or 1"),
    (b"\x01\x01\x01\x01", PUBLISH, 0x82, "payload_format_indicator occurs more than once"),
    (b"\x23\x00\x00", PUBLISH, 0x94, "topic_alias is 0"),
    (b"\x08\x00\x02a#", PUBLISH, 0x82, "response_topic: topic name 'a#' contains a wildcard"),
    (b"\x08\x00\x00", PUBLISH, 0x82, "at least one character"),
    (b"\x0b\x01", PUBLISH, 0x82, "subscription_identifier may not come from a client"),
    (b"\x0b\x00", SUBSCRIBE, 0x82, "subscription_identifier is 0"),
    (b"\x0b\x01\x0b\x02", SUBSCRIBE, 0x82, "more than once"),
    (b"\x21\x00\x00", CONNECT, 0x82, "receive_maximum is 0"),
    (b"\x27\x00\x00\x00\x00", CONNECT, 0x82, "maximum_packet_size is 0"),
    (b"\x17\x02", CONNECT, 0x82, "request_problem_information is 2"),
    (b"\x16\x00\x00", CONNECT, 0x82, "authentication data without an authentication method"),
    (b"\x26\x00\x01a", PUBLISH, 0x81, "the value of property user_property takes 2 bytes of which 0"),
])
def test_properties_that_are_wrong_are_refused_with_their_reason_code(values, packet, code, text):
    refused, said = refusal(values, packet)

    assert refused == code
    assert text in said


def test_what_only_one_side_may_send_is_refused_from_the_other():
    assert decode(b"\x04\x0b\x01\x0b\x02", PUBLISH, SERVER) == {"subscription_identifier": [1, 2]}
    assert decode(b"\x05\x11\x00\x00\x00\x00", DISCONNECT, CLIENT) == {"session_expiry_interval": 0}
    assert refusal(b"\x11\x00\x00\x00\x00", DISCONNECT, SERVER)[0] == 0x82
    assert refusal(b"\x1c\x00\x01s", DISCONNECT, CLIENT)[0] == 0x82


def test_more_properties_than_the_limit_are_refused_as_a_quota():
    pair = b"\x26\x00\x00\x00\x00"

    assert len(decode(b"\x14" + pair * 4, PUBLISH, limits=PacketLimits(properties=4))["user_property"]) == 4
    assert refusal(pair * 5, PUBLISH, limits=PacketLimits(properties=4)) == (0x97, "PACKET: more than 4 properties")


def test_a_length_beyond_the_packet_is_malformed():
    with pytest.raises(MQTTError) as caught:
        decode(b"\x7f\x01\x01", PUBLISH)

    assert caught.value.reason_code == 0x81


def test_what_a_packet_cannot_carry_is_not_encoded():
    for properties, packet in (
        ({"topic_alias": 1}, CONNECT), ({"nonsense": 1}, CONNECT), ({"server_keep_alive": 1}, DISCONNECT)
    ):
        with pytest.raises(ValueError, match="does not belong"):
            encode_properties(properties, packet)
    assert encode_properties({"server_keep_alive": 1}, CONNACK) == b"\x03\x13\x00\x01"
