"""QoS2Records: packet identifiers at QoS 2 that outlive the process, and do not after a power cut where their
messages may not.
"""
import errno
import os
from functools import partial
from pathlib import Path
from random import Random
from types import SimpleNamespace

import pytest

from gomq_py.broker.topology.own_stores import OwnStores
from gomq_py.broker.verbs.blocked_publish import BlockedPublish
from gomq_py.content import forms
from gomq_py.errors import OutOfResources
from gomq_py.hub import timers as timers_module
from gomq_py.mqtt.model.received import Received
from gomq_py.mqtt.model.session_kind import QOS2_STORE
from gomq_py.mqtt.wire import packets
from gomq_py.mqtt.wire.constants import PUBLISH, PUBREC, PUBREL
from gomq_py.mqtt.wire.crossing import MQTTForm
from gomq_py.storage.disk import data_dir
from gomq_py.storage.errors import StoreError
from gomq_py.storage.message import Message
from tests.support.mirror import Mirror
from tests.support.mqtt_outbound import (
    Peer, make_sure, mqtt_message, mqtt_node, note_received, noted_of, publish,
)
from tests.support.unflushed import Unflushed

# Of the messages that mqtt_message() makes; and more destinations than the places of are noted.
SENT_MS = 1_700_000_000_000
PLACES = 4096


@pytest.fixture
def nodes(tmp_path, monkeypatch):
    """A function that boots a node over the same folder after the one before was killed, on a machine whose
    boot is this.
    """
    running = []

    def boot(number=1, how="kill", between=None):
        if running and how == "kill_unanswered":
            running.pop().kill(are_answered=False)
        elif running:
            getattr(running.pop(), how)()
        if between is not None:
            between()
        monkeypatch.setattr(data_dir, "boot_id", lambda: b"%d\n" % number)
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
    note_received(ids, 5)
    make_sure(ids)
    note_received(ids, 6)

    assert received(nodes()) == {5, 6}
    assert received(nodes()) == {5, 6}


def test_no_failure_forgets_what_has_come_in_an_earlier_run(nodes):
    """The client sends it again beside another message, whose queue fails."""
    note_received(Peer(nodes()).session.received_ids(), 5)
    node = nodes()
    ids = node.vhost.extras["mqtt"].by_client["c"].received_ids()
    note_received(ids, 6)
    sick = node.vhost.create_queue("z", True, False, {}, None)
    sick.fail(OSError(errno.EIO, "no disk"))

    ids.lost_by_some(5, [sick])
    ids.lost_by_some(6, [sick])
    assert received(node) == {5}

    assert ids.discard(5)
    note_received(ids, 5)
    ids.lost_by_some(5, [sick])  # another one, with its identifier
    assert received(node) == set()


@pytest.mark.parametrize("how", ["kill", "stop"])
def test_after_a_power_cut_those_count_whose_messages_are_on_the_disk(nodes, how):
    ids = Peer(nodes()).session.received_ids()
    note_received(ids, 5)
    make_sure(ids)
    note_received(ids, 6)

    expected = {5} if how == "kill" else {5, 6}
    assert received(nodes(2, how)) == expected
    assert received(nodes(2)) == expected


def test_one_that_is_not_sure_is_waited_for_when_its_message_comes_again(nodes):
    node = nodes()
    ids = Peer(node).session.received_ids()
    note_received(ids, 5)

    assert ids.awaited(5) == [(node.vhost.extras["mqtt"].qos2_records,)]
    make_sure(ids)
    assert ids.awaited(5) == [] and ids.awaited(6) == []


def test_released_identifier_does_not_come_back(nodes):
    node = nodes()
    ids = Peer(node).session.received_ids()
    note_received(ids, 5)
    note_received(ids, 6)
    ids.discard(5)
    node.hub.scheduler.finish()  # the end of a walk

    assert received(nodes()) == {6}


def failed_and_replaced(node):
    """The disk fails the store of identifiers, and a new one takes its place."""
    sessions = node.vhost.extras["mqtt"]
    before = sessions.qos2_records
    before.store.fence(OSError(5, "the disk failed"))
    assert before.failed
    node.wait(
        lambda: sessions.qos2_records is not before and not sessions.qos2_records.failed
        and not sessions._replacing.running)
    return before


def test_nothing_new_is_sent_at_qos_2_before_a_new_store_of_identifiers_is_named(nodes, monkeypatch):
    """A kill before that would have the next start use the identifier for another message, and send this one
    again with another one. What is under way goes on. On dec4db39 the second message was sent.
    """
    node = nodes()
    monkeypatch.setattr(timers_module, "FIRST_PAUSE_MS", 1)
    peer = Peer(node).subscribe("t", qos=2)
    publish(node, mqtt_message("t", b"1", qos=2))
    assert peer.packet().packet_identifier == 1
    sessions, vhost, attempts = node.vhost.extras["mqtt"], node.vhost, []

    def refuse(name):
        attempts.append(name)
        raise OutOfResources("no disk")

    with monkeypatch.context() as patch:
        patch.setattr(vhost.stores, "replace", refuse)
        sessions.qos2_records.store.fence(OSError(errno.EIO, "the disk failed"))
        publish(node, mqtt_message("t", b"2", qos=2))
        node.wait(lambda: len(attempts) > 2)
        peer.expect_nothing()
        peer.acknowledge(PUBREC, 1)
        assert peer.packet() == packets.PubrelPacket(packet_identifier=1)

    node.wait(lambda: not sessions.qos2_records.is_stuck)
    packet = peer.packet()
    assert (packet.payload, packet.packet_identifier) == (b"2", 2)
    assert noted_of(sessions.qos2_records) == 2


