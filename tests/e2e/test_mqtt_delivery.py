"""What paho-mqtt is sent: every QoS, both ways of publishing, connections that come and go."""
import queue
import threading

import paho.mqtt.client as paho
import pytest
from paho.mqtt.packettypes import PacketTypes
from paho.mqtt.properties import Properties

from gomq_py import Broker
from tests.support.waiting import in_time

TIMEOUT_S = in_time(30)
VERSIONS = [paho.MQTTv31, paho.MQTTv311, paho.MQTTv5]


@pytest.fixture(scope="module")
def broker():
    with Broker(mqtt_port=0) as broker:
        yield broker


def mqtt_port(launcher):
    return next(listener.port for listener in launcher.listeners if listener.protocol == "mqtt")


class Client:
    """A client of paho's; ``got`` is a queue of what it was sent."""

    def __init__(self, broker, client_id, version=paho.MQTTv5, is_kept=False):
        self.got, self.subscribed, self.connected = queue.Queue(), threading.Event(), threading.Event()
        options, connect = {}, {}
        if version == paho.MQTTv5:
            connect["clean_start"] = not is_kept
            connect["properties"] = Properties(PacketTypes.CONNECT)
            connect["properties"].SessionExpiryInterval = 1000 if is_kept else 0
        else:
            options["clean_session"] = not is_kept
        self.paho = paho.Client(
            paho.CallbackAPIVersion.VERSION2, client_id=client_id, protocol=version, **options)
        self.paho.username_pw_set("guest", "guest")
        self.paho.on_message = lambda _client, _data, message: self.got.put(message)
        self.paho.on_subscribe = lambda *_: self.subscribed.set()
        self.paho.on_connect = lambda *_: self.connected.set()
        self.paho.connect("127.0.0.1", broker.call(mqtt_port), **connect)
        self.paho.loop_start()
        assert self.connected.wait(TIMEOUT_S)

    def subscribe(self, topic_filter, qos):
        self.subscribed.clear()
        self.paho.subscribe(topic_filter, qos)
        assert self.subscribed.wait(TIMEOUT_S)
        return self

    def next(self):
        return self.got.get(timeout=TIMEOUT_S)

    def publish(self, topic, *payloads, qos=0):
        for payload in payloads:
            told = self.paho.publish(topic, payload, qos)
        told.wait_for_publish(TIMEOUT_S)

    def close(self):
        self.paho.disconnect()
        self.paho.loop_stop()


@pytest.mark.parametrize("qos", [0, 1, 2])
@pytest.mark.parametrize("version", VERSIONS)
def test_messages_come_in_order_at_their_qos(broker, version, qos):
    payloads = [b"%d" % number for number in range(50)]
    subscriber = Client(broker, f"sub-{version}-{qos}", version).subscribe(f"t/{version}/{qos}/+", qos)
    publisher = Client(broker, f"pub-{version}-{qos}", version)

    publisher.publish(f"t/{version}/{qos}/x", *payloads, qos=qos)

    got = [subscriber.next() for _ in payloads]
    assert [message.payload for message in got] == payloads
    assert {(message.topic, message.qos, message.dup) for message in got} == {
        (f"t/{version}/{qos}/x", qos, False)}
    publisher.close()
    subscriber.close()


@pytest.mark.parametrize("version", VERSIONS)
def test_kept_session_gets_what_came_meanwhile(broker, version):
    client_id = f"kept-{version}"
    Client(broker, client_id, version, is_kept=True).subscribe(f"kept/{version}", 2).close()
    publisher = Client(broker, f"to-{client_id}", version)
    publisher.publish(f"kept/{version}", b"1", b"2", qos=2)

    again = Client(broker, client_id, version, is_kept=True)

    assert [again.next().payload for _ in range(2)] == [b"1", b"2"]
    again.close()
    publisher.close()
