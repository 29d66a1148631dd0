"""Chapter 1.5, data representation: strings and integers that are not what they should be."""
import pytest

from tests.conformance.mqtt.statements import mqtt_3, mqtt_5
from tests.support.mqtt_wire import publish_properties

MALFORMED = {
    "overlong": "c0 af", "surrogate": "ed a0 80", "cut-off": "e2 82", "continuation": "80 61",
    "too-high": "f4 90 80 80",
}
ILL_FORMED = pytest.mark.parametrize("octets", MALFORMED.values(), ids=MALFORMED)


def in_string(written):
    """A topic level and the octets, as a string with its length."""
    size = 2 + len(written.split())
    return f"{size:04x}"[:2] + " " + f"{size:04x}"[2:] + f" 'u/' {written}"


@mqtt_3("1.5.3-1", "3.3.2-1")
@mqtt_5("1.5.4-1", "3.3.2-1", "4.13.1-1")
@ILL_FORMED
def test_topic_name_that_is_ill_formed_utf_8_ends_the_connection(connect, version, octets):
    wire = connect(version, "utf8a")

    wire.send(f"30 LL {in_string(octets)} {{00}} 'x'")

    wire.expect_refusal(0x81, 0x90)


@mqtt_3("1.5.3-1", "3.8.3-1")
@mqtt_5("1.5.4-1", "3.8.3-1")
@ILL_FORMED
def test_topic_filter_that_is_ill_formed_utf_8_ends_the_connection(connect, version, octets):
    wire = connect(version, "utf8b")

    wire.send(f"82 LL 00 01 {{00}} {in_string(octets)} 01")

    wire.expect_refusal(0x81, 0x8F)


@mqtt_3("1.5.3-1", "3.10.3-1")
@mqtt_5("1.5.4-1", "3.10.3-1")
@ILL_FORMED
def test_filter_to_unsubscribe_that_is_ill_formed_utf_8_ends_the_connection(connect, version, octets):
    wire = connect(version, "utf8c")

    wire.send(f"a2 LL 00 01 {{00}} {in_string(octets)}")

    wire.expect_refusal(0x81, 0x8F)


@mqtt_3("1.5.3-2", "4.7.3-2")
@mqtt_5("1.5.4-2", "4.7.3-2")
@pytest.mark.parametrize("packet", [
    "30 LL 00 03 'a' 00 'b' {00} 'x'", "82 LL 00 01 {00} 00 03 'a' 00 'b' 01",
    "a2 LL 00 01 {00} 00 03 'a' 00 'b'",
], ids=["publish", "subscribe", "unsubscribe"])
def test_null_character_in_a_topic_ends_the_connection(connect, version, packet):
    wire = connect(version, "null")

    wire.send(packet)

    wire.expect_refusal(0x81, 0x82, 0x90, 0x8F)


@mqtt_3("1.5.3-1", "3.1.3-4", "3.1.3-10", "3.1.3-11", "3.1.4-1")
@mqtt_5("1.5.4-1", "3.1.3-4", "3.1.3-11", "3.1.3-12", "3.1.4-1")
@pytest.mark.parametrize("packet", [
    "10 LL 00 04 'MQTT' {05} 02 00 00 {00} 00 02 c0 af",
    "10 LL 00 04 'MQTT' {05} 06 00 00 {00} 00 01 'c' {00} 00 02 c0 af 00 01 'w'",
    "10 LL 00 04 'MQTT' {05} 82 00 00 {00} 00 01 'c' 00 02 c0 af",
], ids=["client-identifier", "will-topic", "user-name"])
def test_ill_formed_utf_8_in_connect_ends_the_connection(open_socket, version, packet):
    wire = open_socket(version)

    wire.send(packet.replace("{05}", f"{version:02x}"))

    wire.expect_refusal(0x81, 0x85)


@mqtt_5("1.5.4-1", "1.5.4-2", "1.5.7-1", "3.3.2-13", "3.3.2-19")
@pytest.mark.mosquitto_differs("does not look into strings of properties for all of these")
@pytest.mark.parametrize("properties", [
    "04 08 00 01 ff", "04 08 00 01 00", "04 03 00 01 ff", "07 26 00 01 ff 00 01 'v'",
    "07 26 00 01 'k' 00 01 ff", "07 26 00 01 'k' 00 01 00",
], ids=["response-topic", "response-topic-null", "content-type", "user-key", "user-value", "user-null"])
def test_ill_formed_string_in_a_property_ends_the_connection(connect, properties):
    wire = connect(5, "utf8p")

    wire.send(f"30 LL 00 01 'p' {properties} 'x'")

    wire.expect_refusal(0x81, 0x82, 0x90)


@mqtt_3("1.5.3-3", "4.7.3-4")
@mqtt_5("1.5.4-3", "4.7.3-4")
def test_zero_width_no_break_space_is_kept_and_matched(connect, version):
    wire = connect(version, f"bom{version}")
    wire.ask("82 LL 00 01 {00} 00 08 ef bb bf 'bom/+' 00", "90 LL 00 01 {00} 00")

    wire.send("30 LL 00 05 'bom/x' {00} 'without'", "30 LL 00 08 ef bb bf 'bom/x' {00} 'with'")

    wire.expect("30 LL 00 08 ef bb bf 'bom/x' {00} 'with'")


@mqtt_5("1.5.5-1")
@pytest.mark.mosquitto_differs("takes integers that are longer than they need be")
@pytest.mark.parametrize("packet", [
    "30 84 00 00 01 'a' 00",  # remaining length 4 in two octets
    "30 LL 00 01 'a' 80 00",  # property length 0 in two octets
    "82 LL 00 01 03 0b 81 00 00 01 'a' 00",  # subscription identifier 1 in two octets
], ids=["remaining-length", "property-length", "property"])
def test_integer_that_is_longer_than_it_needs_ends_the_connection(connect, packet):
    wire = connect(5, "long")

    wire.send(packet)

    wire.expect_refusal(0x81)


@mqtt_5("1.5.7-1", "3.3.2-17", "3.3.2-18")
def test_user_properties_keep_their_octets_and_their_order(connect):
    wire = connect(5, "pairs")
    wire.ask("82 LL 00 01 00 00 05 'pairs' 00", "90 LL 00 01 00 00")

    wire.send(
        "30 LL 00 05 'pairs' 1a 26 00 01 'z' 00 01 '1' 26 00 01 'a' 00 01 '2' 26 00 01 'z' 00 01 '3'"
        " 26 00 00 00 00 'x'"
    )

    packet = wire.packet()
    pairs = [("z", "1"), ("a", "2"), ("z", "3"), ("", "")]
    assert publish_properties(packet) == [(0x26, pair) for pair in pairs]