@pytest.mark.parametrize("number, expected", [(1, {6, 7, 8}), (2, {6})])
def test_what_is_under_way_when_the_store_fails_is_kept_in_a_new_one(nodes, number, expected):
    """After a power cut that counts which was sure before the fault."""
    node = nodes()
    ids = Peer(node).session.received_ids()
    for identifier in (5, 6):
        note_received(ids, identifier)
    make_sure(ids)
    note_received(ids, 7)

    failed_and_replaced(node)
    note_received(ids, 8)
    assert ids.discard(5)
    node.hub.scheduler.finish()

    assert received(nodes(number)) == expected


def test_what_a_client_is_owed_when_the_store_fails_comes_again_with_its_identifier(nodes):
    node = nodes()
    peer = Peer(node).subscribe("t", qos=2)
    publish(node, *(mqtt_message("t", b"%d" % number, 2) for number in range(3)))
    assert [packet.packet_identifier for packet in peer.packets(3)] == [1, 2, 3]
    peer.acknowledge(PUBREC, 2)
    assert peer.packet().TYPE == PUBREL

    failed_and_replaced(node)

    for number in (1, 1, 2):  # a kill, another one, and a power cut that found all on the disk
        peer = Peer(nodes(number))
        came = peer.packets(3)
        assert [(packet.TYPE, packet.packet_identifier) for packet in came] in (
            [(PUBLISH, 1), (PUBREL, 2), (PUBLISH, 3)], [(PUBLISH, 1), (PUBLISH, 3), (PUBREL, 2)])
        assert all(packet.dup for packet in came if packet.TYPE == PUBLISH)


def test_of_an_earlier_run_too(nodes):
    """The place of a message in its files may be another one's by then."""
    peer = Peer(nodes()).subscribe("t", qos=2)
    publish(peer.node, mqtt_message("t", b"x", 2))
    assert peer.packet().packet_identifier == 1
    node = nodes()
    ids = node.vhost.extras["mqtt"].by_client["c"].sent
    earlier = ids.begun()

    failed_and_replaced(node)

    assert ids.begun() == earlier and 0 not in earlier.values()


def test_of_an_earlier_run_when_the_new_store_fails_too(nodes, monkeypatch):
    """Fails on 6805b4a2: what could not be noted in the second store was taken for this run's."""
    peer = Peer(nodes()).subscribe("t", qos=2)
    publish(peer.node, mqtt_message("t", b"x", 2))
    assert peer.packet().packet_identifier == 1
    node = nodes()
    sessions = node.vhost.extras["mqtt"]
    ids = sessions.by_client["c"].sent
    earlier, renew, renewed = ids.begun(), sessions.renew_qos2_records, []

    def renew_and_fail_once():
        renewed.append(renew())
        if len(renewed) == 1:
            sessions._replacing._pause_ms = 0
            sessions.qos2_records.store.fence(OSError(5, "the disk failed"))
        return renewed[-1]

    monkeypatch.setattr(sessions, "renew_qos2_records", renew_and_fail_once)

    failed_and_replaced(node)

    assert len(renewed) == 2
    assert ids.begun() == earlier and 0 not in earlier.values()


def test_who_waits_for_files_when_the_store_fails_gets_it_once_all_the_same(nodes):
    node = nodes()
    left_waiting(node)
    failed_and_replaced(node)
    node.hub.scheduler.finish()

    assert lacking(nodes()) == ["b"]


def test_what_was_marked_in_the_store_that_failed_says_nothing_of_the_new_one(nodes):
    node = nodes()
    ids = Peer(node).session.received_ids()
    for identifier in range(1, 9):
        note_received(ids, identifier)
    added, mark = ids.added, ids.records.last_received

    failed_and_replaced(node)
    note_received(ids, 9)
    ids.sure(added, mark)

    assert received(nodes(2)) == set()


def test_a_store_that_fails_again_is_made_anew_after_a_while(nodes):
    node = nodes()
    sessions = node.vhost.extras["mqtt"]
    ids = Peer(node).session.received_ids()
    note_received(ids, 5)
    failed_and_replaced(node)
    sessions._replacing._pause_ms = 1

    failed_and_replaced(node)

    assert sessions._replacing._pause_ms >= 1000
    assert received(nodes()) == {5}


def test_a_store_that_cannot_be_opened_is_made_anew(nodes, monkeypatch):
    """A client whose identifiers it had may send a message a second time, and goes on."""
    note_received(Peer(nodes()).session.received_ids(), 5)
    recover = OwnStores.recover

    def fail(stores, name, incarnation):
        factory, vhost = stores._factory, stores._vhost

        def open_own(*arguments):
            factory._known_folders.add(factory._folder(vhost.name, name, incarnation))
            raise StoreError("folder", 0, "the disk says no")
        with monkeypatch.context() as patch:
            if name == QOS2_STORE:
                patch.setattr(factory, "open_own", open_own)
            recover(stores, name, incarnation)

    with monkeypatch.context() as patch:
        patch.setattr(OwnStores, "recover", fail)
        node = nodes()
    sessions = node.vhost.extras["mqtt"]
    node.wait(lambda: not sessions.qos2_records.failed)
    ids = sessions.by_client["c"].received_ids()
    assert not ids.has(5)
    note_received(ids, 6)

    assert received(nodes()) == {6}


