"""Dead letters: sends messages that expired, were rejected or exceeded a limit to a dead letter exchange.

QueueLimits passes dead letters here, and vhosts route them. A message stays unacked in its queue until its
copies are *safe* (durable copies: on disk). So a crash leaves it in two queues rather than in none. A job
(transfer.engine) sends dead letters in order of death; a chain of overflowing queues never deepens the stack.
A dead letter that a destination cannot store waits in the queue where it died, and so do later ones of that
queue and reason. One that can never be sent stays in that queue with the fault (broker.queues.set_aside).

The headers of a dead letter (x-death, x-first-death-*, x-last-death-*) and its routing keys are RabbitMQ's.
"""
from array import array
from collections import Counter, deque
from datetime import datetime, timezone

from gomq_py import octets
from gomq_py.broker.envelope import EXTRA_KEYS
from gomq_py.broker.features.dead_lettering import DEATHS
# its .pxd types the destinations of dead letters
from gomq_py.broker.routing import route as _routes  # noqa: F401
from gomq_py.broker.queues import queue as _queue  # noqa: F401  (its .pxd types the queues of dead letters)
from gomq_py.broker.queues.set_aside import described
from gomq_py.broker.routing.routing import with_properties
from gomq_py.broker.transfer import engine as _engine
from gomq_py.broker.transfer.engine import (
    LEFT_TO_SOURCE, NOTHING_TO_DROP, OTHERS_GO_ON, Source, Target, Transfer,
)
from gomq_py.content import forms
from gomq_py.content.fields import Int64, decode_table, get_key, remove_key, set_key, sort_keys
from gomq_py.content.properties import EMPTY_TABLE, Properties, PropertyEdit
from gomq_py.observability.log import logger
from gomq_py.observability.quiet_log import QuietLog
from gomq_py.storage.message import Message

LOG = logger("queue")
QUIET = QuietLog(LOG)

SETTING_ASIDE = "dead-lettering"
REJECTED = "rejected"
_EXTRA_KEYS = EXTRA_KEYS.encode()

# The largest count in x-death; later deaths are not counted.
COUNT_MAX = (1 << 63) - 1


class DeadLetters:
    """Sends the dead letters of one broker. A queue's settings at a message's death decide where
    the message goes. ``vhosts``: {name: VHost}. ``counts``: {(queue type, reason): dead letters sent}.
    """

    __slots__ = ("counts", "_scheduler", "_fresh", "_waiting", "_going", "_trying", "_leaving", "_closed")

    def __init__(self, vhosts, durability, scheduler, timers):
        self.counts = Counter()
        self._scheduler = scheduler
        # deleted queue: function to call when its last dead letter is gone
        self._leaving = {}
        self._closed = False
        exchanges = DeadLetterExchanges(vhosts, scheduler, self.counts)
        self._waiting = WaitingDeadLetters(self)
        self._fresh = FreshDeadLetters(self, self._waiting)
        others = exchanges, scheduler, timers, durability.when_safe
        self._going = Transfer("dead letters", self._fresh, *others)
        self._trying = self._waiting.transfer = Transfer(
            "dead letters that wait for room", self._waiting, *others
        )

    def send(self, queue, location, reason):
        """Dead-letter an unacked message of ``queue``, which drops the message once its copies are safe."""
        queue.dead_letter_count += 1
        self._add(dead_message(queue, queue.limits.settings, reason, location, None, None))

    def send_refused(self, queue, message, reason):
        copy = Message()
        copy.readdress(
            message, message.get_exchange(), message.get_routing_key(), message.get_properties(),
            self._scheduler.now_ms,
        )
        self._add(dead_message(queue, queue.limits.settings, reason, 0, copy, None))

    def let_leave(self, queue, gone):
        """Call ``gone()`` once a deleted queue has no dead letter left to send, or the broker stops."""
        self._leaving[queue] = gone

    def close(self):
        """Stop, because the broker stops. Unsent dead letters stay in durable queues."""
        self._closed = True
        self._going.close()
        self._trying.close()
        self._fresh.clear()
        self._waiting.clear()
        for queue in list(self._leaving):
            self._let_go(queue)

    def _add(self, dead):
        if not self._closed:
            self._fresh.add(dead)
            self._going.start()

    def send_again(self, items):
        """Send these DeadMessages once more, before all others: their copies may not outlive a crash."""
        self._fresh.put_back(items)
        self._going.start()

    def read(self, queue, location, message):
        """Fill ``message`` with an unacked message, even of a deleted queue. Returns False if it is gone."""
        if queue.closed:
            return queue in self._leaving and queue.store.read(location, message)
        return queue.read(location, message)

    def gone(self, dead):
        """Forget a DeadMessage: it was sent or set aside, or is missing."""
        queue = dead.queue
        if dead.copy is None:
            queue.dead_letter_count -= 1
            if queue.dead_letter_count == 0 and self._leaving and queue in self._leaving:
                self._let_go(queue)

    def _let_go(self, queue):
        try:
            self._leaving.pop(queue)()
        except Exception:
            LOG.exception(
                "queue '%s' in vhost '%s' was deleted, but not all of it has gone", queue.name, queue.vhost
            )


