"""Pumps: what one socket of a pair receives leaves by the other, and each end is passed on."""
import contextlib
import os
import struct

import gevent
import pytest
from gevent import socket, ssl

from gomq_py.net import openssl, pump
from gomq_py.net.listener import bind_tcp
from gomq_py.net.pump import Pumps
from tests.support import certificates
from tests.support.waiting import in_time, wait_until

MUCH = os.urandom(3 << 20)


def pair():
    """Two connected TCP sockets."""
    with bind_tcp("127.0.0.1", 0, 1) as listening:
        outer = socket.create_connection(listening.getsockname())
        inner, _ = listening.accept()
    outer.settimeout(in_time(20))
    return outer, inner


def shake_hands(outer, inner, folder):
    """Make both TLS sockets."""
    files = certificates.make(folder)
    context = ssl.SSLContext(ssl.PROTOCOL_TLS_SERVER)
    context.load_cert_chain(files.certificate, files.key)
    trusting = ssl.SSLContext(ssl.PROTOCOL_TLS_CLIENT)
    trusting.load_verify_locations(files.authority)
    shaking = gevent.spawn(trusting.wrap_socket, inner, server_hostname="localhost")
    outer = context.wrap_socket(outer, server_side=True)
    return outer, shaking.get()


class World:
    """``client`` and ``server``: the far ends of two connections that a pump joins."""

    def __init__(self, folder=None):
        self.pumps = Pumps()
        self.client, self._inner = pair()
        self.server, self._outer = pair()
        if folder is not None:
            self.server, self._outer = shake_hands(self.server, self._outer, folder)
        self.is_over = False
        self.pump = self.pumps.join(self._inner, self._outer, self._close)

    def _close(self):
        assert not self.is_over
        self.is_over = True
        self._inner.close()
        self._outer.close()

    def end(self):
        self.pumps.close()
        self.client.close()
        self.server.close()
        assert self.is_over


@pytest.fixture(params=["plain", "tls"])
def world(request, tmp_path):
    world = World(tmp_path / "certificates" if request.param == "tls" else None)
    yield world
    world.end()


def receive(connection, count):
    """The next octets; fewer at the end."""
    octets = bytearray()
    while len(octets) < count and (part := connection.recv(count - len(octets))):
        octets += part
    return bytes(octets)


def end_writing(connection):
    if isinstance(connection, ssl.SSLSocket):
        assert openssl.end_writing(connection._sslobj)
    else:
        connection.shutdown(socket.SHUT_WR)


def wait(condition):
    return wait_until(condition, sleep=gevent.sleep)


def test_octets_pass_both_ways(world):
    world.client.sendall(b"asked")
    assert receive(world.server, 5) == b"asked"

    world.server.sendall(b"answered")
    assert receive(world.client, 8) == b"answered"


def test_much_passes_both_ways_at_once(world):
    sending = [gevent.spawn(one.sendall, MUCH) for one in (world.client, world.server)]
    reading = [gevent.spawn(receive, one, len(MUCH)) for one in (world.server, world.client)]
    assert [one.get() for one in reading] == [MUCH, MUCH]
    gevent.joinall(sending, raise_error=True)


def test_socket_without_room_stops_the_reading_of_its_partner(world):
    sending = gevent.spawn(world.client.sendall, MUCH * 8)
    wait(lambda: world.pump._to_server._rest)
    rest = bytes(world.pump._to_server._rest)
    assert len(rest) <= pump.READ_OCTETS and not sending.ready()

    world.server.sendall(b"the other way is open")
    assert receive(world.client, 21) == b"the other way is open"

    assert receive(world.server, 8 * len(MUCH)) == MUCH * 8
    sending.get()


def test_answer_passes_after_the_clients_end(world):
    world.client.sendall(b"asked")
    world.client.shutdown(socket.SHUT_WR)
    assert receive(world.server, 9) == b"asked"

    world.server.sendall(b"answered")
    assert receive(world.client, 8) == b"answered"

    assert not world.is_over
    world.server.close()
    assert receive(world.client, 1) == b""
    wait(lambda: world.is_over)


def test_clients_last_octets_pass_after_the_servers_end(world):
    end_writing(world.server)
    assert receive(world.client, 1) == b""

    world.client.sendall(b"last")
    assert receive(world.server, 4) == b"last"
    world.client.close()
    wait(lambda: world.is_over)


def test_client_that_does_not_end_after_the_server_is_closed(world, monkeypatch):
    monkeypatch.setattr(pump, "ENDING_S", 0.02)
    end_writing(world.server)

    wait(lambda: world.is_over)
    assert receive(world.client, 1) == b""


def test_reset_ends_both_sides(world):
    world.client.setsockopt(socket.SOL_SOCKET, socket.SO_LINGER, struct.pack("ii", 1, 0))
    world.client.close()

    wait(lambda: world.is_over)
    with contextlib.suppress(ConnectionResetError):  # newer libraries of TLS tell it
        assert receive(world.server, 1) == b""


def test_octets_that_tls_holds_already_pass(tmp_path):
    """What OpenSSL has read before the pump began does not show in a poll of the socket."""
    client, inner = pair()
    server, outer = shake_hands(*pair(), tmp_path / "certificates")
    server.sendall(b"first and later")
    assert outer.recv(5) == b"first"
    pumps = Pumps()
    pumps.join(inner, outer, lambda: None)

    assert receive(client, 10) == b" and later"
    pumps.close()
    for one in (client, inner, server, outer):
        one.close()
