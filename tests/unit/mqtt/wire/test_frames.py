"""Frames: the walk over a read buffer and the writers, against literal octets and against the codec, which
knows nothing of them.
"""
import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from gomq_py.mqtt.wire import frames
from gomq_py.mqtt.wire.codec import decode_packet
from gomq_py.mqtt.wire.constants import (
    CLIENT, MQTT_3_1, MQTT_3_1_1, MQTT_5, NO_VERSION, PUBACK, PUBCOMP, PUBLISH, PUBREC,
    PUBREL, SERVER, PacketLimits,
)
from gomq_py.mqtt.wire.errors import MalformedPacket, PacketTooLarge
from gomq_py.mqtt.wire.frames import Acknowledgements, PacketWalk, encode_acknowledgement, encode_publish
from gomq_py.mqtt.wire.packets import PACKETS, PublishPacket
from gomq_py.mqtt.wire.properties import encode_values
from tests.support.mqtt_lanes import assert_equal_answers, walked

PROPERTIES = {
    "payload_format_indicator": 1, "message_expiry_interval": 3600, "content_type": "text/plain",
    "response_topic": "a/ä",
    "correlation_data": b"\x00\xff", "topic_alias": 5, "user_property": [("k", "v"), ("k", "\n")],
}
VERSIONS = (MQTT_3_1, MQTT_3_1_1, MQTT_5)


@pytest.mark.parametrize(("octets", "version", "fields"), [
    (b"\x30\x07\x00\x03a/bhi", MQTT_3_1_1, ("a/b", 0, 0, b"hi")),
    (b"\x33\x08\x00\x03a/b\x00\x0a!", MQTT_3_1_1, ("a/b", 1, 10, b"!")),
    (b"\x3d\x08\x00\x03a/b\x00\x0a\x00", MQTT_5, ("a/b", 2, 10, b"")),
    (b"\x30\x06\x00\x03a/b\x00", MQTT_5, ("a/b", 0, 0, b"")),
])
def test_a_publish_is_found_with_its_fields(octets, version, fields):
    (found,), end = walked(octets, version)

    assert end == len(octets)
    assert found[0] == PUBLISH
    assert tuple(found[1][name] for name in ("topic_name", "qos", "packet_identifier", "payload")) == fields
    assert (found[1]["dup"], found[1]["retain"]) == (octets[0] & 8 != 0, octets[0] & 1 != 0)


@pytest.mark.parametrize(("octets", "kind"), [
    (b"\x40\x02\x00\x0a", PUBACK), (b"\x50\x02\x00\x0a", PUBREC), (b"\x62\x02\x00\x0a", PUBREL),
    (b"\x70\x02\x00\x0a", PUBCOMP)])
def test_acknowledgements_are_found_with_their_identifier(octets, kind):
    for version in VERSIONS:
        assert walked(octets, version) == ([(kind, {"packet_identifier": 10}, 4)], 4)
    longer = octets[:1] + b"\x04" + octets[2:] + b"\x00\x00"
    assert walked(longer, MQTT_5) == ([(kind, {"packet_identifier": 10}, 6)], 6)
    assert walked(octets[:1] + b"\x03" + octets[2:] + b"\x92", MQTT_5)[0][0][1] is None


def test_properties_are_found_where_they_lie():
    octets = PublishPacket(topic_name="a", payload=b"p", properties=PROPERTIES).encode(MQTT_5)

    ((_, fields, _),), _ = assert_equal_answers(octets, MQTT_5)

    assert fields["properties"] == {
        "payload_format_indicator": 1, "message_expiry_interval": 3600, "topic_alias": 5}


def test_packets_follow_one_another_and_the_incomplete_one_stays():
    packets = b"\x30\x03\x00\x01a" + b"\xc0\x00" + b"\x40\x02\x00\x01" + b"\x30\x04\x00\x01ab"
    for cut in range(len(packets) + 1):
        found, end = assert_equal_answers(packets[:cut], MQTT_3_1_1)
        assert end == max(whole for whole in (0, 5, 7, 11, 17) if whole <= cut)
    assert [kind for kind, *_ in found] == [3, 12, 4, 3]


