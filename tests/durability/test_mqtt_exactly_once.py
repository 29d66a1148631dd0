"""QoS 2 to a client, in any order of what can happen: publishes, acknowledgements, connections that end,
brokers that stop or are killed. The client gets every message, in order, and once.
"""
from random import Random

import pytest

from gomq_py.mqtt.wire.constants import PUBLISH, PUBREL
from tests.support.door import poll_the_loop
from tests.support.mqtt_outbound import Peer, mqtt_message, mqtt_node, publish

PUBREC, PUBCOMP = 5, 7
STEPS = 120


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
        + [Receiver.stop, Receiver.kill])

    for _ in range(STEPS):
        random.choice(steps)(receiver)
    receiver.finish()

    assert receiver.got == list(range(receiver.published))
    assert receiver.peer.outbound.sent.used == 0 and receiver.peer.session.queue.unacked_count == 0
    receiver.node.stop()
