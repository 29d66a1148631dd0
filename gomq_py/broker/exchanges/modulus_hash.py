"""Modulus hash exchange: each message goes to one bound destination, chosen by a hash of its routing key.

The hash is taken modulo the count of destinations. Equal keys go to the same destination as long as the
destinations stay.
"""
from binascii import crc32
from bisect import insort
from collections import Counter
from operator import attrgetter

from gomq_py.broker.exchanges.exchange import Exchange


class ModulusHashExchange(Exchange):
    """Type ``x-modulus-hash``. The keys of bindings have no meaning, and several bindings of a destination
    count as one. Destinations are in order of their names, so that a restart changes nothing.
    """

    type = "x-modulus-hash"

    def __init__(self, *args, **options):
        super().__init__(*args, **options)
        self._destinations = []
        self._counts = Counter()  # bindings of each

    def match(self, routing_key, headers, targets):
        if self._destinations:
            point = crc32(routing_key.encode("utf-8", "surrogateescape"))
            targets[self._destinations[point % len(self._destinations)]] = None

    def part_with(self, destination, count):
        super().part_with(destination, count)
        # otherwise messages for other destinations would be lost
        self._destinations.remove(destination)
        del self._counts[destination]

    def _added(self, binding):
        destination = binding.destination
        if destination not in self._counts:
            insort(self._destinations, destination, key=attrgetter("name"))
        self._counts[destination] += 1

    def _removed(self, binding):
        destination = binding.destination
        self._counts[destination] -= 1
        if not self._counts[destination]:
            self._destinations.remove(destination)
            del self._counts[destination]

    def _removed_departed(self, binding):
        """Do nothing: part_with() has removed the destination."""
