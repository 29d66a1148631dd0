"""basic.consume, cancel, qos, get and recover over a connection."""
import pytest

from gomq_py.amqp.wire.frames import method_frame
from gomq_py.amqp.wire.methods import (
    BasicAck, BasicCancel, BasicCancelOk, BasicConsume, BasicConsumeOk, BasicDeliver, BasicGet, BasicGetEmpty,
    BasicGetOk, BasicNack, BasicQos, BasicQosOk, BasicRecover, BasicRecoverAsync, BasicRecoverOk,
    ChannelClose, ChannelCloseOk, ChannelFlow, ChannelFlowOk, ChannelOpen, ChannelOpenOk, ConnectionClose,
    QueueDeclare, QueueDeclareOk, TxSelect, TxSelectOk,
)
from gomq_py.errors import PreconditionFailed
from tests.support.door import Door


@pytest.fixture
def consumer(client):
    """A client with a queue named q."""
    client.call(QueueDeclare(queue="q"), QueueDeclareOk)
    return client


def refused(client, method, code, text, close_class=ChannelClose):
    client.send_method(method)
    channel = 1 if close_class is ChannelClose else 0
    client.expect_error(close_class, code, text, channel, blamed=type(method))


def delivered(client, count, channel=1):
    """The bodies of the next deliveries."""
    return [client.expect_message(BasicDeliver, channel)[2] for _ in range(count)]


def got(client, **options):
    """basic.get's (method, body)."""
    client.send_method(BasicGet(queue="q", **options))
    method, _, body = client.expect_message(BasicGetOk)
    return method, body


# consume

def test_messages_are_delivered_to_the_consumer(consumer):
    consumer.publish("q", b"before")
    consumer.call(BasicConsume(queue="q", consumer_tag="t"), BasicConsumeOk)
    consumer.publish("q", b"after", properties=b"\x10\0\2")

    first, properties, body = consumer.expect_message(BasicDeliver)
    second, other_properties, other_body = consumer.expect_message(BasicDeliver)

    assert (first.consumer_tag, first.delivery_tag, first.redelivered, first.exchange, first.routing_key) == (
        "t", 1, False, "", "q"
    )
    assert (second.delivery_tag, properties, body, other_properties, other_body) == (
        2, b"\0\0", b"before", b"\x10\0\2", b"after"
    )


def test_consumer_without_a_tag_gets_one(consumer):
    one = consumer.call(BasicConsume(queue="q"), BasicConsumeOk).consumer_tag
    other = consumer.call(BasicConsume(queue="q"), BasicConsumeOk).consumer_tag

    assert one.startswith("amq.ctag-") and other.startswith("amq.ctag-") and one != other


def test_consume_without_wait_is_not_answered(consumer):
    consumer.publish("q", b"x")

    consumer.send_method(BasicConsume(queue="q", consumer_tag="t", no_wait=True))

    assert delivered(consumer, 1) == [b"x"]


def test_consume_of_the_last_declared_queue(consumer):
    consumer.publish("q", b"x")
    consumer.call(BasicConsume(queue=""), BasicConsumeOk)

    assert delivered(consumer, 1) == [b"x"]


def test_first_delivery_waits_for_consume_ok(slow_disk_door):
    client = slow_disk_door.client(channels=(1, 2))
    client.call(QueueDeclare(queue="q"), QueueDeclareOk, channel=2)
    client.publish("q", b"x", channel=2)
    client.send_method(QueueDeclare(queue="durable", durable=True))
    client.send_method(BasicConsume(queue="q"))
    client.expect_silence()

    slow_disk_door.committer.finish()

    client.expect(QueueDeclareOk)
    client.expect(BasicConsumeOk)
    assert delivered(client, 1) == [b"x"]


