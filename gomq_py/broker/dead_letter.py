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
from gomq_py.broker.header_edit import PropertyEdit
from gomq_py.broker.routing import with_properties
from gomq_py.observability.log import logger
from gomq_py.storage.errors import StoreError
from gomq_py.storage.message import KIND_AMQP, Message

LOG = logger("queue")

# Letters before others get their turn: some 5 ms.
SLICE = 200

REJECTED = "rejected"


class DeadLetters:
    """The dead letters of one broker. ``vhosts`` is its dictionary of them. ``counts``: {(type of the queue, reason): how many went out}."""

    def __init__(self, vhosts, committer, scheduler):
        self._vhosts = vhosts
        self._committer = committer
        self._scheduler = scheduler
        self.counts = Counter()
        self._letters = deque()
        self._moved = []  # (queue, location) of this slice, to be dropped from their queues after the next sync
        self._running = False

    def send(self, queue, location, reason):
        """An unacked message of ``queue`` is dead: it leaves the queue when its copies are safe."""
        self._add((queue, location, None, reason))

    def send_refused(self, queue, message, reason):
        """A message that ``queue`` has not stored is dead. It is copied."""
        copy = Message()
        copy.assign(
            message.get_exchange(), message.get_routing_key(), message.get_properties(), message.get_body(), self._scheduler.now_ms,
            priority=message.describe()["priority"], persistent=message.describe()["persistent"],
        )
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
        fields = message.describe()
        if exchange is None or fields["kind"] != KIND_AMQP:
            return
        letter = Letter(message, queue.name, reason, settings.dead_letter_routing_key, self._scheduler.now_ms)
        destinations = vhost.route_by_key(exchange, letter.keys[0], letter.keys[1:])
        if destinations is None:
            headers = with_properties(letter.headers, Properties.decode(letter.properties))
            destinations = vhost.route(exchange, letter.keys[0], headers, letter.keys[1:])
        copy = Message()
        copy.assign(
            _octets(exchange.name), _octets(letter.keys[0]), letter.properties, message.get_body(), self._scheduler.now_ms,
            priority=fields["priority"], persistent=fields["persistent"],
        )
        exchange.state.publish_in += 1
        self.counts[queue_type_of(queue.arguments), reason] += 1
        for destination in destinations:
            if not letter.has_come_round(destination.name):
                exchange.state.publish_out += 1
                destination.publish(copy)


class Letter:
    """What becomes of a message that died in ``queue``: its new ``properties`` and the ``keys`` it is routed by.

    RabbitMQ's headers: x-death (a table per queue and reason, the latest first, counted), x-first-death-* and x-last-death-*.
    """

    __slots__ = ("properties", "keys", "_edit", "_deaths", "_reason")

    def __init__(self, message, queue, reason, routing_key, now_ms):
        edit = self._edit = PropertyEdit(message.get_properties())
        exchange = message.get_exchange().decode("utf-8", "surrogateescape")
        original_keys = [message.get_routing_key().decode("utf-8", "surrogateescape"), *texts_of(edit.headers, "CC")]
        self._reason = reason
        self._deaths = self._updated(queue, reason, exchange, original_keys, now_ms)
        headers = edit.headers
        if routing_key is not None:
            headers = remove_key(headers, "CC")
        self.keys = original_keys if routing_key is None else [routing_key]
        if get_key(headers, "x-first-death-reason") is None:
            for name, value in (("reason", reason), ("queue", queue), ("exchange", exchange)):
                headers = set_key(headers, f"x-first-death-{name}", value)
        for name, value in (("reason", reason), ("queue", queue), ("exchange", exchange)):
            headers = set_key(headers, f"x-last-death-{name}", value)
        edit.headers = set_key(headers, "x-death", self._deaths)
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

    def _updated(self, queue, reason, exchange, keys, now_ms):
        """The x-death entries with this death in front."""
        deaths = get_key(self._edit.headers, "x-death")
        deaths = [death for death in deaths if isinstance(death, dict)] if isinstance(deaths, list) else []
        for death in deaths:
            if death.get("queue") == queue and death.get("reason") == reason:
                count = death.get("count")
                death["count"] = count + 1 if isinstance(count, int) else 1
                return [death, *(other for other in deaths if other is not death)]
        death = {
            "count": 1, "reason": reason, "queue": queue, "time": datetime.fromtimestamp(now_ms // 1000, timezone.utc), "exchange": exchange,
            "routing-keys": keys,
        }
        if self._edit.expiration is not None:
            death["original-expiration"] = self._edit.expiration
        return [death, *deaths]


def texts_of(headers, key):
    """The texts in an array of a raw table."""
    values = get_key(headers, key)
    return [value for value in values if isinstance(value, str)] if isinstance(values, list) else []


def _octets(text):
    return text.encode("utf-8", "surrogateescape")
