"""SIGKILL of a real broker, and lost connections of its MQTT clients, at random moments: what was published
at QoS 1 comes at least once, at QoS 2 exactly once and in order; retained messages and wills outlive it.

``make kills`` is 200 of them. A client keeps its session (gomq_py.client.mqtt.Session) over the loss of its
connection as MQTT asks of a client that outlives a crash: what it has sent and not had acknowledged, and what
it has received at QoS 2 and not been released from.
"""
import os
import signal
import threading
from random import Random

import pytest

from gomq_py.client.connection import Connection
from gomq_py.client.errors import ClientError, Refused
from gomq_py.client.mqtt import MQTTClient, Session
from gomq_py.mqtt.wire.packets import PublishPacket, Subscription, Will
from tests.durability.seeds import seeds
from tests.support.waiting import TIMEOUT_S, in_time

KILLS = int(os.environ.get("GOMQ_MQTT_KILLS", "6"))
WINDOW = 60
GONE = (ClientError, OSError)


class Party:
    """A client with a session that lasts, which connects again after each loss."""

    def __init__(self, name, version):
        self.name, self.version = name, version
        self.session = Session()
        self.client = None
        self.connections = 0

    def connect(self, port):
        """Begin or go on with the session."""
        self.drop()
        self.client = MQTTClient(
            f"mqtt://guest:guest@127.0.0.1:{port}", version=self.version, client_identifier=self.name,
            clean_start=False, session=self.session, timeout_s=TIMEOUT_S,
            properties={"session_expiry_interval": 3600} if self.version == 5 else None)
        assert self.client.connack.session_present == (self.connections > 0), f"the session of {self.name}"
        self.connections += 1

    def drop(self):
        """The connection is gone, without a word."""
        if self.client is not None:
            self.client.abort()
            self.client = None


class Publisher(Party):
    """Publishes numbers, at QoS 1 to k/1 and at QoS 2 to k/2, and now and then a retained one to k/kept."""

    def __init__(self, version):
        super().__init__("publisher", version)
        self.published = {1: 0, 2: 0}
        self.kept = self.kept_acknowledged = 0

    def step(self):
        """Fill the window, and take what has come."""
        while len(self.session.outgoing) < WINDOW:
            for qos in (1, 2):
                self._publish(f"k/{qos}", self.published, qos)
        self.client.next_message(0.001)

    def keep(self):
        """A retained message that is acknowledged."""
        self.kept += 1
        self.client.publish("k/kept", b"%d" % self.kept, 1, retain=True)
        self.kept_acknowledged = self.kept

    def finish(self):
        """All is acknowledged. A PUBREL that is sent again may be one whose PUBCOMP was lost in the kill:
        the answer is then PUBCOMP with 0x92, which MQTT 5 does not call an error.
        """
        while True:
            try:
                return self.client.wait_acknowledged()
            except Refused as refused:
                assert "Packet Identifier not found" in str(refused)

    def _publish(self, topic, counts, qos):
        payload = b"%d" % counts[qos]
        try:
            self.client.begin_publish(topic, payload, qos)
        finally:  # whether the connection took it or not, the session sends it again
            counts[qos] += any(
                isinstance(one, PublishPacket) and one.topic_name == topic and one.payload == payload
                for one in self.session.outgoing.values())


class Subscriber(Party):
    """Keeps the numbers that come, by QoS."""

    def __init__(self, version):
        super().__init__("subscriber", version)
        self.received = {1: [], 2: []}
        self.wills = 0

    def subscribe(self):
        self.client.subscribe(Subscription("k/1", 1), Subscription("k/2", 2), Subscription("k/will", 1))

    def step(self, timeout_s=0.001):
        """Take what has come; False where nothing did."""
        message = self.client.next_message(timeout_s)
        if message is None:
            return False
        self._take(message)
        while self.client.messages:
            self._take(self.client.messages.popleft())
        return True

    def _take(self, message):
        if message.topic_name == "k/will":
            self.wills += 1
        else:
            self.received[int(message.topic_name[-1])].append(int(message.payload))

    def drop(self):
        if self.client is not None:
            for message in self.client.messages:  # received, so it is this side's
                self._take(message)
            self.client.messages.clear()
        super().drop()


