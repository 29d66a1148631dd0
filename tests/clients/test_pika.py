"""pika: the client most Python programs use, in its blocking form,
its threaded form and its asynchronous core.
"""
import threading

import pika
import pytest
from pika import exceptions

from tests.support.held_up import again_when_held_up
from tests.support.waiting import in_time, wait_until

# Longer than anything here takes; pika's own waits need a limit to be tests.
PATIENCE_S = in_time(30)


@pytest.fixture
def parameters(broker_url):
    """Connection parameters of the broker under test."""
    parameters = pika.URLParameters(broker_url)
    parameters.blocked_connection_timeout = PATIENCE_S
    parameters.socket_timeout = PATIENCE_S
    return parameters


@pytest.fixture
def connect(parameters):
    """Opens blocking connections, and closes those still open after the test."""
    connections = []

    def open_(**changes):
        for name, value in changes.items():
            setattr(parameters, name, value)
        connections.append(pika.BlockingConnection(parameters))
        return connections[-1]
    yield open_
    for connection in connections:
        if connection.is_open:
            connection.close()


@pytest.fixture
def channel(connect):
    """A channel of a connection of its own."""
    return connect().channel()


@pytest.fixture
def queue(channel):
    """An exclusive queue."""
    return channel.queue_declare("", exclusive=True).method.queue


def count(channel, queue):
    """Messages ready in a queue."""
    return channel.queue_declare(queue, passive=True).method.message_count


def drain(connection, done, timeout_s=PATIENCE_S):
    """Let pika work until `done()`."""
    wait_until(done, timeout_s, sleep=lambda _: connection.process_data_events(0.05))


def test_message_and_properties_come_back(channel, queue):
    properties = pika.BasicProperties(
        content_type="application/json", content_encoding="utf-8",
        headers={"a": 1, "b": [True, None, {"c": "é"}], "d": 2 ** 40}, delivery_mode=2, priority=3,
        correlation_id="c", reply_to="r", expiration="60000", message_id="m", timestamp=1700000000, type="t",
        user_id="guest", app_id="a", cluster_id="l")

    channel.basic_publish("", queue, "body é".encode(), properties)
    method, found, body = channel.basic_get(queue, auto_ack=True)

    assert (method.redelivered, method.message_count, body.decode()) == (False, 0, "body é")
    assert found == properties


def test_confirmed_publish_returns(channel, queue):
    channel.confirm_delivery()

    for n in range(20):
        channel.basic_publish("", queue, str(n), pika.BasicProperties(delivery_mode=2))

    assert count(channel, queue) == 20


def test_confirmed_mandatory_publish_to_nowhere_raises_unroutable(channel):
    channel.confirm_delivery()

    with pytest.raises(exceptions.UnroutableError) as raised:
        channel.basic_publish("", "no.such.queue", b"x", mandatory=True)

    assert raised.value.messages[0].method.reply_code == 312


def test_confirmed_publish_to_a_full_queue_raises_nack(channel):
    queue = channel.queue_declare(
        "", exclusive=True, arguments={"x-max-length": 1, "x-overflow": "reject-publish"}
    ).method.queue
    channel.confirm_delivery()
    channel.basic_publish("", queue, b"1")

    with pytest.raises(exceptions.NackError):
        channel.basic_publish("", queue, b"2")


def test_callback_consumes_and_acks(channel, queue):
    received = []

    def on_message(channel_, method, _properties, body):
        received.append(int(body))
        channel_.basic_ack(method.delivery_tag)
        if len(received) == 100:
            channel_.stop_consuming()
    channel.basic_qos(prefetch_count=10)
    for n in range(100):
        channel.basic_publish("", queue, str(n))

    channel.basic_consume(queue, on_message)
    channel.start_consuming()

    assert received == list(range(100))


def test_generator_consumes_until_cancel(channel, queue):
    for n in range(10):
        channel.basic_publish("", queue, str(n))
    received = []

    for method, _properties, body in channel.consume(queue, inactivity_timeout=PATIENCE_S):
        received.append(int(body))
        channel.basic_ack(method.delivery_tag)
        if len(received) == 5:
            break
    channel.cancel()

    assert received == list(range(5))
    assert count(channel, queue) == 5


def test_generator_with_nothing_to_give_comes_back(channel, queue):
    assert next(channel.consume(queue, inactivity_timeout=0.05)) == (None, None, None)

    channel.cancel()


def test_consumer_hears_of_its_queue_being_deleted(connect, channel, queue):
    cancelled = []
    channel.add_on_cancel_callback(cancelled.append)
    shared = channel.queue_declare("", auto_delete=True).method.queue
    channel.basic_consume(shared, print, consumer_tag="mine")

    connect().channel().queue_delete(shared)
    drain(channel.connection, lambda: cancelled)

    assert cancelled[0].method.consumer_tag == "mine"


