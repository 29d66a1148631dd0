"""The hub: what it hands out is one of each, and its close() leaves nothing that runs."""
import gc
import weakref

import gevent
import pytest
from gevent import socket

from gomq_py.amqp.server import login
from gomq_py.amqp.wire.frames import PROTOCOL_HEADER
from gomq_py.amqp.wire.methods import (
    BasicConsume, BasicConsumeOk, BasicDeliver, ConnectionOpen, ConnectionStart, ConnectionTune,
    ConnectionTuneOk, QueueDeclare, QueueDeclareOk,
)
from gomq_py.auth.users import User
from gomq_py.broker.verbs.entering import enter
from gomq_py.config.settings import Settings
from gomq_py.hub import admission
from gomq_py.hub.budget import BodyBudget
from gomq_py.hub.context import Hub
from gomq_py.hub.turns import give_way
from tests.support.door import Door
from tests.support.jobs import Doing
from tests.support.no_switch import no_switch
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

    wait_until(
        lambda: set(done) == {"job", "timer", "later", "greenlet", "heartbeat"}, what=f"all, not {done}",
        sleep=gevent.sleep,
    )


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


class LoggedIn:
    """Stands for a connection that has logged in."""

    door, vhost = "", "/"
    user = User("u", "", "", (), None)


def test_clients_are_cut_off_at_the_end_all_though_one_fails(hub, caplog):
    told = []

    def fail():
        raise RuntimeError("cannot end")

    for cut_off in (lambda: told.append("first"), fail, lambda: told.append("last")):
        client = LoggedIn()
        client.cut_off = cut_off
        hub.clients.register(client)

    hub.close()
    hub.close()

    assert sorted(told) == ["first", "last"]
    assert "failed at the end of the hub" in caplog.text


def test_sockets_that_are_served_end_with_the_hub(hub):
    ours, theirs = socket.socketpair()
    hub.admission.gate("").enter(theirs, "")

    hub.close()

    assert ours.recv(1) == b""
    ours.close()
    theirs.close()


def test_buffers_are_made_once_and_for_the_largest_frame(hub):
    assert hub.buffers is hub.buffers
    assert hub.buffers.reserve > Settings().frame_max


def test_memory_is_given_back_when_many_who_were_let_in_have_left(hub, monkeypatch):
    given_back, gate, loop = [], hub.admission.gate(""), gevent.get_hub()
    monkeypatch.setattr(admission, "MANY", 3)
    monkeypatch.setattr(admission, "LULL_MS", 0)
    monkeypatch.setattr(admission, "give_memory_back", lambda: given_back.append(gevent.get_hub()))
    with socket.socket() as strange:
        for _ in range(admission.MANY):
            with no_switch():
                gate.leave(gate.enter(strange, "192.0.2.1"))

    wait_until(lambda: given_back, sleep=gevent.sleep)

    assert len(given_back) == 1 and given_back != [loop]


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

        door.hub.take_leave()
        door.hub.close()

        assert stranger.socket.recv(1) == b""
        gevent.joinall(door.greenlets, timeout=in_time(30))
        assert door.hub.admission.count == 0


def test_what_clients_have_sent_is_not_read_after_the_end_and_what_they_held_stays_as_it_is(tmp_path):
    """Nobody has taken leave of them: close() alone is what a kill leaves.

    Queues get nothing, and nothing back.
    """
    with Door(tmp_path / "data") as door:
        publisher, consumer = door.client(), door.client()
        publisher.call(QueueDeclare(queue="q"), QueueDeclareOk)
        publisher.publish("q", b"held")
        consumer.call(BasicConsume(queue="q"), BasicConsumeOk)
        consumer.expect_message(BasicDeliver)
        queue = door.queue("q")

        publisher.publish("q", b"late")
        door.hub.close()

        publisher.expect_end()
        consumer.expect_end()
        gevent.joinall(door.greenlets, timeout=in_time(30))
        assert (queue.ready_count, queue.unacked_count) == (0, 1)
        assert not door.hub.clients


def test_nothing_is_sent_after_the_end(tmp_path):
    with Door(tmp_path / "data") as door:
        client = door.client()
        client.call(QueueDeclare(queue="q"), QueueDeclareOk)
        client.publish("q", b"x" * (8 << 20))
        client.call(BasicConsume(queue="q"), BasicConsumeOk)
        output = door.connection().output
        wait_until(output.pending_octets, what="more than the socket takes", sleep=gevent.sleep)

        door.hub.close()

        sent = output.sent_octets
        assert output.pending_octets() == 0
        while client.frame() is not None:
            pass
        assert output.sent_octets == sent


def test_a_login_that_ends_after_the_hub_is_no_connection(tmp_path, monkeypatch):
    with Door(tmp_path / "data") as door:
        def enter_and_close(*arguments):
            door.hub.close()
            return enter(*arguments)

        monkeypatch.setattr(login, "enter", enter_and_close)
        client = door.stranger()
        client.send(PROTOCOL_HEADER)
        client.expect(ConnectionStart, 0)
        client.start_ok()
        client.expect(ConnectionTune, 0)
        client.send_method(ConnectionTuneOk(channel_max=10, frame_max=4096), 0)
        client.send_method(ConnectionOpen(virtual_host="/"), 0)

        client.expect_end()
        assert door.hub.clients.churn.connection_created == 0


def test_nobody_comes_in_after_the_end(hub):
    ours, theirs = socket.socketpair()
    hub.close()

    gate = hub.admission.gate("")
    assert gate.enter(theirs, "") is None and gate.identify(theirs, "") is None
    ours.close()
    theirs.close()


def test_an_owner_that_has_ended_by_itself_is_not_told(hub):
    told = []
    hub.at_close(told.append)

    hub.not_at_close(told.append)
    hub.not_at_close(told.clear)
    hub.close()

    assert told == []


def test_an_owner_that_comes_after_the_end_is_told_at_once(hub):
    told = []
    hub.close()

    hub.at_close(lambda: told.append("ended"))

    assert told == ["ended"]


def test_nobody_who_waits_goes_on_and_nothing_is_given_back_after_the_end(hub):
    """What connections do while they end, behind the hub: whatever they let go of wakes nobody."""
    done = []
    first, second = Waiting(done), Waiting(done)
    hub.bodies = BodyBudget(10, hub.timers)
    assert hub.bodies.grow(first, 8) and not hub.bodies.grow(second, 8)
    hub.endings.give_back([lambda: done.append("before")], lambda: done.append("before"))

    hub.close()
    hub.bodies.release(first)
    hub.endings.give_back_few([lambda: done.append("after")], lambda: done.append("after"))
    hub.endings.finish()

    assert done == []


class Waiting:
    """What waits for memory."""

    def __init__(self, done):
        self.output, self.account = self, None
        self.done = done

    def resume_held(self):
        self.done.append("resumed")


def test_a_socket_that_ends_after_the_hub_waits_for_no_peer(hub):
    ours, theirs = socket.socketpair()
    hub.close()

    with no_switch():
        hub.lingering.end(theirs)

    ours.close()
    theirs.close()
