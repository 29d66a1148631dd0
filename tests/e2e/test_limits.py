"""The limits of a client that has logged in: each is reached, says so with its code and text,
and hurts nobody else.
"""
import contextlib
import re

import gevent
import pytest

from gomq_py.amqp.wire.frames import frame, header_payload, method_frame
from gomq_py.amqp.wire.methods import (
    BasicAck, BasicConsume, BasicConsumeOk, BasicDeliver, BasicGet, BasicGetOk, BasicPublish, ChannelClose,
    ChannelCloseOk, ChannelOpen, ChannelOpenOk, QueueBind, QueueBindOk, QueueDeclare, QueueDeclareOk,
)
from gomq_py.config.settings import BY_KEY
from gomq_py.errors import PreconditionFailed
from tests.support.command import ROOT
from tests.support.door import Door
from tests.support.virtual_time import VirtualTime
from tests.support.waiting import wait_until

HEADER, BODY = 2, 3


@pytest.fixture
def limited(tmp_path):
    """A function that opens a server with settings; a queue q is there."""
    doors = []

    def make(**settings):
        doors.append(Door(tmp_path / "data", **settings).__enter__())
        doors[-1].client().call(QueueDeclare(queue="q"), QueueDeclareOk)
        return doors[-1]

    yield make
    for door in doors:
        door.__exit__()


# unacknowledged messages

def test_unacked_messages_of_a_channel_end_deliveries_at_the_limit(limited):
    door = limited(max_unacked_per_channel=3, default_consumer_prefetch=0)
    client = door.client()
    for number in range(6):
        client.publish("q", b"%d" % number)
    client.call(BasicConsume(queue="q", consumer_tag="a"), BasicConsumeOk)
    tags = [client.expect_message(BasicDeliver)[0].delivery_tag for _ in range(3)]
    client.expect_silence()

    client.send_method(BasicAck(delivery_tag=tags[1]))

    assert client.expect_message(BasicDeliver)[2] == b"3"
    client.expect_silence()
    assert door.client().call(QueueDeclare(queue="q", passive=True), QueueDeclareOk).message_count == 2


def test_unacked_limit_leaves_consumers_without_acks_alone(limited):
    client = limited(max_unacked_per_channel=1).client()
    for _ in range(3):
        client.publish("q", b"x")

    client.call(BasicConsume(queue="q", no_ack=True), BasicConsumeOk)

    assert [client.expect_message(BasicDeliver)[2] for _ in range(3)] == [b"x"] * 3


def test_get_over_the_unacked_limit_closes_the_channel(limited):
    client = limited(max_unacked_per_channel=1).client()
    client.publish("q", b"x")
    client.publish("q", b"y")
    client.send_method(BasicGet(queue="q"))
    client.expect_message(BasicGetOk)
    client.send_method(BasicGet(queue="q", no_ack=True))
    client.expect_message(BasicGetOk)

    client.send_method(BasicGet(queue="q"))

    client.expect_error(
        ChannelClose, 506, "RESOURCE_ERROR - Max 1 unacknowledged messages per channel reached",
        blamed=BasicGet)


# consumers

def test_consumers_of_a_connection_are_limited_over_its_channels(limited):
    door = limited(max_consumers_per_connection=3)
    client, other = door.client(channels=(1, 2)), door.client()
    for channel in (1, 1, 2):
        client.call(BasicConsume(queue="q"), BasicConsumeOk, channel)

    client.send_method(BasicConsume(queue="q"), 2)

    client.expect_error(
        ChannelClose, 506, "RESOURCE_ERROR - Max 3 consumers per connection reached", 2, blamed=BasicConsume
    )
    other.call(BasicConsume(queue="q"), BasicConsumeOk)
    client.send_method(ChannelCloseOk(), 2)
    client.call(ChannelOpen(), ChannelOpenOk, 2)
    client.call(BasicConsume(queue="q"), BasicConsumeOk, 2)


# patterns of topic exchanges

