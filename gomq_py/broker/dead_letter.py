"""Dead letters: messages that expired, were rejected, did not fit or came back too often, on their way to the exchange their queue names for them.

Beside queues, whose limits send them here; above vhosts, which route them. A message stays unacked in its queue until the copies are on disk wherever
they are to be durable, so that a crash leaves it in two places rather than in none. Letters are worked off in slices after the next poll, in order,
one after the other: a chain of overflowing queues makes the list longer, never the stack deeper.
"""
from collections import Counter, deque
from datetime import datetime, timezone

from gomq_py.amqp.wire.fields import decode_table, get_key, remove_key, set_key
from gomq_py.amqp.wire.properties import Properties
from gomq_py.broker.arguments import queue_type_of
from gomq_py.broker.header_edit import EMPTY_TABLE, PropertyEdit
from gomq_py.broker.routing import with_properties
from gomq_py.observability.log import logger
from gomq_py.storage.errors import StoreError
from gomq_py.storage.message import KIND_AMQP, Message

LOG = logger("queue")

# Letters before others get their turn: some 2 ms, 5 where they died before.
SLICE = 200

REJECTED = "rejected"


class DeadLetters:
    """The dead letters of one broker. ``vhosts`` is its dictionary of them. ``counts``: {(type of the queue, reason): how many went out}."""

    __slots__ = ("counts", "_vhosts", "_committer", "_scheduler", "_letters", "_moved", "_first_deaths", "_routes", "_running", "_copy")

    def __init__(self, vhosts, committer, scheduler):
        self._vhosts = vhosts
        self._committer = committer
        self._scheduler = scheduler
        self.counts = Counter()
        self._letters = deque()
        self._moved = []  # (queue, location) of this slice, to be dropped from their queues after the next sync
        self._first_deaths = {}  # of this slice, for Letter
        self._routes = {}  # of this slice: (vhost, exchange, key) -> destinations, where the headers do not matter
        self._copy = Message()
        self._running = False

    def send(self, queue, location, reason):
        """An unacked message of ``queue`` is dead: it leaves the queue when its copies are safe."""
        self._add((queue, location, None, reason))

    def send_refused(self, queue, message, reason):
        """A message that ``queue`` has not stored is dead. It is copied."""
        copy = Message()
        copy.readdress(message, message.get_exchange(), message.get_routing_key(), message.get_properties(), self._scheduler.now_ms)
        self._add((queue, 0, copy, reason))

    def _add(self, letter):
        self._letters.append(letter)
        if not self._running:
            self._running = True
            self._scheduler.run_sliced(self._slice)

    def _slice(self):
        """The scheduler's next slice of letters; False: no more of them."""
        message = Message()
        for _ in range(min(SLICE, len(self._letters))):
            queue, location, copy, reason = self._letters.popleft()
            try:
                if copy is not None:
                    self._publish(queue, copy, reason)
                elif queue.read(location, message):
                    self._publish(queue, message, reason)
                    self._moved.append((queue, location))
            except StoreError as error:
                queue.fail(error)
        self._first_deaths = {}
        self._routes = {}
        self._drop_moved()
        self._running = bool(self._letters)
        return self._running

    def _drop_moved(self):
        moved, self._moved = self._moved, []
        if not moved:
            return

        def synced(error):
            if error is not None:
                LOG.error("%d dead letters stay in their queues: the copies are not on disk: %s", len(moved), error)
                return
            for queue, location in moved:
                queue.drop(location)

        self._committer.after_sync(synced)

    def _publish(self, queue, message, reason):
        """Copy the message to where the queue's dead letters go; nowhere is possible too."""
        vhost = self._vhosts.get(queue.vhost)
        settings = None if queue.limits is None else queue.limits.settings
        exchange = None
        if vhost is not None and settings is not None and settings.dead_letter_exchange is not None:
            exchange = vhost.exchanges.get(settings.dead_letter_exchange)
        if exchange is None or message.describe()["kind"] != KIND_AMQP:
            return
        now_ms = self._scheduler.now_ms
        letter = Letter(message, queue.name, reason, settings.dead_letter_routing_key, now_ms, self._first_deaths)
        copy = self._copy
        copy.readdress(message, _octets(exchange.name), _octets(letter.keys[0]), letter.properties, now_ms)
        exchange.state.publish_in += 1
        self.counts[queue_type_of(queue.arguments), reason] += 1
        for destination in self._destinations(vhost, exchange, letter):
            if not letter.has_come_round(destination.name):
                exchange.state.publish_out += 1
                destination.publish(copy)

    def _destinations(self, vhost, exchange, letter):
        """Where the letter goes. Nothing that routes depend on changes within a slice."""
        where = vhost.name, exchange.name, *letter.keys
        destinations = self._routes.get(where)
        if destinations is None:
            destinations = vhost.route_by_key(exchange, letter.keys[0], letter.keys[1:])
            if destinations is None:
                headers = with_properties(letter.headers, Properties.decode(letter.properties))
                return vhost.route(exchange, letter.keys[0], headers, letter.keys[1:])
            self._routes[where] = destinations
        return destinations


