"""Chapter 2, the format of control packets: flags, lengths and packet identifiers."""
import pytest

from tests.conformance.mqtt.statements import mqtt_3, mqtt_5
from tests.support.mqtt_wire import octets


LENIENT = pytest.mark.mosquitto_differs("lets this pass")


@mqtt_3("2.2.2-2", "3.6.1-1", "3.8.1-1", "3.10.1-1", "3.14.1-1", "4.8.0-1")
@mqtt_5("2.1.3-1", "3.6.1-1", "3.8.1-1", "3.10.1-1", "3.14.1-1", "4.13.1-1")
@pytest.mark.parametrize("packet", [
    "60 02 00 01", "66 02 00 01",  # PUBREL without 0010
    "80 LL 00 01 {00} 00 01 'a' 00", "8a LL 00 01 {00} 00 01 'a' 00",  # SUBSCRIBE
    "a0 LL 00 01 {00} 00 01 'a'", "a3 LL 00 01 {00} 00 01 'a'",  # UNSUBSCRIBE
    "e1 00",
    *(pytest.param(one, marks=LENIENT) for one in ("c1 00", "41 02 00 01", "52 02 00 01", "74 02 00 01")),
], ids=lambda text: text[:2])
def test_reserved_flags_that_are_not_as_listed_end_the_connection(connect, version, packet):
    wire = connect(version, "flags")

    wire.send(packet)

    wire.expect_refusal(0x81, 0x82)


@mqtt_3("4.8.0-1")
@mqtt_5("4.13.1-1")
@pytest.mark.parametrize("packet", [
    "00 00", "20 02 00 00", "90 LL 00 01 {00} 00", "b0 LL 00 01 {00 00}", "d0 00",
], ids=["reserved", "connack", "suback", "unsuback", "pingresp"])
@LENIENT
def test_packet_that_clients_do_not_send_ends_the_connection(connect, version, packet):
    wire = connect(version, "types")

    wire.send(packet)

    wire.expect_refusal(0x81, 0x82)


@mqtt_3("4.8.0-1")
def test_packet_of_type_15_ends_the_connection_of_mqtt_3(connect):
    wire = connect(4, "type15")

    wire.send("f0 00")

    wire.expect_end()


@mqtt_3("4.8.0-1")
@mqtt_5("4.13.1-1")
def test_remaining_length_of_five_octets_ends_the_connection(connect, version):
    wire = connect(version, "length5")

    wire.send("30 ff ff ff ff 01")

    wire.expect_refusal(0x81, 0x95)


@mqtt_3("2.3.1-1")
@mqtt_5("2.2.1-3")
@pytest.mark.parametrize("packet", [
    "32 LL 00 01 'a' 00 00 {00} 'x'", "34 LL 00 01 'a' 00 00 {00} 'x'", "82 LL 00 00 {00} 00 01 'a' 00",
    "a2 LL 00 00 {00} 00 01 'a'",
], ids=["qos1", "qos2", "subscribe", "unsubscribe"])
def test_packet_identifier_of_zero_ends_the_connection(connect, version, packet):
    wire = connect(version, "zero")

    wire.send(packet)

    wire.expect_refusal(0x81, 0x82)


@mqtt_3("2.3.1-6", "2.3.1-7", "3.8.4-1", "3.8.4-2", "3.10.4-4", "3.3.4-1", "3.12.4-1")
@mqtt_5("2.2.1-5", "2.2.1-6", "2.2.2-1", "3.8.4-1", "3.8.4-2", "3.10.4-4", "3.10.4-5", "3.3.4-1", "3.12.4-1")
def test_answers_carry_the_packet_identifier_of_what_they_answer(connect, version):
    wire = connect(version, f"ids{version}")

    wire.ask("82 LL 12 34 {00} 00 02 'id' 00", "90 LL 12 34 {00} 00")
    wire.send("32 LL 00 02 'id' ff ff {00} 'x'")
    wire.expect_all("30 LL 00 02 'id' {00} 'x'", "40 02 ff ff")
    wire.send("34 LL 00 02 'id' 80 01 {00} 'y'", "62 02 80 01")
    wire.expect_all("30 LL 00 02 'id' {00} 'y'", "50 02 80 01", "70 02 80 01")
    wire.ask("a2 LL 00 ff {00} 00 02 'id'", "b0 LL 00 ff {00 00}")
    wire.ask("c0 00", "d0 00")


