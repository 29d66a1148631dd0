"""Large messages that are handed to a consumer instead of being stored: their frames, and which those are."""
import os
import random

import gevent
import pytest

from gomq_py.amqp.server.body_delivery import SLICE_OCTETS, MemoryDelivery
from gomq_py.amqp.wire.methods import (
    BasicAck, BasicCancel, BasicCancelOk, BasicConsume, BasicConsumeOk, BasicDeliver, BasicGet, BasicGetOk,
    ConfirmSelect, ConfirmSelectOk, ExchangeDeclare, ExchangeDeclareOk, QueueBind, QueueBindOk, QueueDeclare,
    QueueDeclareOk, QueueDelete, QueueDeleteOk,
)
from gomq_py.broker.verbs import blocked_publish
from gomq_py.content.properties import Properties
from gomq_py.hub.backpressure import Turn
from gomq_py.hub.scheduler import unix_ms
from tests.support.door import poll_until, publish_frames
from tests.support.lanes import framed
from tests.support.sockets import unblocked_pair

BODY = bytes(range(251)) * 40_000
PERSISTENT = Properties(delivery_mode=2).encode()
LARGE = random.Random(3).randbytes(700_000)


@pytest.fixture
def pair():
    ours, theirs = unblocked_pair()
    with ours, theirs:
        yield ours, theirs


# frames

@pytest.mark.parametrize("step", [1 << 20, 50_001])
@pytest.mark.parametrize("frame_max", [4096, 131072, len(BODY) + 8])
@pytest.mark.parametrize("count", [1, 4088, 4089, 131064 * 2, len(BODY)])
def test_body_is_cut_into_frames_behind_the_lead(pair, count, frame_max, step):
    ours, theirs = pair
    source = MemoryDelivery(None, memoryview(BODY)[:count], b"lead", 7, frame_max)
    whole = b"lead" + framed(BODY[:count], frame_max)
    parts, sent = [], 0
    assert source.left == len(whole)

    while source.left or sum(map(len, parts)) < sent:
        sent += source.send(ours.send, ours.fileno())
        if sum(map(len, parts)) < sent:
            parts.append(theirs.recv(step))

    assert b"".join(parts) == whole and sent == len(whole)


