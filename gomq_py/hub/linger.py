"""Linger: the end of sockets whose peer may still be writing.

Beside the doors, which call it when they have said their last word.

A socket that is closed while octets of its peer are unread, or on their way, is reset: the peer's next write
fails, and what it has not read yet, the answer to its close for one, may be thrown away. So only our side
ends, and what the peer still sends is read and dropped until it has closed too: for a bounded time, of a
bounded number of octets, and for a bounded number of sockets at a time. Never looks at what it reads.
"""
from socket import SHUT_WR
from typing import Any

import gevent
from gevent import Timeout
from gevent.socket import socket as PlainSocket

# A client closes at once when it has read our end; one behind a slow network needs a few round trips.
LINGER_S = 5
# Some seconds of what a fast client publishes before it knows.
LINGER_OCTETS = 16 * 1024 * 1024
# Each takes a descriptor and a greenlet; beyond, they are closed at once,
# as everybody was before there was this.
LINGERING_MAX = 1000
READ_OCTETS = 64 * 1024
# Between two reads that were full, so that a peer that never stops writing keeps the hub from nothing else.
PAUSE_S = 0.001


class Lingering:
    """The sockets of one server that are ending."""

    def __init__(self, most: int = LINGERING_MAX, seconds: float = LINGER_S, octets: int = LINGER_OCTETS):
        self._most = most
        self._seconds = seconds
        self._octets = octets
        self._greenlets: dict[Any, None] = {}
        self._is_closed = False

    def __len__(self) -> int:
        return len(self._greenlets)

    def end(self, socket: Any) -> None:
        """Say that nothing more comes, and wait until the peer has closed too;
        the caller closes the socket then. May switch.
        """
        if self._is_closed or len(self._greenlets) >= self._most:
            return
        greenlet = gevent.getcurrent()
        self._greenlets[greenlet] = None
        try:
            with Timeout(self._seconds, False):
                end_our_side(socket)
                self._discard(socket)
        except OSError:
            pass  # the peer has ended it, in its own way
        finally:
            del self._greenlets[greenlet]

    def close(self) -> None:
        """Wait for nobody any more, nor for who comes later: their greenlets end, and close the sockets."""
        self._is_closed = True
        gevent.killall(list(self._greenlets), block=False)

    def _discard(self, socket: Any) -> None:
        """Read to the end, or as much as is bearable. May switch."""
        left = self._octets
        while left > 0:
            count = len(socket.recv(READ_OCTETS))
            if count == 0:
                return
            left -= count
            if count == READ_OCTETS:
                gevent.sleep(PAUSE_S)


def end_our_side(socket: Any) -> None:
    """Shut down the writing half of a gevent socket, over TLS with its notice,
    without which a peer may take the end for an attack.

    What is read then is what lies below TLS.
    """
    # a plain socket of gevent's takes 2 us to say that it has none
    ssl_object = None if type(socket) is PlainSocket else getattr(socket, "_sslobj", None)
    if ssl_object is not None:
        try:
            ssl_object.shutdown()
        except OSError:
            pass  # it would wait for the peer's notice, which is on its way or not
    socket.shutdown(SHUT_WR)
