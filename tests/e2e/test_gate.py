"""A whole broker whose gate is shut: nothing leaves it, and all goes on where it was once it is open."""
import threading

import pika
import pytest
import requests

from gomq_py import Broker
from tests.support.federated import LOGIN
from tests.support.hook_server import HookServer
from tests.support.shovels import Shovelled
from tests.support.waiting import in_time, wait_until

# Long enough for what must not come: a delivery takes a millisecond.
NOTHING_S = 0.2


@pytest.fixture(scope="module")
def broker():
    with Broker(http_port=0, mqtt_port=0, links_http_hosts_allowed="127.0.0.0/8", sync=False) as broker:
        yield broker


@pytest.fixture
def gate(broker):
    """The gate; ``shut`` and ``open`` run in the broker's thread."""
    class Gate:
        def shut(self):
            broker.call(lambda launcher: launcher.hub.gate.shut())

        def open(self):
            broker.call(lambda launcher: launcher.hub.gate.open())

    yield Gate()
    Gate().open()


@pytest.fixture
def connection(broker):
    with pika.BlockingConnection(pika.URLParameters(broker.amqp_url)) as connection:
        yield connection


@pytest.mark.parametrize("arguments", [{}, {"x-max-priority": 3}, {"x-queue-type": "stream"}])
def test_consumer_gets_what_was_published_behind_a_shut_gate_once_it_is_open(connection, gate, arguments):
    channel, other = connection.channel(), connection.channel()
    queue = f"consumed {sorted(arguments)}"
    channel.queue_declare(queue, durable=True, arguments=arguments)
    got = []
    channel.basic_qos(prefetch_count=100)
    channel.basic_consume(queue, lambda *delivery: got.append(delivery[3]))
    other.confirm_delivery()
    other.basic_publish("", queue, b"before")
    wait_until(lambda: connection.process_data_events(0.01) or got == [b"before"])

    gate.shut()
    for number in range(5):
        other.basic_publish("", queue, b"%d" % number)
    connection.process_data_events(NOTHING_S)
    assert got == [b"before"]

    gate.open()
    wait_until(lambda: connection.process_data_events(0.01) or len(got) == 6)
    assert got == [b"before", b"0", b"1", b"2", b"3", b"4"]


def test_basic_get_waits_until_the_gate_is_open(connection, gate):
    channel = connection.channel()
    channel.queue_declare("got", durable=True)
    channel.basic_publish("", "got", b"one")
    gate.shut()

    timer = threading.Timer(NOTHING_S, gate.open)
    timer.start()
    method, _, body = channel.basic_get("got", auto_ack=True)
    timer.join()

    assert (method is not None, body) == (True, b"one")


def test_management_get_waits_until_the_gate_is_open(broker, connection, gate):
    channel = connection.channel()
    channel.queue_declare("shown", durable=True)
    channel.basic_publish("", "shown", b"one")
    wait_until(lambda: channel.queue_declare("shown", passive=True).method.message_count == 1)
    gate.shut()

    timer = threading.Timer(NOTHING_S, gate.open)
    timer.start()
    answer = requests.post(
        f"{broker.http_url}/api/queues/%2F/shown/get", auth=LOGIN, timeout=in_time(20),
        json={"count": 1, "ackmode": "ack_requeue_true", "encoding": "auto"})
    timer.join()

    assert [message["payload"] for message in answer.json()] == ["one"]


def test_webhook_posts_nothing_behind_a_shut_gate(broker, gate, request):
    shovel = Shovelled(broker, request.node.name)
    try:
        with HookServer() as server:
            shovel.start(server.url("/in"))
            shovel.publish(b"before")
            server.wait_for(1)
            gate.shut()
            shovel.publish(b"behind")
            with pytest.raises(AssertionError):
                wait_until(lambda: len(server.requests) > 1, timeout_s=NOTHING_S)

            gate.open()
            server.wait_for(2)
            assert server.bodies == [b"before", b"behind"]
    finally:
        shovel.close()
