"""Chapters 4.1, 4.3 and 4.4, the state of sessions and the steps of QoS 1 and 2 over lost connections."""
import pytest

from tests.conformance.mqtt.statements import mqtt_3, mqtt_5

# A session of ten minutes, with room for what the tests leave unacknowledged.
KEPT = {4: {"clean": False}, 5: {"clean": False, "properties": "11 00 00 02 58"}}


def subscriber(connect, version, client, topic, qos):
    """A kept session with one subscription; ``topic`` has four octets."""
    wire = connect(version, client, **KEPT[version])
    wire.ask(f"82 LL 00 01 {{00}} 00 04 '{topic}' {qos:02x}", f"90 LL 00 01 {{00}} {qos:02x}")
    return wire


def publish(connect, version, topic, qos, *payloads):
    """Publish, and go through all steps."""
    sender = connect(version, f"p{topic}{version}")
    for payload in payloads:
        sender.send(f"3{2 * qos} LL 00 04 '{topic}' 00 09 {{00}} '{payload}'")
        assert sender.packet()[0] == (0x40 if qos == 1 else 0x50)
        if qos == 2:
            sender.ask("62 02 00 09", "70 02 00 09")


@mqtt_3("3.1.2-4", "3.1.2-5", "3.1.3-2", "4.1.0-1", "4.5.0-1")
@mqtt_5("3.1.2-5", "3.1.2-23", "3.1.3-2", "4.1.0-1", "4.5.0-1")
@pytest.mark.parametrize("qos", [1, 2])
def test_messages_wait_for_a_session_whose_client_is_away(connect, version, qos):
    subscriber(connect, version, f"away{version}{qos}", f"aw/{qos}", qos).disconnect()
    publish(connect, version, f"aw/{qos}", qos, *"abc")

    back = connect(version, f"away{version}{qos}", **KEPT[version])

    assert back.connected[2] == 1
    for payload in "abc":
        back.expect(f"3{2 * qos} LL 00 04 'aw/{qos}' .. .. {{00}} '{payload}'")


@mqtt_3("3.1.2-6")
@mqtt_5("3.1.2-4")
def test_clean_start_discards_subscriptions_and_messages(connect, version):
    subscriber(connect, version, f"clean{version}", "cl/1", 1).disconnect()
    publish(connect, version, "cl/1", 1, "a")

    wire = connect(version, f"clean{version}")
    publish(connect, version, "cl/1", 1, "b")

    wire.expect_silence()


@mqtt_3("3.3.1-1", "4.3.2-1", "4.4.0-1", "4.6.0-1", "2.3.1-4")
@mqtt_5("3.3.1-1", "4.3.2-3", "4.4.0-1")
def test_unacknowledged_messages_of_qos_1_are_sent_again_with_dup_and_their_identifiers(connect, version):
    wire = subscriber(connect, version, f"un{version}", "un/1", 1)
    publish(connect, version, "un/1", 1, *"abc")
    identifiers = [wire.expect(f"32 LL 00 04 'un/1' .. .. {{00}} '{payload}'") for payload in "abc"]
    wire.send(b"\x40\x02" + identifiers[1])
    wire.fence()
    wire.abort()

    back = connect(version, f"un{version}", **KEPT[version])

    for payload, identifier in (("a", identifiers[0]), ("c", identifiers[2])):
        back.expect(f"3a LL 00 04 'un/1' {identifier.hex(' ')} {{00}} '{payload}'")
        back.send(b"\x40\x02" + identifier)
    back.expect_silence()


@mqtt_3("4.6.0-1", "4.6.0-6")
@mqtt_5("4.6.0-5", "4.4.0-1")
def test_what_is_sent_again_comes_before_what_is_new(connect, version):
    wire = subscriber(connect, version, f"before{version}", "bf/1", 1)
    publish(connect, version, "bf/1", 1, *"ab")
    for payload in "ab":
        wire.expect(f"32 LL 00 04 'bf/1' .. .. {{00}} '{payload}'")
    wire.abort()
    publish(connect, version, "bf/1", 1, *"cd")

    back = connect(version, f"before{version}", **KEPT[version])

    packets = [back.packet() for _ in range(4)]
    assert [packet[-1:] for packet in packets] == [b"a", b"b", b"c", b"d"]
    assert [packet[0] & 8 for packet in packets][:2] == [8, 8]


