"""Sent: what is under way over lost connections, faults of the queue, and limits that want it gone."""
from pathlib import Path

import pytest

from gomq_py.mqtt.model.session_kind import kept_arguments
from gomq_py.storage.disk.data_dir import POWER_LOST
from gomq_py.storage.errors import StoreError
from tests.support.full_disk import FullDisk
from tests.support.mqtt_outbound import Peer, mqtt_message, mqtt_node, noted_of, publish

PUBLISH, PUBACK, PUBREC, PUBREL, PUBCOMP = 3, 4, 5, 6, 7
# More than goes back to the queue at once (sent.AT_ONCE), twice.
MANY = 6000
# Identifiers that are made at once (sent.FIRST_ROWS).
FIRST_ROWS = 16


@pytest.fixture
def node(tmp_path):
    node = mqtt_node(tmp_path / "data")
    yield node
    node.stop()


def fail_and_restart(node, peer):
    """A fault closes the peer's queue, which an operator opens again."""
    queue = peer.session.queue
    queue.fail(StoreError(queue.name, 0, "a fault of a test"))
    node.vhost.restart_queue(queue)
    assert peer.heard and peer.session.queue is not queue


# a queue that is opened again after a fault

def test_identifiers_survive_a_queue_that_is_opened_again(node):
    """The client holds 1 until its PUBCOMP, and would take another message with it for the same."""
    peer = Peer(node).subscribe("t", qos=2)
    publish(node, mqtt_message("t", b"A", 2))
    peer.packet()
    peer.acknowledge(PUBREC, 1)
    peer.expect(b"\x62\x02\x00\x01")

    fail_and_restart(node, peer)
    again = Peer(node)
    publish(node, mqtt_message("t", b"B", 2))

    assert (again.packet().TYPE, again.packet().packet_identifier) == (PUBREL, 2)
    again.acknowledge(PUBCOMP, 1)
    again.acknowledge(PUBREC, 2)
    again.expect(b"\x62\x02\x00\x02")
    again.acknowledge(PUBCOMP, 2)
    assert again.outbound.sent.used == again.session.queue.unacked_count == 0


@pytest.mark.parametrize("qos, acknowledgement", [(1, PUBACK), (2, PUBREC)])
def test_what_is_acknowledged_to_a_closed_queue_comes_again(node, qos, acknowledgement):
    """As nothing was settled; with its identifier, so that a client at QoS 2 knows it."""
    peer = Peer(node).subscribe("t", qos=qos)
    publish(node, mqtt_message("t", b"A", qos))
    peer.packet()
    queue = peer.session.queue
    peer.abort = peer.force_close = peer.heard.append  # its connection has yet to end
    queue.fail(StoreError(queue.name, 0, "a fault of a test"))

    peer.acknowledge(acknowledgement, 1)
    peer.expect_nothing()
    node.vhost.restart_queue(queue)
    again = Peer(node)

    packet = again.packet()
    assert (packet.payload, packet.packet_identifier, packet.dup) == (b"A", 1, True)
    again.expect_nothing()


# very much under way

def many_under_way(node, qos=1):
    """A peer that has been sent so many messages and has acknowledged none."""
    peer = Peer(node, output_limit=1 << 24).subscribe("t", qos=qos)
    for start in range(0, MANY, 1000):
        publish(node, *(mqtt_message("t", b"%d" % (start + number), qos) for number in range(1000)))
        peer.packets(1000)
    assert peer.outbound.sent.used == MANY
    return peer


def test_very_much_under_way_goes_back_in_steps(node):
    peer = many_under_way(node)
    queue = peer.session.queue

    peer.disconnect()

    assert 0 < queue.ready_count < MANY and queue.unacked_count == MANY - queue.ready_count
    node.wait(lambda: queue.ready_count == MANY)
    assert queue.unacked_count == 0


@pytest.mark.parametrize("qos", [1, 2])
def test_client_that_comes_back_meanwhile_gets_it_in_order(node, qos):
    peer = many_under_way(node, qos)
    peer.disconnect()
    publish(node, mqtt_message("t", b"%d" % MANY, qos))

    again = Peer(node, output_limit=1 << 24)

    got = again.packets(MANY + 1)
    assert [int(packet.payload) for packet in got] == list(range(MANY + 1))
    assert [packet.packet_identifier for packet in got] == list(range(1, MANY + 2))
    assert all(packet.dup for packet in got[:-1]) and not got[-1].dup
    again.expect_nothing()


