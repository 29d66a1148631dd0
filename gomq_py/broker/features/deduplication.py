"""Deduplication: a queue or exchange drops a message whose id it has seen lately.

The publisher gets a confirm as for a stored message. The argument ``x-message-deduplication`` turns it on.
The id is the value of the message's header ``x-deduplication-header``. The argument of this name may choose
another header. ``x-cache-size`` ids are remembered, each for ``x-cache-ttl`` milliseconds, and the oldest is
forgotten first. The message's own header ``x-cache-ttl`` overrides this time. Ids are in memory only: after a
restart every message is new. An id takes some 150 bytes. A message that died in a queue and comes back, as
from a retry queue, is no duplicate.

An exchange (ExchangeIds) forgets the id of a message that a queue or the disk has refused, because its
publisher may try again. A queue (SeenIds) needs no such rule: it closes when its disk fails, and is reopened
without ids.
"""
from collections import OrderedDict

from gomq_py.broker.features import checks, policy_checks
from gomq_py.broker.features.dead_lettering import DEATHS
from gomq_py.broker.features.feature import NO_STREAM, ExchangeArgument, Feature
from gomq_py.broker.values import is_count
from gomq_py.content.fields import get_key
from gomq_py.content.properties import PropertyEdit
from gomq_py.digests import blake2b

ENABLED, SIZE, TTL, HEADER = (
    "x-message-deduplication", "x-cache-size", "x-cache-ttl", "x-deduplication-header"
)
POLICY_KEY = "message-deduplication"
ARGUMENTS = (ENABLED, SIZE, TTL, HEADER)
_DEATHS = DEATHS.encode()

# LavinMQ's default.
DEFAULT_SIZE = 128

# Longer ids are stored as digests.
WHOLE_ID_OCTETS = 32
# Limit of the cache size: 150 MB of ids.
MAX_SIZE = 1_000_000


def deduplication_of(arguments, policy):
    """Return (count of ids to remember, ttl_ms or None, name of the id's header); None if switched off."""
    wanted = arguments.get(ENABLED, policy.get(POLICY_KEY))
    if wanted is not True:
        return None
    size, ttl_ms, header = arguments.get(SIZE), arguments.get(TTL), arguments.get(HEADER)
    size = min(size, MAX_SIZE) if is_count(size) else DEFAULT_SIZE
    return size, ttl_ms if is_count(ttl_ms) else None, header if isinstance(header, str) else HEADER


ROWS = (
    Feature(
        argument=ENABLED, place=27, kinds=NO_STREAM, check=checks.boolean,
        policy=POLICY_KEY, check_policy=policy_checks.boolean,
        setting="deduplication",
        merge=lambda _feature, arguments, policy: deduplication_of(arguments, policy),
        value="`true`: boolean",
        default="`false`",
        others="RabbitMQ: a plugin. LavinMQ: alike.",
        effect="A message whose id was seen lately is confirmed and dropped. Ids are in memory: a "
        "restart forgets them. Exchanges have this argument, too.",
    ),
    Feature(
        argument=SIZE, place=28, kinds=NO_STREAM, check=checks.up_to(MAX_SIZE),
        value="`10000`: ids, 0 to 1000000",
        default="128",
        others="RabbitMQ: a plugin. LavinMQ: alike.",
        effect="Number of remembered ids; the oldest is forgotten first.",
    ),
    Feature(
        argument=TTL, place=29, kinds=NO_STREAM, check=checks.milliseconds,
        value="`3600000`: ms, 0 to ten years",
        default="No limit of time.",
        others="RabbitMQ: a plugin. LavinMQ: alike.",
        effect="Time for which an id is remembered. A message's header of this name overrides it.",
    ),
    Feature(
        argument=HEADER, place=30, kinds=NO_STREAM, check=checks.text,
        value="`order-id`: text",
        default="`x-deduplication-header`",
        others="RabbitMQ: a plugin. LavinMQ: alike.",
        effect="Name of the header that holds a message's id.",
    ),
)

_OF_AN_EXCHANGE = (
    "A repeated message reaches no queue. The exchange forgets the id of a message that a queue or the disk "
    "has refused, so that its publisher can try again."
)
EXCHANGE_ROWS = tuple(
    ExchangeArgument(
        argument=row.argument, value=row.value, default=row.default, others=row.others,
        effect=_OF_AN_EXCHANGE if row.argument == ENABLED else row.effect,
    ) for row in ROWS
)


