"""Deliveries of messages that nobody acknowledges: who gets them, and their order beside all else."""
from random import Random

import gevent
import pytest

from gomq_py.amqp.wire.frames import method_frame
from gomq_py.amqp.wire.methods import (
    BasicAck, BasicCancel, BasicCancelOk, BasicConsume, BasicConsumeOk, BasicDeliver, BasicGet, BasicGetEmpty,
    BasicGetOk, BasicQos, BasicQosOk, BasicReject, ConfirmSelect, ConfirmSelectOk, ExchangeDeclare,
    ExchangeDeclareOk, QueueBind, QueueBindOk, QueueDeclare, QueueDeclareOk, QueueDelete, QueueDeleteOk,
)
from gomq_py.content.properties import Properties
from tests.support.door import NO_PROPERTIES, poll_until, publish_frames

PERSISTENT = Properties(delivery_mode=2).encode()
TRANSIENT = Properties(delivery_mode=1, content_type="text/plain", headers={"k": [1, "two"]}).encode()
# the socket pair of a client takes less at a time
MANY = 40_000
NAMES = ("q1", "q2", "q3", "q4")
EACH = 400


@pytest.fixture
def consumer(door):
    """A client that takes the messages of the durable queue q, and acknowledges none."""
    client = door.client()
    declare(client, "q")
    consume(client, "q")
    return client


@pytest.fixture
def publisher(door, consumer):
    return door.client()


def declare(client, queue, **options):
    client.call(QueueDeclare(queue=queue, **({"durable": True} | options)), QueueDeclareOk)


def consume(client, queue, no_ack=True, **options):
    client.call(
        BasicConsume(queue=queue, no_ack=no_ack, consumer_tag=f"on {queue}", **options), BasicConsumeOk)


def frames_of(*bodies, queue="q", properties=NO_PROPERTIES, **options):
    return b"".join(publish_frames(queue, body, properties=properties, **options) for body in bodies)


def delivered(client, count=1):
    return [client.expect_message(BasicDeliver)[2] for _ in range(count)]


def numbered(count, start=0):
    return [b"%d" % number for number in range(start, start + count)]


# who gets them

def test_consumers_that_are_several_have_their_shares(door, consumer, publisher):
    other = door.client()
    consume(other, "q")

    publisher.send(frames_of(*numbered(10)))

    assert sorted(delivered(consumer, 5) + delivered(other, 5)) == numbered(10)


def test_consumer_that_is_alone_again_has_all(door, consumer, publisher):
    other = door.client()
    consume(other, "q")
    other.call(BasicCancel(consumer_tag="on q"), BasicCancelOk)

    publisher.send(frames_of(*numbered(10)))

    assert delivered(consumer, 10) == numbered(10)


def test_active_consumer_has_all_where_one_at_a_time_is_served(door, publisher):
    first, second = door.client(), door.client()
    declare(first, "single", arguments={"x-single-active-consumer": True})
    for client in (first, second):
        consume(client, "single")

    publisher.send(frames_of(*numbered(3), queue="single"))
    assert delivered(first, 3) == numbered(3)

    first.call(BasicCancel(consumer_tag="on single"), BasicCancelOk)
    publisher.send(frames_of(*numbered(3), queue="single"))
    assert delivered(second, 3) == numbered(3)


def test_consumer_of_the_highest_priority_has_all(door, consumer, publisher):
    other = door.client()
    consume(other, "q", arguments={"x-priority": 5})

    publisher.send(frames_of(*numbered(3)))

    assert delivered(other, 3) == numbered(3)
    consumer.expect_silence()


@pytest.mark.parametrize("arguments", [
    {"x-max-length": 2}, {"x-message-ttl": 60_000}, {"x-max-priority": 5}, {"x-expires": 60_000},
])
def test_queues_with_limits_deliver_as_well(door, publisher, arguments):
    client = door.client()
    declare(client, "other", arguments=arguments)
    consume(client, "other")

    publisher.send(frames_of(b"a", queue="other"))

    assert delivered(client) == [b"a"]


def test_transient_message_is_confirmed_and_delivered(door, consumer, publisher):
    publisher.call(ConfirmSelect(), ConfirmSelectOk)

    publisher.send(frames_of(*numbered(3)))

    while publisher.expect(BasicAck).delivery_tag < 3:  # the first may have its own: it waits for files
        pass
    assert delivered(consumer, 3) == numbered(3)


