"""Moving: messages that an operator copies or moves from a queue to somewhere else, and dead letters that go back where they came from.

Above queues and vhosts, below doors. The queue goes on meanwhile: its ready messages are walked with a browser, in slices; those that are wanted are
published again, and where they are to move, picked out of the queue. A picked message is dropped only once its copy is on disk, so that a crash
leaves it in two places rather than in none. Nothing that comes to the queue after the start is looked at, so that a loop ends. A message that cannot
be copied stays, and is counted with the reason; whatever fails, whoever asked for the move is answered.
"""
from fnmatch import fnmatchcase

from gomq_py.broker.origin import origin_of
from gomq_py.broker.routing import with_properties
from gomq_py.broker.set_aside import described
from gomq_py.broker.slice_clock import SliceClock
from gomq_py.content.fields import get_key
from gomq_py.content.properties import Properties, PropertyScan
from gomq_py.observability.log import logger
from gomq_py.storage import browser
from gomq_py.storage.errors import StoreError
from gomq_py.storage.message import Message

LOG = logger("queue")

# Messages looked at before others get their turn: some 3 ms. Fewer where they take longer than SLICE_S, as large
# headers do that a filter looks at.
SLICE = 200
SLICE_S = 0.005
# What may be picked and not yet dropped: after so many messages or octets the disk is waited for.
UNSYNCED_MESSAGES = 2000
UNSYNCED_OCTETS = 8 * 1024 * 1024
# Different reasons to stay that are counted each by itself: messages bring them about.
REASONS = 100
OTHER_REASONS = "other reasons"


class Filter:
    """Which messages are meant: exchange and routing key as patterns with ``*`` and ``?``, and headers that are equal. None and {}: all."""

    def __init__(self, exchange=None, routing_key=None, headers=None):
        self.exchange = exchange
        self.routing_key = routing_key
        self.headers = headers or {}

    def matches(self, message):
        """Whether this Message is meant."""
        if self.exchange is not None and not fnmatchcase(_text(message.get_exchange()), self.exchange):
            return False
        if self.routing_key is not None and not fnmatchcase(_text(message.get_routing_key()), self.routing_key):
            return False
        if not self.headers:
            return True
        raw = raw_headers(message.get_properties())
        return raw is not None and all(get_key(raw, key) == value for key, value in self.headers.items())


class Result:
    """What a move did: messages looked at, those meant, those done, and why the others stayed: {reason: count}.

    ``targets``: {where to: count}. ``fault``: what ended it before its time, in words, or None.
    """

    def __init__(self):
        self.fault = None
        self.examined = self.matched = self.done = 0
        self.stayed = {}
        self.targets = {}

    def stays(self, reason):
        """One more message stays, for this reason."""
        if reason not in self.stayed and len(self.stayed) >= REASONS:
            reason = OTHER_REASONS
        self.stayed[reason] = self.stayed.get(reason, 0) + 1

    def goes(self, target):
        """One more message goes there."""
        self.targets[target] = self.targets.get(target, 0) + 1


