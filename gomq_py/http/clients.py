"""Limits the clients of one management port: in total, per address, and in how long each may keep the server
waiting.

The server reports when it waits for a client. One timer runs for the client whose time ends first.

A new client on a full port replaces a client that the server waits for. The replaced client is the one waited
for longest, at the address with the most such clients. Clients waited for less than ``PATIENCE_S`` are kept.
This module shuts sockets down; it never reads or writes them.
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
    """A client's connection to a management port. ``late``: it took too long, and later bytes are ignored."""

    __slots__ = ("host", "connection", "awaited_since", "until", "writing", "late")

    def __init__(self, host, connection):
        """``host`` is the client's IP address, "" for unix sockets."""
        self.host = host
        self.connection = connection
        self.awaited_since = None
        self.until = 0.0
        self.writing = self.late = False


class Clients:
    """The clients connected to one management port. The limits http_max_connections and
    http_max_connections_per_address are read from ``settings`` at every arrival.
    """

    def __init__(self, settings, room_again, clock=time.monotonic):
        """``room_again()`` is called when there may be room for another client again."""
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
        return len(self._clients)

    def has_room(self):
        """Return True if another client may connect. Otherwise return False, and try to close a client that
        the server waits for. ``room_again()`` is called once the port may have room.
        """
        if len(self._clients) < self._settings.http_max_connections:
            return True
        self._end_the_slowest()
        return False

    def enter(self, connection, host):
        """Return a new Client for the socket; None if ``host`` has too many: the caller closes the socket."""
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
        del self._clients[client]
        self._hosts[client.host] -= 1
        if not self._hosts[client.host]:
            del self._hosts[client.host]
        self._room_again()

    def close(self):
        """Stop the timers, after which no client is closed for being late."""
        self._until_late.stop()
        self._until_look.stop()

    # time limits

    def allow(self, client, seconds):
        """Let the client keep the server waiting for ``seconds`` from now."""
        client.until = self._clock() + seconds

    def took(self, client, octets):
        """Give the client more time, because it has sent ``octets`` bytes of a body."""
        client.until += octets / LEAST_OCTETS_PER_S

    @contextmanager
    def waiting(self, client, writing=False):
        """Context manager around a wait until the client sends or, if ``writing``, reads. Shuts down the
        client's socket when the time set by ``allow()`` is over.
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
        """Close the client waited for longest, at the address with the most such clients. If the server has
        waited for less than PATIENCE_S, close none and call ``room_again`` later.
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
    """Shut down a client's socket, and mark the client late. If ``told``, it can still read an answer."""
    client.late = True
    fileno = client.connection.fileno()
    if fileno >= 0:
        shut_down(fileno, socket.SHUT_RD if told else socket.SHUT_RDWR)


class _Alarm:
    """A timer that calls back once, at the earliest of the times given to ``start()``."""

    def __init__(self, callback):
        self._callback = callback
        self._timer = None
        self._at = 0.0

    def start(self, seconds):
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
        if self._timer is not None:
            self._timer.stop()
            self._timer.close()
            self._timer = None

    def _ring(self):
        self.stop()
        self._callback()
