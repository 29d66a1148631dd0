"""Consumer timeouts: deliveries that stay unacked for too long close their channel, the message goes back,
and idle channels are not looked at.
"""
from types import SimpleNamespace

import pytest

from gomq_py.amqp.server import channel as channel_
from gomq_py.amqp.server.consumer_timeouts import ConsumerTimeouts
from gomq_py.broker.queues.unacked import Unacked
from gomq_py.amqp.wire.methods import (
    BasicAck, BasicCancel, BasicConsume, BasicConsumeOk, BasicDeliver, BasicGet, BasicGetOk, BasicQos,
    BasicQosOk, ChannelClose, ChannelCloseOk, ChannelOpen, ChannelOpenOk, QueueDeclare, QueueDeclareOk,
    TxSelect, TxSelectOk,
)
from gomq_py.broker.policies.policy import POLICY
from gomq_py.broker.queues.queue import Queue
from gomq_py.content.properties import Properties
from gomq_py.hub.scheduler import Scheduler
from gomq_py.hub.timers import HubTimers
from tests.support.door import Door
from tests.support.no_switch import no_switch

TEXT = ("PRECONDITION_FAILED - delivery acknowledgement on channel 1 timed out. Timeout value used: {} ms. "
        "This timeout value can be configured, see consumers doc guide to learn more")


class Clock:
    """Seconds that pass when the test says so."""

    def __init__(self):
        self.now_s = 1000.0

    def __call__(self):
        return self.now_s


class HeldChannel:
    """A channel with an unacked ring, and what it was told."""

    def __init__(self, timeouts):
        self.id = 1
        self.timeouts = timeouts
        self.unacked = Unacked()
        self.watched = False
        self.errors = []

    def watch_unacked(self):
        self.timeouts.watch(self)
        self.watched = self.timeouts.is_watching(self)

    def consumer_timed_out(self, holder, error):
        self.errors.append((holder.queue.name, error.text))

    def deliver(self, queue, location, now_s):
        self.unacked.add(self.unacked.make_holder(queue, None), location, 1, now_s)
        if queue.consumer_timeout_ms and not self.watched:
            self.watch_unacked()


class SettlingQueue(Queue):
    """Forgets what is settled."""

    def __init__(self, name, timeout_ms):
        super().__init__(name, "/", None, Scheduler())
        self.consumer_timeout_ms = timeout_ms

    def ack(self, location):
        pass


@pytest.fixture
def clock():
    return Clock()


@pytest.fixture
def timeouts(clock):
    timeouts = ConsumerTimeouts(HubTimers(), clock)
    yield timeouts
    timeouts.close()


@pytest.fixture
def channel(timeouts):
    return HeldChannel(timeouts)


def test_delivery_times_out_after_its_queues_time_and_not_before(timeouts, clock, channel):
    channel.deliver(SettlingQueue("q", 5000), 11, 1000)

    clock.now_s = 1005.9
    timeouts.run_due()
    assert channel.errors == []

    clock.now_s = 1007.0
    timeouts.run_due()
    assert channel.errors == [("q", TEXT.format(5000).partition(" - ")[2])]


def test_channel_that_acks_in_time_is_looked_at_and_let_go(timeouts, clock, channel):
    channel.deliver(SettlingQueue("q", 5000), 11, 1000)
    channel.unacked.settle(1, False)

    clock.now_s = 1007.0
    timeouts.run_due()

    assert channel.errors == []
    assert not channel.watched and not timeouts.is_watching(channel)


def test_channel_that_is_busy_is_looked_at_once_per_timeout(timeouts, clock, channel):
    queue = SettlingQueue("q", 5000)
    channel.deliver(queue, 11, 1000)
    for second in range(1001, 1005):
        channel.deliver(queue, second, second)
        channel.unacked.settle(second - 1000, False)

    clock.now_s = 1007.0
    timeouts.run_due()

    assert channel.watched  # for the delivery of second 1004
    clock.now_s = 1009.9
    timeouts.run_due()
    assert channel.errors == []
    clock.now_s = 1011.0
    timeouts.run_due()
    assert len(channel.errors) == 1


