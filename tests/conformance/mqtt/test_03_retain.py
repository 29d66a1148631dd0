"""Chapter 3.3.1.3, retained messages, and what a subscription may ask about them."""
import pytest

from tests.conformance.mqtt.statements import mqtt_3, mqtt_5

SUBACK = "90 LL 00 01 {00} 01"


def kept(connect, version, topic, payload, qos=1):
    """Publish a retained message of five octets of topic; returns the publisher."""
    sender = connect(version, f"keeper{version}")
    if qos:
        sender.send(f"33 LL 00 05 '{topic}' 00 01 {{00}} {payload}")
        assert sender.packet()[0] == 0x40
    else:
        sender.send(f"31 LL 00 05 '{topic}' {{00}} {payload}")
        sender.fence()
    return sender


def retained(wire, topic, options="01", count=1):
    """What a subscription brings at once, as [(first octet, payload)]; ``count`` of them."""
    wire.send(f"82 LL 00 01 {{00}} 00 05 '{topic}' {options}")
    found, answered = [], False
    while len(found) < count or not answered:
        packet = wire.packet()
        if packet[0] == 0x90:
            answered = True
        else:
            found.append((packet[0], packet[-1:]))
    if not count:
        wire.expect_silence()
    return found


@mqtt_3("3.3.1-5", "3.3.1-6", "3.3.1-8")
@mqtt_5("3.3.1-5", "3.3.1-9")
def test_new_subscription_gets_the_retained_message_with_retain(connect, version):
    kept(connect, version, f"re/1{version}", "'x'")

    assert retained(connect(version, f"r1{version}"), f"re/1{version}") == [(0x33, b"x")]


@mqtt_3("3.3.1-6")
@mqtt_5("3.3.1-9")
def test_filter_with_wildcards_gets_all_retained_messages_that_match(connect, version):
    for topic in (f"w{version}/aa", f"w{version}/bb", f"v{version}/cc"):
        kept(connect, version, topic, f"'{topic[-1]}'")
    wire = connect(version, f"r2{version}")

    wire.send(f"82 LL 00 01 {{00}} 00 04 'w{version}/+' 01")
    found = []
    while len(found) < 2:
        packet = wire.packet()
        if packet[0] & 0xF0 == 0x30:
            assert packet[0] == 0x33
            found.append(packet[-1:])
    assert sorted(found) == [b"a", b"b"]
    wire.expect_silence()


@mqtt_3("3.3.1-7", "3.3.1-5")
@mqtt_5("3.3.1-5")
def test_later_retained_message_replaces_the_one_before(connect, version):
    kept(connect, version, f"re/3{version}", "'x'")
    kept(connect, version, f"re/3{version}", "'y'", qos=0)

    assert retained(connect(version, f"r3{version}"), f"re/3{version}") == [(0x31, b"y")]


@mqtt_3("3.3.1-9")
@mqtt_5("3.3.1-12")
def test_old_subscription_gets_it_without_retain(connect, version):
    wire = connect(version, f"r4{version}")
    wire.ask(f"82 LL 00 01 {{00}} 00 05 're/4{version}' 01", SUBACK)

    kept(connect, version, f"re/4{version}", "'x'")

    wire.expect(f"32 LL 00 05 're/4{version}' .. .. {{00}} 'x'")


@mqtt_3("3.3.1-10", "3.3.1-11")
@mqtt_5("3.3.1-6", "3.3.1-7")
def test_empty_retained_message_is_delivered_and_deletes(connect, version):
    kept(connect, version, f"re/5{version}", "'x'")
    wire = connect(version, f"r5{version}")
    assert retained(wire, f"re/5{version}", "00") == [(0x31, b"x")]

    kept(connect, version, f"re/5{version}", "")

    wire.expect(f"30 LL 00 05 're/5{version}' {{00}}")
    assert retained(connect(version, f"r5b{version}"), f"re/5{version}", count=0) == []


