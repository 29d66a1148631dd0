"""QoS 2 to a client, in any order of what can happen: publishes, acknowledgements, connections that end,
brokers that stop or are killed, stores of identifiers that the disk fails. The client gets every message, in
order, and once.

Also where each of the calls on the store of identifiers fails once, for publishers and subscribers.
"""
import errno
import os
import time
from random import Random

import gevent
import pytest

from gomq_py.client.errors import Refused
from gomq_py.hub import again as again_module
from gomq_py.mqtt.model.session_kind import EXTRA, QOS2_STORE
from gomq_py.mqtt.wire.constants import PUBLISH, PUBREL
from gomq_py.mqtt.wire.packets import Subscription
from tests.durability import flush_pool
from tests.durability.test_mqtt_cuts import Door, connected
from tests.durability.test_mqtt_kill import GONE, Publisher, Subscriber
from tests.support.door import poll_the_loop
from tests.support.faulty_files import FaultyFiles
from tests.support.mqtt_outbound import Peer, mqtt_message, mqtt_node, publish
from tests.support.unflushed import Unflushed
from tests.support.waiting import TIMEOUT_S

PUBREC, PUBCOMP = 5, 7
STEPS = 120
# Publishes at QoS 2 of one run, some at a time, and how often a fault may end each client's connection.
ROUNDS, AT_ONCE, MOST_LOST = int(os.environ.get("GOMQ_MQTT_FAULTS", "3")), 3, 12


class Receiver:
    """A client that does as MQTT 5 §4.3.3 has it, and whose packets may be lost with the connection."""

    def __init__(self, folder, random):
        self.folder, self.random = folder, random
        self.ids = set()
        self.got = []
        self.answers = []  # (kind, identifier) that it has yet to send
        self.published = 0
        self.node = mqtt_node(folder)
        self.peer = None
        self.connect()
        self.peer.subscribe("t", qos=2)

    def connect(self):
        self.answers = []
        self.peer = Peer(
            self.node, version=self.random.choice((4, 5)), receive_maximum=self.random.choice((1, 3, 65535)))

    def disconnect(self):
        self.peer.disconnect()
        self.connect()

    def stop(self):
        self.peer.disconnect()
        self.node.stop()
        self.boot()

    def kill(self):
        self.node.kill()
        self.boot()

    def boot(self):
        self.node = mqtt_node(self.folder)
        self.connect()

    def fail(self):
        """The disk fails the store of identifiers, and another one takes its place."""
        sessions = self.node.vhost.extras[EXTRA]
        before = sessions.qos2_records
        if before.store is not None:
            before.store.fence(OSError(errno.EIO, "the disk failed"))
            sessions._replacing._pause_ms = 0
            self.node.wait(lambda: sessions.qos2_records is not before and not sessions._replacing.running)

    def publish(self):
        for _ in range(self.random.randrange(1, 5)):
            publish(self.node, mqtt_message("t", b"%d" % self.published, 2))
            self.published += 1

    def read(self):
        for _ in range(3):
            poll_the_loop()
        self.peer.ours.settimeout(0.0001)
        try:
            self.peer.reader.feed(self.peer.ours.recv(65536))
        except TimeoutError:
            return
        while (packet := self.peer.reader.next_packet()) is not None:
            if packet.TYPE == PUBLISH:
                if packet.packet_identifier not in self.ids:
                    self.ids.add(packet.packet_identifier)
                    self.got.append(int(packet.payload))
                self.answers.append((PUBREC, packet.packet_identifier))
            else:
                assert packet.TYPE == PUBREL
                self.ids.discard(packet.packet_identifier)
                self.answers.append((PUBCOMP, packet.packet_identifier))

    def answer(self):
        while self.answers and self.random.random() < 0.8:
            self.peer.acknowledge(*self.answers.pop(0))

    def finish(self):
        while len(self.got) < self.published or self.ids or self.answers:
            self.read()
            while self.answers:
                self.peer.acknowledge(*self.answers.pop(0))
        for _ in range(3):
            poll_the_loop()
        self.read()


