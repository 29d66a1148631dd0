"""Follower: its leader changes, or begins a new epoch, and what was received stays."""
import errno
import threading

import gevent
import pytest
from gevent import socket

from gomq_py.cluster import applier, follower, identity
from gomq_py.cluster.login import FollowerLogin
from gomq_py.cluster.replica import Replica
from gomq_py.cluster.staging import Staging
from gomq_py.cluster.wire import events, frames
from gomq_py.cluster.wire.messages import NO_ID
from gomq_py.hub.turns import give_way
from gomq_py.storage.disk.plain_files import PlainFiles
from tests.support.played_leader import (
    CLUSTER, RUN, SECRET, VERSION, PlayedLeader, content, sync, wait_for, wait_for_error,
)
from tests.support.waiting import in_time, wait_until


@pytest.fixture
def other():
    played = PlayedLeader()
    yield played
    played.close()


def address(played):
    return "127.0.0.1", played.port


def fail(*arguments):
    raise OSError(errno.EIO, "broken")


def wait(condition):
    wait_until(condition, sleep=gevent.sleep)


def test_follower_without_an_address_waits_for_one(leader, begin):
    one = begin(host="", port=0)
    wait_for(one, state="waiting", address="", error="")

    one.follow(address(leader))

    leader.accept()
    sync(leader)
    wait_for(one, state="streaming")


def test_follower_of_nobody_acknowledges_nothing_more(leader, begin):
    one = begin()
    leader.accept()
    sync(leader)

    one.follow(None)

    acks = len(leader.acks)
    leader.await_end()
    wait_for(one, state="waiting", error="", received=5)
    assert set(leader.acks[acks:]) <= {(5, 5)} and not one.hears_leader


def test_follower_goes_on_with_the_same_run_at_another_address(leader, other, begin, root):
    """The leader is known by its run, not by its address."""
    one = begin()
    leader.accept()
    sync(leader)

    one.follow(address(other))
    hello = other.accept()
    other.tell(events.written(1, 0, b"xyz"), position=6)
    other.await_ack(6, 6)

    assert (hello.run, hello.position) == (RUN, 5) and not other.is_sync
    assert content(root)["file"] == b"xyz"


def test_follow_with_the_same_address_keeps_the_connection(leader, begin):
    one = begin()
    leader.accept()
    sync(leader)

    one.follow(address(leader))

    leader.tell(events.written(1, 0, b"xyz"), position=6)
    leader.await_ack(6, 6)


def test_flush_waits_for_all_that_was_received(leader, begin, root, monkeypatch):
    monkeypatch.setattr(applier, "BATCH_OCTETS", 1)
    one = begin(flush_s=60.0)
    leader.accept()
    sync(leader)
    for position in range(6, 20):
        leader.tell(events.written(1, 0, b"%03d" % position), position=position)
    wait(lambda: one.status.received == 19)

    one.follow(None)
    assert one.flush() is None

    assert one.status.flushed == 19
    assert content(root)["file"] == b"019"


def test_flush_says_what_keeps_the_folder_from_being_whole(leader, begin, files, monkeypatch):
    one = begin(flush_s=60.0)
    leader.accept()
    sync(leader)
    monkeypatch.setattr(files, "sync", fail)
    leader.tell(events.written(1, 0, b"xyz"), position=6)
    wait(lambda: one.status.received == 6)

    failure = one.flush()

    assert failure is not None and failure.errno == errno.EIO
    assert one.flush() is failure


def test_follower_whose_folder_fails_says_so_and_leaves(leader, begin, files, monkeypatch):
    begin(flush_s=0.0)
    leader.accept()
    sync(leader)
    monkeypatch.setattr(files, "sync", fail)

    leader.tell(events.written(1, 0, b"xyz"), position=6)
    leader.await_end()

    assert leader.refused == "[Errno 5] broken"