# order

def test_message_behind_those_that_wait_comes_behind_them(door, publisher):
    client = door.client()
    declare(client, "backlog")
    publisher.send(frames_of(*numbered(5), queue="backlog"))
    publisher.call(BasicGet(queue="q"), BasicGetEmpty)  # all of that is done

    client.send_method(BasicConsume(queue="backlog", no_ack=True))
    publisher.send(frames_of(*numbered(5, 5), queue="backlog"))

    client.expect(BasicConsumeOk)
    assert delivered(client, 10) == numbered(10)


def test_persistent_messages_and_others_come_in_order(consumer, publisher):
    bodies = numbered(200)
    chance = Random(7)

    publisher.send(*(frames_of(
        body, properties=chance.choice((NO_PROPERTIES, TRANSIENT, PERSISTENT)),
        mandatory=chance.random() < 0.3
    ) for body in bodies))

    assert delivered(consumer, 200) == bodies


def test_message_that_was_put_back_comes_first(door, publisher):
    client = door.client()
    declare(client, "back")
    publisher.send(frames_of(b"first", queue="back"))
    client.send_method(BasicConsume(queue="back", no_ack=False, consumer_tag="acks"))
    client.expect(BasicConsumeOk)
    tag = client.expect_message(BasicDeliver)[0].delivery_tag
    other = door.client()
    client.call(BasicCancel(consumer_tag="acks"), BasicCancelOk)
    consume(other, "back")

    client.send(
        method_frame(1, BasicReject(delivery_tag=tag, requeue=True)), frames_of(b"second", queue="back"))

    assert delivered(other, 2) == [b"first", b"second"]


def test_client_that_stops_consuming_has_what_came_before_its_answer(door, consumer):
    consumer.send(
        frames_of(*numbered(3)), method_frame(1, BasicCancel(consumer_tag="on q")), frames_of(b"left"))

    assert delivered(consumer, 3) == numbered(3)
    consumer.expect(BasicCancelOk)
    consumer.send_method(BasicGet(queue="q", no_ack=True))
    assert consumer.expect_message(BasicGetOk)[2] == b"left"


def test_client_that_asks_meanwhile_has_its_answer_behind_what_came_before(consumer):
    consumer.send(frames_of(*numbered(3)), method_frame(1, BasicGet(queue="q")), frames_of(b"next"))

    assert delivered(consumer, 3) == numbered(3)
    consumer.expect(BasicGetEmpty)
    assert delivered(consumer) == [b"next"]


def test_consumer_has_its_messages_though_the_queue_is_deleted_behind_them(door, consumer, publisher):
    publisher.send(frames_of(*numbered(3)), method_frame(1, QueueDelete(queue="q")))

    publisher.expect(QueueDeleteOk)
    assert delivered(consumer, 3) == numbered(3)
    consumer.expect(BasicCancel)


def test_error_behind_messages_leaves_them(door, consumer, publisher):
    publisher.send(frames_of(*numbered(3)), b"\x01\x00\x01\x00\x00\x00\x00x")  # no frame end

    assert delivered(consumer, 3) == numbered(3)


# several queues, and sockets that are full

@pytest.mark.parametrize("fan_out", [False, True])
def test_clients_of_several_queues_have_theirs_in_order(door, publisher, fan_out):
    clients = {name: door.client() for name in ("one", "two", "three")}
    publisher.call(ExchangeDeclare(exchange="fan", type="fanout"), ExchangeDeclareOk)
    for name, client in clients.items():
        declare(client, name)
        client.call(QueueBind(queue=name, exchange="fan"), QueueBindOk)
        consume(client, name)

    if fan_out:
        publisher.send(frames_of(*numbered(100), queue="", exchange="fan"))
    else:
        publisher.send(*(frames_of(body, queue=name) for body in numbered(100) for name in clients))

    for client in clients.values():
        assert delivered(client, 100) == numbered(100)


