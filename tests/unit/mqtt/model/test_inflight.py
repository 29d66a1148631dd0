"""Inflight: packet identifiers at QoS 2 that outlive the process, and do not after a power cut where their
messages may not.
"""
import os
from random import Random

import pytest

from gomq_py.broker.routing.destination import Destination
from gomq_py.mqtt.model import kinds
from gomq_py.mqtt.model.received import Received
from tests.support.mqtt_outbound import Peer, mqtt_message, mqtt_node, publish


@pytest.fixture
def nodes(tmp_path, monkeypatch):
    """A function that boots a node over the same folder after the one before was killed, on a machine whose
    boot is this.
    """
    running = []

    def boot(number=1, how="kill"):
        if running:
            getattr(running.pop(), how)()
        monkeypatch.setattr(kinds, "boot_id", lambda: b"%d" % number)
        running.append(mqtt_node(tmp_path / "data", segment_size=1 << 20))
        return running[0]

    yield boot
    running.pop().stop()


def received(node):
    """The identifiers of client c that are there after a restart."""
    found = node.vhost.extras["mqtt"].by_client["c"].received_ids()
    return {number for number in range(1, 100) if found.has(number)}


def test_identifiers_are_there_until_they_are_taken_out():
    identifiers = Received()

    for each in (1, 7, 8, 511, 512, 65535):
        assert not identifiers.has(each)
        identifiers.add(each)
        assert identifiers.has(each)
    assert identifiers.count == 6
    assert identifiers.discard(65535) and not identifiers.discard(65535) and not identifiers.has(65535)
    assert identifiers.has(512) and identifiers.count == 5


def test_any_identifiers_in_any_order_are_there_until_they_are_taken_out():
    """As a client may number that does not do so in sequence; compared with a set."""
    identifiers, expected, random = Received(), set(), Random(1)

    for _ in range(20000):
        each = random.choice((random.randrange(1, 200), random.randrange(1, 65536)))
        assert identifiers.has(each) == (each in expected)
        if each in expected or random.random() < 0.3:
            assert identifiers.discard(each) == (each in expected)
            expected.discard(each)
        else:
            identifiers.add(each)
            expected.add(each)
        assert identifiers.count == len(expected)
    identifiers.close()

    assert identifiers.count == 0 and not any(identifiers.has(each) for each in range(1, 65536))


def test_after_a_kill_all_identifiers_count(nodes):
    ids = Peer(nodes()).session.received_ids()
    ids.add(5)
    ids.sure(ids.mark())
    ids.add(6)

    assert received(nodes()) == {5, 6}
    assert received(nodes()) == {5, 6}


@pytest.mark.parametrize("how", ["kill", "stop"])
def test_after_a_power_cut_those_count_whose_messages_are_on_the_disk(nodes, how):
    ids = Peer(nodes()).session.received_ids()
    ids.add(5)
    ids.sure(ids.mark())
    ids.add(6)

    expected = {5} if how == "kill" else {5, 6}
    assert received(nodes(2, how)) == expected
    assert received(nodes(2)) == expected


def test_one_that_is_not_sure_is_waited_for_when_its_message_comes_again(nodes):
    node = nodes()
    ids = Peer(node).session.received_ids()
    ids.add(5)

    assert ids.awaited(5) == (node.vhost.extras["mqtt"].inflight,)
    ids.sure(ids.mark())
    assert ids.awaited(5) is None and ids.awaited(6) is None


def test_released_identifier_does_not_come_back(nodes):
    node = nodes()
    ids = Peer(node).session.received_ids()
    ids.add(5)
    ids.add(6)
    ids.discard(5)
    node.hub.scheduler.finish()  # the end of a walk

    assert received(nodes()) == {6}


def test_sessions_that_end_with_their_connection_keep_nothing(nodes):
    node = nodes()
    peer = Peer(node, expiry_s=0).subscribe("t", qos=2)
    publish(node, mqtt_message("t", b"x", 2))
    peer.packet()
    peer.session.received_ids().add(5)

    assert node.vhost.extras["mqtt"].inflight.store is None


