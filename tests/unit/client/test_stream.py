"""Signs of life of the client: when octets are sent, by a clock that moves as the client waits."""
from types import SimpleNamespace

import pytest

from gomq_py.amqp.wire.frames import HEARTBEAT_FRAME, method_frame
from gomq_py.amqp.wire.methods import ConnectionOpenOk, ConnectionStart, ConnectionTune
from gomq_py.client import connection, mqtt, stream

T_S = 10
HANDSHAKE = (
    method_frame(0, ConnectionStart(
        version_minor=9, server_properties={}, mechanisms=b"PLAIN", locales=b"en")),
    method_frame(0, ConnectionTune(channel_max=0, frame_max=0, heartbeat=T_S)),
    method_frame(0, ConnectionOpenOk()))
CONNACK, PINGREQ, PINGRESP = b"\x20\x02\x00\x00", b"\xc0\x00", b"\xd0\x00"
QOS_0 = b"\x30\x04\x00\x01tm"


class Peer:
    """In the place of a transport. ``every_s``: between two times that the peer says ``octets``; ``sent``:
    (when, octets) of the client.
    """

    def __init__(self, *first):
        self.now_s, self.sent = 1000.0, []
        self.every_s, self.octets, self.next_s = 1e9, b"", 1e9
        self.socket = None
        self._first = list(first)

    def says(self, octets, every_s):
        self.octets, self.every_s, self.next_s = octets, every_s, self.now_s + every_s

    def connect(self, *_):
        pass

    def send(self, octets):
        self.sent.append((self.now_s, bytes(octets)))
        return len(octets)

    def receive(self, _most):
        if self._first:
            return self._first.pop(0)
        if self.now_s < self.next_s:
            return None
        self.next_s += self.every_s
        return self.octets

    def wait(self, wait_s, writable=False):
        if self._first:
            return True
        until_s = self.now_s + wait_s
        self.now_s = max(self.now_s, min(until_s, self.next_s))
        return self.next_s <= until_s

    def close(self):
        pass

    def gaps(self):
        """Seconds without an octet of the client's, to this moment."""
        moments = [when for when, _ in self.sent] + [self.now_s]
        return [after - before for before, after in zip(moments, moments[1:])]


@pytest.fixture
def meet(monkeypatch):
    def meet(make, *first):
        peer = Peer(*first)
        clock = SimpleNamespace(monotonic=lambda: peer.now_s)
        for module in (stream, connection, mqtt):
            monkeypatch.setattr(module, "time", clock)
        monkeypatch.setattr(stream, "Transport", lambda _module: peer)
        return peer, make()
    return meet


@pytest.mark.parametrize("every_s", [0.3, 4.9, 5.0, 9.9, 19.0])
def test_heartbeats_come_after_half_an_interval_of_silence(meet, every_s):
    peer, client = meet(connection.Connection, *HANDSHAKE)
    peer.says(HEARTBEAT_FRAME, every_s)

    while peer.now_s < 1200:
        client.drain(7.0)

    assert max(peer.gaps()) <= T_S / 2 + 1e-6
    assert 38 <= sum(octets == HEARTBEAT_FRAME for _, octets in peer.sent) <= 41


def test_heartbeats_come_while_the_peer_never_stops_talking(meet):
    """As a consumer without acks has it that is slower than its broker."""
    peer, client = meet(connection.Connection, *HANDSHAKE)
    peer.says(HEARTBEAT_FRAME, 0.0)

    while peer.now_s < 1100:
        peer.now_s += 0.01
        client.cork()
        assert client.take_ready()
        client.uncork()

    assert max(peer.gaps()) <= T_S / 2 + 0.02


@pytest.mark.parametrize("says, every_s", [(PINGRESP, 4.0), (QOS_0, 0.2), (QOS_0, 4.9), (PINGRESP, 19.0)])
def test_pingreq_comes_after_half_a_keep_alive_of_silence(meet, says, every_s):
    peer, client = meet(lambda: mqtt.MQTTClient(keep_alive_s=T_S), CONNACK)
    peer.says(says, every_s)

    while peer.now_s < 1200:
        client.next_message(7.0)

    assert max(peer.gaps()) <= T_S / 2 + 1e-6
    assert 38 <= sum(octets == PINGREQ for _, octets in peer.sent) <= 41


def test_server_that_says_nothing_is_asked_while_messages_are_sent_to_it(meet):
    """QoS 0 is not answered: without PINGREQ nobody would see that the server has gone."""
    peer, client = meet(lambda: mqtt.MQTTClient(keep_alive_s=T_S), CONNACK)
    for _ in range(8):
        client.publish("t", b"m")
        assert client.next_message(1.0) is None

    asked = [when for when, octets in peer.sent if octets == PINGREQ]
    assert asked == [pytest.approx(1000 + T_S / 2, abs=0.01)]