def test_client_that_takes_over_twice_meanwhile_gets_it_once(node):
    many_under_way(node)

    Peer(node)
    last = Peer(node, output_limit=1 << 24)

    assert [int(packet.payload) for packet in last.packets(MANY)] == list(range(MANY))
    last.expect_nothing()


def test_purge_meanwhile_releases_what_is_gone(node):
    peer = many_under_way(node, 2)
    peer.disconnect()
    again = Peer(node, output_limit=1 << 24)

    gone = again.session.queue.purge()

    assert 0 < gone < MANY
    packets = again.packets(MANY)
    assert [packet.TYPE for packet in packets].count(PUBREL) == gone
    assert len({packet.packet_identifier for packet in packets}) == MANY


def test_purge_of_all_that_has_come_back_by_the_end_releases_it(node):
    peer = many_under_way(node, 2)
    peer.disconnect()
    again = Peer(node, output_limit=1 << 24, begin=False)
    queue = again.session.queue

    gone = 0
    while gone < MANY:
        gone += queue.purge()
        again.poll(1)
    again.outbound.begin()

    assert {packet.TYPE for packet in again.packets(MANY)} == {PUBREL}


def test_session_that_ends_meanwhile_leaves_nothing(node):
    peer = many_under_way(node, 2)
    peer.disconnect()

    peer.sessions.end(peer.session)

    node.wait(lambda: noted_of(peer.sessions.qos2_records) == 0)  # once the disk has its end
    assert "mqtt.c" not in node.vhost.queues


def test_queue_that_fails_and_is_opened_again_meanwhile_has_it_all(node):
    peer = many_under_way(node, 2)
    queue = peer.session.queue
    peer.disconnect()
    queue.fail(StoreError(queue.name, 0, "a fault of a test"))
    node.vhost.restart_queue(queue)

    again = Peer(node, output_limit=1 << 24)

    got = again.packets(MANY)
    assert [(int(packet.payload), packet.packet_identifier) for packet in got] == [
        (number, number + 1) for number in range(MANY)]


def test_identifiers_are_kept_anew_in_steps(node):
    peer = Peer(node, output_limit=1 << 24).subscribe("t", qos=2)
    publish(node, *(mqtt_message("t", b"x", 2) for _ in range(250)))
    peer.packets(250)
    before = noted_of(peer.sessions.qos2_records)

    places = [1]
    while places[-1]:
        places.append(peer.outbound.sent.move(1 << 20, places[-1]))

    assert places == [1, 101, 201, 0]
    assert noted_of(peer.sessions.qos2_records) == before + 250  # the old copies go when these are safe


# limits

def bounded_peer(node, octets=1000, **options):
    peer = Peer(node, **options)
    queue = peer.session.queue
    node.vhost.redefine_queue(queue, {**queue.arguments, **kept_arguments(octets, "drop-head")})
    return peer


def test_limit_drops_what_lies_behind_what_was_sent_at_qos_2(node):
    """[MQTT-4.3.3-7]: the client completes the exchange when it is back."""
    peer = bounded_peer(node).subscribe("t", qos=2)
    publish(node, mqtt_message("t", b"A" * 500, 2), mqtt_message("t", b"B" * 300, 1))
    peer.packets(2)
    peer.disconnect()

    publish(node, *(mqtt_message("t", b"%d" % number * 200, 2) for number in range(9)))

    queue = peer.session.queue
    assert queue.ready_bytes <= 1000 and queue.unacked_count == 1
    left = queue.ready_count
    again = Peer(node)
    got = again.packets(1 + left)
    assert (got[0].payload, got[0].packet_identifier, got[0].dup) == (b"A" * 500, 1, True)
    assert [packet.payload[:1] for packet in got[-2:]] == [b"7", b"8"]
    again.acknowledge(PUBREC, 1)
    assert again.packet().TYPE == PUBREL


def test_restart_keeps_what_a_limit_had_to_leave(tmp_path):
    node = mqtt_node(tmp_path / "data")
    peer = bounded_peer(node).subscribe("t", qos=2)
    publish(node, mqtt_message("t", b"A" * 500, 2))
    peer.packet()
    peer.disconnect()
    publish(node, *(mqtt_message("t", b"%d" % number * 200, 2) for number in range(9)))
    node.kill()
    node = mqtt_node(tmp_path / "data")
    publish(node, *(mqtt_message("t", b"%d" % number * 200, 2) for number in range(9)))

    again = Peer(node)

    packet = again.packet()
    assert (packet.payload, packet.packet_identifier, packet.dup) == (b"A" * 500, 1, True)
    assert again.packet().payload[:1] in b"5678"
    node.stop()