class DeadMessage:
    """A message that died in ``queue``, with the queue's ``settings`` at that time. The message is at
    ``location`` in the queue's store, or is ``copy`` if it was never stored. A ``copy`` is sent only once.
    ``pending``: destinations that still lack the message, None before the first attempt.
    """

    __slots__ = ("queue", "settings", "reason", "location", "copy", "pending")

    def __init__(self):
        self.queue = self.settings = self.reason = self.copy = self.pending = None
        self.location = 0


def dead_message(queue, settings, reason, location, copy, pending):
    """Make a DeadMessage, faster than ``DeadMessage(...)``: compiled code passes no tuple of arguments."""
    dead = DeadMessage.__new__(DeadMessage)
    dead.queue = queue
    dead.settings = settings
    dead.reason = reason
    dead.location = location
    dead.copy = copy
    dead.pending = pending
    return dead


class DeadLetterSource(Source):
    """Base class of the two sources of DeadMessages: FreshDeadLetters and WaitingDeadLetters."""

    __slots__ = ("_all",)

    def __init__(self, dead_letters):
        self._all = dead_letters

    def show(self, item, message):
        dead = item
        if dead.copy is not None or self._all.read(dead.queue, dead.location, message):
            return True
        self._all.gone(dead)
        return False

    def drop(self, item):
        dead = item
        dead.queue.drop(dead.location)
        self._all.gone(dead)

    def keep(self, items, error):
        QUIET.error(
            "keep", "%d dead letters stay in their queues: the copies are not on disk: %s", len(items), error
        )
        self._all.send_again(items)

    def fail(self, item, error):
        dead = item
        dead.queue.fail(error)
        self._all.gone(dead)

    def set_aside(self, item, error, was_sent):
        dead = item
        if dead.copy is None:
            dead.queue.set_aside(dead.location, error, SETTING_ASIDE)
        else:
            queue = dead.queue
            QUIET.error(
                queue,
                "a message that queue '%s' in vhost '%s' refused is lost: it cannot be dead-lettered: %s",
                queue.name, queue.vhost, described(error))
        self._all.gone(dead)


class FreshDeadLetters(DeadLetterSource):
    """Source of DeadMessages that were not tried yet, in order of death. Messages put back come first."""

    __slots__ = ("_waiting", "_dead", "_first", "_again")

    def __init__(self, dead_letters, waiting):
        DeadLetterSource.__init__(self, dead_letters)
        self._waiting = waiting
        self._dead = []  # no deque: C calls its methods by name
        self._first = 0  # index of the first that was not taken
        self._again = 0  # count from _first on that were put back

    def add(self, dead):
        self._dead.append(dead)

    def clear(self):
        self._dead.clear()
        self._first = self._again = 0

    def put_back(self, items):
        """Insert DeadMessages to be sent once more, before untried ones."""
        for dead in items:
            dead.pending = None
        at = self._first + self._again
        self._dead[at:at] = items
        self._again += len(items)

    def take(self, message):
        if self._first == len(self._dead):
            return None
        dead = self._dead[self._first]
        self._dead[self._first] = None
        self._first += 1
        if self._again:
            self._again -= 1
        if self._first * 2 > len(self._dead):
            del self._dead[:self._first]
            self._first = 0
        return dead

    def show(self, item, message):
        dead = item
        if dead.copy is None and self._waiting.joins_lane(dead):
            return False
        return DeadLetterSource.show(self, dead, message)

    def no_room(self, item, pending):
        self._waiting.make_wait(item, pending)
        return LEFT_TO_SOURCE

    def broken(self, error):
        return self._first < len(self._dead)


