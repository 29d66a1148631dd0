"""Lingering close: ends sockets whose peer may still be writing.

Closing a socket while bytes of its peer are unread, or on their way, resets the connection. The peer's next
write then fails, and bytes that the peer has not read yet, such as the answer to its close, may be lost. So
the broker ends its own side, then reads and drops the peer's bytes until the peer closes, too. Time, bytes
and number of sockets are limited.
"""
from collections.abc import Callable
from functools import partial
from socket import SHUT_WR
from typing import Any

import gevent
from gevent import Timeout

from gomq_py.hub.loop_socket import is_plain

# A client closes once it has read the broker's end; behind a slow network that takes a few round trips.
LINGER_S = 5
# Some seconds of a fast client's publishes.
LINGER_OCTETS = 16 * 1024 * 1024
# Each ending socket takes a descriptor, and over TLS a greenlet; further sockets are closed at once.
LINGERING_MAX = 1000
READ_OCTETS = 64 * 1024
READABLE = 1
# Pause between two full reads, so that a peer that never stops writing does not keep the hub busy.
PAUSE_S = 0.001


class Lingering:
    """Ends one server's connections without a TCP reset, by waiting for the peer's close within limits."""

    def __init__(
        self, timers: Any, most: int = LINGERING_MAX, seconds: float = LINGER_S, octets: int = LINGER_OCTETS,
    ):
        """``most``: limit of waiting sockets. ``seconds``, ``octets``: limits for each socket."""
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
        """End the broker's side of a connection, and wait for the peer's close or a limit. May switch
        greenlets. The caller then closes the socket.
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
            pass  # the peer has ended the connection
        finally:
            del self._greenlets[greenlet]

    def end_later(self, socket: Any, gone: Callable[[], None]) -> None:
        """End the broker's side of a connection, and return at once. ``gone()`` is called when the peer has
        closed or a limit is reached, perhaps before this returns.
        """
        # Only TLS and WebSockets need a greenlet. Their last octets are sent at once, because a broker that
        # stops shuts the socket down before the greenlet begins.
        if not is_plain(socket):
            try:
                end_our_side(socket)
            except OSError:
                pass  # the greenlet finds this out, too
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
        """Stop waiting for peers, so that all sockets are closed at once."""
        self._is_closed = True
        for watched in list(self._watched):
            watched.end()
        gevent.killall(list(self._greenlets), block=False)

    def _discard(self, socket: Any) -> None:
        """Read and drop bytes until the peer closes or the limit is reached. May switch greenlets."""
        left = self._octets
        while left > 0:
            count = len(socket.recv(READ_OCTETS))
            if count == 0:
                return
            left -= count
            if count == READ_OCTETS:
                gevent.sleep(PAUSE_S)


class _Watched:
    """Waits, without a greenlet, until the peer closes a plain socket, then calls ``over(self)``."""

    __slots__ = ("_socket", "_left", "_over", "_watcher", "_timer")

    def __init__(self, socket: Any, octets: int, over: "Callable[[_Watched], None]"):
        self._socket = socket
        self._left = octets
        self._over = over
        self._watcher: Any = None
        self._timer: Any = None

    def begin(self, timers: Any, seconds: float) -> bool:
        """End the broker's side, and begin to wait. Returns False if the peer has closed already."""
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
        timer, self._timer = self._timer, None  # it refers to this object
        timer.stop()
        self._watcher.stop()
        self._watcher.close()
        self._over(self)

    def _readable(self) -> None:
        if self._has_ended():
            self.end()

    def _has_ended(self) -> bool:
        """Drop received bytes. Returns whether the peer has closed or has sent more than the limit."""
        try:
            count = len(self._socket.recv(READ_OCTETS))
        except BlockingIOError:
            return False
        except OSError:
            return True
        self._left -= count
        return count == 0 or self._left <= 0


def end_our_side(socket: Any) -> None:
    """Shut down the writing half of a gevent socket. Later reads of a TLS socket return encrypted bytes."""
    # A TLS peer first gets a close_notify, because it may take its absence for an attack.
    # a plain gevent socket takes 2 us to look for the attribute
    ssl_object = None if is_plain(socket) else getattr(socket, "_sslobj", None)
    if ssl_object is not None:
        try:
            ssl_object.shutdown()
        except OSError:
            pass  # it would wait for the peer's notice, which may never come
    socket.shutdown(SHUT_WR)
