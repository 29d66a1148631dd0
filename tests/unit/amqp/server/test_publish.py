"""The slow lane of publishing: what it checks, what it returns, what it stores. test_publish_lanes holds it
to the fast lane's answers.
"""
import errno
import random

import gevent
import pytest
from gevent.event import Event

from gomq_py.amqp.server import publish
from gomq_py.amqp.wire.errors import PreconditionFailed
from gomq_py.amqp.wire.frames import frame, header_payload, method_frame
from gomq_py.amqp.wire.methods import (
    BasicAck, BasicConsume, BasicConsumeOk, BasicGet, BasicGetEmpty, BasicGetOk, BasicNack, BasicPublish,
    BasicReturn, ChannelClose, ConfirmSelect,
    ConfirmSelectOk, ConnectionBlocked, ConnectionClose, ConnectionUnblocked, ExchangeBind, ExchangeBindOk,
    ExchangeDeclare, ExchangeDeclareOk, QueueBind, QueueBindOk, QueueDeclare, QueueDeclareOk, TxSelect,
    TxSelectOk,
)
from gomq_py.broker.envelope import MAX_EXTRA_WORDS
from gomq_py.content.fields import decode_table, encode_table
from gomq_py.content.properties import Properties
from gomq_py.hub import turns
from gomq_py.hub.budget import BodyBudget
from tests.support.door import Door, poll_the_loop, publish_frames
from tests.support.virtual_time import VirtualTime
from tests.support.waiting import wait_until

METHOD, HEADER, BODY = 1, 2, 3


@pytest.fixture
def publisher(client):
    """A client with a queue named q."""
    client.call(QueueDeclare(queue="q"), QueueDeclareOk)
    return client


@pytest.fixture
def small_budget_door(tmp_path):
    """A door that holds 1 MiB of unfinished bodies."""
    with Door(tmp_path, max_unfinished_bodies=1 << 20) as door:
        yield door


def encoded(**properties):
    return Properties(**properties).encode()


def stored(client, queue="q"):
    """The next message of a queue, as (properties in wire form, body)."""
    client.send_method(BasicGet(queue=queue, no_ack=True))
    _, properties, body = client.expect_message(BasicGetOk)
    return properties, body


def count(client, queue="q"):
    return client.call(QueueDeclare(queue=queue, passive=True), QueueDeclareOk).message_count


def refused(client, code, text, close_class=ChannelClose):
    client.expect_error(close_class, code, text, 1 if close_class is ChannelClose else 0, blamed=BasicPublish)


# content

def test_body_in_several_frames_is_put_together(publisher):
    body = bytes(range(256)) * 40

    publisher.publish("q", body, frame_max=4096)

    assert stored(publisher) == (b"\0\0", body)


def test_empty_body_frames_are_passed_over(publisher):
    publisher.send(
        method_frame(1, BasicPublish(routing_key="q")), frame(HEADER, 1, header_payload(b"\0\0", 5)),
        frame(BODY, 1, b""), frame(BODY, 1, b"ab"), frame(BODY, 1, b""), frame(BODY, 1, b"cde"),
    )

    assert stored(publisher) == (b"\0\0", b"abcde")


def test_frames_of_other_channels_may_stand_between(door):
    client = door.client(channels=(1, 2))
    client.call(QueueDeclare(queue="q"), QueueDeclareOk)
    client.send(
        method_frame(1, BasicPublish(routing_key="q")), frame(HEADER, 1, header_payload(b"\0\0", 4)),
        frame(BODY, 1, b"on"),
    )

    client.publish("q", b"two", channel=2)
    client.send(frame(BODY, 1, b"e!"))

    assert [stored(client)[1], stored(client)[1]] == [b"two", b"one!"]


def send_in_pieces(client, octets, cuts):
    """Each piece is read by itself."""
    for start, end in zip([0, *cuts], [*cuts, len(octets)]):
        client.send(octets[start:end])
        poll_the_loop()


