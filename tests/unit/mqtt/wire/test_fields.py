"""Fields: literal octets of the specification (MQTT 5 §1.5), and what is refused."""
import pytest

from gomq_py.mqtt.wire import fields
from gomq_py.mqtt.wire.constants import MQTT_3_1_1, MQTT_5
from gomq_py.mqtt.wire.errors import MalformedPacket


def reader(octets, version=MQTT_5):
    return fields.Reader(octets, 0, len(octets), "PUBLISH", version)


@pytest.mark.parametrize(("value", "octets"), [
    # Table 1-1
    (0, b"\x00"), (127, b"\x7f"), (128, b"\x80\x01"), (16383, b"\xff\x7f"), (16384, b"\x80\x80\x01"),
    (2097151, b"\xff\xff\x7f"), (2097152, b"\x80\x80\x80\x01"), (268435455, b"\xff\xff\xff\x7f"),
])
def test_variable_byte_integers_are_those_of_the_table(value, octets):
    assert fields.variable_byte_integer(value) == octets
    assert reader(octets + b"rest").variable_byte_integer("it") == value


@pytest.mark.parametrize("octets", [b"\xff\xff\xff\xff\x7f", b"\x80\x80\x80\x80", b"\x80", b""])
def test_a_variable_byte_integer_of_more_than_four_octets_or_cut_short_is_malformed(octets):
    for version in (MQTT_3_1_1, MQTT_5):
        with pytest.raises(MalformedPacket, match="PUBLISH: it "):
            reader(octets, version).variable_byte_integer("it")


@pytest.mark.parametrize("octets", [b"\x80\x00", b"\xff\x00", b"\x81\x80\x80\x00"])
def test_a_variable_byte_integer_of_more_octets_than_it_needs_is_malformed_in_mqtt_5(octets):
    """[MQTT-1.5.5-1], which MQTT 3.1.1 does not have."""
    with pytest.raises(MalformedPacket, match="more bytes than it needs"):
        reader(octets).variable_byte_integer("it")
    assert reader(octets, MQTT_3_1_1).variable_byte_integer("it") in (0, 1, 127)


def test_strings_are_those_of_the_specification():
    """The example of §1.5.4: "A" and U+2A6D4."""
    octets = b"\x00\x05\x41\xf0\xaa\x9b\x94"

    assert reader(octets).utf8_string("it") == "A\U0002a6d4"
    assert fields.utf8_string("A\U0002a6d4") == octets


def test_a_byte_order_mark_is_kept():
    """[MQTT-1.5.4-3]"""
    assert reader(b"\x00\x04\xef\xbb\xbfa").utf8_string("it") == "\ufeffa"


@pytest.mark.parametrize(("octets", "text"), [
    (b"\x00\x01\xff", "not well-formed UTF-8 at byte 0"),
    (b"\x00\x03\xed\xa0\x80", "not well-formed UTF-8"),  # U+D800 [MQTT-1.5.4-1]
    (b"\x00\x02\xc0\x80", "not well-formed UTF-8"),
    (b"\x00\x02a\x00", "contains U\\+0000"),  # [MQTT-1.5.4-2]
    (b"\x00\x05abc", "takes 5 bytes of which 3 are there"),
    (b"\x00", "takes 2 bytes of which 1 are there"),
])
def test_strings_that_are_none_are_malformed(octets, text):
    with pytest.raises(MalformedPacket, match=text):
        reader(octets).utf8_string("it")


def test_what_does_not_fit_is_not_encoded():
    for encode in (
            lambda: fields.variable_byte_integer(268435456), lambda: fields.utf8_string("a" * 65536),
            lambda: fields.utf8_string("\0"), lambda: fields.utf8_string("\ud800"),
            lambda: fields.binary_data(bytes(65536))):
        with pytest.raises(ValueError):
            encode()


def test_a_part_ends_where_it_was_said_to():
    whole = reader(b"\x00\x01a\x00\x02bc")

    part = whole.part(3, "part")

    assert (part.utf8_string("a"), bool(part), whole.binary_data("b")) == ("a", False, b"bc")
