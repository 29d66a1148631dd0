"""kombu: messaging for Python, on py-amqp; what Celery and many others are built on."""
import socket

import kombu
import pytest
from kombu import pidbox
from kombu.mixins import ConsumerProducerMixin
from kombu.pools import connections, producers

from tests.support.waiting import in_time, wait_until

PATIENT = {"interval_start": 0, "interval_step": 0.05, "max_retries": 50}


@pytest.fixture
def connection(broker_url):
    """A connection whose reads have a limit."""
    with kombu.Connection(
        broker_url, connect_timeout=in_time(30), transport_options={"read_timeout": 30, "write_timeout": 30}
    ) as opened:
        yield opened


def drain(connection, done):
    """Let the connection work until `done()`."""
    wait_until(done, sleep=lambda _: connection.drain_events(timeout=in_time(30)))


def test_broker_is_taken_for_a_rabbitmq(connection):
    """Everything kombu and Celery decide by the product's name follows RabbitMQ's path: global qos means the
    channel, heartbeats are supported.
    """
    connection.connect()

    assert connection.default_channel.connection.server_properties["product"] == "RabbitMQ"
    assert connection.transport.qos_semantics_matches_spec(connection.connection) is False
    assert connection.supports_heartbeats


def test_simple_queue(connection, name):
    queue = connection.SimpleQueue(name, queue_opts={"expires": 60})
    for n in range(5):
        queue.put({"n": n})

    wait_until(lambda: queue.qsize() == 5)
    for n in range(5):
        message = queue.get(timeout=in_time(30))
        assert message.payload == {"n": n}
        message.ack()
    with pytest.raises(queue.Empty):
        queue.get(block=False)
    queue.close()
    kombu.Queue(name)(connection.channel()).delete()


def test_simple_buffer_keeps_nothing(connection, name):
    queue = connection.SimpleBuffer(name)

    queue.put("hello")

    assert queue.get(timeout=in_time(30)).payload == "hello"
    queue.close()


@pytest.mark.parametrize("serializer", ["json", "pickle", "yaml"])
@pytest.mark.parametrize("compression", [None, "zlib"])
def test_producer_and_consumer_agree_on_serialization(connection, name, serializer, compression):
    if serializer == "yaml":
        pytest.importorskip("yaml")
    received = []
    queue = kombu.Queue(name, kombu.Exchange(name, "topic", auto_delete=True), "a.#", exclusive=True)
    value = {"text": "é" * 100, "list": [1, 2.5, None, True]}

    with connection.Consumer(
        queue, callbacks=[lambda body, message: (received.append(body), message.ack())], accept=[serializer]
    ):
        with connection.Producer(serializer=serializer) as producer:
            producer.publish(
                value, exchange=queue.exchange, routing_key="a.b", declare=[queue], compression=compression,
                headers={"h": [1]},
            )
        drain(connection, lambda: received)

    assert received == [value]


@pytest.mark.parametrize(
    "options",
    [
        {}, {"confirm_publish": True}, {"client_properties": {"connection_name": "a name"}},
        {"login_method": "AMQPLAIN"}, {"max_retries": 3},
    ],
    ids=["none", "confirm", "properties", "amqplain", "retries"],
)
def test_transport_options(broker_url, name, options):
    options = dict(options)
    login_method = options.pop("login_method", None)
    with kombu.Connection(
        broker_url, transport_options=options, login_method=login_method, heartbeat=30
    ) as connection:
        queue = kombu.Queue(name, exclusive=True)(connection.channel())
        queue.declare()
        connection.Producer().publish("x", routing_key=name, delivery_mode=2)
        wait_until(lambda: queue.queue_declare(passive=True).message_count == 1)

        assert queue.get(no_ack=True).payload == "x"


def test_queue_options_become_arguments(connection, name):
    queue = kombu.Queue(
        name, exclusive=True, expires=60, message_ttl=60, max_length=10, max_length_bytes=1000,
        max_priority=5, queue_arguments={"x-overflow": "drop-head"})

    bound = queue(connection.channel())
    bound.declare()
    for n in range(12):
        connection.Producer().publish(n, routing_key=name, priority=n % 6)

    wait_until(lambda: bound.queue_declare(passive=True).message_count == 10)


def test_priorities(connection, name):
    queue = kombu.Queue(name, exclusive=True, max_priority=10)(connection.channel())
    queue.declare()
    producer = connection.Producer()
    for priority in (0, 5, 10, 3):
        producer.publish(priority, routing_key=name, priority=priority)
    wait_until(lambda: queue.queue_declare(passive=True).message_count == 4)

    assert [queue.get(no_ack=True).payload for _ in range(4)] == [10, 5, 3, 0]


def test_redeclare_with_other_options_is_a_precondition_failure(connection, name):
    kombu.Queue(name, exclusive=True)(connection.channel()).declare()

    with pytest.raises(connection.channel_errors) as raised:
        kombu.Queue(name, exclusive=True, max_priority=5)(connection.channel()).declare()

    assert "inequivalent arg 'x-max-priority'" in str(raised.value)