def test_client_that_takes_nothing_is_kept_no_more_than_its_limit(node):
    """What is owed to it may not go, and it does not take it: then what comes is thrown away."""
    peer = bounded_peer(node).subscribe("t", qos=2)
    publish(node, *(mqtt_message("t", b"A" * 300, 2) for _ in range(2)))
    peer.packets(2)
    peer.disconnect()
    again = bounded_peer(node, receive_maximum=1)
    again.packet()

    publish(node, *(mqtt_message("t", b"%d" % number * 300, 2) for number in range(9)))

    queue = again.session.queue
    assert queue.counted_bytes(None) < 1000 + 400 and queue.unacked_count == 1  # the last that had room
    for kind in (PUBREC, PUBCOMP):
        again.acknowledge(kind, 1)
        packet = again.packet()
    assert (packet.payload, packet.packet_identifier) == (b"A" * 300, 2)
    publish(node, mqtt_message("t", b"last", 2))
    for kind in (PUBREC, PUBCOMP):
        again.acknowledge(kind, 2)
        packet = again.packet()
    assert packet.payload in (b"0" * 300, b"last")


@pytest.mark.parametrize("topic, block", [("t" * 250, b""), ("t", b"\x26\0\1a\0\xff" + b"b" * 255)])
def test_empty_payloads_count_with_their_topics_and_properties(node, topic, block):
    peer = bounded_peer(node, 10_000).subscribe("#", qos=1)
    peer.disconnect()

    publish(node, *(mqtt_message(topic, b"", 1, properties=block) for _ in range(1000)))

    queue = peer.session.queue
    assert 20 < queue.ready_count < 40


# identifiers that a loss of power has taken from the broker, and not from the client

@pytest.fixture
def without_what_was_sent(tmp_path, monkeypatch):
    """A node whose power was cut, with the session of a client that has PUBREL for 1 on its way. What lay in
    the store of identifiers is gone.
    """
    node = mqtt_node(tmp_path / "data")
    peer = Peer(node).subscribe("t", qos=2)
    publish(node, mqtt_message("t", b"A", 2))
    peer.packet()
    peer.acknowledge(PUBREC, 1)
    peer.expect(b"\x62\x02\x00\x01")
    store = peer.sessions.qos2_records.store
    node.committer.wait()
    node.kill()
    for file in Path(store.folder).iterdir():
        file.unlink()
    with monkeypatch.context() as cut:
        cut.setattr("gomq_py.storage.disk.data_dir._last_end", lambda *_: POWER_LOST)
        node = mqtt_node(tmp_path / "data")
    return node


def test_after_a_loss_of_power_as_much_is_under_way_as_the_client_takes(without_what_was_sent):
    """The identifiers that are made when more are needed are released, too."""
    node = without_what_was_sent
    try:
        peer = Peer(node)
        publish(node, *(mqtt_message("t", b"%d" % number, 2) for number in range(FIRST_ROWS + 2)))

        for first, count in ((1, FIRST_ROWS), (FIRST_ROWS + 1, 2)):
            released = [peer.packet().packet_identifier for _ in range(FIRST_ROWS)]
            assert released == list(range(first, first + FIRST_ROWS))
            for identifier in released:
                peer.acknowledge(PUBCOMP, identifier)
            identifiers = [packet.packet_identifier for packet in peer.packets(count)]
            assert identifiers == released[:count]
        peer.expect_nothing()
    finally:
        node.stop()


def test_client_that_answers_no_pubrel_after_a_loss_of_power_is_sent_messages_later(
    without_what_was_sent, monkeypatch
):
    """With identifiers that have not been released. On d1dc40df it never got another message."""
    node = without_what_was_sent
    try:
        peer = Peer(node)
        publish(node, mqtt_message("t", b"B", 2))
        assert {peer.packet().TYPE for _ in range(FIRST_ROWS)} == {PUBREL}
        peer.disconnect()

        monkeypatch.setattr("gomq_py.mqtt.server.delivery.RELEASE_MS", 1)
        peer = Peer(node)
        assert {peer.packet().TYPE for _ in range(FIRST_ROWS)} == {PUBREL}
        publish(node, mqtt_message("t", b"C", 2))

        assert [(each.payload, each.packet_identifier) for each in peer.packets(2)] == [
            (b"B", FIRST_ROWS + 1), (b"C", FIRST_ROWS + 2)]
        peer.acknowledge(PUBCOMP, 1)
        assert peer.outbound.sent.used == FIRST_ROWS + 1
    finally:
        node.stop()


