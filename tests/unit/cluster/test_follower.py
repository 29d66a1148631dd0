"""Follower: its connection to a leader that a test plays, and what it makes of the frames."""
import errno
import os
import time
from random import Random

import gevent
import pytest
from gevent import socket, ssl

from gomq_py.cluster import applier, follower, identity, link, staging
from gomq_py.cluster.follower import Follower
from gomq_py.cluster.login import LeaderLogin, LoginRefused
from gomq_py.cluster.wire import events, frames
from gomq_py.cluster.wire.frames import FrameReader
from gomq_py.cluster.wire.messages import NO_ID, Heartbeat, Refused
from gomq_py.storage.disk.plain_files import PlainFiles
from tests.support.model_leader import digest_of
from tests.support.played_leader import (
    CLUSTER, RUN, SECRET, VERSION, PlayedLeader, content, sync, tls_of, wait_for, wait_for_error,
)
from tests.support.waiting import in_time, wait_until

BLOCK = 1 << 20


def test_follower_syncs_and_goes_on_with_the_stream(leader, begin, root):
    one = begin()
    hello = leader.accept()
    sync(leader)
    leader.tell(events.created(2, 0, "folder/log"), events.written(2, 0, b"xyz"), position=7)
    leader.await_ack(7, 7)

    assert leader.is_sync and leader.hashes == [(1, [])]
    assert (hello.cluster_id, hello.run, hello.position, hello.name) == (NO_ID, NO_ID, 0, "second")
    assert content(root) == {"folder": None, "file": b"abc", "folder/log": b"xyz"}
    assert identity.read(root) == one.identity == identity.Identity(CLUSTER, hello.node_id, 1, position=5)
    wait_for(
        one, state="streaming", received=7, flushed=7, leader_position=7, lag_octets=0, lag_s=0.0, error="")


def test_follower_says_what_it_has_of_each_file(leader, begin, root):
    large = bytes(BLOCK) + b"b" * BLOCK + b"c"
    identity.write(PlainFiles(), root, identity.Identity(CLUSTER, b"n" * 16, 1))
    (root / "large").write_bytes(large)
    (root / "small").write_bytes(b"abc")
    begin()
    hello = leader.accept()
    leader.tell(events.listed(1, len(large), "large"), events.listed(2, 2, "small"), position=0)
    leader.tell(events.listed(3, 9, "unknown"), events.listed(4, 0, "empty"), position=0)
    while len(leader.hashes) < 4:
        leader.read()

    assert hello.cluster_id == CLUSTER and hello.node_id == b"n" * 16
    assert leader.hashes == [
        (1, [digest_of(bytes(BLOCK)), digest_of(b"b" * BLOCK), digest_of(b"c")]),
        (2, [digest_of(b"ab")]), (3, []),
        (4, []),
    ]


def test_hashes_of_a_long_file_come_together(leader, begin, root, monkeypatch):
    monkeypatch.setattr(follower, "BLOCKS_PER_TURN", 2)
    identity.write(PlainFiles(), root, identity.Identity(CLUSTER, b"n" * 16, 1))
    content = [bytes([number]) * BLOCK for number in range(5)]
    (root / "long").write_bytes(b"".join(content))
    begin()
    leader.accept()
    leader.tell(events.listed(1, 5 * BLOCK, "long"), position=0)
    while not leader.hashes:
        leader.read()

    assert leader.hashes == [(1, [digest_of(octets) for octets in content])]


def test_follower_resumes_behind_what_it_has(leader, begin, root):
    one = begin()
    leader.accept()
    sync(leader)
    leader.connection.shutdown(socket.SHUT_WR)  # a close with unread acks would be a reset
    wait_for(one, state="connecting", error="the leader has closed the connection")

    hello = leader.accept()
    leader.tell(events.written(1, 0, b"xyz"), position=6)
    leader.await_ack(6, 6)

    assert (hello.run, hello.position, hello.cluster_id) == (RUN, 5, CLUSTER) and not leader.is_sync
    assert content(root)["file"] == b"xyz"
    wait_for(one, state="streaming", error="")


def test_follower_whose_sync_was_cut_off_has_no_position(leader, begin, root):
    begin()
    leader.accept()
    leader.tell(events.listed(1, 3, "file"), position=4)
    leader.await_ack(4, 0)

    hello = leader.accept()

    assert (hello.run, hello.position) == (NO_ID, 0)
    sync(leader)
    assert content(root)["file"] == b"abc"