class Letter:
    """What becomes of a message that died in ``queue``: its new ``properties`` and the ``keys`` it is routed by.

    RabbitMQ's headers: x-death (a table per queue and reason, the latest first, counted), x-first-death-* and x-last-death-*.
    """

    __slots__ = ("properties", "keys", "_edit", "_deaths", "_reason")

    def __init__(self, message, queue, reason, routing_key, now_ms, first_deaths=None):
        """``first_deaths``: a dictionary in which the letters of one slice find what is the same for all that die for the first time alike."""
        edit = self._edit = PropertyEdit(message.get_properties())
        self._reason = reason
        death = queue, reason, message.get_exchange(), message.get_routing_key(), edit.expiration, now_ms // 1000, routing_key
        if first_deaths is None or b"-death" in edit.headers or b"CC" in edit.headers:  # in a key; or a value that looks alike, which does no harm
            edit.headers, self._deaths, self.keys = told(edit.headers, *death)
        else:
            known = first_deaths.get(death)
            if known is None:
                known = first_deaths[death] = told(EMPTY_TABLE, *death)
            headers, self._deaths, self.keys = known
            edit.headers = joined(edit.headers, headers)
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


def told(headers, queue, reason, exchange, routing_key, expiration, at_s, new_key):
    """(raw headers that tell of the death, the x-death entries, the keys to route by) of a message with these raw headers."""
    exchange = exchange.decode("utf-8", "surrogateescape")
    keys = [routing_key.decode("utf-8", "surrogateescape"), *texts_of(headers, "CC")]
    deaths = updated(headers, queue, reason, exchange, keys, expiration, at_s)
    if new_key is not None:
        headers = remove_key(headers, "CC")
        keys = [new_key]
    if get_key(headers, "x-first-death-reason") is None:
        for name, value in (("reason", reason), ("queue", queue), ("exchange", exchange)):
            headers = set_key(headers, f"x-first-death-{name}", value)
    for name, value in (("reason", reason), ("queue", queue), ("exchange", exchange)):
        headers = set_key(headers, f"x-last-death-{name}", value)
    return set_key(headers, "x-death", deaths), deaths, keys


def updated(headers, queue, reason, exchange, keys, expiration, at_s):
    """The x-death entries with this death in front."""
    deaths = get_key(headers, "x-death")
    deaths = [death for death in deaths if isinstance(death, dict)] if isinstance(deaths, list) else []
    for death in deaths:
        if death.get("queue") == queue and death.get("reason") == reason:
            count = death.get("count")
            death["count"] = count + 1 if isinstance(count, int) else 1
            return [death, *(other for other in deaths if other is not death)]
    death = {
        "count": 1, "reason": reason, "queue": queue, "time": datetime.fromtimestamp(at_s, timezone.utc), "exchange": exchange, "routing-keys": keys,
    }
    if expiration is not None:
        death["original-expiration"] = expiration
    return [death, *deaths]


def joined(headers, more):
    """A raw table with the entries of another one behind its own."""
    return (len(headers) + len(more) - 8).to_bytes(4, "big") + headers[4:] + more[4:]


def texts_of(headers, key):
    """The texts in an array of a raw table."""
    values = get_key(headers, key)
    return [value for value in values if isinstance(value, str)] if isinstance(values, list) else []


def _octets(text):
    return text.encode("utf-8", "surrogateescape")
