"""Socket options: what the operator wants of every TCP socket that is accepted.

Beside listener, which has them set. On Linux what is accepted has most of them of its listener.
"""
import socket
import sys
from typing import Any


class SocketOptions:
    """What is set on every accepted TCP socket. ``revision`` counts the changes."""

    revision = 0

    def __init__(self, nodelay: bool = True, keepalive: Any = None, recv_bytes: int = 0, send_bytes: int = 0):
        """``keepalive`` has idle_s, interval_s and probes, or is None; buffer sizes of 0 are left to the
        system.
        """
        self.update(nodelay, keepalive, recv_bytes, send_bytes)

    def update(self, nodelay: bool, keepalive: Any, recv_bytes: int, send_bytes: int) -> None:
        """As the constructor, for sockets accepted from now on."""
        self.revision += 1
        # what is off, too: a socket has what its listener had
        self._options = [
            (socket.IPPROTO_TCP, socket.TCP_NODELAY, int(nodelay)),
            (socket.SOL_SOCKET, socket.SO_KEEPALIVE, int(bool(keepalive))),
        ]
        if keepalive:
            self._options += [
                (socket.IPPROTO_TCP, socket.TCP_KEEPIDLE, keepalive.idle_s),
                (socket.IPPROTO_TCP, socket.TCP_KEEPINTVL, keepalive.interval_s),
                (socket.IPPROTO_TCP, socket.TCP_KEEPCNT, keepalive.probes),
            ]
        # A size that was set cannot be left to the system again, so no listener has one.
        self._sizes = [
            (socket.SOL_SOCKET, name, size)
            for name, size in ((socket.SO_RCVBUF, recv_bytes), (socket.SO_SNDBUF, send_bytes)) if size
        ]

    def apply(self, connection: Any, inherited: int = 0) -> None:
        """Set them, but for what a socket has of its listener, on which those of the revision ``inherited``
        were set. Raises OSError when the peer has gone already.
        """
        if inherited == self.revision and not self._sizes:
            return
        if connection.family != socket.AF_UNIX:
            if inherited != self.revision:
                _set_all(connection, self._options)
            _set_all(connection, self._sizes)

    def apply_to_listener(self, listening: Any) -> int:
        """Set what accepted sockets have from there on Linux, and return what ``apply`` is told of that: 0
        where there is nothing, and each is set on each of them.
        """
        if listening.family == socket.AF_UNIX or not sys.platform.startswith("linux"):
            return 0
        try:
            _set_all(listening, self._options)
        except OSError:
            return 0
        return self.revision


def _set_all(one: Any, options: list[tuple[int, int, int]]) -> None:
    set_option = getattr(one, "_sock", one).setsockopt
    for level, name, value in options:
        set_option(level, name, value)