def test_a_walk_begins_where_it_is_told():
    assert walked(b"\xff\xff\xc0\x00", MQTT_5, start=2) == ([(12, None, 4)], 4)
    walk = PacketWalk(MQTT_5, CLIENT)
    for start, end in ((0, 5), (3, 2), (-1, 2)):
        with pytest.raises(IndexError):
            walk.begin(bytearray(4), start, end)


def test_after_connect_the_walk_is_told_the_version():
    walk = PacketWalk(NO_VERSION, CLIENT)
    buffer = bytearray(b"\x10\x0d\x00\x04MQTT\x05\x02\x00\x00\x00\x00\x00" + b"\x30\x04\x00\x01a\x00")
    walk.begin(buffer, 0, len(buffer))

    kinds = [walk.next_packet()]
    walk.set_version(walk.decode().version)
    kinds.append(walk.next_packet())

    assert kinds == [1, 3]
    assert walk.plain


def test_a_walk_is_told_new_limits():
    walk = PacketWalk(MQTT_3_1_1, CLIENT, PacketLimits(packet_octets=6))
    walk.begin(b"\x30\x05\x00\x01abc", 0, 7)
    with pytest.raises(PacketTooLarge, match="PUBLISH of 7 bytes, 6 are accepted"):
        walk.next_packet()

    walk.set_limits(PacketLimits(packet_octets=7))

    assert walk.next_packet() == PUBLISH


def test_more_properties_than_the_limit_are_left_to_the_codec():
    octets = PublishPacket(topic_name="a", properties={"user_property": [("", "")] * 3}).encode(MQTT_5)

    assert walked(octets, MQTT_5, limits=PacketLimits(properties=3))[0][0][1] is not None
    assert walked(octets, MQTT_5, limits=PacketLimits(properties=2))[0][0][1] is None
    assert_equal_answers(octets, MQTT_5, limits=PacketLimits(properties=2))


def test_what_the_walk_leaves_is_decoded_by_the_codec():
    walk = PacketWalk(MQTT_5, CLIENT)
    walk.begin(b"\x30\x05\x00\x02a#\x00", 0, 7)

    assert walk.next_packet() == PUBLISH
    assert not walk.plain
    with pytest.raises(MalformedPacket, match="wildcard"):
        walk.decode()


@pytest.mark.parametrize("values", [
    b"\x01\x01\x01\x01", b"\x02\x00\x00\x00\x01\x02\x00\x00\x00\x01", b"\x03\x00\x00\x03\x00\x00",
    b"\x08\x00\x01a\x08\x00\x01a", b"\x09\x00\x00\x09\x00\x00", b"\x23\x00\x01\x23\x00\x01",  # twice
    b"\x01", b"\x02\x00\x00\x00", b"\x03\x00", b"\x08\x00\x02a", b"\x09\x00\x01", b"\x23\x00",
    b"\x26\x00\x00\x00",
    b"\x26\x00\x01", b"\x0b", b"\x0b\x80",  # cut short
    b"\x0b\x80\x00", b"\x0b\x80\x80\x80\x80\x01", b"\x81\x00\x01", b"\x0b\x00", b"\x11\x00\x00\x00\x00",
])
def test_properties_that_are_wrong_are_left_to_the_codec(values):
    octets = encode_publish(MQTT_5, 0, b"a", 0, values, b"")
    for sender in (CLIENT, SERVER):
        ((_, fields, _),), _ = assert_equal_answers(octets, MQTT_5, sender)
        assert fields is None


@pytest.mark.parametrize(("octets", "version"), [
    (b"\x30\x05\x00\x01a\x80\x00", MQTT_5),  # a property length of more octets than it needs
    (b"\x30\x04\x00\x01a\x01", MQTT_5), (b"\x30\x03\x00\x01a", MQTT_5), (b"\x30\x03\x00\x02a", MQTT_5),
    (b"\x30\x00", MQTT_3_1_1), (b"\x30\x01\x00", MQTT_3_1_1), (b"\x32\x04\x00\x01a\x00", MQTT_3_1_1),
    (b"\x40\x00", MQTT_5), (b"\x40\x01\x00", MQTT_5), (b"\x40\x02\x00\x00", MQTT_5),
    (b"\x40\x03\x00\x01\x00", MQTT_3_1_1),
    (b"\x40\x03\x00\x01\x10", MQTT_5), (b"\x40\x04\x00\x01\x00\x01", MQTT_5),
    (b"\x40\x05\x00\x01\x00\x00\x00", MQTT_5),
    (b"\x40\x05\x00\x01\x00\x80\x00", MQTT_5),
])
def test_packets_that_are_wrong_or_rare_are_left_to_the_codec(octets, version):
    ((_, fields, _),), _ = assert_equal_answers(octets, version)

    assert fields is None