def test_shortest_time_of_several_queues_counts(timeouts, clock, channel):
    channel.deliver(SettlingQueue("patient", 60_000), 11, 1000)
    channel.deliver(SettlingQueue("for ever", 0), 12, 1000)
    channel.watched = False
    channel.deliver(SettlingQueue("hasty", 2000), 13, 1001)

    clock.now_s = 1005.0
    timeouts.run_due()

    assert [name for name, _ in channel.errors] == ["hasty"]


def test_messages_of_queues_without_a_timeout_are_not_watched(timeouts, channel):
    channel.deliver(SettlingQueue("q", 0), 11, 1000)
    channel.watch_unacked()

    assert not channel.watched and channel.unacked.due_ms() == 0


def test_channel_that_is_gone_is_forgotten_at_once(timeouts, channel):
    """Else a channel that was closed would be kept for the half hour of its timeout."""
    channel.deliver(SettlingQueue("q", 1_800_000), 11, 1000)

    timeouts.forget(channel)

    assert not timeouts.is_watching(channel)


def test_channel_whose_look_raises_keeps_no_other_from_its_own(timeouts, clock, channel, caplog):
    ill, queue = HeldChannel(timeouts), SettlingQueue("q", 5000)
    ill.deliver(queue, 1, 1000)
    channel.deliver(queue, 2, 1000)
    ill.consumer_timed_out = lambda holder, error: 1 // 0

    clock.now_s += 7
    timeouts.run_due()

    assert [name for name, _ in channel.errors] == ["q"]
    assert "whether an acknowledgement is overdue cannot be told" in caplog.text and not ill.watched


def test_channel_that_ends_with_the_look_at_another_one_is_not_looked_at(timeouts, clock, channel):
    """Both are due in the same second: the one's timeout ends the connection of both."""
    other, queue = HeldChannel(timeouts), SettlingQueue("q", 5000)
    for each, rest in ((channel, other), (other, channel)):
        each.deliver(queue, 1, 1000)
        each.consumer_timed_out = lambda holder, error, each=each, rest=rest: (
            each.errors.append(error) or timeouts.forget(rest)
        )

    clock.now_s += 7
    timeouts.run_due()

    assert len(channel.errors) + len(other.errors) == 1


def test_oldest_delivery_is_found_among_those_that_moved_aside(timeouts, channel):
    queue = SettlingQueue("q", 5000)
    channel.deliver(queue, 11, 1000)
    for number in range(2, 5000):
        channel.deliver(queue, number + 10, 1001)
        channel.unacked.settle(number, False)

    assert channel.unacked.due_ms() == 1_006_000
    assert channel.unacked.overdue(1_006_000).queue is queue
    assert channel.unacked.overdue(1_005_999) is None


# over a connection


def hasten(door, seconds):
    """Let this much time pass for the door's timeouts, and have them look."""
    timeouts = door.server.timeouts
    now = timeouts._clock()
    timeouts._clock = lambda: now + seconds
    with no_switch():
        timeouts.run_due()


@pytest.fixture(params=["argument", "policy", "setting"])
def limited(request, tmp_path):
    """A door with a queue q whose deliveries may stay unacked for 9 s; how it says so differs."""
    with Door(tmp_path, consumer_timeout=9000 if request.param == "setting" else 0) as door:
        if request.param == "policy":
            door.broker.parameters.set(
                door.vhost, POLICY, "p", {"pattern": "^q$", "definition": {"consumer-timeout": 9000}}
            )
        client = door.client()
        client.call(
            QueueDeclare(
                queue="q", arguments={"x-consumer-timeout": 9000} if request.param == "argument" else {}
            ),
            QueueDeclareOk,
        )
        hasten(door, 0)  # its clock stands still from here on
        yield SimpleNamespace(door=door, client=client)


def test_consumer_that_does_not_ack_loses_its_channel_and_the_message_goes_back(limited):
    door, client = limited.door, limited.client
    client.call(BasicConsume(queue="q", consumer_tag="slow"), BasicConsumeOk)
    client.publish("q", b"work")
    client.expect_message(BasicDeliver)

    hasten(door, 8)
    client.expect_silence()
    hasten(door, 12)

    close = client.expect(ChannelClose)
    assert (close.reply_code, close.reply_text, close.class_id, close.method_id) == (
        406, TEXT.format(9000), 0, 0
    )
    assert (door.queue("q").ready_count, door.queue("q").unacked_count) == (1, 0)
    client.send_method(ChannelCloseOk())
    client.call(ChannelOpen(), ChannelOpenOk)
    client.send_method(BasicGet(queue="q"))
    assert client.expect_message(BasicGetOk)[0].redelivered


