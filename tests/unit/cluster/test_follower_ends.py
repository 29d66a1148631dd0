"""Follower: how it stops, what promotion and operators learn from it, and faults that end a connection."""
import time

import gevent
import pytest
from gevent import socket
from gevent.event import Event

from gomq_py.cluster import follower, identity, link, staging
from gomq_py.cluster.wire import events, frames
from gomq_py.cluster.wire.messages import NO_ID
from gomq_py.storage.disk import swap
from gomq_py.storage.disk.data_dir import NOT_CONTENT
from gomq_py.storage.disk.plain_files import PlainFiles
from tests.support.played_leader import (
    CLUSTER, RUN, VERSION, content, sync, tls_of, wait_for, wait_for_error,
)
from tests.support.waiting import in_time, wait_until

BLOCK = 1 << 20


# what promotion and operators ask

def test_failed_last_flush_is_returned_and_logged(leader, begin, files, caplog):
    """A folder that lacks what was received must not be promoted without a word."""
    one = begin(flush_s=1000.0)
    leader.accept()
    sync(leader)
    leader.tell(events.written(1, 0, b"xyz"), position=6)
    wait_for(one, received=6, lag_octets=0)
    files.how, files.fail_at = "dead", len(files.calls) + 1

    failure = one.stop()

    assert isinstance(failure, OSError) and one.stop() is failure
    assert one.status.flushed == 5 and one.status.error == str(failure)
    assert [record.levelname for record in caplog.records if "not all on the disk" in record.message] == [
        "WARNING"]


def test_stop_without_a_fault_returns_none(leader, begin):
    one = begin()
    leader.accept()
    sync(leader)

    assert one.stop() is None and one.stop() is None


def test_damage_lasts_until_a_sync_is_swapped_in(leader, begin):
    one = begin()
    leader.accept()
    sync(leader)
    leader.tell(events.written(9, 0, b"x"), position=6)
    leader.await_end()
    leader.accept()
    leader.tell(events.listed(1, 3, "file"), position=0)
    leader.await_ack(0, 0)
    wait_for(one, state="syncing")

    assert one.is_syncing
    assert "no file 9" in str(one.stop())


def test_sync_heals_damage(leader, begin):
    one = begin()
    leader.accept()
    sync(leader)
    leader.tell(events.written(9, 0, b"x"), position=6)
    leader.await_end()
    leader.accept()
    sync(leader)

    assert one.stop() is None


def test_failed_sync_does_not_damage_the_folder(leader, begin, files):
    one = begin()
    leader.accept()
    sync(leader)
    leader.accept(can_resume=False)
    wait_for(one, state="syncing")
    leader.tell(events.listed_all(), events.synced(), position=0)
    wait_for_error(one, "schema_version")

    assert one.is_whole and one.stop() is None


def test_follower_is_whole_once_a_sync_was_swapped_in(leader, begin):
    one = begin()
    assert not one.is_whole and not one.is_syncing
    leader.accept()
    leader.tell(events.listed(1, 3, "file"), position=0)
    wait_for(one, state="syncing")
    assert not one.is_whole and one.is_syncing
    leader.hang_up()
    wait_for(one, state="connecting")
    assert not one.is_whole and one.is_syncing

    leader.accept()
    sync(leader)
    assert one.is_whole and not one.is_syncing

    leader.accept(can_resume=False, epoch=2)
    wait_for(one, state="syncing")
    assert one.is_whole and one.is_syncing
    one.stop()
    assert one.is_whole and not one.is_syncing


def test_folder_of_an_earlier_process_is_whole(leader, begin, root):
    identity.write(PlainFiles(), root, identity.Identity(CLUSTER, b"n" * 16, 1))

    one = begin()

    assert one.is_whole and not one.is_syncing


def test_sync_that_ends_with_the_connection_counts(leader, begin, files):
    """Its identity is taken over although the state is no longer that of a sync."""
    one = begin()
    leader.accept()
    leader.tell(VERSION, events.listed_all(), position=0)
    leader.await_ack(0, 0)
    wait_until(lambda: not one.status.lag_octets, sleep=gevent.sleep)
    files.how, files.fail_at = "hold", len(files.calls) + 2
    leader.tell(events.synced(), position=3)
    wait_until(lambda: files.failed, sleep=gevent.sleep)
    one._pause_s = 3600.0
    leader.hang_up()
    wait_for(one, state="connecting")
    files.resume.set()
    wait_until(lambda: one.is_whole, sleep=gevent.sleep)
    one._again.set()

    hello = leader.accept()

    assert (hello.cluster_id, hello.run, hello.position) == (CLUSTER, RUN, 3)
    wait_for(one, state="streaming")
    assert one.is_whole and not one.is_syncing


def test_sync_of_what_is_no_data_folder_is_not_swapped_in(leader, begin, root):
    identity.write(PlainFiles(), root, identity.Identity(CLUSTER, b"n" * 16, 1))
    (root / "file").write_bytes(b"mine")
    one = begin()
    leader.accept()
    leader.tell(events.synced(), position=1)

    wait_for_error(one, "before its listing was complete")
    one.stop()
    swap.finish(PlainFiles(), str(root), NOT_CONTENT)
    assert content(root) == {"file": b"mine"} and identity.read(root).epoch == 1


