"""Chapter 3.3, PUBLISH: what is refused, and what of a message is passed on."""
import pytest

from tests.conformance.mqtt.statements import mqtt_3, mqtt_5
from tests.support.broker_process import BrokerProcess
from tests.support.mqtt_wire import MQTTWire, connack_properties, publish_properties


@mqtt_3("3.3.1-4", "4.8.0-1")
@mqtt_5("3.3.1-4", "4.13.1-1")
@pytest.mark.parametrize("head", ["36", "37", "3e", "3f"])
def test_qos_3_ends_the_connection(connect, version, head):
    wire = connect(version, "qos3")

    wire.send(f"{head} LL 00 01 'a' 00 01 {{00}} 'x'")

    wire.expect_refusal(0x81)


@mqtt_3("3.3.2-2", "4.7.1-1")
@mqtt_5("3.3.2-2", "4.7.0-1")
@pytest.mark.parametrize("topic", ["00 01 '#'", "00 03 'a/+'", "00 03 'a#b'", "00 03 'a+b'"])
@pytest.mark.parametrize("head, identifier", [("30", ""), ("32", "00 01"), ("34", "00 01")])
def test_topic_name_with_wildcards_ends_the_connection(connect, version, topic, head, identifier):
    wire = connect(version, "wild")

    wire.send(f"{head} LL {topic} {identifier} {{00}} 'x'")

    wire.expect_refusal(0x81, 0x82, 0x90)


@mqtt_3("4.7.3-1", "3.3.2-1")
@mqtt_5("4.7.3-1", "3.3.2-1")
def test_empty_topic_name_ends_the_connection(connect, version):
    wire = connect(version, "empty")

    wire.send("30 LL 00 00 {00} 'x'")

    wire.expect_refusal(0x81, 0x82, 0x90)


@mqtt_3("3.3.1-2", "4.8.0-1")
@mqtt_5("3.3.1-2", "4.13.1-1")
@pytest.mark.mosquitto_differs("takes DUP at QoS 0 of MQTT 3.1.1")
def test_dup_at_qos_0_ends_the_connection(connect, version):
    wire = connect(version, "dup0")

    wire.send("38 LL 00 01 'a' {00} 'x'")

    wire.expect_refusal(0x81, 0x82)


@mqtt_3("3.3.1-3", "4.3.2-2")
@mqtt_5("3.3.1-3", "4.3.2-4", "4.3.2-5")
def test_dup_of_the_publisher_is_neither_passed_on_nor_believed_at_qos_1(connect, version):
    wire = connect(version, f"dup{version}")
    wire.ask("82 LL 00 01 {00} 00 03 'dup' 01", "90 LL 00 01 {00} 01")
    sender = connect(version, f"dups{version}")

    sender.ask("32 LL 00 03 'dup' 00 07 {00} 'x'", "40 02 00 07")
    sender.ask("3a LL 00 03 'dup' 00 07 {00} 'x'", "40 02 00 07")

    wire.expect("32 LL 00 03 'dup' .. .. {00} 'x'")
    wire.expect("32 LL 00 03 'dup' .. .. {00} 'x'")


@mqtt_3("3.3.2-3", "3.8.4-6", "4.5.0-1")
@mqtt_5("3.3.2-3", "3.8.4-8", "4.5.0-1")
@pytest.mark.parametrize("published", [0, 1, 2])
@pytest.mark.parametrize("granted", [0, 1, 2])
def test_delivery_has_the_lower_of_both_qos(connect, version, published, granted):
    wire = connect(version, f"low{version}{published}{granted}")
    wire.ask(f"82 LL 00 01 {{00}} 00 05 'min/+' {granted:02x}", f"90 LL 00 01 {{00}} {granted:02x}")
    sender = connect(version, f"lowsender{version}")

    sender.send(f"3{published * 2} LL 00 05 'min/x' {'00 01' if published else ''} {{00}} 'x'")
    if published == 2:
        sender.send("62 02 00 01")

    lower = min(published, granted)
    wire.expect(f"3{lower * 2} LL 00 05 'min/x' {'.. ..' if lower else ''} {{00}} 'x'")


@mqtt_3("3.3.5-1")
@mqtt_5("3.3.4-2")
@pytest.mark.mosquitto_differs("takes the first that matches in MQTT 3.1.1")
def test_overlapping_subscriptions_deliver_at_the_highest_of_their_qos(connect, version):
    wire = connect(version, f"over{version}")
    wire.ask(
        "82 LL 00 01 {00} 00 03 'o/#' 00 00 03 'o/+' 02 00 03 'o/x' 01", "90 LL 00 01 {00} 00 02 01")

    for number in (1, 2):
        wire.send(f"34 LL 00 03 'o/x' 00 0{number} {{00}} '{number}'", f"62 02 00 0{number}")

    heads = []
    while (packet := wire.packet())[-1:] != b"2" or packet[0] & 0xF0 != 0x30:
        if packet[0] & 0xF0 == 0x30:
            heads.append(packet[0])
    assert 0x34 in heads, "one of the copies, if there are several"


