"""Modulus hash exchange: each message goes to one bound destination, chosen by a hash of its routing key
modulo their count. Equal keys go to the same destination as long as the destinations stay.
"""
from binascii import crc32
from bisect import insort

from gomq_py.broker.exchanges.exchange import Exchange


class ModulusHashExchange(Exchange):
    """Type ``x-modulus-hash``. The keys of bindings have no meaning, and a destination bound several times
    counts once. Destinations are in order of their names, so that a restart changes nothing.
    """

    type = "x-modulus-hash"

    def __init__(self, *args, **options):
        super().__init__(*args, **options)
        self._destinations = []  # (name, number, destination)
        self._bound = {}  # destination: [its entry, count of bindings]
        self._numbers = 0

    def match(self, routing_key, headers, targets):
        if self._destinations:
            point = crc32(routing_key.encode("utf-8", "surrogateescape"))
            targets[self._destinations[point % len(self._destinations)][2]] = None

    def part_with(self, destination, count):
        super().part_with(destination, count)
        # otherwise messages for other destinations would be lost
        self._destinations.remove(self._bound.pop(destination)[0])

    def _added(self, binding):
        destination = binding.destination
        bound = self._bound.get(destination)
        if bound is None:
            self._numbers += 1  # a queue and an exchange may have one name
            bound = self._bound[destination] = [(destination.name, self._numbers, destination), 0]
            insort(self._destinations, bound[0])
        bound[1] += 1

    def _removed(self, binding):
        bound = self._bound[binding.destination]
        bound[1] -= 1
        if not bound[1]:
            self._destinations.remove(bound[0])
            del self._bound[binding.destination]

    def _removed_departed(self, binding):
        """Do nothing: part_with() has removed the destination."""
