"""Receiving: reads any kind of socket without waiting, and recognises the errors that mean "not ready".

receive() and send() are for plain sockets and compiled modules (receiving.pxd). The methods of Python's
sockets release the interpreter's lock and take it again: 2300 of 13 200 instructions per small MQTT message.
They release it only for reads with a large room and for long sends, so that other threads run meanwhile.
"""
import os
from collections.abc import Callable
from typing import Any

from gomq_py.hub.loop_socket import is_plain

# Errors of ssl by name, because that module loads OpenSSL, 5 MB that a broker without TLS saves.
_READ, _WRITE = "SSLWantReadError", "SSLWantWriteError"


def is_not_now(error: BaseException) -> bool:
    """Whether the error only means that the call must be repeated when the socket is ready."""
    return isinstance(error, BlockingIOError) or type(error).__name__ in (_READ, _WRITE)


def has_to_write_first(error: BaseException) -> bool:
    """Return True if TLS must answer a change of keys before it can read, but the socket is full."""
    return type(error).__name__ == _WRITE


def parts_function(socket: Any) -> Any:
    """Return the non-blocking recvmsg_into of a plain socket, or None for a TLS socket or a WebSocket."""
    return getattr(socket._sock, "recvmsg_into", None) if is_plain(socket) else None


def receive_functions(socket: Any) -> tuple[Callable[[Any], int], Callable[[], int] | None]:
    """Return (non-blocking recv_into, pending) of a socket. ``pending`` is None for a plain socket.
    ``pending()`` returns whether TLS or the WebSocket holds bytes that a poll of the socket does not show.
    """
    if is_plain(socket):  # a plain gevent socket takes 2 us to look for an attribute it has not
        return socket._sock.recv_into, None
    if hasattr(socket, "receive_functions"):
        return socket.receive_functions()
    if getattr(socket, "_sslobj", None) is None:
        return socket._sock.recv_into, None
    from gomq_py.net.records import RecordReader  # a broker without TLS has no need of it

    records = RecordReader(socket._sslobj)
    return records.receive_into, records.pending


def is_native() -> bool:
    """Whether this module is compiled, so that receive() and send() cost less than the socket's methods."""
    return False


def receive(descriptor: int, room: Any) -> int:
    """Receive from a plain socket into the memoryview ``room``. Returns the byte count. Raises OSError."""
    return os.readv(descriptor, [room])


def send(descriptor: int, data: Any) -> int:
    """Send ``data`` by a plain socket. Returns how many bytes it took. Raises OSError."""
    return os.write(descriptor, data)