def test_producer_retries_over_a_lost_socket(connection, name):
    """The socket dies under the producer: kombu connects again, declares again and publishes."""
    queue = kombu.Queue(name, durable=True)
    producer = connection.Producer()
    producer.publish("first", routing_key=name, declare=[queue], retry=True)
    connection.connection.transport.sock.shutdown(socket.SHUT_RDWR)

    producer.publish("second", routing_key=name, declare=[queue], retry=True, retry_policy=PATIENT)

    bound = queue(connection.channel())
    wait_until(lambda: bound.queue_declare(passive=True).message_count == 2)
    assert [bound.get(no_ack=True).payload for _ in range(2)] == ["first", "second"]
    bound.delete()


def test_ensure_connection_over_a_restart(own_broker):
    with kombu.Connection(own_broker.amqp_url) as connection:
        queue = kombu.Queue("jobs", durable=True)
        producer = connection.Producer()
        producer.publish("before", routing_key="jobs", declare=[queue], delivery_mode=2)
        queue(connection.channel()).queue_declare(passive=True)
        own_broker.restart()

        producer.publish("after", routing_key="jobs", retry=True, retry_policy=PATIENT)

        bound = queue(connection.channel())
        wait_until(lambda: bound.queue_declare(passive=True).message_count == 2)
        assert [bound.get(no_ack=True).payload for _ in range(2)] == ["before", "after"]


def test_pools_share_connections(broker_url, name):
    connection = kombu.Connection(broker_url)
    queue = kombu.Queue(name, exclusive=False, auto_delete=True)

    for n in range(5):
        with producers[connection].acquire(block=True) as producer:
            producer.publish(n, routing_key=name, declare=[queue])
    with connections[connection].acquire(block=True) as pooled:
        bound = queue(pooled.channel())
        wait_until(lambda: bound.queue_declare(passive=True).message_count == 5)
        bound.delete()
    producers[connection].force_close_all()
    connections[connection].force_close_all()


def test_consumer_mixin_answers_requests(broker_url, connection, name):
    """The RPC server of kombu's documentation."""
    requests, replies = kombu.Queue(name, auto_delete=True), kombu.Queue(name + ".replies", exclusive=True)

    class Worker(ConsumerProducerMixin):
        def __init__(self):
            self.connection = kombu.Connection(broker_url)

        def get_consumers(self, Consumer, channel):
            return [Consumer(queues=[requests], on_message=self.on_request, prefetch_count=1)]

        def on_request(self, message):
            reply_to, correlation_id = message.properties["reply_to"], message.properties["correlation_id"]
            self.producer.publish(message.payload * 2, routing_key=reply_to, correlation_id=correlation_id)
            message.ack()
            self.should_stop = True
    received = []

    requests(connection.channel()).declare()
    with connection.Consumer(
        replies,
        callbacks=[lambda body, message: received.append((body, message.properties["correlation_id"]))],
        no_ack=True,
    ):
        connection.Producer().publish(21, routing_key=name, reply_to=replies.name, correlation_id="c")
        worker = Worker()
        worker.run()
        drain(connection, lambda: received)
    worker.connection.release()

    assert received == [(42, "c")]


def test_pidbox_mailbox(broker_url, connection, name):
    """Celery's remote control: transient exchanges and queues that are not exclusive,
    replies over a queue that expires.
    """
    mailbox = pidbox.Mailbox(name, "fanout")(connection)
    with kombu.Connection(broker_url) as node_connection:
        node = mailbox.Node("worker", state={}, channel=node_connection.channel())
        node.handlers["ping"] = lambda state, value=None: {"pong": value}
        node.mailbox = pidbox.Mailbox(name, "fanout")(node_connection)
        with node.listen():
            ticket = "ticket"
            reply_queue = mailbox.get_reply_queue()
            reply_queue(connection.channel()).declare()
            mailbox._publish("ping", {"value": 7}, reply_ticket=ticket, timeout=in_time(30))
            node_connection.drain_events(timeout=in_time(30))

        replies = mailbox._collect(ticket, limit=1, timeout=in_time(30))

    assert replies == [{"worker": {"pong": 7}}]


def test_dead_letter_and_ttl_through_queue_arguments(connection, name):
    """The usual retry queue: wait in one queue, come back in another."""
    target = kombu.Queue(name, exclusive=True)(connection.channel())
    waiting = kombu.Queue(
        name + ".wait", exclusive=True, message_ttl=0.05,
        queue_arguments={"x-dead-letter-exchange": "", "x-dead-letter-routing-key": name})(
        connection.channel()
    )
    target.declare()
    waiting.declare()

    connection.Producer().publish("again", routing_key=waiting.name)

    wait_until(lambda: target.queue_declare(passive=True).message_count == 1)
    message = target.get(no_ack=True)
    assert (message.payload, message.headers["x-death"][0]["reason"]) == ("again", "expired")
