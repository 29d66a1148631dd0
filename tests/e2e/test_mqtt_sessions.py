"""Sessions and subscriptions from outside: paho-mqtt publishes, subscribes, comes back and is taken over."""
from queue import Queue

import paho.mqtt.client as paho
import pytest
from paho.mqtt.packettypes import PacketTypes
from paho.mqtt.properties import Properties
from paho.mqtt.subscribeoptions import SubscribeOptions

from gomq_py import Broker
from tests.support.waiting import in_time

PATIENCE_S = in_time(30)
VERSIONS = paho.MQTTv31, paho.MQTTv311, paho.MQTTv5


@pytest.fixture(scope="module")
def broker():
    with Broker(mqtt_port=0) as broker:
        yield broker


@pytest.fixture
def make_client(broker):
    """A function that connects a client; all leave with the test."""
    made = []

    def make(client_id, version=paho.MQTTv5, at=broker, **options):
        made.append(Client(at, client_id, version, **options))
        return made[-1]

    yield make
    for client in made:
        client.leave()


class Client:
    """``received``: a Queue of (topic, payload, qos)."""

    def __init__(self, broker, client_id, version, clean=True, expiry_s=None):
        self.received, self.ends = Queue(), Queue()
        self._answers = Queue()
        options = {"clean_session": clean} if version != paho.MQTTv5 else {}
        self.paho = paho.Client(
            paho.CallbackAPIVersion.VERSION2, client_id, protocol=version, reconnect_on_failure=False,
            **options)
        self.paho.username_pw_set("guest", "guest")
        self.paho.on_connect = lambda _c, _d, flags, reason, props: self._answers.put((flags, reason, props))
        self.paho.on_disconnect = lambda _c, _d, _flags, reason, _props: self.ends.put(reason)
        self.paho.on_subscribe = lambda _c, _d, _id, codes, _props: self._answers.put(codes)
        self.paho.on_unsubscribe = lambda _c, _d, _id, codes, _props: self._answers.put(codes)
        self.paho.on_message = lambda _c, _d, one: self.received.put((one.topic, one.payload, one.qos))
        connect = {}
        if version == paho.MQTTv5:
            connect["clean_start"] = clean
            if expiry_s is not None:
                connect["properties"] = Properties(PacketTypes.CONNECT)
                connect["properties"].SessionExpiryInterval = expiry_s
        self.paho.connect("127.0.0.1", mqtt_port(broker), **connect)
        self.paho.loop_start()
        flags, self.reason, self.properties = self._answer()
        self.session_present = flags.session_present

    def _answer(self):
        return self._answers.get(timeout=PATIENCE_S)

    def subscribe(self, topic_filter, qos=1, **options):
        """The reason codes of SUBACK."""
        if options:
            self.paho.subscribe(topic_filter, options=SubscribeOptions(qos, **options))
        else:
            self.paho.subscribe(topic_filter, qos)
        return [code.value for code in self._answer()]

    def unsubscribe(self, topic_filter):
        self.paho.unsubscribe(topic_filter)
        self._answer()

    def publish(self, topic, payload, qos=1):
        """Returns when it has been acknowledged."""
        info = self.paho.publish(topic, payload, qos)
        info.wait_for_publish(PATIENCE_S)
        assert info.is_published()

    def next(self):
        return self.received.get(timeout=PATIENCE_S)

    def leave(self):
        self.paho.disconnect()
        self.paho.loop_stop()

    def vanish(self):
        """Without DISCONNECT."""
        self.paho.loop_stop()
        self.paho.socket().close()


def mqtt_port(broker):
    def port(launcher):
        return next(listener.port for listener in launcher.listeners if listener.protocol == "mqtt")

    return broker.call(port)


@pytest.mark.parametrize("version", VERSIONS)
@pytest.mark.parametrize("qos", [0, 1, 2])
def test_what_one_client_publishes_others_get(make_client, version, qos):
    subscriber = make_client(f"s{version}{qos}", version)
    publisher = make_client(f"p{version}{qos}", version)
    assert subscriber.subscribe(f"to/{version}/{qos}/+", 2) == [2]

    for number in range(20):
        publisher.publish(f"to/{version}/{qos}/x", b"%d" % number, qos)

    assert [subscriber.next() for _ in range(20)] == [
        (f"to/{version}/{qos}/x", b"%d" % number, qos) for number in range(20)
    ]


@pytest.mark.parametrize("version", VERSIONS)
def test_session_that_is_kept_has_what_came_meanwhile(make_client, version):
    options = {"expiry_s": 60} if version == paho.MQTTv5 else {}
    first = make_client(f"kept{version}", version, clean=False, **options)
    first.subscribe(f"kept/{version}/#")
    first.leave()
    publisher = make_client(f"keeper{version}", version)
    publisher.publish(f"kept/{version}/a", b"1")

    again = make_client(f"kept{version}", version, clean=False, **options)

    assert (first.session_present, again.session_present) == (False, version != paho.MQTTv31)
    assert again.next() == (f"kept/{version}/a", b"1", 1)
    publisher.publish(f"kept/{version}/a", b"2")
    assert again.next() == (f"kept/{version}/a", b"2", 1)


def test_second_client_of_an_id_takes_over(make_client):
    first = make_client("both", expiry_s=60)
    first.subscribe("both/#")

    second = make_client("both", clean=False, expiry_s=60)
    make_client("other").publish("both/1", b"x")

    assert first.ends.get(timeout=PATIENCE_S) == "Session taken over"
    assert second.session_present and second.next() == ("both/1", b"x", 1)
    assert first.received.empty()


def test_subscription_that_has_ended_brings_nothing(make_client):
    client = make_client("ends")
    client.subscribe("ends/a")
    client.subscribe("ends/b")

    client.unsubscribe("ends/a")
    client.publish("ends/a", b"not for it")
    client.publish("ends/b", b"for it")

    assert client.next() == ("ends/b", b"for it", 1)


def test_what_is_shared_goes_to_one_member_each(make_client):
    members = [make_client(f"member{number}") for number in range(3)]
    for member in members:
        assert member.subscribe("$share/all/work/+") == [1]
    publisher = make_client("sharer")

    for number in range(6):
        publisher.publish("work/x", b"%d" % number)

    assert [[member.next()[1], member.next()[1]] for member in members] == [
        [b"0", b"3"], [b"1", b"4"], [b"2", b"5"]
    ]
