"""Loop socket: a connected socket that never waits. Its owner reads and writes in callbacks of the event
loop. gevent's socket has two watchers for code that waits, and takes 15 us to accept.
"""
import _socket
from typing import Any

from gevent.socket import socket as GeventSocket


class LoopSocket(_socket.socket):
    """An accepted socket whose calls never wait. Owns the file ``descriptor``."""

    __slots__ = ("__weakref__",)

    def __init__(self, family: int, descriptor: int):
        super().__init__(family, _socket.SOCK_STREAM, 0, descriptor)
        self.setblocking(False)

    @property
    def _sock(self) -> "LoopSocket":
        """This socket itself. gevent's sockets have the system's socket under this name."""
        return self


_PLAIN = (LoopSocket, GeventSocket)


def is_plain(socket: Any) -> bool:
    """Whether ``socket`` is neither TLS nor a WebSocket."""
    return type(socket) in _PLAIN


def descriptor_of(socket: Any) -> int:
    """Return the descriptor of a plain system socket; -1 for TLS, a WebSocket, or a simulated socket."""
    if is_plain(socket) and isinstance(socket._sock, _socket.socket):
        return socket.fileno()
    return -1