@pytest.mark.parametrize("seed", range(6))
def test_nothing_is_lost_or_doubled_and_order_is_kept(tmp_path, seed):
    random = Random(seed)
    receiver = Receiver(tmp_path / "data", random)
    steps = (
        [Receiver.publish] * 4 + [Receiver.read] * 5 + [Receiver.answer] * 5 + [Receiver.disconnect] * 2
        + [Receiver.stop, Receiver.kill, Receiver.fail])

    for _ in range(STEPS):
        random.choice(steps)(receiver)
    receiver.finish()

    assert receiver.got == list(range(receiver.published))
    assert receiver.peer.outbound.sent.used == 0 and receiver.peer.session.queue.unacked_count == 0
    receiver.node.stop()


class FilesOfAStore(FaultyFiles):
    """Fails the N-th call on what lies in a folder with this in its name, and so many behind it."""

    part = "\0"
    more = 0

    def about_to(self, call, subject):
        if self.part in os.fspath(subject):
            try:
                super().about_to(call, subject)
            except OSError:
                if self.more:
                    self.more -= 1
                    self.fail_at += 1
                raise


def run_over(folder, files, version):
    """A publisher and a subscriber at QoS 2 do as MQTT has it, and go on after each loss of a connection.
    Returns what the subscriber got, also after a restart, and how often connections were lost.
    """
    folder.mkdir()
    door = Door(folder, files)
    files.part = os.path.basename(door.data_dir.queue_folder("/", QOS2_STORE))
    publisher, subscriber = Publisher(version), Subscriber(version)
    parties, lost = (subscriber, publisher), 0
    connected(subscriber, door)
    subscriber.client.subscribe(Subscription("k/2", 2))
    connected(publisher, door)
    until, published = time.monotonic() + TIMEOUT_S, 0
    while (
        published < ROUNDS * AT_ONCE or publisher.session.outgoing
        or len(subscriber.received[2]) < published
    ):
        assert time.monotonic() < until and lost <= MOST_LOST, f"{lost} connections lost"
        for party in parties:
            try:
                if party.client is None:
                    assert connected(party, door), "the session is gone"
                if party is subscriber:
                    party.step()
                elif published < ROUNDS * AT_ONCE and not party.session.outgoing:
                    for _ in range(AT_ONCE):
                        party._publish("k/2", party.published, 2)
                    published = party.published[2]
                else:
                    party.client.next_message(0.001)
            except Refused as refused:  # its PUBCOMP was lost with the connection
                assert "Packet Identifier not found" in str(refused)
            except GONE:
                lost += 1
                party.drop()
        gevent.sleep(0)
    for party in parties:
        party.drop()
    door.close()
    again = Door(folder, Unflushed())
    connected(subscriber, again)
    connected(publisher, again)
    publisher.client.publish("k/2", b"%d" % published, 2)
    while len(subscriber.received[2]) <= published:
        assert subscriber.step(TIMEOUT_S)
    for party in parties:
        party.drop()
    again.close()
    return subscriber.received[2], lost


def test_each_call_on_the_store_of_identifiers_that_fails_shuts_nobody_out_and_doubles_nothing(
    tmp_path, monkeypatch
):
    flush_pool.use(monkeypatch)
    expected = list(range(ROUNDS * AT_ONCE + 1))
    files = FilesOfAStore()
    assert run_over(tmp_path / "whole", files, 5) == (expected, 0)
    calls = len(files.calls)
    assert calls > 5

    for number in range(1, calls + 1):
        files = FilesOfAStore(number)
        got, lost = run_over(tmp_path / str(number), files, 4 + number % 2)
        assert got == expected and not lost, (files.failed, lost)


@pytest.mark.parametrize("version", [4, 5])
def test_disk_that_goes_on_refusing_the_store_of_identifiers_holds_publishers_and_ends_no_connection(
    tmp_path, monkeypatch, version
):
    """They go on by themselves when the disk takes writes. On 6805b4a2 each PUBREL ended the connection."""
    flush_pool.use(monkeypatch)
    monkeypatch.setattr(again_module, "FIRST_PAUSE_MS", 1)
    monkeypatch.setattr(again_module, "LONGEST_PAUSE_MS", 20)
    files = FilesOfAStore(5)
    files.more = 12

    got, lost = run_over(tmp_path / "data", files, version)

    assert (got, lost, files.more) == (list(range(ROUNDS * AT_ONCE + 1)), 0, 0)
