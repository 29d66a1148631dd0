"""What MQTT clients were shown is there after a kill at every event of the file seam, and between a thread's
work and its telling (test_kill_shown has the kills, and the same for queues and streams).

What a client has been shown is what lies in its socket when the broker is killed. The clients of then go on
with what they knew: they connect again to the folder that was left, and once more after a restart.
"""
import copy
import time

import pytest
from gevent import socket

from gomq_py.client.errors import ConnectionClosed
from gomq_py.client.mqtt import MQTTClient, Session
from gomq_py.config.settings import Settings
from gomq_py.mqtt.model.session_kind import EXTRA
from gomq_py.mqtt.wire.packets import (
    DisconnectPacket, PubcompPacket, PublishPacket, PubrecPacket, PubrelPacket, Subscription, Will,
)
from tests.durability.seeds import FACTOR
from tests.durability.test_kill_shown import Killed
from tests.durability.test_mqtt_cuts import Door
from tests.support.door import poll_the_loop, poll_until
from tests.support.unflushed import Unflushed
from tests.support.waiting import TIMEOUT_S

SETTINGS = Settings(segment_size=65536, mqtt_will_grace=0)
# Two or three fill a segment.
BODY_OCTETS = 25_000
ROUNDS = 9
# Of how many kills one is looked at where time is short, and otherwise: all of them with a factor of 6.
EVERY, OFTEN = 31, max(1, round(6 / FACTOR))


class Client(MQTTClient):
    """One whose socket a kill may read, too. Nothing that it reads makes it write."""

    def receive(self, deadline=None):
        if not self.receive_ready():
            poll_the_loop()
        return time.monotonic() < deadline


class Party:
    """A client with a session that lasts. ``got``: the messages that it was shown."""

    def __init__(self, name):
        self.name, self.session, self.got, self.client = name, Session(), [], None
        self._unanswered = []

    def copied(self):
        """What it knows now."""
        self.look()
        known = Party(self.name)
        known.session, known.got = copy.deepcopy(self.session), list(self.got)
        return known

    def connect(self, door, will=None, clean_start=False):
        self.client = Client(
            f"mqtt://guest:guest@127.0.0.1:{door.port}", version=5, client_identifier=self.name,
            clean_start=clean_start, session=self.session, timeout_s=TIMEOUT_S, socket_module=socket,
            properties={"session_expiry_interval": 3600}, automatic=False, login=False, will=will)
        self.client.connect()
        return self

    def look(self):
        """Take what has come."""
        if self.client is None:
            return
        try:
            while self.client.receive_ready():
                pass
        except ConnectionClosed:
            pass
        self.got += self.client.messages
        self._unanswered += self.client.messages
        self.client.messages.clear()

    def has_ended(self):
        """Whether the broker has closed the connection."""
        self.look()
        return self.client.error is not None

    def answer(self):
        """Answer what has come, as QoS 1 and 2 have it."""
        self.look()
        unanswered, self._unanswered = self._unanswered, []
        packets, self.client._packets = self.client._packets, type(self.client._packets)()
        for packet in [*unanswered, *packets]:
            if isinstance(packet, PublishPacket):
                if packet.qos:
                    self.client.acknowledge(packet)
            elif isinstance(packet, (PubrecPacket, PubrelPacket)):
                answer = PubrelPacket if isinstance(packet, PubrecPacket) else PubcompPacket
                self.client.send_packet(answer(packet_identifier=packet.packet_identifier))

    def publish(self, topic, number, qos, retain=False):
        """Packet identifiers are used again as soon as they may be."""
        self.session._last_identifier = 0
        self.client.begin_publish(topic, body(number), qos, retain)

    def numbers(self, topic):
        return [number_of(packet) for packet in self.got if packet.topic_name == topic]

    def drop(self):
        self.look()
        self.client.abort()
        self.client, self._unanswered = None, []


def body(number):
    return b"%06d" % number + bytes(BODY_OCTETS)


def number_of(packet):
    return int(packet.payload[:6])


