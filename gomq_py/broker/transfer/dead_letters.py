"""Dead letters: messages that expired, were rejected, did not fit or came back too often, on their way to the exchange their queue names for them.

Beside queues, whose limits send them here; above vhosts, which route them. A message stays unacked in its queue until the copies are on disk wherever
they are to be durable, so that a crash leaves it in two places rather than in none. Letters are worked off in slices after the next poll, in order,
one after the other: a chain of overflowing queues makes the list longer, never the stack deeper. Where the store of a queue that a letter goes to
cannot take it (a full disk, a fault), it waits in its own queue, and so do those behind it. One that cannot be made a letter of at all is set aside
(broker.set_aside), and those behind it go on.
"""
from array import array
from collections import Counter, deque

from gomq_py.broker import destination as _destination  # noqa: F401  (its .pxd types where letters go)
from gomq_py.broker.arguments import queue_type_of
from gomq_py.broker.queues import queue as _queue  # noqa: F401  (its .pxd types where letters come from)
from gomq_py.broker.routing import with_properties
from gomq_py.broker.set_aside import described
from gomq_py.broker.slice_clock import SliceClock
from gomq_py.broker.transfer.death import Death
from gomq_py.content.properties import Properties
from gomq_py.observability.log import logger
from gomq_py.observability.quiet_log import QuietLog
from gomq_py.storage.errors import StoreError
from gomq_py.storage.message import KIND_AMQP, Message

LOG = logger("queue")
QUIET = QuietLog(LOG)

# Letters before others get their turn: some 2 ms, 5 where they died before. Fewer where they take longer than
# SLICE_S: headers of 128 KiB take 8 ms each, and a headers exchange compares each letter with all its bindings.
SLICE = 200
SLICE_S = 0.005

# Until letters for which there was no room are tried again.
TRY_AGAIN_MS = 1000

SETTING_ASIDE = "dead-lettering"


