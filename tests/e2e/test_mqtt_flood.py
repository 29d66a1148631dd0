"""A flood at QoS 0 to subscribers that read all, but more slowly than it comes: nothing is dropped."""
import socket
import threading
from urllib.parse import urlsplit

import paho.mqtt.client as paho
import pytest

from gomq_py import Broker
from tests.support.mqtt_publishing import publish
from tests.support.paho_client import mqtt_port
from tests.support.waiting import in_time

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


@pytest.mark.parametrize("transport", ["tcp", "websockets"])
def test_paho_gets_all_of_a_flood(transport):
    with Broker(mqtt_port=0, http_port=0) as broker:
        port = broker.call(mqtt_port)
        numbers = Numbers(urlsplit(broker.http_url).port if transport == "websockets" else port, transport)
        publisher = socket.create_connection(("127.0.0.1", port), TIMEOUT_S)
        publisher.sendall(CONNECT)
        assert publisher.recv(4, socket.MSG_WAITALL) == CONNACK

        publisher.sendall(b"".join(publish(b"t", b"%05d" % number + bytes(1019)) for number in range(COUNT)))

        assert numbers.done.wait(TIMEOUT_S)
        assert (numbers.count, numbers.in_order) == (COUNT, True)
        publisher.close()
        numbers.paho.disconnect()
        numbers.paho.loop_stop()
