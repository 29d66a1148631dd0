"""Locust users that speak MQTT, to derive scenarios from. On paho, whose network thread is a greenlet here:
Locust patches the standard library.

What they do is told to Locust's statistics under the type MQTT: how long a connect took, and a publish (at
QoS 1 up to the broker's PUBACK).
"""

import itertools
import os
import threading
import time
from urllib.parse import unquote, urlsplit

import paho.mqtt.client as paho

from load.amqp_user import ACCOUNT, PREFIX, TellingUser, next_publisher

# As long as a Producer waits for its confirms: a durable write waits for the disk, which may be busy.
ANSWER_S = 30
_names = itertools.count()


def mqtt_url(host):
    """The URL of a broker: LOAD_MQTT_URL, or the machine of Locust's --host with guest's login."""
    return os.environ.get("LOAD_MQTT_URL") or f"mqtt://guest:guest@{urlsplit(host).hostname}:1883"


class MqttUser(TellingUser):
    """Connects when it starts, with a clean session.

    Derive from it, subscribe in ``prepare`` and give it tasks: ``publish`` tells Locust. What is subscribed
    to comes to ``received``, in paho's greenlet.
    """

    abstract = True
    protocol = "MQTT"
    keepalive_s = 30

    def on_start(self):
        """Locust starts the user."""
        self.client = paho.Client(
            paho.CallbackAPIVersion.VERSION2, client_id=f"{PREFIX}.{next(_names)}", protocol=paho.MQTTv311
        )
        url = urlsplit(mqtt_url(self.host))
        if url.username:
            self.client.username_pw_set(unquote(url.username), unquote(url.password or ""))
        if url.scheme == "mqtts":
            self.client.tls_set()
        self.client.on_message = lambda _client, _data, message: self.received(message)
        port = url.port or (8883 if url.scheme == "mqtts" else 1883)
        self.timed("connect", self._connect, url.hostname, port)
        self.prepare()

    def on_stop(self):
        """Locust ends it."""
        self.client.disconnect()
        self.client.loop_stop()

    def prepare(self):
        """Subscribe to what the scenario needs."""

    def received(self, message):
        """A message came; ``message`` is paho's."""

    def subscribe(self, topic_filter, qos=0):
        """Returns once the broker has taken the subscription. Raises ConnectionError."""
        taken = threading.Event()
        self.client.on_subscribe = lambda *_: taken.set()
        self.client.subscribe(topic_filter, qos)
        if not taken.wait(ANSWER_S):
            raise ConnectionError(f"no SUBACK within {ANSWER_S} s")

    def publish(self, topic, payload, qos=0, name="publish"):
        """One message; at QoS 1 it returns once the broker has acknowledged it."""
        self.timed(f"{name} QoS {qos}", self._publish, topic, payload, qos, octets=len(payload))

    def _connect(self, host, port):
        answered, codes = threading.Event(), []

        def connected(_client, _data, _flags, code, _properties):
            codes.append(code)
            answered.set()

        self.client.on_connect = connected
        self.client.connect(host, port, self.keepalive_s)
        self.client.loop_start()
        if not answered.wait(ANSWER_S):
            raise ConnectionError(f"no CONNACK within {ANSWER_S} s")
        if codes[0].is_failure:
            raise ConnectionError(f"the broker lets nobody in: {codes[0]}")

    def _publish(self, topic, payload, qos):
        sent = self.client.publish(topic, payload, qos)
        try:
            sent.wait_for_publish(ANSWER_S)
        except (RuntimeError, ValueError) as error:  # paho: there is no connection, its queue is full
            raise ConnectionError(str(error)) from None
        if not sent.is_published():
            raise ConnectionError(f"no PUBACK within {ANSWER_S} s" if qos else "the packet was not sent")


class AccountedUser(MqttUser):
    """``publish_accounted`` sends what is in the account once the broker has acknowledged it, in the form
    that load.amqp_user.ConsumingUser reads.
    """

    abstract = True
    size = 64

    def on_start(self):
        self.number, self._sent = next_publisher(), 0
        super().on_start()

    def publish_accounted(self, topic, name="publish"):
        """At QoS 1."""
        number, self._sent = self._sent, self._sent + 1
        body = b"%d %d %d " % (self.number, number, time.time_ns()) + b"x" * self.size
        self.publish(topic, body, 1, name)
        ACCOUNT.confirmed(self.number, [number])