def test_leader_that_restarted_is_synced_from(leader, begin, root):
    begin()
    leader.accept()
    sync(leader, 9)

    leader.accept(can_resume=False, epoch=2)
    leader.tell(events.listed(1, 3, "file"), VERSION, events.listed_all(), position=0)
    while not leader.hashes:
        leader.read()
    leader.tell(events.synced(), position=1)
    leader.await_ack(1, 1)

    assert leader.hashes == [(1, [digest_of(b"abc")])]
    assert content(root) == {"file": b"abc"} and identity.read(root).epoch == 2


@pytest.mark.parametrize("operation, text", [
    (events.written(9, 0, b"x"), "no file 9"), (events.synced(), "none is going on"),
    (b"\xff", "unknown operation"), (b"\x02\x00\x03../", "path"),
    (events.created(3, 0, "nowhere/file"), "No such file"),
])
def test_operation_that_cannot_be_repeated_ends_in_a_sync(leader, begin, root, operation, text):
    one = begin()
    leader.accept()
    sync(leader)
    leader.tell(operation, position=6)
    leader.await_end()
    wait_for_error(one, text)

    hello = leader.accept()

    assert (hello.run, hello.position) == (NO_ID, 0) and leader.is_sync
    sync(leader)
    wait_for(one, state="streaming", error="")
    assert content(root) == {"folder": None, "file": b"abc"}


def damaged():
    octets = bytearray(frames.encode(frames.EVENTS, events.created(2, 0, "other"), 1, 6))
    octets[-1] ^= 1
    return bytes(octets)


@pytest.mark.parametrize("octets, text", [
    (damaged(), "checksum"), (b"GET / HTTP/1.1\r\n".ljust(50), "not a frame"),
    (frames.encode(frames.EVENTS, events.flushed(), 2, 6), "epoch 2"),
    (frames.encode(frames.EVENTS, events.flushed(), 1, 4), "position 4"),
    (frames.encode(frames.HELLO, b"", 1, 6), "HELLO is not expected"),
    (frames.encode(frames.REFUSED, b"go away", 1, 6), "'go away'"),
])
def test_bad_frame_ends_the_connection_and_is_not_applied(leader, begin, root, octets, text):
    one = begin()
    leader.accept()
    sync(leader)
    leader.connection.sendall(octets)
    leader.await_end()
    wait_for_error(one, text)

    hello = leader.accept()

    assert (hello.run, hello.position) == (RUN, 5)
    assert content(root) == {"folder": None, "file": b"abc"}


@pytest.mark.parametrize("how, text", [
    ({"secret": b"another secret..."}, "the follower has another secret"), ({"epoch": 1}, "epoch"),
    ({"cluster_id": b"d" * 16}, "belongs to cluster"),
])
def test_leader_that_must_not_be_followed(leader, begin, root, how, text):
    identity.write(PlainFiles(), root, identity.Identity(CLUSTER, b"n" * 16, 2))
    (root / "file").write_bytes(b"mine")
    one = begin()

    with pytest.raises((LoginRefused, EOFError)):
        leader.accept(**{"epoch": 2, **how})
    wait_for_error(one, text)
    assert one.status.state == "connecting" and content(root) == {"file": b"mine"}


def test_node_that_is_refused_as_a_copy_knows_it_until_it_streams(leader, begin):
    one = begin()
    leader.greet()
    refused = Refused("another node has this id: a copied data folder? remove .cluster of one")
    leader.connection.sendall(frames.encode(frames.REFUSED, refused.encode(), 1))
    wait_for_error(one, "another node has this id")
    assert one.is_copy

    leader.accept()
    assert one.is_copy  # the sync is not whole yet
    sync(leader)

    wait_for(one, state="streaming")
    assert not one.is_copy


def test_leader_that_does_not_prove_the_secret_is_refused(leader, begin, root):
    one = begin()
    leader.greet()
    leader.reader = FrameReader()
    login = LeaderLogin(SECRET, CLUSTER, 1, RUN, lambda run, position: True)
    leader.connection.sendall(login.feed(leader._frame()))
    welcome = bytearray(login.feed(leader._frame()))
    forged = frames.encode(frames.WELCOME, bytes(32) + welcome[-1:], 1)
    leader.connection.sendall(forged)

    wait_for_error(one, "has not proved")
    assert content(root) == {}


def test_follower_comes_over_tls(leader, begin, root, tmp_path):
    begin(tls=tls_of(leader, tmp_path / "tls"))
    leader.accept()
    sync(leader)
    leader.tell(events.written(1, 0, b"x" * 1_000_000), position=6)
    leader.await_ack(6, 6)
    leader.connection.close()

    assert leader.accept().position == 6
    assert len(content(root)["file"]) == 1_000_000


