"""Kinds: the register of exchange types, queue types, predeclared exchanges and callbacks of one broker.

The code that builds the broker (node, or gomq-py-ctl for a folder without a broker) makes the Kinds. Servers
that keep clients' state in queues, such as MQTT, may register more before the first vhost is made. Vhosts,
the queue factory, recovery and exports find the classes of types in the Kinds.
"""
from collections.abc import Callable
from dataclasses import dataclass
from typing import Any, NamedTuple

from gomq_py.broker.exchanges.types import EXCHANGE_TYPES, PREDECLARED
from gomq_py.broker.features import consumer_timeout
from gomq_py.broker.features.arguments import CLASSIC, QUORUM, STREAM, queue_type_of
from gomq_py.broker.features.message_group import group_of
from gomq_py.broker.features.table import POLICY_KEYS
from gomq_py.broker.queues.queue import Queue, QuorumQueue
from gomq_py.errors import UnknownType

# Policy keys without meaning for streams; channels apply the consumer timeout.
_NOT_OF_STREAMS = frozenset(
    key for key, row in POLICY_KEYS.items() if STREAM not in row.kinds) - {consumer_timeout.POLICY_KEY}


class Parts(NamedTuple):
    """Arguments of QueueKind.make. ``store``: None if it cannot be opened; the queue is then closed."""

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
    """A queue type: its ``name`` in x-queue-type, and ``make(parts)``, which returns a Queue.

        declarable    clients may declare such queues; otherwise only ``VHost.create_queue`` makes them
        is_state      such queues hold state of clients (MQTT sessions): they are not exported, and the
                      default exchange does not reach them
        left_out      policy keys without meaning for such queues
    """

    name: str
    make: Callable[[Parts], Queue]
    declarable: bool = False
    is_state: bool = False
    left_out: frozenset[str] = frozenset()


class Kinds:
    """The register of one broker. ``predeclared``: (name, type, internal) of the durable exchanges that every
    vhost has. ``reserved_prefixes``: prefixes of names that clients may not create, besides ``amq.``.
    ``components``: {name: Component} of parameters (broker.policies.parameters).
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
            QueueKind(name=QUORUM, make=_quorum_queue, declarable=True),
            QueueKind(name=STREAM, make=_stream, declarable=True, left_out=_NOT_OF_STREAMS),
        ):
            self.add_queue_kind(kind)

    # registration, before the first vhost is made

    def add_exchange_type(self, kind, declarable=False):
        """Register a class under its ``type``. ``declarable``: clients may declare such exchanges."""
        assert kind.type not in self._exchange_types, kind.type
        self._exchange_types[kind.type] = kind
        if not declarable:
            self._not_declarable.add(kind.type)

    def add_queue_kind(self, kind):
        assert kind.name not in self._queue_kinds, kind.name
        self._queue_kinds[kind.name] = kind

    def predeclare(self, name, type_, internal=False):
        """Make every new vhost have a durable exchange of this name and type."""
        self.predeclared.append((name, type_, internal))

    def reserve(self, prefix):
        """Forbid clients to create exchanges and queues whose names begin with ``prefix``."""
        self.reserved_prefixes += (prefix,)

    def on_vhost(self, made, gone=None):
        """Call ``made(vhost)`` for each vhost that is created or recovered, and ``gone(vhost)`` for each
        deleted one. ``made`` gets a vhost with only its predeclared exchanges, ``gone`` an empty one. Neither
        function may switch greenlets.
        """
        self._on_vhost.append(made)
        if gone is not None:
            self._on_vhost_gone.append(gone)

    def on_exchange(self, added):
        """Call ``added(vhost, exchange)`` for each new or recovered exchange. Must not switch greenlets."""
        self._on_exchange.append(added)

    def on_policies(self, told):
        """Call ``told(vhost, entity)`` when the policies that apply to a queue or exchange were computed.
        That is when the entity is added, and at each change of policies. Must not switch greenlets.
        """
        self._on_policies.append(told)

    def add_component(self, component, handler):
        """Register ``handler``, a Component, for the parameters of ``component``. At boot it gets the stored
        parameters when all vhosts exist.
        """
        self.components[component] = handler

    def add_store(self, name, opened):
        """Let vhosts have a message store of this name (OwnStores.make), besides the stores of queues.

        At boot ``opened(vhost, store)``, which must not switch greenlets, gets the store of an earlier run,
        or None if it cannot be opened. All other entities of the vhost, and stores registered earlier, are
        open by then.
        """
        assert name not in self._stores, name
        self._stores[name] = opened

    # for vhosts, the queue factory, recovery and exports

    def vhost_made(self, vhost):
        for made in self._on_vhost:
            made(vhost)

    def vhost_gone(self, vhost):
        for gone in self._on_vhost_gone:
            gone(vhost)

    def exchange_added(self, vhost, exchange):
        for added in self._on_exchange:
            added(vhost, exchange)

    def policies_looked_at(self, vhost, entity):
        for told in self._on_policies:
            told(vhost, entity)

    def store_opened(self, name):
        """Return the function ``opened`` given to add_store() for this name. Raises LookupError."""
        return self._stores[name]

    def stores_in_order(self, by_name):
        """Return a copy of the dict ``by_name`` in the order of the add_store() calls, unknown names last."""
        ours = {name: by_name[name] for name in self._stores if name in by_name}
        return {**ours, **by_name}

    def exchange_type(self, name):
        """Return the class for the name of an exchange type. Raises UnknownType."""
        kind = self._exchange_types.get(name)
        if kind is None:
            raise _unknown_exchange_type(name)
        return kind

    def declarable_exchange_type(self, name):
        """Return the class for an exchange type that clients may declare. Raises UnknownType."""
        if name in self._not_declarable:
            raise _unknown_exchange_type(name)
        return self.exchange_type(name)

    def queue_kind(self, arguments):
        """Return the QueueKind for the x-queue-type in a queue's arguments. Raises UnknownType."""
        name = queue_type_of(arguments)
        kind = self._queue_kinds.get(name)
        if kind is None:
            raise UnknownType(f"unknown queue type '{name}'")
        return kind

    def left_out(self, name):
        """Return the policy keys without meaning for the queue type ``name``; empty for exchanges."""
        kind = self._queue_kinds.get(name)
        return frozenset() if kind is None else kind.left_out

    def is_state(self, arguments):
        """True if these are arguments of queues that hold MQTT sessions. False for an unknown type."""
        kind = self._queue_kinds.get(queue_type_of(arguments))
        return kind is not None and kind.is_state


def _unknown_exchange_type(name):
    return UnknownType(f"unknown exchange type '{name}'" if name else "invalid exchange type ''")


def _plain_queue(parts, kind=Queue):
    if group_of(parts.arguments) is not None:
        # imported here: few queues have groups
        from gomq_py.broker.queues.group_queue import GroupQueue as kind

    return kind(
        parts.name, parts.vhost, parts.store, parts.scheduler, parts.durable, parts.owner, parts.auto_delete,
        parts.arguments,
    )


def _quorum_queue(parts):
    return _plain_queue(parts, QuorumQueue)


def _stream(parts):
    from gomq_py.broker.queues.stream_queue import StreamQueue  # imported here: a broker may have no stream

    return StreamQueue(parts.name, parts.vhost, parts.store, parts.scheduler, parts.timers, parts.arguments)
