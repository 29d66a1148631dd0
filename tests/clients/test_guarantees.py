"""Guarantees: what a broker promises its users, each promise one test named after it, seen through pika.

They are those of GoMQ's guarantee tests, made strict: an order is checked message by message, a restart is a
real one (and a kill where nothing less proves it), and nothing counts as proof because a connection happened
to die.
"""
import pika
import pytest
from pika import exceptions

from tests.support.waiting import in_time, wait_until

PERSISTENT = pika.BasicProperties(delivery_mode=2)


@pytest.fixture
def connect(broker_url):
    """Opens blocking connections to the shared broker, and closes them after the test."""
    connections = []

    def open_(url=broker_url):
        connections.append(pika.BlockingConnection(pika.URLParameters(url)))
        return connections[-1]
    yield open_
    for connection in connections:
        if connection.is_open:
            connection.close()


@pytest.fixture
def channel(connect):
    """A channel of a connection of its own."""
    return connect().channel()


def declare(channel, name="", **arguments):
    """Declare a queue: exclusive, or durable when it has a name.

    Returns its name. Underscores in argument names are hyphens.
    """
    arguments = {key.replace("_", "-"): value for key, value in arguments.items()}
    return (
        channel.queue_declare(name, exclusive=not name, durable=bool(name), arguments=arguments).method.queue
    )


def publish(channel, queue, bodies, properties=PERSISTENT, exchange=""):
    """Publish bodies one by one."""
    for body in bodies:
        channel.basic_publish(exchange, queue, str(body).encode(), properties, mandatory=not exchange)


def take(channel, queue):
    """Everything a queue holds, as text, acked."""
    bodies = []
    while (found := channel.basic_get(queue, auto_ack=True))[0] is not None:
        bodies.append(found[2].decode())
    return bodies


def count(channel, queue):
    """Messages ready in a queue."""
    return channel.queue_declare(queue, passive=True).method.message_count


def await_count(channel, queue, number):
    """Wait until a queue holds this many ready messages: timers and dead letters take their time."""
    wait_until(lambda: count(channel, queue) == number, what=f"{number} messages in {queue}")


@pytest.fixture(params=["stopped", "killed"])
def restart(request, own_broker):
    """Runs `before(channel)`, stops or kills the broker,
    starts it again and runs `after(channel)` on the same data.
    """
    def run(before, after):
        connection = pika.BlockingConnection(pika.URLParameters(own_broker.amqp_url))
        before(connection.channel())
        if request.param == "killed":
            own_broker.kill()
            own_broker.start()
        else:
            connection.close()
            own_broker.restart()
        with pika.BlockingConnection(pika.URLParameters(own_broker.amqp_url)) as again:
            after(again.channel())
    return run


def test_message_ordering(channel):
    """1: a thousand messages arrive in the order they were published."""
    queue = declare(channel)
    received = []

    publish(channel, queue, range(1000))
    for method, _, body in channel.consume(queue, inactivity_timeout=in_time(30)):
        received.append(int(body))
        if len(received) == 1000:
            channel.basic_ack(method.delivery_tag, multiple=True)
            break
    channel.cancel()

    assert received == list(range(1000))


def test_publisher_confirms_after_persistence(restart):
    """2: what was confirmed survives a restart, without a declare of the same queue to help it."""
    def before(channel):
        channel.confirm_delivery()
        declare(channel, "jobs")
        publish(channel, "jobs", range(100))

    def after(channel):
        assert take(channel, "jobs") == [str(n) for n in range(100)]

    restart(before, after)


def test_durable_queue_survives_restart(restart):
    """3: durable queue, exchange and binding are there again, and route."""
    def before(channel):
        declare(channel, "jobs")
        channel.exchange_declare("incoming", "topic", durable=True)
        channel.queue_bind("jobs", "incoming", "jobs.#")
        channel.confirm_delivery()
        publish(channel, "jobs", range(50))

    def after(channel):
        assert count(channel, "jobs") == 50
        publish(channel, "jobs.new", ["routed"], exchange="incoming")
        assert take(channel, "jobs")[-1] == "routed"

    restart(before, after)


def test_transient_queue_does_not_survive_restart(own_broker, connect):
    """3, the other way round: a queue that is not durable is gone."""
    channel = connect(own_broker.amqp_url).channel()
    channel.queue_declare("passing")
    channel.connection.close()
    own_broker.restart()

    with pytest.raises(exceptions.ChannelClosedByBroker) as raised:
        connect(own_broker.amqp_url).channel().queue_declare("passing", passive=True)

    assert raised.value.reply_code == 404


