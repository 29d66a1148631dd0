"""Bindings: keeps the bindings of a vhost's exchanges to queues and exchanges; checks bind and unbind.

A method checks everything first, then writes the definitions log, then changes the model. It never switches
greenlets.
"""
from base64 import urlsafe_b64encode
from collections import Counter
from functools import lru_cache
from operator import attrgetter
from urllib.parse import quote_plus

from gomq_py.broker.exchanges.exchange import Exchange
from gomq_py.broker.names import cleaned, described
from gomq_py.broker.signals import events as events_
from gomq_py.broker.topology_log import records
from gomq_py.digests import md5

_source_of = attrgetter("source")


class Bindings:
    """The bindings of one vhost, except the implicit ones of the default exchange.

    Methods that change durable bindings may raise OutOfResources.
    """

    def __init__(self, vhost, events):
        self._vhost = vhost
        self._events = events
        self._to = {}  # destination: {binding: None}

    def bind_queue(self, queue, exchange, routing_key, arguments=None, owner=None):
        """Do a queue.bind. Returns True if the binding is new. ``owner``: the client's connection, for
        exclusive queues. Raises NotFound, AccessRefused, PreconditionFailed, ResourceLocked.
        """
        source, destination = self._ends(exchange, queue, self._vhost.queue, owner)
        destination.check_binding_from(source)
        return self._bind(source, destination, routing_key, arguments or {})

    def bind_exchange(self, destination, source, routing_key, arguments=None):
        """Do an exchange.bind. Returns True if the binding is new. Raises NotFound, AccessRefused,
        PreconditionFailed.
        """
        self._vhost.check_not_default(cleaned(destination))
        exchange = self._vhost.exchange
        source, target = self._ends(source, destination, lambda name, _owner: exchange(name), None)
        return self._bind(source, target, routing_key, arguments or {})

    def unbind_queue(self, queue, exchange, routing_key, arguments=None, owner=None):
        """Do a queue.unbind. Returns False if binding, queue or exchange is missing. ``owner``: the client's
        connection, for exclusive queues. Raises AccessRefused, ResourceLocked.
        """
        self._vhost.check_not_default(cleaned(exchange))
        destination = self._vhost.queues.get(cleaned(queue))
        return self._unbind(exchange, destination, routing_key, arguments or {}, owner)

    def unbind_exchange(self, destination, source, routing_key, arguments=None):
        """Do an exchange.unbind. Returns False if binding or exchange is missing. Raises AccessRefused."""
        self._vhost.check_not_default(cleaned(source))
        self._vhost.check_not_default(cleaned(destination))
        target = self._vhost.exchanges.get(cleaned(destination))
        return self._unbind(source, target, routing_key, arguments or {})

    def attach(self, source, destination, routing_key, arguments=None):
        """Bind the exchange ``source`` to a Destination, without checks. Returns True if the binding is new.
        The destination may have no name. Raises OutOfResources or PreconditionFailed if a durable binding
        cannot be recorded.
        """
        return self._bind_checked(Binding(source, destination, routing_key, arguments))

    def detach(self, source, destination, routing_key, arguments=None):
        """Undo attach(). Returns True if the binding existed. Raises OutOfResources, PreconditionFailed."""
        binding = source.binding_of(identity_of(destination, routing_key, arguments))
        if binding is None:
            return False
        self._unbind_found(binding)
        return True

    def to(self, destination):
        """List all bindings to the queue or exchange ``destination``."""
        return list(self._to.get(destination, ()))

    # changes of the model, for the vhost and recovery

    def add(self, binding):
        """Add a binding that the caller has checked and recorded."""
        binding.source.bind(binding)
        self._to.setdefault(binding.destination, {})[binding] = None
        self._vhost.routes_changed(binding.source)

    def move(self, destination, again):
        """Replace all bindings to ``destination`` by bindings to ``again``, the reopened queue's object."""
        for binding in self._to.pop(destination, ()):
            binding.source.unbind(binding)
            self.add(Binding(binding.source, again, binding.routing_key, binding.arguments))

    def remove_from(self, exchange):
        """Remove the bindings of a deleted exchange, in slices if there are many."""
        bindings = exchange.bindings()

        def remove_one():
            if bindings:
                binding = bindings.pop()
                # it may have been removed with its destination
                if binding in self._to.get(binding.destination, ()):
                    self._remove(binding)
            return bool(bindings)

        bindings.reverse()
        self._vhost.in_slices(remove_one, "removing bindings")

    def remove_to(self, destination):
        """Remove all bindings to a deleted destination, in slices if there are many. The destination gets no
        message from this call on. Auto-delete exchanges without another binding are deleted.
        """
        bindings = list(self._to.pop(destination, ()))
        if not bindings:
            return
        bindings.reverse()
        sources = {}

        def remove_one():
            if bindings:
                binding = bindings.pop()
                sources[binding.source] = None
                binding.source.unbind(binding)
                self._events.emit("binding.deleted", events_.binding_made, binding)
            return bool(bindings)

        def part_with_rest():
            for source, count in Counter(map(_source_of, bindings)).items():
                source.part_with(destination, count)
                sources[source] = None

        self._vhost.in_slices(remove_one, "removing bindings", part_with_rest)
        for source in list(sources):
            self._vhost.routes_changed(source)
        self._vhost.delete_if_unused(list(sources))

    def forget(self, destination):
        """Forget the bindings to a destination that is deleted with its vhost."""
        self._to.pop(destination, None)

    def clear(self):
        self._to.clear()

    # helpers

    def _ends(self, source, destination, find_destination, owner):
        self._vhost.check_not_default(cleaned(source))
        return self._vhost.exchange(source), find_destination(destination, owner)

    def _bind(self, source, destination, routing_key, arguments):
        source.check_binding(routing_key, arguments)
        self._vhost.tables.check_table(
            f"arguments of a binding from {described('exchange', source.name, self._vhost.name)}", arguments
        )
        return self._bind_checked(Binding(source, destination, routing_key, arguments))

    def _bind_checked(self, binding):
        if binding.source.binding_of(binding.identity) is not None:
            return False
        if binding.durable:
            self._vhost.record(records.bound(binding))
        self.add(binding)
        self._events.emit("binding.created", events_.binding_made, binding)
        return True

    def _unbind(self, source_name, destination, routing_key, arguments, owner=None):
        source = self._vhost.exchanges.get(cleaned(source_name))
        if source is None or destination is None:
            return False
        binding = source.binding_of(identity_of(destination, routing_key, arguments))
        if binding is None:
            return False
        if not isinstance(destination, Exchange):
            self._vhost.check_access(destination, owner)
        self._unbind_found(binding)
        return True

    def _unbind_found(self, binding):
        if binding.durable:
            self._vhost.record(records.unbound(binding))
        self._remove(binding)
        self._vhost.delete_if_unused([binding.source])

    def _remove(self, binding):
        binding.source.unbind(binding)
        rest = self._to[binding.destination]
        del rest[binding]
        if not rest:
            del self._to[binding.destination]
        self._vhost.routes_changed(binding.source)
        self._events.emit("binding.deleted", events_.binding_made, binding)


