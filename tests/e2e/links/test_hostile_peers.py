"""Links to peers that break the protocol, flood, or never say what they should: the link says which end it is
and tries again, nothing is acknowledged at the source that was not confirmed, and the loop stays everybody's.
"""
import logging
import struct
from functools import partial

import pytest

from gomq_py.amqp.wire.frames import HEARTBEAT_FRAME, method_frame
from gomq_py.amqp.wire.methods import (
    BasicAck, BasicConsumeOk, BasicDeliver, BasicNack, BasicPublish, BasicQos, BasicReturn, ChannelClose,
    ChannelCloseOk, ChannelFlow, ChannelOpen, ConnectionBlocked, ConnectionClose, ConnectionCloseOk,
    ConnectionStart, ConnectionUnblocked, QueueDeclareOk,
)
from gomq_py.client import stream
from gomq_py.links import link as links_link
from gomq_py.links import session as link_session
from gomq_py.links import wire
from gomq_py.links.ends import SourceEnd, TargetEnd
from gomq_py.links.link import Link
from tests.support.hostile_broker import HostileBroker
from tests.support.links import QUICK, connect, ended, until
from tests.support.waiting import in_time

COUNT = 5
LARGE = struct.pack(">BHIB", 1, 1, 1 << 24, 0)
HEADER = struct.pack(">HHQH", 60, 0, 4, 0)
DELIVER = BasicDeliver(consumer_tag="tag", delivery_tag=1, redelivered=False, exchange="", routing_key="q")

RETURN = BasicReturn(reply_code=312, reply_text="NO_ROUTE", exchange="", routing_key="q")
DEPTH = QueueDeclareOk(queue="q", message_count=1, consumer_count=1)


def frame(kind, channel_id, payload):
    """Any octets as a frame."""
    return struct.pack(">BHI", kind, channel_id, len(payload)) + payload + b"\xce"


def honest_source(acks):
    """Delivers five messages to each client, and notes what they acknowledge."""
    def script(peer):
        channel_id = peer.as_source()
        for tag in range(1, COUNT + 1):
            peer.deliver(channel_id, tag)
        for _, method in peer.methods():
            if isinstance(method, BasicAck):
                acks.append((method.delivery_tag, method.multiple))
            elif isinstance(method, ConnectionClose):
                peer.send(0, ConnectionCloseOk())
    return script


def publishes(peer, channel_id, answer):
    """Call ``answer(number)`` for each message that comes."""
    number = 0
    for _, method in peer.methods():
        if isinstance(method, BasicPublish):
            number += 1
            answer(number)
        elif isinstance(method, ConnectionClose):
            peer.send(0, ConnectionCloseOk())


def honest_destination(peer, **tune):
    """Confirms each message."""
    channel_id = peer.as_destination(**tune)
    publishes(peer, channel_id, lambda number: peer.send(channel_id, BasicAck(delivery_tag=number)))


def saying(octets):
    """A destination that says something as soon as a message has come."""
    def script(peer):
        channel_id = peer.as_destination()
        said = octets(channel_id) if callable(octets) else octets
        publishes(peer, channel_id, lambda number: number == 1 and peer.socket.sendall(said))
    return script


def source_saying(octets):
    """A source that says something in the place of deliveries."""
    def script(peer):
        channel_id = peer.as_source()
        peer.socket.sendall(octets(channel_id) if callable(octets) else octets)
        for _, method in peer.methods():
            if isinstance(method, ConnectionClose):
                peer.send(0, ConnectionCloseOk())
    return script


def method(one):
    """The octets of a method on the channel."""
    return lambda channel_id: method_frame(channel_id, one)


@pytest.fixture
def moving(hub, request, monkeypatch):
    """``moving(source, destination)``: a started link between two scripts, and their brokers."""
    brokers, links = [], []
    monkeypatch.setattr(links_link, "DRAIN_S", 0.1)  # many of these peers confirm nothing until then
    monkeypatch.setattr(wire, "PARTING_S", 0.1)  # nor do they agree to an end

    def begin(
        source, destination, connect=partial(connect, wary=True), ack_mode="on-confirm", paused=False,
        **target,
    ):
        ends = [HostileBroker(source), HostileBroker(destination)]
        brokers.extend(ends)
        link = Link(
            hub, request.node.name, SourceEnd(ends[0].url, "q", prefetch=COUNT),
            TargetEnd(ends[1].url, "", "q", **target), connect=connect, backoff=QUICK, ack_mode=ack_mode,
            paused=paused)
        links.append(link)
        link.start()
        return link
    yield begin
    for link in links:
        ended(link)
    for broker in brokers:
        broker.__exit__()


