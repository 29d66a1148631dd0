"""Connections that an alarm holds, and whose clients are not there any more."""
from types import SimpleNamespace

import gevent
import pytest
from wsproto import ConnectionType
from wsproto.connection import Connection

from gomq_py.hub import alarms
from gomq_py.hub.alarms import AlarmHold
from gomq_py.hub.heartbeats import Heartbeats
from gomq_py.net.websocket import WebSocket
from tests.support.sockets import socket_pair
from tests.support.waiting import wait_until


class Held:
    """A connection: the reason for which its stream is held, and why it was ended."""

    def __init__(self, socket):
        self.socket = socket
        self.waits_for = self.ended = None
        self.stream = self
        self.hub = SimpleNamespace(heartbeats=Heartbeats())

    def hold(self, waits_for):
        self.waits_for = waits_for
        return SimpleNamespace(release=self.let_go)

    def let_go(self):
        self.waits_for = None

    def abort(self, why):
        self.ended = why


@pytest.fixture
def ends(monkeypatch):
    monkeypatch.setattr(alarms, "INTERVAL_S", 0.01)
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
    lambda socket: socket, lambda socket: WebSocket(socket, Connection(ConnectionType.SERVER), None)], ids=[
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
