"""Messages whose header fits into no frame of the client that is to have them: a publisher may have
negotiated larger frames, and dead-lettering adds to headers.
"""
import pytest

from gomq_py.amqp.wire.frames import HEADER_OVERHEAD
from gomq_py.amqp.wire.methods import (
    BasicAck, BasicConsume, BasicConsumeOk, BasicDeliver, BasicGet, BasicGetOk, BasicNack, BasicQos,
    BasicQosOk, ChannelClose, ChannelCloseOk, ChannelOpen, ChannelOpenOk, ConfirmSelect, ConfirmSelectOk,
    QueueBind, QueueBindOk, QueueDeclare, QueueDeclareOk,
)
from gomq_py.content.properties import Properties
from tests.support.door import NO_PROPERTIES, poll_until, publish_frames

FRAME_MAX = 4096
LARGE_BODY = bytes(200_000)


def properties_of(octets):
    """Properties of so many octets in wire form."""
    left = octets - len(Properties(headers={"k": ""}).encode())
    return Properties(headers={"k": "v" * left}).encode()


LARGEST = properties_of(FRAME_MAX - HEADER_OVERHEAD)
TOO_LARGE = properties_of(FRAME_MAX - HEADER_OVERHEAD + 1)


def error_of(queue):
    return (
        f"CONTENT_TOO_LARGE - the next message of queue '{queue}' in vhost '/' has a header of 4097 bytes, "
        "larger than the negotiated frame_max of 4096")


@pytest.fixture
def small(door):
    """A client that takes frames of 4096 octets, and two channels of it."""
    return door.client(channels=(1, 2), frame_max=FRAME_MAX)


@pytest.mark.parametrize("body", [b"small", LARGE_BODY], ids=["small", "large"])
@pytest.mark.parametrize("no_ack", [True, False])
@pytest.mark.parametrize("waits", [True, False])
def test_channel_of_a_consumer_ends_before_a_header_that_no_frame_holds_and_others_get_the_message(
    door, client, small, waits, no_ack, body
):
    """Whether the consumer waits for messages, or comes when they are there."""
    client.call(QueueDeclare(queue="q"), QueueDeclareOk)
    frames = (
        publish_frames("q", b"first", properties=LARGEST)
        + publish_frames("q", body, properties=TOO_LARGE) + publish_frames("q", b"last"))
    if not waits:
        client.send(frames)
        poll_until(lambda: door.queue("q").ready_count == 3)
    small.call(BasicConsume(queue="q", no_ack=no_ack), BasicConsumeOk)
    if waits:
        client.send(frames)

    assert small.expect_message(BasicDeliver)[1:] == (LARGEST, b"first")
    small.expect_error(ChannelClose, 311, error_of("q"))
    client.call(BasicConsume(queue="q", no_ack=True), BasicConsumeOk)
    if not no_ack:
        assert client.expect_message(BasicDeliver)[2] == b"first"
    method, properties, given = client.expect_message(BasicDeliver)
    assert (method.redelivered, properties, given) == (False, TOO_LARGE, body)
    assert client.expect_message(BasicDeliver)[2] == b"last"
    small.call(QueueDeclare(queue="other"), QueueDeclareOk, 2)


def test_other_consumers_of_the_queue_go_on_in_the_same_turn(door, client, small):
    client.call(QueueDeclare(queue="q"), QueueDeclareOk)
    other = door.client()
    small.call(BasicConsume(queue="q", no_ack=True), BasicConsumeOk)
    other.call(BasicConsume(queue="q", no_ack=True), BasicConsumeOk)

    client.send(*[publish_frames("q", b"%d" % number, properties=TOO_LARGE) for number in range(100)])

    assert [other.expect_message(BasicDeliver)[2] for _ in range(100)] == [b"%d" % n for n in range(100)]
    small.expect_error(ChannelClose, 311, error_of("q"))


