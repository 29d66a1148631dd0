"""Bindings of a federated exchange, as they are to be upstream, and what has to be done for that.

Several bindings here that ask for the same are one there. A binding that was made here for a broker further
down goes on upstream with one hop less, and not to a broker that it was made for: so bindings spread through
a ring of brokers, and stop.
"""
from typing import Any

from gomq_py.broker.exchanges.federation_upstream import BOUND_FROM, CLUSTER_NAME, VHOST, has_passed
from gomq_py.broker.topology.binding import frozen
from gomq_py.content.fields import Int16

# How many more brokers a binding is made at, in what it says of the broker it was made for.
HOPS = "hops"
MOST_HOPS = 32767  # it has 16 bits


class Bindings:
    """What the bindings of an exchange ask for, each once, and what of that there is upstream.

    ``on_change()`` is called when something is to be done there.
    """

    def __init__(self, exchange, on_change):
        self._on_change = on_change
        self._asked: dict = {}  # identity: (routing key, arguments, {who gets it})
        self._there: dict = {}  # identity: (routing key, arguments), of bindings that were made upstream
        self._changed: dict = {}  # identities of which the two may differ, as keys, in order
        for binding in [
            *exchange.bindings(), *(exchange.onward.bindings() if exchange.onward is not None else ())
        ]:
            self.made(binding)

    def made(self, binding):
        """There is a binding more, of the exchange or of the one that it hands on to."""
        routing_key, arguments = binding.source.asks_for(binding)
        identity = routing_key, frozen(arguments)
        asked = self._asked.get(identity)
        if asked is None:
            asked = self._asked[identity] = routing_key, arguments, set()
            self._note(identity)
        asked[2].add(_whom(binding))

    def gone(self, binding):
        """There is one less."""
        routing_key, arguments = binding.source.asks_for(binding)
        identity = routing_key, frozen(arguments)
        asked = self._asked.get(identity)
        if asked is not None:
            asked[2].discard(_whom(binding))
            if not asked[2]:
                del self._asked[identity]
                self._note(identity)

    def begin(self):
        """Upstream there is none: returns (routing key, arguments) of all that are to be made."""
        self._changed.clear()
        self._there = {identity: asked[:2] for identity, asked in self._asked.items()}
        return list(self._there.values())

    @property
    def has_changes(self):
        """Whether something is to be done upstream."""
        return bool(self._changed)

    def take_changes(self):
        """(routing key, arguments, whether to make or to remove it) of all that is to be done upstream; it
        counts as done.
        """
        changes: list[tuple[str, dict, bool]] = []
        for identity in self._changed:
            asked, there = self._asked.get(identity), self._there.get(identity)
            if asked is not None and there is None:
                self._there[identity] = asked[:2]
                changes.append((*asked[:2], True))
            elif asked is None and there is not None:
                del self._there[identity]
                changes.append((*there, False))
        self._changed.clear()
        return changes

    def __len__(self):
        return len(self._asked)

    def _note(self, identity):
        self._changed[identity] = None
        self._on_change()


def _whom(binding):
    """A destination that is opened anew is another object of the same name."""
    return binding.destination_type, binding.destination.name or id(binding.destination)


def arguments_upstream(arguments, here, there, max_hops) -> dict[str, Any] | None:
    """The arguments of a binding as it is made upstream; None: it is not.

    ``here``: (name of this broker, vhost, exchange); ``there``: (name of that broker, vhost).
    """
    bound_from = arguments.get(BOUND_FROM)
    passed = bound_from if isinstance(bound_from, list) else []
    hops = max_hops
    if passed:
        last = passed[0].get(HOPS) if isinstance(passed[0], dict) else None
        left = last - 1 if isinstance(last, int) else 0
        hops = 0 if has_passed(passed, *there) else min(left, max_hops)
    if hops <= 0:
        return None
    name, vhost, exchange = here
    told = {
        CLUSTER_NAME: name, VHOST: vhost, "exchange": exchange, HOPS: Int16(min(hops, MOST_HOPS)),
    }
    return {**arguments, BOUND_FROM: [told, *passed]}
