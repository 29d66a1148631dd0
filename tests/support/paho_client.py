"""A client of paho's whose network thread runs, for tests: what it was sent lies in a queue."""
import queue
import threading

import paho.mqtt.client as paho
from paho.mqtt.packettypes import PacketTypes
from paho.mqtt.properties import Properties

from tests.support.waiting import in_time

TIMEOUT_S = in_time(30)


def mqtt_port(launcher):
    """Where an embedded broker listens; for Broker.call."""
    return next(listener.port for listener in launcher.listeners if listener.protocol == "mqtt")


class PahoClient:
    """Connected with a clean session when it is made; ``got`` has what it was sent, ``taken`` the reason
    codes of what it published. ``port``: of a broker that is not embedded.
    """

    def __init__(self, broker, client_id, version=paho.MQTTv5, port=None):
        self.got, self.told = queue.Queue(), queue.Queue()
        self.taken = []
        self.version = version
        self.paho = paho.Client(paho.CallbackAPIVersion.VERSION2, client_id=client_id, protocol=version)
        self.paho.username_pw_set("guest", "guest")
        connected = threading.Event()
        self.paho.on_message = lambda _client, _data, message: self.got.put(message)
        self.paho.on_subscribe = lambda *_: self.told.put(None)
        self.paho.on_publish = lambda _client, _data, _id, reason, _properties: self.taken.append(reason)
        self.paho.on_connect = lambda *_: connected.set()
        self.paho.connect("127.0.0.1", port or broker.call(mqtt_port))
        self.paho.loop_start()
        assert connected.wait(TIMEOUT_S)

    def subscribe(self, topic_filter, qos=1):
        """Subscribed, when this returns."""
        self.paho.subscribe(topic_filter, qos)
        self.told.get(timeout=TIMEOUT_S)
        return self

    def publish(self, topic, payload=b"", qos=1, retain=False, **values):
        """Published, and acknowledged. ``values``: properties by paho's names."""
        properties = None
        if values:
            properties = Properties(PacketTypes.PUBLISH)
            for name, value in values.items():
                setattr(properties, name, value)
        self.paho.publish(topic, payload, qos, retain, properties).wait_for_publish(TIMEOUT_S)

    def next(self):
        """The next message it is sent."""
        return self.got.get(timeout=TIMEOUT_S)

    def close(self):
        """Leave."""
        self.paho.disconnect()
        self.paho.loop_stop()