@mqtt_3("3.3.1-12")
@mqtt_5("3.3.1-8")
def test_message_without_retain_leaves_the_retained_one_alone(connect, version):
    sender = kept(connect, version, f"re/6{version}", "'x'")
    for payload in ("'y'", ""):
        sender.send(f"32 LL 00 05 're/6{version}' 00 02 {{00}} {payload}")
        assert sender.packet()[0] == 0x40

    assert retained(connect(version, f"r6{version}"), f"re/6{version}") == [(0x33, b"x")]


@mqtt_3("3.1.2.7")
def test_retained_message_survives_the_end_of_the_session(connect):
    kept(connect, 4, "re/74", "'x'").disconnect()

    assert retained(connect(4, "r74"), "re/74") == [(0x33, b"x")]


@mqtt_3("3.8.4-3")
@mqtt_5("3.8.4-4", "3.3.1-9")
def test_same_subscription_again_brings_the_retained_message_again(connect, version):
    kept(connect, version, f"re/8{version}", "'x'")
    wire = connect(version, f"r8{version}")

    assert retained(wire, f"re/8{version}", "00") == [(0x31, b"x")]
    assert retained(wire, f"re/8{version}", "00") == [(0x31, b"x")]


@mqtt_5("3.3.1-10")
def test_retain_handling_1_is_for_new_subscriptions(connect):
    kept(connect, 5, "re/95", "'x'")
    wire = connect(5, "r95")

    assert retained(wire, "re/95", "10") == [(0x31, b"x")]
    assert retained(wire, "re/95", "11", count=0) == []


@mqtt_5("3.3.1-11")
def test_retain_handling_2_brings_nothing(connect):
    kept(connect, 5, "re/a5", "'x'")

    assert retained(connect(5, "ra5"), "re/a5", "20", count=0) == []


@mqtt_5("3.3.1-12", "3.3.1-13")
@pytest.mark.parametrize("option, head", [("08", "31"), ("00", "30")])
def test_retain_as_published_keeps_the_flag(connect, option, head):
    wire = connect(5, f"rb{option}")
    wire.ask(f"82 LL 00 01 00 00 05 're/b5' {option}", "90 LL 00 01 00 00")

    sender = kept(connect, 5, "re/b5", "'x'")
    wire.expect(f"{head} LL 00 05 're/b5' 00 'x'")

    sender.send("30 LL 00 05 're/b5' 00 'y'", "31 LL 00 05 're/b5' 00")
    wire.expect("30 LL 00 05 're/b5' 00 'y'")
    wire.expect(f"{head} LL 00 05 're/b5' 00")


@mqtt_3("3.3.1-5", "3.8.4-6")
@mqtt_5("3.8.4-8")
@pytest.mark.parametrize("granted, head", [("00", 0x31), ("01", 0x33), ("02", 0x33)])
def test_retained_message_has_the_lower_of_both_qos(connect, version, granted, head):
    kept(connect, version, f"re/c{version}", "'x'")

    assert retained(connect(version, f"rc{version}{granted}"), f"re/c{version}", granted) == [(head, b"x")]


@mqtt_5("3.3.1-5", "3.3.2-15", "3.3.2-17")
def test_retained_message_keeps_its_properties(connect):
    sender = connect(5, "rd")
    sender.send("31 LL 00 05 're/d5' 10 26 00 01 'k' 00 01 'v' 08 00 02 'rt' 03 00 01 't' 'x'")
    sender.fence()
    wire = connect(5, "rd2")

    wire.send("82 LL 00 01 02 0b 05 00 05 're/d5' 00")

    packets = [wire.packet(), wire.packet()]
    (found,) = [packet for packet in packets if packet[0] == 0x31]
    for part in (b"\x26\0\1k\0\1v", b"\x08\0\2rt", b"\x03\0\1t", b"\x0b\x05"):
        assert part in found