def told(link, end, text):
    """Wait until the link has said so, and has tried again; what it has said."""
    errors = set()

    def is_told():
        errors.add(link.status.error)
        return link.status.reconnects >= 2 and any(
            error.startswith(f"{end}: ") and text in error for error in errors)
    until(is_told, what=lambda: errors)
    return errors


DESTINATIONS = {
    "confirm of what was never published": (method(BasicAck(delivery_tag=99)), "a confirm of message 99"),
    "confirm of more than was published": (
        method(BasicAck(delivery_tag=99, multiple=True)), "a confirm of message 99"),
    "refusal of more": (method(BasicNack(delivery_tag=99, multiple=True)), "a confirm of message 99"),
    "confirm of nothing": (method(BasicAck(delivery_tag=0)), "a confirm of message 0"),
    "another channel": (lambda _: method_frame(7, BasicAck(delivery_tag=1)), "on channel 7"),
    "frame that is too large": (LARGE, "larger than was agreed"),
    "frame without an end": (struct.pack(">BHIB", 8, 0, 0, 7), "ends with byte 7"),
    "delivery": (method(DELIVER), "basic.deliver on channel 1"),
    "returned messages": (
        lambda channel_id: b"".join(
            [method_frame(channel_id, RETURN), frame(2, channel_id, HEADER),
             frame(3, channel_id, b"1234")]) * 500, "basic.return on channel 1"),
    "content": (lambda channel_id: frame(3, channel_id, b"1234"), "a frame of type 3"),
    "method that is cut": (lambda channel_id: frame(1, channel_id, b"\0\x0a"), "without class"),
    "no method": (lambda channel_id: frame(1, channel_id, b"\1\2\3\4"), ""),
    "other octets": (b"HTTP/1.1 400 Bad Request\r\n\r\n", "frame"),
    "closed channel": (method(ChannelClose(reply_code=541, reply_text="no disk")), "541 no disk"),
    "closed connection": (
        lambda _: method_frame(0, ConnectionClose(reply_code=541, reply_text="no disk")), "no disk"),
    "closed again and again": (
        lambda _: method_frame(0, ConnectionClose(reply_code=541, reply_text="no disk")) * 1000, "no disk"),
    "blocked and unblocked": (
        lambda _: (method_frame(0, ConnectionBlocked(reason="r")) + method_frame(0, ConnectionUnblocked()))
        * 500, "nobody has asked for"),
    "flow": (lambda channel_id: method_frame(channel_id, ChannelFlow(active=True)) * 1000,
             "nobody has asked for"),
    "agrees to an end that nobody wants": (
        lambda channel_id: method_frame(channel_id, ChannelCloseOk()) * 1000,
        "channel.close-ok on channel 1"),
    "agrees to an end of the connection": (
        lambda _: method_frame(0, ConnectionCloseOk()) * 1000, "connection.close-ok on channel 0"),
    "confirms after an end": (
        lambda channel_id: method_frame(channel_id, ChannelClose(reply_code=541, reply_text="no disk"))
        + method_frame(channel_id, BasicAck(delivery_tag=1)) * 1000, "541 no disk"),
    "everything after an end": (
        lambda channel_id: method_frame(0, ConnectionClose(reply_code=541, reply_text="no disk"))
        + method_frame(channel_id, ChannelFlow(active=True)) * 1000
        + method_frame(channel_id, BasicAck(delivery_tag=99)) + LARGE, "no disk"),
}


@pytest.mark.parametrize("what", DESTINATIONS)
def test_destination_that_breaks_the_protocol_is_told_and_tried_again(moving, caplog, what):
    octets, error = DESTINATIONS[what]
    acks = []

    with caplog.at_level(logging.INFO):
        link = moving(honest_source(acks), saying(octets))
        told(link, "destination", error)

    assert (link.status.moved, link.status.set_aside, acks) == (0, 0, [])
    assert len([line for line in caplog.messages if link.name in line]) == 1
    assert not any("fault of ours" in line for line in caplog.messages)


