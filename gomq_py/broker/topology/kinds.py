"""Kinds: this broker's kinds of exchanges and queues, and what each vhost has from the start.

The code that builds the broker (node; gomq-py-ctl for a folder without a broker) makes the Kinds, and may
register more kinds before the first vhost is made: a door with client state in queues has its own. Vhosts,
the queue factory, recovery and exports get the Kinds, and know no kind by name.

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

# Policy keys without meaning for streams; channels apply the consumer timeout.
_NOT_OF_STREAMS = frozenset(
    key for key, row in POLICY_KEYS.items() if STREAM not in row.kinds) - {consumer_timeout.POLICY_KEY}


class Parts(NamedTuple):
    """Arguments of a queue kind's maker. ``store`` None: it could not be opened, and the queue is closed."""

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

    ``declarable``: clients may declare it; other kinds are made by ``VHost.create_queue`` only. ``is_state``:
    it holds state of clients (MQTT sessions): not exported and not reachable by the default exchange, but in
    the log. ``left_out``: policy keys without meaning for it.
    """

    name: str
    make: Callable[[Parts], Queue]
    declarable: bool = False
    is_state: bool = False
    left_out: frozenset[str] = frozenset()


class Kinds:
    """The kinds of one broker.

    ``predeclared``: (name, type, internal) of durable exchanges of every vhost. ``reserved_prefixes``:
    prefixes of names that clients cannot create, besides ``amq.``. ``components``: {component of parameters:
    Component} (broker.policies.parameters) added by kinds.
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

    # registration, before the first vhost is made

    def add_exchange_type(self, kind, declarable=False):
        """Register a class of exchanges under its ``type``; clients may declare it if ``declarable``."""
        assert kind.type not in self._exchange_types, kind.type
        self._exchange_types[kind.type] = kind
        if not declarable:
            self._not_declarable.add(kind.type)

    def add_queue_kind(self, kind):
        """Register a QueueKind."""
        assert kind.name not in self._queue_kinds, kind.name
        self._queue_kinds[kind.name] = kind

    def predeclare(self, name, type_, internal=False):
        """Give every vhost this exchange."""
        self.predeclared.append((name, type_, internal))

    def reserve(self, prefix):
        """Forbid clients to create names with this prefix."""
        self.reserved_prefixes += (prefix,)

    def on_vhost(self, made, gone=None):
        """Call ``made(vhost)`` with each new or recovered vhost when it has its predeclared exchanges and
        nothing else, and ``gone(vhost)`` when a deleted vhost is completely gone. They must not switch.
        """
        self._on_vhost.append(made)
        if gone is not None:
            self._on_vhost_gone.append(gone)

    def on_exchange(self, added):
        """Call ``added(vhost, exchange)`` with each exchange in place, including predeclared and recovered
        ones. It must not switch.
        """
        self._on_exchange.append(added)

    def on_policies(self, told):
        """Call ``told(vhost, entity)`` with each queue and exchange after its policies in force were
        computed: with new and recovered ones, and with all when policies change. It must not switch.
        """
        self._on_policies.append(told)

    def add_component(self, component, handler):
        """Add a Component (broker.policies.parameters) of this name. It gets parameters of an earlier run
        when all vhosts exist.
        """
        self.components[component] = handler

    def add_store(self, name, opened):
        """Let each vhost keep its own store of this name (OwnStores.make), besides those of queues.

        At boot ``opened(vhost, store)`` is called with an earlier run's store (None: it cannot be opened),
        when everything else of the vhost exists, including stores added earlier. It must not switch.
        """
        assert name not in self._stores, name
        self._stores[name] = opened

    # for vhosts, the queue factory, recovery and exports

    def vhost_made(self, vhost):
        """Call the functions given to on_vhost()."""
        for made in self._on_vhost:
            made(vhost)

    def vhost_gone(self, vhost):
        """Call the functions given to on_vhost()."""
        for gone in self._on_vhost_gone:
            gone(vhost)

    def exchange_added(self, vhost, exchange):
        """Call the functions given to on_exchange()."""
        for added in self._on_exchange:
            added(vhost, exchange)

    def policies_looked_at(self, vhost, entity):
        """Call the functions given to on_policies()."""
        for told in self._on_policies:
            told(vhost, entity)

    def store_opened(self, name):
        """The ``opened`` of add_store() for this name. Raises LookupError."""
        return self._stores[name]

    def stores_in_order(self, by_name):
        """``by_name`` in the order of add_store(), unknown stores last."""
        ours = {name: by_name[name] for name in self._stores if name in by_name}
        return {**ours, **by_name}

    def exchange_type(self, name):
        """The class for an exchange type's name. Raises UnknownType, which closes the connection."""
        kind = self._exchange_types.get(name)
        if kind is None:
            raise _unknown_exchange_type(name)
        return kind

    def declarable_exchange_type(self, name):
        """As exchange_type(), for clients: types that they cannot declare are unknown."""
        if name in self._not_declarable:
            raise _unknown_exchange_type(name)
        return self.exchange_type(name)

    def queue_kind(self, arguments):
        """The QueueKind named by these arguments. Raises UnknownType."""
        name = queue_type_of(arguments)
        kind = self._queue_kinds.get(name)
        if kind is None:
            raise UnknownType(f"unknown queue type '{name}'")
        return kind

    def left_out(self, name):
        """Policy keys without meaning for queues of this type; none for exchanges."""
        kind = self._queue_kinds.get(name)
        return frozenset() if kind is None else kind.left_out

    def is_state(self, arguments):
        """True if a queue with these arguments holds state of clients. False for an unknown kind."""
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
    from gomq_py.broker.queues.stream_queue import StreamQueue  # imported here: a broker may have no stream

    return StreamQueue(parts.name, parts.vhost, parts.store, parts.scheduler, parts.timers, parts.arguments)
