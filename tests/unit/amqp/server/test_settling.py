"""basic.ack, nack and reject over a connection."""
import gevent
import pytest

from gomq_py.amqp.server import settling
from gomq_py.amqp.server.settling import Settling
from gomq_py.amqp.wire.errors import PreconditionFailed
from gomq_py.amqp.wire.frames import method_frame
from gomq_py.amqp.wire.methods import (
    BasicAck, BasicCancel, BasicCancelOk, BasicConsume, BasicConsumeOk, BasicDeliver, BasicGet, BasicGetEmpty,
    BasicGetOk, BasicNack, BasicQos, BasicQosOk, BasicRecover, BasicRecoverAsync, BasicRecoverOk, BasicReject,
    ChannelClose, QueueDeclare, QueueDeclareOk,
)
from tests.support.door import publish_frames

MANY = 3000


@pytest.fixture
def holder(client):
    """A client that holds messages 1, 2 and 3 of queue q unacked."""
    client.call(QueueDeclare(queue="q"), QueueDeclareOk)
    for body in (b"1", b"2", b"3"):
        client.publish("q", body)
    for _ in range(3):
        get(client)
    return client


def get(client):
    client.send_method(BasicGet(queue="q"))
    return client.expect_message(BasicGetOk)


def left(client):
    """The bodies that are in the queue again, in order."""
    found = []
    count = client.call(QueueDeclare(queue="q"), QueueDeclareOk).message_count
    for _ in range(count):
        found.append(get(client)[2])
    return found


def test_acked_message_is_gone(holder, door):
    holder.send_method(BasicAck(delivery_tag=2))

    assert left(holder) == []
    assert door.queue("q").unacked_count == 2


def test_multiple_ack_covers_everything_before(holder, door):
    holder.send_method(BasicAck(delivery_tag=2, multiple=True))

    assert left(holder) == []
    assert door.queue("q").unacked_count == 1


def test_rejected_message_goes_back_to_its_place(holder):
    holder.send_method(BasicReject(delivery_tag=3, requeue=True))
    holder.send_method(BasicReject(delivery_tag=1, requeue=True))

    assert left(holder) == [b"1", b"3"]


def test_message_rejected_for_good_is_gone(holder, door):
    holder.send_method(BasicReject(delivery_tag=1))

    assert left(holder) == []
    assert door.queue("q").unacked_count == 2


def test_multiple_nack_puts_everything_before_back(holder):
    holder.send_method(BasicNack(delivery_tag=2, multiple=True, requeue=True))

    assert left(holder) == [b"1", b"2"]


@pytest.mark.parametrize("method", [BasicAck(multiple=True), BasicNack(multiple=True, requeue=False)])
def test_tag_zero_with_multiple_means_everything(holder, door, method):
    holder.send_method(method)

    holder.call(BasicGet(queue="q"), BasicGetEmpty)
    assert door.queue("q").unacked_count == 0


@pytest.mark.parametrize("method", [BasicAck(multiple=True), BasicNack(multiple=True)])
def test_tag_zero_with_multiple_may_mean_nothing(client, method):
    client.send_method(method)

    client.call(BasicQos(), BasicQosOk)


@pytest.mark.parametrize("method", [
    BasicAck(delivery_tag=4), BasicAck(delivery_tag=4, multiple=True), BasicAck(delivery_tag=0),
    BasicNack(delivery_tag=4),
    BasicReject(delivery_tag=4), BasicReject(delivery_tag=0), BasicAck(delivery_tag=2**64 - 1),
])
def test_unknown_tag_closes_the_channel(holder, method):
    holder.send_method(method)

    holder.expect_error(
        ChannelClose, 406, f"PRECONDITION_FAILED - unknown delivery tag {method.delivery_tag}",
        blamed=type(method),
    )


@pytest.mark.parametrize("again", [
    BasicAck(delivery_tag=1), BasicNack(delivery_tag=1), BasicReject(delivery_tag=1),
    BasicAck(delivery_tag=1, multiple=True),
])
def test_tag_can_be_settled_once(holder, again):
    holder.send_method(BasicAck(delivery_tag=1))
    holder.send_method(again)

    holder.expect_error(ChannelClose, 406, "PRECONDITION_FAILED - unknown delivery tag 1", blamed=type(again))