@pytest.mark.parametrize("no_ack", [True, False])
def test_get_leaves_a_message_whose_header_no_frame_holds(door, client, small, no_ack):
    client.call(QueueDeclare(queue="q"), QueueDeclareOk)
    client.publish("q", b"first", properties=LARGEST)
    client.publish("q", b"x", properties=TOO_LARGE)
    poll_until(lambda: door.queue("q").ready_count == 2)
    small.send_method(BasicGet(queue="q", no_ack=True))
    assert small.expect_message(BasicGetOk)[2] == b"first"

    small.send_method(BasicGet(queue="q", no_ack=no_ack))

    small.expect_error(ChannelClose, 311, error_of("q"), blamed=BasicGet)
    client.send_method(BasicGet(queue="q", no_ack=True))
    method, properties, body = client.expect_message(BasicGetOk)
    assert (method.redelivered, properties, body) == (False, TOO_LARGE, b"x")


def offer(client, how):
    """Have the client's channel 1, opened anew, end over the next message of queue q."""
    if how == "get":
        client.send_method(BasicGet(queue="q"))
    else:
        client.call(BasicConsume(queue="q", no_ack=how == "no_ack"), BasicConsumeOk)
    assert client.expect(ChannelClose).reply_code == 311
    client.send_method(ChannelCloseOk())
    client.call(ChannelOpen(), ChannelOpenOk)


@pytest.mark.parametrize("kind", [{}, {"x-queue-type": "quorum"}, {"x-max-priority": 3}])
@pytest.mark.parametrize("how", ["get", "ack", "no_ack"])
def test_offers_in_vain_count_where_deliveries_are_limited_and_then_the_message_is_a_dead_letter(
    client, small, how, kind,
):
    """Else the only consumer of a queue would end over it again and again."""
    client.call(QueueDeclare(queue="dead"), QueueDeclareOk)
    arguments = {"x-delivery-limit": 2, "x-dead-letter-exchange": "", "x-dead-letter-routing-key": "dead"}
    client.call(QueueDeclare(queue="q", durable=True, arguments={**kind, **arguments}), QueueDeclareOk)
    client.send(publish_frames("q", b"x", properties=TOO_LARGE) + publish_frames("q", b"last"))
    client.call(BasicConsume(queue="dead", no_ack=True), BasicConsumeOk)

    for _ in range(3):
        offer(small, how)

    assert client.expect_message(BasicDeliver)[2] == b"x"
    small.call(BasicConsume(queue="q", no_ack=True), BasicConsumeOk)
    assert small.expect_message(BasicDeliver)[2] == b"last"


def test_channel_with_many_consumers_is_one_offer_in_vain(door, client, small):
    client.call(QueueDeclare(queue="q", durable=True, arguments={"x-delivery-limit": 3}), QueueDeclareOk)
    for _ in range(10):
        small.call(BasicConsume(queue="q"), BasicConsumeOk)

    client.publish("q", b"x", properties=TOO_LARGE)

    assert small.expect(ChannelClose).reply_code == 311
    client.call(BasicConsume(queue="q"), BasicConsumeOk)
    _, properties, body = client.expect_message(BasicDeliver)
    assert (Properties.decode(properties).headers["x-delivery-count"], body) == (1, b"x")


def test_offers_in_vain_keep_the_order_of_what_others_get(door, client, small):
    client.call(
        QueueDeclare(queue="q", durable=True, arguments={"x-delivery-limit": 20}), QueueDeclareOk)
    client.send(publish_frames("q", b"x", properties=TOO_LARGE) + publish_frames("q", b"last"))
    poll_until(lambda: door.queue("q").ready_count == 2)
    for how in ("get", "ack", "no_ack"):
        offer(small, how)
    assert (door.queue("q").ready_count, door.queue("q").unacked_count) == (2, 0)

    client.call(BasicConsume(queue="q", no_ack=True), BasicConsumeOk)

    got = [client.expect_message(BasicDeliver) for _ in range(2)]
    assert [(method.redelivered, body) for method, _, body in got] == [(True, b"x"), (False, b"last")]
    assert Properties.decode(got[0][1]).headers["x-delivery-count"] == 3


