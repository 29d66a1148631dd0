"""Direct exchange: the routing key equals the binding's."""
from gomq_py.broker.exchanges.exchange import KeyedExchange


class DirectExchange(KeyedExchange):
    """One dictionary look-up per message, however many bindings there are."""

    type = "direct"

    def match(self, routing_key, headers, targets):
        destinations = self._by_key.get(routing_key)
        if destinations is not None:
            targets.update(destinations)
