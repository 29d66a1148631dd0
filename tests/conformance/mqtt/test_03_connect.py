"""Chapters 3.1 and 3.2, CONNECT and CONNACK."""
import pytest

from tests.conformance.mqtt.statements import mqtt_3, mqtt_5
from tests.support.mqtt_wire import connack_properties

LOGIN = "00 05 'guest' 00 05 'guest'"


@mqtt_3("3.1.0-1", "3.2.0-1", "4.8.0-1")
@mqtt_5("3.1.0-1", "3.14.0-1", "4.13.1-1")
@pytest.mark.parametrize("packet", [
    "30 LL 00 01 'a' {00} 'x'", "82 LL 00 01 {00} 00 01 'a' 00", "c0 00", "e0 00", "40 02 00 01", "00 00",
    "16 03 01 00 05 01 00 00 01 00",  # TLS at a plain port
    "'GET / HTTP/1.1' 0d 0a 0d 0a", "'AMQP' 00 00 09 01",
])
def test_anything_before_connect_ends_the_connection_without_an_answer(open_socket, packet):
    wire = open_socket(4)

    wire.send(packet)

    wire.expect_end()


@mqtt_3("3.1.0-2", "4.8.0-1")
@mqtt_5("3.1.0-2", "3.2.0-2", "4.13.1-1")
def test_second_connect_ends_the_connection(connect, version):
    wire = connect(version, "twice")

    wire.send(f"10 LL 00 04 'MQTT' {version:02x} c2 00 00 {{00}} 00 05 'twice' {LOGIN}")

    wire.expect_refusal(0x82)


@mqtt_3("3.1.2-1", "3.1.4-1")
@mqtt_5("3.1.2-1", "3.1.4-1", "4.13.2-1")
@pytest.mark.parametrize("name", ["00 04 'MQTt'", "00 04 'XXXX'", "00 03 'MQT'", "00 06 'MQTTTT'", "00 00"])
def test_wrong_protocol_name_ends_the_connection(open_socket, version, name):
    wire = open_socket(version)

    wire.send(f"10 LL {name} {version:02x} c2 00 00 {{00}} 00 01 'n' {LOGIN}")

    wire.expect_refusal(0x81, 0x84)


@mqtt_3("3.1.2-2", "3.2.2-4", "3.2.2-5")
@mqtt_5("3.1.2-2", "3.2.2-6", "3.2.2-7")
@pytest.mark.parametrize("level", ["00", "02", "06", "7f"])
def test_unknown_protocol_level_is_refused(open_socket, level):
    wire = open_socket(4)

    wire.send(f"10 LL 00 04 'MQTT' {level} c2 00 00 00 01 'l' {LOGIN}")

    packet = wire.packet()
    assert packet is None or packet[:3] == b"\x20\x02\x00" and packet[3] in (0x01, 0x84) or (
        packet[0] == 0x20 and packet[2:4] == b"\x00\x84"
    ), packet.hex(" ")
    if packet is not None:
        wire.expect_end()


@mqtt_3("3.1.2-3", "3.1.4-1", "3.2.2-6")
@mqtt_5("3.1.2-3", "3.1.4-1")
def test_reserved_connect_flag_ends_the_connection(open_socket, version):
    wire = open_socket(version)

    wire.send(f"10 LL 00 04 'MQTT' {version:02x} c3 00 00 {{00}} 00 01 'r' {LOGIN}")

    wire.expect_refusal(0x81)


WRONG_FLAGS = {
    "will-qos-without-will": f"ca 00 00 {{00}} 00 01 'w' {LOGIN}",
    "will-retain-without-will": f"e2 00 00 {{00}} 00 01 'w' {LOGIN}",
    "will-qos-3": f"de 00 00 {{00}} 00 01 'w' {{00}} 00 01 't' 00 01 'm' {LOGIN}",
    "will-without-topic": "06 00 00 {00} 00 01 'w'",
    "will-without-message": "06 00 00 {00} 00 01 'w' {00} 00 01 't'",
    "will-topic-that-nothing-announces": "02 00 00 {00} 00 01 'w' 00 01 't' 00 01 'm'",
    "user-name-that-is-not-there": "82 00 00 {00} 00 01 'w'",
    "password-that-is-not-there": "c2 00 00 {00} 00 01 'w' 00 05 'guest'",
    "user-name-that-nothing-announces": "02 00 00 {00} 00 01 'w' 00 05 'guest'",
    "password-that-nothing-announces": f"82 00 00 {{00}} 00 01 'w' {LOGIN}",
    "no-client-identifier": "02 00 00 {00}",
    "client-identifier-cut-off": "02 00 00 {00} 00 05 'w'",
}


