"""Records a broker's changes, for clients that follow changes instead of reloading lists.

Subscribes to the broker's events at the first request. Keeps the last changes and numbers them consecutively.
The first number is the Unix time in microseconds, so all numbers of an earlier run are smaller.
"""
import time
from collections import deque
from itertools import islice
from typing import NamedTuple

from gomq_py.http.followers import Waker

# Changes kept, some 400 octets each; a viewer that asks for older ones is told to reload.
KEPT = 10_000


class Change(NamedTuple):
    """One change of an entity, such as a queue. ``what`` is the event, such as ``queue.created``; ``facts``
    are shown to clients. ``vhost`` and ``user`` (a User's ``identity``) are the entity's, or None; from them
    and a viewer's tags follows whether the viewer may see the change.
    """

    what: str
    at_ms: int
    vhost: str | None
    user: tuple[str, bool] | None
    facts: dict


class Feed:
    """Records and numbers the changes that one broker's Events report."""

    def __init__(self, events, kept=KEPT, unix_s=time.time):
        self._events = events
        self._unix_s = unix_s
        self._changes = deque(maxlen=kept)
        self.source = Waker()
        self._last = None

    @property
    def last(self):
        """The number of the last change. The first access starts the recording."""
        if self._last is None:
            self._last = int(self._unix_s() * 1e6)
            self._events.subscribe(self._heard)
        return self._last

    def since(self, number):
        """Return [(number, Change)] after ``number``; None if some are gone or ``number`` is yet to come."""
        missed = self.last - number
        if not 0 <= missed <= len(self._changes):
            return None
        return list(enumerate(islice(self._changes, len(self._changes) - missed, None), number + 1))

    def close(self):
        self._events.unsubscribe(self._heard)
        self._changes.clear()

    def _heard(self, key, subjects):
        told = _TOLD.get(key.partition(".")[0])
        if told is not None and key not in LEFT_OUT:
            # The first subject is the changed thing; a door may add more, such as its protocol.
            self._changes.append(Change(key, int(self._unix_s() * 1000), *told(subjects[0])))
            self._last += 1
            self.source.wake()


# Events that change nothing.
LEFT_OUT = frozenset(("user.authentication.success", "user.authentication.failure"))


# each returns (vhost, user, facts) of an event's first subject

def _named(one):
    return one.vhost, None, {"name": one.name}


def _binding(one):
    return one.source.vhost, None, {
        "source": one.source.name, "destination": one.destination.name,
        "destination_type": one.destination_type,
        "routing_key": one.routing_key}


def _connection(one):
    return one.vhost.name, one.user.identity, {"name": one.name}


def _channel(one):
    connection = one.connection
    return connection.vhost.name, connection.user.identity, {"name": f"{connection.name} ({one.id})"}


def _consumer(one):
    return one.source.vhost, one.channel.connection.user.identity, {
        "name": one.tag, "queue": one.source.name}


def _vhost(one):
    return one.name, None, {"name": one.name}


def _parameter(headers):
    return headers.get("vhost"), None, {key: headers[key] for key in ("name", "component") if key in headers}


def _user(headers):
    name = headers.get("user", headers.get("name"))
    return headers.get("vhost"), (name, False), {"name": name}


def _topic_permission(headers):
    name = headers["user"]
    return headers["vhost"], (name, False), {"name": name, "exchange": headers["exchange"]}


def _alarm(reason):
    return None, None, {"reason": reason or ""}


def _of_vhost(one):
    return _parameter(one) if isinstance(one, dict) else _vhost(one)


_TOLD = {
    "queue": _named, "exchange": _named, "binding": _binding, "connection": _connection, "channel": _channel,
    "consumer": _consumer, "vhost": _of_vhost, "policy": _parameter, "parameter": _parameter, "user": _user,
    "permission": _user, "topic": _topic_permission, "alarm": _alarm,
}
