"""Chapters 3.8 to 3.11, SUBSCRIBE, SUBACK, UNSUBSCRIBE and UNSUBACK."""
import pytest

from tests.conformance.mqtt.statements import mqtt_3, mqtt_5


@mqtt_3("3.8.3-3", "4.8.0-1")
@mqtt_5("3.8.3-2", "4.13.1-1")
def test_subscribe_without_a_filter_ends_the_connection(connect, version):
    wire = connect(version, "nofilter")

    wire.send("82 LL 00 01 {00}")

    wire.expect_refusal(0x81, 0x82)


@mqtt_3("3.10.3-2", "4.8.0-1")
@mqtt_5("3.10.3-2", "4.13.1-1")
def test_unsubscribe_without_a_filter_ends_the_connection(connect, version):
    wire = connect(version, "nofilter2")

    wire.send("a2 LL 00 01 {00}")

    wire.expect_refusal(0x81, 0x82)


@mqtt_3("3-8.3-4")
@mqtt_5("3.8.3-5", "4.13.1-1")
@pytest.mark.parametrize("options", ["03", "07", "40", "80", "c1", "30", "33"])
def test_reserved_bits_and_qos_3_of_a_subscription_end_the_connection(connect, version, options):
    wire = connect(version, "options")

    wire.send(f"82 LL 00 01 {{00}} 00 01 'a' {options}")

    wire.expect_refusal(0x81, 0x82)


@mqtt_3("3-8.3-4")
@pytest.mark.parametrize("options", ["04", "08", "10"])
def test_subscription_options_of_mqtt_5_end_the_connection_of_mqtt_3(connect, options):
    wire = connect(4, "options")

    wire.send(f"82 LL 00 01 00 01 'a' {options}")

    wire.expect_end()


@mqtt_3("4.7.1-2", "4.7.1-3", "4.7.3-1", "3.8.3-2", "3.9.3-2")
@mqtt_5("4.7.1-1", "4.7.1-2", "4.7.3-1", "3.9.3-2", "3.8.4-7")
@pytest.mark.parametrize("filter_", [
    "00 00", "00 02 'a#'", "00 05 'a/#/b'", "00 02 '##'", "00 02 'a+'", "00 04 'a/+b'", "00 02 '+a'",
    "00 02 '#/'",
])
def test_filter_with_misplaced_wildcards_is_refused(connect, version, filter_):
    """In SUBACK, or with the connection."""
    wire = connect(version, "misplaced")

    wire.send(f"82 LL 00 01 {{00}} {filter_} 00")

    packet = wire.packet()
    if packet is not None and packet[0] == 0x90:
        assert packet[-1] in ((0x80,) if version == 4 else (0x8F, 0x80))
    elif packet is not None:
        assert version == 5 and packet[0] == 0xE0 and packet[2] in (0x81, 0x82, 0x8F)


@mqtt_3("3.8.4-4", "3.8.4-5", "3.9.3-1", "3.9.3-2", "3.8.4-1", "3.8.3-2")
@mqtt_5("3.8.4-5", "3.8.4-6", "3.8.4-7", "3.9.3-1", "3.9.3-2", "3.8.4-1", "3.2.2-10")
def test_suback_has_a_code_for_each_filter_in_their_order(connect, version):
    wire = connect(version, f"codes{version}")

    wire.ask(
        "82 LL 00 05 {00} 00 03 's/1' 02 00 03 's/+' 00 00 03 's/#' 01 00 03 's/1' 01",
        "90 LL 00 05 {00} 02 00 01 01",
    )


@mqtt_3("3.8.4-3", "3.3.5-1")
@mqtt_5("3.8.4-3", "3.8.4-4")
def test_same_filter_again_replaces_the_subscription(connect, version):
    wire = connect(version, f"again{version}")
    wire.ask("82 LL 00 01 {00} 00 05 'again' 00", "90 LL 00 01 {00} 00")

    wire.ask("82 LL 00 02 {00} 00 05 'again' 01", "90 LL 00 02 {00} 01")
    sender = connect(version, f"agains{version}")
    sender.send("32 LL 00 05 'again' 00 01 {00} 'x'", "32 LL 00 05 'again' 00 02 {00} 'y'")

    wire.expect("32 LL 00 05 'again' .. .. {00} 'x'")
    wire.expect("32 LL 00 05 'again' .. .. {00} 'y'")


