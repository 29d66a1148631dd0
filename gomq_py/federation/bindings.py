"""Bindings: computes the bindings that a federated exchange needs upstream, and their changes.

Equal bindings of the local exchange become one binding upstream. A local binding may have been made by a
broker further downstream. It is then made upstream with one hop less, and not at a broker through which it
has already come. So in a ring of brokers no binding circulates forever.
"""
from typing import Any

from gomq_py.broker.exchanges.federation_upstream import BOUND_FROM, CLUSTER_NAME, VHOST, has_passed
from gomq_py.broker.topology.bindings import frozen
from gomq_py.content.fields import Int16

# Key of bound-from tables: the number of further brokers that make the binding.
HOPS = "hops"
MOST_HOPS = 32767  # hops are a 16-bit field


class Bindings:
    """The distinct bindings that a local exchange needs upstream, compared with the bindings that exist
    there. Calls ``on_change()`` when bindings must be made or removed upstream.
    """

    def __init__(self, exchange, on_change):
        self._on_change = on_change
        self._asked: dict = {}  # identity: (routing key, arguments, {destinations})
        self._there: dict = {}  # identity: (routing key, arguments) as made upstream
        self._changed: dict = {}  # identities that may differ between the two, as keys, in order
        for binding in [
            *exchange.bindings(), *(exchange.onward.bindings() if exchange.onward is not None else ())
        ]:
            self.made(binding)

    def made(self, binding):
        """Add a new binding of the federated exchange or of its ``onward``, which gets the same messages."""
        routing_key, arguments = binding.source.asks_for(binding)
        identity = routing_key, frozen(arguments)
        asked = self._asked.get(identity)
        if asked is None:
            asked = self._asked[identity] = routing_key, arguments, set()
            self._note(identity)
        asked[2].add(_whom(binding))

    def gone(self, binding):
        routing_key, arguments = binding.source.asks_for(binding)
        identity = routing_key, frozen(arguments)
        asked = self._asked.get(identity)
        if asked is not None:
            asked[2].discard(_whom(binding))
            if not asked[2]:
                del self._asked[identity]
                self._note(identity)

    def begin(self):
        """Return all needed bindings as a list of (routing key, arguments), to be made upstream where none
        exist yet. From now on they count as made.
        """
        self._changed.clear()
        self._there = {identity: asked[:2] for identity, asked in self._asked.items()}
        return list(self._there.values())

    @property
    def has_changes(self):
        """True if bindings may have to be made or removed upstream."""
        return bool(self._changed)

    def take_changes(self):
        """Return the changes to make upstream: [(routing key, arguments, is_needed)]. ``is_needed``: True
        to make the binding, False to remove it. From now on these changes count as made.
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
    # By its name, because a reopened queue is a new object.
    return binding.destination_type, binding.destination.name or id(binding.destination)


def arguments_upstream(arguments, here, there, max_hops) -> dict[str, Any] | None:
    """Return the arguments of a binding to make upstream; None if the binding has no hops left or has come
    through the upstream's broker.

    ``arguments``: of the local binding. ``here``: (name of this broker, vhost, exchange). ``there``: (name of
    the upstream's broker, its vhost). ``max_hops``: most links that a message may pass.
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
