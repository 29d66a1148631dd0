"""Feed: what changed since a number, for viewers who keep up with a broker instead of loading its lists again
and again.

Beside rates: hears the broker's events, from the first question for changes on. A ring of the last ones, each
of which has a number that follows the one before. Numbers begin with the time in microseconds, so that those
of another run of the broker are below all of this one's.
"""
import time
from collections import deque
from itertools import islice

from gomq_py.http.live import Source

# Changes that are kept, some 400 octets each; whoever asks for older ones is told to load anew.
KEPT = 10_000


class Change:
    """Something that happened.

    ``vhost`` and ``user`` (a User's identity) are whose it is, or None; ``facts`` is what is shown besides.
    """

    __slots__ = ("what", "at_ms", "vhost", "user", "facts")

    def __init__(self, what, at_ms, vhost, user, facts):
        self.what = what
        self.at_ms = at_ms
        self.vhost = vhost
        self.user = user
        self.facts = facts


class Feed:
    """The changes of one broker, which its Events tell. ``unix_s`` is given by tests."""

    def __init__(self, events, kept=KEPT, unix_s=time.time):
        self._events = events
        self._unix_s = unix_s
        self._changes = deque(maxlen=kept)
        self.source = Source()
        self._last = None

    @property
    def last(self):
        """The number of the last change. It is from the first look at it on that changes are kept."""
        if self._last is None:
            self._last = int(self._unix_s() * 1e6)
            self._events.subscribe(self._heard)
        return self._last

    def since(self, number):
        """[(number, Change)] of what came after that number; None where that is too old to say."""
        missed = self.last - number
        if not 0 <= missed <= len(self._changes):
            return None
        return list(enumerate(islice(self._changes, len(self._changes) - missed, None), number + 1))

    def close(self):
        """Hear no more."""
        self._events.unsubscribe(self._heard)
        self._changes.clear()

    def _heard(self, key, subjects):
        told = _TOLD.get(key.partition(".")[0])
        if told is not None and key not in LEFT_OUT:
            # The first subject is what it happened to; a door may tell more, such as its protocol.
            self._changes.append(Change(key, int(self._unix_s() * 1000), *told(subjects[0])))
            self._last += 1
            self.source.wake()


# Nothing changes by these.
LEFT_OUT = frozenset(("user.authentication.success", "user.authentication.failure"))


# (vhost, user, facts) of the first subject of an event

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
    """Of a vhost itself, or of its limits."""
    return _parameter(one) if isinstance(one, dict) else _vhost(one)


_TOLD = {
    "queue": _named, "exchange": _named, "binding": _binding, "connection": _connection, "channel": _channel,
    "consumer": _consumer, "vhost": _of_vhost, "policy": _parameter, "parameter": _parameter, "user": _user,
    "permission": _user, "topic": _topic_permission, "alarm": _alarm,
}
