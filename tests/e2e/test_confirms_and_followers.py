"""Confirms of a whole leader wait for its followers: what was confirmed is in their folders, over epochs,
connections and a change of the leader.
"""
import os
import threading

import gevent
import pytest

from gomq_py.amqp.wire.methods import (
    BasicAck, BasicGet, BasicGetOk, BasicNack, ConfirmSelect, ConfirmSelectOk, QueueDeclare, QueueDeclareOk,
)
from gomq_py.cluster import identity
from gomq_py.cluster.acknowledger import Acknowledger
from gomq_py.cluster.core.promises import Promises
from gomq_py.cluster.follower import STREAMING
from gomq_py.cluster.publisher_holds import FOLLOWER_THROUGHPUT, PublisherHolds
from gomq_py.errors import ClusterError
from gomq_py.storage.disk.plain_files import PlainFiles
from tests.e2e.test_follow import LeadingNode, follower_of, wait
from tests.support.mirror import differing
from tests.support.mixed_load import PERSISTENT
from tests.support.waiting import in_time


class PromisingNode(LeadingNode):
    """A leader whose promises wait for followers."""

    def __init__(self, root, port=0):
        self.promises = Promises()
        super().__init__(root, port, acknowledger=Acknowledger(
            self.promises, lambda *arguments: self.stream.want(*arguments)))

    def require(self, count=1):
        """Wait until so many followers are there, and let promises wait for them from now on."""
        wait(lambda: sum(one.is_synced for one in self.leader.progress.values()) == count)
        self.promises.require(self.leader.progress)
        self.promises.hold(False)


class Publisher:
    """Publishes numbers; ``confirmed`` counts those that the leader has confirmed."""

    def __init__(self, leading, queue="q"):
        self.client = leading.client()
        self.client.call(QueueDeclare(queue=queue, durable=True), QueueDeclareOk)
        self.client.call(ConfirmSelect(), ConfirmSelectOk)
        self.queue = queue
        self.published = self.confirmed = 0

    def publish(self, count):
        for _ in range(count):
            self.published += 1
            self.client.publish(self.queue, b"%d" % self.published, properties=PERSISTENT)

    def await_confirms(self):
        while self.confirmed < self.published:
            self.confirmed = self.client.expect(BasicAck).delivery_tag


@pytest.fixture
def leading(tmp_path):
    node = PromisingNode(tmp_path / "leader")
    yield node
    node.promises.refuse(ClusterError("the test has ended"))
    node.close()


@pytest.fixture
def start(leading, tmp_path):
    """A function that starts followers; all are stopped at the end."""
    started = []

    def start_follower(name="follower", **options):
        started.append(follower_of(leading.leader.port, tmp_path / name, **options))
        started[-1].start()
        return started[-1]

    yield start_follower
    for follower in started:
        follower.stop()


@pytest.fixture
def publisher(leading):
    """With its queue, which was declared before promises waited for anybody."""
    leading.promises.hold(False)
    publisher = Publisher(leading)
    yield publisher
    publisher.client.close()


def numbers_in(root, queue="q"):
    """Of the messages in the queue of the folder, which is booted for it."""
    node = LeadingNode(root)
    try:
        client, found = node.client(), []
        for _ in range(node.node.broker.vhosts["/"].queues[queue].ready_count):
            client.send_method(BasicGet(queue=queue, no_ack=True))
            found.append(int(client.expect_message(BasicGetOk)[-1]))
        client.close()
        return found
    finally:
        node.close()


def test_confirm_waits_for_the_flush_of_a_follower(leading, start, publisher):
    files, held = PlainFiles(), threading.Event()
    follower = start(files=files)
    leading.require()
    publisher.publish(1)
    publisher.await_confirms()
    for name in ("sync", "sync_all"):
        flush = getattr(files, name)
        setattr(files, name, lambda file, flush=flush: (held.wait(in_time(20)), flush(file)))

    publisher.publish(1)
    wait(lambda: follower.status.received == leading.stream.position and len(leading.promises))
    publisher.client.expect_silence()

    held.set()
    publisher.await_confirms()
    assert leading.promises.promised <= follower.status.flushed