def test_certificate_of_another_host_is_refused(leader, begin, tmp_path):
    one = begin(tls=tls_of(leader, tmp_path / "tls", "elsewhere.example"))

    with pytest.raises(ssl.SSLError):
        leader.accept()
    wait_for_error(one, "certificate")


def test_frames_before_the_login_are_short(leader, begin):
    one = begin()
    leader.greet()
    leader.connection.sendall(frames.encode(frames.CHALLENGE, bytes(2000)))

    wait_for_error(one, "longer than 1024")


def test_silent_leader_is_left(leader, begin, monkeypatch):
    monkeypatch.setattr(link, "SILENCE_S", 0.2)
    one = begin()
    leader.accept()

    leader.await_end()

    wait_for_error(one, "has said nothing for 0.2 s")


def test_leader_that_is_not_there_is_tried_again(leader, begin, monkeypatch):
    monkeypatch.setattr(follower, "LONGEST_PAUSE_S", 0.05)
    port = leader.port
    leader.listening.close()
    one = begin()
    wait_for_error(one, "refused")

    again = PlayedLeader.__new__(PlayedLeader)
    again.connection = again.tls = None
    again.listening = socket.socket()
    again.listening.setsockopt(socket.SOL_SOCKET, socket.SO_REUSEADDR, 1)
    again.listening.bind(("127.0.0.1", port))
    again.listening.listen()
    again.accept()
    again.close()


def test_acks_and_heartbeats_go_on_without_events(leader, begin, monkeypatch):
    monkeypatch.setattr(link, "ACK_S", 0.01)
    one = begin()
    leader.accept()
    sync(leader)
    leader.acks.clear()
    leader.tell(position=5, kind=frames.HEARTBEAT)
    for _ in range(5):
        leader.read()

    assert leader.acks == [(5, 5)] * 5
    leader.tell(position=8, kind=frames.HEARTBEAT)
    wait_for(one, leader_position=8)
    assert one.status.lag_s > 0.0 and one.status.received == 5


def test_least_difference_of_the_clocks_is_shown(leader, begin):
    one = begin()
    leader.accept()
    sync(leader)
    assert one.status.clock_skew_s is None

    for late_s in (2.5, 2.0, 3.0):
        sent = Heartbeat(time.time_ns() - int(late_s * 1e9))
        leader.tell(sent.encode(), position=5, kind=frames.HEARTBEAT)
    leader.tell(position=8, kind=frames.HEARTBEAT)
    wait_for(one, leader_position=8)

    assert 2.0 <= one.status.clock_skew_s < 2.0 + in_time(0.4)


def test_heartbeat_that_is_malformed_ends_the_connection(leader, begin):
    one = begin()
    leader.accept()
    sync(leader)

    leader.tell(bytes(3), position=5, kind=frames.HEARTBEAT)

    wait_for_error(one, "a HEARTBEAT has 3 bytes")


# stopping, the disk

def test_stopped_follower_has_applied_and_flushed_all(leader, begin, files, root):
    one = begin(flush_s=1000.0)
    leader.accept()
    sync(leader)
    leader.tell(*(events.created(number, 1, f"file{number}") for number in range(2, 9)), position=12)
    wait_for(one, received=12)
    assert one.status.flushed == 5
    files.calls.clear()

    one.stop()
    one.stop()

    assert one.status.flushed == 12 and one.status.state == "stopped"
    assert {call for call, _ in files.calls} >= {"sync_all"} or len(files.calls) > 7
    assert len(content(root)) == 9


def test_follower_stops_in_the_middle_of_a_sync(leader, begin, root):
    (root / "old").write_bytes(b"x")
    identity.write(PlainFiles(), root, identity.Identity(CLUSTER, b"n" * 16, 1))
    one = begin()
    leader.accept()
    leader.tell(events.listed(1, 3, "file"), position=4)
    leader.await_ack(4, 0)

    one.stop()

    assert (root / "old").read_bytes() == b"x" and not (root / "file").exists()


def test_follower_that_never_started_stops(begin, made, leader, root):
    file = identity.IdentityFile(PlainFiles(), root, identity.of_follower(PlainFiles(), root))
    one = Follower(PlainFiles(), root, SECRET, "127.0.0.1", leader.port, "x", file)

    one.stop()

    assert one.status.state == "stopped"


