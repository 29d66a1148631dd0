"""Bindings: from which exchanges of a vhost messages lead where, and every rule about binding and unbinding.

Beside vhost, above exchanges and the log of definitions. As a verb of the vhost, each checks everything
first, then writes the log, then changes the model, all without yielding.
"""
from collections import Counter
from operator import attrgetter

from gomq_py.broker.exchanges.exchange import Exchange
from gomq_py.broker.names import cleaned, described
from gomq_py.broker.signals import events as events_
from gomq_py.broker.topology.binding import Binding, identity_of
from gomq_py.broker.topology_log import records

_source_of = attrgetter("source")


class Bindings:
    """Those of one vhost, without the default exchange's. ``events`` hears what comes and goes."""

    def __init__(self, vhost, events):
        self._vhost = vhost
        self._events = events
        self._to = {}  # destination: {binding: None}

    def bind_queue(self, queue, exchange, routing_key, arguments=None, owner=None):
        """queue.bind, names given.

        Returns whether the binding is new. Raises NotFound, AccessRefused, PreconditionFailed,
        ResourceLocked.
        """
        source, destination = self._ends(exchange, queue, self._vhost.queue, owner)
        destination.check_binding_from(source)
        return self._bind(source, destination, routing_key, arguments or {})

    def bind_exchange(self, destination, source, routing_key, arguments=None):
        """exchange.bind, names given.

        Returns whether the binding is new. Raises NotFound, AccessRefused, PreconditionFailed.
        """
        self._vhost.check_not_default(cleaned(destination))
        exchange = self._vhost.exchange
        source, target = self._ends(source, destination, lambda name, _owner: exchange(name), None)
        return self._bind(source, target, routing_key, arguments or {})

    def unbind_queue(self, queue, exchange, routing_key, arguments=None, owner=None):
        """queue.unbind; of a missing queue, exchange or binding too.

        Returns whether there was one. Raises AccessRefused, ResourceLocked.
        """
        self._vhost.check_not_default(cleaned(exchange))
        destination = self._vhost.queues.get(cleaned(queue))
        return self._unbind(exchange, destination, routing_key, arguments or {}, owner)

    def unbind_exchange(self, destination, source, routing_key, arguments=None):
        """exchange.unbind; of a missing exchange or binding too.

        Returns whether there was one. Raises AccessRefused.
        """
        self._vhost.check_not_default(cleaned(source))
        self._vhost.check_not_default(cleaned(destination))
        target = self._vhost.exchanges.get(cleaned(destination))
        return self._unbind(source, target, routing_key, arguments or {})

    def attach(self, source, destination, routing_key, arguments=None):
        """Bind a Destination, which may have no name, to an exchange, for those who know that they may: the
        binding is not checked.

        Returns whether it is new. Raises OutOfResources, PreconditionFailed where it is durable and cannot be
        recorded.
        """
        return self._bind_checked(Binding(source, destination, routing_key, arguments))

    def detach(self, source, destination, routing_key, arguments=None):
        """Undo one attach(). Returns whether there was such a binding. Raises as attach() does."""
        binding = source.binding_of(identity_of(destination, routing_key, arguments))
        if binding is None:
            return False
        self._unbind_found(binding)
        return True

    def to(self, destination):
        """Every binding that leads to a queue or exchange."""
        return list(self._to.get(destination, ()))

    # changing the model, for the vhost and recovery

    def add(self, binding):
        """Put a checked binding into place."""
        binding.source.bind(binding)
        self._to.setdefault(binding.destination, {})[binding] = None
        self._vhost.routes_changed(binding.source)

    def move(self, destination, again):
        """Those to a destination lead to another one from now on, which has its name."""
        for binding in self._to.pop(destination, ()):
            binding.source.unbind(binding)
            self.add(Binding(binding.source, again, binding.routing_key, binding.arguments))

    def remove_from(self, exchange):
        """An exchange is gone, and nothing is routed through it any more: remove its bindings, in slices
        where they are very many.
        """
        bindings = exchange.bindings()

        def remove_one():
            if bindings:
                binding = bindings.pop()
                # it may have gone with its destination
                if binding in self._to.get(binding.destination, ()):
                    self._remove(binding)
            return bool(bindings)

        bindings.reverse()
        self._vhost.in_slices(remove_one, "removing bindings")

    def remove_to(self, destination):
        """A destination is gone, which nobody can bind again: remove every binding to it, and the auto-delete
        exchanges that had no other.

        From now on nothing is routed there and nobody is shown them; where they are very many exchanges
        forget them in slices.
        """
        bindings = list(self._to.pop(destination, ()))
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
        """It goes with its vhost."""
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
