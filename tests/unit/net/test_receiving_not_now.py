"""Receiving: errors that mean that all is well, without the ssl module; the calls of plain sockets."""
import socket
import ssl

import pytest

from gomq_py.net.receiving import has_to_write_first, is_not_now, receive, send


@pytest.mark.parametrize("kind", [BlockingIOError, ssl.SSLWantReadError, ssl.SSLWantWriteError])
def test_the_socket_is_to_be_asked_again(kind):
    assert is_not_now(kind())


@pytest.mark.parametrize("kind", [
    ConnectionResetError, ssl.SSLEOFError, ssl.SSLZeroReturnError, ssl.SSLError, TimeoutError, ValueError,
])
def test_the_connection_is_over(kind):
    assert not is_not_now(kind())
    assert not has_to_write_first(kind())


def test_tls_says_that_it_has_to_write_first():
    assert has_to_write_first(ssl.SSLWantWriteError())
    assert not has_to_write_first(ssl.SSLWantReadError())
    assert not has_to_write_first(BlockingIOError())


def test_descriptor_is_read_and_written_as_its_socket_would_be():
    """The functions of Python; those of C answer in the tests of Stream and Output."""
    ours, theirs = socket.socketpair()
    ours.setblocking(False)
    room = memoryview(bytearray(8))

    with pytest.raises(BlockingIOError):
        receive(ours.fileno(), room)
    assert send(ours.fileno(), memoryview(b"12345")[1:]) == 4 and theirs.recv(8) == b"2345"
    theirs.sendall(b"abc")
    assert receive(ours.fileno(), room) == 3 and bytes(room[:3]) == b"abc"
    theirs.close()
    assert receive(ours.fileno(), room) == 0
    with pytest.raises(BrokenPipeError):
        send(ours.fileno(), b"x")
    ours.close()