def test_failed_flush_is_known_after_a_restart(leader, begin, other, files, root, monkeypatch):
    """What the folder reads may not be on the disk, so a sync takes nothing from it, and no node leads with
    it, until a sync is swapped in or the machine boots anew.
    """
    one = begin(flush_s=0.0)
    leader.accept()
    sync(leader)
    with monkeypatch.context() as patch:
        patch.setattr(files, "sync", fail)
        leader.tell(events.written(1, 0, b"xyz"), position=6)
        leader.await_end()
        wait(lambda: not identity.read(root).is_whole)
        one.stop()

    begin(port=other.port)  # the first one may have connected to its leader again
    other.accept()
    sync(other)

    assert other.hashes == [(1, [])]
    assert identity.read(root).is_whole


def test_failed_flush_behind_a_sync_is_noted_in_the_new_identity(leader, begin, root, monkeypatch):
    """The flush fails before the follower has heard that the sync was swapped in."""
    one = begin()
    leader.accept()
    leader.tell(VERSION, events.listed_all(), position=0)
    leader.await_ack(0, 0)
    wait_for(one, lag_octets=0)
    monkeypatch.setattr(Replica, "_flush_each", fail)

    leader.connection.sendall(b"".join(
        frames.encode(frames.EVENTS, operation, 1, position)
        for operation, position in ((events.synced(), 5), (events.written(99, 0, b"xy"), 6))))
    leader.await_end()
    wait(lambda: one.identity.torn)

    assert one.identity.cluster_id == CLUSTER and identity.read(root) == one.identity


def test_folder_of_promises_without_a_flush_is_not_whole_after_a_loss_of_power(
        leader, begin, root, monkeypatch):
    begin()
    leader.accept(counts_received=True)
    sync(leader)
    assert identity.read(root).is_whole

    monkeypatch.setattr(identity, "boot_id", lambda: b"another\n")

    assert not identity.read(root).is_whole and identity.read(root).reads_as_on_disk


def test_flush_during_a_sync_leaves_the_folder_as_it_was(leader, begin, root):
    identity.write(PlainFiles(), root, identity.Identity(CLUSTER, b"n" * 16, 1))
    (root / "file").write_bytes(b"old")
    one = begin()
    leader.accept()
    leader.tell(events.listed(1, 3, "file"), events.written(1, 0, b"new"), position=6)
    wait(lambda: one.status.received == 6)

    one.follow(None)

    assert one.flush() is None
    assert content(root)["file"] == b"old" and one.status.flushed == 0


def test_what_was_received_is_kept_when_a_sync_begins(leader, begin, root):
    """It may have been acknowledged as received, and this folder may be elected until the sync is whole."""
    one = begin(flush_s=60.0)
    leader.accept()
    sync(leader)
    calls = []
    turn = one._applier._turn
    one._applier._turn = lambda *arguments: calls.append(arguments) or turn(*arguments)
    for position in range(6, 12):
        leader.tell(events.written(1, 0, b"%03d" % position), position=position)
    leader.connection.shutdown(socket.SHUT_WR)
    leader.accept(can_resume=False, epoch=2)
    wait_for(one, state="syncing", received=0)

    assert content(root)["file"] == b"011" and any(is_due for _, is_due in calls)


def test_flush_without_anything_received_returns(begin):
    assert begin(host="", port=0).flush() is None


@pytest.mark.parametrize("before", [(), (events.flushed(),)])
def test_events_that_a_promise_waits_for_are_flushed_at_once(leader, begin, before):
    """Both disks are at work at the same time."""
    one = begin(flush_s=60.0)
    leader.accept()
    sync(leader)
    leader.tell(events.written(1, 0, b"xyz"), *before, position=7)
    leader.await_ack(7, 5)
    assert one.status.flushed == 5

    leader.tell(*before, events.written(1, 0, b"abc"), events.hurry(), position=8)

    leader.await_ack(8, 8)


def test_what_waits_behind_a_flush_does_not_delay_its_acknowledgement(leader, begin, files, monkeypatch):
    one = begin(flush_s=60.0)
    leader.accept()
    sync(leader)
    positions, put = [], files.put
    monkeypatch.setattr(
        files, "put", lambda *arguments: positions.append(one.status.flushed) or put(*arguments))

    octets = b"".join(
        frames.encode(
            frames.EVENTS, events.written(1, 0, b"%03d" % position) + events.hurry() * (position % 2), 1,
            position)
        for position in range(6, 10))
    leader.connection.sendall(octets)
    leader.await_ack(9, 9)

    assert positions == [5, 5, 7, 7]
    assert one.status.lag_octets == 0