def test_files_of_the_store_that_failed_go(nodes):
    node = nodes()
    note_received(Peer(node).session.received_ids(), 5)
    node.committer.wait()

    before = failed_and_replaced(node)

    node.wait(lambda: not os.path.exists(before.store.folder))


def test_sessions_that_end_with_their_connection_keep_nothing(nodes):
    node = nodes()
    peer = Peer(node, expiry_s=0).subscribe("t", qos=2)
    publish(node, mqtt_message("t", b"x", 2))
    peer.packet()
    note_received(peer.session.received_ids(), 5)

    assert node.vhost.extras["mqtt"].qos2_records.store is None


def end_session(node, peer, begins_anew):
    """End the session of a peer, as expiry does or as a client that wants a clean start. Returns the client
    of the new one, or None.
    """
    if begins_anew:
        peer = Peer(node, clean_start=True).subscribe("t", qos=2)
    else:
        peer.sessions.end(peer.session)
        peer = None
    node.hub.scheduler.finish()  # the end of a batch
    return peer


def with_identifiers(node):
    """A client that has been sent 1 to 3, has taken 2, and has published with 7."""
    peer = Peer(node).subscribe("t", qos=2)
    publish(node, *(mqtt_message("t", b"%d" % number, 2) for number in range(3)))
    peer.packets(3)
    peer.acknowledge(PUBREC, 2)
    note_received(peer.session.received_ids(), 7)
    return peer


@pytest.mark.parametrize("begins_anew", [False, True])
def test_session_that_a_kill_brings_back_has_its_identifiers(nodes, begins_anew):
    """Its end waits for a slow flush of the definitions, and the kill comes first: the client, and whoever
    publishes for it, know the identifiers. Fails on 533b2e0a, which deleted them at once: seed 305 of the
    simulation saw a new message come with one of them.
    """
    node = nodes()
    peer = with_identifiers(node)
    node.committer.wait()
    if end_session(node, peer, begins_anew) is not None:
        note_received(node.vhost.extras["mqtt"].by_client["c"].received_ids(), 9)

    node = nodes(how="kill_unanswered")
    assert received(node) == {7}
    came = Peer(node).packets(3)
    assert sorted((packet.TYPE, packet.packet_identifier) for packet in came) == [
        (PUBLISH, 1), (PUBLISH, 3), (PUBREL, 2)]


@pytest.mark.parametrize("is_seen", [True, False])
@pytest.mark.parametrize("begins_anew", [False, True])
def test_identifiers_of_a_session_that_has_ended_go_and_a_new_one_keeps_its_own(nodes, begins_anew, is_seen):
    """Once its end is safe, or, where a kill comes before anybody was told so, at the next boot."""
    node = nodes()
    peer = end_session(node, with_identifiers(node), begins_anew)
    own = 0
    if peer is not None:
        publish(node, mqtt_message("t", b"x", 2))
        assert peer.packet().packet_identifier == 1
        note_received(peer.session.received_ids(), 9)
        own = 2

    if is_seen:
        node.wait(lambda: noted_of(node.vhost.extras["mqtt"].qos2_records) == own)
    node = nodes()
    assert noted_of(node.vhost.extras["mqtt"].qos2_records) == own
    if own:
        assert received(node) == {9}
        assert Peer(node).packet().packet_identifier == 1


def test_identifiers_of_a_session_that_ends_while_they_are_written_anew_go(nodes, monkeypatch):
    node, ids, flushed = written_anew(nodes, monkeypatch)
    records = node.vhost.extras["mqtt"].qos2_records
    session = node.vhost.extras["mqtt"].by_client["c"]
    session.connection.sessions.end(session)
    assert noted_of(records) > 1

    for callback in flushed:
        callback(None)

    assert noted_of(records) == 1 and not records.outdated
    monkeypatch.undo()  # before the node stops, which waits for flushes


def test_each_session_that_ends_has_its_own_identifiers_deleted_and_no_others(nodes, monkeypatch):
    """Thousands may end at once: on 2aad4d62 each took along those of all that ended before it."""
    node, told = nodes(), []
    peers = [Peer(node, f"c{number}").subscribe("t", qos=2) for number in range(10)]
    publish(node, *(mqtt_message("t", b"%d" % number, 2) for number in range(3)))
    for peer in peers:
        peer.packets(3)
    records = node.vhost.extras["mqtt"].qos2_records
    settled = []
    monkeypatch.setattr(
        type(node.vhost), "when_safe", lambda _, done, *__, **___: told.append(done))
    for peer in peers:
        peer.sessions.end(peer.session)
    monkeypatch.undo()

    for done in reversed(told):
        before = noted_of(records)
        done(None)
        settled.append(before - noted_of(records))

    assert [count for count in settled if count] == 10 * [3]


