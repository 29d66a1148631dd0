"""Ends of connections: in slices, in order, whatever fails, and none is forgotten."""
import gc
import sys
from types import SimpleNamespace

import gevent
import pytest

from gomq_py.amqp.server.channel import AT_ONCE
from gomq_py.amqp.wire.frames import method_frame
from gomq_py.hub.endings import FEW, KEPT, TEXT_MAX, Endings, EndingsLately
from gomq_py.amqp.wire.methods import (
    BasicConsume, BasicConsumeOk, BasicDeliver, ChannelClose, ChannelCloseOk, ChannelOpen, ChannelOpenOk,
    ConfirmSelect, ConfirmSelectOk, ConnectionClose, ConnectionCloseOk, QueueDeclare, QueueDeclareOk,
    QueueDelete,
)
from gomq_py.hub.scheduler import Scheduler, SliceClock
from tests.support.clocks import StepClock
from tests.support.door import publish_frames
from tests.support.queues import HandLoop
from tests.support.waiting import wait_until

ONE = SimpleNamespace(
    name="a -> b", vhost=SimpleNamespace(name="/"), user=SimpleNamespace(identity=("guest", False)),
    protocol="AMQP 0-9-1", connected_at=1.5)


class Bench:
    """Endings whose slices are of three things, on a loop that the test turns; ``done`` is what has ended."""

    def __init__(self):
        self.loop, self.done = HandLoop(), []
        self.endings = Endings(Scheduler(loop=self.loop), lambda: SliceClock(seconds=2.5, clock=StepClock(1)))

    def ends(self, *names):
        return [lambda name=name: self.done.append(name) for name in names]

    def then(self, name):
        return lambda: self.done.append(name)


@pytest.fixture
def bench():
    return Bench()


def test_what_ends_ends_in_slices_and_in_order_over_all_connections(bench):
    bench.endings.give_back(bench.ends(1, 2, 3, 4), bench.then("first"))
    bench.endings.give_back(bench.ends(5), bench.then("second"))
    seen = []

    while bench.loop.poll():
        seen.append(len(bench.done))

    assert bench.done == [1, 2, 3, 4, "first", 5, "second"] and seen == [3, 6, 7]


def test_few_end_at_once_unless_others_wait(bench):
    bench.endings.give_back_few(bench.ends(1, 2), bench.then("few"))
    assert bench.done == [1, 2, "few"]

    bench.endings.give_back_few(bench.ends(*range(FEW + 1)), bench.then("many"))
    bench.endings.give_back_few(bench.ends("late"), bench.then("last"))

    assert len(bench.done) == 3
    bench.endings.finish()
    assert bench.done[-3:] == ["many", "late", "last"]


def test_an_end_that_fails_keeps_no_other_from_its(bench):
    def fail():
        raise ValueError("cannot end")

    bench.endings.give_back([*bench.ends(1), fail, *bench.ends(2)], bench.then("told"))

    while bench.loop.poll():
        pass

    assert bench.done == [1, 2, "told"]


def in_slices_of_one(door):
    """Every slice ends one thing. Returns a list that grows with each slice."""
    slices = []

    def clock():
        slices.append(None)
        return SliceClock(seconds=0)

    door.hub.endings = Endings(door.broker.scheduler, clock)
    return slices


@pytest.mark.parametrize("end", ["closed", "lost"])
def test_connection_of_many_channels_ends_in_slices_and_its_own_queues_after_them(door, end):
    slices = in_slices_of_one(door)
    client = door.client(channels=range(1, 51))
    client.call(QueueDeclare(queue="q", exclusive=True), QueueDeclareOk)
    client.call(BasicConsume(queue="q"), BasicConsumeOk)

    if end == "closed":
        client.call(ConnectionClose(reply_code=200), ConnectionCloseOk, 0)
        assert door.vhost.queues == {}
        client.expect_end()
    else:
        client.close()

    wait_until(lambda: not door.hub.clients, sleep=gevent.sleep)
    assert door.vhost.queues == {} and len(slices) > 50
    assert door.hub.clients.churn.channel_closed == 50 and door.hub.clients.churn.connection_closed == 1


