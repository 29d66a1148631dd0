"""Every kind of queue over a restart, in order or by SIGKILL: messages that are ready, unacked, delayed and
dead-lettered are all there, once.
"""
import pika
import pytest

from tests.support.waiting import wait_until

MESSAGES = 8

# kind: arguments of the queue
KINDS = {
    "plain": {},
    "quorum": {"x-queue-type": "quorum"},
    "priority": {"x-max-priority": 10},
    "ttl": {"x-message-ttl": 3_600_000},
    "expires": {"x-expires": 3_600_000},
    "bounded": {"x-max-length": 1000, "x-max-length-bytes": 1_000_000, "x-overflow": "reject-publish"},
    "single active": {"x-single-active-consumer": True},
    "delivery limit": {"x-delivery-limit": 50},
    "retry": {"x-delayed-retry-type": "failed", "x-delayed-retry-min": 1},
    "deduplicating": {"x-message-deduplication": True},
    "dropping": {"x-max-length": 1000, "x-max-length-bytes": 1_000_000},
    "consumer timeout": {"x-consumer-timeout": 3_600_000},
    "all together": {
        "x-max-priority": 5, "x-message-ttl": 3_600_000, "x-expires": 3_600_000, "x-max-length": 1000,
        "x-overflow": "reject-publish-dlx", "x-delivery-limit": 50, "x-single-active-consumer": True,
        "x-message-deduplication": True, "x-consumer-timeout": 3_600_000, "x-delayed-retry-type": "failed",
        "x-delayed-retry-min": 1,
    },
}
# The others are tested where there is time.
QUICK = ("plain", "priority")


def channel_of(broker):
    channel = pika.BlockingConnection(pika.URLParameters(broker.amqp_url)).channel()
    channel.confirm_delivery()
    return channel


def publish(channel, exchange, key, numbers, **properties):
    for number in numbers:
        channel.basic_publish(
            exchange, key, b"%d" % number,
            pika.BasicProperties(delivery_mode=2, priority=number % 10, **properties),
        )


def bodies(channel, queue):
    """What is ready in a queue, as sorted (number, redelivered)."""
    found = []
    while True:
        method, _, body = channel.basic_get(queue, auto_ack=True)
        if method is None:
            return sorted(found)
        found.append((int(body), method.redelivered))


@pytest.mark.parametrize("crash", [False, True], ids=["stopped", "killed"])
@pytest.mark.parametrize("kind", [
    kind if kind in QUICK else pytest.param(kind, marks=pytest.mark.long) for kind in KINDS
])
def test_what_is_ready_unacked_delayed_and_dead_lettered_is_there_once(broker_process, kind, crash):
    broker = broker_process().start()
    channel = channel_of(broker)
    channel.queue_declare("dead", durable=True)
    channel.queue_declare(
        "q", durable=True,
        arguments={**KINDS[kind], "x-dead-letter-exchange": "", "x-dead-letter-routing-key": "dead"},
    )
    channel.exchange_declare(
        "later", "x-delayed-message", durable=True, arguments={"x-delayed-type": "direct"}
    )
    channel.queue_bind("q", "later", "q")
    publish(channel, "", "q", range(MESSAGES))
    publish(channel, "later", "q", [100], headers={"x-delay": 700})
    publish(channel, "later", "q", [200], headers={"x-delay": 3_600_000})
    taken = [channel.basic_get("q") for _ in range(4)]
    numbers = [int(body) for _, _, body in taken]
    channel.basic_reject(taken[0][0].delivery_tag, requeue=False)
    channel.basic_ack(taken[1][0].delivery_tag)
    wait_until(
        lambda: channel.queue_declare("dead", passive=True).method.message_count == 1, what="the dead letter"
    )
    # each waits for the disk: the letter has left its queue, for whose copy that had to wait too
    for name in ("barrier", "another"):
        channel.queue_declare(name, durable=True)

    broker.kill() if crash else broker.stop()
    broker.start()

    channel = channel_of(broker)
    wait_until(
        lambda: channel.queue_declare("q", passive=True).method.message_count >= MESSAGES - 1,
        what="the delayed message",
    )
    found = bodies(channel, "q")
    assert [number for number, _ in found] == sorted({*range(MESSAGES), 100} - set(numbers[:2]))
    assert {number for number, redelivered in found if redelivered} == set(numbers[2:])
    assert [number for number, _ in bodies(channel, "dead")] == numbers[:1]


