"""Packets: literal octets, among them the specifications' examples, decoded and encoded; and what is refused,
with which code.
"""
import pytest

from gomq_py.mqtt.wire import packets
from gomq_py.mqtt.wire.codec import decode_packet
from gomq_py.mqtt.wire.constants import (
    CLIENT, DEFAULT_LIMITS, MQTT_3_1, MQTT_3_1_1, MQTT_5, NO_VERSION, SERVER, PacketLimits,
)
from gomq_py.mqtt.wire.errors import MQTTError, QuotaExceeded
from gomq_py.mqtt.wire.packets import (
    AuthPacket, ConnackPacket, ConnectPacket, DisconnectPacket, PingreqPacket, PingrespPacket, PubackPacket,
    PubcompPacket, PublishPacket, PubrecPacket, PubrelPacket, SubackPacket, SubscribePacket, Subscription,
    UnsubackPacket, UnsubscribePacket, Will,
)

CONNECTS = [
    # The variable header is 3.1.1's example, then identifier, will and credentials as its flags have them.
    (
        b"\x10\x1c\x00\x04MQTT\x04\xce\x00\x0a\x00\x01i\x00\x01w\x00\x03bye\x00\x01u\x00\x02pw",
        ConnectPacket(
            version=4, clean_start=True, keep_alive_s=10, client_identifier="i", will=Will("w", b"bye", 1),
            user_name="u", password=b"pw",
        ),
    ),
    (
        b"\x10\x0d\x00\x04MQTT\x04\x00\x00\x00\x00\x01i",
        ConnectPacket(version=4, clean_start=False, client_identifier="i"),
    ),
    (b"\x10\x0c\x00\x04MQTT\x04\x02\x00\x3c\x00\x00", ConnectPacket(version=4, keep_alive_s=60)),
    (
        b"\x10\x0f\x00\x06MQIsdp\x03\x02\x00\x3c\x00\x01i",
        ConnectPacket(version=3, keep_alive_s=60, client_identifier="i"),
    ),
    # The variable header is MQTT 5's example, with a session expiry interval of 10.
    (b"\x10\x27\x00\x04MQTT\x05\xce\x00\x0a\x05\x11\x00\x00\x00\x0a\x00\x01i"
     b"\x05\x18\x00\x00\x00\x07\x00\x01w\x00\x02\x00\xff\x00\x01u\x00\x02pw",
     ConnectPacket(version=5, clean_start=True, keep_alive_s=10, properties={"session_expiry_interval": 10},
                   client_identifier="i", will=Will("w", b"\x00\xff", 1, False, {"will_delay_interval": 7}),
                   user_name="u",
                   password=b"pw")),
    (b"\x10\x12\x00\x04MQTT\x05\x40\x00\x00\x00\x00\x01i\x00\x02pw",
     ConnectPacket(version=5, clean_start=False, client_identifier="i", password=b"pw")),
    (b"\x10\x15\x00\x04MQTT\x05\x34\x00\x00\x00\x00\x00\x00\x00\x01w\x00\x02hi",
     ConnectPacket(version=5, clean_start=False, will=Will("w", b"hi", 2, True))),
]
OF_CLIENTS = [
    (4, b"\x30\x07\x00\x03a/bhi", PublishPacket(topic_name="a/b", payload=b"hi")),
    # the examples of §3.3.2
    (4, b"\x32\x07\x00\x03a/b\x00\x0a", PublishPacket(topic_name="a/b", qos=1, packet_identifier=10)),
    (5, b"\x32\x08\x00\x03a/b\x00\x0a\x00", PublishPacket(topic_name="a/b", qos=1, packet_identifier=10)),
    (4, b"\x3d\x08\x00\x03a/b\xff\xffx",
     PublishPacket(topic_name="a/b", qos=2, retain=True, dup=True, packet_identifier=65535, payload=b"x")),
    (5, b"\x30\x08\x00\x00\x03\x23\x00\x01hi", PublishPacket(payload=b"hi", properties={"topic_alias": 1})),
    (4, b"\x40\x02\x04\xd2", PubackPacket(packet_identifier=1234)),
    (5, b"\x40\x02\x04\xd2", PubackPacket(packet_identifier=1234)),
    (5, b"\x40\x03\x04\xd2\x10", PubackPacket(packet_identifier=1234, reason_code=0x10)),
    (5, b"\x50\x0a\x04\xd2\x97\x06\x1f\x00\x03out",
     PubrecPacket(packet_identifier=1234, reason_code=0x97, properties={"reason_string": "out"})),
    (4, b"\x62\x02\x00\x01", PubrelPacket(packet_identifier=1)),
    (5, b"\x62\x03\x00\x01\x92", PubrelPacket(packet_identifier=1, reason_code=0x92)),
    (4, b"\x70\x02\x00\x01", PubcompPacket(packet_identifier=1)),
    # The examples of §3.8.2 and §3.8.3: "a/b" with QoS 1, "c/d" with QoS 2.
    (4, b"\x82\x0e\x00\x0a\x00\x03a/b\x01\x00\x03c/d\x02",
     SubscribePacket(packet_identifier=10, subscriptions=(Subscription("a/b", 1), Subscription("c/d", 2)))),
    (5, b"\x82\x0f\x00\x0a\x00\x00\x03a/b\x01\x00\x03c/d\x02",
     SubscribePacket(packet_identifier=10, subscriptions=(Subscription("a/b", 1), Subscription("c/d", 2)))),
    (5, b"\x82\x11\x00\x0a\x02\x0b\x05\x00\x03a/#\x2e\x00\x03a/b\x10",
     SubscribePacket(packet_identifier=10, properties={"subscription_identifier": 5}, subscriptions=(
         Subscription("a/#", 2, True, True, 2), Subscription("a/b", 0, False, False, 1)))),
    # The example of §3.10.3
    (
        4, b"\xa2\x0c\x00\x0a\x00\x03a/b\x00\x03c/d",
        UnsubscribePacket(packet_identifier=10, topic_filters=("a/b", "c/d")),
    ),
    (
        5, b"\xa2\x0d\x00\x0a\x00\x00\x03a/b\x00\x03c/d",
        UnsubscribePacket(packet_identifier=10, topic_filters=("a/b", "c/d")),
    ),
    (4, b"\xc0\x00", PingreqPacket()),
    (4, b"\xe0\x00", DisconnectPacket()),
    (5, b"\xe0\x00", DisconnectPacket()),
    (5, b"\xe0\x01\x04", DisconnectPacket(reason_code=4)),
    (5, b"\xe0\x07\x00\x05\x11\x00\x00\x00\x09", DisconnectPacket(properties={"session_expiry_interval": 9})),
    (5, b"\xf0\x00", AuthPacket()),
    (
        5, b"\xf0\x06\x19\x04\x15\x00\x01m",
        AuthPacket(reason_code=0x19, properties={"authentication_method": "m"}),
    ),
]
OF_SERVERS = [
    (4, b"\x20\x02\x00\x00", ConnackPacket()),
    (4, b"\x20\x02\x01\x00", ConnackPacket(session_present=True)),
    (4, b"\x20\x02\x00\x05", ConnackPacket(reason_code=5)),
    (5, b"\x20\x03\x00\x87\x00", ConnackPacket(reason_code=0x87)),
    (
        5, b"\x20\x06\x01\x00\x03\x21\x00\x0a",
        ConnackPacket(session_present=True, properties={"receive_maximum": 10}),
    ),
    (5, b"\x30\x0a\x00\x03a/b\x04\x0b\x01\x0b\x02",
     PublishPacket(topic_name="a/b", properties={"subscription_identifier": [1, 2]})),
    # The example of 3.1.1, §3.9.3: maximum QoS 0, maximum QoS 2, failure.
    (4, b"\x90\x05\x00\x0a\x00\x02\x80", SubackPacket(packet_identifier=10, reason_codes=(0, 2, 0x80))),
    (5, b"\x90\x05\x00\x0a\x00\x01\x8f", SubackPacket(packet_identifier=10, reason_codes=(1, 0x8F))),
    (4, b"\xb0\x02\x00\x0a", UnsubackPacket(packet_identifier=10)),
    (5, b"\xb0\x05\x00\x0a\x00\x00\x11", UnsubackPacket(packet_identifier=10, reason_codes=(0, 0x11))),
    (4, b"\xd0\x00", PingrespPacket()),
    (5, b"\xe0\x01\x8e", DisconnectPacket(reason_code=0x8E)),
]


