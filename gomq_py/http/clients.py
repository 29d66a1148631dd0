"""Who is connected to one management port: how many there may be, in all and from one address, and how long
each may keep us waiting.

Between the server, which says when it waits for a client and when it works for one, and the loop's clock: one
timer, set for whoever is late first. When the port is full and somebody is at the door, the client that has
kept us waiting longest, among those of the address with the most, gives way once it has had ``PATIENCE_S``:
so that clients who hold connections open, on purpose or not, keep nobody out. Never reads and never writes.
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
# A body, or the reading of an answer, may take a second longer for so many octets: slower than any line in
# use, faster than an octet now and then.
LEAST_OCTETS_PER_S = 4096


class Client:
    """One connection. ``late``: it has been given up, and what it sends counts no more."""

    __slots__ = ("host", "connection", "awaited_since", "until", "writing", "late")

    def __init__(self, host, connection):
        """``host`` is empty for this machine's sockets."""
        self.host = host
        self.connection = connection
        self.awaited_since = None
        self.until = 0.0
        self.writing = self.late = False


class Clients:
    """The clients of one port.

    ``settings`` has http_max_connections and http_max_connections_per_address, read at every arrival.
    """

    def __init__(self, settings, room_again, clock=time.monotonic):
        """``room_again()`` is called when somebody has left, or when it is worth another look at a full port.
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
        """How many there are."""
        return len(self._clients)

    def has_room(self):
        """True if another client may connect.

        Otherwise ends the client that has kept us waiting longest, if that was long enough, and
        ``room_again`` is called when it is worth asking anew.
        """
        if len(self._clients) < self._settings.http_max_connections:
            return True
        self._end_the_slowest()
        return False

    def enter(self, connection, host):
        """The Client of an accepted socket; None: it must be closed, and the log says why."""
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
        """Its socket is closed."""
        del self._clients[client]
        self._hosts[client.host] -= 1
        if not self._hosts[client.host]:
            del self._hosts[client.host]
        self._room_again()

    def close(self):
        """Watch nobody any more."""
        self._until_late.stop()
        self._until_look.stop()

    # how long they may take

    def allow(self, client, seconds):
        """From now on it may keep us waiting for so long."""
        client.until = self._clock() + seconds

    def took(self, client, octets):
        """It has sent or taken so many, and may keep us waiting a little longer."""
        client.until += octets / LEAST_OCTETS_PER_S

    @contextmanager
    def waiting(self, client, writing=False):
        """Inside, we wait for the client to send, or (``writing``) to take what it was sent.

        When it is late its socket ends.
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
        """End whoever has kept us waiting longest among those of the address with the most; where that is not
        long enough, look again when it is.
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
    """What waits for it ends. ``told``: it may still be sent an answer."""
    client.late = True
    fileno = client.connection.fileno()
    if fileno >= 0:
        shut_down(fileno, socket.SHUT_RD if told else socket.SHUT_RDWR)


class _Alarm:
    """One timer of this thread's hub: calls once, at the earliest of the times it was started for."""

    def __init__(self, callback):
        self._callback = callback
        self._timer = None
        self._at = 0.0

    def start(self, seconds):
        """Call in ``seconds``, if not before."""
        loop = gevent.get_hub().loop
        at = loop.now() + seconds
        if self._timer is not None:
            if self._at <= at:
                return
            self.stop()
        self._at = at
        self._timer = loop.timer(max(0.0, seconds))
        self._timer.start(self._ring, update=True)

    def stop(self):
        """Do not call."""
        if self._timer is not None:
            self._timer.stop()
            self._timer.close()
            self._timer = None

    def _ring(self):
        self.stop()
        self._callback()