def test_rejected_message_is_redelivered(channel, queue):
    channel.basic_publish("", queue, b"x")
    method, _, _ = channel.basic_get(queue)

    channel.basic_nack(method.delivery_tag, requeue=True)

    method, _, _ = channel.basic_get(queue, auto_ack=True)
    assert method.redelivered


@pytest.mark.parametrize(
    ("call", "code", "text"),
    [
        (
            lambda channel: channel.queue_declare("no.such.queue", passive=True), 404,
            "NOT_FOUND - no queue 'no.such.queue' in vhost '/'",
        ),
        (
            lambda channel: channel.exchange_declare("no.such.exchange", passive=True), 404,
            "NOT_FOUND - no exchange 'no.such.exchange' in vhost '/'",
        ),
        (
            lambda channel: channel.queue_declare("amq.mine"), 403,
            "ACCESS_REFUSED - queue name 'amq.mine' contains reserved prefix 'amq.*'",
        ),
        (
            lambda channel: channel.exchange_declare("amq.topic", "direct", durable=True), 406,
            (
                "PRECONDITION_FAILED - inequivalent arg 'type' for exchange 'amq.topic' in vhost '/': "
                "received 'direct' but current is 'topic'"
            ),
        ),
        (lambda channel: channel.tx_commit(), 406, "PRECONDITION_FAILED - channel is not transactional"),
    ],
    ids=["queue-404", "exchange-404", "403", "406", "tx"],
)
def test_channel_errors_carry_code_and_text(connect, call, code, text):
    connection = connect()

    with pytest.raises(exceptions.ChannelClosedByBroker) as raised:
        call(connection.channel())

    assert (raised.value.reply_code, raised.value.reply_text) == (code, text)
    assert connection.channel().is_open


def test_exclusive_queue_of_another_connection_is_locked(connect, channel, name):
    channel.queue_declare(name, exclusive=True)

    with pytest.raises(exceptions.ChannelClosedByBroker) as raised:
        connect().channel().queue_declare(name, exclusive=True)

    assert raised.value.reply_code == 405


def test_publish_to_a_missing_exchange_is_noticed(channel, queue):
    channel.basic_publish("no.such.exchange", "", b"x")

    with pytest.raises(exceptions.ChannelClosedByBroker) as raised:
        channel.queue_declare(queue, passive=True)

    assert raised.value.reply_code == 404


def test_connection_error_carries_code_and_text(connect):
    channel = connect().channel()

    with pytest.raises(exceptions.ConnectionClosedByBroker) as raised:
        channel.basic_qos(prefetch_size=1)

    assert (raised.value.reply_code, raised.value.reply_text) == (
        540, "NOT_IMPLEMENTED - prefetch_size!=0 (1)"
    )


def test_wrong_password_raises_authentication_error(connect):
    with pytest.raises(exceptions.ProbableAuthenticationError) as raised:
        connect(credentials=pika.PlainCredentials("guest", "wrong"))

    assert "403" in str(raised.value)


def test_unknown_vhost_raises_access_denied(connect):
    with pytest.raises(exceptions.ProbableAccessDeniedError) as raised:
        connect(virtual_host="no-such-vhost")

    assert "530" in str(raised.value)


@pytest.mark.parametrize("heartbeat", [0, 1, 3600])
@again_when_held_up(1)
def test_heartbeat_is_the_clients_choice(connect, heartbeat):
    connection = connect(heartbeat=heartbeat)

    assert connection._impl.params.heartbeat == heartbeat
    assert connection.channel().is_open


@again_when_held_up(1)
def test_idle_connection_is_kept_alive_by_heartbeats(connect):
    """Four intervals of silence but for heartbeats; pika itself raises when the broker sends none."""
    connection = connect(heartbeat=1)
    channel = connection.channel()

    connection.process_data_events(time_limit=4)

    assert channel.queue_declare("", exclusive=True)


@again_when_held_up(1)
def test_callback_that_outlasts_the_heartbeats_loses_the_connection(connect, channel, name):
    """pika cannot send heartbeats from inside a callback: the broker drops the connection and gives the
    message to somebody else.
    """
    channel.queue_declare(name)
    channel.queue_purge(name)
    channel.basic_publish("", name, b"slow")
    busy = connect(heartbeat=1).channel()
    tags = []

    def on_message(channel_, method, _properties, _body):
        wait_until(lambda: count(channel, name) == 1, what="the message back in its queue")
        tags.append(method.delivery_tag)
        channel_.basic_ack(method.delivery_tag)
    busy.basic_consume(name, on_message)

    with pytest.raises((exceptions.AMQPConnectionError, exceptions.ChannelWrongStateError)):
        drain(busy.connection, lambda: tags and busy.connection.is_closed)

    assert channel.basic_get(name, auto_ack=True)[0].redelivered
    channel.queue_delete(name)