FRAME_MAX = 131072
LARGE = random.Random(1).randbytes(3 * FRAME_MAX)
LARGE_AT = len(publish_frames("q", LARGE)) - 4 * 8 - len(LARGE)  # where its body frames begin


@pytest.mark.parametrize("cut", [-1, 0, 1, 6, 7, 8, 9, 20_000, 70_000, FRAME_MAX - 8])
def test_large_body_arrives_whole_wherever_its_frames_are_cut(publisher, cut):
    octets = publish_frames("q", LARGE) + publish_frames("q", b"next")

    send_in_pieces(publisher, octets, [LARGE_AT + number * FRAME_MAX + cut for number in range(4)])

    assert stored(publisher)[1] == LARGE
    assert stored(publisher)[1] == b"next"


@pytest.mark.parametrize("seed", range(10))
def test_large_bodies_of_two_channels_arrive_whole_however_they_are_cut(door, seed):
    chance = random.Random(seed)
    client = door.client(channels=(1, 2))
    client.call(QueueDeclare(queue="q"), QueueDeclareOk)
    bodies = [chance.randbytes(chance.randrange(130_000, 600_000)) for _ in range(2)]
    of_both = [
        list(split_frames(publish_frames("q", body, channel=channel, frame_max=frame_max)))
        for channel, (body, frame_max) in enumerate(zip(bodies, (FRAME_MAX, 50_000)), 1)
    ]
    octets = b""
    while any(of_both):
        frames = chance.choice([frames for frames in of_both if frames])
        octets += frames.pop(0)

    cuts = sorted(chance.randrange(len(octets)) for _ in range(chance.randrange(30)))
    send_in_pieces(client, octets, cuts)

    assert {stored(client)[1] for _ in bodies} == set(bodies)


def test_large_body_arrives_whole_though_the_system_has_no_room_for_it_in_one_piece(door, publisher):
    take, door.hub.body_buffers.take = door.hub.body_buffers.take, refuse_memory
    octets = publish_frames("q", LARGE)
    send_in_pieces(publisher, octets[:LARGE_AT + 2 * FRAME_MAX], [LARGE_AT + FRAME_MAX])

    door.hub.body_buffers.take = take
    send_in_pieces(publisher, octets[LARGE_AT + 2 * FRAME_MAX:], [30_000])

    assert stored(publisher)[1] == LARGE


def refuse_memory(octets):
    raise OSError(errno.ENOMEM, "no memory")


HEARTBEAT = frame(8, 0, b"")
ORDINARY = FRAME_MAX - 8
TRICKY_SIZES = (ORDINARY, ORDINARY, ORDINARY, ORDINARY - 1, 16 * 1024, 16 * 1024 - 1, 40_000, 1)


def tricky_publish(chance, body, channel):
    """Frames of a publish, in a list: as a rule alike, and some of other sizes."""
    header = frame(HEADER, channel, header_payload(b"\0\0", len(body)))
    frames = [method_frame(channel, BasicPublish(routing_key="q")), header]
    size, at = ORDINARY, 0
    while at < len(body):
        if chance.random() < 0.2:
            size = chance.choice(TRICKY_SIZES)
        frames.append(frame(BODY, channel, body[at:at + size]))
        at += size
    return frames


@pytest.mark.parametrize("seed", range(20))
def test_large_bodies_arrive_whole_whatever_stands_between_their_frames(door, seed):
    """A read goes on behind a frame as if those that follow were like it: here many are not, or heartbeats
    and frames of another channel stand between.
    """
    chance = random.Random(seed)
    client = door.client(channels=(1, 2))
    client.call(QueueDeclare(queue="q"), QueueDeclareOk)
    sizes = (200_000, 700_000, 2_200_000, 3 * ORDINARY)
    bodies = [chance.randbytes(chance.choice(sizes)) for _ in range(4)]
    of_each = [[], []]
    for number, body in enumerate(bodies):
        of_each[number % 2] += tricky_publish(chance, body, 1 + number % 2)
    octets, frames = [], of_each[0]
    while any(of_each):
        if not frames or chance.random() < 0.1:
            frames = chance.choice([frames for frames in of_each if frames])
        octets.append(frames.pop(0))
        if chance.random() < 0.1:
            octets.append(HEARTBEAT)

    client.send(*octets)

    assert sorted(stored(client)[1] for _ in bodies) == sorted(bodies)