def test_what_is_received_is_acknowledged_at_once_where_that_counts(leader, begin):
    begin(flush_s=60.0)
    leader.accept(counts_received=True)
    sync(leader)
    acks = len(leader.acks)

    for position in range(6, 12):
        leader.tell(events.written(1, 0, b"xyz"), position=position)
        leader.await_ack(position, 5)

    assert len(leader.acks) - acks <= 7  # one of them may be that of half a second


def test_later_epoch_is_on_the_disk_before_the_first_acknowledgement(leader, begin, root, monkeypatch):
    one = begin()
    leader.accept()
    sync(leader)
    written, go_on = [], gevent.event.Event()
    write = identity.write

    def late(*arguments):
        written.append(arguments[-1].epoch)
        write(*arguments)

    def in_thread(function, *arguments):
        if function is late:
            go_on.wait()
        return applier.in_thread(function, *arguments)

    monkeypatch.setattr(identity, "write", late)
    monkeypatch.setattr(identity, "in_thread", in_thread)
    leader.accept(epoch=4)
    leader.tell(events.written(1, 0, b"xyz"), position=6)
    for _ in range(20):
        give_way()
    with gevent.Timeout(0.05, False):
        leader.read()
    assert leader.acks == []

    go_on.set()
    leader.await_ack(6, 6)

    assert not leader.is_sync and written == [4]
    assert identity.read(root) == one.identity == identity.Identity(CLUSTER, one.identity.node_id, 4)


def test_position_is_noted_in_the_folder_and_acknowledged(leader, begin, root, monkeypatch):
    one = begin()
    leader.accept()
    sync(leader)
    assert identity.read(root).position == leader.noted == 5

    leader.tell(events.written(1, 0, b"xyz"), position=6)
    leader.await_ack(6, 6)
    leader.tell(position=6)
    monkeypatch.setattr(follower, "NOTE_S", 0.0)
    while leader.noted == 5:
        leader.tell(position=6)
        leader.read()

    assert identity.read(root).position == one.identity.position == leader.noted == 6


def test_no_position_is_noted_in_a_later_epoch_at_first(leader, begin, root):
    """It would be one of an epoch in which nothing was noted."""
    begin()
    leader.accept()
    sync(leader)

    leader.accept(epoch=4)
    leader.tell(events.written(1, 0, b"xyz"), position=6)
    leader.await_ack(6, 6)

    assert identity.read(root) == identity.Identity(CLUSTER, identity.read(root).node_id, 4)
    assert leader.noted == 0


def test_leader_of_a_lower_epoch_is_left_after_that(leader, begin):
    one = begin()
    leader.accept()
    sync(leader)
    leader.accept(epoch=4)
    leader.await_ack(5, 5)

    with pytest.raises(EOFError):
        leader.accept(epoch=3)
    wait_for_error(one, "the leader is in epoch 3, this folder has seen 4")


def test_epoch_of_a_sync_after_a_raised_one_stays(leader, begin, root):
    """The identity of an earlier sync must not come back."""
    one = begin()
    leader.accept()
    sync(leader)
    leader.accept(epoch=4)
    leader.tell(events.written(1, 0, b"xyz"), position=6)
    leader.await_ack(6, 6)

    assert one.identity.epoch == identity.read(root).epoch == 4


@pytest.mark.parametrize("kind, epoch, is_accepted", [
    (frames.EVENTS, 3, True), (frames.EVENTS, 5, False), (frames.HEARTBEAT, 3, False),
    (frames.HEARTBEAT, 5, False), (frames.HEARTBEAT, 4, True),
])
def test_kept_events_alone_may_be_of_an_earlier_epoch(leader, begin, kind, epoch, is_accepted):
    one = begin()
    leader.accept(epoch=4)
    sync(leader)

    leader.tell(position=6, kind=kind, epoch=epoch)

    if is_accepted:
        wait_for(one, leader_position=6, error="")
    else:
        wait_for_error(one, f"a frame is of epoch {epoch}, the leader of 4")