def refusal(octets, version, sender=CLIENT, limits=DEFAULT_LIMITS):
    with pytest.raises(MQTTError) as caught:
        decode_packet(octets, version, sender, limits)
    return caught.value


@pytest.mark.parametrize(("octets", "packet"), CONNECTS)
def test_connects_are_these_octets(octets, packet):
    assert decode_packet(octets, NO_VERSION, CLIENT) == packet
    assert packet.encode(NO_VERSION) == octets


@pytest.mark.parametrize(("version", "octets", "packet"), OF_CLIENTS)
def test_packets_of_clients_are_these_octets(version, octets, packet):
    assert decode_packet(octets, version, CLIENT) == packet
    assert packet.encode(version) == octets


@pytest.mark.parametrize(("version", "octets", "packet"), OF_SERVERS)
def test_packets_of_servers_are_these_octets(version, octets, packet):
    assert decode_packet(octets, version, SERVER) == packet
    assert packet.encode(version) == octets


def test_every_packet_type_has_its_octets_here():
    seen = {type(packet) for *_, packet in (*CONNECTS, *OF_CLIENTS, *OF_SERVERS)}

    assert seen == set(packets.PACKETS.values())
    assert sorted(packets.PACKETS) == list(range(1, 16))


@pytest.mark.parametrize(("version", "octets"), [
    *((NO_VERSION, octets) for octets, _ in CONNECTS),
    *((version, octets) for version, octets, _ in OF_CLIENTS)])
