"""py-amqp: the library under kombu and Celery, by itself."""
import amqp
import pytest
from amqp import exceptions

from tests.support.held_up import again_when_held_up
from tests.support.waiting import in_time, wait_until


@pytest.fixture
def connect(broker_address):
    """Opens connections, and closes them after the test."""
    connections = []
    host, port = broker_address

    def open_(**options):
        connections.append(amqp.Connection(
            f"{host}:{port}", **{"connect_timeout": 30, "read_timeout": 30, "write_timeout": 30, **options}
        ))
        connections[-1].connect()
        return connections[-1]
    yield open_
    for connection in connections:
        connection.collect()


@pytest.fixture
def channel(connect):
    """A channel of a connection of its own."""
    return connect().channel()


@pytest.fixture
def queue(channel):
    """An exclusive queue."""
    return channel.queue_declare(exclusive=True).queue


def drain(connection, done):
    """Let the connection work until `done()`."""
    wait_until(done, sleep=lambda _: connection.drain_events(timeout=in_time(30)))


def test_message_and_properties_come_back(channel, queue):
    headers = {
        "text": "é", "integer": 2 ** 40, "list": [1, [2, {}]], "table": {"a": None}, "float": 1.5,
        "bool": True,
    }
    message = amqp.Message(
        "body é", content_type="text/plain", content_encoding="utf-8", application_headers=headers,
        delivery_mode=2, priority=4, correlation_id="c", reply_to="r", expiration="60000", message_id="m",
        type="t", user_id="guest", app_id="a",
    )

    channel.basic_publish(message, routing_key=queue)
    found = channel.basic_get(queue, no_ack=True)

    assert found.body == "body é"
    assert found.properties == message.properties
    assert found.delivery_info["routing_key"] == queue


@pytest.mark.parametrize("method", ["PLAIN", "AMQPLAIN"])
def test_login_by_either_mechanism(connect, method):
    assert connect(login_method=method).channel().is_open


def test_wrong_password_is_access_refused(connect):
    with pytest.raises(exceptions.AccessRefused) as raised:
        connect(password="wrong")

    assert raised.value.code == 403


def test_unknown_vhost_is_not_allowed(connect):
    with pytest.raises(exceptions.NotAllowed) as raised:
        connect(virtual_host="no-such-vhost")

    assert raised.value.code == 530


def test_publish_and_wait_for_confirm(connect):
    channel = connect(confirm_publish=True).channel()
    queue = channel.queue_declare(exclusive=True).queue

    for n in range(20):
        channel.basic_publish(amqp.Message(str(n), delivery_mode=2), routing_key=queue)

    assert channel.queue_declare(queue, passive=True).message_count == 20


def test_confirmed_publish_to_a_full_queue_is_nacked(connect):
    channel = connect(confirm_publish=True).channel()
    queue = channel.queue_declare(
        exclusive=True, arguments={"x-max-length": 1, "x-overflow": "reject-publish"}
    ).queue
    channel.basic_publish(amqp.Message("1"), routing_key=queue)

    with pytest.raises(exceptions.MessageNacked):
        channel.basic_publish(amqp.Message("2"), routing_key=queue)


@pytest.mark.parametrize(
    ("call", "error"),
    [
        (lambda channel: channel.queue_declare("no.such.queue", passive=True), exceptions.NotFound),
        (lambda channel: channel.queue_purge("no.such.queue"), exceptions.NotFound),
        (lambda channel: channel.queue_declare("amq.mine"), exceptions.AccessRefused),
        (
            lambda channel: channel.exchange_declare("amq.topic", "direct", durable=True, auto_delete=False),
            exceptions.PreconditionFailed,
        ),
        (lambda channel: channel.queue_bind("no.such.queue", "amq.direct"), exceptions.NotFound),
    ],
    ids=["declare-404", "purge-404", "403", "406", "bind-404"],
)
def test_channel_errors_have_their_classes(connect, call, error):
    connection = connect()

    with pytest.raises(error):
        call(connection.channel())

    assert connection.channel().is_open