def test_message_from_basic_get_times_out_too(limited):
    client = limited.client
    client.publish("q", b"work")
    client.send_method(BasicGet(queue="q"))
    client.expect_message(BasicGetOk)
    hasten(limited.door, 8)
    client.expect_silence()

    hasten(limited.door, 12)

    assert client.expect(ChannelClose).reply_text == TEXT.format(9000)


def test_acked_and_no_ack_deliveries_do_not_time_out(limited):
    client = limited.client
    client.call(BasicConsume(queue="q", consumer_tag="free", no_ack=True), BasicConsumeOk)
    client.publish("q", b"1")
    client.expect_message(BasicDeliver)
    client.publish("q", b"2")
    client.expect_message(BasicDeliver)
    client.call(ChannelOpen(), ChannelOpenOk, 2)

    hasten(limited.door, 12)

    client.expect_silence()
    assert limited.door.server.timeouts._due == {}


def test_body_larger_than_the_output_buffer_times_out_too(limited):
    client = limited.client
    client.call(BasicConsume(queue="q"), BasicConsumeOk)
    client.publish("q", bytes(400_000))
    client.expect_message(BasicDeliver)

    hasten(limited.door, 12)

    assert client.expect(ChannelClose).reply_code == 406


def test_policy_counts_for_what_is_unacked_already(tmp_path):
    with Door(tmp_path) as door:
        client = door.client()
        client.call(QueueDeclare(queue="q"), QueueDeclareOk)
        client.publish("q", b"work")
        client.send_method(BasicGet(queue="q"))
        tag = client.expect_message(BasicGetOk)[0].delivery_tag
        assert door.server.timeouts._due == {}

        door.broker.parameters.set(
            door.vhost, POLICY, "p", {"pattern": ".*", "definition": {"consumer-timeout": 5000}}
        )
        client.call(QueueDeclare(queue="q"), QueueDeclareOk)  # a round trip: the change has been looked at
        client.expect_silence()
        assert len(door.server.timeouts._due) == 1
        door.broker.parameters.clear(door.vhost, POLICY, "p")
        client.call(QueueDeclare(queue="q"), QueueDeclareOk)
        client.expect_silence()

        hasten(door, 60)
        client.send_method(BasicAck(delivery_tag=tag))
        client.expect_silence()


# consumers of quorum queues

QUORUM = {"x-queue-type": "quorum"}
# Arguments of the queue, arguments of the consumer.
OWN_TIMEOUTS = {
    "queue": (QUORUM | {"x-consumer-timeout": 9000}, {}),
    "consumer": (QUORUM, {"x-consumer-timeout": 9000}),
    "both": (QUORUM | {"x-consumer-timeout": 3_600_000}, {"x-consumer-timeout": 9000}),
}


def consume(client, queue_arguments, consumer_arguments, bodies=(b"a", b"b", b"c")):
    """A consumer "slow" that has all of these, and another one, "other", of another queue, that has one."""
    client.call(QueueDeclare(queue="q", durable=True, arguments=queue_arguments), QueueDeclareOk)
    client.call(QueueDeclare(queue="other"), QueueDeclareOk)
    client.call(BasicConsume(queue="other", consumer_tag="other"), BasicConsumeOk)
    client.call(BasicConsume(queue="q", consumer_tag="slow", arguments=consumer_arguments), BasicConsumeOk)
    client.publish("other", b"mine")
    tags = [client.expect_message(BasicDeliver)[0].delivery_tag]
    for body in bodies:
        client.publish("q", body)
        tags.append(client.expect_message(BasicDeliver)[0].delivery_tag)
    return tags