class DeadLetters:
    """The dead letters of one broker. ``vhosts`` is its dictionary of them. ``counts``: {(type of the queue, reason): how many went out}.

    A letter goes by the settings that its queue had when it died, whatever becomes of policies and of the queue itself meanwhile.
    """

    __slots__ = ("counts", "_vhosts", "_committer", "_scheduler", "_letters", "_moved", "_leaving", "_ways", "_way", "_running", "_copy",
                 "_closed", "_timers", "_timer", "_held", "_again")

    def __init__(self, vhosts, committer, scheduler, timers):
        self._vhosts = vhosts
        self._committer = committer
        self._scheduler = scheduler
        self.counts = Counter()
        self._letters = deque()  # (queue, its settings, reason, location, copy or None)
        self._moved = []  # (queue, location) of this slice, to be dropped from their queues after the next sync
        self._leaving = {}  # queues that are deleted, and what to call when the last letter of each has gone
        self._ways = {}  # of this slice: (queue, reason): Way
        self._way = None  # the one that was used last
        self._copy = Message()
        self._running = self._closed = False
        self._timers = timers
        self._timer = None
        self._held = {}  # (queue, its settings, reason): Held
        self._again = deque()  # those of them to be tried in this round

    def send(self, queue, location, reason):
        """An unacked message of ``queue`` is dead: it leaves the queue when its copies are safe."""
        queue.letters += 1
        self._add((queue, queue.limits.settings, reason, location, None))

    def send_refused(self, queue, message, reason):
        """A message that ``queue`` has not stored is dead. It is copied."""
        copy = Message()
        copy.readdress(message, message.get_exchange(), message.get_routing_key(), message.get_properties(), self._scheduler.now_ms)
        self._add((queue, queue.limits.settings, reason, 0, copy))

    def let_leave(self, queue, gone):
        """The queue is deleted (Queue.retire), and letters of it are on their way: call ``gone()`` when the last of them is copied."""
        self._leaving[queue] = gone

    def close(self):
        """The broker stops: letters that have not gone out, and those to come, stay in their queues, if those are to stay."""
        self._closed = True
        self._letters.clear()
        self._held.clear()
        self._again.clear()
        if self._timer is not None:
            self._timer.stop()
        self._let_go(list(self._leaving))

    def _add(self, letter):
        if self._closed:
            return
        self._letters.append(letter)
        if not self._running:
            self._running = True
            self._scheduler.run_sliced(self._slice, self._slice_failed, "dead letters")

    def _slice(self):
        """The scheduler's next slice of letters; False: no more of them."""
        message = Message()
        leaving = []
        clock = SliceClock(SLICE_S)
        for _ in range(min(SLICE, len(self._letters))):
            queue, settings, reason, location, copy = self._letters.popleft()
            try:
                if copy is not None:
                    self._publish(queue, settings, reason, copy, None)
                elif not self._held or not self._is_behind_others(queue, settings, reason, location):
                    owed = self._pass_on(queue, settings, reason, location, message, None)
                    if owed:
                        self._hold(queue, settings, reason, location, owed)
                    else:
                        self._gone(queue, leaving)
            except StoreError as error:
                queue.fail(error)
                self._gone(queue, leaving)
            except Exception as error:  # whatever is the matter with this one, the others must not suffer for it
                self._set_aside(queue, location, copy, error)
                self._gone(queue, leaving)
            if clock.is_over():
                break
        self._end_slice(leaving)
        self._running = bool(self._letters)
        return self._running

    def _slice_failed(self, _error):
        """What failed was no single letter: go on with the next ones."""
        self._running = bool(self._letters)
        return self._running

    def _set_aside(self, queue, location, copy, error):
        """A letter cannot be made, or cannot be stored, for another reason than its store's."""
        if copy is None:
            queue.set_aside(location, error, SETTING_ASIDE)
        else:
            QUIET.error(
                queue, "a message that queue '%s' in vhost '%s' refused is lost: it cannot be dead-lettered: %s",
                queue.name, queue.vhost, described(error))

    def _pass_on(self, queue, settings, reason, location, message, owed):
        """Copy an unacked message, which then leaves its queue after the next sync. Returns destinations that have yet to take it: then it stays."""
        if self._read(queue, location, message):
            owed = self._publish(queue, settings, reason, message, owed)
            if owed:
                return owed
            self._moved.append((queue, location))
        return None

    def _gone(self, queue, leaving):
        """A letter of the queue is dealt with."""
        queue.letters -= 1
        if queue.letters == 0 and self._leaving and queue in self._leaving:
            leaving.append(queue)

    def _end_slice(self, leaving):
        ways, self._ways = self._ways, {}
        self._way = None
        for way in ways.values():
            way.note(self.counts)
        self._drop_moved()
        self._let_go(leaving)

    # letters that wait for room

    def _hold(self, queue, settings, reason, location, owed):
        self._held[queue, settings, reason] = Held(queue, settings, reason, location, owed)
        names = ", ".join(f"'{destination.name}'" for destination in owed)
        LOG.error("dead letters of queue '%s' in vhost '%s' wait in it: %s cannot store them now", queue.name, queue.vhost, names)
        self._try_again_later()

    def _is_behind_others(self, queue, settings, reason, location):
        """Whether a letter waits because others of its kind do."""
        held = self._held.get((queue, settings, reason))
        if held is None:
            return False
        held.locations.append(location)
        return True

    def _try_again_later(self):
        if self._timer is None and not self._closed:
            self._timer = self._timers.start(TRY_AGAIN_MS, self._begin_again)

    def _begin_again(self):
        self._timer = None
        if not self._again:  # or a round is under way, at whose end this is asked for again
            self._again.extend(self._held)
            self._scheduler.run_sliced(self._slice_again, self._again_failed, "dead letters that wait for room")

    def _slice_again(self):
        """The scheduler's next slice of letters that waited; False: the others have to wait on."""
        message = Message()
        leaving = []
        left, clock = SLICE, SliceClock(SLICE_S)
        while left > 0 and self._again:
            held = self._held[self._again[0]]
            left -= self._some_of(held, left, clock, message, leaving)
            if held.is_over():
                del self._held[self._again.popleft()]
            elif held.owed:
                self._again.popleft()  # there is no room yet
            if clock.is_over():
                break
        self._end_slice(leaving)
        return self._goes_on_again()

    def _again_failed(self, _error):
        """What failed was no single letter: go on with those of the next queue."""
        if self._again:
            self._again.popleft()
        return self._goes_on_again()

    def _goes_on_again(self):
        if not self._again and self._held:
            self._try_again_later()
        return bool(self._again)

    def _some_of(self, held, limit, clock, message, leaving):
        """Pass on up to ``limit`` letters, as long as there is room and time. Returns how many."""
        count = 0
        while count < limit and not held.is_over():
            try:
                held.owed = self._pass_on(held.queue, held.settings, held.reason, held.locations[held.first], message, held.owed)
            except StoreError as error:
                held.queue.fail(error)
                held.owed = None
            except Exception as error:
                self._set_aside(held.queue, held.locations[held.first], None, error)
                held.owed = None
            if held.owed:
                break
            self._gone(held.queue, leaving)
            held.first += 1
            count += 1
            if clock.is_over():
                break
        return count

    # one letter

    def _read(self, queue, location, message):
        """Show an unacked message, also where its queue takes part in nothing else any more."""
        if queue.closed:
            return queue in self._leaving and queue.store.read(location, message)
        return queue.read(location, message)

    def _let_go(self, queues):
        for queue in queues:
            try:
                self._leaving.pop(queue)()
            except Exception:
                LOG.exception("queue '%s' in vhost '%s' was deleted, but not all of it has gone", queue.name, queue.vhost)

    def _drop_moved(self):
        moved, self._moved = self._moved, []
        if moved:
            self._committer.after_sync(lambda error: self._drop(moved, error))

    def _drop(self, moved, error):
        """The copies are on disk, or cannot be."""
        if error is not None:
            LOG.error("%d dead letters stay in their queues: the copies are not on disk: %s", len(moved), error)
            return
        for queue, location in moved:
            try:
                queue.drop(location)
            except Exception as error:
                self._set_aside(queue, location, None, error)

    def _publish(self, queue, settings, reason, message, owed):
        """Copy the message to where the queue's dead letters go; nowhere is possible too. Returns the destinations whose stores cannot take it now.

        ``owed``: those that could not before, the others have it.
        """
        way = self._way
        if way is None or way.queue is not queue or way.settings is not settings or way.reason != reason:
            way = self._way = self._way_of(queue, settings, reason)
        if way.exchange is None or message.kind != KIND_AMQP:
            return None
        routing, properties = message.get_routing(), message.get_properties()
        address = way.addresses.get((routing, properties))
        if address is None:
            letter = Death(message, queue.name, reason, settings.dead_letter_routing_key, self._scheduler.now_ms, way.first_deaths)
            address = way.addresses[routing, properties] = Address(letter, way.routes(letter))
        way.count += owed is None
        copy = self._copy
        copy.readdress(message, way.exchange_name, address.key, address.letter.properties, self._scheduler.now_ms)
        destinations = address.destinations
        if owed is not None:
            destinations = way.again(owed)
        elif destinations is None:
            destinations = address.reached_by(way.routes_anew(address.letter))
        owed = None
        for destination in destinations:
            way.published += 1
            if not destination.publish(copy) and destination.unable:
                owed = [*(owed or ()), destination]
        return owed

    def _way_of(self, queue, settings, reason):
        way = self._ways.get((queue, reason))
        if way is None or way.settings is not settings:
            if way is not None:
                way.note(self.counts)
            way = self._ways[queue, reason] = Way(queue, settings, reason, self._vhosts.get(queue.vhost))
        return way


