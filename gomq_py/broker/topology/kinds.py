"""Kinds: which exchanges and queues this broker has, and what is there in each vhost from the start.

Made by whoever builds the broker (node, gomq-py-ctl for a folder that no broker holds), who may register more
kinds before the first vhost is made: a door that keeps its clients' state in queues has a kind of queue for
it. Given to vhosts, the queue factory, recovery and exports, which know no kind by its name.

Below vhosts and the queue factory, above exchanges and queues.
"""
from collections.abc import Callable
from dataclasses import dataclass
from typing import Any, NamedTuple

from gomq_py.broker.exchanges.types import EXCHANGE_TYPES, PREDECLARED
from gomq_py.broker.features import consumer_timeout
from gomq_py.broker.features.arguments import CLASSIC, QUORUM, STREAM, queue_type_of
from gomq_py.broker.features.table import POLICY_KEYS
from gomq_py.broker.queues.queue import Queue
from gomq_py.errors import UnknownType

# Keys of policies that mean nothing for streams; what a consumer may take its time for is its channel's
# affair.
_NOT_OF_STREAMS = frozenset(
    key for key, row in POLICY_KEYS.items() if STREAM not in row.kinds) - {consumer_timeout.POLICY_KEY}


class Parts(NamedTuple):
    """What the maker of a kind of queue is given. ``store`` is None where it could not be opened: then the
    queue is closed when it is made.
    """

    name: str
    vhost: str
    store: Any
    scheduler: Any
    timers: Any
    durable: bool
    owner: Any
    auto_delete: bool
    arguments: dict


@dataclass(frozen=True, slots=True, kw_only=True)
class QueueKind:
    """A kind of queue: its ``name`` in x-queue-type, and ``make(parts)``, which returns the Queue for Parts.

    ``declarable``: clients may declare one; of other kinds only ``VHost.create_queue`` makes any.
    ``is_state``: what it holds comes and goes with somebody's clients, so that exports leave it out and the
    default exchange does not lead to it; the log keeps it. ``left_out``: keys of policies that mean nothing
    for it.
    """

    name: str
    make: Callable[[Parts], Queue]
    declarable: bool = False
    is_state: bool = False
    left_out: frozenset[str] = frozenset()