SOURCES = {
    "delivery tags that do not begin with 1": (
        lambda channel_id: deliveries(channel_id, 5), "delivery tag 5 follows 0"),
    "delivery tag that comes twice": (
        lambda channel_id: deliveries(channel_id, 1, 1), "delivery tag 1 follows 1"),
    "delivery tags that go backwards": (
        lambda channel_id: deliveries(channel_id, 1, 2, 3, 2), "delivery tag 2 follows 3"),
    "delivery tag 0": (lambda channel_id: deliveries(channel_id, 0), "delivery tag 0 follows 0"),
    "delivery tags that begin anew after the last": (
        lambda channel_id: deliveries(channel_id, 1, 2**64 - 1), f"delivery tag {2**64 - 1} follows 1"),
    "agrees to an end that nobody wants": (
        lambda channel_id: method_frame(channel_id, ChannelCloseOk()) * 1000,
        "channel.close-ok on channel 1"),
    "agrees to an end of the connection": (
        lambda _: method_frame(0, ConnectionCloseOk()) * 1000, "connection.close-ok on channel 0"),
    "deliveries after an end": (
        lambda channel_id: method_frame(channel_id, ChannelClose(reply_code=541, reply_text="ill"))
        + deliveries(channel_id, *range(1, 1000)), "541 ill"),
    "longer body": (lambda channel_id: method_frame(channel_id, DELIVER) + frame(2, channel_id, HEADER)
                    + frame(3, channel_id, b"12345"), "longer than its header says"),
    "shorter body": (lambda channel_id: method_frame(channel_id, DELIVER) + frame(2, channel_id, HEADER)
                     + frame(3, channel_id, b"123") + method_frame(channel_id, DELIVER),
                     "in the middle of a body"),
    "no header": (lambda channel_id: method_frame(channel_id, DELIVER) * 2, "content header was expected"),
    "other class": (
        lambda channel_id: method_frame(channel_id, DELIVER)
        + frame(2, channel_id, b"\0\x32" + HEADER[2:]), "another class"),
    "body of 2**62 octets": (
        lambda channel_id: method_frame(channel_id, DELIVER)
        + frame(2, channel_id, struct.pack(">HHQH", 60, 0, 1 << 62, 0)), "a body of"),
    "another channel": (lambda _: method_frame(7, DELIVER), "on channel 7"),
    "frame that is too large": (LARGE, "larger than was agreed"),
    "unknown frame": (frame(5, 1, b""), "unknown frame type 5"),
    "confirm": (method(BasicAck(delivery_tag=1)), "basic.ack on channel 1"),
    "returned message": (method(RETURN), "basic.return on channel 1"),
    "consume-ok again and again": (
        lambda channel_id: method_frame(channel_id, BasicConsumeOk(consumer_tag="x")) * 1000,
        "nobody has asked for"),
    "depths again and again": (
        lambda channel_id: method_frame(channel_id, DEPTH) * 1000,
        "nobody has asked for"),
    "closed channel": (method(ChannelClose(reply_code=541, reply_text="ill")), "541 ill"),
    "end": (lambda _: method_frame(0, ConnectionClose(reply_code=320, reply_text="over")), "over"),
}


def deliveries(channel_id, *tags):
    """Messages without a body."""
    header = frame(2, channel_id, struct.pack(">HHQH", 60, 0, 0, 0))
    return b"".join(
        method_frame(channel_id, BasicDeliver(
            consumer_tag="tag", delivery_tag=tag, redelivered=False, exchange="", routing_key="q")) + header
        for tag in tags)


@pytest.mark.parametrize("what", SOURCES)
def test_source_that_breaks_the_protocol_is_told_and_tried_again(moving, caplog, what):
    octets, error = SOURCES[what]

    with caplog.at_level(logging.INFO):
        link = moving(source_saying(octets), honest_destination)
        told(link, "source", error)

    assert len([line for line in caplog.messages if link.name in line]) == 1
    assert not any("fault of ours" in line for line in caplog.messages)


def start(**fields):
    """A destination that begins otherwise than brokers do."""
    def script(peer):
        peer.read_exactly(8)
        peer.send(0, ConnectionStart(**{
            "version_minor": 9, "server_properties": {}, "mechanisms": b"PLAIN", "locales": b"en_US",
            **fields}))
        peer.frame()
    return script


def nested(depth):
    """A table in a table in a table."""
    table = {}
    for _ in range(depth):
        table = {"t": table}
    return table


def flooding_login(octets):
    """Answers the first channel with nothing but this, as fast as it can."""
    def script(peer):
        peer.handshake()
        peer.expect(ChannelOpen)
        while True:
            peer.socket.sendall(octets * 1000)
    return script


def tuning(**tune):
    return lambda peer: peer.handshake(**tune)


