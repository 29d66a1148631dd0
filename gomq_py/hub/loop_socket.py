"""Loop socket: a connected socket that never waits. Its owner reads and writes when the loop calls.

gevent's socket has two watchers for code that waits, and takes 15 us to accept.
"""
import _socket
from typing import Any

from gevent.socket import socket as GeventSocket


class LoopSocket(_socket.socket):
    """Owns ``descriptor``, an accepted socket. Its calls do not wait."""

    __slots__ = ("__weakref__",)

    def __init__(self, family: int, descriptor: int):
        super().__init__(family, _socket.SOCK_STREAM, 0, descriptor)
        self.setblocking(False)

    @property
    def _sock(self) -> "LoopSocket":
        """The system's socket, under the name that gevent's socket gives it."""
        return self


_PLAIN = (LoopSocket, GeventSocket)


def is_plain(socket: Any) -> bool:
    """Whether ``socket`` is neither TLS nor a WebSocket."""
    return type(socket) in _PLAIN
