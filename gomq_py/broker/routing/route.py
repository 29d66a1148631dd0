"""Routes: the cached destinations of messages with one exchange and routing key.

The broker makes a Route for a publisher, whose connection caches it. The connection's fast publish path then
publishes to all destinations (to_all) without looking at bindings. Messages without a route go through
broker.verbs.publishing. Never switches greenlets.
"""
from gomq_py import octets
from gomq_py.hub import scheduler as _scheduler

# A destination's answer to a message that must wait until a thread has made files for it.
LATER = 2
# Answers of to_all() when every destination has had the message.
ALL = 0
SOME_REFUSED = 1
# Copies that a lane stores between two looks at the clock, some 0.2 ms: about the messages of a 64 KiB read
# with one destination.
LOOK_AFTER = 1024
# Most routes that one connection remembers; beyond it all are dropped.
ROUTES = 4096


class ExchangeState:
    """Numbers of one exchange for the fast publish path: the ``revision`` of its routes, and four counters.

    The counters are messages in, copies out, unroutable messages, and unroutable messages returned to
    publishers. A change that may affect a route increments ``revision``; a cached route with an older one is
    dropped. Each user's permissions have an ExchangeState, too.
    """

    __slots__ = ("revision", "publish_in", "publish_out", "unroutable", "returned")

    def __init__(self):
        self.revision = self.publish_in = self.publish_out = self.unroutable = self.returned = 0


class Destination(_scheduler.TurnTaker):
    """The target of a route: a queue, or an object without a store, such as direct reply-to.

    hub.scheduler calls ``turn`` after each socket read that brought messages for the target. ``unable``: the
    last refusal came from the store, which may accept the message later. ``failed``: the store had a fault,
    so the last messages may not be on disk. ``declared_by``: name of the user who declared it, or None.
    """

    __slots__ = ("durable", "unable", "failed", "declared_by")

    # Whether it refuses messages that the broker sends on, such as dead letters and operators' moves.
    takes_publishes_only = False

    def __init__(self, name, durable=False):
        super().__init__(name)
        self.durable = durable
        self.unable = self.failed = False
        self.declared_by = None

    def publish(self, message):
        """Store one message, copying the needed parts. Returns 1 (stored), 0 (refused) or LATER (files are
        being made). After LATER call ``message.lacking(callback)``, and publish again when the callback is
        called. Never raises because of the message.
        """
        return 0

    def next_store(self):
        """Return the durable store for the next message; None if it is unknown or there is none."""
        return None

    def stores(self):
        """List the durable stores that may hold this destination's messages."""
        store = self.next_store()
        return [] if store is None else [store]

    def is_one_of(self, keys):
        """True if one of this destination's durable stores has its key in ``keys``."""
        return any(store.key in keys for store in self.stores())

    def outlives_kill(self):
        """True if all durable messages stored here would outlive a kill of the broker's process."""
        return True

    def is_outrun(self):
        """True if messages are published faster than the consumers can take messages."""
        return False

    def not_stored(self, error):
        """Treat a message that publish() answered with LATER as refused: its files could not be made."""


class Route:
    """The cached destinations of messages with one exchange and routing key: ``queues``, no queue twice.

    Valid until the exchange's bindings or the publisher's permissions change.

        permission    an ExchangeState with the revision of the publisher's rights, or None
        watched       name of a header, as a short string: the route holds only for messages with the same
                      list in this header; empty if headers do not matter
        delayed       the Route for messages with a delay, or None
    """

    __slots__ = (
        "queues", "exchange", "permission", "revision", "permission_revision", "durable", "routing",
        "watched", "delayed", "needs_headers",
    )

    def __init__(self, queues, exchange, permission=None, watched=b"", delayed=None):
        self.queues = tuple(queues)
        self.exchange = exchange
        self.revision = exchange.revision
        self.permission = permission
        self.permission_revision = 0 if permission is None else permission.revision
        self.durable = any(queue.durable for queue in self.queues)
        self.routing = b""
        self.watched = watched
        self.delayed = delayed
        self.needs_headers = bool(watched) or delayed is not None

    def is_current(self):
        """True if no binding or permission that decides the route has changed since it was made."""
        if self.revision != self.exchange.revision:
            return False
        return self.permission is None or self.permission_revision == self.permission.revision

    def count(self):
        """Count a message that was published to all ``queues``. Returns the number of queues."""
        count = len(self.queues)
        self.exchange.publish_in += 1
        if count:
            self.exchange.publish_out += count
        else:
            self.exchange.unroutable += 1
        return count


class RememberedRoutes:
    """Cache of the routes of one owner, a connection or delay queue. The owner chooses how keys are encoded.
    ``ask(key)`` makes a Route that the cache lacks; it returns None if such messages must take the general
    publish path. ``last``: the route found last, or None. ``last_key``: its key, which callers compare before
    they call ``find``.
    """

    __slots__ = ("last", "last_key", "ask", "routes", "most")

    def __init__(self, ask, most=ROUTES):
        self.ask = ask
        self.most = most
        self.routes = {}
        self.last = None
        self.last_key = b""

    def forget(self):
        self.routes = {}
        self.last = None
        self.last_key = b""

    def find(self, at, start, length):
        """Return the route for the key at ``at[start:start + length]``, or None (as for find_key)."""
        return self.find_key(octets.part(at, start, length))

    def find_key(self, key):
        """Return the route for this key; None: use the general publish path."""
        route = self.routes.get(key)
        if route is None or not route.is_current():
            route = self.ask(key)
            if route is None:
                self.last = None
                self.routes.pop(key, None)
                return None
            if len(self.routes) >= self.most:
                self.routes.clear()
            self.routes[key] = route
        self.last = route
        self.last_key = key
        return route


def to_all(message, route):
    """Publish the message to each destination of the route, in order. Returns ALL if all stored it.
    SOME_REFUSED: some refused it. Any other answer: a destination answered LATER, and the next were not
    tried; ``answer >> 1`` is its number, from 1; ``answer & 1`` is 1 if an earlier one refused.
    """
    refused = 0
    number = 0
    for destination in route.queues:
        number += 1
        answer = destination.publish(message)
        if answer != 1:
            if answer == LATER:
                return number << 1 | refused
            refused = SOME_REFUSED
    return refused