@mqtt_3("4.4.0-1")
@mqtt_5("4.4.0-1")
def test_unacknowledged_messages_are_not_sent_again_while_the_connection_lasts(connect, version):
    wire = subscriber(connect, version, f"once{version}", "on/1", 1)
    publish(connect, version, "on/1", 1, "a")

    wire.expect("32 LL 00 04 'on/1' .. .. {00} 'a'")

    wire.expect_silence()


@mqtt_3("4.3.3-1", "4.4.0-1", "3.3.1-1")
@mqtt_5("4.3.3-3", "4.3.3-4", "4.3.3-5", "4.3.3-6", "4.4.0-1", "3.6.2-1")
def test_sender_of_qos_2_goes_on_where_the_connection_broke(connect, version):
    wire = subscriber(connect, version, f"send2{version}", "s2/1", 2)
    publish(connect, version, "s2/1", 2, "a")
    identifier = wire.expect("34 LL 00 04 's2/1' .. .. {00} 'a'").hex(" ")
    wire.abort()

    wire = connect(version, f"send2{version}", **KEPT[version])
    wire.expect(f"3c LL 00 04 's2/1' {identifier} {{00}} 'a'")
    wire.ask(f"50 02 {identifier}", f"62 02 {identifier}")
    wire.abort()

    wire = connect(version, f"send2{version}", **KEPT[version])
    wire.expect(f"62 02 {identifier}")
    wire.abort()

    wire = connect(version, f"send2{version}", **KEPT[version])
    wire.expect(f"62 02 {identifier}")
    wire.send(f"70 02 {identifier}")
    wire.fence()
    wire.abort()

    connect(version, f"send2{version}", **KEPT[version]).expect_silence()


@mqtt_3("4.3.3-2", "2.3.1-6")
@mqtt_5("4.3.3-8", "4.3.3-10", "4.3.3-11", "4.3.3-12", "3.7.2-1")
def test_receiver_of_qos_2_takes_a_message_once(connect, version):
    watcher = connect(version, f"recv2{version}")
    watcher.ask("82 LL 00 01 {00} 00 04 'r2/1' 00", "90 LL 00 01 {00} 00")
    wire = connect(version, f"r2{version}", **KEPT[version])

    def again(wire):
        wire.send("3c LL 00 04 'r2/1' 00 07 {00} 'a'")
        packet = wire.packet()
        assert packet[0] == 0x50 and packet[2:4] == b"\0\7" and (len(packet) == 4 or packet[4] in (0, 0x10))

    wire.ask("34 LL 00 04 'r2/1' 00 07 {00} 'a'", "50 02 00 07")
    again(wire)
    wire.abort()
    wire = connect(version, f"r2{version}", **KEPT[version])
    again(wire)
    wire.ask("62 02 00 07", "70 02 00 07")
    wire.ask("34 LL 00 04 'r2/1' 00 07 {00} 'b'", "50 02 00 07")
    wire.ask("62 02 00 07", "70 02 00 07")

    watcher.expect("30 LL 00 04 'r2/1' {00} 'a'")
    watcher.expect("30 LL 00 04 'r2/1' {00} 'b'")
    watcher.expect_silence()


@mqtt_3("4.3.3-2")
@mqtt_5("4.3.3-11", "3.7.2-1")
def test_pubrel_that_nothing_waits_for_is_answered(connect, version):
    wire = connect(version, f"rel{version}")

    wire.send("62 02 00 63")

    packet = wire.packet()
    assert packet[0] == 0x70 and packet[2:4] == b"\0\x63"
    assert len(packet) == 4 or packet[4] in (0x00, 0x92)