def test_identifiers_of_a_session_whose_end_the_disk_refused_go_with_the_next(nodes, monkeypatch):
    node, told = nodes(), []
    peer = with_identifiers(node)
    records = node.vhost.extras["mqtt"].qos2_records
    noted = noted_of(records)
    with monkeypatch.context() as patch:
        patch.setattr(node.committer, "after_sync", lambda callback, *_, **__: told.append(callback))
        end_session(node, peer, False)
    for callback in told:
        callback(OSError(errno.EIO, "the disk failed"))
    assert noted_of(records) == noted

    peer = Peer(node, "d").subscribe("u", qos=2)
    note_received(peer.session.received_ids(), 7)
    end_session(node, peer, False)

    node.wait(lambda: noted_of(records) == 0)


def test_old_entries_do_not_keep_segments(nodes):
    """One forgotten exchange of each kind, and 60 000 that end: 6 MB of records."""
    node = nodes()
    peer = Peer(node).subscribe("t", qos=2)
    publish(node, mqtt_message("t", b"x", 2))
    peer.packet()
    ids = peer.session.received_ids()
    note_received(ids, 7)
    make_sure(ids)

    for number in range(60):
        for _ in range(1000):
            note_received(ids, 8)
            ids.discard(8)
        make_sure(ids)
        node.hub.scheduler.finish()
        peer.poll(3)

    folder = node.vhost.extras["mqtt"].qos2_records.store.folder
    node.wait(lambda: len([name for name in os.listdir(folder) if name.startswith("msgs")]) <= 5)
    again = nodes()
    assert received(again) == {7}
    assert Peer(again).packet().dup


def test_a_kill_before_a_thread_has_named_files_loses_nothing(nodes, monkeypatch):
    """Files that were made ahead get their names later, for other stores."""
    node = nodes()
    ids = Peer(node).session.received_ids()
    note_received(ids, 7)
    monkeypatch.setattr(node.committer.names, "change", names_nothing)

    fill(node, ids, 1)
    note_received(ids, 9)

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


def queue_of(node, name, **arguments):
    """A durable queue of this name, which is there or is made."""
    return node.vhost.declare_queue(
        name, durable=True, arguments={key.replace("_", "-"): value for key, value in arguments.items()})[0]


def count_in(node, name):
    """The messages of a queue."""
    return node.vhost.queues[name].ready_count


ROLLS = 700  # messages of 200 octets, which take a second segment


@pytest.mark.parametrize("before", [0, 1, ROLLS])
@pytest.mark.parametrize("arguments", [{}, {"x_max_priority": 5}, {"x_queue_type": "stream"}])
def test_after_a_kill_an_identifier_counts_if_its_message_had_come(nodes, arguments, before):
    """The kill falls in front of the message, or right behind it."""
    for number, comes in ((1, False), (2, True)):
        node = nodes()
        ids, queue = Peer(node).session.received_ids(), queue_of(node, f"q{number}", **arguments)
        for _ in range(before):
            assert queue.publish(sent_at_once())
        node.hub.scheduler.finish()
        ids.begin(7, (queue,), sent_at_once())
        if comes:
            assert queue.publish(sent_at_once())

        again = nodes()

        assert received(again) == ({7} if comes else set())
        assert count_in(again, f"q{number}") == before + comes


KINDS = ["queue", "priority", "stream", "delayed", "session", "retained"]


@pytest.mark.parametrize("before", [0, ROLLS])
@pytest.mark.parametrize("kind", [*KINDS, "consumed"])
def test_a_folder_that_was_killed_knows_all_identifiers_on_another_machine(nodes, kind, before):
    """The last message begins a segment, which can be seen by no end of a log. What was consumed is gone at
    boot with its segment.
    """
    node = nodes()
    ids, destination = Peer(node).session.received_ids(), destination_of(node, kind)
    for number in range(before):
        assert destination.publish(sent_at_once(b"%d" % number))
    for identifier in (7, 8, 9):
        large = sent_at_once(bytes((1 << 20) * (identifier == 9)))
        ids.begin(identifier, (destination,), large)
        assert destination.publish(large)
        ids.add(identifier, (destination,))
    if kind == "consumed":
        destination.purge()
    node.hub.scheduler.finish()

    assert received(nodes(2)) == {7, 8, 9}
    assert received(nodes(2)) == {7, 8, 9}
    assert received(nodes(3)) == {7, 8, 9}


def test_an_identifier_that_a_follower_was_told_of_before_its_message_does_not_count(nodes, tmp_path):
    """It hears of the files one after the other, so that not only the last may be without."""
    node = nodes()
    ids, queue = Peer(node).session.received_ids(), queue_of(node, "q")
    for identifier in (5, 6, 7):
        message = sent_at_once(b"%d" % identifier)
        ids.begin(identifier, (queue,), message)
        assert queue.publish(message)
        ids.add(identifier, (queue,))
    node.hub.scheduler.finish()
    for identifier in (6, 7):
        tear_body(node, b"%d" % identifier)

    def promote():
        data_dir.DataDir(tmp_path / "data").follow().close()

    assert received(nodes(between=promote)) == {5}


