"""Whose turn it is to wait for a socket: a thread's that always waits, or a caller's in its place."""

import socket
import threading

import pytest

from gomq_py.client.turn import OwnTurn, Turn, make_turn
from tests.support.waiting import TIMEOUT_S


@pytest.fixture
def ends():
    """(what the other end writes to, what is waited for) of a connection and of a wake."""
    made = [*socket.socketpair(), *socket.socketpair()]
    yield made
    for each in made:
        each.close()


@pytest.mark.parametrize("kind", [Turn, OwnTurn])
def test_a_wake_is_told_from_what_the_connection_brings(ends, kind):
    peer, connection, waker, woken = ends
    turn = kind(connection.fileno(), woken.fileno())
    peer.send(b"x")

    before = turn.wait(TIMEOUT_S)
    waker.send(b"w")

    assert (before, turn.wait(TIMEOUT_S)) == (False, True)
    turn.close()


def test_nobody_takes_the_turn_of_a_thread_that_does_not_wait(ends):
    turn = Turn(ends[1].fileno(), ends[3].fileno())

    assert turn.take() is False
    turn.wait(0)
    assert turn.take() is False
    turn.close()


def test_what_a_caller_takes_in_wakes_only_the_caller_and_the_rest_the_thread(ends):
    """The thread waits; the caller takes its place, reads what comes, and gives it back with something
    left.
    """
    peer, connection, _, woken = ends
    turn, returned = Turn(connection.fileno(), woken.fileno()), []

    def wait():
        turn.wait(TIMEOUT_S)
        returned.append(connection.recv(9))

    thread = threading.Thread(target=wait)
    thread.start()
    while not turn.take():
        pass
    peer.send(b"answer")
    told = turn.wait_as_caller(TIMEOUT_S)
    answer, before = connection.recv(9), list(returned)
    peer.send(b"more")
    turn.give_back()
    thread.join(TIMEOUT_S)

    assert (told, answer, before, returned) == ((True, False), b"answer", [], [b"more"])
    turn.close()


def test_a_caller_is_told_that_the_thread_is_wanted(ends):
    _, connection, waker, woken = ends
    turn = Turn(connection.fileno(), woken.fileno())
    thread = threading.Thread(target=turn.wait, args=[TIMEOUT_S])
    thread.start()
    while not turn.take():
        pass
    waker.send(b"w")

    assert turn.wait_as_caller(TIMEOUT_S) == (True, True)
    turn.give_back()
    thread.join(TIMEOUT_S)
    turn.close()


def test_a_program_that_gevent_has_patched_keeps_the_turn_to_its_greenlet(ends, monkeypatch):
    import gevent.monkey

    monkeypatch.setattr(gevent.monkey, "is_module_patched", lambda name: name == "threading")

    assert type(make_turn(ends[1].fileno(), ends[3].fileno())) is OwnTurn
