"""The walk over deliveries: what becomes of properties, and octets that no broker sends."""
import random
from types import SimpleNamespace

import pytest

from gomq_py.amqp.wire.errors import AMQPError
from gomq_py.amqp.wire.frames import content_frames, method_frame
from gomq_py.amqp.wire.methods import BasicDeliver
from gomq_py.content.properties import Properties
from gomq_py.links.confirms import Confirms
from gomq_py.links.relay import INPUT_OCTETS, KNOWN_MOST, OUTPUT_OCTETS, HeaderStamp, Relay, Unfit
from tests.support.wire_encoding import frame

HOP = [{"cluster-name": "there"}]
HOP_AGAIN = [{"cluster-name": "there", "redelivered": True}]


def delivery(tag, properties, body=b"body", redelivered=False, channel=1):
    """A delivery's frames."""
    method = BasicDeliver(
        consumer_tag="c", delivery_tag=tag, redelivered=redelivered, exchange="e", routing_key="k")
    return method_frame(channel, method) + content_frames(channel, properties, body, 131072)


INPUT, OUTPUT = bytearray(INPUT_OCTETS), bytearray(OUTPUT_OCTETS)


def make_relay(**options):
    return Relay(INPUT, OUTPUT, 1, 2, 131072, **options)


def walk(relay, octets, most=1000):
    """What is written for these octets."""
    INPUT[:len(octets)] = octets
    done = relay.walk(len(octets), most)
    return done, bytes(OUTPUT[:relay.written])


def properties_written(octets):
    """Of each message in frames that were written."""
    found, at = [], 0
    while at < len(octets):
        size = int.from_bytes(octets[at + 3:at + 7], "big")
        if octets[at] == 2:
            found.append(octets[at + 19:at + 7 + size])
        at += size + 8
    return found


def entry(value):
    return Properties(headers={"received": value}).encode()[6:]


@pytest.mark.parametrize("properties", [
    Properties(), Properties(content_type="t", content_encoding="e", delivery_mode=2, priority=3),
    Properties(headers={}), Properties(headers={"a": 1, "b": [True, {"c": "d"}]}, message_id="m", app_id="a"),
    Properties(
        content_type="t", headers={"receive": 1, "received2": 2}, timestamp=1700000000, cluster_id="c"),
], ids=str)
@pytest.mark.parametrize("redelivered", [False, True])
def test_stamped_properties_are_what_an_edit_would_make_of_them(properties, redelivered):
    asked = []
    relay = make_relay(
        edit=lambda *arguments: asked.append(arguments),
        header_stamp=HeaderStamp(b"\x08received", entry(HOP), entry(HOP_AGAIN)))

    done, written = walk(relay, delivery(1, properties.encode(), redelivered=redelivered))

    expected = Properties.decode(properties.encode())
    expected.headers = {**(expected.headers or {}), "received": HOP_AGAIN if redelivered else HOP}
    assert properties_written(written) == [expected.encode()]
    assert asked == []


@pytest.mark.parametrize("properties", [
    Properties(headers={"received": []}), Properties(user_id="guest"),
    Properties(headers={"a": 1, "received": 5}),
], ids=str)
def test_edit_is_asked_for_what_is_no_plain_case_of_a_stamp(properties):
    relay = make_relay(
        edit=lambda properties, delivered: Properties(type="edited"),
        header_stamp=HeaderStamp(b"\x08received", entry(HOP), entry(HOP)))

    _, written = walk(relay, delivery(1, properties.encode()))

    assert properties_written(written) == [Properties(type="edited").encode()]


def hopping(asked):
    """An edit that adds a hop to those in the header, and leaves out what has been at ``here``."""
    def edit(properties, delivered):
        asked.append(properties.headers)
        hops = properties.headers["received"]
        if {"cluster-name": "here"} in hops:
            return None
        properties.headers = {**properties.headers, "received": [
            {"cluster-name": "there", "redelivered": delivered.redelivered}, *hops]}
        return properties
    return edit