def test_consumer_cancelled_before_consume_ok_could_leave_gets_nothing(slow_disk_door):
    client = slow_disk_door.client()
    client.call(QueueDeclare(queue="q"), QueueDeclareOk)
    client.publish("q", b"x")
    client.send_method(QueueDeclare(queue="durable", durable=True))
    client.send_method(BasicConsume(queue="q", consumer_tag="t"))
    client.send_method(BasicCancel(consumer_tag="t"))
    client.expect_silence()

    slow_disk_door.committer.finish()

    for answer in (QueueDeclareOk, BasicConsumeOk, BasicCancelOk):
        client.expect(answer)
    client.expect_silence()


def test_tag_in_use_on_the_channel_closes_the_connection(consumer):
    consumer.call(BasicConsume(queue="q", consumer_tag="t"), BasicConsumeOk)

    refused(
        consumer, BasicConsume(queue="q", consumer_tag="t"), 530,
        "NOT_ALLOWED - attempt to reuse consumer tag 't'", ConnectionClose,
    )


def test_tag_is_free_again_after_cancel(consumer):
    consumer.call(BasicConsume(queue="q", consumer_tag="t"), BasicConsumeOk)
    consumer.call(BasicCancel(consumer_tag="t"), BasicCancelOk)

    consumer.call(BasicConsume(queue="q", consumer_tag="t"), BasicConsumeOk)


def test_same_tag_on_another_channel_is_fine(consumer):
    consumer.call(ChannelOpen(), ChannelOpenOk, channel=2)
    consumer.call(BasicConsume(queue="q", consumer_tag="t"), BasicConsumeOk)

    consumer.call(BasicConsume(queue="q", consumer_tag="t"), BasicConsumeOk, channel=2)


@pytest.mark.parametrize("exclusive", [(True, False), (False, True), (True, True)])
def test_exclusive_consumer_is_alone(consumer, exclusive):
    consumer.call(BasicConsume(queue="q", exclusive=exclusive[0]), BasicConsumeOk)

    refused(
        consumer, BasicConsume(queue="q", exclusive=exclusive[1]), 403,
        "ACCESS_REFUSED - queue 'q' in vhost '/' in exclusive use")


def test_missing_queue_is_not_found(consumer):
    refused(consumer, BasicConsume(queue="nope"), 404, "NOT_FOUND - no queue 'nope' in vhost '/'")


def test_consume_without_a_declared_queue_is_not_found(client):
    refused(client, BasicConsume(), 404, "NOT_FOUND - no previously declared queue")


@pytest.mark.parametrize("method", [BasicConsume(queue="q"), BasicGet(queue="q")])
def test_taking_messages_needs_the_right_to_read(door, method):
    door.broker.users.set_user("bob", "secret")
    door.broker.users.set_permission("bob", "/", ".*", ".*", "^bob")
    bob = door.client(username="bob", password="secret")
    bob.call(QueueDeclare(queue="q"), QueueDeclareOk)

    refused(bob, method, 403, "ACCESS_REFUSED - read access to queue 'q' in vhost '/' refused for user 'bob'")


def test_consumers_per_channel_are_limited(tmp_path):
    with Door(tmp_path, max_consumers_per_channel=2) as door:
        client = door.client()
        client.call(QueueDeclare(queue="q"), QueueDeclareOk)
        for _ in range(2):
            client.call(BasicConsume(queue="q"), BasicConsumeOk)

        refused(client, BasicConsume(queue="q"), 506, "RESOURCE_ERROR - Max 2 consumers per channel reached")


@pytest.mark.parametrize(("arguments", "text"), [
    (
        {"x-priority": "high"},
        "invalid arg 'x-priority' for queue 'q' in vhost '/': \"expected integer, got longstr\"",
    ),
    (
        {"x-cancel-on-ha-failover": 1},
        "invalid arg 'x-cancel-on-ha-failover' for queue 'q' in vhost '/': {unacceptable_type,signedint}",
    ),
])
def test_malformed_consumer_argument_is_refused(consumer, arguments, text):
    refused(consumer, BasicConsume(queue="q", arguments=arguments), 406, f"PRECONDITION_FAILED - {text}")