def test_bodies_that_wait_for_room_go_on_when_there_is_some(small_budget_door):
    door = small_budget_door
    bodies = [random.Random(number).randbytes(9 * FRAME_MAX) for number in range(8)]
    getter, *clients = [door.client() for _ in range(9)]
    getter.call(QueueDeclare(queue="q"), QueueDeclareOk)
    begun, go_on = [publish_frames("q", body)[:-FRAME_MAX] for body in bodies], Event()

    def send(client, body, first):
        client.send(first)
        go_on.wait()
        client.send(publish_frames("q", body)[len(first):])

    for arguments in zip(clients, bodies, begun):
        gevent.spawn(send, *arguments)
    wait_until(
        lambda: sum(bool(connection.stream.waits_for) for connection in door.hub.clients) == 7,
        sleep=gevent.sleep)
    go_on.set()

    wait_until(lambda: count(getter) == len(bodies), sleep=gevent.sleep)
    assert sorted(stored(getter)[1] for _ in bodies) == sorted(bodies)
    assert door.hub.bodies.held == 0


def split_frames(octets):
    while octets:
        end = 8 + int.from_bytes(octets[3:7], "big")
        yield octets[:end]
        octets = octets[end:]


def test_large_body_frame_without_its_end_closes_the_connection(publisher):
    octets = bytearray(publish_frames("q", LARGE))
    octets[LARGE_AT + 2 * FRAME_MAX - 1] = 0x55

    send_in_pieces(publisher, bytes(octets), [LARGE_AT + FRAME_MAX + 30_000])

    publisher.expect_error(
        ConnectionClose, 501, "FRAME_ERROR - frame end byte is 85, expected 206", 0)


def test_large_body_frame_that_is_too_much_closes_the_connection(publisher):
    publisher.send(
        method_frame(1, BasicPublish(routing_key="q")), frame(HEADER, 1, header_payload(b"\0\0", 200_000)),
        frame(BODY, 1, bytes(100_000)),
    )
    poll_the_loop()

    send_in_pieces(publisher, frame(BODY, 1, bytes(100_001)), [50_000])

    refused(
        publisher, 505, "UNEXPECTED_FRAME - expected content body, got non content body frame instead",
        ConnectionClose)


def test_channel_that_ends_in_the_middle_of_a_large_frame_drops_the_rest_and_the_others_go_on(door):
    client = door.client(channels=(1, 2))
    client.call(QueueDeclare(queue="q"), QueueDeclareOk)
    octets = publish_frames("q", LARGE)
    client.send(octets[:LARGE_AT + FRAME_MAX + 30_000])
    connection = door.connection()
    wait_until(lambda: connection.stream.received_octets > LARGE_AT + FRAME_MAX, sleep=gevent.sleep)

    connection.fail_channel(connection.channels[1], PreconditionFailed("the test"))
    client.send(octets[LARGE_AT + FRAME_MAX + 30_000:])
    client.publish("q", b"other", channel=2)

    client.expect_error(ChannelClose, 406, "PRECONDITION_FAILED - the test")
    client.send_method(QueueDeclare(queue="q", passive=True), channel=2)
    assert client.expect(QueueDeclareOk, channel=2).message_count == 1
    assert door.hub.bodies.held == 0