def run_until_killed(broker, publisher, subscriber, random):
    """Traffic, with connections lost now and then; the broker is killed meanwhile, wherever it is."""
    after_s = random.choice((0.02, 0.1, 0.3, 0.6)) * random.uniform(0.5, 1.5)
    killer = threading.Timer(after_s, os.kill, (broker.pid, signal.SIGKILL))
    killer.start()
    try:
        while True:
            publisher.step()
            subscriber.step()
            draw = random.random()
            if draw < 0.01:
                publisher.connect(broker.ports["mqtt"])
            elif draw < 0.02:
                subscriber.connect(broker.ports["mqtt"])
            elif draw < 0.03:
                publisher.keep()
    except GONE:
        pass
    killer.join()
    broker.wait()
    publisher.drop()
    subscriber.drop()


@pytest.mark.timeout(max(300, 6 * KILLS))
@pytest.mark.parametrize("seed", seeds(1))
@pytest.mark.parametrize("version", [4, 5])
def test_killed_brokers_lose_nothing_and_repeat_nothing_of_qos_2(broker_process, version, seed):
    random = Random(seed * 10 + version)
    broker = broker_process(mqtt_port=0).start()
    publisher, subscriber = Publisher(version), Subscriber(version)
    subscriber.connect(broker.ports["mqtt"])
    subscriber.subscribe()
    publisher.connect(broker.ports["mqtt"])
    with Connection(broker.amqp_url) as amqp:
        channel = amqp.channel()
        channel.queue_declare("copies", durable=True)
        channel.queue_bind("copies", "amq.topic", "k.2")

    killed = 0
    # on a slow machine a life may be over before much was acknowledged, and more was published
    while killed < KILLS // 2 or min(publisher.published.values()) <= 20 * KILLS // 2:
        assert killed < 5 * KILLS, f"no more than {publisher.published} published in {killed} lives"
        with_will = MQTTClient(
            f"mqtt://guest:guest@127.0.0.1:{broker.ports['mqtt']}", version=version,
            client_identifier=f"will-{killed}", will=Will("k/will", b"gone", qos=1))
        run_until_killed(broker, publisher, subscriber, random)
        killed += 1
        with_will.abort()
        broker.start()
        subscriber.connect(broker.ports["mqtt"])
        publisher.connect(broker.ports["mqtt"])
        check_retained(broker, publisher, version)
    publisher.finish()
    drain(publisher, subscriber, killed)
    again = len(subscriber.received[1]) - publisher.published[1]
    print(
        f"{killed} kills: {publisher.published[1]} messages of QoS 1 ({again} more than once) and "
        f"{publisher.published[2]} of QoS 2")

    assert subscriber.received[2] == list(range(publisher.published[2])), "QoS 2: once, in order"
    assert read_all(broker, "copies") == subscriber.received[2], "QoS 2 in an AMQP queue: once, in order"
    assert sorted(set(subscriber.received[1])) == list(range(publisher.published[1])), "QoS 1: all of them"
    assert in_first_order(subscriber.received[1])
    subscriber.client.close()
    publisher.client.close()


def read_all(broker, queue):
    """The numbers in an AMQP queue."""
    with Connection(broker.amqp_url) as amqp:
        channel, numbers = amqp.channel(), []
        while (message := channel.get(queue, no_ack=True)) is not None:
            numbers.append(int(message.body))
        return numbers


