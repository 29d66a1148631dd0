"""Receiving: the functions that read a socket without waiting, whatever kind of socket it is.

Beside stream, which calls them.
"""
from collections.abc import Callable
from typing import Any

from gomq_py.hub.loop_socket import is_plain


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
