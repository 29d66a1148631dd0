"""The way of a client's connection to its end: who waits for it, and what is told of it."""
import os
import socket as system_socket
from types import SimpleNamespace

import gevent
import pytest
from wsproto import ConnectionType
from wsproto.connection import Connection as WSConnection

from gomq_py.connections import connection as connection_module
from gomq_py.connections.connection import AlarmHold, ClientConnection
from gomq_py.hub.buffers import HubBuffers
from gomq_py.hub.heartbeats import Heartbeats
from gomq_py.hub.loop_socket import LoopSocket
from gomq_py.hub.timers import HubTimers
from gomq_py.net.output import Output
from gomq_py.net.websocket import WebSocket
from tests.support.sockets import socket_pair
from tests.support.waiting import wait_until

ADDRESS = "10.0.0.7", 50_000


class Connection(ClientConnection):
    """One whose last word is not taken."""

    __slots__ = ("is_left", "log", "told")

    door = "amqp"

    def __init__(self, log, is_left):
        turns = SimpleNamespace(call=lambda function: function())
        server = SimpleNamespace(
            hub=SimpleNamespace(is_closed=False, slow_turns=turns, scheduler=None),
            broker=SimpleNamespace(durability=None, events=None),
            gate=SimpleNamespace(leave=lambda _admitted: log.append("given back")))
        socket = SimpleNamespace(getsockname=lambda: ("10.0.0.1", 5672))
        super().__init__(server, socket, ADDRESS, None)
        self.output = SimpleNamespace(close=lambda: None)
        self.is_left = is_left
        self.told = log
        self.log = SimpleNamespace(exception=lambda text, *values: log.append(text % values))

    def _has_left(self):
        return self.is_left

    def _say_last_word(self):
        raise ConnectionResetError(104, "Connection reset by peer")

    def _end(self):
        self.told.append("ended")


@pytest.mark.parametrize("is_left", [True, False])
def test_a_fault_at_an_end_is_logged_and_all_is_given_back_once(is_left):
    log: list = []
    connection = Connection(log, is_left)
    connection.when_gone(lambda: log.append("gone"))

    connection.over()
    assert log == []
    wait_until(lambda: "gone" in log, sleep=gevent.sleep)

    assert log == ["ended", f"connection {connection.name}: fault while ending it", "given back", "gone"]


def test_nothing_is_written_to_the_next_client_of_a_descriptor_after_a_fault_at_the_end(monkeypatch):
    """The number of the closed socket is given to another client's socket, as the system does."""
    def fault(_connection):
        raise RuntimeError

    connection = Connection([], is_left=True)
    monkeypatch.setattr(Connection, "_end", fault)
    accepted, theirs = system_socket.socketpair()
    ours = LoopSocket(accepted.family, accepted.detach())
    number = ours.fileno()
    connection.output = output = Output(ours, HubBuffers())
    connection.when_gone(ours.close)
    another, its_client = system_socket.socketpair()
    with theirs, another, its_client:
        connection.over()
        wait_until(lambda: ours.fileno() < 0, sleep=gevent.sleep)
        os.dup2(another.fileno(), number)
        output.write(b"confirm of the first client")
        os.close(number)
        another.sendall(b"end")

        assert its_client.recv(100) == b"end"


def test_nobody_is_told_of_an_end_behind_that_of_the_hub():
    log: list = []
    connection = Connection(log, is_left=True)
    connection.hub.is_closed = True
    connection.hub.clients = SimpleNamespace(forget=lambda _connection: log.append("forgotten"))
    connection.stream = SimpleNamespace(stop=lambda: log.append("stopped"))
    connection.output = SimpleNamespace(close=lambda: log.append("closed"))

    connection.over()
    wait_until(lambda: "given back" in log, sleep=gevent.sleep)

    assert log == ["stopped", "closed", "forgotten", "given back"]


class Held:
    """A connection that an alarm holds: the reason for which its stream is held, and why it was ended."""

    def __init__(self, socket):
        self.socket = socket
        self.waits_for = self.ended = None
        self.stream = self
        self.hub = SimpleNamespace(heartbeats=Heartbeats(HubTimers()))

    def pause_reading(self, waits_for):
        self.waits_for = waits_for
        return SimpleNamespace(release=self.let_go)

    def let_go(self):
        self.waits_for = None

    def abort(self, why):
        self.ended = why


@pytest.fixture
def ends(monkeypatch):
    monkeypatch.setattr(connection_module, "ALARM_LOOK_S", 0.01)
    both = socket_pair()
    yield both
    for end in both:
        end.close()


def test_connection_is_held_until_it_is_released(ends):
    held = Held(ends[0])
    hold = AlarmHold(held, "low on disk")
    assert held.waits_for == "an alarm to end (low on disk)"

    hold.release()
    hold.release()

    assert held.waits_for is None and not held.hub.heartbeats._intervals


@pytest.mark.parametrize("over", [
    lambda socket: socket, lambda socket: WebSocket(socket, WSConnection(ConnectionType.SERVER), None)], ids=[
    "plain", "WebSocket"])
def test_connection_whose_socket_failed_is_ended_while_it_is_held(ends, over):
    ours, theirs = ends
    held = Held(over(ours))
    AlarmHold(held, "low on disk")
    ours.send(b"never read")

    theirs.close()  # with something unread, which resets the other end

    wait_until(lambda: held.ended is not None, sleep=gevent.sleep)
    assert held.ended == "the socket failed: Connection reset by peer"
    held.hub.heartbeats.close()


def test_connection_whose_client_has_ended_its_side_in_order_is_read_later(ends):
    ours, theirs = ends
    held = Held(ours)
    hold = AlarmHold(held, "low on disk")
    theirs.send(b"to be read when the alarm is over")

    theirs.close()
    hold.check_heartbeat()

    assert held.ended is None
    hold.release()