@mqtt_3("3.8.4-3")
@mqtt_5("3.8.4-4")
def test_replacing_a_subscription_loses_nothing(connect, version):
    wire = connect(version, f"lossless{version}")
    wire.ask("82 LL 00 01 {00} 00 02 'll' 01", "90 LL 00 01 {00} 01")
    sender = connect(version, f"losslesss{version}")

    for number in range(1, 31):
        sender.send(f"32 LL 00 02 'll' 00 {number:02x} {{00}} {number:02x}")
        wire.send(f"82 LL 01 {number:02x} {{00}} 00 02 'll' 01")

    found = []
    while len(found) < 30:
        packet = wire.packet()
        if packet[0] & 0xF0 == 0x30:
            found.append(packet[-1])
            wire.send(b"\x40\x02" + packet[6:8])
    assert found == list(range(1, 31))


@mqtt_5("3.8.3-3")
def test_client_does_not_get_its_own_messages_with_no_local(connect):
    wire, other = connect(5, "local"), connect(5, "local2")
    wire.ask("82 LL 00 01 00 00 04 'nl/+' 05", "90 LL 00 01 00 01")
    other.ask("82 LL 00 01 00 00 04 'nl/+' 05", "90 LL 00 01 00 01")

    wire.send("32 LL 00 04 'nl/1' 00 01 00 'a'")
    assert wire.packet()[0] == 0x40
    other.send("32 LL 00 04 'nl/2' 00 01 00 'b'")

    other.expect_all("32 LL 00 04 'nl/1' .. .. 00 'a'", "40 02 00 01")
    wire.expect("32 LL 00 04 'nl/2' .. .. 00 'b'")


@mqtt_5("3.8.3-4", "4.13.1-1")
@pytest.mark.mosquitto_differs("refuses it in SUBACK or lets it pass")
def test_no_local_on_a_shared_subscription_ends_the_connection(connect):
    wire = connect(5, "local3")

    wire.send("82 LL 00 01 00 00 0a '$share/g/a' 04")

    wire.expect_refusal(0x82)


@mqtt_3("3.10.4-1", "3.10.4-2", "3.10.4-4", "3.10.4-5", "3.10.4-6")
@mqtt_5("3.10.4-1", "3.10.4-2", "3.10.4-4", "3.10.4-5", "3.10.4-6", "3.11.3-1", "3.11.3-2")
def test_unsubscribe_compares_filters_character_by_character(connect, version):
    wire = connect(version, f"uns{version}")
    wire.ask("82 LL 00 01 {00} 00 03 'u/+' 00 00 03 'u/1' 00 00 03 'v/1' 00", "90 LL 00 01 {00} 00 00 00")

    wire.ask("a2 LL 00 02 {00} 00 03 'u/#' 00 03 'u/+' 00 03 'V/1'", "b0 LL 00 02 {00 11 00 11}")
    wire.send(
        "30 LL 00 03 'u/2' {00} 'a'", "30 LL 00 03 'u/1' {00} 'b'", "30 LL 00 03 'v/1' {00} 'c'",
    )

    wire.expect("30 LL 00 03 'u/1' {00} 'b'")
    wire.expect("30 LL 00 03 'v/1' {00} 'c'")
    wire.ask("a2 LL 00 03 {00} 00 03 'u/9'", "b0 LL 00 03 {00 11}")


@mqtt_3("3.10.4-3")
@mqtt_5("3.10.4-3")
def test_deliveries_that_have_begun_are_completed_after_unsubscribe(connect, version):
    wire = connect(version, f"begun{version}")
    wire.ask("82 LL 00 01 {00} 00 05 'begun' 02", "90 LL 00 01 {00} 02")
    sender = connect(version, f"beguns{version}")
    sender.send("34 LL 00 05 'begun' 00 01 {00} 'x'", "62 02 00 01")
    identifier = wire.expect("34 LL 00 05 'begun' .. .. {00} 'x'").hex(" ")

    wire.ask("a2 LL 00 02 {00} 00 05 'begun'", "b0 LL 00 02 {00 00}")

    wire.ask(f"50 02 {identifier}", f"62 02 {identifier}")
    wire.send(f"70 02 {identifier}")
    wire.fence()


