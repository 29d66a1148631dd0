"""basic.ack, nack and reject over a connection."""
import pytest

from gomq_py.amqp.wire.methods import (
    BasicAck, BasicGet, BasicGetEmpty, BasicGetOk, BasicNack, BasicQos, BasicQosOk, BasicReject, ChannelClose, QueueDeclare, QueueDeclareOk,
)


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
    BasicAck(delivery_tag=4), BasicAck(delivery_tag=4, multiple=True), BasicAck(delivery_tag=0), BasicNack(delivery_tag=4),
    BasicReject(delivery_tag=4), BasicReject(delivery_tag=0), BasicAck(delivery_tag=2**64 - 1),
])
def test_unknown_tag_closes_the_channel(holder, method):
    holder.send_method(method)

    holder.expect_error(ChannelClose, 406, f"PRECONDITION_FAILED - unknown delivery tag {method.delivery_tag}", blamed=type(method))


@pytest.mark.parametrize("again", [
    BasicAck(delivery_tag=1), BasicNack(delivery_tag=1), BasicReject(delivery_tag=1), BasicAck(delivery_tag=1, multiple=True),
])
def test_tag_can_be_settled_once(holder, again):
    holder.send_method(BasicAck(delivery_tag=1))
    holder.send_method(again)

    holder.expect_error(ChannelClose, 406, "PRECONDITION_FAILED - unknown delivery tag 1", blamed=type(again))