@pytest.mark.parametrize("version", [NO_VERSION, *VERSIONS])
@pytest.mark.parametrize("sender", [CLIENT, SERVER])
def test_every_first_octet_has_equal_answers(version, sender):
    for first in range(256):
        for rest in (b"", b"\x00", b"\x02\x00\x01", b"\x80\x00", b"\xff\xff\xff\xff", b"\xff\xff\xff\x7f"):
            assert_equal_answers(bytes((first,)) + rest, version, sender, PacketLimits(packet_octets=1000))


# Texts and octets near every border of UTF-8, and what topics may not hold.
PIECES = st.sampled_from((
    b"a", b"/", b"+", b"#", b"\x00", b"\x1f", b"\x20", b"\x7f", b"\x80", b"\xc2\x80", b"\xc2\x9f",
    b"\xc2\xa0", b"\xc1\xbf",
    b"\xdf\xbf", b"\xe0\x9f\xbf", b"\xe0\xa0\x80", b"\xed\x9f\xbf", b"\xed\xa0\x80", b"\xee\x80\x80",
    b"\xef\xbf\xbf",
    b"\xf0\x8f\xbf\xbf", b"\xf0\x90\x80\x80", b"\xf4\x8f\xbf\xbf", b"\xf4\x90\x80\x80", b"\xf5", b"\xe2\x82",
    b"\xf0\x9f\x92",
    b"\xe1\x80\x7f", b"\xf1\x80\x80\xc0"))
TEXTS = st.lists(PIECES, max_size=4).map(b"".join)


@settings(max_examples=400)
@given(TEXTS, st.sampled_from(VERSIONS))
def test_topics_of_any_octets_have_equal_answers(topic, version):
    assert_equal_answers(encode_publish(version, 0, topic, 0, b"", b"x"), version)


def length_first(octets):
    return len(octets).to_bytes(2, "big") + octets


VALUES = st.one_of(
    st.tuples(st.just(b"\x01"), st.sampled_from((b"\x00", b"\x01", b"\x02", b""))),
    st.tuples(st.just(b"\x02"), st.sampled_from((b"\x00\x00\x00\x09", b"\x00\x00"))),
    st.tuples(st.sampled_from((b"\x03", b"\x08", b"\x09")), TEXTS.map(length_first)),
    st.tuples(st.just(b"\x26"), st.tuples(TEXTS, TEXTS).map(lambda pair: b"".join(map(length_first, pair)))),
    st.tuples(st.just(b"\x23"), st.sampled_from((b"\x00\x00", b"\x00\x01", b"\xff\xff"))),
    st.tuples(
        st.just(b"\x0b"),
        st.sampled_from((b"\x01", b"\x00", b"\xff\x7f", b"\x80\x00", b"\xff\xff\xff\xff\x01")),
    ),
    st.tuples(st.integers(0, 255).map(lambda octet: bytes((octet,))), st.binary(max_size=5)),
).map(b"".join)


@settings(max_examples=600)
@given(
    st.lists(VALUES, max_size=5).map(b"".join), st.sampled_from((b"", b"a")),
    st.sampled_from((CLIENT, SERVER)), st.sampled_from((2, 256)),
)
def test_properties_of_any_octets_have_equal_answers(values, topic, sender, most):
    assert_equal_answers(
        encode_publish(MQTT_5, 0, topic, 0, values, b""), MQTT_5, sender, PacketLimits(properties=most)
    )