@mqtt_3("4.7.1-2", "4.7.1-3", "4.7.3-4", "3.3.2-3")
@mqtt_5("4.7.1-1", "4.7.1-2", "4.7.3-4", "3.3.2-3")
@pytest.mark.parametrize("filter_, matching, others", [
    ("m/#", ["m", "m/", "m/1", "m/1/2", "m//2"], ["M", "mm", "M/1", "/m/1"]),
    ("m/+", ["m/1", "m/"], ["m", "m/1/2", "m//"]),
    ("+/m", ["/m", "a/m"], ["m", "/a/m", "a/m/"]),
    ("+/+", ["/x", "y/", "m/x"], ["x", "/x/", "m/x/y"]),
    ("/+", ["/z", "/"], ["z", "/z/", "m/z"]),
    ("m/+/n", ["m/x/n", "m//n"], ["m/n", "m/x/y/n", "m/x/n/o"]),
    ("m.n", ["m.n"], ["m/n", "mxn", "M.N", "m.n "]),
    ("m*/%", ["m*/%"], ["m/x", "ma/b", "m*"]),
])
def test_filters_match_as_the_specification_has_it(connect, version, filter_, matching, others):
    wire = connect(version, f"match{version}")
    wire.send(f"82 LL 00 01 {{00}} 00 {len(filter_):02x} '{filter_}' 00")
    wire.expect_live("90 LL 00 01 {00} 00")
    wire.send("82 LL 00 02 {00} 00 03 'END' 00")
    wire.expect_live("90 LL 00 02 {00} 00")

    for topic in [*others, *matching, *others]:
        wire.send(f"30 LL 00 {len(topic):02x} '{topic}' {{00}} 'x'")
    wire.send("30 LL 00 03 'END' {00} 'x'")

    for topic in matching:
        wire.expect_live(f"30 LL 00 {len(topic):02x} '{topic}' {{00}} 'x'")
    wire.expect_live("30 LL 00 03 'END' {00} 'x'")


@mqtt_3("4.7.2-1")
@mqtt_5("4.7.2-1")
def test_filters_that_begin_with_a_wildcard_do_not_match_topics_that_begin_with_a_dollar(connect, version):
    wire = connect(version, f"dollar{version}")
    wire.send("82 LL 00 01 {00} 00 01 '#' 00 00 03 '+/x' 00 00 03 'END' 00")
    wire.expect_live("90 LL 00 01 {00} 00 00 00")

    wire.send("30 LL 00 02 '$x' {00} 'x'", "30 LL 00 04 '$y/x' {00} 'x'", "30 LL 00 03 'END' {00} 'x'")

    wire.expect_live("30 LL 00 03 'END' {00} 'x'")


@mqtt_3("4.7.2-1", "4.7.3-4")
@mqtt_5("4.7.2-1", "4.7.3-4")
def test_topics_that_begin_with_a_dollar_match_filters_that_do(connect, version):
    wire = connect(version, f"dollars{version}")
    wire.send("82 LL 00 01 {00} 00 04 '$z/#' 00")
    wire.expect_live("90 LL 00 01 {00} 00")

    wire.send("30 LL 00 04 '$z/x' {00} 'x'")

    wire.expect_live("30 LL 00 04 '$z/x' {00} 'x'")


@mqtt_3("3.14.1-1", "4.8.0-1")
@mqtt_5("3.14.4-1", "3.14.4-2")
def test_what_follows_disconnect_is_not_worked_off(connect, version):
    watcher = connect(version, f"gone{version}")
    watcher.ask("82 LL 00 01 {00} 00 06 'gone/+' 00", "90 LL 00 01 {00} 00")
    wire = connect(version, f"goner{version}")

    wire.send("e0 00", "30 LL 00 06 'gone/1' {00} 'x'")

    wire.expect_end()
    watcher.send("30 LL 00 06 'gone/2' {00} 'y'")
    watcher.expect("30 LL 00 06 'gone/2' {00} 'y'")


@mqtt_5("3.14.2-1", "4.13.1-1")
@pytest.mark.parametrize("code", ["01", "05", "7f", "8b"])
@pytest.mark.mosquitto_differs("takes any code")
def test_disconnect_with_a_code_that_is_not_in_the_table_ends_the_connection_as_an_error(connect, code):
    wire = connect(5, "code")

    wire.send(f"e0 01 {code}")

    wire.expect_refusal(0x81, 0x82)