def test_flood_against_a_follower_that_stands_still_costs_no_sync(leading, start, caplog):
    """Its publishers are held before the changes that the follower lacks are dropped."""
    caplog.set_level("INFO", "gomq_py.cluster")
    leading.promises.hold(False)
    follower, held = start(), gevent.event.Event()
    leading.require()
    leading.stream.kept_most = 4 << 20
    alarms = leading.node.broker.alarms
    holds = PublisherHolds(alarms, leading.leader, leading.stream, leading.leader.progress.keys, 64 << 20)
    client = leading.client()
    client.call(QueueDeclare(queue="flood", durable=True), QueueDeclareOk)
    turn = follower._applier._turn
    follower._applier._turn = lambda *arguments: (held.wait(in_time(5)), turn(*arguments))
    body = os.urandom(8192)  # which cannot be compressed

    def flood():
        for _ in range(4000):  # more than sockets take
            client.publish("flood", body, properties=PERSISTENT)

    publishing = gevent.spawn(flood)
    wait(lambda: FOLLOWER_THROUGHPUT in alarms.resources)
    place, = [link._at for link in leading.leader.links]
    assert not place.is_dropped and not publishing.ready()
    held.set()
    publishing.get()

    leading.node.durability.wait()
    wait(lambda: follower.status.flushed == leading.stream.position and not alarms.resources)
    assert caplog.text.count("with a sync") == 1
    holds.close()
    client.close()


def test_confirm_waits_for_the_slower_of_two(leading, start, publisher):
    one, two = start("one"), start("two")
    leading.require(2)
    for number in range(20):
        publisher.publish(number)
        publisher.await_confirms()
        assert leading.promises.promised <= min(one.status.flushed, two.status.flushed)


def test_what_was_confirmed_is_in_the_folder_of_a_follower_that_is_cut_off(
        leading, start, publisher, tmp_path):
    follower = start()
    leading.require()
    publisher.publish(500)
    gevent.spawn(publisher.publish, 2000)
    while publisher.confirmed < 700:
        publisher.confirmed = publisher.client.expect(BasicAck).delivery_tag

    follower.follow(None)
    assert follower.flush() is None
    confirmed = publisher.confirmed
    follower.stop()

    found = numbers_in(tmp_path / "follower")
    assert found == list(range(1, len(found) + 1)) and len(found) >= confirmed


def test_clients_and_followers_go_on_in_a_later_epoch(leading, start, publisher, tmp_path, caplog):
    caplog.set_level("INFO", "gomq_py.cluster")
    follower = start()
    leading.require()
    for epoch in range(2, 6):
        publisher.publish(300)
        leading.leader.lead_on(epoch)
        publisher.publish(300)
        publisher.await_confirms()
        assert identity.read(tmp_path / "follower").epoch == follower.identity.epoch == epoch

    assert caplog.text.count("with a sync") == 1
    leading.node.durability.wait()
    wait(lambda: follower.status.state == STREAMING and not differing(leading.root, tmp_path / "follower"))


def test_promises_of_a_deposed_leader_are_refused_also_while_it_closes(leading, start, publisher):
    follower = start()
    leading.require()
    follower.follow(None)
    publisher.publish(1)
    wait(lambda: len(leading.promises))

    leading.promises.refuse(ClusterError("another node leads"))
    assert publisher.client.expect(BasicNack).delivery_tag == 1
    leading.node.durability.close()
    publisher.publish(1)

    assert publisher.client.expect(BasicNack).delivery_tag == 2


def test_follower_takes_the_lead_and_the_former_leader_follows(leading, start, publisher, tmp_path):
    """By hand what the coordination does: the follower is elected for epoch 2."""
    follower = start()
    leading.require()
    publisher.publish(100)
    publisher.await_confirms()
    follower.follow(None)
    assert follower.flush() is None and follower.stop() is None
    publisher.publish(1)  # never confirmed
    wait(lambda: len(leading.promises))
    leading.promises.refuse(ClusterError("another node leads"))
    publisher.client.close()
    leading.close()

    file = identity.IdentityFile(PlainFiles(), tmp_path / "follower", follower.identity)
    file.take(file.identity.cluster_id, 2)
    second = PromisingNode(tmp_path / "follower")
    former = follower_of(second.leader.port, leading.root)
    former.start()
    try:
        second.promises.hold(False)
        second.require()
        wait(lambda: former.status.state == STREAMING)
        again = Publisher(second)
        again.publish(10)
        again.await_confirms()
        again.client.close()
        assert identity.read(leading.root).epoch == 2
        former.follow(None)
        assert former.flush() is None
    finally:
        former.stop()
        second.promises.refuse(ClusterError("the test has ended"))
        second.close()
    assert numbers_in(leading.root) == [*range(1, 101), *range(1, 11)]
