"""A socket that only the loop serves: it waits for nobody, and is the system's own."""
import socket
import ssl

import gevent.socket
import pytest

from gomq_py.hub.loop_socket import LoopSocket, is_plain


@pytest.fixture
def ends():
    """A LoopSocket and the other end of it."""
    ours, theirs = socket.socketpair()
    one = LoopSocket(ours.family, ours.detach())
    yield one, theirs
    one.close()
    theirs.close()


def test_it_does_not_wait_for_its_peer(ends):
    one, peer = ends

    with pytest.raises(BlockingIOError):
        one.recv(1)
    peer.sendall(b"abc")

    assert one.recv(10) == b"abc"


def test_it_owns_the_descriptor(ends):
    one, peer = ends

    one.close()

    assert one.fileno() == -1
    assert peer.recv(1) == b""


def test_it_stands_for_the_systems_own_socket(ends):
    one, _peer = ends

    assert one._sock is one
    assert one.family == socket.AF_UNIX and one.type == socket.SOCK_STREAM


def test_what_wraps_a_socket_is_not_plain(ends):
    one, peer = ends
    with gevent.socket.socket(fileno=peer.detach()) as other:
        assert is_plain(one)
        assert is_plain(other)
    assert not is_plain(ssl.SSLSocket.__new__(ssl.SSLSocket))
    assert not is_plain(object())