def test_same_fault_is_logged_again_after_streaming(leader, begin, caplog):
    one = begin()
    leader.accept()
    sync(leader)
    for _ in range(2):
        leader.connection.shutdown(socket.SHUT_WR)  # a close with unread acks would be a reset
        wait_for(one, state="connecting", error="the leader has closed the connection")
        leader.accept()
        wait_for(one, state="streaming", error="")

    lines = [record.getMessage() for record in caplog.records if record.levelname == "WARNING"]
    assert lines == [f"following 127.0.0.1:{leader.port}: the leader has closed the connection"] * 2


def test_pause_is_short_again_only_behind_a_frame_of_the_stream(leader, begin):
    one = begin()
    leader.accept()
    sync(leader)
    for count in range(2):
        leader.hang_up()
        wait_for(one, state="connecting")
        leader.accept()
        wait_for(one, state="streaming")
        assert one._pause_s == follower.FIRST_PAUSE_S * follower.PAUSE_GROWTH ** (count + 1)
    leader.tell(position=5, kind=frames.HEARTBEAT)

    wait_until(lambda: one._pause_s == follower.FIRST_PAUSE_S, sleep=gevent.sleep)


def test_long_reason_of_a_leader_that_closes_is_cut(leader, begin):
    one = begin()
    leader.accept()
    sync(leader)
    leader.tell(b"A" * 1_000_000, position=5, kind=frames.REFUSED)

    wait_for_error(one, "the leader closes: 'AAA")
    assert len(one.status.error) < 600


# stopping while nobody answers

def stops_at_once(one):
    begun = time.monotonic()
    one.stop()
    return time.monotonic() - begun < in_time(0.5)


def test_follower_stops_while_it_connects(leader, begin):
    """To a port whose queue is full: nobody answers, as with a black hole."""
    full = socket.socket()
    full.bind(("127.0.0.1", 0))
    full.listen(0)
    clients = [socket.socket() for _ in range(3)]
    for client in clients:
        client.setblocking(False)
        client.connect_ex(full.getsockname())
    one = begin(port=full.getsockname()[1])
    wait_until(lambda: one._connecting is not None, sleep=gevent.sleep)
    for _ in range(10):
        gevent.sleep(0)

    assert not one._connecting.ready() and stops_at_once(one)
    for client in (*clients, full):
        client.close()


def test_follower_stops_while_it_resolves(begin, monkeypatch):
    asked = []
    monkeypatch.setattr(link.socket, "getaddrinfo", lambda *a, **k: asked.append(a) or Event().wait())
    one = begin(host="broker.example")
    wait_until(lambda: asked, sleep=gevent.sleep)

    assert stops_at_once(one)


def test_follower_stops_in_a_tls_handshake(leader, begin, tmp_path):
    context = tls_of(leader, tmp_path / "tls")
    leader.tls = None
    one = begin(tls=context)
    leader.greet()
    assert leader.connection.recv(1)

    assert stops_at_once(one)


@pytest.mark.parametrize("host", ["a..b", "a" * 64, ".example"])
def test_bad_host_name_is_a_fault_of_the_connection(begin, host, caplog):
    one = begin(host=host)

    wait_for_error(one, "is not a host name")
    assert [record.exc_info for record in caplog.records if record.levelname != "INFO"] == [None]


def test_hashing_ends_with_the_connection(leader, begin, root, monkeypatch):
    """Files of many GiB are hashed for minutes."""
    monkeypatch.setattr(follower, "BLOCKS_PER_TURN", 1)
    identity.write(PlainFiles(), root, identity.Identity(CLUSTER, b"n" * 16, 1))
    with open(root / "long", "wb") as file:
        file.truncate(1000 * BLOCK)
    turns = []

    def checksums(self, parts):
        turns.append(parts)
        one._link.is_closed or one._link.close()
        return [[0]]

    monkeypatch.setattr(staging.Staging, "checksums", checksums)
    one = begin()
    leader.accept()
    leader.tell(events.listed(1, 1000 * BLOCK, "long"), position=0)
    wait_until(lambda: turns, sleep=gevent.sleep)
    one.stop()

    assert len(turns) == 1


def test_fault_of_a_callback_ends_in_a_sync(leader, begin, monkeypatch, caplog):
    one = begin()
    leader.accept()
    sync(leader)
    with monkeypatch.context() as patched:
        patched.setattr(one._applier, "_progress", lambda: 1 // 0)
        leader.tell(events.written(1, 0, b"xyz"), position=6)
        leader.await_end()

    assert "could not take note of what was applied" in caplog.text
    hello = leader.accept()
    assert (hello.run, hello.position) == (NO_ID, 0)
    sync(leader)
    assert content(root=one._applier._root)["file"] == b"abc" and one.stop() is None