def test_changes_are_flushed_after_a_while_without_an_end(leader, begin):
    begin(flush_s=0.02)
    leader.accept()
    sync(leader)
    leader.tell(events.created(2, 0, "other"), position=6)

    leader.await_ack(6, 6)


def test_full_queue_stops_the_reading(leader, begin, files, monkeypatch):
    monkeypatch.setattr(applier, "QUEUE_OCTETS", 100_000)
    one = begin()
    leader.accept()
    sync(leader)
    files.how, files.fail_at = "hold", len(files.calls) + 3
    leader.tell(events.created(2, 0, "log"), events.flushed(), events.written(2, 0, b"x"), position=8)
    wait_until(lambda: files.failed, sleep=gevent.sleep)
    writing = gevent.spawn(lambda: [
        leader.tell(events.written(2, 0, os.urandom(50_000)), position=9 + number) for number in range(100)])
    wait_until(lambda: one.status.lag_octets >= 100_000, what=lambda: one.status, sleep=gevent.sleep)
    for _ in range(200):
        gevent.sleep(0)

    assert one.status.lag_octets < 200_000 and one.status.received < 20
    files.resume.set()
    writing.join()
    leader.await_ack(108, 108)


@pytest.mark.parametrize("call", ["sync", "put", "sync_all"])
def test_failing_disk_ends_in_a_sync(leader, begin, files, root, monkeypatch, call):
    """After a failed flush nothing of the folder is believed."""
    monkeypatch.setattr("gomq_py.cluster.replica.FEW", 0 if call == "sync_all" else 4)
    one = begin()
    leader.accept()
    sync(leader)
    about_to, has_failed = files.about_to, []

    def fail(name, subject):
        if name == call and not has_failed:
            has_failed.append(name)
            raise OSError(errno.ENOSPC, os.strerror(errno.ENOSPC), subject)
        about_to(name, subject)

    files.about_to = fail
    leader.tell(events.written(1, 0, b"x"), position=6)
    leader.await_end()
    wait_for_error(one, "No space left")
    hello = leader.accept()
    sync(leader)

    assert has_failed and hello.run == NO_ID
    assert leader.hashes == [(1, [digest_of(b"xbc" if call != "put" else b"abc")] if call == "put" else [])]
    assert content(root)["file"] == b"abc"


def test_file_that_cannot_be_read_is_sent_whole(leader, begin, root, monkeypatch):
    identity.write(PlainFiles(), root, identity.Identity(CLUSTER, b"n" * 16, 1))
    (root / "file").write_bytes(b"abc")
    one = begin()
    leader.accept()
    with monkeypatch.context() as patched:
        patched.setattr(staging, "os", BadSector())
        leader.tell(events.listed(1, 3, "file"), position=0)
        leader.await_end()
    wait_for_error(one, "Input/output error")

    leader.accept()
    sync(leader)

    assert leader.hashes == [(1, [])] and content(root)["file"] == b"abc"


class BadSector:
    """The module os, without reading."""

    def __getattr__(self, name):
        return getattr(os, name)

    def pread(self, *arguments):
        raise OSError(errno.EIO, os.strerror(errno.EIO))


@pytest.mark.parametrize("number", range(1, 60))
def test_sync_in_which_a_call_fails_begins_anew(leader, begin, files, root, number):
    begin()
    leader.accept()
    files.fail_at = len(files.calls) + number
    try:
        sync(leader)
    except (EOFError, ConnectionError):
        leader.accept()
        sync(leader)

    assert content(root) == {"folder": None, "file": b"abc"}


@pytest.mark.parametrize("seed", range(20))
def test_noise_behind_the_login_harms_nothing(leader, begin, root, seed):
    random = Random(seed)
    one = begin()
    leader.accept()
    sync(leader)
    octets = bytearray(b"".join(
        frames.encode(frames.EVENTS, events.written(1, 0, random.randbytes(9)), 1, 6 + number)
        for number in range(3)))
    for _ in range(random.randrange(1, 4)):
        octets[random.randrange(len(octets))] ^= random.randrange(1, 256)
    leader.connection.sendall(octets)
    leader.connection.shutdown(socket.SHUT_WR)
    leader.await_end()

    hello = leader.accept()

    assert hello.run == RUN and 5 <= hello.position < 8
    wait_for(one, state="streaming")


@pytest.mark.parametrize("seed", range(20))
def test_noise_before_the_login_harms_nothing(leader, begin, root, seed):
    one = begin()
    leader.greet()
    leader.connection.sendall(Random(seed).randbytes(100))
    wait_until(lambda: one.status.error, sleep=gevent.sleep)

    leader.accept()
    sync(leader)
