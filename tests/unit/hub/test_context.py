"""The hub: what it hands out is one of each, and its close() leaves nothing that runs."""
import gc
import weakref

import gevent
import pytest
from gevent import socket

from gomq_py.config.settings import Settings
from gomq_py.hub.context import Hub
from gomq_py.hub.turns import give_way
from tests.support.door import Door
from tests.support.jobs import Doing
from tests.support.waiting import in_time, wait_until


@pytest.fixture
def hub():
    hub = Hub(Settings())
    yield hub
    hub.close()


def polls(count=5):
    """Let timers of no time fire, and what they start."""
    for _ in range(count):
        give_way()


class Checked:
    """A connection whose heartbeat is checked."""

    def __init__(self, done):
        self.done = done

    def check_heartbeat(self):
        self.done.append("heartbeat")


def begin_everything(hub, done):
    """One of each kind of thing that the hub may be asked for."""
    hub.scheduler.start(Doing(lambda: done.append("job")))
    hub.timers.start(0, lambda: done.append("timer"))
    hub.call_later(0.0001, done.append, "later")
    hub.spawn(done.append, "greenlet")
    hub.heartbeats.watch(Checked(done), 0.1)


def test_what_is_begun_is_carried_out(hub):
    done = []

    begin_everything(hub, done)

    wait_until(lambda: set(done) == {"job", "timer", "later", "greenlet", "heartbeat"}, what=f"all, not {done}", sleep=gevent.sleep)


@pytest.mark.parametrize("closed_first", [False, True])
def test_nothing_is_carried_out_after_the_end(hub, closed_first):
    done = []
    if closed_first:
        hub.close()
    begin_everything(hub, done)

    hub.close()
    polls()

    assert done == [] and not hub.scheduler.is_armed() and hub.heartbeats._timer is None


def test_greenlets_that_are_under_way_end_with_the_hub(hub):
    ended = []

    def wait_for_ever():
        try:
            gevent.get_hub().switch()
        finally:
            ended.append(True)

    hub.spawn(wait_for_ever)
    polls()

    hub.close()
    polls()

    assert ended == [True]


def test_a_greenlet_that_closes_the_hub_goes_on(hub):
    done = []
    hub.spawn(lambda: (hub.close(), gevent.sleep(0), done.append("went on")))

    polls()

    assert done == ["went on"]


def test_owners_are_told_of_the_end_once_the_last_first_and_all_though_one_fails(hub, caplog):
    told = []

    def fail():
        raise RuntimeError("cannot end")

    for function in (lambda: told.append("first"), fail, lambda: told.append("last")):
        hub.at_close(function)

    hub.close()
    hub.close()

    assert told == ["last", "first"]
    assert "failed at the end of the hub" in caplog.text


def test_sockets_that_are_served_end_with_the_hub(hub):
    ours, theirs = socket.socketpair()
    hub.admission.enter(theirs, "")

    hub.close()

    assert ours.recv(1) == b""
    ours.close()
    theirs.close()


def test_buffers_are_made_once_and_for_the_largest_frame(hub):
    assert hub.buffers is hub.buffers
    assert hub.buffers.reserve > Settings().frame_max


def test_greenlets_that_have_ended_are_forgotten(hub):
    greenlet = hub.spawn(int)
    killed = hub.call_later(60, int)
    killed.kill(block=False)
    gone = [weakref.ref(greenlet), weakref.ref(killed)]
    del greenlet, killed

    polls()
    gc.collect()

    assert [one() for one in gone] == [None, None]


def test_whoever_has_not_logged_in_is_let_go_of_when_the_broker_stops(tmp_path):
    with Door(tmp_path / "data") as door:
        stranger = door.stranger()
        polls()
        assert door.hub.admission.pending_count == 1

        door.server.close()
        door.hub.close()

        assert stranger.socket.recv(1) == b""
        gevent.joinall(door.greenlets, timeout=in_time(30))
        assert door.hub.admission.count == 0