@mqtt_3("2.3.1-4", "2.3.1-5", "2.2.2-1", "4.3.1-1", "4.3.2-1", "4.3.3-1", "3.3.1-2")
@mqtt_5("2.2.1-2", "2.2.1-4", "2.1.3-1", "4.3.1-1", "4.3.2-1", "4.3.2-2", "4.3.3-1", "4.3.3-2", "3.3.1-2")
def test_deliveries_have_unused_packet_identifiers_and_none_at_qos_0(connect, version):
    wire = connect(version, f"unused{version}")
    wire.ask("82 LL 00 01 {00} 00 03 'f/#' 02", "90 LL 00 01 {00} 02")
    sender = connect(version, f"sender{version}")

    sender.send(
        "32 LL 00 03 'f/1' 00 01 {00} 'x'", "34 LL 00 03 'f/2' 00 02 {00} 'x'", "62 02 00 02",
        "30 LL 00 03 'f/0' {00} 'x'", "32 LL 00 03 'f/1' 00 03 {00} 'x'",
    )
    packets = [wire.packet() for _ in range(4)]

    at_qos_0 = [packet for packet in packets if packet[0] == 0x30]
    assert at_qos_0 == [bytes([0x30, 6 + (version == 5)]) + b"\0\3f/0" + b"\0" * (version == 5) + b"x"]
    assert sorted(packet[0] for packet in packets) == [0x30, 0x32, 0x32, 0x34]
    identifiers = {packet[7:9] for packet in packets if packet[0] != 0x30}
    assert len(identifiers) == 3 and b"\0\0" not in identifiers


@mqtt_3("4.8.0-1")
@mqtt_5("4.13.1-1")
@pytest.mark.parametrize("packet", [
    "40 01 00", "50 00", "62 01 00", "70 01 00", pytest.param("c0 01 00", marks=LENIENT), "82 01 00",
    "a2 01 00", "30 00", "30 01 00",
    "30 LL 00 05 'a'", "32 LL 00 01 'a' 00", "82 LL 00 01 {00} 00 05 'a' 00", "82 LL 00 01 {00} 00 01 'a'",
    "a2 LL 00 01 {00} 00 05 'a'",
])
def test_packet_that_ends_too_early_ends_the_connection(connect, version, packet):
    wire = connect(version, "short")

    wire.send(packet)

    wire.expect_refusal(0x81, 0x82, 0x8F, 0x90)


@mqtt_5("4.13.1-1")
@pytest.mark.parametrize("packet", [
    "30 LL 00 01 'a' 04 01 00 01 00 'x'",  # payload format indicator twice
    pytest.param("30 LL 00 01 'a' 02 01 02 'x'", marks=LENIENT),  # neither 0 nor 1
    "30 LL 00 01 'a' 0a 02 00 00 00 01 02 00 00 00 01 'x'",  # message expiry interval twice
    "30 LL 00 01 'a' 05 11 00 00 00 01 'x'",  # session expiry interval, which is not PUBLISH's
    "30 LL 00 01 'a' 02 7f 00 'x'",  # no such property
    "30 LL 00 01 'a' 20 01 00 'x'",  # longer than the packet
    "30 LL 00 01 'a' 04 02 00 00 00 'x'",  # cut off
    "82 LL 00 01 02 0b 00 00 01 'a' 00",  # subscription identifier 0
    "82 LL 00 01 04 0b 01 0b 02 00 01 'a' 00",  # subscription identifier twice
    "82 LL 00 01 02 01 00 00 01 'a' 00",  # payload format indicator, which is not SUBSCRIBE's
    "e0 LL 00 0a 11 00 00 00 01 11 00 00 00 01",  # session expiry interval twice
])
def test_duplicate_unknown_and_malformed_properties_end_the_connection(connect, packet):
    wire = connect(5, "properties", properties="11 00 00 00 3c")

    wire.send(packet)

    wire.expect_refusal(0x81, 0x82)


@mqtt_3("7.1.1-1")
@mqtt_5("4.2-1")
def test_packets_may_come_in_any_pieces(open_socket, version):
    wire = open_socket(version)
    octet_by_octet = (
        "10 LL 00 04 'MQTT' {05} c2 00 00 {00} 00 06 'pieces' 00 05 'guest' 00 05 'guest'".replace(
            "{05}", f"{version:02x}")
    )
    for octet in octets(octet_by_octet, version):
        wire.send(bytes([octet]))
    assert wire.packet()[0] == 0x20

    wire.send("82 LL 00 01 {00} 00 03 'pcs' 01", "30 LL 00 03 'pcs' {00} 'x'", "c0 00")

    wire.expect("90 LL 00 01 {00} 01")
    wire.expect_all("30 LL 00 03 'pcs' {00} 'x'", "d0 00")
