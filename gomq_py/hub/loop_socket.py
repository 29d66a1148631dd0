"""Loop socket: a connected socket that only the loop serves: it is read and written when the loop says so,
and nobody waits for it.

gevent's has two watchers for those who wait, and takes 15 us to accept; whoever has to wait takes that one.
Knows no protocol.
"""
import _socket
from typing import Any

from gevent.socket import socket as GeventSocket


class LoopSocket(_socket.socket):
    """What was accepted with this descriptor, which is owned from here on. Its calls do not wait."""

    __slots__ = ("__weakref__",)

    def __init__(self, family: int, descriptor: int):
        super().__init__(family, _socket.SOCK_STREAM, 0, descriptor)
        self.setblocking(False)

    @property
    def _sock(self) -> "LoopSocket":
        """As gevent's has the system's."""
        return self


_PLAIN = (LoopSocket, GeventSocket)


def is_plain(socket: Any) -> bool:
    """Whether what a stream reads and writes is the system's own socket, and neither TLS nor a WebSocket."""
    return type(socket) in _PLAIN
