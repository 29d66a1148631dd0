"""Consistent hash exchange: each message goes to one bound destination, chosen by a hash of its key.

Equal keys go to the same destination. A binding's key is an integer, the weight: how large a share of the
keys its destination gets. The argument ``x-hash-on`` (RabbitMQ: ``hash-header``) hashes a header instead of
the routing key, ``hash-property`` one of three properties. Two algorithms spread the keys:

    ring    points at the CRC-32 of "<destination>.<i>", i below the weight; a key goes to the first point at
            or after its CRC-32. A change of a binding moves only the keys of its own destination.
    jump    Lamping and Veach's jump hash over the destinations in order of names, each repeated by its
            weight. Spreads evenly; but a change moves few keys only at the end of that order.
"""
from array import array
from binascii import crc32
from bisect import bisect_left, bisect_right, insort
from itertools import accumulate

from gomq_py.broker.exchanges.exchange import Exchange
from gomq_py.broker.features.feature import ExchangeArgument
from gomq_py.broker.values import type_name, written
from gomq_py.errors import PreconditionFailed

RING, JUMP = "ring", "jump"

# Most points of a binding: a million would take seconds and 100 MB, and no queue needs so much more than
# another.
MAX_WEIGHT = 10_000

# Bits of a point within its part: the ring has 4096 parts, of some 250 points each with a million points.
PART_BITS = 20

# Properties that RabbitMQ hashes.
PROPERTIES = ("message_id", "correlation_id", "timestamp")

# Arguments. HASH_ON and HASH_HEADER mean the same; HASH_HEADER is RabbitMQ's.
ALGORITHM, HASH_ON, HASH_HEADER, HASH_PROPERTY = "x-algorithm", "x-hash-on", "hash-header", "hash-property"
TYPE = "x-consistent-hash"
_OF_THE_KEY = "The routing key is hashed."
DESCRIBED = (
    ExchangeArgument(
        argument=HASH_HEADER, also=(HASH_ON,), kinds=frozenset((TYPE,)), default=_OF_THE_KEY,
        value="`customer`: name of a header",
        effect="Messages with an equal header go to the same queue.",
        others="RabbitMQ: a plugin, `hash-header`.",
    ),
    ExchangeArgument(
        argument=HASH_PROPERTY, kinds=frozenset((TYPE,)), default=_OF_THE_KEY,
        value="`message_id`: `message_id`, `correlation_id` or `timestamp`",
        effect="Messages with an equal property go to the same queue. Not together with a header.",
        others="RabbitMQ: a plugin. LavinMQ: no.",
    ),
    ExchangeArgument(
        argument=ALGORITHM, kinds=frozenset((TYPE,)), value="`jump`: `ring` or `jump`",
        default="The setting `default_consistent_hash_algorithm`, `ring`.",
        effect="`ring` moves only the keys of a queue that comes or goes. `jump` spreads keys evenly, but "
        "moves few keys only at the end of the order of names.",
        others="RabbitMQ: no choice.",
    ),
)
_NOTHING = (), ()
_LCG = 2862933555777941757  # multiplier of the published algorithm
_64_BITS = (1 << 64) - 1


class ConsistentHashExchange(Exchange):
    """Routes by a hash. The argument ``x-algorithm`` is "ring" or "jump"; the default is a setting."""

    type = TYPE

    def __init__(self, *args, **options):
        super().__init__(*args, **options)
        self._spread = Jump() if self.arguments.get(ALGORITHM) == JUMP else Ring()
        self._header = self.arguments.get(HASH_ON) or self.arguments.get(HASH_HEADER)
        if self.arguments.get(HASH_PROPERTY):
            self._header = "\0" + self.arguments[HASH_PROPERTY]
            self.needs_properties = True
        self.needs_headers = self._header is not None

    def set_defaults(self, defaults):
        if ALGORITHM not in self.arguments and defaults.get("consistent_hash_algorithm") == JUMP:
            self._spread = Jump()

    @staticmethod
    def check_arguments(entity, arguments):
        if arguments.get(ALGORITHM, RING) not in (RING, JUMP):
            raise PreconditionFailed(
                f"invalid arg '{ALGORITHM}' for {entity}: {written(arguments[ALGORITHM])}; expected ring or "
                "jump"
            )
        for key in (HASH_ON, HASH_HEADER):
            if not isinstance(arguments.get(key, ""), str):
                raise PreconditionFailed(
                    f"invalid type '{type_name(arguments[key])}' for arg '{key}' in {entity}"
                )
        if HASH_PROPERTY in arguments:
            if arguments[HASH_PROPERTY] not in PROPERTIES:
                raise PreconditionFailed(f"Unsupported property: {written(arguments[HASH_PROPERTY])}")
            if HASH_HEADER in arguments or HASH_ON in arguments:
                raise PreconditionFailed(f"{HASH_HEADER} and {HASH_PROPERTY} are mutually exclusive")

    def check_binding(self, routing_key, arguments):
        weight = weight_of(routing_key)
        if weight is None or not 0 < weight <= MAX_WEIGHT:
            raise PreconditionFailed(
                f"The binding key must be an integer between 1 and {MAX_WEIGHT}, the weight of the "
                f"destination; got '{routing_key}'")

    def match(self, routing_key, headers, targets):
        key = routing_key
        if self._header is not None:
            key = (headers or {}).get(self._header)
            key = "" if key is None else written(key)
        destination = self._spread.destination_at(crc32(key.encode("utf-8", "surrogateescape")))
        if destination is not None:
            targets[destination] = None

    def part_with(self, destination, count):
        super().part_with(destination, count)
        self._spread.drop(destination)  # otherwise messages for other destinations would be lost

    def _added(self, binding):
        self._spread.add(binding.destination, weight_of(binding.routing_key))

    def _removed(self, binding):
        self._spread.remove(binding.destination, weight_of(binding.routing_key))

    def _removed_departed(self, binding):
        """Do nothing: part_with() has updated the index already."""


