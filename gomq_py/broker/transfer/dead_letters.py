"""Dead letters: messages that expired, were rejected, did not fit or came back too often, on their way to the exchange their queue names for them.

Beside queues, whose limits send them here; above vhosts, which route them. A message stays unacked in its queue until the copies are on disk wherever
they are to be durable, so that a crash leaves it in two places rather than in none. They are worked off in order, one after the other, by the engine
of all transfers: a chain of overflowing queues makes the list longer, never the stack deeper. Where the store of a queue that one goes to cannot take
it (a full disk, a fault), it waits in its own queue, and so do those behind it. One that cannot be dead-lettered at all is set aside
(broker.set_aside), and those behind it go on.
"""
from array import array
from collections import Counter, deque

from gomq_py.broker.routing import destination as _destination  # noqa: F401  (its .pxd types where dead letters go)
from gomq_py.broker.features.arguments import queue_type_of
from gomq_py.broker.queues import queue as _queue  # noqa: F401  (its .pxd types where dead letters come from)
from gomq_py.broker.queues.set_aside import described
from gomq_py.broker.routing.routing import with_properties
from gomq_py.broker.transfer.death import Death
from gomq_py.broker.transfer.engine import LEFT_TO_SOURCE, NOTHING_TO_DROP, OTHERS_GO_ON, Source, Target, Transfer
from gomq_py.content.properties import Properties
from gomq_py.observability.log import logger
from gomq_py.observability.quiet_log import QuietLog
from gomq_py.storage.message import KIND_AMQP, Message

LOG = logger("queue")
QUIET = QuietLog(LOG)

SETTING_ASIDE = "dead-lettering"


class DeadLetters:
    """The dead letters of one broker. ``vhosts`` is its dictionary of them. ``counts``: {(type of the queue, reason): how many went out}.

    A message goes by the settings that its queue had when it died, whatever becomes of policies and of the queue itself meanwhile.
    """

    __slots__ = ("counts", "_scheduler", "_fresh", "_waiting", "_going", "_trying", "_leaving", "_closed")

    def __init__(self, vhosts, durability, scheduler, timers):
        self.counts = Counter()
        self._scheduler = scheduler
        self._leaving = {}  # queues that are deleted, and what to call when the last dead letter of each has gone
        self._closed = False
        exchanges = DeadLetterExchanges(vhosts, scheduler, self.counts)
        self._waiting = WaitingDeadLetters(self)
        self._fresh = FreshDeadLetters(self, self._waiting)
        others = exchanges, scheduler, timers, durability.when_safe
        self._going = Transfer("dead letters", self._fresh, *others)
        self._trying = self._waiting.transfer = Transfer("dead letters that wait for room", self._waiting, *others)

    def send(self, queue, location, reason):
        """An unacked message of ``queue`` is dead: it leaves the queue when its copies are safe."""
        queue.dead_letter_count += 1
        self._add(DeadMessage(queue, queue.limits.settings, reason, location, None, None))

    def send_refused(self, queue, message, reason):
        """A message that ``queue`` has not stored is dead. It is copied."""
        copy = Message()
        copy.readdress(message, message.get_exchange(), message.get_routing_key(), message.get_properties(), self._scheduler.now_ms)
        self._add(DeadMessage(queue, queue.limits.settings, reason, 0, copy, None))

    def let_leave(self, queue, gone):
        """The queue is deleted (Queue.retire), and dead letters of it are on their way: call ``gone()`` when the last of them is copied."""
        self._leaving[queue] = gone

    def close(self):
        """The broker stops: what has not gone out, and what is to come, stays in its queue, if that is to stay."""
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

    def read(self, queue, location, message):
        """Show an unacked message, also where its queue takes part in nothing else any more."""
        if queue.closed:
            return queue in self._leaving and queue.store.read(location, message)
        return queue.read(location, message)

    def gone(self, dead):
        """A message is dealt with: sent, set aside, or not there."""
        queue = dead.queue
        if dead.copy is None:
            queue.dead_letter_count -= 1
            if queue.dead_letter_count == 0 and self._leaving and queue in self._leaving:
                self._let_go(queue)

    def _let_go(self, queue):
        try:
            self._leaving.pop(queue)()
        except Exception:
            LOG.exception("queue '%s' in vhost '%s' was deleted, but not all of it has gone", queue.name, queue.vhost)


