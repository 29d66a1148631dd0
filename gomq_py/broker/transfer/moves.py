"""Moves: moves or copies messages to another queue, or dead letters back to their origin, for operators.

Used by the HTTP API. The queue stays in use: a transfer (transfer.engine) walks over its ready messages. It
publishes selected messages again and, in a move, takes the originals out of the middle of the queue ("picks"
them). A picked message is dropped only once its copy is on disk, so a crash leaves it in two queues rather
than in none. Messages that arrive after the start are ignored, so a move to the same queue ends. A message
that cannot be copied stays, and is counted by its reason.
"""
from fnmatch import fnmatchcase

from gomq_py.broker.features.dead_lettering import DEATHS
from gomq_py.broker.names import to_octets, to_text
from gomq_py.broker.queues.set_aside import described
from gomq_py.broker.routing.routing import with_properties
from gomq_py.broker.transfer.engine import LEFT_TO_SOURCE, NOTHING_TO_DROP, Source, Target, Transfer
from gomq_py.content.fields import get_key, remove_key
from gomq_py.content.properties import Properties, PropertyEdit, PropertyScan
from gomq_py.errors import Malformed
from gomq_py.observability.log import logger
from gomq_py.storage.message import Message

LOG = logger("queue")

# Most picked messages and octets not yet dropped: beyond them the move waits for the disk.
UNSYNCED_MESSAGES = 2000
UNSYNCED_OCTETS = 8 * 1024 * 1024
# Most reasons that are counted separately: messages cause them.
REASONS = 100
OTHER_REASONS = "other reasons"

SETTING_ASIDE = "moving"
DEATH_HEADERS = (
    DEATHS,
    *(f"x-{which}-death-{what}" for which in ("first", "last") for what in ("reason", "queue", "exchange")),
)

# Written by workers of the task queue (gomq_py.dispatcher): where a dead task comes from, and its earlier
# attempts, which a replay takes away.
TASK_QUEUE = "x-task-queue"
TASK_HEADERS = (
    TASK_QUEUE, *(f"x-task-{what}" for what in ("attempt", "unknown", "reason", "error", "worker")))


class Filter:
    """Selects messages by exchange, routing key and headers. ``exchange`` and ``routing_key`` are patterns
    with ``*`` and ``?``; headers must have the given values. None and {} match all messages.
    """

    def __init__(self, exchange=None, routing_key=None, headers=None):
        self.exchange = exchange
        self.routing_key = routing_key
        self.headers = headers or {}

    def matches(self, message):
        if self.exchange is not None and not fnmatchcase(to_text(message.get_exchange()), self.exchange):
            return False
        if (
            self.routing_key is not None
            and not fnmatchcase(to_text(message.get_routing_key()), self.routing_key)
        ):
            return False
        if not self.headers:
            return True
        try:
            raw = raw_headers(message.get_properties())
        except Malformed:  # its headers are unknown
            return False
        return raw is not None and all(get_key(raw, key) == value for key, value in self.headers.items())


class MoveResult:
    """Counts a move's messages: ``examined``, ``matched`` and ``done``. ``stayed``: {reason: count}.
    ``targets``: {name: count}. ``fault``: text about the fault that ended the move early, or None.
    """

    def __init__(self):
        self.fault = None
        self.examined = self.matched = self.done = 0
        self.stayed = {}
        self.targets = {}

    def stays(self, reason):
        if reason not in self.stayed and len(self.stayed) >= REASONS:
            reason = OTHER_REASONS
        self.stayed[reason] = self.stayed.get(reason, 0) + 1

    def goes(self, target):
        self.done += 1
        self.targets[target] = self.targets.get(target, 0) + 1


