"""Random exchange: each message goes to one randomly chosen bound destination, whatever its routing key."""
import random

from gomq_py.broker.exchanges.exchange import Exchange
from gomq_py.broker.values import written
from gomq_py.errors import PreconditionFailed


class RandomExchange(Exchange):
    """Type ``x-random``: chooses a binding at random. Several bindings make a destination more likely."""

    type = "x-random"
    needs_headers = True

    def __init__(self, *args, **options):
        super().__init__(*args, **options)
        self._destinations = []  # an entry per binding: several bindings are a weight

    def match(self, routing_key, headers, targets):
        if self._destinations:
            targets[random.choice(self._destinations)] = None

    def part_with(self, destination, count):
        super().part_with(destination, count)
        # otherwise messages for other destinations would be lost
        self._destinations = [one for one in self._destinations if one is not destination]

    def _added(self, binding):
        self._destinations.append(binding.destination)

    def _removed(self, binding):
        self._destinations.remove(binding.destination)

    def _removed_departed(self, binding):
        """Do nothing: part_with() has updated the index already."""


class LocalRandomExchange(RandomExchange):
    """Type ``x-local-random``: as ``x-random``, for bindings with an empty key. RabbitMQ chooses among queues
    of the node that got the message; here that is every queue.
    """

    type = "x-local-random"

    def check_binding(self, routing_key, arguments):
        if routing_key:
            raise PreconditionFailed(f"Non empty binding '{written(routing_key)}' key not permitted")