def test_leader_is_heard_until_it_is_silent_or_its_connection_ends(leader, begin, monkeypatch):
    one = begin()
    assert not one.hears_leader
    leader.accept()
    sync(leader)
    leader.tell(position=5, kind=frames.HEARTBEAT)
    assert one.hears_leader

    with monkeypatch.context() as patched:
        patched.setattr(follower, "HEARS_S", -1.0)
        assert not one.hears_leader
    leader.hang_up()

    wait(lambda: not one.hears_leader)


def test_follow_ends_a_try_to_connect_that_takes_long(leader, begin, monkeypatch):
    asked = []
    getaddrinfo = follower.gevent.socket.getaddrinfo

    def slow(host, *arguments, **options):
        if host == "broker.example":
            asked.append(host)
            gevent.event.Event().wait()
        return getaddrinfo(host, *arguments, **options)

    monkeypatch.setattr("gomq_py.cluster.link.socket.getaddrinfo", slow)
    one = begin(host="broker.example")
    wait(lambda: asked)

    one.follow(address(leader))

    leader.accept(secret=SECRET)
    sync(leader)


# a leader that has followed the same run

LATER_RUN = b"l" * 16
LOST_RUN = b"o" * 16


def begin_exact(leader, begin):
    """A follower with the file 1, and position 9, whose copy is exact."""
    one = begin()
    leader.accept()
    sync(leader)
    leader.tell(events.flushed(), position=6)
    leader.tell(events.flushed(), position=7)
    leader.tell(events.written(1, 0, b"xy"), position=9)
    leader.await_ack(9, 9)
    return one


def test_follower_goes_on_in_the_same_folder_at_a_leader_that_has_followed_the_same_run(
        leader, begin, other, root):
    one = begin_exact(leader, begin)
    one.follow(address(other))
    inode = (root / "file").stat().st_ino

    hello = other.accept(epoch=2, run=LATER_RUN)
    other.tell(events.written(1, 2, b"z"), position=10)
    other.await_ack(10, 10)

    assert (hello.run, hello.position) == (RUN, 9) and not other.is_sync
    assert content(root)["file"] == b"xyz" and (root / "file").stat().st_ino == inode
    assert identity.read(root).epoch == 2
    one.follow(None)
    one.follow(address(other))
    assert (other.accept(epoch=2, run=LATER_RUN).run) == LATER_RUN


def test_copy_is_known_as_unflushed_from_the_first_leader_on_that_counts_what_was_received(
        leader, begin, other, root):
    one = begin_exact(leader, begin)
    assert one.identity.unflushed == ""
    one.follow(address(other))

    other.accept(epoch=2, run=LATER_RUN, counts_received=True)
    other.await_ack(9, 9)

    assert not other.is_sync and identity.read(root).unflushed == identity.this_boot()


@pytest.mark.parametrize("operations", [
    (events.written(1, 0, b"xy"),),  # no flush since the sync: it may have read what was not told yet
    (events.flushed(), events.flushed(), events.written(1, 0, b"x")),
], ids=["behind a sync", "in the middle of a range"])
def test_copy_that_may_differ_from_the_next_leaders_is_synced(leader, begin, other, operations):
    one = begin()
    leader.accept()
    sync(leader)
    for operation in operations:
        leader.tell(operation, position=9)
    leader.await_ack(9, 9)
    one.follow(address(other))

    assert other.accept(epoch=2, run=LATER_RUN).run == RUN
    hello = other.accept(epoch=2, run=LATER_RUN)

    assert hello.run == NO_ID and other.is_sync


def test_follower_whose_sync_was_cut_off_goes_on_where_it_was_before(leader, begin, other, root):
    """The first leader after the lost one has lost that run, and is lost itself."""
    one = begin_exact(leader, begin)
    one.follow(address(other))
    other.accept(epoch=2, run=b"o" * 16, can_resume=False)
    other.tell(events.listed(5, 9, "file"), VERSION, position=500)
    while not other.hashes:
        other.read()
    one.follow(address(leader))

    hello = leader.accept(epoch=3, run=LATER_RUN)
    leader.tell(events.written(1, 2, b"z"), position=10)
    leader.await_ack(10, 10)

    assert (hello.run, hello.position) == (RUN, 9) and not leader.is_sync
    assert content(root)["file"] == b"xyz" and not (root / ".sync").exists()
    wait_for(one, state="streaming", error="", leader_position=10, lag_s=0.0)