def test_packets_cut_short_or_too_long_are_refused(version, octets):
    """Wherever the cut is, with a remaining length that fits it: what may be missing from the end is told
    apart.
    """
    for length in range(len(octets) - 2):
        cut = bytes((octets[0], length)) + octets[2:2 + length]
        try:
            packet = decode_packet(cut, version, CLIENT)
        except MQTTError as error:
            assert error.reason_code in (0x81, 0x82, 0x85), cut
        else:
            assert may_end_here(packet, version), cut
    longer = bytes((octets[0], octets[1] + 1)) + octets[2:] + b"\x00"
    if not isinstance(decode_packet(octets, version, CLIENT), PublishPacket):
        try:
            packet = decode_packet(longer, version, CLIENT)
        except MQTTError as error:
            assert error.reason_code in (0x81, 0x82)
        else:
            assert (
                version == MQTT_5
                and isinstance(packet, PubackPacket | PubrecPacket | PubrelPacket | DisconnectPacket)
            )


def may_end_here(packet, version):
    """PUBLISH's payload, further filters, reason codes and properties of MQTT 5, and 3.1's credentials may be
    missing.
    """
    if isinstance(packet, ConnectPacket):
        return packet.version == MQTT_3_1
    return isinstance(packet, PublishPacket | SubscribePacket | UnsubscribePacket) or version == MQTT_5