@pytest.mark.parametrize("frame_max", [131072, len(BODY) + 8])
@pytest.mark.parametrize("most", [1, 7, 8, 131_071, 1 << 30])
def test_whatever_the_socket_takes_of_a_call_the_octets_are_the_same(monkeypatch, frame_max, most):
    body = memoryview(BODY)[:300_000] if most < 1000 else memoryview(BODY)
    taken, chance = bytearray(), random.Random(most)

    def write(descriptor, parts):
        octets = b"".join(parts)
        count = chance.randrange(max(1, most // 2), most + 1) * (1 if most > 1000 else 997)
        taken.extend(octets[:count])
        return min(count, len(octets))

    monkeypatch.setattr(os, "writev", write)
    source = MemoryDelivery(None, body, b"lead", 7, frame_max)
    counts = []
    while source.left:
        counts.append(source.send(None, 0))

    assert taken == b"lead" + framed(bytes(body), frame_max)
    assert sum(counts) == len(taken)
    assert all(count >= SLICE_OCTETS for count in counts[:-1])


def test_a_slice_is_a_frame_longer_at_the_most(monkeypatch):
    monkeypatch.setattr(os, "writev", lambda descriptor, parts: sum(map(len, parts)))
    source = MemoryDelivery(None, memoryview(BODY), b"lead", 7, 131072)

    while source.left:
        assert source.send(None, 0) <= SLICE_OCTETS + 2 * 131072


def test_body_is_held_until_it_is_over():
    owner = object()
    source = MemoryDelivery(owner, memoryview(BODY), b"lead", 7, 131072)
    assert source._owner is owner

    source.close()

    assert source._owner is None and source._body is None


# in a broker

@pytest.fixture
def consumer(door):
    """A client that takes the messages of the durable queue q, and acknowledges none."""
    client = door.client()
    client.call(QueueDeclare(queue="q", durable=True), QueueDeclareOk)
    consume(client)
    return client


@pytest.fixture
def publisher(door, consumer):
    client = door.client()
    client.call(ConfirmSelect(), ConfirmSelectOk)
    return client


def consume(client, queue="q", no_ack=True, tag="c"):
    client.call(BasicConsume(queue=queue, no_ack=no_ack, consumer_tag=tag), BasicConsumeOk)


def publish(client, body=LARGE, routing_key="q", **options):
    client.publish(routing_key, body, properties=PERSISTENT, **options)


def delivered(client):
    method, properties, body = client.expect_message(BasicDeliver)
    assert properties == PERSISTENT and not method.redelivered
    return body


def fill(publisher):
    """Publish a message that the consumer's socket does not take as a whole."""
    publish(publisher, BODY)
    publisher.expect(BasicAck)


def waiting(door):
    return [connection for connection in door.hub.clients if Turn.waits_for in connection.stream.waits_for]


def test_large_message_for_a_consumer_that_waits_is_delivered_and_confirmed_without_being_stored(
    door, consumer, publisher
):
    publish(publisher)

    assert delivered(consumer) == LARGE
    assert publisher.expect(BasicAck).delivery_tag == 1
    assert not os.path.exists(door.queue("q").store.folder)
    queue = door.queue("q")
    assert (queue.published, queue.delivered, queue.auto_delivered) == (1, 1, 1)
    assert queue.ready_count == queue.unacked_count == 0


def test_delivery_tags_go_on_over_messages_that_were_stored_and_others(consumer, publisher):
    for body in (b"small", LARGE, b"small", LARGE):
        publish(publisher, body)

    tags = []
    for body in (b"small", LARGE, b"small", LARGE):
        method, _, octets = consumer.expect_message(BasicDeliver)
        assert octets == body
        tags.append(method.delivery_tag)
    assert tags == [1, 2, 3, 4]


@pytest.mark.parametrize("count", [1, 3])
def test_messages_of_one_read_arrive_in_their_order(door, consumer, publisher, count):
    bodies = [b"first"] * count + [LARGE, b"last"]
    publisher.send(*(frames_of(body) for body in bodies))

    assert [delivered(consumer) for _ in bodies] == bodies


def frames_of(body):
    return publish_frames("q", body, properties=PERSISTENT)


def test_large_message_behind_those_that_wait_is_stored(door, publisher):
    door_client = door.client()
    door_client.call(QueueDeclare(queue="backlog", durable=True), QueueDeclareOk)
    publish(publisher, b"first", "backlog")
    publisher.expect(BasicAck)
    publish(publisher, LARGE, "backlog")
    publisher.expect(BasicAck)

    assert door.queue("backlog").ready_count == 2
    consume(door_client, "backlog")
    assert [delivered(door_client), delivered(door_client)] == [b"first", LARGE]


def test_large_message_for_a_consumer_that_acknowledges_is_stored(door, publisher):
    client = door.client()
    client.call(QueueDeclare(queue="acked", durable=True), QueueDeclareOk)
    consume(client, "acked", no_ack=False)

    publish(publisher, LARGE, "acked")

    assert delivered(client) == LARGE
    assert door.queue("acked").unacked_count == 1 and os.path.exists(door.queue("acked").store.folder)


@pytest.mark.parametrize("arguments", [
    {"x-max-length": 5}, {"x-message-ttl": 60_000}, {"x-max-priority": 5}, {"x-single-active-consumer": True},
])
def test_queues_of_other_kinds_deliver_large_messages_as_well(door, publisher, arguments):
    client = door.client()
    client.call(QueueDeclare(queue="other", durable=True, arguments=arguments), QueueDeclareOk)
    consume(client, "other")

    for body in (LARGE, b"small", LARGE):
        publish(publisher, body, "other")

    assert [delivered(client) for _ in range(3)] == [LARGE, b"small", LARGE]


def test_consumers_of_one_queue_take_turns(door, consumer, publisher):
    other = door.client()
    consume(other)

    for number in range(4):
        publish(publisher, bytes((number,)) * 200_000)
        assert delivered((consumer, other)[number % 2])[0] == number


def test_every_queue_of_a_fan_out_has_the_message(door, consumer, publisher):
    other = door.client()
    other.call(ExchangeDeclare(exchange="fan", type="fanout"), ExchangeDeclareOk)
    for name in ("handed", "kept"):
        other.call(QueueDeclare(queue=name, durable=True), QueueDeclareOk)
    for name in ("q", "handed", "kept"):
        other.call(QueueBind(queue=name, exchange="fan"), QueueBindOk)
    consume(other, "handed")

    publish(publisher, LARGE, "", exchange="fan")

    assert delivered(consumer) == LARGE and delivered(other) == LARGE
    publisher.expect(BasicAck)
    publisher.send_method(BasicGet(queue="kept", no_ack=True))
    assert publisher.expect_message(BasicGetOk)[2] == LARGE


def test_body_on_its_way_stays_what_it_is_whatever_is_received_meanwhile(door, consumer, publisher):
    publisher.call(QueueDeclare(queue="kept"), QueueDeclareOk)
    fill(publisher)

    for number in range(5):
        publish(publisher, bytes((number,)) * len(BODY), "kept")
        publisher.expect(BasicAck)

    assert delivered(consumer) == BODY


def test_message_waits_while_its_consumer_reads_the_one_before_and_is_not_stored(
    door, consumer, publisher, monkeypatch
):
    monkeypatch.setattr(door.hub.timers, "start", lambda *_: Never())
    fill(publisher)

    publish(publisher)
    publish(publisher, b"next")
    poll_until(lambda: waiting(door))
    assert door.queue("q").ready_count == 0

    assert [delivered(consumer) for _ in range(2)] == [BODY, LARGE]
    assert publisher.expect(BasicAck).delivery_tag == 2
    assert delivered(consumer) == b"next"
    assert door.queue("q").published == 3 and not waiting(door) and door.hub.bodies.held == 0


class Never:
    """A timer that does not fire."""

    def stop(self):
        """Nothing."""


def test_message_is_stored_where_its_consumer_does_not_read(door, consumer, publisher):
    fill(publisher)

    publish(publisher)
    publish(publisher)

    assert [publisher.expect(BasicAck).delivery_tag for _ in range(2)] == [2, 3]
    assert door.queue("q").ready_count == 2 and not waiting(door)
    assert [delivered(consumer) for _ in range(3)] == [BODY, LARGE, LARGE]


def test_message_waits_no_longer_where_the_clock_is_set_back(door, consumer, publisher, monkeypatch):
    fill(publisher)
    monkeypatch.setattr(blocked_publish, "unix_ms", lambda: unix_ms() - 3_600_000)

    publish(publisher)

    assert publisher.expect(BasicAck).delivery_tag == 2
    assert door.queue("q").ready_count == 1 and not waiting(door)


@pytest.mark.parametrize("how", ["cancel", "close", "delete"])
def test_message_that_waits_for_a_consumer_that_goes_is_stored(door, consumer, publisher, monkeypatch, how):
    monkeypatch.setattr(door.hub.timers, "start", lambda *_: Never())
    other = door.client()
    fill(publisher)
    publish(publisher)
    poll_until(lambda: waiting(door))

    if how == "cancel":
        consumer.send_method(BasicCancel(consumer_tag="c"))
        assert delivered(consumer) == BODY
        consumer.expect(BasicCancelOk)
    elif how == "close":
        consumer.close()
    else:
        other.call(QueueDelete(queue="q"), QueueDeleteOk)
        assert delivered(consumer) == BODY

    assert publisher.expect(BasicAck).delivery_tag == 2
    if how != "delete":
        other.send_method(BasicGet(queue="q", no_ack=True))
        assert other.expect_message(BasicGetOk)[2] == LARGE
    assert not waiting(door) and door.hub.bodies.held == 0


def test_messages_of_each_publisher_arrive_in_its_order_where_several_wait(door, consumer):
    publishers = [door.client() for _ in range(3)]
    bodies = [[bytes((16 * number + count,)) * 300_000 for count in range(8)] for number in range(3)]
    for client, mine in zip(publishers, bodies):
        gevent.spawn(client.send, *(frames_of(body) for body in mine))

    came = [delivered(consumer) for _ in range(24)]

    for mine in bodies:
        assert [body for body in came if body in mine] == mine