def go_on(parties, until=None):
    """All read and answer, until that is true, or a few times."""
    def is_over():
        for party in parties:
            party.answer()
        return until()

    if until is not None:
        poll_until(is_over)
        return
    for _ in range(2):
        poll_the_loop()
        for party in parties:
            party.answer()


class Sessions:
    """A publisher and a subscriber at QoS 1 and 2."""

    def __init__(self, door=None, parties=None, published=0):
        self.published = published
        self.publisher, self.subscriber = self.parties = parties or (Party("publisher"), Party("subscriber"))
        if door is not None:
            for party in self.parties:
                party.connect(door)
            self.subscriber.client.subscribe(Subscription("k/1", 1), Subscription("k/2", 2))
            self.work(door)
            go_on(self.parties, self.is_calm)

    def is_calm(self):
        return not self.publisher.session.outgoing and not self.subscriber.session.incoming and all(
            self.published - 1 in self.subscriber.numbers(f"k/{qos}") for qos in (1, 2))

    def work(self, door):
        number = self.published
        self.published += 1
        for qos in (1, 2):
            self.publisher.publish(f"k/{qos}", number, qos)
        if number % 3 == 2:
            go_on(self.parties, self.is_calm)
        else:
            go_on(self.parties)
        if number % 4 == 3:
            for party in self.parties:
                party.drop()
                party.connect(door)

    def shown(self):
        return Sessions(None, tuple(party.copied() for party in self.parties), self.published)

    def check(self, door):
        """Both go on; what is published last comes last."""
        for party in (self.subscriber, self.publisher):
            party.connect(door)
            assert party.client.connack.session_present, f"the session of {party.name}"
        for qos in (1, 2):
            self.publisher.publish(f"k/{qos}", self.published, qos)
        self.published += 1
        go_on(self.parties, self.is_calm)
        got = self.subscriber.numbers("k/2")
        assert got == list(range(self.published)), f"at QoS 2: {got}"
        missing = set(range(self.published)) - set(self.subscriber.numbers("k/1"))
        assert not missing, f"at QoS 1, lost: {missing}"
        for party in self.parties:
            party.drop()


class RetainedMessages:
    """A publisher, and one who asks for what is retained. ``history``: what was published to each topic,
    None what deletes; ``seen``: the place there of the newest that is known to be retained.
    """

    def __init__(self, door=None, history=None, seen=None):
        self.history = history or {f"r/{topic}": [] for topic in range(3)}
        self.seen = seen or dict.fromkeys(self.history, 0)
        self.published, self._asked = 0, {}
        self.publisher, self.watcher = self.parties = Party("publisher"), Party("watcher")
        if door is not None:
            for party in self.parties:
                party.connect(door)
            for _ in self.history:
                self.work(door)
            go_on(self.parties, lambda: not self.publisher.session.outgoing)

    def work(self, door):
        number, publisher = self.published, self.publisher
        self.published += 1
        topic, qos = f"r/{number % 3}", number // 2 % 3
        is_deleted = number % 5 == 4
        self.history[topic].append(None if is_deleted else number)
        publisher.session._last_identifier = 0
        identifier = publisher.client.begin_publish(topic, b"" if is_deleted else body(number), qos, True)
        if qos:
            self._asked[identifier] = topic, len(self.history[topic]) - 1
        self.watcher.client.subscribe("r/#", qos=number % 3)
        go_on(self.parties)
        if number % 3 == 2:
            go_on(self.parties, lambda: not publisher.session.outgoing)

    def note(self):
        """Note what is known by now."""
        for party in self.parties:
            party.look()
        for packet in self.watcher.got:
            if packet.retain:
                topic = packet.topic_name
                self.seen[topic] = max(self.seen[topic], self.history[topic].index(number_of(packet)))
        self.watcher.got.clear()
        for identifier, (topic, place) in list(self._asked.items()):
            if not isinstance(self.publisher.session.outgoing.get(identifier), PublishPacket):
                del self._asked[identifier]
                self.seen[topic] = max(self.seen[topic], place)

    def shown(self):
        self.note()
        return RetainedMessages(None, copy.deepcopy(self.history), dict(self.seen))

    def check(self, door):
        asks = Party("another").connect(door, clean_start=True)
        asks.publish("r/~", 0, 1, True)  # the last topic, which is shown last
        go_on([asks], lambda: not asks.session.outgoing)
        asks.client.subscribe("r/#")
        go_on([asks], lambda: any(packet.topic_name == "r/~" for packet in asks.got))
        found = {packet.topic_name: number_of(packet) for packet in asks.got}
        for topic, history in self.history.items():
            assert found.get(topic) in history[self.seen[topic]:], (
                f"{topic} has {found.get(topic)}, of {history}, known is that at {self.seen[topic]}")
        asks.drop()