@mqtt_3(
    "3.1.2-9", "3.1.2-11", "3.1.2-13", "3.1.2-14", "3.1.2-15", "3.1.2-18", "3.1.2-19", "3.1.2-20", "3.1.2-21",
    "3.1.3-1", "3.1.3-3", "3.1.4-1",
)
@mqtt_5(
    "3.1.2-9", "3.1.2-11", "3.1.2-12", "3.1.2-13", "3.1.2-16", "3.1.2-17", "3.1.2-18", "3.1.2-19", "3.1.3-1",
    "3.1.3-3", "3.1.4-1", "3.14.0-1",
)
@pytest.mark.parametrize("rest", WRONG_FLAGS.values(), ids=WRONG_FLAGS)
def test_connect_whose_payload_is_not_what_its_flags_say_ends_the_connection(open_socket, version, rest):
    wire = open_socket(version)

    wire.send(f"10 LL 00 04 'MQTT' {version:02x} {rest}")

    wire.expect_refusal(0x81, 0x82, 0x85)


@mqtt_3("3.1.2-22", "3.1.4-1")
def test_password_without_a_user_name_ends_the_connection_of_mqtt_3(open_socket):
    wire = open_socket(4)

    wire.send("10 LL 00 04 'MQTT' 04 42 00 00 00 01 'p' 00 05 'guest'")

    wire.expect_end()


@mqtt_3("3.1.3-1", "3.1.3-5", "3.1.4-4", "3.2.2-1", "3.2.2-3")
@mqtt_5("3.1.3-1", "3.1.3-5", "3.1.4-5", "3.2.2-1", "3.2.2-2", "3.2.2-8", "2.2.2-1")
@pytest.mark.parametrize("client", ["A", "0123456789abcdefghijklm", "NOPQRSTUVWXYZ", "nopqrstuvwxyz"])
def test_client_identifiers_of_letters_and_digits_are_accepted(open_socket, version, client):
    wire = open_socket(version)

    wire.send(f"10 LL 00 04 'MQTT' {version:02x} c2 00 00 {{00}} 00 {len(client):02x} '{client}' {LOGIN}")

    packet = wire.packet()
    assert packet == b"\x20\x02\x00\x00" if version == 4 else packet[0] == 0x20 and packet[2:4] == b"\x00\x00"


@mqtt_3("3.1.3-6", "3.1.4-4")
@mqtt_5("3.1.3-6", "3.1.3-7", "3.2.2-16")
def test_empty_client_identifiers_get_unique_ones(connect, version):
    first, second = connect(version, ""), connect(version, "")

    first.fence()
    second.fence()
    if version == 5:
        names = [connack_properties(wire.connected)[0x12] for wire in (first, second)]
        assert all(names) and names[0] != names[1]


@mqtt_3("3.1.3-8", "3.1.3-9", "3.2.2-4", "3.2.2-5")
def test_empty_client_identifier_without_clean_session_is_refused_with_2(open_socket):
    wire = open_socket(4)

    wire.ask(f"10 LL 00 04 'MQTT' 04 c0 00 00 00 00 {LOGIN}", "20 02 00 02")

    wire.expect_end()


@pytest.mark.parametrize("flags", ["c2", "c0"])
def test_empty_client_identifier_of_mqtt_3_1_is_refused_with_2(open_socket, flags):
    """Its CONNECT asks for 1 to 23 characters."""
    wire = open_socket(3)

    wire.ask(f"10 LL 00 06 'MQIsdp' 03 {flags} 00 00 00 00 {LOGIN}", "20 02 00 02")

    wire.expect_end()