@pytest.mark.parametrize("times", [1, 8000])
def test_followers_are_told_of_an_identifier_before_its_message(tmp_path, times):
    """Even if the queue writes first, because it had another message before; or at once, for a new segment.
    A follower that had the message alone would store it again when the client repeats it.
    """
    told = []

    class Order(Mirror):
        def appended(self, file_id, file, start, end):
            told.append((file.path, file.read(start, end)))

    node = mqtt_node(tmp_path / "data", files=Unflushed([Order(tmp_path / "data", tmp_path / "copy")]))
    ids, queue = Peer(node).session.received_ids(), queue_of(node, "q")
    bodies = [b"message 5" * times, b"message 6" * times]
    note_received(ids, 4)
    node.hub.scheduler.finish()
    folder = node.vhost.extras["mqtt"].qos2_records.store.folder
    told.clear()

    assert queue.publish(sent_at_once(b"another"))
    for identifier, body in enumerate(bodies, 5):
        message = sent_at_once(body)
        ids.begin(identifier, (queue,), message)
        assert queue.publish(message)
        ids.add(identifier, (queue,))
    node.hub.scheduler.finish()
    node.stop()

    records = [at for at, (path, _) in enumerate(told) if path.startswith(folder)]
    messages = [at for at, (_, content) in enumerate(told) for body in bodies if body in content]
    assert len(records) == len(messages) == 2 and all(map(int.__lt__, records, messages)), (records, messages)


@pytest.mark.parametrize("number", [1, 2])
@pytest.mark.parametrize("before", [0, 1, ROLLS])
@pytest.mark.parametrize("kind", KINDS)
def test_an_identifier_does_not_count_if_a_kill_tore_the_body_of_its_message(nodes, kind, before, number):
    """Header and routing of the record check; where the rest of it was to come are zeros. The client sends
    its message again, and that is stored. Also on another machine.
    """
    node = nodes()
    ids, destination = Peer(node).session.received_ids(), destination_of(node, kind)
    for count in range(before):
        assert destination.publish(sent_at_once(b"%d" % count))
    node.hub.scheduler.finish()
    ids.begin(7, (destination,), sent_at_once())
    assert destination.publish(sent_at_once(b"torn"))
    tear_body(node, b"torn")

    again = nodes(number)

    assert received(again) == set()
    ids, destination = Peer(again).session.received_ids(), destination_of(again, kind)
    ids.begin(7, (destination,), sent_at_once())
    assert destination.publish(sent_at_once(b"torn"))
    again.hub.scheduler.finish()
    assert received(nodes(number)) == {7}


def test_where_a_kill_tore_the_retained_message_it_comes_again_for_that_alone(nodes):
    node = nodes()
    peer = Peer(node).subscribe("t", qos=2)
    peer.disconnect()
    ids = Peer(node, client_id="publisher").session.received_ids()
    retained = node.vhost.extras["mqtt"].retained
    for body, is_torn in ((b"old", False), (b"torn", True)):
        message = sent_at_once(body)
        destinations = peer.session.queue, retained
        ids.begin(7, destinations, sent_at_once())
        assert destinations[0].publish(message) and retained.store("t", message)
        if not is_torn:
            ids.add(7, destinations)
            ids.discard(7)
            node.hub.scheduler.finish()
    tear_body(node, b"torn", -1)

    again = nodes()

    ids = again.vhost.extras["mqtt"].by_client["publisher"].received_ids()
    assert ids.lacking(7, [again.vhost.queues["mqtt.c"], retained_of(again)]) == [retained_of(again)]
    assert count_in(again, "mqtt.c") == 2


def test_orderly_stop_before_a_flush_is_no_fault_of_a_store(nodes, caplog, monkeypatch):
    """What waits for the flush may hear of it when the stores are closed."""
    node = nodes()
    close = node.vhost.close
    ids, retained = Peer(node).session.received_ids(), node.vhost.extras["mqtt"].retained
    ids.begin(7, (retained,), sent_at_once())
    for body in (b"first", b"second"):
        assert retained.store("t", sent_at_once(body))
    ids.add(7, (retained,))
    node.hub.scheduler.finish()
    added, mark = ids.added, ids.records.last_received

    def closed():
        close()
        ids.sure(added, mark)
        retained.delete("t")

    monkeypatch.setattr(node.vhost, "close", closed)

    again = nodes(how="stop")

    assert received(again) == {7}
    assert not [record.getMessage() for record in caplog.records if record.levelname == "ERROR"]


def test_first_message_that_is_retained_outlives_a_kill_as_its_identifier_does(nodes):
    """Definitions are written a moment after they were changed, unless somebody is to be answered."""
    node, safe = nodes(), []
    ids = Peer(node).session.received_ids()
    node.vhost.when_safe(safe.append)
    node.wait(lambda: safe)
    retained = node.vhost.extras["mqtt"].retained
    ids.begin(7, (retained,), sent_at_once())
    assert retained.store("t", sent_at_once(b"first"))
    ids.add(7, (retained,))
    node.hub.scheduler.finish()
    node.kill = partial(node.kill, are_answered=False)

    again = nodes()

    assert received(again) == {7}
    message = Message()
    assert again.vhost.extras["mqtt"].retained.get("t", message) and message.get_body().endswith(b"first")


@pytest.mark.parametrize("before", [0, 1, ROLLS])
@pytest.mark.parametrize("arguments", [{}, {"x_max_priority": 5}])
def test_after_a_kill_between_two_queues_the_message_comes_again_to_the_second(nodes, arguments, before):
    node = nodes()
    ids, queues = Peer(node).session.received_ids(), (queue_of(node, "a", **arguments), queue_of(node, "b"))
    for queue in queues:
        for _ in range(before):
            assert queue.publish(sent_at_once())
    node.hub.scheduler.finish()
    ids.begin(7, queues, sent_at_once())
    assert queues[0].publish(sent_at_once())

    for _ in range(2):
        again = nodes()
        assert lacking(again) == ["b"]
        assert (count_in(again, "a"), count_in(again, "b")) == (before + 1, before)


