"""Codec: which packet may come when, limits by the head alone, streams cut anywhere, and the last packet
before a close.
"""
import pytest
from hypothesis import given
from hypothesis import strategies as st

from gomq_py.mqtt.wire import errors
from gomq_py.mqtt.wire.codec import (
    PacketReader, PublishHead, check_first_octet, decode_fixed_header, decode_publish_head, last_packet,
)
from gomq_py.mqtt.wire.constants import (
    CLIENT, MQTT_3_1_1, MQTT_5, NO_VERSION, SERVER, PacketLimits,
)
from gomq_py.mqtt.wire.packets import (
    ConnectPacket, PingreqPacket, PublishPacket, SubscribePacket, Subscription,
)

STREAM = [
    ConnectPacket(version=5, client_identifier="i"), PingreqPacket(),
    SubscribePacket(packet_identifier=1, subscriptions=(Subscription("#", 2),)),
    PublishPacket(topic_name="a", payload=bytes(300)),
    PublishPacket(topic_name="a", qos=1, packet_identifier=9),
]


def test_before_connect_nothing_else_may_come():
    """[MQTT-3.1.0-1]"""
    accepted = []
    for first in range(256):
        try:
            check_first_octet(first, NO_VERSION, CLIENT)
        except errors.MQTTError as error:
            assert error.reason_code in (0x81, 0x82)
        else:
            accepted.append(first)

    assert accepted == list(range(0x10, 0x20))  # the flags of CONNECT are for its version to judge


@pytest.mark.parametrize(("octets", "found"), [
    (b"", None), (b"\x30", None), (b"\x30\x80", None), (b"\x30\x00", 2), (b"\x30\x7f", 129),
    (b"\x30\x80\x01", 131),
    (b"\x30\xff\xff\xff\x7f", 268435460),
])
def test_fixed_headers_tell_where_the_packet_ends_before_it_is_there(octets, found):
    head = decode_fixed_header(octets, 0, len(octets), MQTT_5, CLIENT)

    assert (head and head[2]) == found


@pytest.mark.parametrize(("octets", "version", "code"), [
    (b"\x30\xff\xff\xff\xff", MQTT_3_1_1, 0x81), (b"\x30\xff\xff\xff\xff\x7f", MQTT_5, 0x81),
    (b"\x30\x80\x00", MQTT_5, 0x81),
    (b"\x36", MQTT_5, 0x81), (b"\x30\x63", MQTT_5, 0x95), (b"\x30\xff\xff\xff\x7f", MQTT_3_1_1, 0x95),
])
def test_fixed_headers_that_are_wrong_are_refused_by_themselves(octets, version, code):
    with pytest.raises(errors.MQTTError) as caught:
        decode_fixed_header(octets, 0, len(octets), version, CLIENT, PacketLimits(packet_octets=100))

    assert caught.value.reason_code == code


def test_a_remaining_length_of_more_octets_than_it_needs_passes_before_mqtt_5():
    assert decode_fixed_header(b"\xc0\x80\x00", 0, 3, MQTT_3_1_1, CLIENT)[1:] == (3, 3)


@given(st.lists(st.integers(1, 400), max_size=6))
def test_a_stream_cut_anywhere_is_the_same_packets(cuts):
    octets = b"".join(packet.encode(MQTT_5) for packet in STREAM)
    ends = sorted(min(cut, len(octets)) for cut in cuts)
    reader, received = PacketReader(NO_VERSION, CLIENT), []

    for start, end in zip([0, *ends], [*ends, len(octets)]):
        reader.feed(octets[start:end])
        received += iter(reader.next_packet, None)

    assert received == STREAM
    assert reader.version == MQTT_5


