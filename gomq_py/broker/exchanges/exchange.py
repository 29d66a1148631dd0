"""Exchange: bindings and one matching rule. Kinds are subclasses, one per file; ``broker.exchanges.types``
names them.

Below broker.vhost, which keeps both ends of a binding in step and walks from exchange to exchange; an
exchange only says which of its own bindings match. Changes only when its vhost says so. Never yields, never
stores.
"""
from typing import Any

from gomq_py.broker.exchanges.state import ExchangeState
from gomq_py.broker.policies.policy import UNDER_NONE


class Exchange:
    """An exchange of ``vhost`` (its name). ``state`` counts and carries the revision that cached routes are
    checked against.

    ``needs_headers``: what it routes depends on more than the routing key, so its routes are not cached, or
    by the header of the name ``watched_list`` as well: on that one alone it depends, where it holds a list.
    ``predeclared``: it is there in every run and cannot be deleted, and so stands in no log and no export.
    ``departed``: destinations that are gone and of whose bindings so many have still to be unbound; nothing
    is routed to them, whatever match() says.
    """

    type = ""
    needs_headers = False
    watched_list: Any = None
    needs_properties = False  # routing.with_properties() is wanted for match()
    delayed_store: Any = None  # of what is to be routed later; the delayed exchange has one

    def __init__(self, name, vhost, durable=False, auto_delete=False, internal=False, arguments=None):
        self.name = name
        self.vhost = vhost
        self.durable = durable
        self.auto_delete = auto_delete
        self.internal = internal
        self.arguments = arguments or {}
        self.alternate = None  # set by the vhost: from the arguments or a policy
        self.onward = None  # an exchange that gets all that this one gets, set by the vhost
        self.deduplication = None  # ExchangeIds, set by the vhost likewise
        self.in_force = UNDER_NONE  # policies, set by the vhost
        self.predeclared = False  # set by the vhost
        self.state = ExchangeState()
        self._bindings = {}
        self.departed = {}

    def __repr__(self):
        return f"<{type(self).__name__} {self.name!r} in {self.vhost!r}, {len(self._bindings)} bindings>"

    # bindings

    @property
    def binding_count(self):
        return len(self._bindings) - sum(self.departed.values())

    def bindings(self):
        """Every binding from this exchange, in the order they were made."""
        if self.departed:
            return [
                binding for binding in self._bindings.values() if binding.destination not in self.departed
            ]
        return list(self._bindings.values())

    def find(self, identity):
        """The binding of this identity (``binding.identity_of``), or None."""
        return self._bindings.get(identity)

    def bind(self, binding):
        """Add a binding. False: it was there already. ``check_binding`` has passed it before."""
        if binding.identity in self._bindings:
            return False
        self._bindings[binding.identity] = binding
        self._added(binding)
        return True

    def unbind(self, binding):
        """Remove a binding this exchange has."""
        del self._bindings[binding.identity]
        if self.departed and binding.destination in self.departed:
            self._unbind_departed(binding)
        else:
            self._removed(binding)

    def part_with(self, destination, count):
        """``destination`` is gone, to which ``count`` bindings lead from here.

        Nothing is routed to it from now on; the caller unbinds them in slices.
        """
        self.departed[destination] = count

    def _unbind_departed(self, binding):
        self.departed[binding.destination] -= 1
        if not self.departed[binding.destination]:
            del self.departed[binding.destination]
        self._removed_departed(binding)

    # what kinds define

    def set_defaults(self, defaults):
        """Take the broker's defaults (a dict) for what the arguments leave open. Called before anything is
        bound.
        """

    @staticmethod
    def check_arguments(entity, arguments):
        """Refuse arguments that this kind cannot use; ``entity`` names the exchange in error texts.

        Raises PreconditionFailed.
        """

    def check_binding(self, routing_key, arguments):
        """Refuse a binding that this kind cannot match. Raises PreconditionFailed."""

    def asks_for(self, binding):
        """(routing key, arguments) of what a binding of this exchange asks for, as another exchange of the
        same vhost that hands on to this one, or of another broker, would be asked.
        """
        return binding.routing_key, binding.arguments

    def match(self, routing_key, headers, targets):
        """Add to the keys of the dict ``targets``, which keeps their order, every destination, queue or
        exchange, of a binding that matches. ``headers`` may be None.
        """
        raise NotImplementedError

    def _added(self, binding):
        """Index a new binding."""

    def _removed(self, binding):
        """Forget a removed binding."""

    def _removed_departed(self, binding):
        """Forget a removed binding whose destination part_with() was told of."""
        self._removed(binding)


class KeyedExchange(Exchange):
    """Keeps destinations by routing key. A destination bound to one key several times, with different
    arguments, is there once and counted.
    """

    def __init__(self, *args, **options):
        super().__init__(*args, **options)
        self._by_key = {}

    def _added(self, binding):
        destinations = self._by_key.setdefault(binding.routing_key, {})
        destinations[binding.destination] = destinations.get(binding.destination, 0) + 1

    def _removed(self, binding):
        destinations = self._by_key[binding.routing_key]
        destinations[binding.destination] -= 1
        if not destinations[binding.destination]:
            del destinations[binding.destination]
            if not destinations:
                del self._by_key[binding.routing_key]