def test_old_entries_do_not_keep_segments(nodes):
    """One forgotten exchange of each kind, and 60 000 that end: 6 MB of records."""
    node = nodes()
    peer = Peer(node).subscribe("t", qos=2)
    publish(node, mqtt_message("t", b"x", 2))
    peer.packet()
    ids = peer.session.received_ids()
    ids.add(7)
    ids.sure(ids.mark())

    for number in range(60):
        for _ in range(1000):
            ids.add(8)
            ids.discard(8)
        ids.sure(ids.mark())
        node.hub.scheduler.finish()
        peer.poll(3)

    folder = node.vhost.extras["mqtt"].inflight.store.folder
    node.wait(lambda: len([name for name in os.listdir(folder) if name.startswith("msgs")]) <= 5)
    again = nodes()
    assert received(again) == {7}
    assert Peer(again).packet().dup


def test_a_kill_before_a_thread_has_named_files_loses_nothing(nodes, monkeypatch):
    """Files that were made ahead get their names later, for other stores."""
    node = nodes()
    ids = Peer(node).session.received_ids()
    ids.add(7)
    monkeypatch.setattr(node.committer, "change", names_nothing)

    fill(node, ids, 1)
    ids.add(9)

    assert received(nodes()) == {7, 9}


def test_what_is_written_anew_is_there_twice_until_it_is_safe(nodes, monkeypatch):
    node, ids, flushed = written_anew(nodes, monkeypatch)
    assert segments(node)[0] == 1

    for callback in flushed:
        callback(None)

    assert segments(node)[0] > 1
    assert received(nodes()) == {7}


def test_what_was_written_anew_and_released_does_not_come_back(nodes, monkeypatch):
    node, ids, _ = written_anew(nodes, monkeypatch)

    ids.discard(7)
    node.hub.scheduler.finish()

    assert received(nodes()) == set()


def test_after_a_kill_those_do_not_count_whose_messages_lie_in_files_without_names(nodes, monkeypatch):
    node = nodes()
    ids = Peer(node).session.received_ids()
    ids.add(4)
    pool = node.vhost.extras["mqtt"].inflight.store.pool
    named, unnamed = (os.path.join(os.path.dirname(pool.folder), name) for name in ("named", "unnamed"))
    pool.expect(65536)
    node.wait(lambda: pool.has(65536))
    monkeypatch.setattr(node.committer, "change", names_nothing)
    files = pool.take(*(os.path.join(unnamed, f"{kind}.0000000001") for kind in ("msgs", "acks")), 65536)

    ids.add(5, (StoresIn(unnamed),))
    ids.add(6, (StoresIn(named),))
    ids.add(7, (StoresIn(unnamed),))
    for file in files:
        file.close()

    assert received(nodes()) == {4, 6}


class StoresIn(Destination):
    """A destination that stores messages in this folder."""

    def __init__(self, folder):
        super().__init__("q", True)
        self._folder = folder

    def folder(self):
        return self._folder


def names_nothing(changes, done=None, soon=False):
    """Instead of GroupCommit.change: the process is killed before a thread changes names."""


def fill(node, ids, rolls):
    """Have exchanges begin and end until so many segments more have been begun, from files made ahead."""
    store = node.vhost.extras["mqtt"].inflight.store
    last = segments(node)[-1] + rolls
    while segments(node)[-1] < last:
        for _ in range(100):
            ids.add(8)
            ids.discard(8)
        node.hub.scheduler.finish()
        if store.pool._expected:
            node.wait(lambda: all(store.pool.has(size) for size, _ in store.pool._expected))


def segments(node):
    """The numbers of the segments that are there."""
    return [number for number, _, _ in node.vhost.extras["mqtt"].inflight.store.layout()]


def written_anew(nodes, monkeypatch):
    """A node where identifier 7 was written anew, and what waits for the disk waits still: the node, the
    identifiers, and who waits.
    """
    node, flushed = nodes(), []
    ids = Peer(node).session.received_ids()
    ids.add(7)
    ids.sure(ids.mark())
    monkeypatch.setattr(node.committer, "after_sync", lambda callback, *_, **__: flushed.append(callback))
    fill(node, ids, 4)
    node.wait(lambda: node.vhost.extras["mqtt"].inflight.moving is None)
    return node, ids, flushed


def test_a_full_disk_keeps_nobody_from_their_messages(nodes, monkeypatch):
    node = nodes()
    peer = Peer(node).subscribe("t", qos=2)
    monkeypatch.setattr(node.vhost, "make_store", no_room)

    publish(node, mqtt_message("t", b"x", 2))

    assert peer.packet().packet_identifier == 1
    peer.acknowledge(5, 1)
    peer.packet()
    peer.acknowledge(7, 1)
    assert peer.outbound.sent.used == 0


def no_room(_name):
    from gomq_py.errors import OutOfResources
    raise OutOfResources("no room")
