"""Whatever a client, link or request had is given back when it ends, without Python's cycle collector: a
broker's process freezes what is there, and a circle of references that is frozen is never found.
"""
import contextlib
import gc
import logging
import socket
import ssl
import struct
from collections import Counter

import pika
import pika.exceptions
import pytest
import requests

from gomq_py import Broker
from gomq_py.client.errors import ConnectionClosed
from gomq_py.client.mqtt import MQTTClient
from gomq_py.federation import exchange_link
from gomq_py.http import live
from gomq_py.storage.segments import idle
from tests.support import certificates
from tests.support.waiting import in_time, wait_until
from tests.support.websockets import Client as WebSocket

CONNECT = b"\x10\x1c\0\4MQTT\x04\xc2\0\x3c\0\x02ws\0\5guest\0\5guest"
RESET = struct.pack("ii", 1, 0)
# Of the test's own side.
CLIENTS = ("gomq_py.client.", "gomq_py.amqp.wire.", "gomq_py.mqtt.wire.")
# Kept on purpose: what changed lately, for viewers; what is being flushed together.
KEPT = ("gomq_py.http.feed.Change", "gomq_py.storage.flush.flushing.NextFlush")


@pytest.fixture(scope="module")
def broker(tmp_path_factory):
    files = certificates.make(tmp_path_factory.mktemp("tls") / "tls")
    logging.disable()  # pytest keeps what is logged, with what it was logged about
    with Broker(mqtt_port=0, http_port=0, amqps_port=0, tls_cert=str(files.certificate),
                tls_key=str(files.key)) as broker:
        mqtt_session_that_is_kept_and_ended(broker)  # its flush has made what each broker has once
        yield broker
    logging.disable(logging.NOTSET)


@pytest.fixture
def no_collector():
    gc.collect()
    gc.disable()
    yield
    gc.enable()


def is_quiet(launcher):
    """Nobody is connected, and no files of segments are being made, wait to be used, or are on their way to
    that: how many depends on how fast threads are.
    """
    pool = launcher._node.broker._pool
    is_busy = pool._in_making or pool.has_unnamed or pool._retiring or pool.resting.count
    if launcher._node.hub.clients or is_busy:
        return False
    pool._drop_spares(None)
    return True


def of_the_broker():
    """How many objects of each of the broker's types there are."""
    counts = Counter()
    for kind, count in Counter(map(type, gc.get_objects())).items():
        name = f"{kind.__module__}.{kind.__qualname__}"
        if name.startswith("gomq_py.") and not name.startswith(CLIENTS) and name not in KEPT:
            counts[name] += count
    return counts


def api(broker, method, path, body=None):
    return requests.request(
        method, f"{broker.http_url}/api/{path}", json=body, auth=("guest", "guest"), timeout=in_time(60))


# kinds of what comes and goes

def amqp_client(broker, url=None, **options):
    connection = pika.BlockingConnection(pika.URLParameters(url or broker.amqp_url), **options)
    channel = connection.channel()
    channel.confirm_delivery()
    queue = channel.queue_declare("", exclusive=True).method.queue
    channel.basic_qos(prefetch_count=2)
    for _ in range(3):
        channel.basic_publish("", queue, b"x")
    channel.basic_consume(queue, lambda *_: None)
    other = connection.channel()
    other.tx_select()
    other.basic_publish("", queue, b"x" * 200_000)
    other.tx_commit()
    connection.process_data_events(0)
    return connection


def amqp(broker):
    amqp_client(broker).close()


def amqp_that_is_cut_off(broker):
    connection = amqp_client(broker)
    connection._impl._transport._sock.setsockopt(socket.SOL_SOCKET, socket.SO_LINGER, RESET)
    connection._impl._transport._sock.close()


def amqp_with_a_wrong_password(broker):
    with contextlib.suppress(pika.exceptions.AMQPError):
        amqp_client(broker, broker.amqp_url.replace(":guest@", ":wrong@"))


def amqp_whose_channel_ends_with_an_error(broker):
    connection = amqp_client(broker)
    with contextlib.suppress(pika.exceptions.AMQPError):
        connection.channel().queue_declare("nowhere", passive=True)
    connection.close()


def amqp_over_tls(broker):
    context = ssl.create_default_context()
    context.check_hostname, context.verify_mode = False, ssl.CERT_NONE
    host, port = broker.addresses["amqps"][:2]
    connection = pika.BlockingConnection(
        pika.ConnectionParameters(host, port, ssl_options=pika.SSLOptions(context)))
    connection.channel().queue_declare("", exclusive=True)
    connection.close()


def stream_reader(broker):
    connection = pika.BlockingConnection(pika.URLParameters(broker.amqp_url))
    channel = connection.channel()
    channel.queue_declare("stream", durable=True, arguments={"x-queue-type": "stream"})
    channel.basic_qos(prefetch_count=5)
    channel.basic_publish("", "stream", b"x")
    channel.basic_consume("stream", lambda *_: None, arguments={"x-stream-offset": "first"})
    connection.process_data_events(0)
    connection.close()


def mqtt_client(broker, version, **options):
    client = MQTTClient(broker.mqtt_url, client_identifier=f"mqtt{version}", version=version, **options)
    client.subscribe("a/+", qos=2)
    client.subscribe("$share/group/a/b", qos=1)
    for qos in (0, 1, 2):
        client.publish("a/b", b"x", qos=qos, retain=qos == 1)
    return client