@pytest.mark.parametrize("end", ["", "kill", "stop"])
def test_after_a_loss_of_power_identifiers_are_released_before_they_are_used(
    tmp_path, without_what_was_sent, end
):
    """Also over an end of the broker after that. On 7675f4c1 B came with 1, and a client that holds A with it
    dropped it [MQTT-4.3.3-2].
    """
    node = without_what_was_sent
    if end:
        getattr(node, end)()
        node = mqtt_node(tmp_path / "data")
    try:
        peer = Peer(node)
        publish(node, mqtt_message("t", b"first", 1), mqtt_message("t", b"B", 2), mqtt_message("t", b"C", 2))

        assert peer.packet().payload == b"first"
        for identifier in range(2, FIRST_ROWS + 1):
            released = peer.packet()
            assert (released.TYPE, released.packet_identifier) == (PUBREL, identifier)
        publish(node, mqtt_message("t", b"D", 2))
        peer.expect_nothing()
        peer.acknowledge(PUBACK, 1)
        assert (peer.packet().TYPE, peer.outbound.sent.used) == (PUBREL, FIRST_ROWS)
        peer.acknowledge(PUBCOMP, 3, 0x92)
        packet = peer.packet()
        assert (packet.payload, packet.packet_identifier, packet.dup) == (b"B", 3, False)
        peer.expect_nothing()
        peer.disconnect()
        peer = Peer(node)
        again = [peer.packet() for _ in range(FIRST_ROWS)]
        assert sorted(each.packet_identifier for each in again if each.TYPE == PUBREL) == [
            1, 2, *range(4, FIRST_ROWS + 1)]
        assert again[-1].payload == b"B"
        for identifier in (1, 2):
            peer.acknowledge(PUBCOMP, identifier)
        assert [(each.payload, each.packet_identifier) for each in peer.packets(2)] == [(b"C", 1), (b"D", 2)]
    finally:
        node.stop()


@pytest.mark.parametrize("end", ["kill", "stop"])
@pytest.mark.parametrize("later", ["full", "room"])
@pytest.mark.parametrize("before", ["nothing", "others"])
def test_identifiers_that_a_full_disk_did_not_note_are_released_before_they_are_used(
    tmp_path, before, later, end
):
    """On 7b959f01 B came without PUBREL, and a client that holds A with it dropped it [MQTT-4.3.3-2]."""
    files = FullDisk()
    node = mqtt_node(tmp_path / "data", files=files, segment_size=1 << 16)
    peer = Peer(node).subscribe("t", qos=2)
    records = peer.sessions.qos2_records
    publish(node, mqtt_message("t", b"0", 1))
    peer.packet()
    peer.acknowledge(PUBACK, 1)
    if before == "others":
        records.received_before(0, 1, True, b"")
    files.is_full = True
    while records.received_before(0, 1, True, b""):
        pass
    publish(node, mqtt_message("t", b"A", 2))
    held = peer.packet().packet_identifier
    peer.acknowledge(PUBREC, held)
    assert peer.packet().TYPE == PUBREL
    if later == "room":
        files.is_full = False
        begin_segments(node, records)
    getattr(node, end)()

    node = mqtt_node(tmp_path / "data")
    try:
        peer = Peer(node)
        publish(node, mqtt_message("t", b"B", 2))

        for _ in range(FIRST_ROWS):
            assert peer.packet().TYPE == PUBREL
        peer.acknowledge(PUBCOMP, held)
        assert peer.packet().packet_identifier == held
    finally:
        node.stop()


def test_store_that_is_written_anew_leaves_no_doubt(tmp_path):
    node = mqtt_node(tmp_path / "data", segment_size=1 << 16)
    records = Peer(node).subscribe("t", qos=2).sessions.qos2_records
    before = records.trust_at
    begin_segments(node, records)
    assert 0 < before < records.trust_at
    node.kill()

    node = mqtt_node(tmp_path / "data")
    try:
        peer = Peer(node)
        publish(node, mqtt_message("t", b"B", 2))
        assert peer.packet().TYPE == PUBLISH
    finally:
        node.stop()


def begin_segments(node, records):
    """Note so much, and have it done with, that all of the store is written anew."""
    for _ in range(8):
        for _ in range(1000):
            records.done(records.received_before(0, 1, True, b""))
        node.wait(lambda: records.moving is None)
