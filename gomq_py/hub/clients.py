"""Clients: every connection that has logged in, whichever door it came through.

Doors register a connection when its login is done and forget it when it has ended; the management API,
metrics, limits and the broker's stop ask here, and never a door. Counts are kept by door, user and vhost, so
that a login costs the same whether there are ten connections or a hundred thousand.

A connection has ``door`` (the name of its protocol), ``user``, ``vhost`` and ``name``; it is told of alarms
by ``block(reason)`` and ``unblock()``, and ends by ``force_close(reason)`` (its client is told, and waited
for) or ``abort(why)`` (without a word). ``cut_off()`` is the end of the hub. Never reads, never writes.
"""
import time
from collections import Counter

from gevent.event import Event

from gomq_py.hub.endings import EndingsLately
from gomq_py.hub.job import Job, SliceClock
from gomq_py.hub.shutdown import Shutdown
from gomq_py.observability.counters import Counters, counted

# RabbitMQ's words to clients when the broker stops.
SHUTDOWN = "broker forced connection closure with reason 'shutdown'"
# What clients have to agree to the end of their connection when the broker stops. An idle one that reads
# later finds it in its socket all the same.
STOP_TIMEOUT_S = 1


class Churn(Counters):
    """How many of each came and went since the start, and how logins ended; read by the management door."""

    _fields_ = counted(
        "connection_created", "connection_closed", "channel_created", "channel_closed", "logins_succeeded",
        "logins_failed")


class Clients:
    """The connections of one broker, in the order of their coming: a collection with a length.

    ``refusing_logins`` treats every password as wrong; ``is_closing``: nobody comes in any more.
    """

    def __init__(self, scheduler):
        self.churn = Churn()
        self.ended = EndingsLately()
        self.refusing_logins = False
        self.is_closing = False
        self._all = {}  # as keys, as in each group
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
        """A list of them."""
        return list(self._all)

    def of_user(self, identity):
        """Those of the user of this identity (auth.users.User): one that was deleted and made anew is the
        same to an operator.
        """
        return list(self._by_user.get(identity, ()))

    def in_vhost(self, vhost):
        """Those that opened this vhost."""
        return list(self._by_vhost.get(vhost, ()))

    def count_of_door(self, name):
        """How many came through this door."""
        return self._doors[name]

    def count_of_user(self, identity):
        """How many ``of_user`` would list."""
        return len(self._by_user.get(identity, ()))

    def count_in_vhost(self, vhost):
        """How many ``in_vhost`` would list."""
        return len(self._by_vhost.get(vhost, ()))

    def register(self, connection):
        """Its login is complete: it counts, and hears of an alarm that is on."""
        self._all[connection] = None
        self._doors[connection.door] += 1
        self._by_user.setdefault(connection.user.identity, {})[connection] = None
        self._by_vhost.setdefault(connection.vhost, {})[connection] = None
        self.churn.connection_created += 1
        if self._blocked_reason is not None:
            connection.block(self._blocked_reason)

    def forget(self, connection):
        """It has ended. A second call does nothing."""
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
        """An alarm is on, and publishers are to be held; None: it is over. Everybody is told, in slices."""
        self._blocked_reason = reason
        self._alarm_news.begin(self.all(), reason)

    def close(self, reason):
        """Take leave of all of them, waiting a bounded time for them to agree. May switch.

        A login that is under way comes to nothing.
        """
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
    """Tells connections that publishers are held or not any more, in slices: thousands told at once would
    hold everybody up.
    """

    name = "telling connections of an alarm"

    def __init__(self, scheduler):
        super().__init__()
        self._scheduler = scheduler
        self._untold = []
        self._reason = None

    def begin(self, connections, reason):
        """Tell these, in place of those left of an earlier round. ``reason``: None when the alarm is over."""
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
        """One connection could not be told; tell the others."""
        return bool(self._untold)


def _leave(groups, key, connection):
    """Take it out of its group; of one that is empty nothing is kept."""
    group = groups[key]
    del group[connection]
    if not group:
        del groups[key]
