"""QoS 2 over the loss of a leader: its follower goes on with what it was told of, and nothing comes twice."""
from random import Random

import pytest

from gomq_py.mqtt.wire.constants import PUBCOMP, PUBLISH, PUBREC
from gomq_py.storage.disk.data_dir import FOLLOWED, DataDir
from tests.durability.seeds import seeds
from tests.support.door import poll_the_loop
from tests.support.mirror import Mirror
from tests.support.mqtt_outbound import Peer, mqtt_message, mqtt_node, publish
from tests.support.unflushed import Unflushed

MESSAGES = 60
# Behind the time of the messages that mqtt_message() makes.
LATER_MS = 1_700_000_000_005


class Follower:
    """Hears of the first ``events`` changes of files, and says of these alone that it has them."""

    def __init__(self, mirror, events):
        self._mirror, self._left = mirror, events

    def __getattr__(self, name):
        def told(*arguments):
            self._left -= 1
            if self._left >= 0:
                getattr(self._mirror, name)(*arguments)
        return told

    def when_safe(self, position, callback):
        if self._left >= 0:
            callback(None)


class Subscriber:
    """Takes each message once, as QoS 2 has it. ``taken``: their numbers."""

    def __init__(self):
        self.taken, self._known, self._peer = [], set(), None

    def connect(self, node):
        self._peer = Peer(node, "subscriber", receive_maximum=5)
        return self._peer

    def step(self):
        """Do with the packets that are there what a client does with them."""
        poll_the_loop()
        self._peer.ours.setblocking(False)
        try:
            self._peer.reader.feed(self._peer.ours.recv(65536))
        except BlockingIOError:
            pass
        while (packet := self._peer.reader.next_packet()) is not None:
            identifier = packet.packet_identifier
            if packet.TYPE == PUBLISH:
                if identifier not in self._known:
                    self._known.add(identifier)
                    self.taken.append(int(packet.payload))
                self._peer.acknowledge(PUBREC, identifier)
            else:
                self._known.discard(identifier)
                self._peer.acknowledge(PUBCOMP, identifier)


class Publisher:
    """Sends again what was not answered. ``sent``: {number: whether it was answered}."""

    def __init__(self):
        self.sent = {}

    def send(self, node, peer, number):
        ids, queues = peer.session.received_ids(), (node.vhost.queues["mqtt.subscriber"],)
        message = mqtt_message("t", b"%d" % number, 2)
        self.sent[number] = False
        if not ids.has(number):
            ids.begin(number, queues, message)
            publish(node, message)
            ids.add(number, queues)
        added, mark = ids.added, ids.records.last_received
        node.vhost.when_safe(lambda error: self._answered(ids, number, added, mark))

    def _answered(self, ids, number, added, mark):
        ids.sure(added, mark)
        self.sent[number] = True


def booted(path, files=None):
    """A node over this folder, which two clients have sessions of."""
    node = mqtt_node(path, files=files or Unflushed(), segment_size=65536)
    return node, Peer(node, "publisher")


def test_message_that_waited_for_files_comes_once_wherever_the_leader_is_lost(tmp_path):
    """One queue has it, and another one when its files are there: the follower knows of each which has it."""
    events, is_all_told = 0, False
    while not is_all_told:
        folder = tmp_path / str(events)
        (folder / "leader").mkdir(parents=True)
        follower = Follower(Mirror(folder / "leader", folder / "follower"), 1 << 60)
        node, peer = booted(folder / "leader", Unflushed((follower,)))
        queues = tuple([node.vhost.create_queue(name, True, False, {}, None) for name in "ab"])
        ids = peer.session.received_ids()
        node.committer.wait()
        follower._left = events

        message = mqtt_message("t", b"1", 2)
        ids.begin(7, queues, message)
        assert queues[0].publish(message)
        before = ids.postpone(7, message, queues, queues[1:], True)
        node.hub.scheduler.finish()
        message.restamp(LATER_MS)
        before(queues[1:], None, True)
        assert queues[1].publish(message)
        ids.add(7, queues[1:])
        node.hub.scheduler.finish()
        is_all_told = follower._left >= 0

        node.kill(are_answered=False)
        DataDir(folder / "follower").follow().close()
        node, peer = booted(folder / "follower")
        queues = [node.vhost.queues[name] for name in "ab"]
        ids = peer.session.received_ids()
        comes_to = [] if ids.has(7) and not ids.is_partly(7) else ids.lacking(7, queues)
        assert [queue.store.ready_count + (queue in comes_to) for queue in queues] == [1, 1], events
        node.stop()
        events += 1
    assert events > 4


@pytest.mark.parametrize("seed", seeds(6))
def test_each_message_comes_once_over_the_loss_of_the_leader(tmp_path, seed):
    random, publisher, subscriber = Random(seed), Publisher(), Subscriber()
    (tmp_path / "leader").mkdir()
    mirror = Mirror(tmp_path / "leader", tmp_path / "follower")
    follower = Follower(mirror, 1 << 60)
    node, peer = booted(tmp_path / "leader", Unflushed((follower,)))
    subscriber.connect(node).subscribe("t", qos=2)
    node.committer.wait()
    node.broker.durability.add(follower)
    follower._left = random.randrange(1, 900)

    for number in range(1, MESSAGES + 1):
        publisher.send(node, peer, number)
        for _ in range(random.randrange(4)):
            subscriber.step()
    before = len(subscriber.taken)
    node.kill()
    DataDir(tmp_path / "follower").follow().close()
    node, peer = booted(tmp_path / "follower")
    assert node.data_dir.last_end == FOLLOWED
    subscriber.connect(node)
    for number in [number for number, is_answered in publisher.sent.items() if not is_answered]:
        publisher.send(node, peer, number)
    node.wait(lambda: subscriber.step() or len(subscriber.taken) >= MESSAGES, what="all messages")
    for _ in range(10):
        subscriber.step()
    node.stop()

    assert sorted(subscriber.taken) == list(range(1, MESSAGES + 1)), before