@pytest.mark.parametrize("function, is_over, runs", [
    ("synced", False, [RUN, LOST_RUN]), ("synced", True, [RUN, LOST_RUN]), ("complete", False, [NO_ID])])
def test_follower_does_not_go_on_in_a_copy_that_is_swapped_in_meanwhile(
        leader, begin, other, monkeypatch, function, is_over, runs):
    """The next leader knows the run before the sync. The follower logs in there while a thread is at the end
    of the sync, which ``is_over`` before the login is.
    """
    one = begin_exact(leader, begin)
    at_end, goes_on = threading.Event(), threading.Event()
    original = getattr(Staging, function)

    def late(*arguments):
        at_end.set()
        goes_on.wait(in_time(20))
        return original(*arguments)

    feed = FollowerLogin.feed

    def fed(login, frame):
        if is_over and at_end.is_set():
            goes_on.set()
            wait(lambda: one.identity.epoch == 2)
        return feed(login, frame)

    monkeypatch.setattr(Staging, function, late)
    monkeypatch.setattr(FollowerLogin, "feed", fed)
    one.follow(address(other))
    other.accept(epoch=2, run=LOST_RUN, can_resume=False)
    other.tell(VERSION, events.listed_all(), events.synced(), position=40)
    wait(at_end.is_set)
    one.follow(address(leader))

    asked = [leader.accept(epoch=3, run=LATER_RUN).run]
    goes_on.set()
    while len(asked) < len(runs):
        asked.append(leader.accept(epoch=3, run=LATER_RUN).run)

    assert asked == runs and leader.is_sync


def test_copy_that_is_swapped_in_while_the_next_sync_begins_is_of_its_own_run(
        leader, begin, other, monkeypatch):
    """The swap falls into the login at the next leader, and its flush ends once the next sync begins."""
    one = begin_exact(leader, begin)
    at_end, goes_on, is_swapped, begins = (threading.Event() for _ in range(4))
    complete, flush, feed, begin_sync = (
        Staging.complete, Replica.flush, FollowerLogin.feed, applier.Applier.begin_sync)

    def late(*arguments):
        at_end.set()
        goes_on.wait(in_time(20))
        return complete(*arguments)

    def flushed(replica):
        is_swapped.set()
        begins.wait(in_time(20))
        flush(replica)

    def fed(*arguments):
        goes_on.set()
        wait(is_swapped.is_set)
        return feed(*arguments)

    def begun(*arguments):
        begins.set()
        begin_sync(*arguments)

    monkeypatch.setattr(Staging, "complete", late)
    one.follow(address(other))
    other.accept(epoch=2, run=LOST_RUN, can_resume=False)
    other.tell(VERSION, events.listed_all(), events.synced(), position=40)
    wait(at_end.is_set)
    monkeypatch.setattr(Replica, "flush", flushed)
    monkeypatch.setattr(FollowerLogin, "feed", fed)
    monkeypatch.setattr(applier.Applier, "begin_sync", begun)
    one.follow(address(leader))
    leader.accept(epoch=3, run=LATER_RUN, can_resume=False)
    wait_for(one, state="syncing")

    hello = leader.accept(epoch=3, run=LATER_RUN)

    assert (hello.run, hello.position) == (LOST_RUN, 40)


def test_damaged_folder_does_not_go_on(leader, begin, other, files, monkeypatch):
    one = begin_exact(leader, begin)
    monkeypatch.setattr(files, "put", fail)
    leader.tell(events.written(1, 0, b"x"), position=10)
    leader.await_end()
    one.follow(address(other))

    assert other.accept(epoch=2, run=LATER_RUN).run == NO_ID
    assert one.stop() is not None and one.former_run is None