@pytest.mark.parametrize(("error", "version", "connected", "octets"), [
    (errors.MalformedPacket(), MQTT_5, True, b"\xe0\x01\x81"),
    (errors.ProtocolError(), MQTT_5, True, b"\xe0\x01\x82"),
    (errors.PacketTooLarge(), MQTT_5, True, b"\xe0\x01\x95"),
    (errors.QuotaExceeded(), MQTT_5, True, b"\xe0\x01\x97"),
    (errors.TopicAliasInvalid(), MQTT_5, True, b"\xe0\x01\x94"),
    (errors.ClientIdentifierNotValid(), MQTT_5, True, b"\xe0\x01\x80"),  # no code of DISCONNECT
    (errors.MalformedPacket(), MQTT_3_1_1, True, b""),
    (errors.MalformedPacket(), MQTT_5, False, b"\x20\x03\x00\x81\x00"),
    (errors.TopicAliasInvalid(), MQTT_5, False, b"\x20\x03\x00\x80\x00"),  # no code of CONNACK
    (errors.MalformedPacket(), MQTT_3_1_1, False, b""),
    (errors.ClientIdentifierNotValid(), MQTT_3_1_1, False, b"\x20\x02\x00\x02"),  # [MQTT-3.1.3-8]
    (errors.UnsupportedProtocolVersion(), NO_VERSION, False, b"\x20\x02\x00\x01"),  # [MQTT-3.1.2-2]
    (errors.MalformedPacket(), NO_VERSION, False, b""),
])
def test_the_last_packet_tells_why_where_the_version_can(error, version, connected, octets):
    assert last_packet(error, version, connected) == octets


def test_the_last_packet_speaks_the_version_that_the_refused_connect_names():
    reader = PacketReader(NO_VERSION, CLIENT)
    reader.feed(b"\x10\x0d\x00\x04MQTT\x05\x03\x00\x00\x00\x00\x00")

    with pytest.raises(errors.MalformedPacket) as caught:
        reader.next_packet()

    assert last_packet(caught.value, NO_VERSION, False) == b"\x20\x03\x00\x81\x00"


def test_a_server_of_mqtt_3_1_1_sends_no_disconnect():
    with pytest.raises(errors.ProtocolError, match="DISCONNECT from a server"):
        check_first_octet(0xE0, MQTT_3_1_1, SERVER)


@pytest.mark.parametrize("octets, version, head_octets, head", [
    (b"\x30\x07\x00\x03a/bhi", MQTT_3_1_1, 7, PublishHead(0, 0, b"a/b", 0, 2)),
    (b"\x32\x09\x00\x03a/b\x01\x02hi", MQTT_3_1_1, 9, PublishHead(1, 258, b"a/b", 0, 2)),
    # the length of its properties is enough
    (b"\x34\x0d\x00\x03a/b\x01\x02\x03\x23\x00\x01hi", MQTT_5, 10, PublishHead(2, 258, b"a/b", 0, 2)),
    # and of an alias all of them
    (b"\x30\x08\x00\x00\x03\x23\x00\x01hi", MQTT_5, 8, PublishHead(0, 0, b"", 1, 2)),
])
def test_head_of_a_publish_is_known_before_its_payload(octets, version, head_octets, head):
    known = [decode_publish_head(b"before" + octets[:count], 6, version) for count in range(len(octets) + 1)]

    assert known == [None] * head_octets + [head] * (len(octets) + 1 - head_octets)


@pytest.mark.parametrize("octets", [
    b"\x30\x04\x00\x03ab",  # a topic that does not fit into the packet
    b"\x30\x08\x00\x03a/#\x00hi", b"\x30\x08\x00\x03a\xff/\x00hi",
    b"\x30\x08\x00\x03a/b\x03hi",  # nor do the properties
    b"\x30\x0b\x00\x03a/b\xff\xff\xff\xffhi", b"\x30\x05\x00\x00\x00hi",
])
def test_head_of_a_publish_that_is_wrong_is_refused(octets):
    with pytest.raises(errors.MQTTError):
        decode_publish_head(octets, 0, MQTT_5)