@mqtt_5("3.3.4-3", "3.3.4-4")
def test_single_copy_has_the_identifiers_of_all_subscriptions_that_match(connect):
    wire = connect(5, "identifiers")
    wire.ask("82 LL 00 01 02 0b 01 00 04 'si/#' 01", "90 LL 00 01 00 01")
    wire.ask("82 LL 00 02 03 0b c8 01 00 04 'si/+' 01", "90 LL 00 02 00 01")
    wire.ask("82 LL 00 03 00 00 04 'si/x' 01", "90 LL 00 03 00 01")
    wire.ask("82 LL 00 04 02 0b 07 00 04 'si/y' 01", "90 LL 00 04 00 01")

    wire.send("30 LL 00 04 'si/x' 00 '1'", "30 LL 00 04 'si/x' 00 '2'")

    found, copies = [], 0
    while (packet := wire.packet())[-1:] != b"2":
        copies += 1
        found += publish_properties(packet)
    assert sorted(found) == [(0x0B, 1), (0x0B, 200)]
    assert copies in (1, 3)


@mqtt_5("3.3.4-6")
@pytest.mark.mosquitto_differs("lets it pass")
def test_subscription_identifier_from_a_client_ends_the_connection(connect):
    wire = connect(5, "has-id")

    wire.send("30 LL 00 01 'a' 02 0b 01 'x'")

    wire.expect_refusal(0x81, 0x82)


@mqtt_5("3.3.2-4", "3.3.2-15", "3.3.2-16", "3.3.2-17", "3.3.2-20")
@pytest.mark.parametrize("head, tail", [("30", ""), ("32", "00 01"), ("34", "00 01")])
def test_properties_of_a_message_are_passed_on(connect, head, tail):
    wire = connect(5, f"props{head}")
    wire.ask("82 LL 00 01 00 00 05 'props' 00", "90 LL 00 01 00 00")
    sender = connect(5, f"propsender{head}")

    sender.send(
        f"{head} LL 00 05 'props' {tail}"
        " 29 01 01 03 00 0a 'text/plain' 08 00 03 'r/1' 09 00 04 00 ff 80 01"
        " 26 00 03 'key' 00 05 'value' 'x'"
    )
    if head == "34":
        sender.send("62 02 00 01")

    packet = wire.packet()
    assert packet[0] == 0x30 and packet[-1:] == b"x"
    assert sorted(publish_properties(packet)) == [
        (0x01, 1), (0x03, "text/plain"), (0x08, "r/1"), (0x09, b"\x00\xff\x80\x01"), (0x26, ("key", "value")),
    ]


@mqtt_5("3.3.2-14")
@pytest.mark.mosquitto_differs("takes a wildcard in the response topic at QoS 0")
@pytest.mark.parametrize("topic", ["'a/#'", "'a/+'"])
def test_response_topic_with_wildcards_ends_the_connection(connect, topic):
    wire = connect(5, "response")

    wire.send(f"30 LL 00 01 'a' 06 08 00 03 {topic} 'x'")

    wire.expect_refusal(0x81, 0x82, 0x90)


@mqtt_5("3.3.2-6", "3.3.2-5")
def test_expiry_interval_is_what_is_left_of_it_and_the_expired_is_not_delivered(connect):
    options = {"clean": False, "properties": "11 00 00 02 58"}
    away = connect(5, "expiring", **options)
    away.ask("82 LL 00 01 00 00 03 'exp' 01", "90 LL 00 01 00 01")
    away.disconnect()
    watcher = connect(5, "exp-watcher")
    watcher.ask("82 LL 00 01 00 00 03 'exp' 00", "90 LL 00 01 00 00")
    sender = connect(5, "exp-sender")
    sender.ask("32 LL 00 03 'exp' 00 01 05 02 00 00 00 01 'soon'", "40 02 00 01")
    sender.ask("32 LL 00 03 'exp' 00 02 05 02 00 00 02 58 'late'", "40 02 00 02")
    watcher.expect("30 LL 00 03 'exp' 05 02 00 00 00 01 'soon'")
    watcher.expect("30 LL 00 03 'exp' 05 02 00 00 02 58 'late'")

    will = "05 18 00 00 00 02 00 03 'exp' 00 01 'w'"
    connect(5, "second", will_flags=0x04, properties="11 00 00 00 02", will=will).abort()
    watcher.expect("30 LL 00 03 'exp' 00 'w'")  # two seconds later

    back = connect(5, "expiring", **options)
    packet = back.packet()
    assert packet.endswith(b"late")
    ((identifier, left),) = publish_properties(packet)
    assert identifier == 0x02 and 590 <= left < 600