def test_only_what_came_last_may_not_have_come_to_all(nodes):
    """Whatever was noted before it has been given to all that wanted it: no-local leaves one out."""
    node = nodes()
    ids, queues = Peer(node).session.received_ids(), (queue_of(node, "a"), queue_of(node, "b"))
    ids.begin(6, queues, sent_at_once())
    assert queues[0].publish(sent_at_once())
    ids.add(6, queues)
    ids.begin(7, queues, sent_at_once())

    again = nodes()

    assert received(again) == {6} and count_in(again, "a") == 1


def test_what_was_refused_does_not_count(nodes):
    node = nodes()
    ids, queue = Peer(node).session.received_ids(), queue_of(node, "q")
    ids.begin(7, (queue,), sent_at_once())
    ids.not_stored(7)
    assert queue.publish(sent_at_once())

    assert received(nodes()) == set()


def test_what_waits_for_files_counts_when_it_has_them(nodes):
    for number, comes in ((1, False), (2, True)):
        node = nodes()
        ids, queue = Peer(node).session.received_ids(), queue_of(node, f"q{number}")
        ids.begin(7, (queue,), sent_at_once())
        before = ids.postpone(7, sent_at_once(), (queue,), (queue,), True)
        before((queue,), None, True)
        before((queue,), (queue,), True)
        before((queue,), None, True)
        if comes:
            assert queue.publish(sent_at_once())

        again = nodes()

        assert received(again) == ({7} if comes else set())


def left_waiting(node, taken=True, first="a"):
    """Identifier 7, whose message queue a has, and queue b does not, because it waits for files, and has
    another time then: what a BlockedPublish calls before it tries again. ``first``: the first of its queues,
    a or b.
    """
    ids = Peer(node).session.received_ids()
    queues = tuple([queue_of(node, name) for name in "ab" if name >= first])
    earlier = sent_at_once()
    earlier.restamp(SENT_MS - 5)
    ids.begin(7, queues, earlier)
    for queue in queues[:-1]:
        assert queue.publish(earlier)
    before = ids.postpone(7, sent_at_once(), queues, queues[-1:], taken)
    node.hub.scheduler.finish()
    return before, queues[-1]


def lacking(node):
    """Of the queues a and b: those that the message of identifier 7 is to go to when it comes again."""
    queues = [node.vhost.queues.get(name) or queue_of(node, name) for name in "ab"]
    ids = node.vhost.extras["mqtt"].by_client["c"].received_ids()
    return [queue.name for queue in ids.lacking(7, queues)]


@pytest.mark.parametrize("number, how", [(1, "kill"), (1, "stop"), (2, "stop")])
def test_what_comes_again_goes_to_those_that_waited_for_files_only(nodes, number, how):
    """Of the others a client may have had it, and acknowledged it, before the broker ended."""
    left_waiting(nodes())

    again = nodes(number, how)
    assert lacking(again) == ["b"]
    assert lacking(nodes(number)) == ["b"]  # also where the next run ends before it has come


@pytest.mark.parametrize("is_lost", [False, True])
def test_after_a_power_cut_it_comes_again_to_all_that_lack_it(nodes, is_lost):
    node = nodes()
    left_waiting(node)
    if is_lost:
        tear_body(node, b"x")

    assert lacking(nodes(2)) == (["a", "b"] if is_lost else ["b"])


@pytest.mark.parametrize("comes", [False, True])
def test_a_kill_when_the_files_are_there_leaves_nobody_out(nodes, comes):
    node = nodes()
    before, queue = left_waiting(node)
    before((queue,), None, True)
    if comes:
        assert queue.publish(sent_at_once())

    again = nodes()

    ids = again.vhost.extras["mqtt"].by_client["c"].received_ids()
    assert ids.has(7) and ids.is_partly(7) is not comes
    assert count_in(again, "b") == comes and lacking(again) == (["a", "b"] if comes else ["b"])


def test_what_one_of_two_lost_with_the_power_comes_again_to_that_one(nodes):
    """It waited for files, and all have had it, but not all have it on the disk. The client was not answered.
    """
    node = nodes()
    before, queue = left_waiting(node)
    before((queue,), None, True)
    assert queue.publish(sent_at_once(b"lost"))
    Peer(node).session.received_ids().add(7, (queue,))
    node.hub.scheduler.finish()
    tear_body(node, b"lost")

    assert lacking(nodes(2)) == ["b"]


def test_failed_flush_of_one_that_waited_for_files_forgets_nobody_who_has_it(nodes):
    node = nodes()
    before, queue = left_waiting(node)
    before((queue,), None, True)
    assert queue.publish(sent_at_once())
    ids = Peer(node).session.received_ids()
    ids.add(7, (queue,))
    queue.fail(OSError(errno.EIO, "no disk"))

    ids.lost_by_some(7, [node.vhost.queues["a"], queue])

    assert lacking(node) == ["b"]


def refused_by_all_but_the_first(node):
    """Identifier 7, whose message queue a has, and b and c do not. Returns these two."""
    ids, queues = Peer(node).session.received_ids(), [queue_of(node, name) for name in "abc"]
    message = sent_at_once()
    ids.begin(7, tuple(queues), message)
    assert queues[0].publish(message)
    ids.refused_by_some(7, tuple(queues))
    node.hub.scheduler.finish()
    return ids, tuple(queues[1:])