@mqtt_3("4.3.2-1", "4.3.3-1")
@mqtt_5("4.3.2-3", "4.3.3-5", "3.6.2-1")
def test_acknowledgements_of_what_was_not_sent_change_nothing(connect, version):
    wire = connect(version, f"acks{version}")

    wire.send("40 02 00 63", "70 02 00 63")
    wire.fence()
    wire.send("50 02 00 63")
    packet = wire.packet()
    assert packet[:4] == b"\x62\x02\0\x63" or packet == b"\x62\x03\0\x63\x92", "PUBREL, in MQTT 5 with 0x92"


@mqtt_5("4.4.0-2", "4.3.3-4")
@pytest.mark.parametrize("qos, acknowledgement", [(1, "40 LL {} 83"), (2, "50 LL {} 80")])
def test_message_that_is_answered_with_an_error_is_not_sent_again(connect, qos, acknowledgement):
    wire = subscriber(connect, 5, f"error{qos}", f"er/{qos}", qos)
    publish(connect, 5, f"er/{qos}", qos, "a")
    identifier = wire.expect(f"3{2 * qos} LL 00 04 'er/{qos}' .. .. 00 'a'").hex(" ")
    wire.send(acknowledgement.format(identifier))
    wire.fence()
    wire.abort()

    connect(5, f"error{qos}", **KEPT[5]).expect_silence()


@mqtt_5("4.3.3-7")
@pytest.mark.mosquitto_differs("drops it")
def test_message_of_qos_2_that_has_been_sent_does_not_expire(connect):
    wire = subscriber(connect, 5, "noexpiry", "ne/1", 2)
    sender = connect(5, "noexpirys")
    sender.send("34 LL 00 04 'ne/1' 00 01 05 02 00 00 00 01 'a'", "62 02 00 01")
    identifier = wire.packet()[8:10].hex(" ")
    wire.abort()
    watcher = connect(5, "noexpiryw")
    watcher.ask("82 LL 00 01 00 00 04 'ne/2' 00", "90 LL 00 01 00 00")
    will = "05 18 00 00 00 02 00 04 'ne/2' 00 01 'w'"
    connect(5, "noexpiryl", properties="11 00 00 00 3c", will_flags=0x04, will=will).abort()
    watcher.expect("30 LL 00 04 'ne/2' 00 'w'")  # two seconds later

    back = connect(5, "noexpiry", **KEPT[5])

    packet = back.packet()
    assert packet[0] == 0x3C and packet[8:10].hex(" ") == identifier and packet[-1:] == b"a"


@mqtt_5("4.3.3-13")
def test_receiver_of_qos_2_goes_on_although_the_message_has_expired(connect):
    wire = connect(5, "goeson")

    wire.send("34 LL 00 04 'go/1' 00 01 05 02 00 00 00 00 'a'")
    packet = wire.packet()
    assert packet[0] == 0x50 and packet[2:4] == b"\0\1"

    wire.ask("62 02 00 01", "70 02 00 01")


@mqtt_3("2.3.1-4", "4.3.2-1")
@mqtt_5("2.2.1-4", "4.3.2-1", "4.3.3-1")
def test_packet_identifiers_in_use_are_not_given_again(connect, version):
    wire = connect(version, f"inuse{version}")
    wire.ask("82 LL 00 01 {00} 00 04 'iu/1' 01", "90 LL 00 01 {00} 01")
    publish(connect, version, "iu/1", 1, *"abcdefghij")
    identifiers = [wire.expect("32 LL 00 04 'iu/1' .. .. {00} ..")[:2] for _ in range(10)]
    wire.send(b"\x40\x02" + identifiers[4])

    publish(connect, version, "iu/1", 1, *"klmno")

    later = [wire.expect("32 LL 00 04 'iu/1' .. .. {00} ..")[:2] for _ in range(5)]
    assert len({*identifiers, *later}) >= 14