def check_retained(broker, publisher, version):
    """The last retained message that was acknowledged, or a later one, is there."""
    if not publisher.kept_acknowledged:
        return
    with MQTTClient(
        f"mqtt://guest:guest@127.0.0.1:{broker.ports['mqtt']}", version=version, client_identifier="looker"
    ) as looker:
        looker.subscribe("k/kept", qos=1)
        assert publisher.kept_acknowledged <= int(looker.next_message(TIMEOUT_S).payload) <= publisher.kept


def drain(publisher, subscriber, wills):
    """Take what is still to come: everything that was published, and a will for each kill."""
    while (
        len(subscriber.received[2]) < publisher.published[2]
        or len(set(subscriber.received[1])) < publisher.published[1] or subscriber.wills < wills
    ):
        assert subscriber.step(in_time(15)), (
            f"{len(subscriber.received[2])} of {publisher.published[2]} at QoS 2, "
            f"{len(set(subscriber.received[1]))} of {publisher.published[1]} at QoS 1, "
            f"{subscriber.wills} of {wills} wills"
        )
    subscriber.client.ping()
    while subscriber.step():
        pass


def in_first_order(numbers):
    """Whether each number came first in its turn, however often again."""
    seen = -1
    for number in numbers:
        if number > seen + 1:
            return False
        seen = max(seen, number)
    return True


@pytest.mark.parametrize("version", [4, 5])
@pytest.mark.parametrize("step", ["PUBLISH", "PUBREC", "PUBREL"])
def test_each_step_of_qos_2_survives_a_kill_right_behind_it(broker_process, version, step):
    """The publisher's side: the broker dies when it has answered PUBLISH or PUBREL, or before it could."""
    broker = broker_process(mqtt_port=0).start()
    subscriber, publisher = Subscriber(version), Publisher(version)
    subscriber.connect(broker.ports["mqtt"])
    subscriber.subscribe()
    publisher.connect(broker.ports["mqtt"])
    subscriber.drop()

    publisher.client.begin_publish("k/2", b"0", 2)
    identifier = next(iter(publisher.session.outgoing))
    if step != "PUBLISH":
        publisher.client.wait_for(
            lambda: not isinstance(publisher.session.outgoing.get(identifier), PublishPacket), TIMEOUT_S)
    if step == "PUBREL":
        publisher.client.wait_acknowledged()
    broker.kill()
    publisher.drop()
    broker.start()
    publisher.connect(broker.ports["mqtt"])
    publisher.finish()
    subscriber.connect(broker.ports["mqtt"])
    publisher.published[2] = 1
    drain(publisher, subscriber, 0)

    assert subscriber.received[2] == [0]


@pytest.mark.parametrize("version", [4, 5])
@pytest.mark.parametrize("steps", [0, 1, 2])
def test_each_step_of_a_delivery_at_qos_2_survives_a_kill(broker_process, version, steps):
    """The subscriber's side, step by step: after PUBLISH, after PUBREC and PUBREL, after PUBCOMP."""
    broker = broker_process(mqtt_port=0).start()
    subscriber, publisher = Subscriber(version), Publisher(version)
    subscriber.connect(broker.ports["mqtt"])
    subscriber.subscribe()
    publisher.connect(broker.ports["mqtt"])
    subscriber.client.automatic = False
    publisher.client.publish("k/2", b"0", 2)
    message = subscriber.client.next_message(TIMEOUT_S)
    if steps >= 1:
        subscriber.client.acknowledge(message)
        assert subscriber.client.next_packet(TIMEOUT_S) is not None  # PUBREL
    if steps == 2:
        subscriber.client.send(b"\x70\x02" + message.packet_identifier.to_bytes(2, "big"))
        subscriber.client.ping()
    subscriber._take(message)
    broker.kill()
    subscriber.drop()
    publisher.drop()
    broker.start()
    publisher.connect(broker.ports["mqtt"])
    subscriber.connect(broker.ports["mqtt"])
    publisher.published[2] = 2

    publisher.client.publish("k/2", b"1", 2)
    drain(publisher, subscriber, 0)

    assert subscriber.received[2] == [0, 1]