@pytest.mark.parametrize(("octets", "text"), [
    (
        method_frame(1, BasicPublish(routing_key="q")),
        "expected content header for class 60, got non content header frame instead",
    ),
    (frame(BODY, 1, b"x"), "expected content header for class 60, got non content header frame instead"),
    (
        frame(HEADER, 1, header_payload(b"\0\0", 5, class_id=50)),
        "expected content header for class 60, got one for class 50 instead",
    ),
    (
        frame(HEADER, 1, header_payload(b"\0\0", 5)) * 2,
        "expected content body, got non content body frame instead",
    ),
    (
        frame(HEADER, 1, header_payload(b"\0\0", 5)) + method_frame(1, TxSelect()),
        "expected content body, got non content body frame instead",
    ),
    (
        frame(HEADER, 1, header_payload(b"\0\0", 5)) + frame(BODY, 1, b"123456"),
        "expected content body, got non content body frame instead",
    ),
])
def test_content_out_of_order_closes_the_connection(publisher, octets, text):
    publisher.send(method_frame(1, BasicPublish(routing_key="q")), octets)

    refused(publisher, 505, f"UNEXPECTED_FRAME - {text}", ConnectionClose)


@pytest.mark.parametrize("kind", [HEADER, BODY])
def test_content_without_a_method_closes_the_connection(publisher, kind):
    publisher.send(frame(kind, 1, bytes(14)))

    publisher.expect_error(
        ConnectionClose, 505, "UNEXPECTED_FRAME - expected method frame, got non method frame instead", 0)


@pytest.mark.parametrize("properties", [
    b"\x80\0\x05ab", b"\0\0abc", b"\x20\0\0\0\0\x05\x01aZ\0\0", b"\0\x01\0\0"
])
def test_malformed_properties_close_the_connection(publisher, properties):
    publisher.publish("q", properties=properties)

    refused(publisher, 502, "SYNTAX_ERROR - malformed basic properties", ConnectionClose)


def test_message_larger_than_the_maximum_is_refused_before_it_is_sent(tmp_path):
    with Door(tmp_path, max_message_size=1000) as door:
        client = door.client()
        client.send(
            method_frame(1, BasicPublish(routing_key="q")), frame(HEADER, 1, header_payload(b"\0\0", 1001))
        )

        refused(
            client, 406, "PRECONDITION_FAILED - message size 1001 is larger than configured max size 1000"
        )


def test_message_of_the_maximum_is_taken(tmp_path):
    with Door(tmp_path, max_message_size=1000) as door:
        client = door.client()
        client.call(QueueDeclare(queue="q"), QueueDeclareOk)

        client.publish("q", bytes(1000))

        assert count(client) == 1


def test_bodies_over_the_budget_wait_for_the_oldest(door):
    door.hub.bodies = BodyBudget(10_000, door.hub.timers)
    one, other = door.client(), door.client()
    one.call(QueueDeclare(queue="q"), QueueDeclareOk)
    one.send(
        method_frame(1, BasicPublish(routing_key="q")), frame(HEADER, 1, header_payload(b"\0\0", 9000)),
        frame(BODY, 1, bytes(8000)),
    )
    count(door.client())

    other.publish("q", bytes(9000), frame_max=4096)
    other.send_method(QueueDeclare(queue="q", passive=True))
    other.expect_silence()
    one.send(frame(BODY, 1, bytes(1000)))

    assert other.expect(QueueDeclareOk).message_count == 2


def test_body_that_keeps_others_waiting_for_too_long_closes_its_connection(door):
    later = VirtualTime()
    door.hub.bodies = BodyBudget(10_000, later, later.clock)
    one, other = door.client(), door.client()
    one.call(QueueDeclare(queue="q"), QueueDeclareOk)
    one.send(
        method_frame(1, BasicPublish(routing_key="q")), frame(HEADER, 1, header_payload(b"\0\0", 9000)),
        frame(BODY, 1, bytes(8000)),
    )
    count(door.client())

    other.publish("q", bytes(9000), frame_max=4096)
    wait_until(lambda: later.calls, sleep=gevent.sleep, what="nobody waits")
    later.pass_time(4)

    closed = one.expect(ConnectionClose, 0)
    assert (
        closed.reply_code == 506
        and "8000 octets of a message body, and only 0 more in a second" in closed.reply_text
    )