def test_consumer_of_higher_priority_is_served_first(consumer):
    consumer.call(BasicConsume(queue="q", consumer_tag="low"), BasicConsumeOk)
    consumer.call(
        BasicConsume(queue="q", consumer_tag="high", arguments={"x-priority": 2**40}), BasicConsumeOk
    )

    for _ in range(3):
        consumer.publish("q")

    assert [consumer.expect_message(BasicDeliver)[0].consumer_tag for _ in range(3)] == ["high"] * 3


# cancel

def test_cancelled_consumer_gets_no_more(consumer):
    consumer.call(BasicConsume(queue="q", consumer_tag="t"), BasicConsumeOk)

    assert consumer.call(BasicCancel(consumer_tag="t"), BasicCancelOk).consumer_tag == "t"

    consumer.publish("q", b"x")
    assert consumer.call(QueueDeclare(queue="q"), QueueDeclareOk).message_count == 1


def test_unacked_messages_stay_with_the_channel_after_cancel(consumer):
    consumer.call(BasicConsume(queue="q", consumer_tag="t"), BasicConsumeOk)
    consumer.publish("q", b"x")
    delivered(consumer, 1)
    consumer.call(BasicCancel(consumer_tag="t"), BasicCancelOk)

    consumer.send_method(BasicNack(delivery_tag=1, requeue=True))

    assert got(consumer)[1] == b"x"


def test_cancel_of_an_unknown_tag_is_answered(client):
    assert client.call(BasicCancel(consumer_tag="nope"), BasicCancelOk).consumer_tag == "nope"


def test_cancel_without_wait_is_not_answered(consumer):
    consumer.call(BasicConsume(queue="q", consumer_tag="t"), BasicConsumeOk)

    consumer.send_method(BasicCancel(consumer_tag="t", no_wait=True))

    assert consumer.call(QueueDeclare(queue="q"), QueueDeclareOk).consumer_count == 0


# qos

def test_prefetch_count_limits_each_new_consumer(consumer):
    consumer.call(BasicQos(prefetch_count=1), BasicQosOk)
    consumer.call(BasicConsume(queue="q"), BasicConsumeOk)
    consumer.call(BasicConsume(queue="q"), BasicConsumeOk)
    for body in (b"1", b"2", b"3"):
        consumer.publish("q", body)

    assert delivered(consumer, 2) == [b"1", b"2"]
    consumer.expect_silence()
    consumer.send_method(BasicAck(delivery_tag=1))
    assert delivered(consumer, 1) == [b"3"]


def test_prefetch_count_does_not_change_consumers_there_are(consumer):
    consumer.call(BasicConsume(queue="q"), BasicConsumeOk)
    consumer.call(BasicQos(prefetch_count=1), BasicQosOk)

    for _ in range(3):
        consumer.publish("q")

    delivered(consumer, 3)


def test_global_prefetch_count_is_shared_by_the_channel(consumer):
    consumer.call(BasicConsume(queue="q"), BasicConsumeOk)
    consumer.call(BasicConsume(queue="q"), BasicConsumeOk)
    consumer.call(BasicQos(prefetch_count=2, global_=True), BasicQosOk)
    for _ in range(4):
        consumer.publish("q")

    delivered(consumer, 2)
    consumer.expect_silence()
    consumer.send_method(BasicAck(delivery_tag=2, multiple=True))
    delivered(consumer, 2)


def test_larger_global_prefetch_count_lets_deliveries_go_on(consumer):
    consumer.call(BasicQos(prefetch_count=1, global_=True), BasicQosOk)
    consumer.call(BasicConsume(queue="q"), BasicConsumeOk)
    for _ in range(3):
        consumer.publish("q")
    delivered(consumer, 1)

    consumer.call(BasicQos(prefetch_count=3, global_=True), BasicQosOk)

    delivered(consumer, 2)