def test_what_comes_again_to_too_many_to_be_noted_is_known_of_those_that_have_it(nodes):
    node = nodes()
    ids, others = refused_by_all_but_the_first(node)

    ids.begin(7, others * PLACES, sent_at_once())

    assert lacking(nodes()) == ["b"]


def test_failed_flush_of_what_came_again_forgets_nobody_who_had_it(nodes):
    node = nodes()
    ids, others = refused_by_all_but_the_first(node)
    again = sent_at_once()
    again.restamp(SENT_MS + 1000)
    ids.begin(7, others, again)
    for queue in others:
        assert queue.publish(again)
    ids.add(7, others)
    others[0].fail(OSError(errno.EIO, "no disk"))

    ids.lost_by_some(7, list(others))

    assert lacking(node) == ["b"]


def test_what_a_queue_refused_comes_again_to_those_that_lack_it(nodes):
    left_waiting(nodes(), taken=False)

    again = nodes()
    assert received(again) == {7} and lacking(again) == ["b"]


@pytest.mark.parametrize("first", ["a", "b"])
def test_a_kill_between_a_refusal_and_its_answer_says_that_it_was_refused(nodes, first):
    """Of a message that waited for files. On 6102cf54 the identifier counted as received after the kill, so
    that what its client sent again was answered, and stored nowhere.
    """
    node, message, tries = nodes(), sent_at_once(), []
    before, queue = left_waiting(node, first=first)
    message.lacking = tries.append
    publication = SimpleNamespace(
        message=message, destinations=[queue], somebody_took=first == "a")
    BlockedPublish(node.vhost, node.hub.scheduler, publication, 0, True, lambda *_: None, before)

    tries.pop()(OSError("no room"))

    again = nodes()
    assert lacking(again) == (["b"] if first == "a" else ["a", "b"])
    assert received(again) == ({7} if first == "a" else set())


def test_message_that_a_client_gave_up_for_another_says_nothing_of_that_one_after_a_kill(nodes):
    node = nodes()
    _, queue = left_waiting(node, taken=False)
    again = nodes()
    ids = again.vhost.extras["mqtt"].by_client["c"].received_ids()

    ids.give_up_partly(7)
    ids.begin(7, (again.vhost.queues["a"], queue_of(again, "b")), sent_at_once())

    assert lacking(nodes()) == ["a", "b"]


def test_what_has_come_to_all_is_known_and_its_identifier_is_free_when_it_is_released(nodes):
    node = nodes()
    before, queue = left_waiting(node)
    before((queue,), None, True)
    assert queue.publish(sent_at_once())
    ids = Peer(node).session.received_ids()
    ids.add(7, (queue,))
    node.hub.scheduler.finish()

    again = nodes()
    ids = again.vhost.extras["mqtt"].by_client["c"].received_ids()
    assert ids.has(7) and not ids.is_partly(7)
    assert ids.discard(7)
    again.hub.scheduler.finish()
    assert received(nodes()) == set()


def test_no_other_member_of_a_share_gets_what_one_has_had(nodes):
    node = nodes()
    share = share_of(node)
    queue = queue_of(node, "b")
    ids = node.vhost.extras["mqtt"].by_client["one"].received_ids()
    ids.begin(7, (share, queue), sent_at_once())
    assert share.publish(sent_at_once())
    ids.postpone(7, sent_at_once(), (share, queue), (queue,), True)
    node.hub.scheduler.finish()

    again = nodes()

    ids = again.vhost.extras["mqtt"].by_client["one"].received_ids()
    assert ids.lacking(7, [share_of(again), queue_of(again, "b")]) == [queue_of(again, "b")]


def share_of(node):
    """The SharedSubscription of two sessions."""
    for client_id in ("one", "two"):
        Peer(node, client_id=client_id).subscribe("$share/g/t", qos=2)
    return node.vhost.extras["mqtt"].exchange.share("$share/g/t")


def test_identifier_that_is_released_or_refused_before_its_message_came_again_is_free(nodes):
    for end in ("discard", "not_stored"):
        left_waiting(nodes())
        node = nodes()
        ids = node.vhost.extras["mqtt"].by_client["c"].received_ids()
        getattr(ids, end)(7)
        node.hub.scheduler.finish()
        assert not ids.has(7) and lacking(node) == ["a", "b"]
        assert received(nodes()) == set()


@pytest.mark.parametrize("times", [1, 4097])
def test_after_a_kill_those_do_not_count_whose_messages_lie_in_files_without_names(nodes, monkeypatch, times):
    """Of more than 4096 destinations no places are noted."""
    node = nodes()
    ids = Peer(node).session.received_ids()
    note_received(ids, 4)
    named, unnamed = queue_of(node, "named"), queue_of(node, "unnamed")
    assert named.publish(sent_at_once())
    node.hub.scheduler.finish()
    node.committer.wait()
    pool = unnamed.store.pool
    pool.expect(65536)
    node.wait(lambda: pool.has(65536))
    monkeypatch.setattr(node.committer.names, "change", names_nothing)
    assert unnamed.publish(sent_at_once())

    for identifier, queue in ((5, unnamed), (6, named), (7, unnamed)):
        ids.begin(identifier, (queue,) * times, sent_at_once())
        assert queue.publish(sent_at_once())
        ids.add(identifier, (queue,) * times)
    node.hub.scheduler.finish()

    again = nodes()
    assert received(again) == {4, 6}
    assert count_in(again, "named") == 2 and count_in(again, "unnamed") == 0