class Binding:
    """A binding of ``source``, an Exchange, to ``destination``, a queue, an Exchange or another Destination.
    Two bindings of one source are the same if their ``identity`` is equal.
    """

    __slots__ = ("source", "destination", "routing_key", "arguments", "identity")

    def __init__(self, source, destination, routing_key, arguments=None):
        self.source = source
        self.destination = destination
        self.routing_key = routing_key
        self.arguments = arguments or {}
        self.identity = identity_of(destination, routing_key, self.arguments)

    @property
    def durable(self):
        """True if the binding outlives a restart, because both ends are durable."""
        return self.source.durable and self.destination.durable

    @property
    def destination_type(self):
        """"exchange" or, for any other destination, "queue"."""
        return "exchange" if isinstance(self.destination, Exchange) else "queue"

    @property
    def properties_key(self):
        """The binding's name in the API: encoded routing key and, with arguments, ``~`` and a digest."""
        if not self.arguments:
            return escaped(self.routing_key) or "~"
        digest = md5(
            repr(frozen(self.arguments)).encode("utf-8", "surrogateescape"), usedforsecurity=False
        ).digest()
        return f"{escaped(self.routing_key)}~{urlsafe_b64encode(digest).rstrip(b'=').decode()}"

    def __repr__(self):
        return (
            f"<Binding {self.source.name!r} -> {self.destination.name!r} by {self.routing_key!r} "
            f"{self.arguments or ''}>"
        )


def escaped(routing_key):
    """Percent-encode a routing key for a ``properties_key``, as RabbitMQ does: ``+`` for a space. Also
    encodes ``~``, which separates the routing key from the digest.
    """
    return quote_plus(routing_key, safe="", errors="surrogateescape").replace("~", "%7E")


def identity_of(destination, routing_key, arguments):
    """Return a hashable value that is equal for two bindings of one source if they are the same."""
    return (destination, routing_key, _same(frozen(arguments)) if arguments else ())


@lru_cache(64)
def _same(value):
    """Return the cached value that equals ``value``, so that bindings share equal arguments."""
    return value


def frozen(value):
    """Make a decoded field value hashable. Tables lose their order, and True differs from 1."""
    if isinstance(value, dict):
        return tuple(sorted(((key, frozen(item)) for key, item in value.items()), key=lambda entry: entry[0]))
    if isinstance(value, list):
        return ("array", *(frozen(item) for item in value))
    if isinstance(value, bool):
        return ("bool", value)
    return value