def test_consumer_gets_messages_and_acks(channel, queue):
    received = []

    def on_message(message):
        received.append(int(message.body))
        channel.basic_ack(message.delivery_tag)
    channel.basic_qos(0, 5, False)
    channel.basic_consume(queue, callback=on_message)
    for n in range(50):
        channel.basic_publish(amqp.Message(str(n)), routing_key=queue)

    drain(channel.connection, lambda: len(received) == 50)

    assert received == list(range(50))


@pytest.mark.parametrize("count", [1, 3])
def test_global_qos_as_celery_sets_it(channel, queue, count):
    received = []
    channel.basic_qos(0, count, True)
    channel.basic_consume(queue, callback=received.append)
    for n in range(10):
        channel.basic_publish(amqp.Message(str(n)), routing_key=queue)

    drain(channel.connection, lambda: len(received) == count)
    assert channel.queue_declare(queue, passive=True).message_count == 10 - count
    channel.basic_qos(0, count + 2, True)
    drain(channel.connection, lambda: len(received) == count + 2)

    assert [int(message.body) for message in received] == list(range(count + 2))


def test_consumer_hears_of_its_queue_being_deleted(connect, channel):
    queue = channel.queue_declare(auto_delete=True).queue
    cancelled = []
    channel.basic_consume(queue, callback=print, on_cancel=cancelled.append)

    connect().channel().queue_delete(queue)
    drain(channel.connection, lambda: cancelled)

    assert cancelled


def test_recover_redelivers(channel, queue):
    channel.basic_publish(amqp.Message("again"), routing_key=queue)
    assert not channel.basic_get(queue).delivery_info["redelivered"]

    channel.basic_recover(requeue=True)

    assert channel.basic_get(queue).delivery_info["redelivered"]


def test_mandatory_message_is_returned(channel):
    returned = []
    channel.events["basic_return"].add(lambda error, *_: returned.append(error))

    channel.basic_publish(amqp.Message("lost"), routing_key="no.such.queue", mandatory=True)
    drain(channel.connection, lambda: returned)

    assert returned[0].reply_code == 312


def test_transaction(channel, queue):
    channel.tx_select()
    channel.basic_publish(amqp.Message("1"), routing_key=queue)
    channel.tx_rollback()
    channel.basic_publish(amqp.Message("2"), routing_key=queue)
    channel.tx_commit()

    assert channel.basic_get(queue, no_ack=True).body == "2"
    assert channel.basic_get(queue, no_ack=True) is None


@again_when_held_up(1)
def test_heartbeats_keep_an_idle_connection(connect):
    """kombu calls heartbeat_tick by the clock; the broker's own heartbeats are counted by py-amqp, which
    raises when they are missing. drain_events() goes on while heartbeats come within its time.
    """
    connection = connect(heartbeat=2)
    connection.channel()
    beats = connection.bytes_recv

    def tick(_):
        connection.heartbeat_tick()
        try:
            connection.drain_events(timeout=0.5)
        except TimeoutError:
            pass
    wait_until(lambda: connection.bytes_recv >= beats + 4, what="four heartbeats of the broker", sleep=tick)

    assert connection.channel().is_open


def test_exchange_to_exchange_binding(channel, queue):
    channel.exchange_declare("py-amqp.source", "fanout", auto_delete=True)
    channel.exchange_declare("py-amqp.target", "direct", auto_delete=True)
    channel.exchange_bind("py-amqp.target", "py-amqp.source")
    channel.queue_bind(queue, "py-amqp.target", "key")

    channel.basic_publish(amqp.Message("through"), exchange="py-amqp.source", routing_key="key")

    assert channel.basic_get(queue, no_ack=True).body == "through"
    channel.queue_unbind(queue, "py-amqp.target", "key")


@pytest.mark.parametrize("size", [0, 131064, 131065, 3_000_000])
def test_bodies_of_any_size(channel, queue, size):
    channel.basic_publish(amqp.Message(b"x" * size), routing_key=queue)

    assert len(channel.basic_get(queue, no_ack=True).body) == size