def test_default_prefetch_applies_without_qos(tmp_path):
    with Door(tmp_path, default_consumer_prefetch=2) as door:
        client = door.client()
        client.call(QueueDeclare(queue="q"), QueueDeclareOk)
        client.call(BasicConsume(queue="q"), BasicConsumeOk)
        for _ in range(3):
            client.publish("q")

        delivered(client, 2)
        client.expect_silence()


def test_prefetch_size_is_not_implemented(client):
    refused(client, BasicQos(prefetch_size=1), 540, "NOT_IMPLEMENTED - prefetch_size!=0 (1)", ConnectionClose)


# flow

def test_flow_is_answered_when_it_is_on_and_off_is_not_implemented_as_in_rabbitmq(client):
    assert client.call(ChannelFlow(active=True), ChannelFlowOk).active is True

    refused(client, ChannelFlow(active=False), 540, "NOT_IMPLEMENTED - active=false", ConnectionClose)


# get

def test_get_takes_the_next_message(consumer):
    consumer.publish("q", b"one")
    consumer.publish("q", b"two")

    method, body = got(consumer)

    assert body == b"one"
    assert (
        method.delivery_tag, method.redelivered, method.exchange, method.routing_key, method.message_count
    ) == (1, False, "", "q", 1)


def test_get_from_an_empty_queue(consumer):
    consumer.call(BasicGet(queue="q"), BasicGetEmpty)


def test_get_that_needs_no_ack_leaves_nothing_to_settle(consumer):
    consumer.publish("q")
    got(consumer, no_ack=True)

    refused(consumer, BasicAck(delivery_tag=1), 406, "PRECONDITION_FAILED - unknown delivery tag 1")


def test_large_message_is_got_in_frames_of_the_agreed_size(door):
    client = door.client(frame_max=4096)
    client.call(QueueDeclare(queue="q"), QueueDeclareOk)
    body = bytes(range(256)) * 100
    client.publish("q", body, frame_max=4096)

    assert got(client)[1] == body


@pytest.mark.parametrize(("queue", "text"), [
    ("nope", "no queue 'nope' in vhost '/'"), ("", "no previously declared queue")
])
def test_get_from_a_missing_queue_is_not_found(client, queue, text):
    refused(client, BasicGet(queue=queue), 404, f"NOT_FOUND - {text}")


@pytest.fixture
def behind_an_answer(slow_disk_door):
    """A client that consumes q and has an answer to wait for; what it sends comes behind that."""
    client = slow_disk_door.client(channels=(1, 2))
    client.call(QueueDeclare(queue="q"), QueueDeclareOk)
    client.call(QueueDeclare(queue="got"), QueueDeclareOk)
    client.call(BasicConsume(queue="q"), BasicConsumeOk)
    client.publish("got", b"got")
    client.send_method(QueueDeclare(queue="durable", durable=True))
    client.expect_silence()
    return client


def test_get_takes_its_message_when_it_is_answered(behind_an_answer, slow_disk_door):
    """Its tag comes behind those of deliveries that have left before: an ack with ``multiple`` is of nothing
    that the client has not seen. On 7b959f01 the delivery has tag 2, and get-ok comes later with 1.
    """
    client = behind_an_answer
    client.send_method(BasicGet(queue="got"))
    client.expect_silence()
    slow_disk_door.client().publish("q", b"delivered")
    delivery = client.expect_message(BasicDeliver)
    client.send_method(BasicAck(delivery_tag=delivery[0].delivery_tag, multiple=True))

    slow_disk_door.committer.finish()

    client.expect(QueueDeclareOk)
    answer = client.expect_message(BasicGetOk)
    assert [(method.delivery_tag, body) for method, _, body in (delivery, answer)] == [
        (1, b"delivered"), (2, b"got")]
    client.call(QueueDeclare(queue="got", passive=True), QueueDeclareOk, channel=2)
    assert slow_disk_door.queue("got").unacked_count == 1


