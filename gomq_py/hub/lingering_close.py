"""Linger: the end of sockets whose peer may still be writing.

Beside the doors, which call it when they have said their last word.

A socket that is closed while octets of its peer are unread, or on their way, is reset: the peer's next write
fails, and what it has not read yet, the answer to its close for one, may be thrown away. So only our side
ends, and what the peer still sends is read and dropped until it has closed too: for a bounded time, of a
bounded number of octets, and for a bounded number of sockets at a time. Never looks at what it reads.
"""
from collections.abc import Callable
from functools import partial
from socket import SHUT_WR
from typing import Any

import gevent
from gevent import Timeout

from gomq_py.hub.loop_socket import is_plain

# A client closes at once when it has read our end; one behind a slow network needs a few round trips.
LINGER_S = 5
# Some seconds of what a fast client publishes before it knows.
LINGER_OCTETS = 16 * 1024 * 1024
# Each takes a descriptor, and a greenlet over TLS; beyond, they are closed at once, as everybody was before
# there was this.
LINGERING_MAX = 1000
READ_OCTETS = 64 * 1024
READABLE = 1
# Between two reads that were full, so that a peer that never stops writing keeps the hub from nothing else.
PAUSE_S = 0.001


class Lingering:
    """The sockets of one server that are ending."""

    def __init__(
        self, timers: Any, most: int = LINGERING_MAX, seconds: float = LINGER_S, octets: int = LINGER_OCTETS,
    ):
        """``timers``: the hub's."""
        self._timers = timers
        self._most = most
        self._seconds = seconds
        self._octets = octets
        self._greenlets: dict[Any, None] = {}
        self._watched: dict[_Watched, None] = {}
        self._is_closed = False

    def __len__(self) -> int:
        return len(self._greenlets) + len(self._watched)

    def end(self, socket: Any) -> None:
        """Say that nothing more comes, and wait until the peer has closed too;
        the caller closes the socket then. May switch.
        """
        if self._is_closed or len(self) >= self._most:
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

    def end_later(self, socket: Any, gone: Callable[[], None]) -> None:
        """As ``end``, but ``gone()`` is called in place of a return, perhaps before this returns; a plain
        socket takes no greenlet.
        """
        if not is_plain(socket):
            gevent.spawn(self._end_and_tell, socket, gone)
            return
        watched = _Watched(socket._sock, self._octets, partial(self._forget, gone))
        if not self._is_closed and len(self) < self._most and watched.begin(self._timers, self._seconds):
            self._watched[watched] = None
        else:
            gone()

    def _end_and_tell(self, socket: Any, gone: Callable[[], None]) -> None:
        try:
            self.end(socket)
        finally:
            gone()

    def _forget(self, gone: Callable[[], None], watched: "_Watched") -> None:
        del self._watched[watched]
        gone()

    def close(self) -> None:
        """Wait for nobody any more, nor for who comes later: the sockets are closed."""
        self._is_closed = True
        for watched in list(self._watched):
            watched.end()
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


class _Watched:
    """A plain socket whose end is awaited in the loop: ``over(self)`` is called when it has come, or was
    waited for long enough.
    """

    __slots__ = ("_socket", "_left", "_over", "_watcher", "_timer")

    def __init__(self, socket: Any, octets: int, over: "Callable[[_Watched], None]"):
        self._socket = socket
        self._left = octets
        self._over = over
        self._watcher: Any = None
        self._timer: Any = None

    def begin(self, timers: Any, seconds: float) -> bool:
        """Say that nothing more comes. False: neither does from the peer."""
        try:
            self._socket.shutdown(SHUT_WR)
        except OSError:
            return False
        if self._has_ended():
            return False
        self._watcher = gevent.get_hub().loop.io(self._socket.fileno(), READABLE)
        self._watcher.start(self._readable)
        self._timer = timers.start(seconds * 1000, self.end)
        return True

    def end(self) -> None:
        """Wait no longer."""
        self._timer.stop()
        self._watcher.stop()
        self._watcher.close()
        self._over(self)

    def _readable(self) -> None:
        if self._has_ended():
            self.end()

    def _has_ended(self) -> bool:
        """Drop what has come. Whether the peer has closed, in its own way, or has written too much."""
        try:
            count = len(self._socket.recv(READ_OCTETS))
        except BlockingIOError:
            return False
        except OSError:
            return True
        self._left -= count
        return count == 0 or self._left <= 0


def end_our_side(socket: Any) -> None:
    """Shut down the writing half of a gevent socket, over TLS with its notice,
    without which a peer may take the end for an attack.

    What is read then is what lies below TLS.
    """
    # a plain socket of gevent's takes 2 us to say that it has none
    ssl_object = None if is_plain(socket) else getattr(socket, "_sslobj", None)
    if ssl_object is not None:
        try:
            ssl_object.shutdown()
        except OSError:
            pass  # it would wait for the peer's notice, which is on its way or not
    socket.shutdown(SHUT_WR)