class Move:
    """One move or copy, from ``queue`` to where ``route(message)`` says; ``start`` begins it, ``done(result, error)`` is called at its end.

    ``route`` returns (name of the target, destinations, the Message to publish there) or (None, reason, None): the message stays.
    """

    def __init__(self, queue, route, committer, scheduler, done, wanted=None, count=None, keep=False, dry_run=False):
        """``count``: at most so many messages; ``keep``: copy, leave the originals; ``dry_run``: only count."""
        self._queue = queue
        self._route = route
        self._committer = committer
        self._scheduler = scheduler
        self._done = done
        self._filter = wanted or Filter()
        self._left = count
        self._keep = keep
        self._dry_run = dry_run
        self._browser = None
        self._moved = []
        self._moved_octets = 0
        self._ended = False
        self._picked = False  # whether the message that is dealt with has been taken out of the queue
        self.result = Result()

    def start(self):
        """Begin; the first slice runs after the next poll of the loop."""
        self._browser = browser.browse(self._queue.store)
        self._go_on()

    def cancel(self):
        """Stop after this slice; what has moved has moved."""
        self._ended = True

    def _go_on(self):
        self._scheduler.run_sliced(self._slice, self._failed, "moving messages")

    def _slice(self):
        """The scheduler's next slice; False: no more of them for now."""
        message = Message()
        clock = SliceClock(SLICE_S)
        try:
            for _ in range(SLICE):
                if self._ended or self._queue.closed or self._left == 0 or not self._browser.next(message):
                    self._ended = True
                    break
                self._try(message)
                if clock.is_over():
                    break
        except StoreError as error:
            self._queue.fail(error)
            self._ended = True
        if not self._ended and len(self._moved) < UNSYNCED_MESSAGES and self._moved_octets < UNSYNCED_OCTETS:
            return True
        self._wait_for_disk()
        return False

    def _failed(self, error):
        """The messages cannot be walked any further: what has moved has moved."""
        self._ended = True
        self.result.fault = described(error)
        self._wait_for_disk()
        return False

    def _wait_for_disk(self):
        moved, self._moved, self._moved_octets = self._moved, [], 0
        if self._ended:
            self._browser.close()
        self._committer.after_sync(lambda error: self._synced(moved, error))

    def _try(self, message):
        """Deal with one message; one that cannot be dealt with stays in its place."""
        self.result.examined += 1
        self._picked = False
        location = message.describe()["location"]
        try:
            self._one(message, location)
        except StoreError:
            raise
        except Exception as error:
            self.result.stays(described(error))
            if self._picked:
                self._put_back(location)

    def _put_back(self, location):
        self._queue.store.unpick(location)
        self._queue.wake()

    def _one(self, message, location):
        if not self._filter.matches(message):
            return
        self.result.matched += 1
        octets = len(message.get_body())
        target, destinations, copy = self._route(message)
        if target is None:
            self.result.stays(destinations)
            return
        if self._left is not None:
            self._left -= 1
        if self._dry_run:
            self._count(target)
        elif self._keep:
            if self._publish(destinations, copy):
                self._count(target)
        elif not self._queue.store.pick(location):
            self.result.stays("taken by a consumer")
        else:
            self._picked = True
            if self._publish(destinations, copy):
                self._count(target)
                self._moved.append(location)
                self._moved_octets += octets
            else:
                self._put_back(location)

    def _count(self, target):
        self.result.done += 1
        self.result.goes(target)

    def _publish(self, destinations, copy):
        """Whether somebody took it. One of several that refuses does not keep the others from it, as with any publish."""
        if any([destination.publish(copy) for destination in destinations]):
            return True
        self.result.stays("refused by the target")
        return False

    def _synced(self, moved, error):
        try:
            self._settle(moved, error)
        except Exception as fault:  # whoever asked must hear of the end all the same
            LOG.exception("moving messages out of queue '%s' ended", self._queue.name)
            self._ended = True
            self.result.fault = described(fault)
        if self._ended or error is not None:
            self._done(self.result, error)
        else:
            self._go_on()

    def _settle(self, moved, error):
        """The copies are on disk, or cannot be: then the originals stay."""
        if error is not None:
            LOG.error("%d moved messages come back to queue '%s': their copies are not on disk: %s", len(moved), self._queue.name, error)
            self.result.done -= len(moved)
        for location in moved:
            try:
                if error is None:
                    self._queue.drop(location)
                elif not self._queue.closed:
                    self._queue.store.unpick(location)
            except Exception as fault:
                self._queue.set_aside(location, fault, "moving")
        self._queue.wake()


def to_queue(target):
    """A ``route`` that leads every message to one queue, as it is."""

    def route(message):
        return target.name, (target,), _copy(message, message.get_exchange(), message.get_routing_key(), message.get_properties())

    return route


def to_origin(vhost, source, may_write, may_publish, to="queue", clean=False):
    """A ``route`` that leads dead letters back: into the queue they died in first, or (``to="exchange"``) to the exchange they had come over, by the
    keys they had then.

    ``may_write(queue's name)``, ``may_publish(exchange, routing keys)``: whether the operator may. ``clean`` takes the
    headers about the death away. ``source`` is never a target.
    """

    def route(message):
        origin = origin_of(raw_headers(message.get_properties()))
        if origin is None:
            return None, "no origin recorded", None
        if to == "exchange":
            exchange = vhost.exchanges.get(origin.exchange)
            if exchange is None or exchange.internal:
                return None, f"no exchange '{origin.exchange}'", None
            if not may_publish(exchange, origin.routing_keys):
                return None, f"no permission to write to exchange '{exchange.name}'", None
        properties = origin.cleaned(message.get_properties()) if clean else message.get_properties()
        copy = _copy(message, _octets(origin.exchange), _octets(origin.routing_keys[0]), properties)
        if to == "exchange":
            decoded = Properties.decode(properties)
            headers = with_properties(decoded.headers, decoded)
            found = vhost.route(exchange, origin.routing_keys[0], headers, origin.routing_keys[1:])
            destinations = tuple(destination for destination in found if destination is not source)
            if not destinations:
                return None, "no queue is bound for it", None
            return f"exchange '{exchange.name}'", destinations, copy
        queue = vhost.queues.get(origin.queue)
        if queue is None or queue is source:
            return None, f"no queue '{origin.queue}'", None
        if not may_write(queue.name):
            return None, f"no permission to write to queue '{queue.name}'", None
        return f"queue '{queue.name}'", (queue,), copy

    return route


def raw_headers(properties):
    """The raw table of the headers in properties in wire form, or None."""
    scan = PropertyScan()
    if not scan.scan_octets(properties) or scan.headers_at < 0:
        return None
    return properties[scan.headers_at:scan.headers_at + scan.headers_length]


def _copy(message, exchange, routing_key, properties):
    """A message of its own, as old as the one it is made of."""
    fields = message.describe()
    copy = Message()
    copy.assign(
        exchange, routing_key, properties, message.get_body(), fields["timestamp_ms"], fields["expires_at_ms"], fields["priority"],
        fields["persistent"])
    return copy


def _text(octets):
    return octets.decode("utf-8", "surrogateescape")


def _octets(text):
    return text.encode("utf-8", "surrogateescape")