@pytest.mark.parametrize("crash", [False, True], ids=["stopped", "killed"])
def test_quorum_queue_delivers_by_priority_after_a_restart(broker_process, crash):
    broker = broker_process().start()
    channel = channel_of(broker)
    channel.queue_declare("q", durable=True, arguments={"x-queue-type": "quorum"})
    publish(channel, "", "q", [40, 10, 9, 35, 20, 45, 30])
    taken = [int(channel.basic_get("q")[2]) for _ in range(2)]
    assert taken == [9, 35]

    broker.kill() if crash else broker.stop()
    broker.start()

    channel = channel_of(broker)
    publish(channel, "", "q", [50, 39])
    found = [int(channel.basic_get("q", auto_ack=True)[2]) for _ in range(9)]
    assert found == [9, 39, 35, 45, 40, 10, 20, 30, 50]


def read(broker, arguments, count, settled=0):
    """The first ``count`` messages that a named consumer of the stream is given, as (body, offset), and the
    connection; ``settled`` are acked.
    """
    connection = pika.BlockingConnection(pika.URLParameters(broker.amqp_url))
    channel = connection.channel()
    channel.basic_qos(prefetch_count=100)
    found = []

    def taken(_channel, method, properties, body):
        found.append((int(body), int(properties.headers["x-stream-offset"])))
        if len(found) == settled:
            channel.basic_ack(method.delivery_tag, multiple=True)

    channel.basic_consume("s", taken, consumer_tag="reader", arguments=arguments)
    wait_until(
        lambda: connection.process_data_events(0.01) or len(found) >= count, what="what the stream holds"
    )
    return found[:count], connection


@pytest.mark.parametrize(
    "crash", [pytest.param(False, marks=pytest.mark.long), True], ids=["stopped", "killed"]
)
def test_stream_keeps_what_was_read_unacked_delayed_and_dead_lettered_into_it(broker_process, crash):
    broker = broker_process().start()
    channel = channel_of(broker)
    channel.queue_declare("s", durable=True, arguments={"x-queue-type": "stream"})
    channel.queue_declare(
        "q", durable=True, arguments={"x-dead-letter-exchange": "", "x-dead-letter-routing-key": "s"}
    )
    channel.exchange_declare(
        "later", "x-delayed-message", durable=True, arguments={"x-delayed-type": "direct"}
    )
    channel.queue_bind("s", "later", "s")
    publish(channel, "", "s", range(MESSAGES))
    publish(channel, "", "q", [50])
    channel.basic_reject(channel.basic_get("q")[0].delivery_tag, requeue=False)
    wait_until(
        lambda: channel.queue_declare("s", passive=True).method.message_count == MESSAGES + 1,
        what="the dead letter",
    )
    publish(channel, "later", "s", [100], headers={"x-delay": 700})
    publish(channel, "later", "s", [200], headers={"x-delay": 3_600_000})
    everything = [*((number, number) for number in range(MESSAGES)), (50, MESSAGES)]
    tracked = {"x-stream-offset": "first", "x-stream-automatic-offset-tracking": True}
    assert read(broker, tracked, MESSAGES + 1, settled=3)[0] == everything
    # each waits for the disk: the letter has left its queue, and the reader's acks have come
    for name in ("barrier", "another"):
        channel.queue_declare(name, durable=True)

    broker.kill() if crash else broker.stop()
    broker.start()

    everything.append((100, MESSAGES + 1))
    assert read(broker, {}, MESSAGES - 1)[0] == everything[3:], (
        "the reader goes on behind what it has settled"
    )
    assert read(broker, {"x-stream-offset": "first"}, MESSAGES + 2)[0] == everything
    assert bodies(channel_of(broker), "q") == []