@settings(max_examples=600)
@given(
    st.lists(st.one_of(st.binary(max_size=12), st.tuples(
        st.sampled_from((0x30, 0x32, 0x34, 0x36, 0x38, 0x3B, 0x40, 0x50, 0x60, 0x62, 0x70, 0x82)),
        st.binary(max_size=9),
    ).map(lambda pair: bytes((pair[0], len(pair[1]))) + pair[1])), max_size=4).map(b"".join),
    st.sampled_from((NO_VERSION, *VERSIONS)), st.sampled_from((CLIENT, SERVER)),
    st.sampled_from((4, 8, 1000)),
)
def test_any_octets_have_equal_answers(octets, version, sender, most):
    limits = PacketLimits(packet_octets=most, properties=2, subscriptions=2)
    assert_equal_answers(octets, version, sender, limits)


@given(
    st.sampled_from(VERSIONS), st.sampled_from((0, 1, 2)), st.booleans(), st.integers(1, 65535),
    st.binary(max_size=40), st.sampled_from((0, 1, 90, 130, 16400)),
)
def test_written_publishes_are_the_codecs(version, qos, retain, packet_identifier, payload, user_octets):
    properties = {"user_property": [("k", "v" * user_octets)]} if user_octets and version == MQTT_5 else {}
    packet = PublishPacket(
        topic_name="a/ä", payload=payload, qos=qos, retain=retain, dup=qos > 0,
        packet_identifier=packet_identifier if qos else 0, properties=properties)
    flags = packet.encode(version)[0] & 0x0F

    written = encode_publish(
        version, flags, "a/ä".encode(), packet_identifier, encode_values(properties, PUBLISH), payload)

    assert written == packet.encode(version)
    assert decode_packet(written, version, CLIENT) == packet


@pytest.mark.parametrize("size", [
    0, 120, 121, 122, 123, 16376, 16377, 16378, 16379, 2097142, 2097143, 2097144
])
def test_publishes_of_every_length_of_the_remaining_length_are_written(size):
    packet = PublishPacket(topic_name="abc", payload=bytes(size))

    assert encode_publish(MQTT_3_1_1, 0, b"abc", 0, b"", bytes(size)) == packet.encode(MQTT_3_1_1)
    assert encode_publish(MQTT_5, 0, b"abc", 0, b"", bytes(size)) == packet.encode(MQTT_5)


@pytest.mark.parametrize("kind", [PUBACK, PUBREC, PUBREL, PUBCOMP])
def test_written_acknowledgements_are_the_codecs(kind):
    packet = PACKETS[kind](packet_identifier=1234)
    for version in VERSIONS:
        assert encode_acknowledgement(version, kind, 1234) == packet.encode(version)
    packet.reason_code = 0x92
    assert encode_acknowledgement(MQTT_5, kind, 1234, 0x92) == packet.encode(MQTT_5)


def test_a_topic_too_long_for_its_length_is_not_written():
    with pytest.raises(ValueError, match="a topic name of 65536 bytes"):
        encode_publish(MQTT_5, 0, bytes(65536), 0, b"", b"")


def test_first_octets_are_those_the_codec_accepts():
    assert frames.first_octets(NO_VERSION, CLIENT) == bytes(16) + b"\1" * 16 + bytes(224)
    assert [octet for octet, allowed in enumerate(frames.first_octets(MQTT_5, CLIENT)) if allowed] == [
        0x30, 0x31, 0x32, 0x33, 0x34, 0x35, 0x3A, 0x3B, 0x3C, 0x3D, 0x40, 0x50, 0x62, 0x70, 0x82, 0xA2, 0xC0,
        0xE0, 0xF0]


def test_acknowledgements_are_taken_in_their_order_and_once():
    answers = Acknowledgements(5)

    answers.add(PUBREL, 0x0102, 0)
    answers.add(PUBACK, 0x0304, 0x97)

    assert answers.used == 9
    assert answers.take() == bytes.fromhex("62 02 01 02  40 03 03 04 97")
    assert answers.used == 0 and answers.take() == b""


def test_acknowledgements_before_mqtt_5_have_no_reason_codes():
    answers = Acknowledgements(4)

    answers.add(PUBACK, 7, 0x97)

    assert answers.take() == bytes.fromhex("40 02 00 07")


def test_any_number_of_acknowledgements_fits():
    answers = Acknowledgements(4)

    for _ in range(2):  # what is kept for the next read is not in its way
        for identifier in range(1, 65536):
            answers.add(PUBREL, identifier, 0)
        expected = b"".join(b"\x62\x02" + identifier.to_bytes(2, "big") for identifier in range(1, 65536))
        assert answers.take() == expected