class Kinds:
    """The kinds of one broker.

    ``predeclared``: (name, type, internal) of exchanges that every vhost has, durable, in every run.
    ``reserved_prefixes``: of names that clients cannot give to new queues and exchanges, besides ``amq.``.
    ``components``: {component of parameters: Component} (broker.policies.parameters) that comes with them.
    """

    def __init__(self):
        self._exchange_types = dict(EXCHANGE_TYPES)
        self._not_declarable = set()
        self._queue_kinds = {}
        self._on_vhost = []
        self._on_vhost_gone = []
        self._on_exchange = []
        self._on_policies = []
        self.components = {}
        self._stores = {}
        self.predeclared = list(PREDECLARED)
        self.reserved_prefixes: tuple[str, ...] = ()
        for kind in (
            QueueKind(name=CLASSIC, make=_plain_queue, declarable=True),
            QueueKind(name=QUORUM, make=_plain_queue, declarable=True),
            QueueKind(name=STREAM, make=_stream, declarable=True, left_out=_NOT_OF_STREAMS),
        ):
            self.add_queue_kind(kind)

    # for whoever builds the broker, before the first vhost is made

    def add_exchange_type(self, kind, declarable=False):
        """Register a class of exchanges under its ``type``. Clients declare none unless ``declarable``."""
        assert kind.type not in self._exchange_types, kind.type
        self._exchange_types[kind.type] = kind
        if not declarable:
            self._not_declarable.add(kind.type)

    def add_queue_kind(self, kind):
        """Register a QueueKind."""
        assert kind.name not in self._queue_kinds, kind.name
        self._queue_kinds[kind.name] = kind

    def predeclare(self, name, type_, internal=False):
        """Every vhost has this exchange."""
        self.predeclared.append((name, type_, internal))

    def reserve(self, prefix):
        """Keep new names with this prefix from clients."""
        self.reserved_prefixes += (prefix,)

    def on_vhost(self, made, gone=None):
        """Call ``made(vhost)`` with each vhost when its predeclared exchanges are there and nothing else is:
        a new one, or one that is about to be recovered; ``gone(vhost)`` when all that was in one that is
        deleted has gone. They must not switch.
        """
        self._on_vhost.append(made)
        if gone is not None:
            self._on_vhost_gone.append(gone)

    def on_exchange(self, added):
        """Call ``added(vhost, exchange)`` with each exchange when it is in place, predeclared ones and those
        of an earlier run among them. It must not switch.
        """
        self._on_exchange.append(added)

    def on_policies(self, told):
        """Call ``told(vhost, entity)`` with each queue and exchange whose policies in force have been looked
        at: new ones, those of an earlier run, and all when policies change. It must not switch.
        """
        self._on_policies.append(told)

    def add_component(self, component, handler):
        """Have a Component (broker.policies.parameters) for the parameters of this name. It hears of those of
        an earlier run when all vhosts are there.
        """
        self.components[component] = handler

    def add_store(self, name, opened):
        """Each vhost may keep a store of its own under this name (OwnStores.make), beside those of queues.

        ``opened(vhost, store)`` is called at boot with that of an earlier run, when all else of the vhost is
        there, the stores that were added before it included; None where it cannot be opened. It must not
        switch.
        """
        assert name not in self._stores, name
        self._stores[name] = opened

    # for vhosts, the queue factory, recovery and exports

    def vhost_made(self, vhost):
        """Tell whoever asked to hear of it."""
        for made in self._on_vhost:
            made(vhost)

    def vhost_gone(self, vhost):
        """Likewise."""
        for gone in self._on_vhost_gone:
            gone(vhost)

    def exchange_added(self, vhost, exchange):
        """Tell whoever asked to hear of it."""
        for added in self._on_exchange:
            added(vhost, exchange)

    def policies_looked_at(self, vhost, entity):
        """Likewise."""
        for told in self._on_policies:
            told(vhost, entity)

    def store_opened(self, name):
        """Who wants a vhost's own store of this name at boot. Raises LookupError."""
        return self._stores[name]

    def stores_in_order(self, by_name):
        """{name: what is known of it} in the order in which the stores were added here, others last."""
        ours = {name: by_name[name] for name in self._stores if name in by_name}
        return {**ours, **by_name}

    def exchange_type(self, name):
        """The class for a type's name. Raises UnknownType (which closes the connection, as in RabbitMQ)."""
        kind = self._exchange_types.get(name)
        if kind is None:
            raise _unknown_exchange_type(name)
        return kind

    def declarable_exchange_type(self, name):
        """As exchange_type, for a client: it does not know of types that it cannot declare."""
        if name in self._not_declarable:
            raise _unknown_exchange_type(name)
        return self.exchange_type(name)

    def queue_kind(self, arguments):
        """The QueueKind that these arguments ask for. Raises UnknownType."""
        name = queue_type_of(arguments)
        kind = self._queue_kinds.get(name)
        if kind is None:
            raise UnknownType(f"unknown queue type '{name}'")
        return kind

    def left_out(self, name):
        """Keys of policies that mean nothing for queues of this type, and for exchanges none."""
        kind = self._queue_kinds.get(name)
        return frozenset() if kind is None else kind.left_out

    def is_state(self, arguments):
        """Whether a queue of these arguments is the state of somebody's clients, and no definition. False for
        a kind that is not known.
        """
        kind = self._queue_kinds.get(queue_type_of(arguments))
        return kind is not None and kind.is_state


def _unknown_exchange_type(name):
    return UnknownType(f"unknown exchange type '{name}'" if name else "invalid exchange type ''")


def _plain_queue(parts):
    return Queue(
        parts.name, parts.vhost, parts.store, parts.scheduler, parts.durable, parts.owner, parts.auto_delete,
        parts.arguments,
    )


def _stream(parts):
    from gomq_py.broker.queues.stream_queue import StreamQueue  # of which a broker may have none

    return StreamQueue(parts.name, parts.vhost, parts.store, parts.scheduler, parts.timers, parts.arguments)