def mqtt(version):
    def one(broker):
        mqtt_client(broker, version).close()
    one.__name__ = f"mqtt_of_level_{version}"
    return one


def mqtt_that_is_cut_off(broker):
    client = mqtt_client(broker, 5)
    client.socket.setsockopt(socket.SOL_SOCKET, socket.SO_LINGER, RESET)
    client.socket.close()


def mqtt_session_that_is_kept_and_ended(broker):
    mqtt_client(broker, 5, clean_start=False, properties={"session_expiry_interval": 1000}).close()
    assert api(broker, "DELETE", "mqtt/sessions/%2F/mqtt5").status_code == 204


def mqtt_that_is_taken_over(broker):
    first = mqtt_client(broker, 5)
    mqtt_client(broker, 5).close()
    with contextlib.suppress(OSError, ConnectionClosed):
        first.close()


def mqtt_with_a_wrong_password(broker):
    with contextlib.suppress(OSError, ConnectionClosed):
        MQTTClient(broker.mqtt_url.replace(":guest@", ":wrong@"), client_identifier="wrong", version=5)


def mqtt_over_websocket(broker):
    with WebSocket(broker.addresses["http"][1], "/mqtt", "mqtt") as client:
        client.send(CONNECT)
        client.next_frame()


def requests_over_http(broker):
    with requests.Session() as session:
        session.auth = ("guest", "guest")
        for path in ("overview", "queues", "connections", "definitions", "nowhere", "queues/%2F/nowhere"):
            session.get(f"{broker.http_url}/api/{path}", timeout=in_time(60))
        session.put(f"{broker.http_url}/api/queues/%2F/made", json={"arguments": 7}, timeout=in_time(60))
        session.post(f"{broker.http_url}/api/definitions", data=iter([b"{", b"}"]), timeout=in_time(60))
        requests.get(f"{broker.http_url}/api/overview", timeout=in_time(60))


def events_that_are_followed(broker):
    """Its end is noticed when something is written to it."""
    requests.get(
        f"{broker.http_url}/api/events", auth=("guest", "guest"), headers={"Accept": "text/event-stream"},
        stream=True, timeout=in_time(60)).close()

    def is_noticed():
        api(broker, "PUT", "queues/%2F/followed")
        api(broker, "DELETE", "queues/%2F/followed")
        return not of_the_broker()["gomq_py.http.live._Stream"]
    wait_until(is_noticed)


def shovel(broker):
    api(broker, "PUT", "queues/%2F/source", {"durable": True})
    answer = api(broker, "PUT", "parameters/shovel/%2F/s", {"value": {
        "src-uri": broker.amqp_url, "src-queue": "source", "dest-uri": "amqp://", "dest-queue": "target"}})
    assert answer.status_code < 300, answer.text
    wait_until(lambda: [one.get("state") for one in api(broker, "GET", "shovels").json()] == ["running"])
    api(broker, "DELETE", "parameters/shovel/%2F/s")


def federation(broker):
    upstream = {"uri": broker.amqp_url.rpartition("/")[0] + "/up"}
    for path, body in (
            ("vhosts/up", {}), ("permissions/up/guest", {"configure": ".*", "write": ".*", "read": ".*"}),
            ("parameters/federation-upstream/%2F/u", {"value": upstream}),
            ("exchanges/%2F/federated", {"type": "topic"}),
            ("policies/%2F/f", {"pattern": "^federated$", "definition": {"federation-upstream": "u"}})):
        assert api(broker, "PUT", path, body).status_code < 300
    wait_until(
        lambda: [one.get("status") for one in api(broker, "GET", "federation-links").json()] == ["running"])
    for path in ("policies/%2F/f", "exchanges/%2F/federated", "parameters/federation-upstream/%2F/u"):
        api(broker, "DELETE", path)


@pytest.mark.parametrize("kind", [
    amqp, amqp_that_is_cut_off, amqp_with_a_wrong_password, amqp_whose_channel_ends_with_an_error,
    amqp_over_tls, stream_reader, mqtt(3), mqtt(4), mqtt(5), mqtt_that_is_cut_off,
    mqtt_session_that_is_kept_and_ended, mqtt_that_is_taken_over, mqtt_with_a_wrong_password,
    mqtt_over_websocket, requests_over_http, events_that_are_followed, shovel, federation,
], ids=lambda kind: kind.__name__)
def test_nothing_of_what_has_ended_is_left_for_the_collector(broker, no_collector, kind, monkeypatch):
    monkeypatch.setattr(exchange_link, "LINGER_S", 0)
    monkeypatch.setattr(live, "PAUSE_S", 0)
    monkeypatch.setattr(idle, "REST_MS", 1)
    for _ in range(2):  # imports, caches, the queue that the kind uses
        kind(broker)
    wait_until(lambda: broker.call(is_quiet))
    before = of_the_broker()

    for _ in range(3):
        kind(broker)

    left = Counter()

    def is_given_back():
        broker.call(is_quiet)
        left.clear()
        left.update(of_the_broker() - before)
        return not left
    wait_until(is_given_back, what=lambda: f"{dict(left)} to go")