class Wills:
    """Clients with wills, which are lost or leave, and two subscribers. ``times``: how often each will may
    come.

    On 7675f4c1 one came twice that was killed between the queues of the two, or before it was noted.
    """

    def __init__(self, door=None, subscribers=None, times=None):
        self.subscribers = subscribers or (Party("subscriber"), Party("another"))
        self.times, self._leaving, self.number = times or {}, {}, 0
        if door is not None:
            for subscriber in self.subscribers:
                subscriber.connect(door).client.subscribe("w", qos=2)
            for _ in range(2):
                self.work(door)
            go_on(self.subscribers, lambda: self.have(0))

    def have(self, number):
        return all(number in subscriber.numbers("w") for subscriber in self.subscribers)

    def work(self, door):
        number, party = self.number, Party(f"c{self.number % 4}")
        self.number += 1
        self.times[number] = (0, 1)
        party.connect(door, Will("w", body(number), 2), clean_start=True)
        self.times[number] = (1,)
        go_on(self.subscribers)
        if number % 2:
            self.times[number] = (0, 1)
            self._leaving[number] = party
            party.client.send_packet(DisconnectPacket())
            go_on(self.subscribers, party.has_ended)
        else:
            party.drop()
            go_on(self.subscribers, lambda: number % 3 or self.have(number))

    def shown(self):
        for number, party in list(self._leaving.items()):
            if party.has_ended():
                self.times[number] = (0,)
                del self._leaving[number]
        return Wills(None, tuple(each.copied() for each in self.subscribers), dict(self.times))

    def check(self, door):
        wills = door.broker.vhosts["/"].extras[EXTRA].wills
        for subscriber in self.subscribers:
            subscriber.connect(door)
        go_on(self.subscribers, lambda: not wills.count)
        self.subscribers[0].publish("w", 999_999, 2)
        go_on(self.subscribers, lambda: all(
            each.numbers("w")[-1:] == [999_999] and not each.session.outgoing and not each.session.incoming
            for each in self.subscribers))
        for subscriber in self.subscribers:
            subscriber.got = [packet for packet in subscriber.got if number_of(packet) != 999_999]
            got = subscriber.numbers("w")
            for number, times in self.times.items():
                assert got.count(number) in times, f"will {number} may come {times} times: {got}"
            subscriber.drop()


@pytest.mark.parametrize("every", [
    EVERY, pytest.param(OFTEN, marks=[pytest.mark.long, pytest.mark.timeout(900)])
])
@pytest.mark.parametrize("kind", [Sessions, RetainedMessages, Wills])
def test_what_mqtt_clients_were_shown_outlives_a_kill_at_every_event(tmp_path, monkeypatch, kind, every):
    with Killed(tmp_path / "data", monkeypatch, every) as killed:
        door = Door(killed.root, killed.files, SETTINGS)
        clients = kind(door)
        killed.begin(clients.shown)
        for _ in range(ROUNDS):
            clients.work(door)
            killed.kill()
        killed.end()
        door.close()

    assert len(killed.kills) > 4 * ROUNDS
    for number, (folder, shown) in enumerate(killed.left()):
        try:
            for _ in range(2):
                door = Door(folder, Unflushed(), SETTINGS)
                try:
                    shown.check(door)
                finally:
                    door.close()
        except BaseException as error:
            error.add_note(f"killed at event {number * every}")
            raise