def weight_of(routing_key):
    """Parse a binding's routing key as a weight; None unless it is a number of one to nine digits."""
    return (
        int(routing_key) if routing_key.isascii() and routing_key.isdigit() and len(routing_key) < 10
        else None
    )


class Ring:
    """The hash ring: maps 32-bit hashes to destinations. Of several at a point, the first by name counts."""

    def __init__(self):
        # part number: (sorted points, indexes of their names, number of each point within its name)
        self._parts = {}
        self._filled = []  # sorted numbers of parts with points
        self._names = []  # destinations by index; None: free
        self._free = []
        # name: (index, [(destination, weight)] in order of binding)
        self._bound = {}

    def add(self, destination, weight):
        name = destination.name
        if name not in self._bound:
            self._bound[name] = self._index_for(name), []
        index, bound = self._bound[name]
        have = _most(bound)
        bound.append((destination, weight))
        for point, i in _points(name, have, weight):
            number = point >> PART_BITS
            if number not in self._parts:
                self._parts[number] = array("I"), array("I"), array("I")
                insort(self._filled, number)
            points, indexes, numbers = self._parts[number]
            at = self._place(points, indexes, numbers, point, name, i)
            points.insert(at, point)
            indexes.insert(at, index)
            numbers.insert(at, i)

    def remove(self, destination, weight):
        self._bound[destination.name][1].remove((destination, weight))
        self._drop_points(destination.name, weight)

    def drop(self, destination):
        if destination.name in self._bound:
            _, bound = self._bound[destination.name]
            most = _most(bound)
            bound[:] = [one for one in bound if one[0] is not destination]
            self._drop_points(destination.name, most)

    def destination_at(self, point):
        """Return the destination for the hash ``point``; None if nothing is bound."""
        if not self._filled:
            return None
        number = point >> PART_BITS
        part = self._parts.get(number, _NOTHING)
        at = bisect_left(part[0], point)
        if at == len(part[0]):
            following = bisect_right(self._filled, number)
            at, part = 0, self._parts[self._filled[following if following < len(self._filled) else 0]]
        i = part[2][at]
        for destination, weight in self._bound[self._names[part[1][at]]][1]:
            if weight > i:
                return destination
        raise AssertionError("a point that nobody has")

    def _drop_points(self, name, weight):
        index, bound = self._bound[name]
        for point, i in _points(name, _most(bound), weight):
            number = point >> PART_BITS
            points, indexes, numbers = self._parts[number]
            at = self._place(points, indexes, numbers, point, name, i)
            del points[at], indexes[at], numbers[at]
            if not points:
                del self._parts[number]
                del self._filled[bisect_left(self._filled, number)]
        if not bound:
            del self._bound[name]
            self._names[index] = None
            self._free.append(index)

    def _place(self, points, indexes, numbers, point, name, i):
        at = bisect_left(points, point)
        while (
            at < len(points) and points[at] == point and (self._names[indexes[at]], numbers[at]) < (name, i)
        ):
            at += 1
        return at

    def _index_for(self, name):
        if self._free:
            index = self._free.pop()
            self._names[index] = name
            return index
        self._names.append(name)
        return len(self._names) - 1


def _most(bound):
    return max((weight for _, weight in bound), default=0)


def _points(name, first, last):
    """List the points of a destination as (point, i), for i from ``first`` to ``last`` - 1."""
    start = crc32(f"{name}.".encode("utf-8", "surrogateescape"))
    return [(crc32(b"%d" % i, start), i) for i in range(first, last)]


class Jump:
    """Jump hash: maps hashes to buckets. Each destination, in order of names, has ``weight`` buckets."""

    def __init__(self):
        self._bound = []  # (name, weight, number, destination)
        self._ends = []  # the bucket behind the last one of each destination
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
        self._bound = [one for one in self._bound if one[3] is not destination]
        self._fill()

    def destination_at(self, point):
        """Return the destination for the hash ``point``; None if nothing is bound."""
        if not self._ends:
            return None
        # 64 bits out of 32: the algorithm's own generator spreads them.
        bucket = jump(point << 32 | crc32(point.to_bytes(4, "big")), self._ends[-1])
        return self._bound[bisect_right(self._ends, bucket)][3]

    def _fill(self):
        self._ends = list(accumulate(weight for _, weight, _, _ in self._bound))


def jump(key, buckets):
    """Return a key's bucket, a number below ``buckets``: jump consistent hash (Lamping, Veach 2014)."""
    bucket, following = -1, 0
    while following < buckets:
        bucket = following
        key = (key * _LCG + 1) & _64_BITS
        following = int((bucket + 1) * ((1 << 31) / ((key >> 33) + 1)))
    return bucket