class Move(Source):
    """Moves or copies messages of ``queue``. ``done(result, error)`` is called at the end, with a MoveResult
    and the disk's error or None. ``route(message)`` returns (name of the target, destinations, Message to
    publish), or (None, reason, None) for a message that stays.
    """

    def __init__(
        self, queue, route, durability, scheduler, done, wanted=None, count=None, keep=False, dry_run=False
    ):
        """``wanted``: a Filter; None: all messages. ``count``: most messages to move; None: no limit.
        ``keep``: copy instead of moving; ``dry_run``: only count.
        """
        self.result = MoveResult()
        self._queue = queue
        self._done = done
        self._filter = wanted or Filter()
        self._target = Copies(queue, route, self.result, count, keep, dry_run)
        self._keep = keep
        self._browser = None
        self._ended = False
        self._error = None  # the disk's error
        self._transfer = Transfer(
            "moving messages", self, self._target, scheduler, None, durability.when_safe, UNSYNCED_MESSAGES,
            UNSYNCED_OCTETS)

    def start(self):
        """Begin the move. Its first slice runs after the next poll of the event loop."""
        from gomq_py.storage.stores import browser  # only for moves

        self._browser = browser.browse(self._queue.store)
        self._transfer.start()

    def cancel(self):
        """End the move after this slice. Messages moved so far stay moved."""
        self._ended = True

    def close(self):
        """End the move, because the broker stops. Originals of sent copies leave with the next flush."""
        self._ended = True
        self._transfer.close()

    def take(self, message):
        if self._ended or self._queue.closed or self._target.left == 0 or not self._browser.next(message):
            self._ended = True
            return None
        self.result.examined += 1
        self._target.has_picked = False
        return message.describe()["location"]

    def show(self, item, message):
        if not self._filter.matches(message):
            return False
        self.result.matched += 1
        return True

    def no_room(self, item, pending):
        """Leave the message in its queue and count it. The operator may repeat the move."""
        self._stays(item, "refused by the target")
        return LEFT_TO_SOURCE

    def drop(self, item):
        if not self._keep:
            self._queue.drop(item)

    def keep(self, items, error):
        self._ended = True
        self._error = error
        if self._keep:
            return
        LOG.error(
            "%d moved messages come back to queue '%s': their copies are not on disk: %s", len(items),
            self._queue.name, error,
        )
        self.result.done -= len(items)
        for location in items:
            try:
                if not self._queue.closed:
                    self._queue.store.unpick(location)
            except Exception as fault:
                self._queue.set_aside(location, fault, SETTING_ASIDE)
        self._queue.wake()

    def set_aside(self, item, error, was_sent):
        """Leave an unsent message ready in its queue. If it ``was_sent``, set the original aside, because
        it could not be dropped.
        """
        if was_sent:
            self._queue.set_aside(item, error, SETTING_ASIDE)
        else:
            self._stays(item, described(error))

    def fail(self, item, error):
        self._ended = True
        self._queue.fail(error)

    def broken(self, error):
        """End the move after a fault, such as the browser's. Messages moved before stay moved."""
        self._ended = True
        self.result.fault = described(error)
        return False

    def paused(self, unsafe):
        if not self._ended:
            return
        if self._browser is not None:
            self._browser.close()
            self._browser = None
        if not unsafe and self._done is not None:
            done, self._done = self._done, None
            done(self.result, self._error)

    def _stays(self, location, reason):
        self.result.stays(reason)
        if self._target.has_picked:
            self._queue.store.unpick(location)
            self._queue.wake()


class Copies(Target):
    """Target that publishes copies and picks originals. ``left``: most messages to send; None: no limit."""

    def __init__(self, queue, route, result, left, keep, dry_run):
        self.left = left
        self.has_picked = False  # whether the current message was picked
        self._queue = queue
        self._route = route
        self._result = result
        self._keep = keep
        self._dry_run = dry_run

    def send(self, item, message):
        target, destinations, copy = self._route(message)
        if target is None:
            self._result.stays(destinations)
            return NOTHING_TO_DROP
        if self.left is not None:
            self.left -= 1
        if self._dry_run:
            self._result.goes(target)
            return NOTHING_TO_DROP
        if not self._keep:
            self.has_picked = bool(self._queue.store.pick(item))
            if not self.has_picked:
                self._result.stays("taken by a consumer")
                return NOTHING_TO_DROP
        # As with any publish, a refusal by one of several destinations does not stop the others.
        if not any([destination.publish(copy) for destination in destinations]):
            return destinations
        self._result.goes(target)
        return None


def to_queue(target):
    """Make the ``route`` function of a Move that sends every message unchanged to the queue ``target``."""

    def route(message):
        return target.name, (target,), copied(message, message.get_exchange(), message.get_routing_key())

    return route