def test_what_an_edit_makes_of_headers_is_remembered_and_nothing_else():
    asked = []
    relay = make_relay(edit=hopping(asked), header_stamp=HeaderStamp(b"\x08received", entry(HOP), entry(HOP)))
    other, here = [{"cluster-name": "other"}], [{"cluster-name": "here"}]

    stream = [
        (Properties(headers={"a": 1, "received": other}, **more), redelivered)
        for redelivered in (False, True)
        for more in ({}, {"message_id": "m", "content_type": "t"}, {"app_id": "a", "priority": 3})]
    _, written = walk(relay, b"".join(
        delivery(tag, properties.encode(), redelivered=redelivered)
        for tag, (properties, redelivered) in enumerate(stream, 1)))
    left_out = 0
    for tag in (7, 8):
        walk(relay, delivery(tag, Properties(headers={"received": here}, message_id=str(tag)).encode()))
        left_out += relay.left_out

    edit = hopping([])
    assert properties_written(written) == [
        edit(properties, SimpleNamespace(redelivered=redelivered)).encode()
        for properties, redelivered in stream]
    assert left_out == 2
    assert asked == [{"a": 1, "received": other}] * 2 + [{"received": here}]


@pytest.mark.parametrize("more", [
    {"user_id": "guest"}, {"headers": {"received": [], "a": "x" * 1024}},
], ids=["user id", "large"])
def test_edit_is_asked_each_time_for_large_headers_and_messages_with_a_user_id(more):
    asked = []
    relay = make_relay(edit=hopping(asked), header_stamp=HeaderStamp(b"\x08received", entry(HOP), entry(HOP)))
    properties = Properties(**{"headers": {"received": []}, **more}).encode()

    walk(relay, delivery(1, properties) + delivery(2, properties))

    assert len(asked) == relay.count == 2


def test_headers_that_are_remembered_are_bounded():
    asked = []
    relay = make_relay(edit=hopping(asked), header_stamp=HeaderStamp(b"\x08received", entry(HOP), entry(HOP)))
    numbers = [*range(KNOWN_MOST + 1)]

    for first in (1, len(numbers) + 1):
        _, written = walk(relay, b"".join(
            delivery(first + at, Properties(headers={"received": [], "a": number}).encode())
            for at, number in enumerate(numbers)))
        assert [Properties.decode(one).headers["a"] for one in properties_written(written)] == numbers
        numbers.reverse()

    # the last of the first round is known, the others were forgotten when it came
    assert len(asked) == 2 * len(numbers) - 1


DEEP = {}
for _ in range(40):
    DEEP = {"a": DEEP}


def test_message_whose_properties_cannot_be_read_is_unfit_by_itself_alone():
    relay = make_relay(edit=lambda properties, delivered: properties)
    stream = b"".join(delivery(tag, Properties(headers=headers).encode()) for tag, headers in (
        (1, {}), (2, DEEP), (3, {})))

    done, written = walk(relay, stream)
    assert (relay.count, properties_written(written)) == (1, [Properties(headers={}).encode()])
    with pytest.raises(Unfit, match="cannot be read or changed: malformed basic properties"):
        walk(relay, stream[done:])
    relay.skips = True
    skipped, written = walk(relay, stream[done:], 1)
    assert (relay.left_out, written) == (True, b"")
    _, written = walk(relay, stream[done + skipped:])
    assert relay.count == 1 and len(properties_written(written)) == 1


@pytest.mark.parametrize("body", [b"body", b"x" * 140_000])
def test_message_is_known_again_whatever_its_headers_say_by_now(body):
    def checksum(properties, routing_key="k"):
        relay = make_relay()
        relay.signs = True
        method = BasicDeliver(
            consumer_tag="c", delivery_tag=1, redelivered=False, exchange="e", routing_key=routing_key)
        octets = method_frame(1, method) + content_frames(1, properties.encode(), body, 131072)
        walk(relay, octets[:INPUT_OCTETS])
        return relay.checksum

    first = checksum(Properties(message_id="m", content_type="t"))

    assert first
    for count in (1, 2):
        assert first == checksum(
            Properties(message_id="m", content_type="t", headers={"x-delivery-count": count}))
    assert len({
        first, checksum(Properties(message_id="n", content_type="t")),
        checksum(Properties(message_id="m", content_type="s")),
        checksum(Properties(message_id="m", content_type="t"), "other")}) == 4


STREAM = b"".join(
    delivery(tag, Properties(headers={"n": tag}).encode(), b"x" * size)
    for tag, size in enumerate([0, 1, 5000, 130_000], start=1))


