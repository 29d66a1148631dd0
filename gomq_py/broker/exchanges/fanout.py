"""Fanout exchange: every binding matches every message."""
from gomq_py.broker.exchanges.exchange import Exchange


class FanoutExchange(Exchange):
    """Routes each message to every bound destination. Several bindings of a destination count as one."""

    type = "fanout"

    def __init__(self, *args, **options):
        super().__init__(*args, **options)
        self._destinations = {}

    def match(self, routing_key, headers, targets):
        targets.update(self._destinations)

    def _added(self, binding):
        self._destinations[binding.destination] = self._destinations.get(binding.destination, 0) + 1

    def _removed(self, binding):
        self._destinations[binding.destination] -= 1
        if not self._destinations[binding.destination]:
            del self._destinations[binding.destination]
