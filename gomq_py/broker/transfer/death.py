"""Death: the headers that dead-lettering writes, as RabbitMQ does (x-death, x-first-death-*, x-last-death-*),
and the new routing keys. Values only; dead_letters routes by them.
"""
from collections import Counter
from datetime import datetime, timezone

from gomq_py import octets
from gomq_py.broker.envelope import EXTRA_KEYS
from gomq_py.broker.features.dead_lettering import DEATHS
from gomq_py.broker.header_edit import EMPTY_TABLE, PropertyEdit
from gomq_py.broker.transfer import engine as _engine  # noqa: F401  (its .pxd types where copies are made)
from gomq_py.content import forms
from gomq_py.content.fields import Int64, decode_table, get_key, remove_key, set_key, sort_keys

REJECTED = "rejected"
_EXTRA_KEYS = EXTRA_KEYS.encode()

# The largest count in x-death; later deaths are not counted.
COUNT_MAX = (1 << 63) - 1


class Death:
    """New ``properties`` and routing ``keys`` of a message that died in ``queue``. x-death has a table with a
    count for each queue and reason, the latest first.
    """

    __slots__ = ("properties", "keys", "_edit", "_deaths", "_reason")

    def __init__(self, message, queue, reason, routing_key, now_ms, first_deaths=None):
        """``first_deaths``: a cache for one slice, because messages that die alike for the first time get the
        same headers.
        """
        edit = self._edit = PropertyEdit(message.get_properties())
        self._reason = reason
        death = (
            queue, reason, message.get_exchange(), message.get_routing_key(), edit.expiration, now_ms // 1000,
            routing_key
        )
        # A match within another key or a value does no harm: it only takes longer.
        if first_deaths is None or b"-death" in edit.headers or _EXTRA_KEYS in edit.headers:
            edit.headers, self._deaths, self.keys = headers_after(edit.headers, *death)
        else:
            known = first_deaths.get(death)
            if known is None:
                known = first_deaths[death] = headers_after(EMPTY_TABLE, *death)
            headers, self._deaths, self.keys = known
            edit.headers = (
                headers if edit.headers == EMPTY_TABLE else sort_keys(concatenated(edit.headers, headers))
            )
        edit.expiration = None
        self.properties = edit.octets()

    @property
    def headers(self):
        """The new headers, decoded, for exchanges that look at them."""
        return decode_table(self._edit.headers)[0]

    def has_come_round(self, queue):
        """Whether the message died in the queue before without a consumer's reject: it would cycle."""
        if self._reason == REJECTED:
            return False
        for death in self._deaths:
            if death.get("reason") == REJECTED:
                return False
            if death.get("queue") == queue:
                return True
        return False


class Address:
    """Shared by messages that died with this ``routing`` and ``properties``: ``death``, ``key`` in octets,
    ``destinations`` (None: found per message), and ``head``: exchange, key and properties as stored in the
    copy.
    """

    __slots__ = (
        "death", "key", "destinations", "head", "head_length", "routing_length", "_before", "_before_length",
        "_routing_before",
    )

    def __init__(self, routing, properties, exchange_name, death, destinations):
        self.death = death
        self.key = death.keys[0].encode("utf-8", "surrogateescape")
        self.destinations = destinations
        self._before = routing + properties
        self._routing_before = len(routing)
        self._before_length = len(self._before)
        routing = b"".join(
            (bytes((len(exchange_name),)), exchange_name, bytes((len(self.key),)), self.key))
        self.head = routing + death.properties
        self.routing_length = len(routing)
        self.head_length = len(self.head)

    def is_of(self, message):
        """Whether a dead message has this routing and these properties, one behind the other in its buffer.
        False for other kinds of content, whose octets may look alike.
        """
        return (
            message.kind == forms.BASIC and message.routing_length == self._routing_before
            and message.routing_length + message.properties_length == self._before_length
            and message.properties_at == message.routing_at + message.routing_length
            and octets.same(message.buffer, message.routing_at, octets.pointer(self._before), 0,
                            self._before_length)
        )

    def copy(self, message, copy, room):
        """Make ``copy`` the dead-lettered message, in a CopyRoom. False if there is no room."""
        length = self.head_length
        if not room.has(length + message.body_length):
            return False
        octets.copy(room.p, 0, octets.pointer(self.head), 0, length)
        room.complete(copy, message, self.routing_length, length)
        return True


def headers_after(headers, queue, reason, exchange, routing_key, expiration, at_s, new_key):
    """(headers with the death, x-death entries, routing keys) for a message with these raw headers. Headers
    are sorted by name, as in RabbitMQ.
    """
    exchange = exchange.decode("utf-8", "surrogateescape")
    keys = [routing_key.decode("utf-8", "surrogateescape"), *texts_of(headers, EXTRA_KEYS)]
    deaths = deaths_after(headers, queue, reason, exchange, keys, expiration, at_s)
    if new_key is not None:
        headers = remove_key(headers, EXTRA_KEYS)
        keys = [new_key]
    if get_key(headers, "x-first-death-reason") is None:
        for name, value in (("reason", reason), ("queue", queue), ("exchange", exchange)):
            headers = set_key(headers, f"x-first-death-{name}", value)
    for name, value in (("reason", reason), ("queue", queue), ("exchange", exchange)):
        headers = set_key(headers, f"x-last-death-{name}", value)
    return sort_keys(set_key(headers, DEATHS, deaths)), deaths, keys


def deaths_after(headers, queue, reason, exchange, keys, expiration, at_s):
    """The x-death entries with this death in front. A repeated death's fields are sorted, as in RabbitMQ."""
    known = get_key(headers, DEATHS)
    deaths = grouped(known) if isinstance(known, list) else []
    for death in deaths:
        if death.get("queue") == queue and death.get("reason") == reason:
            count = death.get("count")
            death["count"] = Int64(min(count, COUNT_MAX - 1) + 1 if isinstance(count, int) else 1)
            return [_sorted(death), *(other for other in deaths if other is not death)]
    death = {
        "count": Int64(1), "reason": reason, "queue": queue,
        "time": datetime.fromtimestamp(at_s, timezone.utc), "exchange": exchange, "routing-keys": keys,
    }
    if expiration is not None:
        death["original-expiration"] = expiration
    return [_sorted(death) if isinstance(known, list) else death, *deaths]


def grouped(deaths):
    """The first entry for each queue and reason; without a count it gets the number of its entries, as in
    RabbitMQ. Entries that are not tables are dropped.
    """
    first, numbers = {}, Counter()
    for at, death in enumerate(deaths):
        if isinstance(death, dict):
            key = death.get("queue"), death.get("reason")
            if not (isinstance(key[0], str) and isinstance(key[1], str)):
                key = at, None  # written by no broker
            first.setdefault(key, death)
            numbers[key] += 1
    for key, number in numbers.items():
        if number > 1:
            first[key].setdefault("count", Int64(number))
    return list(first.values())


def _sorted(death):
    return dict(sorted(death.items()))


def concatenated(headers, more):
    """A raw table with the entries of another one appended."""
    return (len(headers) + len(more) - 8).to_bytes(4, "big") + headers[4:] + more[4:]


def texts_of(headers, key):
    """The texts in an array of a raw table."""
    values = get_key(headers, key)
    return [value for value in values if isinstance(value, str)] if isinstance(values, list) else []
