"""A link's wire while the link rests: heartbeats, by timers of virtual time."""
from types import SimpleNamespace

import pytest
from gevent import socket

from gomq_py.amqp.wire.frames import HEARTBEAT_FRAME
from gomq_py.links import wire as wires
from gomq_py.links.session import Keepalive
from gomq_py.links.wire import Silent, Wire
from tests.support.virtual_time import VirtualTime

T_S = 10


class Call:
    """A timer of the hub's, in virtual time."""

    def __init__(self, time, seconds, function):
        self._call = time.start(seconds * 1000, function)

    def stop(self):
        self._call.stop()


@pytest.fixture
def resting(monkeypatch):
    """(time, the wire of a link that rests, its peer's socket, [whether the link reads, Silent it ended of])
    """
    time = VirtualTime()
    monkeypatch.setattr(wires, "time", SimpleNamespace(monotonic=time.clock))
    ours, peer = socket.socketpair()
    peer.setblocking(False)
    ours.setblocking(False)
    wire = Wire(
        SimpleNamespace(heartbeat_s=T_S, release=lambda: (b"", ours)), lambda: None, lambda error: None, None)
    seen = [True, None]

    def tick():
        try:
            return wire.tick(seen[0])
        except Silent as error:
            seen[1] = error

    hub = SimpleNamespace(
        timers=SimpleNamespace(start=lambda ms, function: Call(time, ms / 1000, function)),
        at_close=lambda _: None, not_at_close=lambda _: None)
    keepalive = Keepalive(hub)
    keepalive.begin(SimpleNamespace(tick=tick, abort=wire.abort))
    yield time, wire, peer, seen
    keepalive.end()
    wire.abort()
    peer.close()


def taken(peer):
    try:
        return peer.recv(65536)
    except BlockingIOError:
        return b""


@pytest.mark.parametrize("hears_every_s", [0.25, 5.0, 19.75])
def test_heartbeats_come_after_half_an_interval_of_silence(resting, hears_every_s):
    """Whatever the peer says meanwhile: what is read ends with a flush, which has nothing to write."""
    time, wire, peer, seen = resting
    room, spoke_s, heard_s, began_s = memoryview(bytearray(64)), time.now_s, time.now_s, time.now_s

    while time.now_s < began_s + 100:
        time.pass_time(0.25)
        if taken(peer):
            spoke_s = time.now_s
        assert time.now_s - spoke_s <= T_S / 2
        if time.now_s - heard_s >= hears_every_s:
            heard_s = time.now_s
            peer.send(HEARTBEAT_FRAME)
            assert wire.receive_into(room) == len(HEARTBEAT_FRAME)
            wire.send_queued()

    assert seen[1] is None


def test_what_is_sent_meanwhile_is_a_sign_too(resting):
    time, wire, peer, _ = resting
    time.pass_time(3)
    wire.write(b"frame")
    wire.send_queued()
    assert taken(peer) == b"frame"

    time.pass_time(4.75)
    assert taken(peer) == b""
    time.pass_time(0.25)
    assert taken(peer) == HEARTBEAT_FRAME


def test_heartbeats_go_on_while_the_link_does_not_read(resting):
    """A source whose target is full is not read; what it says is not missed, and it hears that we live."""
    time, _, peer, seen = resting
    seen[0] = False

    for _ in range(20):
        time.pass_time(5)
        assert taken(peer) == HEARTBEAT_FRAME

    assert seen[1] is None


def test_silent_peer_is_given_up_after_two_intervals(resting):
    time, _, _, seen = resting
    time.pass_time(2 * T_S)
    assert seen[1] is None
    time.pass_time(0.25)
    assert "nothing heard from the broker for 20 s" in str(seen[1])
