"""A broker that was closed leaves nothing in the program that embedded it: no descriptor, mapping, thread,
greenlet or object of its own.
"""
import contextlib
import gc
import logging
import select
import socket
import ssl
import threading

import pika
import pytest
import requests

import gomq_py
from gomq_py.amqp.wire.frames import PROTOCOL_HEADER, method_frame
from gomq_py.amqp.wire.methods import ConnectionStartOk
from tests.support import certificates
from tests.support.resources import held
from tests.support.waiting import in_time, wait_until

ROUNDS = 3
# what a client logs in with, and what the answer to it has
LOGINS = {
    "amqp": (PROTOCOL_HEADER + method_frame(0, ConnectionStartOk(
        client_properties={"capabilities": {"authentication_failure_close": True}}, mechanism="PLAIN",
        response=b"\0guest\0wrong", locale="en_US")), b"ACCESS_REFUSED"),
    "mqtt": (b"\x10\x1c\0\4MQTT\x04\xc2\0\x3c\0\x02id\0\5guest\0\5wrong", b"\x20\x02\0"),
}
KINDS = {
    "classic": {}, "priority": {"x-max-priority": 3}, "stream": {"x-queue-type": "stream"},
    "delayed": {"x-delayed-retry-type": "all"},
    "expiring": {"x-message-ttl": 60_000, "x-dead-letter-exchange": "amq.fanout"},
}


@pytest.fixture(autouse=True)
def no_log():
    """Pytest keeps what is logged, with what it was logged about."""
    logging.disable()
    yield
    logging.disable(logging.NOTSET)


@pytest.fixture(autouse=True)
def nothing_but_the_test_is_looked_at():
    """What the process holds by now is kept out of the collector, which takes half a second for all that a
    run of many tests has left.
    """
    gc.collect()
    gc.freeze()


def leftovers(work):
    """What ``work()`` leaves in this process each time,
    beyond what its first times bring in (imports, caches).
    """
    work()
    work()
    before = held()
    for _ in range(ROUNDS):
        work()
    left = []

    def nothing_is_left():
        left[:] = held().more_than(before)  # a thread that was told to end does so a moment later
        return not left

    with contextlib.suppress(AssertionError):
        wait_until(nothing_is_left)
    return left


@contextlib.contextmanager
def connected(broker, **options):
    """A client that stays until the broker closes, and answers its farewell as clients do."""
    connection = pika.BlockingConnection(pika.URLParameters(broker.amqp_url))
    yield connection
    closing = threading.Thread(target=broker.close)
    closing.start()
    with pytest.raises(pika.exceptions.AMQPConnectionError):
        while True:
            connection.process_data_events(time_limit=0.1)
    closing.join()


def test_brokers_that_nobody_spoke_to():
    def work():
        with gomq_py.Broker():
            pass

    assert leftovers(work) == []


@pytest.mark.parametrize("arguments", KINDS.values(), ids=KINDS)
def test_queues_of_each_kind_with_messages_a_consumer_and_a_transaction(tmp_path, arguments):
    def work():
        broker = gomq_py.Broker(tmp_path / "data").start()
        with connected(broker) as connection:
            channel = connection.channel()
            channel.queue_declare("q", durable=True, arguments=arguments)
            channel.confirm_delivery()
            for _ in range(20):
                channel.basic_publish("", "q", bytes(2000), pika.BasicProperties(delivery_mode=2))
            channel.basic_qos(prefetch_count=5)
            channel.basic_consume("q", lambda *_: None)
            connection.process_data_events(time_limit=0)
            other = connection.channel()
            other.queue_declare("", exclusive=True)
            other.tx_select()
            other.basic_publish("", "q", b"never committed")

    assert leftovers(work) == []


def test_clients_that_never_log_in_stop_halfway_or_just_go():
    starts = (b"", b"AMQP\0\0\x09\x01", b"GET / HTTP/1.1\r\n", b"AMQP\0\0\x09\x01\x01\0\0\0\0\0\xff")

    def work():
        with gomq_py.Broker() as broker, contextlib.ExitStack() as clients:
            for octets in starts:
                for goes in (True, False):
                    client = socket.create_connection(broker.addresses["amqp"])
                    client.sendall(octets)
                    if goes:
                        client.close()
                        continue
                    clients.callback(client.close)
                    assert not octets or client.recv(1)  # the broker has begun with it

    assert leftovers(work) == []


@pytest.mark.parametrize("protocol", LOGINS)
def test_logins_that_wait_because_others_failed(protocol):
    """Ten wrong passwords are checked at once, and those behind them wait, unread."""
    login, answer = LOGINS[protocol]

    def work():
        with gomq_py.Broker(mqtt_port=0) as broker, contextlib.ExitStack() as clients:
            waiting = []
            for _ in range(20):
                client = clients.enter_context(socket.create_connection(broker.addresses[protocol]))
                client.sendall(login)
                waiting.append(client)
            while len(waiting) > 10:
                for client in select.select(waiting, [], [], in_time(30))[0]:
                    if answer in client.recv(4096):
                        waiting.remove(client)

    assert leftovers(work) == []


def test_clients_over_tls(tmp_path):
    files = certificates.make(tmp_path / "tls")
    context = ssl.create_default_context(cafile=files.authority)

    def work():
        with gomq_py.Broker(amqps_port=0, tls_cert=files.certificate, tls_key=files.key) as broker:
            host, port = broker.addresses["amqps"]
            unfinished = socket.create_connection((host, port))
            connection = pika.BlockingConnection(
                pika.ConnectionParameters(host, port, ssl_options=pika.SSLOptions(context, "127.0.0.1")))
            connection.channel().queue_declare("q")
            connection.close()
            unfinished.close()

    assert leftovers(work) == []


def test_the_management_api_its_metrics_and_its_control_socket(tmp_path):
    def work():
        settings = {"http_port": 0, "metrics_http_port": 0, "control_unix_path": str(tmp_path / "control")}
        with gomq_py.Broker(
            tmp_path / "data", **settings
        ) as broker, requests.Session() as session, socket.socket(socket.AF_UNIX) as control:
            control.connect(str(tmp_path / "control"))
            control.sendall(b"GET /api/overview HTTP/1.1\r\nHost: x\r\n\r\n")
            assert control.recv(20).startswith(b"HTTP/1.1 200")
            for path in ("overview", "queues?lengths_age=60&lengths_incr=5", "connections", "definitions"):
                assert session.get(
                    f"{broker.http_url}/api/{path}", auth=("guest", "guest"), timeout=in_time(60)
                ).ok
            host, port = broker.addresses["metrics"]
            assert session.get(f"http://{host}:{port}/metrics", timeout=in_time(60)).ok

    assert leftovers(work) == []


def test_brokers_that_cannot_start():
    with socket.create_server(("127.0.0.1", 0)) as taken:
        def work():
            with pytest.raises(Exception, match="in use"):
                gomq_py.Broker(amqp_port=taken.getsockname()[1]).start()

        assert leftovers(work) == []