def test_client_identifier_of_mqtt_3_1_may_be_longer_than_23_characters(open_socket):
    """As Mosquitto takes it: clients of today have longer ones."""
    wire = open_socket(3)

    wire.ask(f"10 LL 00 06 'MQIsdp' 03 c2 00 00 00 28 'long'*10 {LOGIN}", "20 02 00 00")


@mqtt_3("3.1.4-2", "3.1.3-2")
@mqtt_5("3.1.4-3", "3.1.3-2", "3.14.2-1", "3.14.2-2", "3.14.4-2")
def test_client_identifier_that_is_connected_is_taken_over(connect, version):
    first = connect(version, f"taken{version}")

    second = connect(version, f"taken{version}")

    first.expect_refusal(0x8E)
    second.fence()


@mqtt_5("3.1.4-3")
@pytest.mark.mosquitto_differs("closes without a word")
def test_old_client_is_told_that_its_session_is_taken_over(connect):
    first = connect(5, "told")

    connect(5, "told")

    packet = first.packet()
    assert packet[0] == 0xE0 and packet[2] == 0x8E
    first.expect_end()


@mqtt_3("3.1.2-4", "3.1.2-6", "3.1.4-3", "3.2.2-1", "3.2.2-2", "3.2.2-3", "4.1.0-2")
@mqtt_5("3.1.2-4", "3.1.2-5", "3.1.2-6", "3.1.4-4", "3.2.2-2", "3.2.2-3")
def test_session_present_tells_whether_there_was_a_session(connect, version):
    options = {"properties": "11 00 00 02 58"} if version == 5 else {}

    def present(clean):
        wire = connect(version, f"present{version}", clean=clean, **options)
        wire.disconnect()
        return wire.connected[2]

    assert present(clean=True) == 0
    assert present(clean=False) == (version == 5)  # in 3.1.1 the clean one ended with its connection
    assert present(clean=False) == 1
    assert present(clean=True) == 0
    assert present(clean=False) == (version == 5)


@mqtt_3("3.1.4-5", "3.2.2-4", "3.2.2-5")
@mqtt_5("3.1.4-2", "3.1.4-6", "3.2.2-6", "3.2.2-7", "3.2.2-8", "4.13.2-1")
@pytest.mark.mosquitto_differs("has no passwords here")
def test_nothing_that_follows_a_refused_connect_is_worked_off(connect, open_socket, version):
    watcher = connect(version, f"after{version}")
    watcher.ask("82 LL 00 01 {00} 00 07 'after/+' 00", "90 LL 00 01 {00} 00")
    wire = open_socket(version)

    wire.send(
        f"10 LL 00 04 'MQTT' {version:02x} c2 00 00 {{00}} 00 01 'x' 00 05 'guest' 00 05 'wrong'",
        "30 LL 00 07 'after/1' {00} 'x'",
    )

    packet = wire.packet()
    if version == 4:
        assert packet in (b"\x20\x02\x00\x04", b"\x20\x02\x00\x05")
    else:
        assert packet[0] == 0x20 and packet[2] == 0 and packet[3] in (0x86, 0x87)
    wire.expect_end()
    watcher.send("30 LL 00 07 'after/2' {00} 'y'")
    watcher.expect("30 LL 00 07 'after/2' {00} 'y'")


@mqtt_3("3.1.2-24")
@mqtt_5("3.1.2-22", "3.2.2-22")
def test_silence_of_one_and_a_half_keep_alives_ends_the_connection(connect, version):
    wire = connect(version, "silent", keep_alive=1)

    wire.expect_refusal(0x8D)


@mqtt_3("3.1.2-24")
@mqtt_5("3.1.2-22")
def test_end_by_keep_alive_is_the_end_of_a_lost_connection(connect, version):
    watcher = connect(version, f"kaw{version}")
    watcher.ask(f"82 LL 00 01 {{00}} 00 03 'ka{version}' 00", "90 LL 00 01 {00} 00")

    will = f"{{00}} 00 03 'ka{version}' 00 04 'gone'"
    connect(version, f"kac{version}", keep_alive=1, will_flags=0x04, will=will)

    watcher.expect(f"30 LL 00 03 'ka{version}' {{00}} 'gone'")


