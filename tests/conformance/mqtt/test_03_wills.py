"""Chapters 3.1.2.5 and 3.1.3, wills: when they are published, and how."""
import pytest

from tests.conformance.mqtt.statements import mqtt_3, mqtt_5


def watched(connect, version, topic):
    """A client that subscribes to a topic of four octets at QoS 2."""
    wire = connect(version, f"w{topic}{version}")
    wire.ask(f"82 LL 00 01 {{00}} 00 04 '{topic}' 02", "90 LL 00 01 {00} 02")
    return wire


@mqtt_3("3.1.2-8", "3.1.2-10", "3.1.2-16")
@mqtt_5("3.1.2-7", "3.1.2-8", "3.1.2-10", "3.1.2-14")
@pytest.mark.parametrize("qos", [0, 1, 2])
def test_will_is_published_once_when_the_connection_is_lost(connect, version, qos):
    topic = f"wl{version}{qos}"
    wire = watched(connect, version, topic)

    for _ in range(2):
        will = f"{{00}} 00 04 '{topic}' 00 04 'gone'"
        connect(version, f"c{topic}", will_flags=0x04 | qos << 3, will=will).abort()
        wire.expect(f"3{2 * qos} LL 00 04 '{topic}' {'.. ..' if qos else ''} {{00}} 'gone'")
        connect(version, f"c{topic}").abort()  # without a will

    if qos == 0:
        wire.expect_silence()
    later = connect(version, f"l{topic}")
    later.ask(f"82 LL 00 01 {{00}} 00 04 '{topic}' 00", "90 LL 00 01 {00} 00")
    later.expect_silence()  # it is not retained


@mqtt_3("3.1.2-10", "3.14.4-3")
@mqtt_5("3.1.2-10", "3.14.4-3")
def test_disconnect_discards_the_will(connect, version):
    wire = watched(connect, version, f"wd/{version}")

    will = f"{{00}} 00 04 'wd/{version}' 00 01 'x'"
    connect(version, f"wd{version}", will_flags=0x04, will=will).disconnect()

    wire.expect_silence()


@mqtt_5("3.1.2-8", "3.14.2-1")
@pytest.mark.parametrize("code", [
    "04", *(pytest.param(code, marks=pytest.mark.mosquitto_differs("for 04 only")) for code in ("80", "93")),
])
def test_disconnect_with_another_reason_publishes_the_will(connect, code):
    wire = watched(connect, 5, f"we{code}")
    leaver = connect(5, f"we{code}", will_flags=0x04, will=f"{{00}} 00 04 'we{code}' 00 01 'x'")

    leaver.send(f"e0 01 {code}")

    wire.expect(f"30 LL 00 04 'we{code}' 00 'x'")


@mqtt_3("3.1.2-8", "4.8.0-1")
@mqtt_5("3.1.2-8", "4.13.1-1")
def test_protocol_violation_publishes_the_will(connect, version):
    wire = watched(connect, version, f"wv/{version}")
    bad = connect(version, f"wv{version}", will_flags=0x04, will=f"{{00}} 00 04 'wv/{version}' 00 01 'x'")

    bad.send("36 LL 00 01 'a' 00 01 {00} 'x'")

    wire.expect(f"30 LL 00 04 'wv/{version}' {{00}} 'x'")


@mqtt_3("3.1.2-12")
@mqtt_5("3.1.2-8")
def test_without_will_flag_nothing_is_published(connect, version):
    wire = watched(connect, version, f"wn/{version}")

    connect(version, f"wn{version}").abort()

    wire.expect_silence()


@mqtt_3("3.1.2-17")
@mqtt_5("3.1.2-15")
def test_will_with_retain_is_retained(connect, version):
    wire = watched(connect, version, f"wr/{version}")

    connect(version, f"wr{version}", will_flags=0x24, will=f"{{00}} 00 04 'wr/{version}' 00 01 'x'").abort()

    wire.expect(f"30 LL 00 04 'wr/{version}' {{00}} 'x'")
    later = connect(version, f"wrl{version}")
    later.send(f"82 LL 00 01 {{00}} 00 04 'wr/{version}' 00")
    later.expect_all("90 LL 00 01 {00} 00", f"31 LL 00 04 'wr/{version}' {{00}} 'x'")


@mqtt_3("3.1.2-8", "3.1.4-2")
@mqtt_5("3.1.2-8", "3.1.4-3")
def test_take_over_publishes_the_will_of_the_old_connection(connect, version):
    wire = watched(connect, version, f"wt/{version}")
    connect(version, f"wt{version}", will_flags=0x04, will=f"{{00}} 00 04 'wt/{version}' 00 01 'x'")

    connect(version, f"wt{version}")

    wire.expect(f"30 LL 00 04 'wt/{version}' {{00}} 'x'")


@mqtt_5("3.1.3-9", "3.1.2-8")
def test_client_that_is_back_before_the_delay_is_over_has_no_will_published(connect):
    wire = watched(connect, 5, "wb/5")
    options = {"clean": False, "properties": "11 00 00 02 58"}
    delay = "05 18 00 00 00 01"

    connect(5, "wb", will_flags=0x04, will=f"{delay} 00 04 'wb/5' 00 01 'x'", **options).abort()
    connect(5, "wb", **options)
    connect(5, "wb2", will_flags=0x04, will=f"{delay} 00 04 'wb/5' 00 01 'y'", **options).abort()

    wire.expect("30 LL 00 04 'wb/5' 00 'y'")  # a second later, and the other's would have come before


@mqtt_5("3.1.2-8")
@pytest.mark.mosquitto_differs("forgets it")
def test_new_session_publishes_the_will_of_the_old_one_at_once(connect):
    wire = watched(connect, 5, "wc/5")
    connect(
        5, "wc", properties="11 00 00 02 58", will_flags=0x04, will="05 18 00 00 02 58 00 04 'wc/5' 00 01 'x'"
    ).abort()

    connect(5, "wc", clean=True)

    wire.expect("30 LL 00 04 'wc/5' 00 'x'")


@mqtt_5("3.1.3-10", "3.1.2-9")
def test_properties_of_the_will_are_passed_on(connect):
    wire = watched(connect, 5, "wp/5")
    properties = (
        "28 01 01 02 00 00 02 58 03 00 01 't' 08 00 01 'r' 09 00 01 'c'"
        " 26 00 01 'b' 00 01 '1' 26 00 01 'a' 00 01 '2' 26 00 01 'b' 00 01 '3'"
    )

    connect(5, "wp", will_flags=0x04, will=f"{properties} 00 04 'wp/5' 00 01 'x'").abort()

    packet = wire.packet()
    for part in (b"\1\1", b"\3\0\1t", b"\x08\0\1r", b"\x09\0\1c"):
        assert part in packet
    assert b"\x26\0\1b\0\x011\x26\0\1a\0\x012\x26\0\1b\0\x013" in packet