class DeadMessage:
    """One dead message of ``queue``, and its settings when it died: at ``location`` in its store, or a ``copy`` of one that was not stored.

    ``pending``: the destinations it has yet to reach, where others have it; None: none of them has.
    """

    __slots__ = ("queue", "settings", "reason", "location", "copy", "pending")

    def __init__(self, queue, settings, reason, location, copy, pending):
        self.queue = queue
        self.settings = settings
        self.reason = reason
        self.location = location
        self.copy = copy
        self.pending = pending


class DeadLetterSource(Source):
    """Dead letters as items of a Transfer: what those that go out first and those that have waited for room have in common."""

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
        LOG.error("%d dead letters stay in their queues: the copies are not on disk: %s", len(items), error)
        for dead in items:
            self._all.gone(dead)

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
                queue, "a message that queue '%s' in vhost '%s' refused is lost: it cannot be dead-lettered: %s",
                queue.name, queue.vhost, described(error))
        self._all.gone(dead)


class FreshDeadLetters(DeadLetterSource):
    """Those that nobody has tried to send yet, in the order in which they died."""

    __slots__ = ("_waiting", "_dead")

    def __init__(self, dead_letters, waiting):
        DeadLetterSource.__init__(self, dead_letters)
        self._waiting = waiting
        self._dead = deque()

    def add(self, dead):
        """One more."""
        self._dead.append(dead)

    def clear(self):
        """None of them goes any more."""
        self._dead.clear()

    def take(self, message):
        return self._dead.popleft() if self._dead else None

    def show(self, item, message):
        dead = item
        if dead.copy is None and self._waiting.holds(dead):
            return False
        return DeadLetterSource.show(self, dead, message)

    def no_room(self, item, pending):
        self._waiting.hold(item, pending)
        return LEFT_TO_SOURCE

    def broken(self, error):
        return bool(self._dead)


class WaitingDeadLetters(DeadLetterSource):
    """Those that wait for room: of each queue and reason one behind the other, and all such lanes in turn."""

    __slots__ = ("transfer", "_lanes", "_round")

    def __init__(self, dead_letters):
        DeadLetterSource.__init__(self, dead_letters)
        self.transfer = None
        self._lanes = {}  # (queue, its settings, reason): Lane
        self._round = deque()  # those of them to be tried in this round

    def hold(self, dead, pending):
        """There was no room for a message: it waits."""
        self._lanes[dead.queue, dead.settings, dead.reason] = Lane(dead, pending)
        names = ", ".join(f"'{destination.name}'" for destination in pending)
        LOG.error("dead letters of queue '%s' in vhost '%s' wait in it: %s cannot store them now", dead.queue.name, dead.queue.vhost, names)
        self.transfer.try_again_later()

    def holds(self, dead):
        """Whether a message waits because others of its kind do."""
        if not self._lanes:
            return False
        lane = self._lanes.get((dead.queue, dead.settings, dead.reason))
        if lane is None:
            return False
        lane.locations.append(dead.location)
        return True

    def clear(self):
        """None of them goes any more."""
        self._lanes.clear()
        self._round.clear()

    def try_again(self):
        if not self._round:  # or a round is under way, at whose end this is asked for again
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
        """Go on with the next lane."""
        if self._round:
            self._round.popleft()
        return bool(self._round)

    def paused(self, unsafe):
        if self._lanes:
            self.transfer.try_again_later()


class Lane:
    """Messages that died of one reason in one queue and wait, in order, for room where they go."""

    __slots__ = ("_queue", "_settings", "_reason", "locations", "_first", "_pending")

    def __init__(self, dead, pending):
        self._queue = dead.queue
        self._settings = dead.settings
        self._reason = dead.reason
        self.locations = array("Q", (dead.location,))  # there may be as many as messages
        self._first = 0
        self._pending = pending  # destinations that the first of them has yet to reach

    def take(self):
        """The first of them, which waits no more; None: there is none left."""
        if self._first == len(self.locations):
            return None
        pending, self._pending = self._pending, None
        self._first += 1
        return DeadMessage(self._queue, self._settings, self._reason, self.locations[self._first - 1], None, pending)

    def put_back(self, pending):
        """The one that was taken last waits on."""
        self._first -= 1
        self._pending = pending