def to_origin(vhost, source, may_write, may_publish, to="queue", clean=False):
    """Make the ``route`` function of a Move that sends dead letters back to the queue where they died first.

    With ``to`` "exchange" they go to the exchange they were first published to, with their first routing
    keys. ``may_write(queue's name)`` and ``may_publish(exchange, routing keys)`` check the operator's rights.
    Dead tasks of the task queue go back to their queue, with all attempts left. ``clean`` removes the headers
    about deaths. No message goes to ``source`` or to an MQTT session's queue.
    """

    def route(message):
        origin = origin_of(raw_headers(message.get_properties()))
        if origin is None:
            return None, "no origin recorded", None
        if to == "exchange":
            if origin.exchange is None:
                return None, "a task, of which only the queue is recorded", None
            exchange = vhost.exchanges.get(origin.exchange)
            if exchange is None or exchange.internal:
                return None, f"no exchange '{origin.exchange}'", None
            if not may_publish(exchange, origin.routing_keys):
                return None, f"no permission to write to exchange '{exchange.name}'", None
        removed = (*TASK_HEADERS, *DEATH_HEADERS) if clean else TASK_HEADERS
        properties = origin.cleaned(message.get_properties(), removed)
        copy = copied(
            message, to_octets(origin.exchange or ""), to_octets(origin.routing_keys[0]), properties)
        if to == "exchange":
            decoded = Properties.decode(properties)
            headers = with_properties(decoded.headers, decoded)
            found = vhost.route(
                exchange, origin.routing_keys[0], headers, origin.routing_keys[1:], source
            )
            destinations = [destination for destination in found if not destination.takes_publishes_only]
            if not destinations:
                return None, "no queue is bound for it", None
            return f"exchange '{exchange.name}'", destinations, copy
        queue = vhost.queues.get(origin.queue)
        if queue is None or queue is source:
            return None, f"no queue '{origin.queue}'", None
        if queue.is_state:  # a publisher may write this header, which names the queue
            return None, f"queue '{queue.name}' takes only what its client has subscribed to", None
        if not may_write(queue.name):
            return None, f"no permission to write to queue '{queue.name}'", None
        return f"queue '{queue.name}'", (queue,), copy

    return route


class Origin:
    """The place where a dead letter came from. ``queue``: where it died first. ``exchange``: where it was
    published; None: unknown. ``routing_keys``: its own key, then the keys of CC.
    """

    __slots__ = ("queue", "exchange", "routing_keys")

    def __init__(self, queue, exchange, routing_keys):
        self.queue = queue
        self.exchange = exchange
        self.routing_keys = routing_keys

    @staticmethod
    def cleaned(properties, names=DEATH_HEADERS):
        """Remove the headers of these names from encoded properties. All other bytes stay unchanged."""
        edit = PropertyEdit(properties)
        headers = edit.headers
        for name in names:
            headers = remove_key(headers, name)
        edit.headers = headers
        return edit.octets()


def origin_of(headers):
    """Return the Origin in the encoded headers of a dead letter or dead task, or None."""
    # The entry of the first death in x-death is the last one with the queue and reason of x-first-death-*, or
    # else the last of all.
    if headers is None:
        return None
    deaths = get_key(headers, DEATHS)
    deaths = [death for death in deaths if _is_death(death)] if isinstance(deaths, list) else []
    if not deaths:
        queue = get_key(headers, TASK_QUEUE)
        return Origin(queue, None, [queue]) if isinstance(queue, str) else None
    first_queue, first_reason = (
        get_key(headers, "x-first-death-queue"), get_key(headers, "x-first-death-reason")
    )
    named = [
        death for death in deaths if death["queue"] == first_queue and death.get("reason") == first_reason
    ]
    death = (named or deaths)[-1]
    keys = [key for key in death["routing-keys"] if isinstance(key, str)]
    return Origin(death["queue"], death["exchange"], keys) if keys else None


def _is_death(death):
    return (
        isinstance(death, dict) and isinstance(death.get("queue"), str)
        and isinstance(death.get("exchange"), str) and isinstance(death.get("routing-keys"), list)
    )


def raw_headers(properties):
    """Return the encoded headers table in encoded properties; None without headers or if malformed."""
    scan = PropertyScan()
    if not scan.scan_octets(properties) or scan.headers_at < 0:
        return None
    return properties[scan.headers_at:scan.headers_at + scan.headers_length]


def copied(message, exchange, routing_key, properties=None):
    """Copy a message with its age. Encoded ``properties``, if given, replace those of the message."""
    fields = message.describe()
    copy = Message()
    copy.assign(
        exchange, routing_key, message.get_raw() if properties is None else properties, message.get_body(),
        fields["timestamp_ms"], fields["expires_at_ms"], fields["priority"], fields["persistent"])
    if properties is None:
        copy.set_kind(fields["kind"], fields["flags"])
    return copy