@pytest.mark.parametrize("seed", range(60))
def test_damaged_deliveries_are_refused_and_never_written_wrongly(seed):
    """A flipped, cut or doubled piece: an AMQPError, or whole frames for the target's channel alone."""
    draw = random.Random(seed)
    octets = bytearray(STREAM)
    at = draw.randrange(300)
    kind = draw.randrange(3)
    if kind == 0:
        octets[at] = draw.randrange(256)
    elif kind == 1:
        del octets[at:at + draw.randrange(1, 30)]
    else:
        octets[at:at] = octets[:draw.randrange(1, 60)]
    relay = make_relay(
        header_stamp=HeaderStamp(b"\x08received", entry(HOP), entry(HOP)),
        edit=lambda properties, delivered: None)

    written = b""
    try:
        done = 0
        while True:
            count, out = walk(relay, bytes(octets[done:done + INPUT_OCTETS]))
            written += out
            done += count
            if not count:
                break
            relay.others.clear()
    except (AMQPError, Unfit):
        pass

    at = 0
    while at < len(written):
        size = int.from_bytes(written[at + 3:at + 7], "big")
        assert written[at] in (1, 2, 3) and written[at + 1:at + 3] == b"\0\2"
        assert written[at + 7 + size] == 0xCE
        at += size + 8
    assert at == len(written)


@pytest.mark.parametrize("octets", [
    frame(1, 5, b"\0\x3c\0\x50" + bytes(8) + b"\0"), frame(3, 1, b"x"), frame(9, 1, b""), frame(1, 1, b"\0"),
    frame(1, 1, b"\0\x3c\0\x50" + (7).to_bytes(8, "big") + b"\0"), frame(1, 1, b"\0\x3c\0\x50" + bytes(9)),
    frame(1, 1, b"\0\x3c\0\x50" + bytes(3)), b"\x01\0\1\xff\xff\xff\xff" + bytes(9),
], ids=["channel", "body", "type", "short", "unknown number", "number 0", "cut", "size"])
def test_confirms_that_no_broker_sends_are_refused(octets):
    confirms = Confirms(1, 131072)
    confirms.published(3)

    with pytest.raises(AMQPError):
        confirms.walk(bytearray(octets), len(octets))


RETURN = frame(1, 1, b"\0\x3c\0\x32\x01\x38\x08NO_ROUTE\0\x01q")
RETURNED = RETURN + frame(2, 1, b"\0\x3c\0\0" + (5).to_bytes(8, "big") + b"\0\0") + frame(3, 1, b"hello")
ACK = b"\0\x3c\0\x50"


@pytest.mark.parametrize("size", [1, 7, 1000])
def test_messages_that_were_on_their_way_when_one_came_back_count_as_refused(size):
    confirms = Confirms(1, 131072)
    confirms.published(3)
    stream = (
        frame(1, 1, ACK + (1).to_bytes(8, "big") + b"\0") + RETURNED + frame(8, 0, b"")
        + frame(1, 1, ACK + (3).to_bytes(8, "big") + b"\1"))

    tail = b""
    for at in range(0, len(stream), size):
        tail += stream[at:at + size]
        tail = tail[confirms.walk(bytearray(tail), len(tail)):]

    assert (confirms.low, confirms.refused, confirms.returned, confirms.others) == (4, [2, 3], 1, [])


def test_messages_that_are_published_after_one_came_back_are_confirmed():
    confirms = Confirms(1, 131072)
    confirms.published(1)
    confirms.walk(bytearray(RETURNED), len(RETURNED))
    confirms.published(2)
    octets = frame(1, 1, ACK + (3).to_bytes(8, "big") + b"\1")

    confirms.walk(bytearray(octets), len(octets))

    assert (confirms.low, confirms.refused) == (4, [1])


@pytest.mark.parametrize("octets", [
    RETURN + RETURN, RETURN + frame(3, 1, b"hello"), RETURN + frame(2, 1, bytes(13)),
    RETURNED[:-len(frame(3, 1, b"hello"))] + frame(3, 1, b"hello!"),
    RETURNED[:-len(frame(3, 1, b"hello"))] + frame(1, 1, ACK + (1).to_bytes(8, "big") + b"\0"),
], ids=["no content", "no header", "short header", "long body", "no body"])
def test_returned_messages_that_no_broker_sends_are_refused(octets):
    confirms = Confirms(1, 131072)
    confirms.published(3)

    with pytest.raises(AMQPError):
        confirms.walk(bytearray(octets), len(octets))


def test_confirm_of_number_0_with_multiple_is_of_all():
    confirms = Confirms(1, 131072)
    confirms.published(3)
    octets = frame(1, 1, b"\0\x3c\0\x50" + bytes(8) + b"\1")

    assert confirms.walk(bytearray(octets), len(octets)) == len(octets)
    assert confirms.low == confirms.following == 4