@pytest.fixture
def slices(door, monkeypatch):
    """At most 1000 are settled at once; gives the polls of the loop at which that was done, with how many
    were unacked before and after.
    """
    seen, settle_some = [], Settling._settle_some
    poll = gevent.get_hub().loop.prepare()
    polls = []
    poll.start(lambda: polls.append(None))

    def noted(self, tag, how):
        before = door.queue("q").unacked_count
        left = settle_some(self, tag, how)
        seen.append((len(polls), before, door.queue("q").unacked_count))
        return left

    monkeypatch.setattr(settling, "ACKS_AT_ONCE", 1000)
    monkeypatch.setattr(settling, "AT_ONCE", 1000)
    monkeypatch.setattr(Settling, "_settle_some", noted)
    yield seen
    poll.stop()
    poll.close()


@pytest.fixture
def crowd(client, door):
    """A client that holds 3000 messages of queue q unacked, numbered in order."""
    client.call(QueueDeclare(queue="q"), QueueDeclareOk)
    for number in range(MANY):
        client.send(publish_frames("q", b"%d" % number))
    client.call(BasicConsume(queue="q", consumer_tag="c"), BasicConsumeOk)
    for number in range(MANY):
        assert client.expect_message(BasicDeliver)[2] == b"%d" % number
    client.call(BasicCancel(consumer_tag="c"), BasicCancelOk)
    return client


@pytest.mark.parametrize(("method", "left"), [
    (BasicAck(multiple=True), 0), (BasicAck(delivery_tag=MANY, multiple=True), 0),
    (BasicNack(multiple=True, requeue=False), 0),
    (BasicNack(delivery_tag=MANY, multiple=True, requeue=True), MANY),
    (BasicRecoverAsync(requeue=True), MANY), (BasicRecover(requeue=True), MANY),
])
def test_very_many_are_settled_in_slices_and_what_the_client_sends_next_finds_them_settled(
    crowd, door, slices, method, left
):
    """Held by what each poll of the loop did: 1000 of 3000,
    while the queue.declare that came in the same packet waited.
    """
    crowd.send(method_frame(1, method), method_frame(1, QueueDeclare(queue="q", passive=True)))

    if isinstance(method, BasicRecover):
        crowd.expect(BasicRecoverOk)
    assert crowd.expect(QueueDeclareOk).message_count == left
    assert [(before, after) for _, before, after in slices] == [(3000, 2000), (2000, 1000), (1000, 0)]
    assert len({poll for poll, _, _ in slices}) == 3
    if left:
        assert [get(crowd)[2] for _ in range(3)] == [b"0", b"1", b"2"]


def test_others_are_served_between_the_slices(crowd, door, slices, monkeypatch):
    monkeypatch.setattr(settling, "ACKS_AT_ONCE", 10)
    other = door.client()
    crowd.send(
        method_frame(1, BasicAck(multiple=True)), method_frame(1, QueueDeclare(queue="q", passive=True))
    )
    other.call(QueueDeclare(queue="other"), QueueDeclareOk)

    assert 0 < door.queue("q").unacked_count < MANY
    crowd.expect(QueueDeclareOk)
    assert door.queue("q").unacked_count == 0


def test_acks_that_were_read_are_carried_out_though_the_channel_ends(crowd, door, slices):
    """The channel fails in the middle: what was acked is gone, the rest goes back behind that."""
    connection = next(one for one in door.hub.clients if one.channels[1].unacked.count)
    failed = []

    def fail():
        if len(slices) == 2 and not failed:
            failed.append(connection.fail_channel(connection.channels[1], PreconditionFailed("enough")))

    watcher = gevent.get_hub().loop.prepare()
    watcher.start(fail)
    crowd.send_method(BasicAck(delivery_tag=2600, multiple=True))

    crowd.expect(ChannelClose)
    watcher.stop()
    watcher.close()
    other = door.client()
    assert failed and door.queue("q").unacked_count == 0
    assert other.call(QueueDeclare(queue="q", passive=True), QueueDeclareOk).message_count == 400
    assert get(other)[2] == b"2600"


@pytest.mark.parametrize("method", [
    BasicAck(delivery_tag=MANY + 1, multiple=True), BasicNack(delivery_tag=MANY + 1, multiple=True)
])
def test_unknown_tag_settles_none_of_very_many(crowd, door, slices, method):
    crowd.send_method(method)

    crowd.expect_error(
        ChannelClose, 406, f"PRECONDITION_FAILED - unknown delivery tag {MANY + 1}", blamed=type(method)
    )
