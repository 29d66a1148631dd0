"""Receiving: the functions that read a socket without waiting, whatever kind of socket it is, and what a
socket raises that has nothing to read, or takes nothing, at this moment.

Beside stream, which calls them.
"""
from collections.abc import Callable
from typing import Any

from gomq_py.hub.loop_socket import is_plain

# Errors of ssl by their names, because that module loads OpenSSL, which with its tables is 5 MB that a broker
# without TLS does not take.
_READ, _WRITE = "SSLWantReadError", "SSLWantWriteError"


def is_not_now(error: BaseException) -> bool:
    """Whether the same call is to be made again when the socket is ready, because all is well."""
    return isinstance(error, BlockingIOError) or type(error).__name__ in (_READ, _WRITE)


def has_to_write_first(error: BaseException) -> bool:
    """Whether TLS has to write before it can read, to answer a change of keys, and the socket has no room."""
    return type(error).__name__ == _WRITE


def parts_function(socket: Any) -> Any:
    """The non-blocking recvmsg_into of a plain gevent socket; None of any other."""
    return getattr(socket._sock, "recvmsg_into", None) if is_plain(socket) else None


def receive_functions(socket: Any) -> tuple[Callable[[Any], int], Callable[[], int] | None]:
    """The non-blocking recv_into of a gevent socket, and for TLS what says whether OpenSSL has octets that
    were not read from it. What is like a socket (net.websocket) brings both.
    """
    if is_plain(socket):  # one of gevent's takes 2 us to say what it has not
        return socket._sock.recv_into, None
    if hasattr(socket, "receive_functions"):
        return socket.receive_functions()
    if getattr(socket, "_sslobj", None) is None:
        return socket._sock.recv_into, None
    from gomq_py.net.records import RecordReader  # a broker without TLS has no need of it

    records = RecordReader(socket._sslobj)
    return records.receive_into, records.pending