@pytest.mark.parametrize(("octets", "code", "text"), [
    (b"\x10\x0c\x00\x04MQTX\x04\x02\x00\x00\x00\x00", 0x81, "protocol name 'MQTX'"),  # [MQTT-3.1.2-1]
    (b"\x10\x0c\x00\x04mqtt\x04\x02\x00\x00\x00\x00", 0x81, "protocol name 'mqtt'"),
    (b"\x10\x0c\x00\x04MQTT\x06\x02\x00\x00\x00\x00", 0x84, "protocol version 6 of MQTT"),  # [MQTT-3.1.2-2]
    (b"\x10\x0c\x00\x04MQTT\x03\x02\x00\x00\x00\x00", 0x84, "protocol version 3 of MQTT"),
    (b"\x10\x0e\x00\x06MQIsdp\x04\x02\x00\x00\x00\x00", 0x84, "protocol version 4 of MQIsdp"),
    # a bridge of Mosquitto has no such bit in MQTT 5
    (b"\x10\x0d\x00\x04MQTT\x85\x02\x00\x00\x00\x00\x00", 0x84, "protocol version 133"),
    (b"\x10\x0c\x00\x04MQTT\x83\x02\x00\x00\x00\x00", 0x84, "protocol version 3 of MQTT"),
    (b"\x10\x0c\x00\x04MQTT\x04\x03\x00\x00\x00\x00", 0x81, "reserved connect flag"),  # [MQTT-3.1.2-3]
    # [MQTT-2.2.2-2]
    (b"\x11\x0c\x00\x04MQTT\x04\x02\x00\x00\x00\x00", 0x81, "CONNECT with flags 0x1 instead of 0x0"),
    (b"\x10\x0c\x00\x04MQTT\x04\x0a\x00\x00\x00\x00", 0x81, "will QoS or will retain without a will"),
    (b"\x10\x0c\x00\x04MQTT\x04\x22\x00\x00\x00\x00", 0x81, "will QoS or will retain without a will"),
    (b"\x10\x11\x00\x04MQTT\x04\x1e\x00\x00\x00\x00\x00\x01w\x00\x00", 0x81, "will QoS 3"),  # [MQTT-3.1.2-14]
    (
        b"\x10\x11\x00\x04MQTT\x04\x06\x00\x00\x00\x00\x00\x01#\x00\x00", 0x81,
        "will: topic name '#' contains a wildcard",
    ),
    (b"\x10\x10\x00\x04MQTT\x04\x06\x00\x00\x00\x00\x00\x00\x00\x00", 0x81, "will: a topic name is at least"),
    # [MQTT-3.1.2-22]
    (b"\x10\x0f\x00\x04MQTT\x04\x42\x00\x00\x00\x00\x00\x01p", 0x81, "a password without a user name"),
    (b"\x10\x0c\x00\x04MQTT\x04\x00\x00\x00\x00\x00", 0x85, "needs a client identifier"),  # [MQTT-3.1.3-8]
    (b"\x10\x0d\x00\x04MQTT\x04\x02\x00\x00\x00\x01\x00", 0x81, "client identifier contains U+0000"),
    (b"\x10\x0d\x00\x04MQTT\x04\x02\x00\x00\x00\x01\n", 0x81, "control character"),
    (b"\x10\x0d\x00\x04MQTT\x04\x02\x00\x00\x00\x00x", 0x81, "1 bytes too many at its end"),
    # [MQTT-1.5.5-1]
    (b"\x10\x8d\x00\x00\x04MQTT\x05\x02\x00\x00\x00\x00\x00", 0x81, "more bytes than it needs"),
])
def test_connects_that_are_wrong_are_refused_with_their_reason_code(octets, code, text):
    error = refusal(octets, NO_VERSION)

    assert error.reason_code == code
    assert text in error.text


def test_an_error_in_a_connect_knows_the_version_it_names():
    assert refusal(b"\x10\x0c\x00\x04MQTT\x04\x03\x00\x00\x00\x00", NO_VERSION).version == MQTT_3_1_1
    assert refusal(b"\x10\x0d\x00\x04MQTT\x05\x03\x00\x00\x00\x00\x00", NO_VERSION).version == MQTT_5
    assert refusal(b"\x10\x0c\x00\x04MQTX\x04\x03\x00\x00\x00\x00", NO_VERSION).version == NO_VERSION


@pytest.mark.parametrize("flags", ["\xc2", "\x82"])
def test_a_connect_of_mqtt_3_1_may_lack_the_credentials_it_announces(flags):
    """Its remaining length takes precedence (MQTT 3.1 §3.1)."""
    octets = b"\x10\x0f\x00\x06MQIsdp\x03" + flags.encode("latin-1") + b"\x00\x00\x00\x01i"

    assert decode_packet(octets, NO_VERSION, CLIENT).user_name is None