class Way:
    """What the letters of one slice that died of one reason in one queue have in common. Nothing that routes depend on changes within a slice.

    ``first_deaths`` is Death's; ``addresses``: {(routing, properties): Address}, for those that are alike in both. Without ``exchange`` they go
    nowhere.
    """

    __slots__ = (
        "queue", "settings", "reason", "exchange", "exchange_name", "count", "published", "first_deaths", "addresses", "_vhost", "_routes",
    )

    def __init__(self, queue, settings, reason, vhost):
        self.queue = queue
        self.settings = settings
        self.reason = reason
        self.exchange = None if vhost is None or settings.dead_letter_exchange is None else vhost.exchanges.get(settings.dead_letter_exchange)
        self.exchange_name = b"" if self.exchange is None else _octets(self.exchange.name)
        self.count = self.published = 0
        self.first_deaths = {}
        self.addresses = {}
        self._vhost = vhost
        self._routes = {}  # keys: destinations, where the headers do not matter

    def routes(self, letter):
        """Where the letter's keys lead; None where more than keys counts."""
        keys = tuple(letter.keys)
        if keys not in self._routes:
            self._routes[keys] = self._vhost.route_by_key(self.exchange, keys[0], keys[1:])
        return self._routes[keys]

    def routes_anew(self, letter):
        """Where a letter goes, found for it alone."""
        headers = with_properties(letter.headers, Properties.decode(letter.properties))
        return self._vhost.route(self.exchange, letter.keys[0], headers, letter.keys[1:])

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


class Held:
    """Letters that died of one reason in one queue and wait, in order, for room where they go.

    ``owed``: destinations that the first of them has yet to reach.
    """

    __slots__ = ("queue", "settings", "reason", "locations", "first", "owed")

    def __init__(self, queue, settings, reason, location, owed):
        self.queue = queue
        self.settings = settings
        self.reason = reason
        self.locations = array("Q", (location,))  # there may be as many as messages
        self.first = 0
        self.owed = owed

    def is_over(self):
        """Whether all of them have gone on."""
        return self.first == len(self.locations)


class Address:
    """What is written on all letters that are alike: the ``letter``, its ``key`` in octets, its ``destinations`` (None: they are found for each)."""

    __slots__ = ("letter", "key", "destinations")

    def __init__(self, letter, destinations):
        self.letter = letter
        self.key = _octets(letter.keys[0])
        self.destinations = None if destinations is None else self.reached_by(destinations)

    def reached_by(self, destinations):
        """Those of the destinations to which the letter does not come in a cycle."""
        return [destination for destination in destinations if not self.letter.has_come_round(destination.name)]


def _octets(text):
    return text.encode("utf-8", "surrogateescape")