def test_ack_deletes_message(restart):
    """4: acked messages do not return after a restart, unacked ones do, redelivered and in their order.

    A request is made after the acks: what the broker answers past has taken effect, even when it is killed
    then (RabbitMQ does not promise that).
    """
    def before(channel):
        declare(channel, "jobs")
        channel.confirm_delivery()
        publish(channel, "jobs", range(10))
        for n in range(10):
            method, _, _ = channel.basic_get("jobs")
            if n % 2:
                channel.basic_ack(method.delivery_tag)
        channel.queue_declare("jobs", passive=True)

    def after(channel):
        found = [channel.basic_get("jobs", auto_ack=True) for _ in range(5)]
        assert [(int(body), method.redelivered) for method, _, body in found] == [
            (n, True) for n in range(0, 10, 2)
        ]
        assert count(channel, "jobs") == 0

    restart(before, after)


def test_nack_requeue(channel):
    """5: a nacked message comes again, with the flag, before those behind it."""
    queue = declare(channel)
    publish(channel, queue, range(3))
    method, _, _ = channel.basic_get(queue)
    assert not method.redelivered

    channel.basic_nack(method.delivery_tag, requeue=True)

    method, _, body = channel.basic_get(queue, auto_ack=True)
    assert (body, method.redelivered) == (b"0", True)
    assert take(channel, queue) == ["1", "2"]


@pytest.mark.parametrize(
    "use",
    [
        lambda channel, queue: channel.queue_declare(queue, passive=True),
        lambda channel, queue: channel.basic_get(queue),
        lambda channel, queue: channel.basic_consume(queue, print),
        lambda channel, queue: channel.queue_delete(queue),
    ],
    ids=["declare", "get", "consume", "delete"],
)
def test_exclusive_queue(connect, channel, name, use):
    """6: a second connection cannot use it while the first lives; afterwards it is gone."""
    channel.queue_declare(name, exclusive=True)

    with pytest.raises(exceptions.ChannelClosedByBroker) as raised:
        use(connect().channel(), name)

    assert raised.value.reply_code == 405
    assert channel.queue_declare(name, passive=True)
    channel.connection.close()
    with pytest.raises(exceptions.ChannelClosedByBroker) as raised:
        connect().channel().queue_declare(name, passive=True)
    assert raised.value.reply_code == 404


def test_max_length_drop_head(channel):
    """7: of too many messages the oldest are dropped."""
    queue = declare(channel, x_max_length=5)

    publish(channel, queue, range(12))

    await_count(channel, queue, 5)
    assert take(channel, queue) == ["7", "8", "9", "10", "11"]


def test_max_length_bytes_drop_head(channel):
    """7, by size: bodies count, and the newest fit."""
    queue = declare(channel, x_max_length_bytes=30)

    publish(channel, queue, [f"{n}{'x' * 9}" for n in range(8)])

    await_count(channel, queue, 3)
    assert [body[0] for body in take(channel, queue)] == ["5", "6", "7"]


def test_max_length_reject_publish(channel):
    """8: of too many messages the excess is refused, and its publisher told."""
    queue = declare(channel, x_max_length=3, x_overflow="reject-publish")
    channel.confirm_delivery()
    refused = []

    for n in range(6):
        try:
            publish(channel, queue, [n])
        except exceptions.NackError:
            refused.append(n)

    assert refused == [3, 4, 5]
    assert take(channel, queue) == ["0", "1", "2"]


def dead_letter_queues(channel, name, **arguments):
    """A queue whose dead letters go to a second one, exclusive both; returns their names."""
    graveyard = declare(channel)
    channel.exchange_declare(name, "fanout", auto_delete=True)
    channel.queue_bind(graveyard, name)
    return declare(channel, x_dead_letter_exchange=name, **arguments), graveyard


def dead_letter(channel, graveyard):
    """The only message of a graveyard, as (body, the newest x-death entry)."""
    await_count(channel, graveyard, 1)
    _, properties, body = channel.basic_get(graveyard, auto_ack=True)
    return body, properties.headers["x-death"][0]


def test_dead_letter_on_reject(channel, name):
    """9: a rejected message goes to the dead letter exchange, which says why."""
    queue, graveyard = dead_letter_queues(channel, name)
    publish(channel, queue, ["bad"])
    method, _, _ = channel.basic_get(queue)

    channel.basic_reject(method.delivery_tag, requeue=False)

    body, death = dead_letter(channel, graveyard)
    assert body == b"bad"
    assert (death["queue"], death["reason"], death["exchange"], death["count"], death["routing-keys"]) == (
        queue, "rejected", "", 1, [queue]
    )


