"""Clients: lists every connection that has logged in, of all protocols.

Each protocol's server registers a connection after its login and removes it at its end. The management API,
metrics, limits and the broker's stop use this list, not the servers. Counts by protocol, user and vhost make
the cost of a login independent of the number of connections.

A connection has ``door`` (the name of its protocol), ``user``, ``vhost`` and ``name``. Alarms call
``block(reason)`` and ``unblock()``. Three methods end a connection: ``force_close(reason)`` informs its
client, and lets it close the connection; ``abort(why)`` closes at once; ``cut_off()`` is for the close of the
event loop. This module never reads or writes a socket.
"""
import time
from collections import Counter

from gevent.event import Event

from gomq_py.hub.endings import EndingsLately
from gomq_py.hub.scheduler import Job, SliceClock
from gomq_py.hub.shutdown import Shutdown
from gomq_py.observability.counters import Counters, counted

# RabbitMQ's words to clients when the broker stops.
SHUTDOWN = "broker forced connection closure with reason 'shutdown'"
# Time for clients to agree to the end of their connection when the broker stops. An idle client that reads
# later finds the broker's words in its socket.
STOP_TIMEOUT_S = 1


class Churn(Counters):
    """Counts since the start: connections and channels created and closed, successful and failed logins."""

    _fields_ = counted(
        "connection_created", "connection_closed", "channel_created", "channel_closed", "logins_succeeded",
        "logins_failed")


class Clients:
    """Lists the logged-in connections of one broker, oldest first. ``len()`` counts them.
    ``refusing_logins``: if True, every password counts as wrong. ``is_closing``: if True, every login fails.
    """

    def __init__(self, scheduler):
        self.churn = Churn()
        self.ended = EndingsLately()
        self.refusing_logins = False
        self.is_closing = False
        self._all = {}  # connections as keys, as in each group
        self._by_user = {}  # identity: those of this user; never empty
        self._by_vhost = {}
        self._doors = Counter()
        self._empty = Event()
        self._blocked_reason = None
        self._alarm_news = AlarmNews(scheduler)

    def __len__(self):
        return len(self._all)

    def __iter__(self):
        return iter(self._all)

    def __contains__(self, connection):
        return connection in self._all

    def all(self):
        return list(self._all)

    def of_user(self, identity):
        """Return a list of the connections of the user with this identity (auth.users.User). A user that was
        deleted and created again has the same identity.
        """
        return list(self._by_user.get(identity, ()))

    def in_vhost(self, vhost):
        return list(self._by_vhost.get(vhost, ()))

    def count_of_door(self, name):
        """Number of connections that use the protocol of this name."""
        return self._doors[name]

    def count_of_user(self, identity):
        return len(self._by_user.get(identity, ()))

    def count_in_vhost(self, vhost):
        return len(self._by_vhost.get(vhost, ()))

    def register(self, connection):
        """Add a connection after its login. Calls ``connection.block()`` if an alarm blocks publishers."""
        self._all[connection] = None
        self._doors[connection.door] += 1
        self._by_user.setdefault(connection.user.identity, {})[connection] = None
        self._by_vhost.setdefault(connection.vhost, {})[connection] = None
        self.churn.connection_created += 1
        if self._blocked_reason is not None:
            connection.block(self._blocked_reason)

    def forget(self, connection):
        """Remove a connection that has ended. A second call does nothing."""
        if connection not in self._all:
            return
        del self._all[connection]
        self._doors[connection.door] -= 1
        _leave(self._by_user, connection.user.identity, connection)
        _leave(self._by_vhost, connection.vhost, connection)
        self.churn.connection_closed += 1
        if not self._all:
            self._empty.set()

    def alarmed(self, reason):
        """Inform all connections, in slices, that an alarm blocks publishers because of ``reason``. None: the
        alarm has ended.
        """
        self._blocked_reason = reason
        self._alarm_news.begin(self.all(), reason)

    def close(self, reason):
        """Disconnect clients, refuse logins; after STOP_TIMEOUT_S, abort the rest. May switch greenlets."""
        self.is_closing = True
        shutdown = Shutdown()
        for connection in self.all():
            shutdown.do(connection.force_close, reason)
        if self._all:
            self._empty.clear()
            shutdown.do(self._empty.wait, STOP_TIMEOUT_S)
        for connection in self.all():
            shutdown.do(connection.abort, "the client did not agree to the end before the broker stopped")
        shutdown.raise_failure()


class AlarmNews(Job):
    """Informs connections, in slices, that an alarm blocks publishers or is over."""

    name = "telling connections of an alarm"

    # Telling thousands at once would hold up all other work.
    def __init__(self, scheduler):
        super().__init__()
        self._scheduler = scheduler
        self._untold = []
        self._reason = None

    def begin(self, connections, reason):
        """Begin to inform these connections of an alarm, or of its end if ``reason`` is None. Cancels an
        earlier round.
        """
        self._untold, self._reason = connections, reason
        if self.step():
            self._scheduler.start(self)

    def step(self):
        clock = SliceClock(clock=time.thread_time)
        while self._untold:
            connection = self._untold.pop()
            if self._reason is None:
                connection.unblock()
            else:
                connection.block(self._reason)
            if clock.is_over():
                break
        return bool(self._untold)

    def failed(self, error):
        """Continue with the remaining connections after an error with one of them."""
        return bool(self._untold)


def _leave(groups, key, connection):
    group = groups[key]
    del group[connection]
    if not group:
        del groups[key]