def test_patterns_with_words_behind_a_hash_are_limited_at_every_door_and_what_is_stored_boots(limited):
    """Every door binds through the vhost, HTTP and definitions with these very names.

    A boot with a smaller limit keeps what there is.
    """
    door = limited(max_topic_words=6)
    client = door.client()
    client.call(QueueDeclare(queue="kept", durable=True), QueueDeclareOk)
    for pattern in ("#.a.b", "#.a.b", "x.#.y", "a.#", "*.*.*.*"):
        client.call(QueueBind(queue="kept", exchange="amq.topic", routing_key=pattern), QueueBindOk)
    text = (
        "cannot bind to exchange 'amq.topic' in vhost '/' with the pattern '#.c': limit of 6 words in costly "
        "patterns (max_topic_words) is reached"
    )

    client.send_method(QueueBind(queue="kept", exchange="amq.topic", routing_key="#.c"))

    client.expect_error(ChannelClose, 406, f"PRECONDITION_FAILED - {text}", blamed=QueueBind)
    with pytest.raises(PreconditionFailed, match=re.escape(text)):
        door.vhost.bindings.bind_queue("kept", "amq.topic", "#.c")
    door.vhost.bindings.bind_queue("q", "amq.topic", "#.a.b")
    door.vhost.bindings.unbind_queue("kept", "amq.topic", "x.#.y", {})
    door.vhost.bindings.bind_queue("kept", "amq.topic", "#.c")
    delayed = door.vhost.declare_exchange("d", "x-delayed-message", arguments={"x-delayed-type": "topic"})
    with pytest.raises(PreconditionFailed, match=r"\(max_topic_words\)"):
        door.vhost.bindings.bind_queue("kept", delayed.name, "#.1.2.3.4.5.6")

    door.__exit__()
    door = limited(max_topic_words=1)

    assert {binding.routing_key for binding in door.vhost.exchanges["amq.topic"].bindings()} == {
        "#.a.b", "#.c", "a.#", "*.*.*.*"
    }
    door.vhost.bindings.bind_queue("kept", "amq.topic", "#.c")
    with pytest.raises(PreconditionFailed):
        door.vhost.bindings.bind_queue("kept", "amq.topic", "#.d")


# bodies in flight

def test_unfinished_bodies_share_one_budget(limited):
    """Two clients begin a message each, together more than the budget:
    the second is not read on until the first has ended.
    """
    door = limited(max_unfinished_bodies=1024 * 1024)
    first, second = door.client(), door.client()
    begin = (
        method_frame(1, BasicPublish(routing_key="q")) + frame(HEADER, 1, header_payload(b"\0\0", 700_000))
    )
    part = frame(BODY, 1, bytes(100_000))
    first.send(begin, part * 6)
    wait_until(lambda: door.hub.bodies.held == 600_000, sleep=gevent.sleep)

    sending = gevent.spawn(second.send, begin, part * 7)

    wait_until(
        lambda: sum(connection.stream.paused for connection in door.hub.clients) == 1, sleep=gevent.sleep
    )
    assert door.hub.bodies.held <= 1024 * 1024 + 131072
    assert door.queue("q").ready_count == 0
    first.send(part)
    wait_until(lambda: door.queue("q").ready_count == 2, sleep=gevent.sleep)
    assert door.hub.bodies.held == 0
    sending.join()


def test_bodies_that_stand_still_keep_no_body_of_another_user_waiting(limited):
    """On the commit before 4ef5c4b8 it waited until one of them was closed, half a minute later."""
    door = limited(max_unfinished_bodies=1024 * 1024)
    door.broker.users.set_user("other", "secret")
    door.broker.users.set_permission("other", "/", ".*", ".*", ".*")
    begin = (
        method_frame(1, BasicPublish(routing_key="q")) + frame(HEADER, 1, header_payload(b"\0\0", 700_000))
    )
    still = [door.client() for _ in range(2)]
    for client in still:
        client.send(begin, frame(BODY, 1, bytes(100_000)) * 5)
    wait_until(lambda: door.hub.bodies.held == 1_000_000, sleep=gevent.sleep)

    door.client(username="other", password="secret").publish("q", bytes(300_000))

    wait_until(lambda: door.queue("q").ready_count == 1, sleep=gevent.sleep)
    assert door.hub.bodies.held == 1_000_000, "nobody had to give way"


def test_message_of_a_slow_link_gets_through_while_others_keep_the_budget_at_its_edge(limited):
    """10 MB at 50 KB a second, a hundredth of these and of the budget, in the budget's own time. Whoever
    stands still is given up, and another one comes.
    """
    door = limited(max_unfinished_bodies=2_560_000)
    bodies, time, still = door.hub.bodies, VirtualTime(), []
    bodies._clock, bodies._timers = time.clock, time
    door.broker.users.set_user("other", "secret")
    door.broker.users.set_permission("other", "/", ".*", ".*", ".*")
    slow = door.client(username="other", password="secret")
    stream = list(door.hub.clients)[-1].stream
    slow.send(
        method_frame(1, BasicPublish(routing_key="q")) + frame(HEADER, 1, header_payload(b"\0\0", 100_000)))
    begin = (
        method_frame(1, BasicPublish(routing_key="q"))
        + frame(HEADER, 1, header_payload(b"\0\0", 1_000_000)))

    for _ in range(200):
        while not bodies._waiting:
            client, before = door.client(), bodies.held
            still.append((client, gevent.spawn(client.send, begin, frame(BODY, 1, bytes(100_000)) * 4)))
            wait_until(lambda: bodies._waiting or bodies.held == before + 400_000, sleep=gevent.sleep)
        come = stream.received_octets + 508
        slow.send(frame(BODY, 1, bytes(500)))
        wait_until(lambda: stream.received_octets == come, sleep=gevent.sleep)
        assert "room for message bodies" not in stream.waits_for
        time.pass_time(1)

    wait_until(lambda: door.queue("q").ready_count == 1, sleep=gevent.sleep)
    slow.call(QueueDeclare(queue="q", passive=True), QueueDeclareOk)
    assert len(still) > 20, "nobody was given up"
    for client, sending in still:
        sending.kill()
        client.socket.close()


