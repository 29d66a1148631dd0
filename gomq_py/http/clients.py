"""Clients: limits the number of clients of one management port, in all and per address, and the time that a
client may keep the server waiting.

The server reports when it waits for a client and when it works for one; one timer runs for the client whose
time ends first. A client that connects to a full port replaces an awaited client: of the address with the
most awaited clients, the one awaited longest, if for at least ``PATIENCE_S``. So idle connections keep no
client out. Never reads or writes a socket.
"""
import socket
import time
from collections import Counter
from contextlib import contextmanager

import gevent

from gomq_py.hub.admission import shut_down
from gomq_py.observability.log import logger
from gomq_py.observability.quiet_log import QuietLog

LOG = logger("http")
# A request and its answer take some milliseconds and a round trip.
PATIENCE_S = 2.0
# A body, or the reading of an answer, may take a second longer per this many octets: slower than any line in
# use, faster than a client that drips octets.
LEAST_OCTETS_PER_S = 4096


class Client:
    """A connection of a management port. ``late``: the client took too long; further octets are ignored."""

    __slots__ = ("host", "connection", "awaited_since", "until", "writing", "late")

    def __init__(self, host, connection):
        """``host`` is empty for unix sockets."""
        self.host = host
        self.connection = connection
        self.awaited_since = None
        self.until = 0.0
        self.writing = self.late = False


class Clients:
    """The clients connected to one management port.

    ``settings`` has http_max_connections and http_max_connections_per_address, read at every arrival.
    """

    def __init__(self, settings, room_again, clock=time.monotonic):
        """``room_again()`` is called when has_room() may have a new answer: a client has left, or has kept
        the server waiting for PATIENCE_S.
        """
        self._settings = settings
        self._room_again = room_again
        self._clock = clock
        self._log = QuietLog(LOG)
        self._clients = {}
        self._hosts = Counter()
        self._until_late = _Alarm(self._end_the_late)
        self._until_look = _Alarm(room_again)

    @property
    def count(self):
        """The number of connected clients."""
        return len(self._clients)

    def has_room(self):
        """True if another client may connect. Otherwise makes room as _end_the_slowest() does;
        ``room_again()`` is called when there may be room.
        """
        if len(self._clients) < self._settings.http_max_connections:
            return True
        self._end_the_slowest()
        return False

    def enter(self, connection, host):
        """Return the Client of an accepted socket; None, after a log line, if the caller must close it."""
        limit = self._settings.http_max_connections_per_address
        if host and limit and self._hosts[host] >= limit:
            self._log.warning(
                ("address", host),
                "connection from %s refused: it has %d already ([mgmt] max_connections_per_address)", host,
                limit,
            )
            return None
        client = Client(host, connection)
        self._clients[client] = None
        self._hosts[host] += 1
        return client

    def leave(self, client):
        """Forget a client whose socket is closed."""
        del self._clients[client]
        self._hosts[client.host] -= 1
        if not self._hosts[client.host]:
            del self._hosts[client.host]
        self._room_again()

    def close(self):
        """Stop both timers, so that no client is closed any more."""
        self._until_late.stop()
        self._until_look.stop()

    # time limits

    def allow(self, client, seconds):
        """Let the client keep the server waiting for ``seconds`` from now."""
        client.until = self._clock() + seconds

    def took(self, client, octets):
        """Give the client more time, because it has sent or received ``octets`` octets."""
        client.until += octets / LEAST_OCTETS_PER_S

    @contextmanager
    def waiting(self, client, writing=False):
        """Context manager for a wait until the client sends or, if ``writing``, reads. Shuts down its socket
        when the time of allow() is over.
        """
        client.awaited_since, client.writing = self._clock(), writing
        self._until_late.start(client.until - self._clock())
        try:
            yield
        finally:
            client.awaited_since = None

    def _end_the_late(self):
        now = self._clock()
        awaited = [client for client in self._clients if client.awaited_since is not None and not client.late]
        for client in awaited:
            if client.until <= now:
                self._log.info(
                    ("late", client.host), "connection from %s closed: it took too long",
                    client.host or "this machine",
                )
                _end(client, told=not client.writing)
        if left := [client.until for client in awaited if not client.late]:
            self._until_late.start(min(left) - now)

    def _end_the_slowest(self):
        """Close the client awaited longest, of the address with the most awaited clients. If it has been
        awaited for less than PATIENCE_S, close none, and call ``room_again`` later.
        """
        awaited = [client for client in self._clients if client.awaited_since is not None and not client.late]
        ranks = Counter(client.host for client in awaited)
        oldest = min(awaited, key=lambda client: (-ranks[client.host], client.awaited_since), default=None)
        kept_waiting_s = 0.0 if oldest is None else self._clock() - oldest.awaited_since
        if kept_waiting_s < PATIENCE_S:
            self._until_look.start(PATIENCE_S - kept_waiting_s)
            return
        self._log.warning(
            ("full", oldest.host),
            "%d connections ([mgmt] max_connections), %d of them from %s wait for the client: the oldest "
            "give way",
            len(self._clients), ranks[oldest.host], oldest.host or "this machine")
        _end(oldest, told=False)


def _end(client, told):
    """Shut down a client's socket; if ``told``, only for reading, so that the client still gets an answer."""
    client.late = True
    fileno = client.connection.fileno()
    if fileno >= 0:
        shut_down(fileno, socket.SHUT_RD if told else socket.SHUT_RDWR)


class _Alarm:
    """A timer that calls back once, at the earliest time given to start()."""

    def __init__(self, callback):
        self._callback = callback
        self._timer = None
        self._at = 0.0

    def start(self, seconds):
        """Call back in ``seconds``, unless it will call back earlier."""
        loop = gevent.get_hub().loop
        at = loop.now() + seconds
        if self._timer is not None:
            if self._at <= at:
                return
            self.stop()
        self._at = at
        # Not the hub's: each wait of a request asks for this one, and an app in a test has no hub.
        self._timer = loop.timer(max(0.0, seconds))
        self._timer.start(self._ring, update=True)

    def stop(self):
        """Stop the timer: the callback is not called until another start()."""
        if self._timer is not None:
            self._timer.stop()
            self._timer.close()
            self._timer = None

    def _ring(self):
        self.stop()
        self._callback()