@pytest.mark.parametrize("arguments", OWN_TIMEOUTS.values(), ids=OWN_TIMEOUTS)
def test_consumer_of_a_quorum_queue_is_cancelled_and_its_channel_goes_on(tmp_path, arguments):
    """All its messages go back, as no failures; its late acks are no error, and others' hold."""
    with Door(tmp_path) as door:
        client = door.client()
        hasten(door, 0)  # its clock stands still from here on
        tags = consume(client, *arguments)
        hasten(door, 8)
        client.expect_silence()

        hasten(door, 12)

        assert client.expect(BasicCancel) == BasicCancel(consumer_tag="slow", no_wait=True)
        assert (door.queue("q").ready_count, door.queue("q").unacked_count) == (3, 0)
        for tag in tags:
            client.send_method(BasicAck(delivery_tag=tag))
        client.send_method(BasicGet(queue="q"))
        method, properties, body = client.expect_message(BasicGetOk)
        assert (method.redelivered, body, method.message_count) == (True, b"a", 2)
        assert Properties.decode(properties).headers == {"x-acquired-count": 1}
        assert door.queue("other").unacked_count == 0
        assert door.server.timeouts._due == {} or arguments[0] != QUORUM


def test_channel_is_closed_where_the_client_would_not_understand(tmp_path):
    with Door(tmp_path) as door:
        client = door.client(capabilities={})
        consume(client, *OWN_TIMEOUTS["consumer"])

        hasten(door, 12)

        assert client.expect(ChannelClose).reply_text == TEXT.format(9000)
        assert (door.queue("q").ready_count, door.queue("q").unacked_count) == (3, 0)


@pytest.mark.parametrize("why", ["transaction", "cancelled by the client", "too many messages"])
def test_channel_is_closed_where_no_consumer_can_be_cancelled(tmp_path, why, monkeypatch):
    with Door(tmp_path) as door:
        client = door.client()
        if why == "transaction":
            client.call(TxSelect(), TxSelectOk)
            client.call(ChannelOpen(), ChannelOpenOk, 2)
            declare = QueueDeclare(queue="q", durable=True, arguments=OWN_TIMEOUTS["queue"][0])
            client.call(declare, QueueDeclareOk)
            client.call(BasicConsume(queue="q"), BasicConsumeOk)
            client.publish("q", b"a", channel=2)
            client.expect_message(BasicDeliver)
        else:
            consume(client, *OWN_TIMEOUTS["queue"])
        if why == "cancelled by the client":
            client.send_method(BasicCancel(consumer_tag="slow", no_wait=True))
        monkeypatch.setattr(channel_, "RETURNED_MAX", 3 if why == "too many messages" else 1000)
        client.call(BasicQos(prefetch_count=1), BasicQosOk)

        hasten(door, 12)

        assert client.expect(ChannelClose).reply_text == TEXT.format(9000)


def test_consumers_argument_of_0_is_no_limit_and_has_no_effect_on_a_classic_queue(tmp_path):
    with Door(tmp_path) as door:
        client = door.client()
        consume(client, QUORUM | {"x-consumer-timeout": 9000}, {"x-consumer-timeout": 0})
        client.call(QueueDeclare(queue="plain"), QueueDeclareOk)
        client.call(BasicConsume(queue="plain", arguments={"x-consumer-timeout": 9000}), BasicConsumeOk)
        client.publish("plain", b"x")
        client.expect_message(BasicDeliver)

        hasten(door, 3600)

        client.expect_silence()


@pytest.mark.parametrize("value", [-1, "9000", 1.5, None, True])
def test_consumer_timeout_that_is_no_time_is_406(tmp_path, value):
    with Door(tmp_path) as door:
        client = door.client()
        client.call(QueueDeclare(queue="q", durable=True, arguments=QUORUM), QueueDeclareOk)

        client.send_method(BasicConsume(queue="q", arguments={"x-consumer-timeout": value}))

        assert client.expect(ChannelClose).reply_code == 406


def test_timer_runs_only_while_something_is_watched(tmp_path):
    with Door(tmp_path) as door:
        client = door.client()
        client.call(QueueDeclare(queue="q", arguments={"x-consumer-timeout": 60_000}), QueueDeclareOk)
        client.call(BasicConsume(queue="q"), BasicConsumeOk)
        assert door.server.timeouts._timer is None

        client.publish("q", b"work")
        client.expect_message(BasicDeliver)
        assert door.server.timeouts._timer is not None


def test_nothing_is_watched_after_the_end(clock):
    """What lies in a channel that ends after the hub starts no timer."""
    timeouts = ConsumerTimeouts(None, clock)
    channel = HeldChannel(timeouts)
    timeouts.close()

    channel.deliver(SettlingQueue("q", 5000), 1, int(clock()))
    clock.now_s += 60
    timeouts.run_due()

    assert not timeouts.is_watching(channel) and channel.errors == []
