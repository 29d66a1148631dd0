"""Socket options: sets the configured options of accepted TCP sockets. On Linux most options are set on the
listener, from which accepted sockets inherit them.
"""
import socket
import sys
from typing import Any


class SocketOptions:
    """The options of every accepted TCP socket. ``revision``: a number that changes with the options."""

    revision = 0

    def __init__(self, nodelay: bool = True, keepalive: Any = None, recv_bytes: int = 0, send_bytes: int = 0):
        """``keepalive``: an object with idle_s, interval_s and probes, or None. ``recv_bytes``,
        ``send_bytes``: sizes of the system's buffers; 0: its default.
        """
        self.update(nodelay, keepalive, recv_bytes, send_bytes)

    def update(self, nodelay: bool, keepalive: Any, recv_bytes: int, send_bytes: int) -> None:
        """Set the options for sockets accepted later. For the arguments see ``__init__``."""
        self.revision += 1
        # also options that are off: a socket inherits its listener's
        self._options = [
            (socket.IPPROTO_TCP, socket.TCP_NODELAY, int(nodelay)),
            *keepalive_options(keepalive),
        ]
        # The system does not take back a size that was set, so no listener has one.
        self._sizes = [
            (socket.SOL_SOCKET, name, size)
            for name, size in ((socket.SO_RCVBUF, recv_bytes), (socket.SO_SNDBUF, send_bytes)) if size
        ]

    def apply(self, connection: Any, inherited: int = 0) -> None:
        """Set the options of an accepted socket. Raises OSError if the peer has gone. ``inherited``: result
        of apply_to_listener(). If this is the present revision, the socket has the options from its listener.
        """
        if inherited == self.revision and not self._sizes:
            return
        if connection.family != socket.AF_UNIX:
            if inherited != self.revision:
                _set_all(connection, self._options)
            _set_all(connection, self._sizes)

    def apply_to_listener(self, listening: Any) -> int:
        """Set the options that accepted sockets inherit from their listener on Linux. Returns the revision
        for ``apply``; 0 if sockets inherit nothing.
        """
        if listening.family == socket.AF_UNIX or not sys.platform.startswith("linux"):
            return 0
        try:
            _set_all(listening, self._options)
        except OSError:
            return 0
        return self.revision


def keepalive_options(keepalive: Any) -> list[tuple[int, int, int]]:
    """Return (level, name, value) of each option of TCP keepalive. ``keepalive``: see SocketOptions."""
    if not keepalive:
        return [(socket.SOL_SOCKET, socket.SO_KEEPALIVE, 0)]
    return [
        (socket.SOL_SOCKET, socket.SO_KEEPALIVE, 1),
        (socket.IPPROTO_TCP, socket.TCP_KEEPIDLE, keepalive.idle_s),
        (socket.IPPROTO_TCP, socket.TCP_KEEPINTVL, keepalive.interval_s),
        (socket.IPPROTO_TCP, socket.TCP_KEEPCNT, keepalive.probes),
    ]


def _set_all(one: Any, options: list[tuple[int, int, int]]) -> None:
    set_option = getattr(one, "_sock", one).setsockopt
    for level, name, value in options:
        set_option(level, name, value)