class WaitingDeadLetters(DeadLetterSource):
    """Source of DeadMessages that wait for room, with a Lane (waiting line) for each queue and reason."""

    __slots__ = ("transfer", "_lanes", "_round")

    def __init__(self, dead_letters):
        DeadLetterSource.__init__(self, dead_letters)
        self.transfer = None
        self._lanes = {}  # (queue, its settings, reason): Lane
        self._round = deque()  # keys of the lanes to try in this round

    def make_wait(self, dead, pending):
        """Start a Lane for a message that the destinations ``pending`` cannot store. Later messages of its
        queue and reason join that Lane.
        """
        self._lanes[dead.queue, dead.settings, dead.reason] = Lane(dead, pending)
        names = ", ".join(f"'{destination.name}'" for destination in pending)
        LOG.error(
            "dead letters of queue '%s' in vhost '%s' wait in it: %s cannot store them now", dead.queue.name,
            dead.queue.vhost, names,
        )
        self.transfer.try_again_later()

    def joins_lane(self, dead):
        """Append the message to the Lane of its queue and reason. Returns False if there is no such Lane."""
        if not self._lanes:
            return False
        lane = self._lanes.get((dead.queue, dead.settings, dead.reason))
        if lane is None:
            return False
        lane.locations.append(dead.location)
        return True

    def clear(self):
        self._lanes.clear()
        self._round.clear()

    def try_again(self):
        if not self._round:  # otherwise a round is running, and its end asks for the next
            self._round.extend(self._lanes)

    def take(self, message):
        while self._round:
            lane = self._lanes[self._round[0]]
            dead = lane.take()
            if dead is not None:
                return dead
            del self._lanes[self._round.popleft()]
        return None

    def no_room(self, item, pending):
        lane = self._lanes[self._round.popleft()]
        lane.put_back(pending)
        return OTHERS_GO_ON

    def broken(self, error):
        """Skip the rest of this Lane until the next round. Returns True if another Lane is left to try."""
        if self._round:
            self._round.popleft()
        return bool(self._round)

    def paused(self, unsafe):
        if self._lanes:
            self.transfer.try_again_later()


class Lane:
    """A waiting line: the dead letters of one queue and reason, in order of death."""

    __slots__ = ("_queue", "_settings", "_reason", "locations", "_first", "_pending")

    def __init__(self, dead, pending):
        self._queue = dead.queue
        self._settings = dead.settings
        self._reason = dead.reason
        self.locations = array("Q", (dead.location,))  # typed: there may be as many as messages
        self._first = 0
        self._pending = pending  # destinations that still lack the first message

    def take(self):
        """Remove and return the first DeadMessage; None if the line is empty."""
        if self._first == len(self.locations):
            return None
        pending, self._pending = self._pending, None
        self._first += 1
        return dead_message(
            self._queue, self._settings, self._reason, self.locations[self._first - 1], None, pending
        )

    def put_back(self, pending):
        """Undo the last take(). ``pending``: the destinations that still lack the message."""
        self._first -= 1
        self._pending = pending