@pytest.mark.parametrize("others", [0, 1])
def test_bodies_of_one_connection_beyond_the_budget_end_their_channel_at_once_and_the_others_go_on(
    limited, others
):
    """Whether its bodies are the only ones, or come behind that of somebody else, which ends."""
    door = limited(max_unfinished_bodies=1024 * 1024)
    client, other = door.client(channels=(1, 2, 3)), door.client()
    begin = [
        method_frame(number, BasicPublish(routing_key="q"))
        + frame(HEADER, number, header_payload(b"\0\0", 500_000))
        for number in (1, 2, 3)
    ]
    parts = [frame(BODY, number, bytes(100_000)) for number in (1, 2, 3)]
    if others:
        other.send(begin[0], parts[0])
        wait_until(lambda: door.hub.bodies.held == 100_000, sleep=gevent.sleep)

    sending = gevent.spawn(client.send, *begin, *parts * 5)
    if others:
        other.send(*parts[:1] * 4)

    closed = client.next_method()
    assert isinstance(closed, ChannelClose) and closed.reply_code == 311
    assert closed.reply_text == (
        "CONTENT_TOO_LARGE - unfinished message bodies of more than 1048576 bytes on one connection "
        "(max_unfinished_bodies)")
    sending.join()
    wait_until(lambda: door.queue("q").ready_count == 2 + others, sleep=gevent.sleep)
    assert door.hub.bodies.held == 0


@pytest.mark.parametrize("first_ends", [True, False])
def test_connection_whose_channel_is_closed_while_its_body_waits_for_the_budget_is_read_again(
    limited, first_ends
):
    door = limited(max_unfinished_bodies=1024 * 1024)
    first, second = door.client(), door.client()
    begin = (
        method_frame(1, BasicPublish(routing_key="q")) + frame(HEADER, 1, header_payload(b"\0\0", 1_400_000))
    )
    part = frame(BODY, 1, bytes(100_000))
    first.send(begin, part * 13)
    wait_until(lambda: door.hub.bodies.held == 1_300_000, sleep=gevent.sleep)
    held = list(door.hub.clients)[-1]
    second.send(begin, part)
    wait_until(lambda: held.stream.waits_for == ["room for message bodies"], sleep=gevent.sleep)

    held.fail_channel(held.channels[1], PreconditionFailed("enough"))
    if first_ends:
        first.send(part)

    second.expect_error(ChannelClose, 406, "PRECONDITION_FAILED - enough")
    second.call(ChannelOpen(), ChannelOpenOk, 2)
    second.send_method(ChannelCloseOk())
    second.call(ChannelOpen(), ChannelOpenOk)
    assert not held.stream.paused


# output

@pytest.mark.parametrize("drips", [False, True])
def test_client_that_does_not_read_is_not_read_from_beyond_the_limit_and_dropped_after_its_time(
    limited, drips,
):
    """One that takes an octet now and then has no more time."""
    door = limited(max_unread_output=65536, unread_timeout=1)
    client = door.client()
    connection = list(door.hub.clients)[-1]
    declare = method_frame(1, QueueDeclare(queue="q", passive=True)) * 100

    def drip():
        with contextlib.suppress(OSError):
            return not client.socket.recv(1)
        return True

    if drips:
        gevent.spawn(wait_until, drip, sleep=gevent.sleep)
    with pytest.raises(OSError):
        while True:
            client.socket.sendall(declare)
            assert connection.output.pending_octets() < 65536 + 8192

    wait_until(lambda: connection not in door.hub.clients, sleep=gevent.sleep)
    assert connection.why == "the client has not read its answers for 1 s"


# the page

def test_the_page_names_settings_and_tests_that_exist():
    names = "limits.md", "contributing/limits.md"
    pages = [(ROOT / "docs" / name).read_text(encoding="utf-8") for name in names]
    rows = [line for page in pages for line in page.splitlines() if line.startswith("| `")]
    sources = "".join(path.read_text(encoding="utf-8") for path in (ROOT / "tests").rglob("test_*.py"))
    known = {key for _, key in BY_KEY}

    assert len(rows) > 24
    assert [
        name for row in rows for name in re.findall(r"`(\w+)`", row.split(" | ")[0])
        if name not in known | {"main"}
    ] == []
    assert "`test_" not in pages[0]
    assert [name for name in re.findall(r"`(test_\w+)`", pages[1]) if f"def {name}(" not in sources] == []