@pytest.mark.parametrize("arguments", [{}, {"x_max_priority": 5}, {"x_queue_type": "stream"}])
def test_files_that_begin_with_a_message_of_qos_2_have_their_names(nodes, monkeypatch, arguments):
    node = nodes()
    ids, queue = Peer(node).session.received_ids(), queue_of(node, "q", **arguments)
    pool = queue.store.pool
    pool.expect(65536)
    node.wait(lambda: pool.has(65536))
    node.committer.wait()
    monkeypatch.setattr(node.committer.names, "change", names_nothing)

    ids.begin(7, (queue,), sent_at_once())
    assert queue.publish(sent_at_once())
    ids.add(7, (queue,))

    again = nodes()
    assert received(again) == {7} and count_in(again, "q") == 1


def test_a_retained_message_of_qos_2_outlives_a_kill_with_its_identifier(nodes, monkeypatch):
    """The client sends it again, and it is known: so it must be there."""
    node = nodes()
    ids, retained = Peer(node).session.received_ids(), node.vhost.extras["mqtt"].retained
    note_received(ids, 4)
    pool = node.vhost.extras["mqtt"].qos2_records.store.pool
    pool.expect(65536)
    node.wait(lambda: pool.has(65536))
    node.committer.wait()
    monkeypatch.setattr(node.committer.names, "change", names_nothing)
    message = mqtt_message("t", b"x", 2, retain=True)
    message.at_once = True

    ids.begin(7, (retained,), sent_at_once())
    assert retained.publish(message)
    ids.add(7, (retained,))
    node.hub.scheduler.finish()

    again = nodes()
    assert received(again) == {4, 7}
    assert [topic for topic, _ in again.vhost.extras["mqtt"].retained.topics(0)] == ["t"]


def sent_at_once(body=b"x"):
    """What is stored of a PUBLISH at QoS 2, with 200 octets that end with these."""
    message = mqtt_message("t", body.rjust(200, b"x"), 2)
    message.at_once = True
    return message


def retained_of(node):
    return node.vhost.extras["mqtt"].retained


def destination_of(node, kind):
    """A destination of this kind, which is there or is made."""
    if kind == "retained":
        return retained_of(node)
    if kind == "session":
        return Peer(node, client_id="subscriber").subscribe("t", qos=2).session.queue
    if kind == "delayed":
        forms.register(MQTTForm())
        node.vhost.declare_exchange(
            "delayed", "x-delayed-message", durable=True, arguments={"x-delayed-type": "topic"})
        return node.vhost.exchanges["delayed"].delayed_store
    arguments = {"priority": {"x_max_priority": 5}, "stream": {"x_queue_type": "stream"}}
    return queue_of(node, "q", **arguments.get(kind, {}))


def tear_body(node, body, which=0):
    """Overwrite the last octets of a record with zeros, as if a kill had come while they were copied."""
    places = []
    for store in node.vhost.durable_stores():
        for level in store.browsed():
            for path in sorted(Path(level.folder).glob("msgs.*")):
                at = path.read_bytes().find(body.rjust(200, b"x"))
                if at >= 0:
                    places.append((path, at))
    path, at = places[which]
    with open(path, "r+b") as file:
        file.seek(at)
        file.write(bytes(200))


def names_nothing(changes, done=None, soon=False):
    """Instead of NameChanges.change: the process is killed before a thread changes names."""


def fill(node, ids, rolls):
    """Have exchanges begin and end until so many segments more have been begun, from files made ahead."""
    store = node.vhost.extras["mqtt"].qos2_records.store
    last = segments(node)[-1] + rolls
    while segments(node)[-1] < last:
        for _ in range(100):
            note_received(ids, 8)
            ids.discard(8)
        node.hub.scheduler.finish()
        if store.pool._expected:
            node.wait(lambda: all(store.pool.has(size) for size, _ in store.pool._expected))


def segments(node):
    """The numbers of the segments that are there."""
    return [number for number, _, _ in node.vhost.extras["mqtt"].qos2_records.store.layout()]


def written_anew(nodes, monkeypatch):
    """A node where identifier 7 was written anew, and what waits for the disk waits still: the node, the
    identifiers, and who waits.
    """
    node, flushed = nodes(), []
    ids = Peer(node).session.received_ids()
    note_received(ids, 7)
    make_sure(ids)
    monkeypatch.setattr(node.committer, "after_sync", lambda callback, *_, **__: flushed.append(callback))
    fill(node, ids, 4)
    node.wait(lambda: node.vhost.extras["mqtt"].qos2_records.moving is None)
    return node, ids, flushed


def test_a_full_disk_keeps_nobody_from_their_messages(nodes, monkeypatch):
    node = nodes()
    peer = Peer(node).subscribe("t", qos=2)
    monkeypatch.setattr(node.vhost.stores, "make", no_room)

    publish(node, mqtt_message("t", b"x", 2))

    assert peer.packet().packet_identifier == 1
    peer.acknowledge(5, 1)
    peer.packet()
    peer.acknowledge(7, 1)
    assert peer.outbound.sent.used == 0


def no_room(_name):
    from gomq_py.errors import OutOfResources
    raise OutOfResources("no room")
