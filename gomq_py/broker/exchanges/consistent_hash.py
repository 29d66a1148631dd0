"""Consistent hash exchange: each message to one of the bound destinations, chosen by a hash of its key; equal keys go to the same one.

A binding's key is its weight, a whole number: the share of the keys it gets. ``x-hash-on`` (or RabbitMQ's ``hash-header``) hashes a header instead of
the routing key, RabbitMQ's ``hash-property`` one of three properties. When bindings come and go only the share of one changes hands, by either
algorithm:

    ring    points at the CRC-32 of "<destination>.<i>", i below the weight; a key goes to the next point at or behind its CRC-32
    jump    Lamping and Veach's jump hash over the destinations in a row, each as often as it weighs: even, and moves keys only for the last ones
"""
from bisect import bisect_left, bisect_right, insort
from itertools import accumulate
from zlib import crc32

from gomq_py.amqp.wire.errors import PreconditionFailed
from gomq_py.broker.exchanges.exchange import Exchange
from gomq_py.broker.values import type_name, written

RING, JUMP = "ring", "jump"

# Points one binding may have: a weight of a million would take seconds and 100 MB, and no queue is that much heavier than another.
MAX_WEIGHT = 10_000

# What RabbitMQ hashes besides headers.
PROPERTIES = ("message_id", "correlation_id", "timestamp")

_LCG = 2862933555777941757  # of the published algorithm
_64_BITS = (1 << 64) - 1


class ConsistentHashExchange(Exchange):
    """The algorithm is what the argument ``x-algorithm`` says, or else the default of the broker."""

    type = "x-consistent-hash"

    def __init__(self, *args, **options):
        super().__init__(*args, **options)
        self._spread = Jump() if self.arguments.get("x-algorithm") == JUMP else Ring()
        self._header = self.arguments.get("x-hash-on") or self.arguments.get("hash-header")
        if self.arguments.get("hash-property"):
            self._header = "\0" + self.arguments["hash-property"]
            self.needs_properties = True
        self.needs_headers = self._header is not None

    def set_defaults(self, defaults):
        if "x-algorithm" not in self.arguments and defaults.get("consistent_hash_algorithm") == JUMP:
            self._spread = Jump()

    @staticmethod
    def check_arguments(entity, arguments):
        """Refuse what cannot be hashed by. Raises PreconditionFailed."""
        if arguments.get("x-algorithm", RING) not in (RING, JUMP):
            raise PreconditionFailed(f"invalid arg 'x-algorithm' for {entity}: {written(arguments['x-algorithm'])}; expected ring or jump")
        for key in ("x-hash-on", "hash-header"):
            if not isinstance(arguments.get(key, ""), str):
                raise PreconditionFailed(f"invalid type '{type_name(arguments[key])}' for arg '{key}' in {entity}")
        if "hash-property" in arguments:
            if arguments["hash-property"] not in PROPERTIES:
                raise PreconditionFailed(f"Unsupported property: {written(arguments['hash-property'])}")
            if "hash-header" in arguments or "x-hash-on" in arguments:
                raise PreconditionFailed("hash-header and hash-property are mutually exclusive")

    def check_binding(self, routing_key, arguments):
        weight = weight_of(routing_key)
        if weight is None or not 0 < weight <= MAX_WEIGHT:
            raise PreconditionFailed(
                f"The binding key must be an integer between 1 and {MAX_WEIGHT}, the weight of the destination; got '{routing_key}'")

    def match(self, routing_key, headers, targets):
        key = routing_key
        if self._header is not None:
            key = (headers or {}).get(self._header)
            key = "" if key is None else written(key)
        destination = self._spread.find(crc32(key.encode("utf-8", "surrogateescape")))
        if destination is not None:
            targets.add(destination)

    def part_with(self, destination, count):
        super().part_with(destination, count)
        self._spread.drop(destination)  # or messages for the others would be lost

    def _added(self, binding):
        self._spread.add(binding.destination, weight_of(binding.routing_key))

    def _removed(self, binding):
        self._spread.remove(binding.destination, weight_of(binding.routing_key))

    def _removed_departed(self, binding):
        """It went in part_with()."""


def weight_of(routing_key):
    """The weight a binding key says, or None."""
    return int(routing_key) if routing_key.isascii() and routing_key.isdigit() and len(routing_key) < 10 else None


class Ring:
    """Points on a circle of 32 bits; where two meet, the destination of the first name has it."""

    def __init__(self):
        self._points = []  # (point, destination's name, i)
        self._destinations = {}  # (name, i): destinations, the same one as often as it is bound

    def add(self, destination, weight):
        for i in range(weight):
            owners = self._destinations.setdefault((destination.name, i), [])
            if not owners:
                insort(self._points, (self._point(destination, i), destination.name, i))
            owners.append(destination)

    def remove(self, destination, weight):
        for i in range(weight):
            owners = self._destinations[destination.name, i]
            owners.remove(destination)
            if not owners:
                del self._destinations[destination.name, i]
                del self._points[bisect_left(self._points, (self._point(destination, i), destination.name, i))]

    def drop(self, destination):
        """Remove all weights of a destination."""
        name, left, i = destination.name, 0, 0
        while (name, i) in self._destinations:
            owners = [owner for owner in self._destinations[name, i] if owner is not destination]
            if owners:
                self._destinations[name, i] = owners
                left = i + 1
            else:
                del self._destinations[name, i]
            i += 1
        self._points = [one for one in self._points if one[1] != name or one[2] < left]

    def find(self, point):
        """Who has the key that hashes to ``point``; None: nobody is bound."""
        if not self._points:
            return None
        at = bisect_left(self._points, (point,))
        _, name, i = self._points[at if at < len(self._points) else 0]
        return self._destinations[name, i][0]

    @staticmethod
    def _point(destination, i):
        return crc32(f"{destination.name}.{i}".encode("utf-8", "surrogateescape"))


class Jump:
    """Destinations in a row of buckets, in the order of their names so that a restart spreads keys as before."""

    def __init__(self):
        self._bound = []  # (name, weight, number, destination)
        self._ends = []  # the bucket behind the last one of each
        self._numbers = 0

    def add(self, destination, weight):
        self._numbers += 1
        insort(self._bound, (destination.name, weight, self._numbers, destination))
        self._fill()

    def remove(self, destination, weight):
        for at, (_, bound_weight, _, bound) in enumerate(self._bound):
            if bound is destination and bound_weight == weight:
                del self._bound[at]
                break
        self._fill()

    def drop(self, destination):
        """Remove all weights of a destination."""
        self._bound = [one for one in self._bound if one[3] is not destination]
        self._fill()

    def find(self, point):
        """Who has the key that hashes to ``point``; None: nobody is bound."""
        if not self._ends:
            return None
        # 64 bits out of 32: the algorithm's own generator spreads them.
        bucket = jump(point << 32 | crc32(point.to_bytes(4, "big")), self._ends[-1])
        return self._bound[bisect_right(self._ends, bucket)][3]

    def _fill(self):
        self._ends = list(accumulate(weight for _, weight, _, _ in self._bound))


def jump(key, buckets):
    """The bucket of a 64-bit key (Lamping and Veach, "A fast, minimal memory, consistent hash algorithm", 2014)."""
    bucket, following = -1, 0
    while following < buckets:
        bucket = following
        key = (key * _LCG + 1) & _64_BITS
        following = int((bucket + 1) * ((1 << 31) / ((key >> 33) + 1)))
    return bucket