def test_readers_of_a_stream_have_its_messages_and_others_theirs(door, consumer, publisher):
    reader = door.client()
    declare(reader, "stream", arguments={"x-queue-type": "stream"})
    reader.call(BasicQos(prefetch_count=100), BasicQosOk)
    consume(reader, "stream", no_ack=False)
    publisher.send(frames_of(b"its files are there", queue="stream"))
    assert delivered(reader) == [b"its files are there"]

    publisher.send(*(frames_of(body, queue=queue) for body in numbered(10) for queue in ("stream", "q")))

    assert delivered(consumer, 10) == delivered(reader, 10) == numbered(10)


@pytest.mark.parametrize("size", [1, 3000])
def test_what_a_client_does_not_read_is_kept_and_comes_in_order(door, consumer, publisher, size):
    count = MANY if size == 1 else 1000
    bodies = [b"%d:" % number + bytes(size) for number in range(count)]
    publisher.call(ConfirmSelect(), ConfirmSelectOk)

    publisher.send(*(frames_of(body) for body in bodies))
    confirmed = 0
    while confirmed < count:
        confirmed = publisher.expect(BasicAck).delivery_tag

    assert door.queue("q").ready_count > 0
    assert delivered(consumer, count) == bodies


@pytest.mark.parametrize("seed", range(8))
def test_each_queue_gives_what_it_was_given_whatever_comes_between(door, publisher, seed):
    """Publishers that send parts of any length, some for all queues; consumers that stop now and then."""
    chance = Random(seed)
    owner = door.client()
    owner.call(ExchangeDeclare(exchange="fan", type="fanout"), ExchangeDeclareOk)
    for name in NAMES:
        declare(owner, name, durable=chance.random() < 0.5)
        owner.call(QueueBind(queue=name, exchange="fan"), QueueBindOk)
    given, came = {}, {name: [] for name in NAMES}
    for name in (*NAMES, "fan"):
        given[name] = [b"%s %d" % (name.encode(), number) for number in range(EACH)]
        gevent.spawn(send_in_parts, door.client(), name, given[name], Random(chance.random()))
    for name in NAMES:
        gevent.spawn(collect, door.client(), name, came[name], Random(chance.random()))

    poll_until(lambda: all(len(came[name]) >= 2 * EACH for name in NAMES))

    for name in NAMES:
        assert [body for body in came[name] if not body.startswith(b"fan")] == given[name]
        assert [body for body in came[name] if body.startswith(b"fan")] == given["fan"]


def send_in_parts(client, name, bodies, chance):
    """Publish to the queue or the exchange of this name."""
    where = {"queue": "", "exchange": name} if name == "fan" else {"queue": name}
    octets = b"".join(
        frames_of(
            body, properties=chance.choice((NO_PROPERTIES, NO_PROPERTIES, PERSISTENT)),
            mandatory=chance.random() < 0.05, **where)
        for body in bodies)
    while octets:
        part = min(chance.choice((1, 40, 700, 20_000)), len(octets))
        client.send(octets[:part])
        octets = octets[part:]
        gevent.sleep(0)


def collect(client, name, came, chance):
    """Consume 2 * EACH messages. The client stops now and then, and has what was on its way until then."""
    while len(came) < 2 * EACH:
        consume(client, name)
        most = min(len(came) + chance.choice((5, 50, 300)), 2 * EACH)
        while len(came) < most:
            came += delivered(client)
        client.send_method(BasicCancel(consumer_tag=f"on {name}"))
        method = client.next_method()
        while isinstance(method, BasicDeliver):
            came.append(client.content()[1])
            method = client.next_method()
        assert isinstance(method, BasicCancelOk)


def test_dead_letters_come_once_and_in_order_beside_what_is_published_in_the_same_read(
    door, consumer, publisher
):
    """Of a queue whose messages are too old at once, and of one that is full. What the full one keeps is its
    first message.
    """
    dead = {"x-dead-letter-exchange": "", "x-dead-letter-routing-key": "q"}
    declare(publisher, "old", arguments={"x-message-ttl": 0, **dead})
    declare(publisher, "full", arguments={"x-max-length": 1, "x-overflow": "reject-publish-dlx", **dead})

    publisher.send(*(
        frames_of(b"%s %d" % (queue.encode(), number), queue=queue)
        for number in range(100) for queue in ("q", "old", "full")))

    came = [body.split() for body in delivered(consumer, 299)]
    for queue in (b"q", b"old", b"full"):
        numbers = [int(number) for name, number in came if name == queue]
        assert numbers == list(range(queue == b"full", 100))
    consumer.expect_silence()