LOGINS = {
    "frames of 8 bytes": (tuning(frame_max=8), "frames of 8 bytes"),
    "frames of 4095 bytes": (tuning(frame_max=4095), "frames of 4095 bytes"),
    "no UTF-8": (start(mechanisms=b"\xff\xfe"), "not PLAIN"),
    "many mechanisms": (start(mechanisms=b"PLAINER " * 10_000), "PLAINER"),
    "deep properties": (
        lambda peer: (peer.socket.sendall(frame(1, 0, deep_start(100))), peer.await_end()), "501"),
    "a megabyte of properties": (
        start(server_properties={str(number): "x" * 1000 for number in range(1000)}), "501"),
    "signs of life for ever": (flooding_login(HEARTBEAT_FRAME), "nobody has asked for"),
    "other answers for ever": (flooding_login(
        method_frame(1, DEPTH)), "queue.declare-ok"),
    "flow for ever": (flooding_login(method_frame(1, ChannelFlow(active=True))), "nobody has asked for"),
    "deliveries for ever": (flooding_login(
        method_frame(1, DELIVER) + frame(2, 1, HEADER) + frame(3, 1, b"1234")), "nobody has asked for"),
    "silence": (lambda peer: peer.await_end(), "connection.start was awaited"),
    "silence after start": (
        lambda peer: (start()(peer), peer.await_end()), "connection.tune was awaited"),
    "agrees to an end for ever": (
        flooding_login(method_frame(1, ChannelCloseOk())), "channel.close-ok where an answer"),
    "agrees to an end of the connection for ever": (
        flooding_login(method_frame(0, ConnectionCloseOk())), "connection.close-ok"),
    "silence after tune": (
        lambda peer: (peer.handshake(), peer.await_end()), "channel.open-ok was awaited"),
}


def deep_start(depth):
    """The payload of a connection.start, which our own encoder would not write."""
    table = b""
    for _ in range(depth):
        table = b"\x01tF" + struct.pack(">I", len(table)) + table
    return b"\0\x0a\0\x0a\0\x09" + struct.pack(">I", len(table)) + table + b"\0\0\0\x05PLAIN\0\0\0\x05en_US"


@pytest.mark.parametrize("what", LOGINS)
def test_login_that_does_not_come_about_is_told_shortly_and_tried_again(moving, monkeypatch, what):
    script, error = LOGINS[what]
    if "for ever" in what:
        monkeypatch.setattr(stream, "_WARY_OCTETS", 32 * 1024)  # enough of it is the same, and takes longer
    acks = []

    link = moving(honest_source(acks), script, partial(connect, wary=True, timeout_s=in_time(0.3))
                  if "silence" in what else partial(connect, wary=True))
    errors = told(link, "destination", error)

    assert max(map(len, errors)) <= 1000
    assert acks == []


@pytest.mark.parametrize("tune", [
    {"frame_max": 0}, {"frame_max": 4096}, {"frame_max": 2**32 - 1}, {"channel_max": 0}, {"channel_max": 1},
    {"heartbeat": 65535},
])
def test_limits_of_all_kinds_are_agreed_on(moving, tune):
    acks = []
    link = moving(honest_source(acks), partial(honest_destination, **tune))

    until(lambda: link.status.moved == COUNT)
    assert link.status.reconnects == 0


def test_messages_that_are_confirmed_twice_are_acknowledged_once(moving):
    acks = []

    def destination(peer):
        channel_id = peer.as_destination()

        def answer(number):
            if number == COUNT:
                for tag, multiple in ((2, True), (2, True), (1, False), (2, False), (5, False), (4, True)):
                    peer.send(channel_id, BasicAck(delivery_tag=tag, multiple=multiple))
        publishes(peer, channel_id, answer)

    link = moving(honest_source(acks), destination)
    until(lambda: link.status.moved == COUNT and acks and acks[-1][0] == COUNT)

    tags = [tag for tag, _ in acks]
    assert tags == sorted(set(tags))
    assert link.status.reconnects == 0


def test_destination_that_refuses_everything_gets_nothing_acknowledged(moving):
    acks = []

    def destination(peer):
        channel_id = peer.as_destination()
        publishes(peer, channel_id, lambda number: peer.send(
            channel_id, BasicNack(delivery_tag=number, multiple=True)))

    link = moving(honest_source(acks), destination)
    until(lambda: link.status.refused >= COUNT + 1)

    assert (link.status.state, link.status.moved, acks) == ("running", 0, [])
    assert link.status.error == "destination: the broker refuses messages (basic.nack)"


