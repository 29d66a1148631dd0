"""Ends of sockets whose peer still writes: read on for a bounded time, of bounded octets,
and for a bounded number of them.
"""
import gc
import ssl
import weakref

import gevent
import pytest
from gevent import socket
from gevent import ssl as gevent_ssl

from gomq_py.hub import lingering_close
from gomq_py.hub.lingering_close import Lingering
from gomq_py.hub.timers import HubTimers
from tests.support import certificates
from tests.support.sockets import socket_pair
from tests.support.waiting import in_time, wait_until


def ending(lingering, ours):
    """A greenlet that ends our side and closes the socket after it."""

    def end():
        try:
            lingering.end(ours)
        finally:
            ours.close()

    return gevent.spawn(end)


def test_peer_reads_our_end_and_may_write_until_it_closes_too():
    lingering = Lingering(HubTimers())
    ours, theirs = socket_pair()
    ours.sendall(b"last word")

    greenlet = ending(lingering, ours)

    assert theirs.recv(100) == b"last word" and theirs.recv(100) == b""
    for _ in range(10):
        theirs.sendall(b"x" * 100_000)
    assert len(lingering) == 1
    theirs.close()
    greenlet.get(timeout=in_time(30))
    assert len(lingering) == 0


def test_connection_that_has_lingered_dies_without_the_cycle_collector():
    class Connection:
        pass

    lingering = Lingering(HubTimers())
    ours, theirs = socket_pair()
    connection = Connection()
    died = weakref.ref(connection)
    gc.disable()
    try:
        lingering.end_later(ours, lambda connection=connection: ours.close())
        del connection
        assert died() is not None
        theirs.close()

        wait_until(lambda: died() is None, sleep=gevent.sleep)
    finally:
        gc.enable()


def test_peer_that_writes_and_writes_is_given_up():
    lingering = Lingering(HubTimers(), octets=200_000)
    ours, theirs = socket_pair()
    greenlet = ending(lingering, ours)

    with pytest.raises(OSError):
        while True:
            theirs.sendall(b"x" * 10_000)

    greenlet.get(timeout=in_time(30))


def test_peer_that_does_nothing_is_given_up():
    ours, theirs = socket_pair()

    ending(Lingering(HubTimers(), seconds=0.05), ours).get(timeout=in_time(30))

    with pytest.raises(OSError):
        theirs.sendall(b"x")


def test_there_are_only_so_many_at_a_time():
    lingering = Lingering(HubTimers(), most=1)
    peers = [socket_pair(), socket_pair()]
    greenlet = ending(lingering, peers[0][0])
    wait_until(lambda: len(lingering) == 1, sleep=gevent.sleep)

    ending(lingering, peers[1][0]).get(timeout=in_time(30))

    assert len(lingering) == 1
    lingering.close()
    greenlet.join(timeout=in_time(30))
    assert greenlet.ready() and len(lingering) == 0


def test_peer_that_has_gone_is_not_waited_for():
    ours, theirs = socket_pair()
    theirs.close()

    ending(Lingering(HubTimers()), ours).get(timeout=in_time(30))


def test_the_end_of_a_plain_socket_is_awaited_without_a_greenlet():
    lingering, gone = Lingering(HubTimers()), []
    ours, theirs = socket_pair()
    ours.sendall(b"last word")

    lingering.end_later(ours, lambda: gone.append(ours.fileno() >= 0))

    assert theirs.recv(100) == b"last word" and theirs.recv(100) == b""
    for _ in range(10):
        theirs.sendall(b"x" * 100_000)
    assert len(lingering) == 1 and gone == []
    theirs.close()
    wait_until(lambda: gone, sleep=gevent.sleep)
    assert len(lingering) == 0 and gone == [True]
    ours.close()