def test_transaction_publishes_with_commit(channel, queue):
    channel.tx_select()
    channel.basic_publish("", queue, b"1")
    channel.tx_rollback()
    channel.basic_publish("", queue, b"2")
    channel.tx_commit()

    assert channel.basic_get(queue, auto_ack=True)[2] == b"2"
    assert channel.basic_get(queue) == (None, None, None)


def test_rpc_over_direct_reply_to(channel, queue):
    """pika's own tutorial: ask and answer without declaring a reply queue."""
    answers = []

    def serve(channel_, _method, properties, body):
        channel_.basic_publish(
            "", properties.reply_to, body.upper(),
            pika.BasicProperties(correlation_id=properties.correlation_id),
        )
    channel.basic_consume(
        "amq.rabbitmq.reply-to",
        lambda *arguments: answers.append((arguments[2].correlation_id, arguments[3])), auto_ack=True,
    )
    channel.basic_consume(queue, serve, auto_ack=True)

    channel.basic_publish(
        "", queue, b"ping", pika.BasicProperties(reply_to="amq.rabbitmq.reply-to", correlation_id="7")
    )
    drain(channel.connection, lambda: answers)

    assert answers == [("7", b"PING")]


@pytest.mark.parametrize("size", [0, 131072 - 8, 5_000_000])
def test_bodies_of_any_size(channel, queue, size):
    body = (b"0123456789" * (size // 10 + 1))[:size]

    channel.basic_publish("", queue, body)

    assert channel.basic_get(queue, auto_ack=True)[2] == body


@pytest.mark.parametrize("frame_max", [4096, 131072])
def test_frame_max_is_negotiated(connect, frame_max):
    channel = connect(frame_max=frame_max).channel()
    queue = channel.queue_declare("", exclusive=True).method.queue

    channel.basic_publish("", queue, b"x" * 50000)

    assert len(channel.basic_get(queue, auto_ack=True)[2]) == 50000


def test_callback_from_another_thread(channel, queue):
    """What a consumer with worker threads does: acks are handed to the connection's thread."""
    done = []

    def on_message(channel_, method, _properties, body):
        def work():
            channel_.connection.add_callback_threadsafe(
                lambda: (channel_.basic_ack(method.delivery_tag), done.append(body))
            )
        threading.Thread(target=work).start()
    channel.basic_qos(prefetch_count=3)
    channel.basic_consume(queue, on_message)
    for n in range(30):
        channel.basic_publish("", queue, str(n))

    drain(channel.connection, lambda: len(done) == 30)

    assert sorted(map(int, done)) == list(range(30))


def test_every_exchange_and_binding_call(channel, queue):
    channel.exchange_declare("pika.source", "topic", auto_delete=True)
    channel.exchange_declare("pika.target", "headers", auto_delete=True)
    channel.exchange_bind("pika.target", "pika.source", "a.#")
    channel.queue_bind(queue, "pika.target", arguments={"x-match": "any", "colour": "red"})

    channel.basic_publish("pika.source", "a.b", b"yes", pika.BasicProperties(headers={"colour": "red"}))
    channel.basic_publish("pika.source", "a.b", b"no", pika.BasicProperties(headers={"colour": "blue"}))

    assert channel.basic_get(queue, auto_ack=True)[2] == b"yes"
    assert channel.queue_purge(queue).method.message_count == 0
    channel.queue_unbind(queue, "pika.target", arguments={"x-match": "any", "colour": "red"})
    channel.exchange_unbind("pika.target", "pika.source", "a.#")
    channel.exchange_delete("pika.source")


def test_asynchronous_core_opens_consumes_and_closes(parameters):
    """SelectConnection, on which BlockingConnection is built,
    with its callbacks in the order the documentation gives.
    """
    steps = []

    def on_open(connection):
        steps.append("open")
        connection.channel(on_open_callback=on_channel)

    def on_channel(channel):
        steps.append("channel")
        channel.queue_declare(
            "", exclusive=True, callback=lambda frame: on_queue(channel, frame.method.queue)
        )

    def on_queue(channel, queue):
        steps.append("queue")
        channel.basic_consume(
            queue, lambda *_: (steps.append("message"), channel.connection.close()), auto_ack=True
        )
        channel.basic_publish("", queue, b"x")

    connection = pika.SelectConnection(
        parameters, on_open_callback=on_open, on_close_callback=lambda *_: connection.ioloop.stop()
    )
    connection.ioloop.call_later(PATIENCE_S, connection.ioloop.stop)
    connection.ioloop.start()

    assert steps == ["open", "channel", "queue", "message"]


def test_connection_closed_by_client_is_closed(connect):
    connection = connect()
    channel = connection.channel()

    connection.close()

    assert connection.is_closed and channel.is_closed


def test_server_properties_name_what_pika_relies_on(connect):
    connection = connect()

    assert connection.basic_nack_supported
    assert connection.consumer_cancel_notify_supported
    assert connection.exchange_exchange_bindings_supported
    assert connection.publisher_confirms_supported
