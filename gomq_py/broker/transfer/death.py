"""Death: what dead-lettering writes on a message: RabbitMQ's x-death, x-first-death-* and x-last-death-* headers, and the keys it goes on by.

Values; beside dead_letters, which routes by them.
"""
from collections import Counter
from datetime import datetime, timezone

from gomq_py.broker.envelope import EXTRA_KEYS
from gomq_py.broker.features.dead_lettering import DEATHS
from gomq_py.broker.header_edit import EMPTY_TABLE, PropertyEdit
from gomq_py.content.fields import Int64, decode_table, get_key, remove_key, set_key, sort_keys

REJECTED = "rejected"
_EXTRA_KEYS = EXTRA_KEYS.encode()

# The largest x-death count that its field holds: who was sent more often than that is not counted any further.
COUNT_MAX = (1 << 63) - 1


class Death:
    """What becomes of a message that died in ``queue``: its new ``properties`` and the ``keys`` it is routed by.

    RabbitMQ's headers: x-death (a table per queue and reason, the latest first, counted), x-first-death-* and x-last-death-*.
    """

    __slots__ = ("properties", "keys", "_edit", "_deaths", "_reason")

    def __init__(self, message, queue, reason, routing_key, now_ms, first_deaths=None):
        """``first_deaths``: a dictionary in which the messages of one slice find what is the same for all that die for the first time alike."""
        edit = self._edit = PropertyEdit(message.get_properties())
        self._reason = reason
        death = queue, reason, message.get_exchange(), message.get_routing_key(), edit.expiration, now_ms // 1000, routing_key
        # These octets are part of a key, or of a value, which does no harm: it only takes longer.
        if first_deaths is None or b"-death" in edit.headers or _EXTRA_KEYS in edit.headers:
            edit.headers, self._deaths, self.keys = headers_after(edit.headers, *death)
        else:
            known = first_deaths.get(death)
            if known is None:
                known = first_deaths[death] = headers_after(EMPTY_TABLE, *death)
            headers, self._deaths, self.keys = known
            edit.headers = headers if edit.headers == EMPTY_TABLE else sort_keys(concatenated(edit.headers, headers))
        edit.expiration = None
        self.properties = edit.octets()

    @property
    def headers(self):
        """The new headers, decoded, for exchanges that look at them."""
        return decode_table(self._edit.headers)[0]

    def has_come_round(self, queue):
        """Whether the message died in the target queue before, and no consumer has rejected it since: a cycle that would never end."""
        if self._reason == REJECTED:
            return False
        for death in self._deaths:
            if death.get("reason") == REJECTED:
                return False
            if death.get("queue") == queue:
                return True
        return False


def headers_after(headers, queue, reason, exchange, routing_key, expiration, at_s, new_key):
    """(raw headers that tell of the death, the x-death entries, the keys to route by) of a message with these raw headers.

    RabbitMQ sorts the headers of what died by their names.
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
    """The x-death entries with this death in front, its own keys sorted where it is not the first: RabbitMQ's clients know it so."""
    known = get_key(headers, DEATHS)
    deaths = grouped(known) if isinstance(known, list) else []
    for death in deaths:
        if death.get("queue") == queue and death.get("reason") == reason:
            count = death.get("count")
            death["count"] = Int64(min(count, COUNT_MAX - 1) + 1 if isinstance(count, int) else 1)
            return [_sorted(death), *(other for other in deaths if other is not death)]
    death = {
        "count": Int64(1), "reason": reason, "queue": queue, "time": datetime.fromtimestamp(at_s, timezone.utc), "exchange": exchange,
        "routing-keys": keys,
    }
    if expiration is not None:
        death["original-expiration"] = expiration
    return [_sorted(death) if isinstance(known, list) else death, *deaths]


def grouped(deaths):
    """One entry for each queue and reason, the first; where that has no count it gets their number, as in RabbitMQ.
    What is no table is left out.
    """
    first, numbers = {}, Counter()
    for at, death in enumerate(deaths):
        if isinstance(death, dict):
            key = death.get("queue"), death.get("reason")
            if not (isinstance(key[0], str) and isinstance(key[1], str)):
                key = at, None  # no broker has written it
            first.setdefault(key, death)
            numbers[key] += 1
    for key, number in numbers.items():
        if number > 1:
            first[key].setdefault("count", Int64(number))
    return list(first.values())


def _sorted(death):
    return dict(sorted(death.items()))


def concatenated(headers, more):
    """A raw table with the entries of another one behind its own."""
    return (len(headers) + len(more) - 8).to_bytes(4, "big") + headers[4:] + more[4:]


def texts_of(headers, key):
    """The texts in an array of a raw table."""
    values = get_key(headers, key)
    return [value for value in values if isinstance(value, str)] if isinstance(values, list) else []