class SeenIds:
    """Remembers the ids of a queue's or exchange's messages. ``settings``: the tuple from deduplication_of().
    ``duplicates``: count of duplicates found.
    """

    __slots__ = ("settings", "duplicates", "_size", "_ttl_ms", "_header", "_seen")

    def __init__(self, settings):
        self.settings = settings
        self.duplicates = 0
        self._size, self._ttl_ms, self._header = settings
        self._seen = OrderedDict()  # id: Unix milliseconds when it is forgotten, or None

    def __len__(self):
        return len(self._seen)

    def read(self, properties):
        """Return (id or None, how long to remember it in ms or None) from encoded basic properties."""
        headers = PropertyEdit(properties).headers
        value = get_key(headers, self._header)
        if value is None:
            return None, None
        ttl_ms = get_key(headers, TTL)
        return id_of(value), ttl_ms if is_count(ttl_ms) else None

    def has(self, id_, now_ms):
        """True if the id is remembered at ``now_ms``. If so, counts a duplicate."""
        if id_ not in self._seen:
            return False
        until_ms = self._seen[id_]
        if until_ms is not None and until_ms <= now_ms:
            del self._seen[id_]
            return False
        self.duplicates += 1
        return True

    def add(self, id_, ttl_ms, now_ms):
        """Remember the id of a stored message for ``ttl_ms``; None: for the configured time."""
        if ttl_ms is None:
            ttl_ms = self._ttl_ms
        if self._size <= 0 or (ttl_ms is not None and ttl_ms <= 0):
            return
        self._seen.pop(id_, None)
        self._seen[id_] = None if ttl_ms is None else now_ms + int(ttl_ms)
        if len(self._seen) > self._size:
            self._seen.popitem(last=False)

    def take(self, id_, ttl_ms, now_ms):
        """Remember an id. Returns False if it is remembered already (a duplicate). None is always new."""
        if id_ is None:
            return True
        if self.has(id_, now_ms):
            return False
        self.add(id_, ttl_ms, now_ms)
        return True

    def forget(self, id_):
        """Forget the id of a message that was refused after all, so that its publisher may try again."""
        self._seen.pop(id_, None)


class ExchangeIds(SeenIds):
    """Remembers the ids of an exchange's messages. Forgets the id of a message that a queue or disk has lost.
    ``when_safe``: the method Durability.when_safe.
    """

    __slots__ = ("_when_safe", "_unsafe")

    def __init__(self, settings, when_safe):
        super().__init__(settings)
        self._when_safe = when_safe
        self._unsafe = {}  # id: the _Unsafe of its message

    def add(self, id_, ttl_ms, now_ms):
        self._unsafe.pop(id_, None)  # drop the entry of an earlier message with this id
        super().add(id_, ttl_ms, now_ms)

    def until_safe(self, id_, queues):
        """Watch a message until ``queues`` have flushed it to disk. Forgets its id if a flush fails."""
        if id_ in self._seen:
            unsafe = self._unsafe[id_] = _Unsafe(self, id_, queues)
            # Registered before the publisher's refusal, so that a repeat counts as new. ``hurry`` is False: a
            # publisher without confirms does not wait.
            self._when_safe(unsafe.answered, unsafe.is_lost, hurry=False)

    def queues_of(self, id_):
        """Return the queues that have yet to flush the first message with this id; None if it is on disk. A
        duplicate's confirm waits for these queues.
        """
        unsafe = self._unsafe.get(id_)
        return None if unsafe is None else unsafe.queues

    def answered(self, unsafe, is_kept):
        """End the watch of an ``unsafe`` message. Forgets its id if the message was lost."""
        if self._unsafe.get(unsafe.id) is unsafe:  # else the id was forgotten and seen again
            del self._unsafe[unsafe.id]
            if not is_kept:
                self.forget(unsafe.id)


class _Unsafe:
    """A routed message that is not yet on disk in all its ``queues``."""

    __slots__ = ("id", "queues", "_ids")

    def __init__(self, ids, id_, queues):
        self._ids = ids
        self.id = id_
        self.queues = queues

    def is_lost(self):
        return any(queue.failed for queue in self.queues)

    def answered(self, error):
        """Report the end of the flush: the message is on disk or, after an ``error``, lost."""
        self._ids.answered(self, error is None and not self.is_lost())


def has_died_in(queue, properties):
    """True if encoded basic properties have an x-death entry of the queue named ``queue``."""
    if _DEATHS not in properties:
        return False
    deaths = get_key(PropertyEdit(properties).headers, DEATHS)
    return (
        isinstance(deaths, list)
        and any(isinstance(death, dict) and death.get("queue") == queue for death in deaths)
    )


def id_of(value):
    """Convert an id to a key of bounded size. Equal integers and floats have equal keys."""
    if isinstance(value, float) and value.is_integer():
        value = int(value)
    whole = value if isinstance(value, bytes) else repr(value).encode("utf-8", "surrogateescape")
    return (
        whole if len(whole) <= WHOLE_ID_OCTETS else blake2b(whole, digest_size=WHOLE_ID_OCTETS + 1).digest()
    )