def test_client_that_closes_is_answered_while_many_others_end(door):
    in_slices_of_one(door)
    many, client = door.client(channels=range(1, 51)), door.client()
    many.close()

    client.call(ConnectionClose(reply_code=200), ConnectionCloseOk, 0)

    client.expect_end()
    door.client().call(ChannelOpen(), ChannelOpenOk, 2)


def test_server_that_closes_lets_go_of_everything(door):
    in_slices_of_one(door)
    client = door.client(channels=range(1, 51))
    client.call(QueueDeclare(queue="q", exclusive=True), QueueDeclareOk)
    client.close()

    door.hub.take_leave()

    assert door.hub.clients.churn.channel_closed == 50 and door.vhost.queues == {}


def with_consumers(door, count, **options):
    """A client with a consumer of each of so many queues on one channel."""
    client = door.client()
    for number in range(count):
        client.send_method(QueueDeclare(queue=f"q{number}", no_wait=True, **options))
        client.send_method(BasicConsume(queue=f"q{number}", consumer_tag=f"c{number}", no_wait=True))
    client.call(QueueDeclare(queue="last"), QueueDeclareOk)
    return client


@pytest.mark.parametrize("end", ["closed", "refused", "lost", "its connection closed"])
def test_channel_of_many_consumers_ends_in_slices_and_is_answered_after_the_last(door, end):
    client = with_consumers(door, 100, auto_delete=True)
    slices = in_slices_of_one(door)

    if end == "closed":
        client.call(ChannelClose(reply_code=200), ChannelCloseOk)
    elif end == "refused":
        client.call(QueueDeclare(queue="nowhere", passive=True), ChannelClose)
    elif end == "lost":
        client.close()
        wait_until(lambda: not door.hub.clients, sleep=gevent.sleep)
    else:
        client.call(ConnectionClose(reply_code=200), ConnectionCloseOk, 0)

    assert set(door.vhost.queues) == {"last"}
    assert len(slices) >= (1 if end == "its connection closed" else 100 // AT_ONCE)
    assert door.hub.clients.churn.channel_closed == 1


@pytest.mark.parametrize("count", [1, 100])
def test_nothing_is_carried_out_that_a_client_sent_behind_an_error_before_it_knew(door, count):
    client = with_consumers(door, count)
    client.call(QueueDeclare(queue="other"), QueueDeclareOk)
    client.call(ConfirmSelect(), ConfirmSelectOk)
    behind = [
        QueueDelete(queue="q0", no_wait=True), QueueDeclare(queue="nowhere", passive=True),
        ChannelClose(reply_code=200), ChannelOpen(),
    ]

    client.send(
        method_frame(1, QueueDeclare(queue="nowhere", passive=True)), publish_frames("other"),
        *(method_frame(1, method) for method in behind))

    assert client.expect(ChannelClose).reply_code == 404
    client.expect(ChannelCloseOk)
    client.expect(ChannelOpenOk)
    assert "q0" in door.vhost.queues and door.queue("other").ready_count == 0


class KeptEndings:
    """Endings that are brought about one by one, by the test."""

    def __init__(self):
        self.ends = []

    def give_back(self, ends, then):
        self.ends += [*ends, then]

    give_back_few = give_back

    def close(self):
        self.ends.clear()

    def finish(self):
        while self.ends:
            self.ends.pop(0)()


def test_nothing_is_delivered_to_a_channel_that_ends_in_slices_and_its_messages_come_back_in_order(door):
    client, other = with_consumers(door, 100), door.client()
    client.call(QueueDeclare(queue="single", arguments={"x-single-active-consumer": True}), QueueDeclareOk)
    client.call(BasicConsume(queue="single", consumer_tag="first"), BasicConsumeOk)
    other.call(BasicConsume(queue="single", consumer_tag="second"), BasicConsumeOk)
    other.publish("single", b"1")
    client.expect_message(BasicDeliver)
    endings = door.hub.endings = KeptEndings()
    client.send_method(ChannelClose(reply_code=200))
    wait_until(lambda: endings.ends, sleep=gevent.sleep)
    endings.ends.pop(0)()
    (channel,) = [
        one
        for connection in door.hub.clients for one in connection.channels.values() if len(one.consumers) > 1
    ]

    other.publish("q99", b"for others")
    other.publish("single", b"2")
    other.call(QueueDeclare(queue="q99"), QueueDeclareOk)
    left, waiting = len(channel.consumers), door.queue("q99").ready_count
    endings.finish()
    client.expect(ChannelCloseOk)

    assert left == 101 - AT_ONCE and waiting == 1
    assert [other.expect_message(BasicDeliver)[2] for _ in range(2)] == [b"1", b"2"]


@pytest.mark.parametrize("end", ["closed", "forced"])
def test_what_a_channel_of_a_closing_connection_gives_back_does_not_go_through_its_other_channels(door, end):
    """It would be counted as delivered by each of them, and dropped at the delivery limit."""
    client = door.client(channels=(1, 2, 3))
    client.call(QueueDeclare(queue="q", durable=True, arguments={"x-delivery-limit": 2}), QueueDeclareOk)
    client.call(BasicConsume(queue="q"), BasicConsumeOk)
    client.publish("q", b"1")
    client.expect_message(BasicDeliver)
    for channel in (2, 3):
        client.call(BasicConsume(queue="q"), BasicConsumeOk, channel)
    before, endings = door.hub.endings, KeptEndings()
    door.hub.endings = endings

    if end == "closed":
        client.send_method(ConnectionClose(reply_code=200), 0)
    else:
        door.connection().force_close("by the test")
    wait_until(lambda: endings.ends, sleep=gevent.sleep)
    waiting = []
    while endings.ends:
        endings.ends.pop(0)()
        door.broker.scheduler.finish()  # the queue's turn
        waiting.append(door.queue("q").ready_count)
    door.hub.endings = before
    client.expect(ConnectionCloseOk if end == "closed" else ConnectionClose, 0)

    assert min(waiting) == 1


def test_the_last_endings_are_kept_with_reasons_that_are_short():
    endings = EndingsLately(unix_s=lambda: 2.0)

    for number in range(KEPT + 1):
        endings.connection(ONE, "x" * 5000, given_name=7)
        endings.channel(ONE, number, ValueError("why"))

    assert len(endings.connections) == len(endings.channels) == KEPT
    assert endings.channels[-1] == {
        "number": 2 * KEPT + 2, "what": "channel", "name": "a -> b", "vhost": "/", "user": ("guest", False),
        "closed_at": 2000, "reason": "why", "channel": KEPT,
    }
    assert (len(endings.connections[0]["reason"]), endings.connections[0]["user_provided_name"]) == (
        TEXT_MAX, None)


def test_the_reason_and_name_are_kept_whatever_is_in_them():
    endings = EndingsLately()

    for text in ("\udc80 is no UTF-8", "", "three\nlines\r", "\U0001f407" * TEXT_MAX):
        endings.connection(ONE, text, given_name=text)

        ended = endings.connections[-1]
        assert (ended["reason"], ended["user_provided_name"]) == (text, text)


def test_no_object_of_a_connection_is_kept():
    """One holds the arena that it lies in, which could be given back to the system."""
    endings, name = EndingsLately(), "of the client " * 5
    gone = SimpleNamespace(**{**vars(ONE), "name": name})
    references, tracked = sys.getrefcount(name), len(gc.get_objects())

    for number in range(2 * KEPT):
        endings.connection(gone, "why")
        endings.channel(gone, number, "why")

    assert sys.getrefcount(name) == references
    assert len(gc.get_objects()) < tracked + KEPT // 2