@pytest.mark.parametrize(("version", "octets", "code", "text"), [
    (4, b"\x36\x07\x00\x03a/b\x00\x0a", 0x81, "PUBLISH with QoS 3"),  # [MQTT-3.3.1-4]
    (3, b"\x36\x07\x00\x03a/b\x00\x0a", 0x81, "PUBLISH with QoS 3"),
    (4, b"\x38\x05\x00\x03a/b", 0x81, "DUP at QoS 0"),  # [MQTT-3.3.1-2]
    (4, b"\x32\x07\x00\x03a/b\x00\x00", 0x82, "PUBLISH with packet identifier 0"),
    (4, b"\x30\x02\x00\x00", 0x81, "at least one character"),  # [MQTT-4.7.3-1]
    (5, b"\x30\x03\x00\x00\x00", 0x82, "neither a topic name nor a topic alias"),
    (4, b"\x30\x05\x00\x03a/+", 0x81, "topic name 'a/+' contains a wildcard"),  # [MQTT-3.3.2-2]
    (5, b"\x30\x06\x00\x03a/#\x00", 0x81, "topic name 'a/#' contains a wildcard"),
    (4, b"\x30\x05\x00\x03to\x00", 0x81, "topic name contains U+0000"),
    (4, b"\x30\x05\x00\x03\xed\xa0\x80", 0x81, "topic name is not well-formed UTF-8"),
    (4, b"\x30\x04\x00\x02\xc2\x9f", 0x81, "control character"),
    (4, b"\x40\x02\x00\x00", 0x82, "PUBACK with packet identifier 0"),
    (4, b"\x40\x03\x00\x01\x00", 0x81, "1 bytes too many"),
    (5, b"\x40\x03\x00\x01\x92", 0x82, "PUBACK with reason code 0x92"),
    (4, b"\x60\x02\x00\x01", 0x81, "PUBREL with flags 0x0 instead of 0x2"),  # [MQTT-3.6.1-1]
    (4, b"\x80\x08\x00\x0a\x00\x03a/b\x01", 0x81, "SUBSCRIBE with flags 0x0"),  # [MQTT-3.8.1-1]
    (4, b"\x82\x02\x00\x0a", 0x82, "SUBSCRIBE without a topic filter"),
    (5, b"\x82\x03\x00\x0a\x00", 0x82, "SUBSCRIBE without a topic filter"),
    (4, b"\x82\x08\x00\x0a\x00\x03a/b\x03", 0x81, "requested QoS 0x03"),  # [MQTT-3-8.3-4]
    (4, b"\x82\x08\x00\x0a\x00\x03a/b\x05", 0x81, "requested QoS 0x05"),
    (3, b"\x82\x08\x00\x0a\x00\x03a/b\x03", 0x81, "requested QoS 0x03"),
    (5, b"\x82\x09\x00\x0a\x00\x00\x03a/b\x41", 0x81, "reserved subscription options"),  # [MQTT-3.8.3-5]
    (5, b"\x82\x09\x00\x0a\x00\x00\x03a/b\x03", 0x82, "SUBSCRIBE with QoS 3"),
    (5, b"\x82\x09\x00\x0a\x00\x00\x03a/b\x30", 0x82, "retain handling 3"),
    (5, b"\x82\x10\x00\x0a\x00\x00\x0a$share/g/a\x04", 0x82, "no local for the shared"),  # [MQTT-3.8.3-4]
    (5, b"\x82\x0e\x00\x0a\x00\x00\x08$share/g\x00", 0x81, "no filter behind its share name"),
    (4, b"\x82\x0a\x00\x0a\x00\x05a/#/b\x00", 0x81, "# that is not its last level"),  # [MQTT-4.7.1-1]
    (4, b"\x82\x05\x00\x0a\x00\x00\x00", 0x81, "at least one character"),
    (4, b"\xa0\x07\x00\x0a\x00\x03a/b", 0x81, "UNSUBSCRIBE with flags 0x0"),  # [MQTT-3.10.1-1]
    (4, b"\xa2\x02\x00\x0a", 0x82, "UNSUBSCRIBE without a topic filter"),  # [MQTT-3.10.3-2]
    (4, b"\xc0\x01\x00", 0x81, "PINGREQ: 1 bytes too many"),
    (4, b"\xe0\x01\x00", 0x81, "DISCONNECT: 1 bytes too many"),
    (4, b"\xe1\x00", 0x81, "DISCONNECT with flags 0x1"),  # [MQTT-3.14.1-1]
    (5, b"\xe0\x01\x03", 0x82, "DISCONNECT with reason code 0x03"),
    (4, b"\xf0\x00", 0x81, "there is no packet type 15"),
    (5, b"\xf0\x01\x00", 0x81, "AUTH: property length takes 1 bytes"),
    (5, b"\x00\x00", 0x81, "there is no packet type 0"),
    (5, b"\x10\x0d\x00\x04MQTT\x05\x02\x00\x00\x00\x00\x00", 0x82, "a second CONNECT"),  # [MQTT-3.1.0-2]
    (5, b"\x20\x03\x00\x00\x00", 0x82, "CONNACK from a client"),
    (4, b"\xd0\x00", 0x82, "PINGRESP from a client"),
])
def test_packets_of_clients_that_are_wrong_are_refused_with_their_reason_code(version, octets, code, text):
    error = refusal(octets, version)

    assert error.reason_code == code
    assert text in error.text