def test_get_that_is_refused_in_its_turn_closes_its_channel_alone(behind_an_answer, slow_disk_door):
    client = behind_an_answer
    client.send_method(BasicGet(queue="missing"))
    client.expect_silence()

    slow_disk_door.committer.finish()

    client.expect(QueueDeclareOk)
    client.expect_error(
        ChannelClose, 404, "NOT_FOUND - no queue 'missing' in vhost '/'", blamed=BasicGet)
    client.call(QueueDeclare(queue="got", passive=True), QueueDeclareOk, channel=2)


def test_get_whose_channel_ends_before_its_turn_takes_nothing(behind_an_answer, slow_disk_door):
    """The rest of its connection is read on."""
    client = behind_an_answer
    client.send_method(BasicGet(queue="got", no_ack=True))
    client.expect_silence()
    connection = slow_disk_door.connection()
    connection.fail_channel(connection.channels[1], PreconditionFailed("enough"))

    slow_disk_door.committer.finish()

    client.expect(QueueDeclareOk)
    client.expect_error(ChannelClose, 406, "PRECONDITION_FAILED - enough")
    passive = QueueDeclare(queue="got", passive=True)
    assert client.call(passive, QueueDeclareOk, channel=2).message_count == 1


def test_messages_got_do_not_count_against_the_global_prefetch(consumer):
    consumer.call(BasicQos(prefetch_count=1, global_=True), BasicQosOk)
    for body in (b"1", b"2"):
        consumer.publish("q", body)
    got(consumer)

    consumer.call(BasicConsume(queue="q"), BasicConsumeOk)

    assert delivered(consumer, 1) == [b"2"]


# recover

@pytest.mark.parametrize("answered", [True, False])
def test_recover_puts_everything_unacked_back(consumer, answered):
    for body in (b"1", b"2"):
        consumer.publish("q", body)
        got(consumer)

    if answered:
        consumer.call(BasicRecover(requeue=True), BasicRecoverOk)
    else:
        consumer.send_method(BasicRecoverAsync(requeue=True))

    method, body = got(consumer)
    assert (method.redelivered, method.delivery_tag, body) == (True, 3, b"1")


@pytest.mark.parametrize("kind, waits", [("failed", False), ("returned", True)])
def test_recover_returns_and_the_end_of_a_channel_fails_for_the_back_off(client, kind, waits):
    """As RabbitMQ: a message whose consumer crashes on it waits before the next one gets it."""
    def ready():
        passive = QueueDeclare(queue="back-off", passive=True)
        return client.call(passive, QueueDeclareOk, channel=2).message_count

    client.call(ChannelOpen(), ChannelOpenOk, channel=2)
    arguments = {"x-delayed-retry-type": kind, "x-delayed-retry-min": 60_000}
    client.call(QueueDeclare(queue="back-off", arguments=arguments), QueueDeclareOk)
    client.publish("back-off", b"1")
    client.send_method(BasicGet(queue="back-off"))
    client.expect_message(BasicGetOk)

    client.call(BasicRecover(requeue=True), BasicRecoverOk)
    after_recover = ready()
    if not waits:
        client.send_method(BasicGet(queue="back-off"))
        client.expect_message(BasicGetOk)
        client.call(ChannelClose(), ChannelCloseOk)

    assert (after_recover, ready()) == (0 if waits else 1, 0)


def test_recovered_messages_come_behind_recover_ok(behind_an_answer, slow_disk_door):
    """A client may drop at recover-ok what it holds. On 7b959f01 they come before it, if it has to wait."""
    client = behind_an_answer
    slow_disk_door.client().publish("q", b"again")
    client.expect_message(BasicDeliver)
    client.send_method(BasicRecover(requeue=True))
    client.expect_silence()

    slow_disk_door.committer.finish()

    client.expect(QueueDeclareOk)
    client.expect(BasicRecoverOk)
    method, _, body = client.expect_message(BasicDeliver)
    assert (method.redelivered, method.delivery_tag, body) == (True, 2, b"again")