@mqtt_5("3.3.2-8", "3.3.2-9", "4.13.1-1")
@pytest.mark.parametrize("alias", ["00 00", "ff ff"])
def test_topic_alias_of_zero_or_above_the_maximum_ends_the_connection(connect, alias):
    wire = connect(5, "alias0")
    assert connack_properties(wire.connected).get(0x22, 0) < 0xFFFF

    wire.send(f"30 LL 00 01 'a' 03 23 {alias} 'x'")

    wire.expect_refusal(0x94, 0x81, 0x82)


@mqtt_5("3.3.2-12")
def test_every_topic_alias_up_to_the_maximum_is_accepted(connect):
    wire = connect(5, "aliases")
    wire.ask("82 LL 00 01 00 00 08 'aliased/' 00", "90 LL 00 01 00 00")
    maximum = connack_properties(wire.connected)[0x22]

    for alias in sorted({1, 2, maximum}):
        wire.send(f"30 LL 00 08 'aliased/' 03 23 {alias >> 8:02x} {alias & 255:02x} 'x'")
        wire.send(f"30 LL 00 00 03 23 {alias >> 8:02x} {alias & 255:02x} 'y'")
        wire.expect("30 LL 00 08 'aliased/' 00 'x'")
        wire.expect("30 LL 00 08 'aliased/' 00 'y'")


@mqtt_5("3.3.2-12")
def test_topic_alias_can_be_given_another_topic(connect):
    wire = connect(5, "realias")
    wire.ask("82 LL 00 01 00 00 04 'ra/+' 00", "90 LL 00 01 00 00")

    wire.send(
        "30 LL 00 04 'ra/1' 03 23 00 01 'a'", "30 LL 00 04 'ra/2' 03 23 00 01 'b'",
        "30 LL 00 00 03 23 00 01 'c'",
    )

    wire.expect("30 LL 00 04 'ra/1' 00 'a'")
    wire.expect("30 LL 00 04 'ra/2' 00 'b'")
    wire.expect("30 LL 00 04 'ra/2' 00 'c'")


@mqtt_5("3.3.2-7", "4.13.1-1")
def test_topic_aliases_end_with_the_connection(connect):
    wire = connect(5, "forgets", clean=False, properties="11 00 00 02 58")
    wire.send("30 LL 00 01 'f' 03 23 00 01 'x'")
    wire.disconnect()
    wire = connect(5, "forgets", clean=False, properties="11 00 00 02 58")

    wire.send("30 LL 00 00 03 23 00 01 'y'")

    wire.expect_refusal(0x82, 0x94)


@mqtt_3("4.6.0-5", "4.6.0-6")
@mqtt_5("4.6.0-5", "4.6.0-6")
@pytest.mark.parametrize("qos", [0, 1, 2])
def test_messages_come_in_the_order_of_publishing(connect, version, qos):
    wire = connect(version, f"order{version}{qos}", **({"properties": "21 ff ff"} if version == 5 else {}))
    wire.ask("82 LL 00 01 {00} 00 05 'order' 02", "90 LL 00 01 {00} 02")
    sender = connect(version, f"orders{version}{qos}")

    sender.send(*(
        f"3{2 * qos} LL 00 05 'order' {f'01 {number:02x}' if qos else ''} {{00}} {number:02x}"
        for number in range(1, 21)
    ))
    if qos == 2:
        sender.send(*(f"62 02 01 {number:02x}" for number in range(1, 21)))

    assert [wire.packet()[-1] for _ in range(20)] == list(range(1, 21))


@mqtt_5("3.4.2-1", "3.5.2-1")
def test_message_that_nobody_subscribes_to_is_acknowledged(connect):
    wire = connect(5, "nobody")

    wire.send("32 LL 00 08 'nobody/1' 00 01 00 'x'", "34 LL 00 08 'nobody/2' 00 02 00 'x'")

    for head, identifier in ((0x40, b"\0\1"), (0x50, b"\0\2")):
        packet = wire.packet()
        assert packet[0] == head and packet[2:4] == identifier
        assert len(packet) == 4 or packet[4] in (0x00, 0x10)


@mqtt_5("3.3.4-7", "4.13.1-1")
@pytest.mark.mosquitto_differs("takes as many as there are packet identifiers here")
def test_more_unacknowledged_messages_than_the_receive_maximum_are_refused(tmp_path):
    (tmp_path / "gomq.ini").write_text("[mqtt]\nmax_inflight_messages = 20\n")
    with BrokerProcess(tmp_path / "data", config=tmp_path / "gomq.ini", mqtt_port=0) as broker:
        wire = MQTTWire(("127.0.0.1", broker.ports["mqtt"]), 5)
        assert connack_properties(wire.connect("too-many"))[0x21] == 20

        wire.send(*(f"34 LL 00 04 'many' 00 {number:02x} 00 'x'" for number in range(1, 22)))

        kinds = []
        while (packet := wire.packet()) is not None:
            kinds.append(packet[0])
            last = packet
        wire.abort()
    assert kinds[-1] == 0xE0 and last[2] == 0x93
    assert len(kinds) <= 21 and set(kinds[:-1]) <= {0x50}