def test_dead_letter_on_overflow(channel, name):
    """10: what a full queue drops goes to the dead letter exchange."""
    queue, graveyard = dead_letter_queues(channel, name, x_max_length=1)

    publish(channel, queue, ["old", "new"])

    body, death = dead_letter(channel, graveyard)
    assert (body, death["reason"]) == (b"old", "maxlen")
    assert take(channel, queue) == ["new"]


def test_message_ttl(channel):
    """11: a message older than its queue allows is not delivered."""
    queue = declare(channel, x_message_ttl=50)
    lasting = declare(channel, x_message_ttl=60000)

    publish(channel, queue, range(3))
    publish(channel, lasting, range(3))

    await_count(channel, queue, 0)
    assert take(channel, queue) == []
    assert take(channel, lasting) == ["0", "1", "2"]


def test_dead_letter_on_ttl(channel, name):
    """12: an expired message goes to the dead letter exchange."""
    queue, graveyard = dead_letter_queues(channel, name, x_message_ttl=30)

    publish(channel, queue, ["late"])

    body, death = dead_letter(channel, graveyard)
    assert (body, death["reason"]) == (b"late", "expired")


def test_per_message_ttl(channel, name):
    """13: a message may bring its own time to live; it loses it when it is dead-lettered,
    so that it does not expire again.
    """
    queue, graveyard = dead_letter_queues(channel, name)

    publish(channel, queue, ["brief"], pika.BasicProperties(expiration="30"))
    await_count(channel, graveyard, 1)
    _, properties, body = channel.basic_get(graveyard, auto_ack=True)

    assert (body, properties.expiration) == (b"brief", None)
    assert properties.headers["x-death"][0]["original-expiration"] == "30"


def test_consumer_priority(channel):
    """14: as long as the consumer of the highest priority takes messages, no other gets any."""
    queue = declare(channel)
    received = []
    for tag, priority in (("low", 1), ("high", 10), ("middle", 5)):
        channel.basic_consume(
            queue, lambda _, method, __, ___: received.append(method.consumer_tag), auto_ack=True,
            consumer_tag=tag, arguments={"x-priority": priority})

    publish(channel, queue, range(50))
    wait_until(lambda: len(received) == 50, sleep=lambda _: channel.connection.process_data_events(0.05))

    assert received == ["high"] * 50


def test_single_active_consumer(channel):
    """15: one consumer gets everything; when it goes, the next one does."""
    queue = declare(channel, x_single_active_consumer=True)
    received = []
    for tag in ("first", "second"):
        channel.basic_consume(
            queue, lambda _, method, __, ___: received.append(method.consumer_tag), auto_ack=True,
            consumer_tag=tag,
        )

    publish(channel, queue, range(20))
    wait_until(lambda: len(received) == 20, sleep=lambda _: channel.connection.process_data_events(0.05))
    channel.basic_cancel("first")
    publish(channel, queue, range(20))
    wait_until(lambda: len(received) == 40, sleep=lambda _: channel.connection.process_data_events(0.05))

    assert received == ["first"] * 20 + ["second"] * 20


def test_basic_return_mandatory(channel):
    """16: an unroutable mandatory message comes back, one that can be routed does not."""
    returned = []
    channel.add_on_return_callback(
        lambda _, method, __, body: returned.append((method.reply_code, method.routing_key, body))
    )
    queue = declare(channel)

    publish(channel, "no.such.queue", ["lost"])
    publish(channel, queue, ["found"])
    wait_until(lambda: returned, sleep=lambda _: channel.connection.process_data_events(0.05))

    assert returned == [(312, "no.such.queue", b"lost")]
    assert take(channel, queue) == ["found"]


def test_delivery_limit(channel, name):
    """17: a message that comes back too often is dead-lettered instead of being delivered for ever."""
    graveyard = declare(channel)
    channel.queue_declare(name, durable=True, arguments={
        "x-queue-type": "quorum", "x-delivery-limit": 2, "x-dead-letter-exchange": "",
        "x-dead-letter-routing-key": graveyard})
    publish(channel, name, ["poison"])
    deliveries = []

    def on_message(channel_, method, properties, _body):
        deliveries.append((method.redelivered, (properties.headers or {}).get("x-delivery-count", 0)))
        channel_.basic_reject(method.delivery_tag, requeue=True)
    channel.basic_consume(name, on_message)
    wait_until(
        lambda: count(channel, graveyard), sleep=lambda _: channel.connection.process_data_events(0.05)
    )

    assert deliveries == [(False, 0), (True, 1), (True, 2)]
    body, death = dead_letter(channel, graveyard)
    assert (body, death["reason"]) == (b"poison", "delivery_limit")
    channel.queue_delete(name)
