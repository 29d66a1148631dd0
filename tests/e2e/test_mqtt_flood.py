"""A flood at QoS 0 to subscribers that read all, but more slowly than it comes: nothing is dropped."""
import re
import socket
import threading
from urllib.parse import urlsplit

import paho.mqtt.client as paho
import pika
import pytest
import requests

from gomq_py import Broker
from tests.support.mosquitto_process import MosquittoProcess
from tests.support.mqtt_publishing import publish
from tests.support.paho_client import mqtt_port
from tests.support.waiting import in_time, wait_until

TIMEOUT_S = in_time(60)
COUNT = 20_000
CONNECT = b"\x10\x1b\x00\x04MQTT\x04\xc2\x00\x3c\x00\x01p\x00\x05guest\x00\x05guest"
CONNACK = b"\x20\x02\x00\x00"


class Numbers:
    """A paho client that counts what it gets: ``count``, ``last``, and whether all came ``in_order``."""

    def __init__(self, port, transport):
        self.count, self.last, self.in_order = 0, -1, True
        self.ready, self.done = threading.Event(), threading.Event()
        self.paho = paho.Client(
            paho.CallbackAPIVersion.VERSION2, client_id="s", protocol=paho.MQTTv311, transport=transport)
        self.paho.username_pw_set("guest", "guest")
        self.paho.ws_set_options(path="/ws/mqtt")
        self.paho.on_message = self._got
        self.paho.on_connect = lambda *_: self.paho.subscribe("t", 0)
        self.paho.on_subscribe = lambda *_: self.ready.set()
        self.paho.connect("127.0.0.1", port)
        self.paho.loop_start()
        assert self.ready.wait(TIMEOUT_S)

    def _got(self, _client, _data, message):
        number = int(message.payload[:5])
        self.in_order = self.in_order and number > self.last
        self.last = number
        self.count += 1
        if number == COUNT - 1:
            self.done.set()


@pytest.fixture(scope="module")
def broker():
    with Broker(mqtt_port=0, http_port=0) as broker:
        yield broker


def connected(broker):
    """A socket whose client, "p", is logged in."""
    opened = socket.create_connection(("127.0.0.1", broker.call(mqtt_port)), TIMEOUT_S)
    opened.sendall(CONNECT)
    assert opened.recv(4, socket.MSG_WAITALL) == CONNACK
    return opened


def flood(broker, numbers):
    """Publish COUNT messages as fast as the broker reads: the client must get all."""
    with connected(broker) as publisher:
        publisher.sendall(b"".join(publish(b"t", b"%05d" % number + bytes(1019)) for number in range(COUNT)))
        assert numbers.done.wait(TIMEOUT_S)
    assert (numbers.count, numbers.in_order) == (COUNT, True)
    numbers.paho.disconnect()
    numbers.paho.loop_stop()


@pytest.mark.parametrize("transport", ["tcp", "websockets"])
def test_paho_gets_all_of_a_flood(broker, transport):
    port = urlsplit(broker.http_url).port if transport == "websockets" else broker.call(mqtt_port)

    flood(broker, Numbers(port, transport))


def test_bridge_of_mosquitto_gets_all_of_a_flood(broker, tmp_path):
    bridge = (
        "connection b", f"address 127.0.0.1:{broker.call(mqtt_port)}", "topic t in 0",
        "remote_username guest", "remote_password guest")
    with MosquittoProcess(tmp_path, *bridge) as mosquitto:
        api = f"{broker.http_url}/api/mqtt/subscriptions/%2F"
        wait_until(lambda: '"t"' in requests.get(api, auth=("guest", "guest"), timeout=TIMEOUT_S).text)

        flood(broker, Numbers(mosquitto.port, "tcp"))


def test_amqp_publisher_is_delayed_once_by_a_subscriber_that_reads_nothing(broker):
    """And what the subscriber lost is counted."""
    with connected(broker) as stuck:
        stuck.sendall(b"\x82\x06\x00\x01\x00\x01t\x00")
        assert stuck.recv(5, socket.MSG_WAITALL) == b"\x90\x03\x00\x01\x00"
        with pika.BlockingConnection(pika.URLParameters(broker.url())) as connection:
            channel = connection.channel()
            for _ in range(400):
                channel.basic_publish("amq.topic", "t", bytes(60_000))
            assert channel.queue_declare("", exclusive=True).method.message_count == 0

        text = requests.get(f"{broker.http_url}/metrics", auth=("guest", "guest"), timeout=TIMEOUT_S).text
        (dropped,) = re.findall(r"^gomq_mqtt_messages_dropped_total (\d+)", text, re.MULTILINE)
        assert 0 < int(dropped) < 400