@pytest.mark.parametrize("transactional", [False, True])
def test_recovered_messages_come_behind_recover_ok_where_consumers_share_a_limit(consumer, transactional):
    """On 7b959f01 they come before it outside transactions: their queue is served once there is room."""
    if transactional:
        consumer.call(TxSelect(), TxSelectOk)
    consumer.call(BasicQos(prefetch_count=1, global_=True), BasicQosOk)
    for _ in range(2):
        consumer.call(BasicConsume(queue="q"), BasicConsumeOk)
    consumer.call(ChannelOpen(), ChannelOpenOk, channel=2)
    consumer.publish("q", b"again", channel=2)
    consumer.expect_message(BasicDeliver)

    consumer.call(BasicRecover(requeue=True), BasicRecoverOk)

    method, _, body = consumer.expect_message(BasicDeliver)
    assert (method.redelivered, method.delivery_tag, body) == (True, 2, b"again")


@pytest.mark.parametrize("transactional, settles, holder, other", [
    (False, True, "q", "r"), (False, False, "r", "q"), (True, False, "r", "q")])
def test_messages_of_other_queues_come_behind_recover_ok_where_consumers_share_a_limit(
        consumer, transactional, settles, holder, other):
    """As what went back, which its client drops at recover-ok. On 75e9fa3a they come before it."""
    consumer.call(QueueDeclare(queue="r"), QueueDeclareOk)
    if transactional:
        consumer.call(TxSelect(), TxSelectOk)
    consumer.call(BasicQos(prefetch_count=1, global_=True), BasicQosOk)
    for queue in "qr":
        consumer.call(BasicConsume(queue=queue), BasicConsumeOk)
    consumer.call(ChannelOpen(), ChannelOpenOk, channel=2)
    consumer.publish(holder, b"first", channel=2)
    consumer.expect_message(BasicDeliver)
    consumer.publish(other, b"second", channel=2)
    ack = method_frame(1, BasicAck(delivery_tag=1)) if settles else b""

    consumer.send(ack + method_frame(1, BasicRecover(requeue=True)))

    consumer.expect(BasicRecoverOk)
    method, _, body = consumer.expect_message(BasicDeliver)
    assert method.delivery_tag == 2 and body in (b"first", b"second")


def test_recovered_tags_are_unknown(consumer):
    consumer.publish("q")
    got(consumer)
    consumer.call(BasicRecover(requeue=True), BasicRecoverOk)

    refused(consumer, BasicAck(delivery_tag=1), 406, "PRECONDITION_FAILED - unknown delivery tag 1")


@pytest.mark.parametrize("method", [BasicRecover(requeue=False), BasicRecoverAsync(requeue=False)])
def test_recover_to_the_same_consumer_is_not_implemented(client, method):
    refused(client, method, 540, "NOT_IMPLEMENTED - requeue=false", ConnectionClose)


# ends

def test_unacked_messages_go_back_when_the_channel_closes(consumer):
    consumer.call(ChannelOpen(), ChannelOpenOk, channel=2)
    consumer.publish("q", b"x")
    got(consumer)

    consumer.call(ChannelClose(), ChannelCloseOk)

    consumer.send_method(BasicGet(queue="q"), 2)
    method, _, body = consumer.expect_message(BasicGetOk, 2)
    assert (method.redelivered, body) == (True, b"x")


def test_unacked_messages_go_back_when_the_connection_is_lost(door):
    lost, other = door.client(), door.client()
    lost.call(QueueDeclare(queue="q"), QueueDeclareOk)
    lost.publish("q", b"x")
    lost.call(BasicConsume(queue="q"), BasicConsumeOk)
    delivered(lost, 1)
    other.call(BasicConsume(queue="q"), BasicConsumeOk)

    lost.close()

    assert delivered(other, 1) == [b"x"]