@pytest.mark.parametrize("code, exchange, text", [
    (403, "", "ACCESS_REFUSED - write access to exchange 'amq.default' in vhost '/' refused for user 'bob'"),
    (404, "nope", "NOT_FOUND - no exchange 'nope' in vhost '/'"),
])
@pytest.mark.parametrize("frames", [
    [frame(HEADER, 1, header_payload(b"\0\0", 1_000_000))],
    [frame(HEADER, 1, header_payload(b"\0\0", 1000)), frame(BODY, 1, bytes(999))],
])
def test_large_or_split_message_is_refused_by_its_address_before_it_takes_memory(
    door, code, exchange, text, frames
):
    door.broker.users.set_user("bob", "secret")
    door.broker.users.set_permission("bob", "/", "", "^nope$", "")
    bob = door.client(username="bob", password="secret")

    bob.send(method_frame(1, BasicPublish(exchange=exchange, routing_key="q")), *frames)

    refused(bob, code, text)
    assert door.hub.bodies.held == 0 and not door.hub.body_buffers.kept_octets()


# where to

def test_missing_exchange_is_refused_when_the_content_is_complete(publisher):
    publisher.send(
        method_frame(1, BasicPublish(exchange="nope")), frame(HEADER, 1, header_payload(b"\0\0", 1))
    )
    publisher.expect_silence()

    publisher.send(frame(BODY, 1, b"x"))

    refused(publisher, 404, "NOT_FOUND - no exchange 'nope' in vhost '/'")


def test_internal_exchange_is_refused(publisher):
    publisher.call(ExchangeDeclare(exchange="inner", type="direct", internal=True), ExchangeDeclareOk)

    publisher.publish("q", exchange="inner")

    refused(publisher, 403, "ACCESS_REFUSED - cannot publish to internal exchange 'inner' in vhost '/'")


@pytest.mark.parametrize(("exchange", "shown"), [
    ("", "amq.default"), ("amq.direct", "amq.direct"), ("nope", "nope")
])
def test_publish_without_the_right_is_refused(door, exchange, shown):
    door.broker.users.set_user("bob", "secret")
    door.broker.users.set_permission("bob", "/", "", "^bob", "")
    bob = door.client(username="bob", password="secret")

    bob.publish("q", exchange=exchange)

    refused(
        bob, 403, f"ACCESS_REFUSED - write access to exchange '{shown}' in vhost '/' refused for user 'bob'")


def test_right_withdrawn_while_connected_ends_publishing(door):
    door.broker.users.set_user("bob", "secret")
    door.broker.users.set_permission("bob", "/", ".*", ".*", ".*")
    bob = door.client(username="bob", password="secret")
    bob.call(QueueDeclare(queue="q"), QueueDeclareOk)
    bob.publish("q")
    assert count(bob) == 1

    door.broker.users.set_permission("bob", "/", ".*", "^$", ".*")
    bob.publish("q")

    text = "ACCESS_REFUSED - write access to exchange 'amq.default' in vhost '/' refused for user 'bob'"
    refused(bob, 403, text)


def test_headers_exchange_sees_the_headers(publisher):
    publisher.call(
        QueueBind(queue="q", exchange="amq.headers", arguments={"x-match": "all", "kind": "a"}), QueueBindOk
    )

    publisher.publish("", b"no", exchange="amq.headers", properties=encoded(headers={"kind": "b"}))
    publisher.publish("", b"yes", exchange="amq.headers", properties=encoded(headers={"kind": "a"}))

    assert stored(publisher)[1] == b"yes"


# returns

def test_mandatory_message_without_a_queue_comes_back(publisher):
    properties = encoded(content_type="text/plain", headers={"a": 1})

    publisher.publish("nowhere", b"body", properties=properties, mandatory=True)

    returned, properties_back, body = publisher.expect_message(BasicReturn)
    assert (returned.reply_code, returned.reply_text, returned.exchange, returned.routing_key) == (
        312, "NO_ROUTE", "", "nowhere"
    )
    assert (properties_back, body) == (properties, b"body")


def test_mandatory_message_with_a_queue_does_not_come_back(publisher):
    publisher.publish("q", b"body", mandatory=True)

    assert count(publisher) == 1


