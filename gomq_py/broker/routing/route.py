"""Routes: remember which destinations messages with one exchange and routing key reach. Also defines the
ExchangeState that each exchange has: counters, and the revision that routes are checked against.

The broker makes a route for a publisher. The fast lane of the publisher's connection remembers the route and
publishes each message to all destinations (to_all). Slow lanes use broker.verbs.publishing. Never switches.
"""
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
    """Has the numbers of an exchange that the fast lane uses for each message: the ``revision`` of its routes
    and counters of messages in, copies out, unroutable messages, and unroutable messages returned.

    Every change that may affect a route increments ``revision``; cached routes with an old revision are
    dropped when next used. A user's permissions, on which routes depend, too, also have an ExchangeState.
    """

    __slots__ = ("revision", "publish_in", "publish_out", "unroutable", "returned")

    def __init__(self):
        self.revision = self.publish_in = self.publish_out = self.unroutable = self.returned = 0


class Destination(_scheduler.TurnTaker):
    """The target of a route: a queue, or a sink without a store (direct reply-to, QoS 0 sessions, event
    exchanges). Takes one message at a time. When first touched in a read it joins the scheduler's list
    (hub.scheduler), for work done once per read, such as deliveries.

    ``unable``: the store caused the last refusal (a full disk, a fault), and the message may be accepted
    later. ``failed``: the store had a fault, so the last messages may not be on disk.
    """

    __slots__ = ("durable", "unable", "failed")

    # Whether it refuses messages that the broker sends on, such as dead letters and operators' moves.
    takes_publishes_only = False

    def __init__(self, name, durable=False):
        super().__init__(name)
        self.durable = durable
        self.unable = self.failed = False

    def publish(self, message):
        """Take one message, copying the needed parts. Returns 1: taken; 0: refused, and a confirming
        publisher is told; LATER: no effect, publish again after ``message.lacking(callback)`` has called
        back. Never raises because of the message.
        """
        return 0

    def next_store(self):
        """The durable store that will take the next message; None if there is no store or it is unknown."""
        return None

    def stores(self):
        """List the durable stores that may have its messages."""
        store = self.next_store()
        return [] if store is None else [store]

    def is_one_of(self, keys):
        """True if the key of one of this destination's durable stores is in ``keys``."""
        return any(store.key in keys for store in self.stores())

    def outlives_kill(self):
        """True if all durable messages that the destination has taken outlive a kill."""
        return True

    def is_outrun(self):
        """True if messages are published faster than the consumers can take messages."""
        return False

    def not_stored(self, error):
        """Refuse a message that publish() answered with LATER, because its files could not be made."""


class Route:
    """Remembers ``queues``, the Destinations that messages reach, each once. The route is valid until the
    exchange or the publisher's permission changes. Its users do not look at bindings, so only exchanges that
    route by the key, or also by one header or a delay, have routes.

    ``permission``: an ExchangeState that has only the revision of the publisher's rights, or None.
    ``watched``: a header's name as a short string; the route holds for messages with the same list (or no
    list) in that header; empty if headers do not matter. ``delayed``: the Route of delayed messages, or None.
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
        """True if nothing that the route was made from has changed."""
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
    """One connection's cache of routes, keyed by octets that its door defines. For an outdated or missing
    route it calls ``ask(key)``, which returns a Route, or None if such messages must take the slow lane.

    ``last``: the route found last, or None. ``last_key``: the key of ``last``; a lane compares it in place
    before it calls ``find``, because publishers stay with one key for long.
    """

    __slots__ = ("last", "last_key", "ask", "routes", "most")

    def __init__(self, ask, most=ROUTES):
        self.ask = ask
        self.most = most
        self.routes = {}
        self.last = None
        self.last_key = b""

    def forget(self):
        """Drop all routes."""
        self.routes = {}
        self.last = None
        self.last_key = b""

    def find(self, at, start, length):
        """The route for ``length`` octets at ``start`` of the buffer ``at``; None: use the slow lane."""
        # bytes() would cost 1000 instructions for an object that is bytes already.
        return self.find_key(b"" + at[start:start + length])

    def find_key(self, key):
        """The route for these octets; None: use the slow lane."""
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
    """Publish the message to each destination of the route, in order.

    Returns ALL if all destinations took it; SOME_REFUSED if some refused it; otherwise an ``answer`` from 2
    on: destination number ``answer >> 1``, counted from 1, answered LATER, later destinations were not asked,
    and ``answer & 1`` is 1 if an earlier destination refused it.
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