@pytest.mark.parametrize("octets", [200_000, 16 * 1024 * 1024])
def test_a_plain_peer_that_writes_and_writes_or_does_nothing_is_given_up(octets):
    lingering, gone = Lingering(HubTimers(), octets=octets, seconds=0.05 if octets > 200_000 else 3600), []
    ours, theirs = socket_pair()

    def over():
        gone.append("gone")
        ours.close()

    lingering.end_later(ours, over)
    if octets == 200_000:
        with pytest.raises(OSError):
            while True:
                theirs.sendall(b"x" * 10_000)

    wait_until(lambda: gone, sleep=gevent.sleep)
    assert gone == ["gone"] and len(lingering) == 0
    theirs.close()


def test_there_are_only_so_many_plain_ones_at_a_time_and_none_after_the_close():
    lingering, gone = Lingering(HubTimers(), most=1), []
    peers = [socket_pair() for _ in range(3)]
    lingering.end_later(peers[0][0], lambda: gone.append("first"))

    lingering.end_later(peers[1][0], lambda: gone.append("second"))

    assert gone == ["second"] and len(lingering) == 1
    lingering.close()
    assert gone == ["second", "first"] and len(lingering) == 0
    lingering.end_later(peers[2][0], lambda: gone.append("third"))
    assert gone == ["second", "first", "third"] and len(lingering) == 0
    for one in sum(peers, ()):
        one.close()


def test_a_plain_peer_that_has_gone_is_not_waited_for():
    lingering, gone = Lingering(HubTimers()), []
    ours, theirs = socket_pair()
    theirs.close()

    lingering.end_later(ours, lambda: gone.append("gone"))

    assert gone == ["gone"] and len(lingering) == 0
    ours.close()


@pytest.mark.parametrize("is_closed", [False, True])
def test_what_is_like_a_socket_takes_a_greenlet_to_its_end(is_closed):
    class Wrapped:
        """Like TLS: what lies below it is not for us."""

        def __init__(self, socket):
            self.shutdown, self.recv = socket.shutdown, socket.recv

    lingering, gone = Lingering(HubTimers()), []
    ours, theirs = socket_pair()
    if is_closed:
        lingering.close()

    lingering.end_later(Wrapped(ours), lambda: gone.append("gone"))
    if not is_closed:
        assert theirs.recv(100) == b""
        assert gone == []
    theirs.close()

    wait_until(lambda: gone, sleep=gevent.sleep)
    assert gone == ["gone"] and len(lingering) == 0
    ours.close()


def test_over_tls_the_end_is_said_and_what_comes_later_is_read_all_the_same(tmp_path):
    files = certificates.make(tmp_path / "server")
    context = gevent_ssl.SSLContext(gevent_ssl.PROTOCOL_TLS_SERVER)
    context.load_cert_chain(files.certificate, files.key)
    lingering = Lingering(HubTimers())
    ours, theirs = socket.socketpair()

    def serve():
        encrypted = context.wrap_socket(ours, server_side=True)
        encrypted.sendall(b"last word")
        try:
            lingering.end(encrypted)
        finally:
            encrypted.close()

    greenlet = gevent.spawn(serve)
    client_context = gevent_ssl.SSLContext(gevent_ssl.PROTOCOL_TLS_CLIENT)
    client_context.load_verify_locations(files.authority)
    client = client_context.wrap_socket(theirs, server_hostname="localhost", suppress_ragged_eofs=False)

    assert client.recv(100) == b"last word" and client.recv(100) == b""
    for _ in range(3):
        client.sendall(b"x" * 1000)
    client.close()
    greenlet.get(timeout=in_time(30))


def test_a_socket_that_cannot_say_its_end_over_tls_ends_all_the_same():
    class Refusing:
        """What lies below a TLS socket that is broken."""

        def shutdown(self):
            raise ssl.SSLError("broken")

    class Socket:
        _sslobj = Refusing()
        how = None

        def shutdown(self, how):
            self.how = how

    broken = Socket()

    lingering_close.end_our_side(broken)

    assert broken.how == socket.SHUT_WR