def test_large_message_comes_back_in_frames_of_the_agreed_size(door):
    client = door.client(frame_max=4096)
    body = bytes(10_000)

    client.publish("nowhere", body, frame_max=4096, mandatory=True)

    assert client.expect_message(BasicReturn)[2] == body


@pytest.mark.parametrize(("exchange", "mode"), [("", "plain"), ("nope", "plain"), ("", "transaction")])
def test_immediate_is_not_implemented_as_in_rabbitmq(publisher, door, exchange, mode):
    if mode == "transaction":
        publisher.call(TxSelect(), TxSelectOk)

    publisher.publish("q", b"body", exchange=exchange, immediate=True)

    publisher.expect_error(ConnectionClose, 540, "NOT_IMPLEMENTED - immediate=true", 0, blamed=BasicPublish)
    assert door.queue("q").ready_count == 0


def test_return_comes_before_its_confirm(publisher):
    publisher.call(ConfirmSelect(), ConfirmSelectOk)

    publisher.publish("nowhere", b"x", mandatory=True)

    publisher.expect_message(BasicReturn)
    assert publisher.expect(BasicAck).delivery_tag == 1


# confirms

def test_message_that_its_queue_refuses_is_nacked(publisher, door):
    publisher.call(ConfirmSelect(), ConfirmSelectOk)
    publisher.publish("q")
    publisher.expect(BasicAck)
    door.queue("q").close("test")

    publisher.publish("q", mandatory=True)

    assert publisher.expect(BasicNack).delivery_tag == 2


def test_persistent_message_is_confirmed_when_the_disk_has_it(slow_disk_door):
    client = confirming(slow_disk_door)

    client.publish("q", properties=encoded(delivery_mode=2), mandatory=True)

    client.expect_silence()
    slow_disk_door.committer.finish()
    assert client.expect(BasicAck).delivery_tag == 1


def test_persistent_message_is_nacked_when_the_disk_refuses_it(slow_disk_door):
    client = confirming(slow_disk_door)
    client.publish("q", properties=encoded(delivery_mode=2))
    client.expect_silence()

    slow_disk_door.committer.finish(OSError("no space left"))

    assert client.expect(BasicNack).delivery_tag == 1


def test_transient_message_is_confirmed_without_the_disk(slow_disk_door):
    client = confirming(slow_disk_door)

    client.publish("q", mandatory=True)

    assert client.expect(BasicAck).delivery_tag == 1


def confirming(door):
    """A client in confirm mode with a durable queue named q."""
    client = door.client()
    client.send_method(QueueDeclare(queue="q", durable=True))
    client.expect_silence()
    door.committer.finish()
    client.expect(QueueDeclareOk)
    client.call(ConfirmSelect(), ConfirmSelectOk)
    return client


# properties

def test_all_properties_survive_octet_for_octet(publisher):
    headers = encode_table({"a": 1, "b": ["x", 2.5, None, True], "c": {"d": b"\xff"}})
    properties = encoded(
        content_type="a/b", content_encoding="gzip", delivery_mode=2, priority=9, correlation_id="c",
        reply_to="r", expiration="60000", message_id="m", timestamp=1, type="t", user_id="guest",
        app_id="app", cluster_id="k", headers=decode_table(headers)[0],
    )

    publisher.publish("q", b"body", properties=properties)

    assert stored(publisher) == (properties, b"body")


def test_user_id_of_somebody_else_is_refused(publisher):
    publisher.publish("q", properties=encoded(user_id="bob"))

    refused(
        publisher, 406,
        "PRECONDITION_FAILED - user_id property set to 'bob' but authenticated user was 'guest'",
    )


def test_impersonator_may_use_any_user_id(door):
    door.broker.users.set_user("actor", "secret", tags=("impersonator",))
    door.broker.users.set_permission("actor", "/", ".*", ".*", ".*")
    client = door.client(username="actor", password="secret")
    client.call(QueueDeclare(queue="q"), QueueDeclareOk)

    client.publish("q", properties=encoded(user_id="bob"))

    assert count(client) == 1