@pytest.mark.parametrize("says", [
    lambda channel_id: (0, ConnectionBlocked(reason="low on disk")),
    lambda channel_id: (channel_id, ChannelFlow(active=False)),
], ids=["blocked", "flow"])
def test_destination_that_takes_nothing_for_ever_is_shown_and_ends_with_the_link(moving, says):
    acks = []

    def destination(peer):
        channel_id = peer.as_destination()
        peer.send(*says(channel_id))
        publishes(peer, channel_id, lambda number: None)

    link = moving(honest_source(acks), destination)
    until(lambda: link.status.blocked and link.status.state == "running")

    assert (link.status.error, link.status.reconnects, acks) == ("", 0, [])
    link.stop()
    until(lambda: link.has_ended)
    assert acks == []


def test_destination_that_confirms_nothing_is_told_and_goes_on_when_it_does(moving, monkeypatch):
    monkeypatch.setattr(link_session, "STALL_S", 0.2)
    acks, waiting = [], []

    def destination(peer):
        # the link looks every half of it; after two it gives up who says nothing, as this destination does
        channel_id = peer.as_destination(heartbeat=4)
        waiting.append((peer, channel_id))
        publishes(peer, channel_id, lambda number: None)

    link = moving(honest_source(acks), destination)
    until(lambda: link.status.error)
    status = link.status
    peer, channel_id = waiting[0]
    peer.send(channel_id, BasicAck(delivery_tag=COUNT, multiple=True))
    until(lambda: link.status.moved == COUNT and not link.status.error)

    assert status.state == "running"
    assert status.error.startswith(f"destination: none of {COUNT} messages is confirmed for more than 0.2 s")
    assert link.status.reconnects == 0


def test_source_that_never_answers_basic_consume_is_given_up(moving, monkeypatch):
    monkeypatch.setattr(link_session, "ANSWER_S", 0.1)

    def source(peer):
        peer.handshake()
        peer.answer_until(BasicQos)
        peer.await_end()

    link = moving(source, honest_destination)

    told(link, "source", "no answer to basic.consume within 0.1 s")


def test_source_that_sends_more_than_the_prefetch_is_read_no_further(moving):
    """Its destination confirms nothing: what is on its way stays bounded."""
    sent = []

    def source(peer):
        channel_id = peer.as_source()
        for tag in range(1, 10_000, 100):
            peer.socket.sendall(deliveries(channel_id, *range(tag, tag + 100)))
            sent.append(tag)

    def destination(peer):
        publishes(peer, peer.as_destination(), lambda number: None)

    link = moving(source, destination)
    seen = []
    until(lambda: link.status.unconfirmed > COUNT)
    until(lambda: seen.append(link.status.unconfirmed) or len(seen) > 20)

    assert max(seen) <= 2 * COUNT


def test_source_that_delivers_though_nothing_is_consumed_is_told_and_nothing_is_moved(moving):
    """To a link that is paused: nobody has asked for them."""
    published = []

    def source(peer):
        peer.handshake()
        channel_id = peer.answer_until(BasicQos)
        peer.socket.sendall(deliveries(channel_id, *range(1, COUNT + 1)))
        peer.await_end()

    def destination(peer):
        publishes(peer, peer.as_destination(), published.append)

    link = moving(source, destination, paused=True)
    told(link, "source", "a delivery, and nothing is consumed")

    assert (link.status.moved, published) == (0, [])


@pytest.mark.parametrize("octets", [
    lambda channel_id: method_frame(channel_id, ChannelCloseOk()) * 1000,
    lambda channel_id: HEARTBEAT_FRAME * 1000,
    lambda channel_id: deliveries(channel_id, *range(COUNT + 1, COUNT + 1000)),
], ids=["close-ok", "signs of life", "deliveries"])
def test_source_that_never_stops_when_the_link_does_is_cut_off(moving, octets):
    """It reads the end of the link and sends on; the loop stays everybody's."""
    acks = []

    def source(peer):
        channel_id = peer.as_source()
        for tag in range(1, COUNT + 1):
            peer.deliver(channel_id, tag)
        for _, method in peer.methods():
            if isinstance(method, BasicAck):
                acks.append(method)
            elif isinstance(method, ConnectionClose):
                while True:
                    peer.socket.sendall(octets(channel_id))

    link = moving(source, honest_destination)
    until(lambda: link.status.moved == COUNT and acks)

    ended(link)

    assert (link.status.state, link.status.reconnects) == ("stopped", 0)
