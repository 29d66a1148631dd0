"""Message groups as clients see them: consumers that end, transactions, limits and dead letters."""
import pika
import pytest

from tests.support.waiting import wait_until

GROUPS = {"x-message-group": "header:customer"}


@pytest.fixture
def connection(broker):
    with pika.BlockingConnection(pika.URLParameters(broker.amqp_url)) as connection:
        yield connection


@pytest.fixture(params=["classic", "quorum"])
def queue(request, connection):
    name = f"groups.{request.param}"
    channel = connection.channel()
    channel.queue_delete(name)
    channel.queue_declare(name, durable=True, arguments={"x-queue-type": request.param, **GROUPS})
    return name


def publish(channel, queue, *bodies):
    """Publish bodies such as ``a1``, each into the group of its first letter."""
    channel.confirm_delivery()
    for body in bodies:
        channel.basic_publish("", queue, body, pika.BasicProperties(headers={"customer": body[:1]}))


class Consumer:
    """A channel that consumes, and what it was given: [(body, delivery tag, redelivered)]."""

    def __init__(self, connection, queue, prefetch=10):
        self.connection = connection
        self.given = []
        self.channel = connection.channel()
        self.channel.basic_qos(prefetch_count=prefetch)
        self.channel.basic_consume(queue, self._deliver)

    def _deliver(self, _channel, method, _properties, body):
        self.given.append((body.decode(), method.delivery_tag, method.redelivered))

    @property
    def bodies(self):
        return [body for body, _, _ in self.given]

    def expect(self, *bodies):
        wait_until(lambda: self.bodies == list(bodies), sleep=self.connection.process_data_events)

    def take(self, body):
        at = self.bodies.index(body)
        return self.given.pop(at)[1]


def test_a_channels_end_gives_its_groups_to_others(connection, queue):
    publish(connection.channel(), queue, "a1", "a2", "b1")
    first = Consumer(connection, queue)
    first.expect("a1", "a2", "b1")
    second = Consumer(connection, queue)
    publish(connection.channel(), queue, "a3")
    first.expect("a1", "a2", "b1", "a3")
    assert second.bodies == []

    first.channel.close()

    second.expect("a1", "a2", "b1", "a3")
    assert all(again for _, _, again in second.given)


def test_a_connections_end_gives_its_groups_to_others_in_order(broker, connection, queue):
    publish(connection.channel(), queue, *(f"a{number}" for number in range(50)))
    with pika.BlockingConnection(pika.URLParameters(broker.amqp_url)) as lost:
        Consumer(lost, queue, prefetch=30).expect(*(f"a{number}" for number in range(30)))
        second = Consumer(connection, queue, prefetch=100)

    second.expect(*(f"a{number}" for number in range(50)))


def test_a_nacked_message_comes_again_to_its_consumer_before_the_rest(connection, queue):
    publish(connection.channel(), queue, *(f"a{number}" for number in range(1, 6)))
    consumer, other = Consumer(connection, queue, prefetch=3), Consumer(connection, queue)
    consumer.expect("a1", "a2", "a3")

    consumer.channel.basic_nack(consumer.take("a1"))
    consumer.expect("a2", "a3", "a1")
    consumer.channel.basic_reject(consumer.take("a1"), requeue=False)

    consumer.expect("a2", "a3", "a4")
    assert other.bodies == []


def test_a_group_is_bound_until_the_transaction_commits(connection, queue):
    publish(connection.channel(), queue, "a1", "a2", "a3")
    consumer = Consumer(connection, queue, prefetch=1)
    consumer.channel.tx_select()
    consumer.expect("a1")
    other = connection.channel()

    consumer.channel.basic_ack(consumer.take("a1"))
    consumer.channel.basic_cancel(consumer.channel.consumer_tags[0])
    assert other.basic_get(queue)[0] is None
    consumer.channel.tx_commit()

    method, _, body = other.basic_get(queue)
    assert (body, method.redelivered) == (b"a2", False)


def test_consumers_that_share_a_credit_have_groups_of_their_own(connection, queue):
    publish(connection.channel(), queue, "a1", "b1", "a2", "b2")
    channel = connection.channel()
    channel.basic_qos(prefetch_count=2, global_qos=True)
    given = []
    for _ in range(2):
        channel.basic_consume(
            queue, lambda _, method, __, body: given.append((body[:1], method.consumer_tag)))

    wait_until(lambda: len(given) == 2, sleep=connection.process_data_events)
    channel.basic_ack(0, multiple=True)
    wait_until(lambda: len(given) == 4, sleep=connection.process_data_events)

    assert given[0] != given[1]


def test_two_channels_that_get_have_groups_of_their_own(connection, queue):
    publish(connection.channel(), queue, "a1", "a2", "b1", "a3")
    first, second = connection.channel(), connection.channel()

    assert [channel.basic_get(queue)[2] for channel in (first, second, first, second, first)] == [
        b"a1", b"b1", b"a2", None, b"a3"]


def test_a_limit_is_the_most_of_a_group_that_is_out(connection):
    channel = connection.channel()
    channel.queue_delete("groups.limit")
    channel.queue_declare("groups.limit", durable=True, arguments={**GROUPS, "x-message-group-limit": 1})
    publish(channel, "groups.limit", "a1", "a2", "b1")

    consumer = Consumer(connection, "groups.limit")
    consumer.expect("a1", "b1")
    consumer.channel.basic_ack(consumer.take("a1"))

    consumer.expect("b1", "a2")


def test_dead_letters_of_a_group_are_in_order(connection):
    channel = connection.channel()
    channel.queue_declare("groups.dead", durable=True)
    channel.queue_purge("groups.dead")
    channel.queue_delete("groups.dying")
    channel.queue_declare("groups.dying", durable=True, arguments={
        **GROUPS, "x-dead-letter-exchange": "", "x-dead-letter-routing-key": "groups.dead"})
    publish(channel, "groups.dying", *(f"a{number}" for number in range(20)))
    consumer = Consumer(connection, "groups.dying")

    for number in range(20):
        wait_until(
            lambda number=number: consumer.bodies[:1] == [f"a{number}"], sleep=connection.process_data_events)
        consumer.channel.basic_reject(consumer.take(f"a{number}"), requeue=False)

    Consumer(connection, "groups.dead", prefetch=100).expect(*(f"a{number}" for number in range(20)))


def test_an_exclusive_queue_that_goes_with_its_connection_may_have_groups(connection):
    channel = connection.channel()
    name = channel.queue_declare("", exclusive=True, arguments=GROUPS).method.queue
    publish(channel, name, "a1", "a2", "b1")

    Consumer(connection, name).expect("a1", "a2", "b1")


@pytest.mark.parametrize("argument, value", [("x-max-priority", 5), ("x-queue-type", "stream")])
def test_what_has_an_order_of_its_own_has_no_groups(connection, argument, value):
    with pytest.raises(pika.exceptions.ChannelClosedByBroker) as refused:
        connection.channel().queue_declare("groups.no", durable=True, arguments={**GROUPS, argument: value})

    assert refused.value.reply_code == 406


def test_a_limit_without_groups_is_refused(connection):
    with pytest.raises(pika.exceptions.ChannelClosedByBroker) as refused:
        connection.channel().queue_declare("groups.no", durable=True, arguments={"x-message-group-limit": 1})

    assert refused.value.reply_code == 406