@pytest.mark.parametrize(("expiration", "reason"), [
    ("abc", "no_integer"), ("", "no_integer"), ("-", "no_integer"), (" 1", "no_integer"),
    ("-1", "{value_negative,-1}"),
    ("1.5", '{leftover_string,".5"}'), ("1 ", '{leftover_string," "}'),
    ("315360000001", "{value_too_large,315360000001}"),
])
def test_invalid_expiration_is_refused(publisher, expiration, reason):
    publisher.publish("q", properties=encoded(expiration=expiration))

    refused(publisher, 406, f"PRECONDITION_FAILED - invalid expiration '{expiration}': {reason}")


@pytest.mark.parametrize("expiration", ["315360000000", "+60000", "060000"])
def test_valid_expiration_is_taken(publisher, expiration):
    publisher.publish("q", properties=encoded(expiration=expiration))

    assert stored(publisher)[0] == encoded(expiration=expiration)


@pytest.mark.parametrize("delivery_mode", [0, 3, 255])
def test_unknown_delivery_mode_is_refused(publisher, delivery_mode):
    publisher.publish("q", properties=encoded(delivery_mode=delivery_mode))

    refused(
        publisher, 406, f"PRECONDITION_FAILED - invalid message: {{delivery_mode_unknown,{delivery_mode}}}"
    )


# CC and BCC

def test_copies_go_to_the_keys_in_cc_and_bcc(publisher):
    for queue in ("cc", "bcc"):
        publisher.call(QueueDeclare(queue=queue), QueueDeclareOk)
    headers = {"CC": ["cc", "q"], "BCC": ["bcc"], "kept": 1}

    publisher.publish("q", b"copy", properties=encoded(headers=headers))

    shown = encoded(headers={"CC": ["cc", "q"], "kept": 1})
    assert [stored(publisher, queue) for queue in ("q", "cc", "bcc")] == [(shown, b"copy")] * 3
    assert count(publisher) == 0


def test_dead_letters_go_to_the_keys_in_cc_and_not_to_those_in_bcc(publisher):
    """Nothing of BCC is kept with a message, so that nobody who reads it can see it."""
    arguments = {"x-max-length": 0, "x-dead-letter-exchange": "amq.direct"}
    publisher.call(QueueDeclare(queue="dying", arguments=arguments), QueueDeclareOk)
    for key in ("dying", "cc", "bcc"):
        publisher.call(QueueDeclare(queue=f"dead {key}"), QueueDeclareOk)
        publisher.call(QueueBind(queue=f"dead {key}", exchange="amq.direct", routing_key=key), QueueBindOk)

    publisher.publish("dying", properties=encoded(headers={"CC": ["cc"], "BCC": ["bcc"]}))

    wait_until(lambda: count(publisher, "dead cc") == 1, sleep=gevent.sleep)
    assert [count(publisher, f"dead {key}") for key in ("dying", "cc", "bcc")] == [1, 1, 0]


def test_copy_in_cc_is_enough_to_be_routed(publisher):
    publisher.publish("nowhere", properties=encoded(headers={"CC": ["q"]}), mandatory=True)

    assert count(publisher) == 1


def test_what_is_no_text_in_cc_is_passed_over(publisher):
    publisher.publish("nowhere", properties=encoded(headers={"BCC": [1, None, "q"]}))

    assert count(publisher) == 1


@pytest.mark.parametrize(("value", "shown"), [
    ("q", "longstr"), (5, "signedint"), (None, "void"), (True, "bool"), ({}, "table")
])
@pytest.mark.parametrize("name", ["CC", "BCC"])
def test_cc_that_is_no_array_is_refused(publisher, name, value, shown):
    publisher.publish("q", properties=encoded(headers={name: value}))

    refused(
        publisher, 406,
        f'PRECONDITION_FAILED - invalid message: {{unacceptable_type_in_header,"{name}",{shown}}}',
    )