def test_channel_of_a_streams_consumer_ends_before_a_header_that_no_frame_holds(client, small):
    client.call(
        QueueDeclare(queue="s", durable=True, arguments={"x-queue-type": "stream"}), QueueDeclareOk)
    client.publish("s", b"first", properties=LARGEST)
    client.publish("s", b"x", properties=TOO_LARGE)
    for one in (client, small):
        one.call(BasicQos(prefetch_count=10), BasicQosOk)
        one.call(BasicConsume(queue="s", arguments={"x-stream-offset": "first"}), BasicConsumeOk)

    assert small.expect_message(BasicDeliver)[2] == b"first"
    small.expect_error(ChannelClose, 311, error_of("s"))
    assert [client.expect_message(BasicDeliver)[2] for _ in range(2)] == [b"first", b"x"]


def test_what_stays_is_not_told_as_delivered_where_the_vhost_is_traced(door, client, small):
    client.call(QueueDeclare(queue="q"), QueueDeclareOk)
    client.call(QueueDeclare(queue="trace"), QueueDeclareOk)
    client.call(
        QueueBind(queue="trace", exchange="amq.rabbitmq.trace", routing_key="deliver.#"), QueueBindOk)
    door.vhost.set_tracing(True)
    client.publish("q", b"first", properties=LARGEST)
    client.publish("q", b"x", properties=TOO_LARGE)

    small.call(BasicConsume(queue="q", no_ack=True), BasicConsumeOk)

    assert small.expect_message(BasicDeliver)[2] == b"first"
    small.expect_error(ChannelClose, 311, error_of("q"))
    assert (door.queue("trace").ready_count, door.queue("q").ready_count) == (1, 1)


@pytest.mark.parametrize("confirms", [True, False])
def test_direct_reply_whose_header_no_frame_holds_is_refused_and_the_channel_goes_on(
    client, small, caplog, confirms,
):
    """Whoever knows the address may answer, and must not end the channel of who asked."""
    client.call(QueueDeclare(queue="requests"), QueueDeclareOk)
    client.call(BasicConsume(queue="requests", no_ack=True), BasicConsumeOk)
    small.call(BasicConsume(queue="amq.rabbitmq.reply-to", no_ack=True), BasicConsumeOk)
    small.publish("requests", properties=Properties(reply_to="amq.rabbitmq.reply-to").encode())
    address = Properties.decode(client.expect_message(BasicDeliver)[1]).reply_to
    if confirms:
        client.call(ConfirmSelect(), ConfirmSelectOk)

    client.send(*[
        publish_frames(address, body, properties=properties)
        for body, properties in ((b"x", TOO_LARGE), (b"y", TOO_LARGE), (b"answer", LARGEST))])

    assert small.expect_message(BasicDeliver)[1:] == (LARGEST, b"answer")
    small.call(QueueDeclare(), QueueDeclareOk)
    if confirms:
        answers = [client.next_method() for _ in range(3)]
        assert [(type(answer), answer.delivery_tag) for answer in answers] == [
            (BasicNack, 1), (BasicNack, 2), (BasicAck, 3)]
    lines = [record.getMessage() for record in caplog.records if "direct reply" in record.getMessage()]
    assert len(lines) == 1
    assert "its header of 4097 bytes is larger than the negotiated frame_max of 4096" in lines[0]


def test_client_with_the_largest_frames_gets_what_dead_lettering_has_made_larger(client):
    """As from RabbitMQ: nobody would get it else."""
    client.call(QueueDeclare(queue="dead"), QueueDeclareOk)
    client.call(
        QueueDeclare(queue="q", arguments={
            "x-dead-letter-exchange": "", "x-dead-letter-routing-key": "dead", "x-message-ttl": 0}),
        QueueDeclareOk)
    client.call(BasicConsume(queue="dead", no_ack=True), BasicConsumeOk)

    client.publish("q", b"x", properties=properties_of(131072 - HEADER_OVERHEAD))
    client.publish("dead", b"y", properties=NO_PROPERTIES)

    got = {client.expect_message(BasicDeliver)[2] for _ in range(2)}
    assert got == {b"x", b"y"}
