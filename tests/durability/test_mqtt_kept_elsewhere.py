"""QoS 2 where somebody else keeps what the broker keeps, and may take its place: a follower."""
import threading

import pytest

from gomq_py.mqtt.wire.constants import PUBREC, PUBREL
from tests.support.acknowledger import HandAcknowledger
from tests.support.mirror import Mirror
from tests.support.mqtt_outbound import Peer, mqtt_message, mqtt_node, publish
from tests.support.unflushed import Unflushed
from tests.support.waiting import in_time


@pytest.fixture
def node(tmp_path):
    (tmp_path / "data").mkdir()
    node = mqtt_node(tmp_path / "data", files=Unflushed([Mirror(tmp_path / "data", tmp_path / "copy")]))
    yield node
    node.stop()


def follow(node):
    """Somebody who keeps what the node keeps, from now on."""
    other = HandAcknowledger()
    node.broker.durability.add(other)
    return other


def finish(node, other, error=None):
    node.wait(lambda: other.waiting)
    other.finish(error)


@pytest.mark.parametrize("octets", [1, 500_000])
def test_publish_leaves_when_others_know_of_it(node, octets):
    """Neither does anything that comes behind it. One message is larger than the output buffer."""
    peer = Peer(node).subscribe("t", qos=2)
    other = follow(node)

    publish(node, mqtt_message("t", bytes(octets), 2), mqtt_message("t", b"y", 1))
    peer.expect_nothing()
    publish(node, mqtt_message("t", b"z", 1))
    peer.expect_nothing()
    finish(node, other)

    assert [len(packet.payload) for packet in peer.packets(3)] == [octets, 1, 1]


def test_pubrel_leaves_when_others_know_that_the_message_was_taken(node):
    """Else the client, which has forgotten the identifier by then, would take it for another message."""
    peer = Peer(node).subscribe("t", qos=2)
    publish(node, mqtt_message("t", b"x", 2))
    identifier = peer.packet().packet_identifier
    other = follow(node)

    peer.acknowledge(PUBREC, identifier)
    peer.expect_nothing()
    finish(node, other)

    assert (peer.packet().TYPE, identifier) == (PUBREL, 1)


def test_pubrel_waits_for_the_deletion_if_a_flush_has_begun_without_it(node, tmp_path, monkeypatch):
    """The deletion itself is in no flush that anything waits for."""
    peer = Peer(node).subscribe("t", qos=2)
    publish(node, mqtt_message("t", b"x", 2))
    identifier = peer.packet().packet_identifier
    peer.session.sent.records.await_flush()
    node.committer.wait()
    other, begun, may_end = follow(node), threading.Event(), threading.Event()
    monkeypatch.setattr(node.files, "sync_folder", lambda path: begun.set() or may_end.wait(in_time(60)))
    node.committer.mark_folder(tmp_path / "data")
    node.committer.after_sync(lambda error: None)
    node.wait(begun.is_set)

    peer.acknowledge(PUBREC, identifier)
    told = node.files.register.told
    may_end.set()

    node.wait(lambda: other.waiting)
    assert other.positions[0] >= told
    finish(node, other)
    assert peer.packet().TYPE == PUBREL


def test_qos_1_and_a_session_that_ends_with_its_connection_wait_for_nobody(node):
    follow(node)
    kept, other = Peer(node).subscribe("t", qos=1), Peer(node, "other", expiry_s=0).subscribe("t", qos=2)

    publish(node, mqtt_message("t", b"x", 2))

    assert [peer.packet().qos for peer in (kept, other)] == [1, 2]


@pytest.mark.parametrize("answers", [False, True])
def test_client_that_is_sent_what_others_refuse_is_let_go_and_gets_it_when_it_comes_again(node, answers):
    peer = Peer(node).subscribe("t", qos=2)
    if answers:
        publish(node, mqtt_message("t", b"x", 2))
        peer.acknowledge(PUBREC, peer.packet().packet_identifier)
        assert peer.packet().TYPE == PUBREL
    other = follow(node)
    publish(node, mqtt_message("t", b"y", 2))

    finish(node, other, OSError("gone"))
    assert "is not safe" in peer.heard[0]
    node.broker.durability.remove(other)

    again = Peer(node)
    if answers:
        assert again.packet().TYPE == PUBREL
    assert again.packet().payload == b"y"


def test_what_waits_when_the_connection_ends_is_not_sent(node):
    peer = Peer(node).subscribe("t", qos=2)
    other = follow(node)
    publish(node, mqtt_message("t", b"x", 2))
    peer.disconnect()

    again = Peer(node)
    node.wait(lambda: len(other.waiting) == 2)
    other.finish()

    assert again.packet().payload == b"x"
    again.expect_nothing()


def test_pubrel_for_a_message_that_is_gone_leaves_when_others_know_that(node):
    """On b83bb75a it left at once."""
    peer = Peer(node).subscribe("t", qos=2)
    publish(node, mqtt_message("t", b"x", 2))
    peer.packet()
    peer.disconnect()
    peer = Peer(node, begin=False)
    peer.outbound.begin()
    other = follow(node)

    peer.session.queue.purge()

    peer.expect_nothing()
    finish(node, other)
    assert peer.packet().TYPE == PUBREL