class DeadLetterExchanges(Target):
    """Copies messages to where the dead letters of their queues go."""

    __slots__ = ("_vhosts", "_scheduler", "_counts", "_routes", "_route", "_copy")

    def __init__(self, vhosts, scheduler, counts):
        self._vhosts = vhosts
        self._scheduler = scheduler
        self._counts = counts
        self._routes = {}  # of this slice: (queue, reason): DeadLetterRoute
        self._route = None  # the one that was used last
        self._copy = Message()

    def send(self, item, message):
        dead = item
        if dead.copy is None:
            return self._publish(dead, message)
        self._publish(dead, dead.copy)
        return NOTHING_TO_DROP

    def slice_over(self):
        routes, self._routes = self._routes, {}
        self._route = None
        for route in routes.values():
            route.note(self._counts)

    def _publish(self, dead, message):
        """Copy the message to where it goes; nowhere is possible too. Returns the destinations whose stores cannot take it now, or None."""
        route = self._route
        if route is None or route.queue is not dead.queue or route.settings is not dead.settings or route.reason != dead.reason:
            route = self._route = self._route_of(dead)
        if route.exchange is None or message.kind != KIND_AMQP:
            return None
        pending = dead.pending
        routing, properties = message.get_routing(), message.get_properties()
        address = route.addresses.get((routing, properties))
        if address is None:
            death = Death(message, route.queue.name, route.reason, route.settings.dead_letter_routing_key, self._scheduler.now_ms, route.first_deaths)
            address = route.addresses[routing, properties] = Address(death, route.by_keys(death))
        route.count += pending is None
        copy = self._copy
        copy.readdress(message, route.exchange_name, address.key, address.death.properties, self._scheduler.now_ms)
        destinations = address.destinations
        if pending is not None:
            destinations = route.again(pending)
        elif destinations is None:
            destinations = address.reached_by(route.by_headers(address.death))
        pending = None
        for destination in destinations:
            route.published += 1
            if not destination.publish(copy) and destination.unable:
                pending = [*(pending or ()), destination]
        return pending

    def _route_of(self, dead):
        route = self._routes.get((dead.queue, dead.reason))
        if route is None or route.settings is not dead.settings:
            if route is not None:
                route.note(self._counts)
            route = self._routes[dead.queue, dead.reason] = DeadLetterRoute(dead, self._vhosts.get(dead.queue.vhost))
        return route


class DeadLetterRoute:
    """What the messages of one slice that died of one reason in one queue have in common. Nothing that routes depend on changes within a slice.

    ``first_deaths`` is Death's; ``addresses``: {(routing, properties): Address}, for those that are alike in both. Without ``exchange`` they go
    nowhere.
    """

    __slots__ = (
        "queue", "settings", "reason", "exchange", "exchange_name", "count", "published", "first_deaths", "addresses", "_vhost", "_by_keys",
    )

    def __init__(self, dead, vhost):
        self.queue = dead.queue
        settings = self.settings = dead.settings
        self.reason = dead.reason
        self.exchange = None if vhost is None or settings.dead_letter_exchange is None else vhost.exchanges.get(settings.dead_letter_exchange)
        self.exchange_name = b"" if self.exchange is None else _octets(self.exchange.name)
        self.count = self.published = 0
        self.first_deaths = {}
        self.addresses = {}
        self._vhost = vhost
        self._by_keys = {}  # keys: destinations, where the headers do not matter

    def by_keys(self, death):
        """Where the keys of a message lead; None where more than keys counts."""
        keys = tuple(death.keys)
        if keys not in self._by_keys:
            self._by_keys[keys] = self._vhost.route_by_key(self.exchange, keys[0], keys[1:])
        return self._by_keys[keys]

    def by_headers(self, death):
        """Where a message goes, found for it alone."""
        headers = with_properties(death.headers, Properties.decode(death.properties))
        return self._vhost.route(self.exchange, death.keys[0], headers, death.keys[1:])

    def again(self, destinations):
        """What these destinations of an earlier slice are now."""
        return self._vhost.again(destinations)

    def note(self, counts):
        """The slice is over: count."""
        if self.count:
            counts[queue_type_of(self.queue.arguments), self.reason] += self.count
            self.exchange.state.publish_in += self.count
            self.exchange.state.publish_out += self.published
            self.count = self.published = 0


class Address:
    """What is written on all messages that died alike: their ``death``, ``key`` in octets, ``destinations`` (None: they are found for each)."""

    __slots__ = ("death", "key", "destinations")

    def __init__(self, death, destinations):
        self.death = death
        self.key = _octets(death.keys[0])
        self.destinations = None if destinations is None else self.reached_by(destinations)

    def reached_by(self, destinations):
        """Those of the destinations to which the message does not come in a cycle."""
        return [destination for destination in destinations if not self.death.has_come_round(destination.name)]


def _octets(text):
    return text.encode("utf-8", "surrogateescape")
