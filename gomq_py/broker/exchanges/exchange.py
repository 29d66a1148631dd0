"""Exchange: keeps bindings and finds those that match a message. Each type is a subclass in its own file.

``broker.exchanges.types`` lists the types. Only the vhost changes an exchange: it keeps both ends of a
binding consistent, and follows bindings between exchanges. An exchange matches its own bindings only. Never
switches greenlets, never stores.
"""
from typing import Any

from gomq_py.broker.policies.policy import UNDER_NONE
from gomq_py.broker.routing.route import ExchangeState


class Exchange:
    """An exchange in the vhost named ``vhost``.

        state           the ExchangeState with its counters and the revision that cached routes are checked
                        against
        needs_headers   routing depends on more than the routing key, so routes by key alone are not cached
        watched_list    name of a header if, besides the key, only the list in this header decides; then a
                        route is cached for each key and list. Otherwise None
        predeclared     exists in every run, cannot be deleted, and is in no log and no export
        departed        {deleted destination, which gets no messages: count of its bindings yet to remove}
    """

    type = ""
    needs_headers = False
    watched_list: Any = None
    needs_properties = False  # match() needs headers from routing.with_properties()
    delays = False
    delayed_store: Any = None  # DelayQueue of an exchange that delays

    def __init__(self, name, vhost, durable=False, auto_delete=False, internal=False, arguments=None):
        self.name = name
        self.vhost = vhost
        self.durable = durable
        self.auto_delete = auto_delete
        self.internal = internal
        self.arguments = arguments or {}
        self.alternate = None  # from the arguments or a policy; set by the vhost
        self.onward = None  # an exchange that gets all messages of this one; set by the vhost
        self.deduplication = None  # ExchangeIds; set by the vhost
        self.in_force = UNDER_NONE  # InForce; set by the vhost
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
        """List the bindings from this exchange, in the order in which they were made."""
        if self.departed:
            return [
                binding for binding in self._bindings.values() if binding.destination not in self.departed
            ]
        return list(self._bindings.values())

    def binding_of(self, identity):
        """Return the binding with this ``identity`` (topology.bindings.identity_of), or None."""
        return self._bindings.get(identity)

    def bind(self, binding):
        """Add a binding that has passed ``check_binding``. Returns False if the binding exists already."""
        if binding.identity in self._bindings:
            return False
        self._bindings[binding.identity] = binding
        self._added(binding)
        return True

    def unbind(self, binding):
        del self._bindings[binding.identity]
        if self.departed and binding.destination in self.departed:
            self.departed[binding.destination] -= 1
            if not self.departed[binding.destination]:
                del self.departed[binding.destination]
            self._removed_departed(binding)
        else:
            self._removed(binding)

    def part_with(self, destination, count):
        """Route no more to a deleted destination. The vhost then removes its ``count`` bindings in slices."""
        self.departed[destination] = count

    # defined by kinds

    def set_defaults(self, defaults):
        """Apply ``defaults`` (a dict) to arguments that are not set. Called before the first binding."""

    @staticmethod
    def check_arguments(entity, arguments):
        """Raise PreconditionFailed for invalid arguments; ``entity`` names the exchange in error texts."""

    def check_binding(self, routing_key, arguments):
        """Raise PreconditionFailed if this exchange type cannot match such a binding."""

    def asks_for(self, binding):
        """Return (routing key, arguments) with which federation binds in the upstream broker, to get the
        messages that ``binding`` matches here.
        """
        return binding.routing_key, binding.arguments

    def match(self, routing_key, headers, targets):
        """Add the destination of every matching binding to the dict ``targets``. ``headers`` may be None."""
        raise NotImplementedError

    def _added(self, binding):
        """Called when a binding was added: subclasses add it to their index."""

    def _removed(self, binding):
        """Called when a binding was removed: subclasses remove it from their index."""

    def _removed_departed(self, binding):
        """Called when a binding to a deleted destination was removed. Subclasses whose part_with() has
        updated the index already override this.
        """
        self._removed(binding)