class DeadLetterExchanges(Target):
    """Target that publishes copies of DeadMessages to the dead letter exchanges of their queues."""

    __slots__ = ("_vhosts", "_scheduler", "_counts", "_routes", "_route", "_copy", "_room")

    def __init__(self, vhosts, scheduler, counts):
        self._vhosts = vhosts
        self._scheduler = scheduler
        self._counts = counts
        self._routes = {}  # in this slice: {(queue, reason): DeadLetterRoute}
        self._route = None  # the route used last
        self._copy = Message()
        self._room = _engine.CopyRoom()

    def send(self, item, message):
        dead = item
        if dead.copy is None:
            return self._publish(dead, message)
        self._publish(dead, dead.copy)
        return NOTHING_TO_DROP

    def slice_over(self):
        routes, self._routes = self._routes, {}
        self._route = None
        self._copy.let_go()
        self._room.let_go()
        for route in routes.values():
            route.note(self._counts)

    def _publish(self, dead, message):
        """Publish a copy to the message's destinations. Returns those that lack room; None: none does."""
        route = self._route
        if (
            route is None or route.queue is not dead.queue or route.settings is not dead.settings
            or route.reason != dead.reason
        ):
            route = self._route = self._route_of(dead)
        if route.exchange is None:
            return None
        pending = dead.pending
        address = route.address
        if address is None or not address.is_of(message):
            address = route.address = self._address_of(route, message)
        route.count += pending is None
        copy = self._copy
        if not address.copy(message, copy, self._room):
            copy.readdress(message, route.exchange_name, address.key, address.death.properties, 0)
        copy.timestamp_ms = self._scheduler.now_ms
        destinations = address.destinations
        if pending is not None:
            destinations = route.again(pending)
        elif destinations is None:
            destinations = route.by_headers(address.death)
        pending = None
        for destination in destinations:
            route.published += 1
            if not destination.publish(copy) and destination.unable:
                pending = [*(pending or ()), destination]
        return pending

    def _address_of(self, route, message):
        routing, properties = message.get_routing(), message.get_properties()
        address = route.addresses.get((routing, properties))
        if address is None:
            death = Death(
                message, route.queue.name, route.reason, route.settings.dead_letter_routing_key,
                self._scheduler.now_ms, route.first_deaths,
            )
            address = route.addresses[routing, properties] = Address(
                routing, properties, route.exchange_name, death, route.by_keys(death))
        return address

    def _route_of(self, dead):
        route = self._routes.get((dead.queue, dead.reason))
        if route is None or route.settings is not dead.settings:
            if route is not None:
                route.note(self._counts)
            route = self._routes[dead.queue, dead.reason] = DeadLetterRoute(
                dead, self._vhosts.get(dead.queue.vhost)
            )
        return route


class DeadLetterRoute:
    """Finds the destinations for those dead letters of a slice that have one queue and reason. ``addresses``:
    {(routing, properties): Address}, shared by equal dead letters. ``address``: the Address used last.
    ``exchange``: None if the dead letters are dropped. ``first_deaths``: the cache that Death fills.
    """

    __slots__ = (
        "queue", "settings", "reason", "exchange", "exchange_name", "count", "published", "first_deaths",
        "addresses", "address", "_vhost", "_by_keys",
    )

    def __init__(self, dead, vhost):
        self.queue = dead.queue
        settings = self.settings = dead.settings
        self.reason = dead.reason
        self.exchange = (
            None if vhost is None or settings.dead_letter_exchange is None
            else vhost.exchanges.get(settings.dead_letter_exchange)
        )
        self.exchange_name = (
            b"" if self.exchange is None else self.exchange.name.encode("utf-8", "surrogateescape"))
        self.count = self.published = 0
        self.first_deaths = {}
        self.addresses = {}
        self.address = None
        self._vhost = vhost
        self._by_keys = {}  # {routing keys: destinations}, if headers do not matter

    def by_keys(self, death):
        """Return the destinations for a dead letter's routing keys; None if they also depend on headers."""
        keys = tuple(death.keys)
        if keys not in self._by_keys:
            self._by_keys[keys] = self._vhost.route_by_key(self.exchange, keys[0], keys[1:])
        found = self._by_keys[keys]
        return None if found is None else self._without_cycles(found, death, None)

    def by_headers(self, death):
        headers = with_properties(death.headers, Properties.decode(death.properties))
        found = self._vhost.route(self.exchange, death.keys[0], headers, death.keys[1:])
        return self._without_cycles(found, death, headers)

    def _without_cycles(self, found, death, headers):
        """Return ``found`` without queues that the message would reach in a cycle, and without those that
        refuse dead letters. The tees of these queues (streams that get copies) are left out, too.
        """
        left_out = [
            destination for destination in found
            if destination.takes_publishes_only or death.has_come_round(destination.name)
        ]
        if not left_out:
            return found
        return self._vhost.route(
            self.exchange, death.keys[0], headers, death.keys[1:], left_out=left_out)

    def again(self, destinations):
        return self._vhost.again(destinations)

    def note(self, counts):
        """Add the dead letters sent in this slice to ``counts``, and to the exchange's counters."""
        if self.count:
            counts[self.queue.type, self.reason] += self.count
            self.exchange.state.publish_in += self.count
            self.exchange.state.publish_out += self.published
            self.count = self.published = 0