def test_keys_in_cc_and_bcc_of_too_many_words_are_refused(publisher):
    """All keys of a message are matched in one piece; each counts once, with its words."""
    keys = [f"a.{number}" for number in range(MAX_EXTRA_WORDS // 4)]
    publisher.publish(
        "q", properties=encoded(headers={"CC": keys, "BCC": keys + [f"b.{key[2:]}" for key in keys]})
    )
    assert count(publisher) == 1

    publisher.publish(
        "q", properties=encoded(headers={"CC": keys, "BCC": [f"b.{key[2:]}" for key in keys] + ["one"]})
    )

    said = f"the routing keys in CC and BCC have {MAX_EXTRA_WORDS + 1} words, more than {MAX_EXTRA_WORDS}"
    refused(publisher, 406, f"PRECONDITION_FAILED - invalid message: {said}")


# consumers that are behind

def test_whoever_only_publishes_is_read_less_eagerly_where_queues_are_outrun(door, client):
    client.call(QueueDeclare(queue="q"), QueueDeclareOk)
    connection = door.connection()

    connection.outruns((door.queue("q"),))

    assert connection.stream.waits_for == ["consumers of its queues to catch up"]
    client.call(QueueDeclare(queue="q", passive=True), QueueDeclareOk)  # the queue is not outrun, in truth
    assert not connection.stream.paused


@pytest.mark.parametrize("method, answer", [
    (BasicConsume(queue="q", consumer_tag="c"), BasicConsumeOk), (BasicGet(queue="q"), BasicGetEmpty),
])
def test_whoever_takes_messages_as_well_is_read_as_ever(door, client, method, answer):
    """Acks of its own, and whom it consumes for, would wait, too."""
    client.call(QueueDeclare(queue="q"), QueueDeclareOk)
    client.call(method, answer)

    door.connection().outruns((door.queue("q"),))

    assert not door.connection().stream.paused


# alarms

def test_publishers_are_held_while_an_alarm_is_on(door):
    consumer, publisher = door.client(), door.client()
    consumer.call(QueueDeclare(queue="q"), QueueDeclareOk)
    door.broker.alarms.set("a test", "disk")

    publisher.publish("q")
    publisher.send_method(QueueDeclare(queue="q", passive=True))
    publisher.expect(ConnectionBlocked, 0)

    publisher.expect_silence()
    assert count(consumer) == 0
    door.broker.alarms.clear("a test")
    publisher.expect(ConnectionUnblocked, 0)
    assert publisher.expect(QueueDeclareOk).message_count == 1


PASSED = [{"cluster-name": "one", "vhost": "/"}, {"cluster-name": "two", "vhost": "/"}]


@pytest.mark.parametrize("headers", [
    None, {"a": 1}, {"x-received-from": PASSED[:1]}, {"x-received-from": PASSED}], ids=[
    "none", "others", "one broker", "two brokers"])
def test_publishes_to_a_federated_exchange_go_by_the_fast_lane(door, monkeypatch, headers):
    """The exchange in between looks at a header. A look at each message costs 20 us."""
    monkeypatch.setattr(turns, "WALK_S", 60)  # two routes are asked for, and their time may be over
    client, looked_at = door.client(), []
    client.call(ExchangeDeclare(exchange="x", type="fanout"), ExchangeDeclareOk)
    client.call(ExchangeDeclare(exchange="between", type="x-federation-upstream", arguments={
        "x-max-hops": 3, "x-downstream-name": "here", "x-downstream-vhost": "/"}), ExchangeDeclareOk)
    client.call(QueueDeclare(queue="q"), QueueDeclareOk)
    client.call(ExchangeBind(destination="between", source="x"), ExchangeBindOk)
    client.call(QueueBind(queue="q", exchange="between"), QueueBindOk)
    prepare = publish.prepare
    monkeypatch.setattr(publish, "prepare", lambda *of: looked_at.append(of) or prepare(*of))

    properties = encoded(headers=headers)
    client.send(*(publish_frames("k", b"%d" % number, "x", properties=properties) for number in range(100)))

    wait_until(lambda: door.queue("q").ready_count == 100, sleep=gevent.sleep)
    assert not looked_at
