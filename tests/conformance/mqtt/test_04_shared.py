"""Chapter 4.8.2, shared subscriptions."""
import contextlib
import select

import pytest

from tests.conformance.mqtt.statements import mqtt_5
from tests.support.waiting import TIMEOUT_S


@mqtt_5("4.8.2-1", "4.8.2-2", "4.13.1-1")
@pytest.mark.mosquitto_differs("takes most of them")
@pytest.mark.parametrize(
    "filter_", ["$share//a", "$share/g", "$share/g/", "$share/g+/a", "$share/g#/a", "$share/"])
def test_malformed_shared_filter_is_refused(connect, filter_):
    wire = connect(5, "malshare")

    wire.send(f"82 LL 00 01 00 00 {len(filter_):02x} '{filter_}' 00")

    packet = wire.packet()
    if packet is not None and packet[0] == 0x90:
        assert packet[-1] in (0x80, 0x8F)
    elif packet is not None:
        assert packet[0] == 0xE0 and packet[2] in (0x81, 0x82, 0x8F)
        wire.expect_end()


def members(connect, topic, count=3, qos=1, **options):
    """Clients that share a filter of four octets."""
    wires = [connect(5, f"m{topic}{number}", **options) for number in range(count)]
    for wire in wires:
        wire.ask(f"82 LL 00 01 00 00 0d '$share/g/{topic}' {qos:02x}", f"90 LL 00 01 00 {qos:02x}")
    return wires


def first_packet(wires):
    """(the client that something comes to first, the packet)."""
    by_socket = {wire.socket: wire for wire in wires}
    readable, _, _ = select.select(list(by_socket), [], [], TIMEOUT_S)
    wire = by_socket[readable[0]]
    return wire, wire.packet()


def taken(wires, count):
    """What each has received when so many messages have come."""
    found: list = [[] for _ in wires]
    while sum(map(len, found)) < count:
        for mine, wire in zip(found, wires):
            with contextlib.suppress(TimeoutError):
                while packet := wire.packet(0.01):
                    mine.append(packet[-1])
    return found


@mqtt_5("4.8.2-1")
def test_each_message_goes_to_one_member(connect):
    wires = members(connect, "sh/1", qos=0)
    alone = connect(5, "alone")
    alone.ask("82 LL 00 01 00 00 04 'sh/1' 00", "90 LL 00 01 00 00")
    sender = connect(5, "shs1")

    sender.send(*(f"30 LL 00 04 'sh/1' 00 {number:02x}" for number in range(30)))
    sender.fence()
    assert [alone.packet()[-1] for _ in range(30)] == list(range(30))

    found = taken(wires, 30)
    assert sorted(sum(found, [])) == list(range(30))
    assert all(found), "every member has some"
    assert all(mine == sorted(mine) for mine in found)


@mqtt_5("4.8.2-3", "3.8.4-8")
def test_shared_delivery_has_the_lower_of_both_qos(connect):
    (wire,) = members(connect, "sh/2", count=1, qos=1)
    sender = connect(5, "shs2")

    sender.send("34 LL 00 04 'sh/2' 00 01 00 'x'", "62 02 00 01", "30 LL 00 04 'sh/2' 00 'y'")

    wire.expect("32 LL 00 04 'sh/2' .. .. 00 'x'")
    wire.expect("30 LL 00 04 'sh/2' 00 'y'")


@mqtt_5("4.8.2-4", "4.8.2-5")
def test_shared_delivery_of_qos_2_that_has_begun_is_completed_with_its_member_only(connect):
    options = {"clean": False, "properties": "11 00 00 02 58"}
    first, second = members(connect, "sh/3", count=2, qos=2, **options)
    sender = connect(5, "shs3")
    sender.ask("34 LL 00 04 'sh/3' 00 01 00 'x'", "50 02 00 01")
    sender.ask("62 02 00 01", "70 02 00 01")
    has_it, packet = first_packet([first, second])
    other, number = (second, 0) if has_it is first else (first, 1)
    identifier = packet[8:10].hex(" ")
    has_it.abort()

    other.expect_silence()
    back = connect(5, f"msh/3{number}", **options)
    back.expect(f"3c LL 00 04 'sh/3' {identifier} 00 'x'")
    back.abort()
    connect(5, f"msh/3{number}", clean=True)  # the session ends
    other.expect_silence()


@mqtt_5("4.8.2-6", "4.4.0-2")
def test_shared_delivery_that_is_answered_with_an_error_goes_to_nobody_else(connect):
    wires = members(connect, "sh/4", count=2, qos=1)
    sender = connect(5, "shs4")
    sender.ask("32 LL 00 04 'sh/4' 00 01 00 'x'", "40 02 00 01")

    found, packet = first_packet(wires)
    found.send(b"\x40\x03" + packet[8:10] + b"\x83")
    found.fence()
    found.abort()

    for wire in wires:
        if wire is not found:
            wire.expect_silence()


@mqtt_5("4.8.2-1")
@pytest.mark.mosquitto_differs("sends them")
def test_retained_messages_are_not_sent_to_a_shared_subscription(connect):
    sender = connect(5, "shs5")
    sender.send("31 LL 00 04 'sh/5' 00 'x'")
    sender.fence()

    (wire,) = members(connect, "sh/5", count=1)

    wire.expect_silence()


@mqtt_5("4.8.2-1", "3.10.4-1")
def test_shared_and_other_subscriptions_to_a_filter_are_two(connect):
    wire = connect(5, "both")
    wire.ask("82 LL 00 01 00 00 0d '$share/g/sh/6' 00 00 04 'sh/6' 00", "90 LL 00 01 00 00 00")

    wire.ask("a2 LL 00 02 00 00 04 'sh/6'", "b0 LL 00 02 00 00")
    wire.send("30 LL 00 04 'sh/6' 00 'x'")
    wire.expect("30 LL 00 04 'sh/6' 00 'x'")

    wire.ask("a2 LL 00 03 00 00 0d '$share/g/sh/6'", "b0 LL 00 03 00 00")
    wire.send("30 LL 00 04 'sh/6' 00 'y'")
    wire.expect_silence()