@pytest.mark.parametrize("octets", [
    b"\xe0\x00", b"\x82\x08\x00\x0a\x00\x03a/b\x01", b"\x20\x02\x02\x00", b"\x20\x02\x00\x06",
    b"\x90\x03\x00\x0a\x03",
    b"\xb0\x03\x00\x0a\x00"])
def test_packets_of_servers_that_are_wrong_are_refused(octets):
    assert refusal(octets, MQTT_3_1_1, SERVER).reason_code in (0x81, 0x82)


def test_flags_that_mqtt_3_1_leaves_open_are_not_looked_at():
    """It repeats SUBSCRIBE and PUBREL with DUP."""
    assert decode_packet(b"\x6a\x02\x00\x01", MQTT_3_1, CLIENT) == PubrelPacket(packet_identifier=1)
    assert decode_packet(b"\x8a\x08\x00\x0a\x00\x03a/b\x01", MQTT_3_1, CLIENT).subscriptions == (
        Subscription("a/b", 1),
    )


def test_more_filters_than_the_limit_are_refused_as_a_quota():
    limits = PacketLimits(subscriptions=3)
    filters = b"\x00\x01a\x00"

    assert (
        len(decode_packet(b"\x82\x0e\x00\x01" + filters * 3, MQTT_3_1_1, CLIENT, limits).subscriptions) == 3
    )
    assert refusal(b"\x82\x12\x00\x01" + filters * 4, MQTT_3_1_1, CLIENT, limits).reason_code == 0x97
    assert refusal(b"\xa2\x0e\x00\x01" + b"\x00\x01a" * 4, MQTT_3_1_1, CLIENT, limits).reason_code == 0x97


def test_a_field_that_a_packet_does_not_have_is_an_error():
    with pytest.raises(TypeError, match="PUBACK has no field topic"):
        PubackPacket(topic="a")


@pytest.mark.parametrize("kind", [b"\x82", b"\xa2"])
def test_filters_of_more_octets_than_any_server_accepts_are_refused_unread(kind):
    option = b"\1" if kind == b"\x82" else b""
    body = b"\0\1\0" + (b"\xff\xff" + b"x" * 65535 + option) * 17
    length = bytearray()
    left = len(body)
    while left:
        length.append(left & 127 | (128 if left > 127 else 0))
        left >>= 7

    with pytest.raises(QuotaExceeded, match="more than 1048576 bytes"):
        decode_packet(kind + bytes(length) + body, MQTT_5, CLIENT, PacketLimits())