@mqtt_5("4.12.0-1", "3.2.2-8")
def test_authentication_method_that_is_not_supported_ends_the_connection(open_socket):
    wire = open_socket(5)

    wire.send(f"10 LL 00 04 'MQTT' 05 c2 00 00 08 15 00 05 'PLAIN' 00 01 'a' {LOGIN}")

    assert wire.expect_refusal(0x8C, 0x87) in (0x8C, 0x87)


@mqtt_5("4.12.0-6", "3.1.2-28", "3.2.0-1")
def test_connack_has_neither_authentication_method_nor_response_information_unasked(connect):
    wire = connect(5, "unasked", properties="19 00")

    assert not {0x15, 0x16, 0x1A} & set(connack_properties(wire.connected))


@mqtt_5("3.15.1-1", "4.13.1-1")
@pytest.mark.parametrize("packet", ["f0 00", "f1 00", "f0 02 19 00", "f0 LL 18 08 15 00 05 'PLAIN'"])
def test_auth_that_nothing_calls_for_ends_the_connection(connect, packet):
    wire = connect(5, "auth")

    wire.send(packet)

    wire.expect_refusal(0x81, 0x82, 0x8C, 0x87)


@mqtt_5("4.13.1-1", "3.1.4-1")
@pytest.mark.parametrize("properties", [
    "06 21 00 0a 21 00 0a", "03 21 00 00", "05 27 00 00 00 00", "02 17 02", "02 19 02", "02 01 00",
    pytest.param("04 16 00 01 00", marks=pytest.mark.mosquitto_differs("lets it pass")),
    "05 02 00 00 00 01", "02 7e 00", "ff ff ff ff 01",
], ids=["twice", "receive-maximum-0", "packet-size-0", "problem-2", "response-2", "not-its",
        "data-without-method", "expiry", "unknown", "length"])
def test_malformed_properties_of_connect_end_the_connection(open_socket, properties):
    wire = open_socket(5)

    wire.send(f"10 LL 00 04 'MQTT' 05 c2 00 00 {properties} 00 01 'a' {LOGIN}")

    wire.expect_refusal(0x81, 0x82)


@mqtt_5("3.1.2-8", "3.1.2-23", "4.1.0-2")
def test_session_is_discarded_when_its_expiry_interval_is_over(connect):
    watcher = connect(5, "expires-watcher")
    watcher.ask("82 LL 00 01 00 00 07 'expired' 00", "90 LL 00 01 00 00")
    will = "05 18 00 00 00 3c 00 07 'expired' 00 04 'over'"  # a delay of 60 s, but no longer than the session

    connect(5, "expires", properties="11 00 00 00 01", will_flags=0x04, will=will).abort()

    watcher.expect("30 LL 00 07 'expired' 00 'over'")
    assert connect(5, "expires", clean=False).connected[2] == 0


@mqtt_5("3.1.2-23", "4.1.0-1")
def test_session_without_expiry_interval_ends_with_its_connection(connect):
    connect(5, "short-lived", clean=False).disconnect()

    assert connect(5, "short-lived", clean=False).connected[2] == 0


@mqtt_5("3.1.2-23", "3.14.2-2")
def test_disconnect_may_change_the_expiry_interval(connect):
    wire = connect(5, "changed", properties="11 00 00 02 58")
    wire.send("e0 07 00 05 11 00 00 00 00")
    wire.expect_end()

    wire = connect(5, "changed", clean=False, properties="11 00 00 02 58")
    assert wire.connected[2] == 0
    wire.send("e0 07 00 05 11 00 00 00 3c")
    wire.expect_end()
    assert connect(5, "changed", clean=False).connected[2] == 1


@mqtt_5("4.13.1-1")
def test_disconnect_that_gives_an_expiry_interval_to_a_session_without_one_is_refused(connect):
    wire = connect(5, "no-expiry")

    wire.send("e0 07 00 05 11 00 00 00 3c")

    wire.expect_refusal(0x82)