class Death:
    """Computes the ``properties`` and routing ``keys`` of the dead letter of a message."""

    __slots__ = ("properties", "keys", "_edit", "_deaths", "_reason")

    def __init__(self, message, queue, reason, routing_key, now_ms, first_deaths=None):
        """``queue``: name of the queue where the message died. ``routing_key``: the dead letter routing key,
        or None. ``first_deaths``: None, or a dict by which a slice's messages share headers of first deaths.
        """
        edit = self._edit = PropertyEdit(message.get_properties())
        self._reason = reason
        death = (
            queue, reason, message.get_exchange(), message.get_routing_key(), edit.expiration, now_ms // 1000,
            routing_key
        )
        # A match within another key or a value does no harm, but takes longer.
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
        """The dead letter's headers as a dict, for exchanges that route by headers."""
        return decode_table(self._edit.headers)[0]

    def has_come_round(self, queue):
        """True if the message died in this queue since its last rejection, so that it would go in a cycle."""
        if self._reason == REJECTED:
            return False
        for death in self._deaths:
            if death.get("reason") == REJECTED:
                return False
            if death.get("queue") == queue:
                return True
        return False


class Address:
    """Address of all dead letters with equal ``routing`` and ``properties``. ``death``: a Death. ``key``: the
    new routing key in bytes. ``destinations``: None if they depend on each message's headers. ``head``:
    exchange, key and properties of the copies, as stored.
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
        """True if the message has this Address's routing and properties, adjacent in its buffer."""
        # False for messages of another protocol, even if their octets look alike.
        return (
            message.kind == forms.BASIC and message.routing_length == self._routing_before
            and message.routing_length + message.properties_length == self._before_length
            and message.properties_at == message.routing_at + message.routing_length
            and octets.same(message.buffer, message.routing_at, octets.pointer(self._before), 0,
                            self._before_length)
        )

    def copy(self, message, copy, room):
        """Make ``copy`` a dead letter with this message's body. Returns False if ``room`` is too small."""
        length = self.head_length
        if not room.has(length + message.body_length):
            return False
        octets.copy(room.p, 0, octets.pointer(self.head), 0, length)
        room.complete(copy, message, self.routing_length, length)
        return True


def headers_after(headers, queue, reason, exchange, routing_key, expiration, at_s, new_key):
    """Add a death to a message's encoded headers. Returns (new headers, x-death entries, routing keys). The
    headers are sorted by name, as in RabbitMQ. ``new_key``: the dead letter routing key; None: the message
    keeps its keys.
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
    """Return the x-death entries after this death. Its entry, a new one or one counted up, is the first."""
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
    """Merge x-death entries with the same queue and reason into the first of them. If the first has no count,
    the number of merged entries becomes its count, as in RabbitMQ. Drops entries that are not tables.
    """
    first, numbers = {}, Counter()
    for at, death in enumerate(deaths):
        if isinstance(death, dict):
            key = death.get("queue"), death.get("reason")
            if not (isinstance(key[0], str) and isinstance(key[1], str)):
                key = at, None  # no broker writes such an entry
            first.setdefault(key, death)
            numbers[key] += 1
    for key, number in numbers.items():
        if number > 1:
            first[key].setdefault("count", Int64(number))
    return list(first.values())


def _sorted(death):
    return dict(sorted(death.items()))


def concatenated(headers, more):
    """Append the entries of the encoded table ``more`` to the encoded table ``headers``."""
    return (len(headers) + len(more) - 8).to_bytes(4, "big") + headers[4:] + more[4:]


def texts_of(headers, key):
    """List the texts in the array under ``key`` of an encoded table; empty if there is no such array."""
    values = get_key(headers, key)
    return [value for value in values if isinstance(value, str)] if isinstance(values, list) else []
