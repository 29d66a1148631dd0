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
        assert one._pause_s == follower.FIRST_PAUSE_S * 2 ** (count + 1)
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
