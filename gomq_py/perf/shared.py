"""The memory that workers and their parent share: flags from the parent, counters, latencies and checks from
each connection.

Each slot has one writer, so nothing is locked; 8-octet stores are whole. A region is made before the workers
are forked.
"""
import mmap

from gomq_py.perf.latency import BUCKETS

# Flags, written by the parent.
STARTED, STOP_PUBLISHING, STOP = 0, 1, 2
_FLAGS = 8

# Counters of one connection, written by its worker.
(
    READY, DONE, PUBLISHED, CONFIRMED, REFUSED, RETURNED, DELIVERED, REDELIVERED, MISORDERED, CORRUPT,
    BODY_OCTETS, EMPTY_GETS, LAST_NS, CPU_NS,
) = range(14)
_COUNTERS = 16


class SharedRegion:
    """``connections`` slots of counters and a latency histogram, and per connection three numbers for each of
    ``publishers`` publishers.
    """

    def __init__(self, connections, publishers):
        self.connections = connections
        self.publishers = publishers
        self._slot = _COUNTERS + BUCKETS + 3 * publishers
        self._memory = mmap.mmap(-1, 8 * (_FLAGS + connections * self._slot))
        self._words = memoryview(self._memory).cast("Q")

    def flag(self, index):
        """Whether a flag is set."""
        return self._words[index] != 0

    def set_flag(self, index):
        """Set a flag."""
        self._words[index] = 1

    def counters(self, connection):
        """The counters of one connection, to be indexed by the names above."""
        return self._part(connection, 0, _COUNTERS)

    def latencies(self, connection):
        """The histogram of one connection."""
        return self._part(connection, _COUNTERS, BUCKETS)

    def check(self, connection):
        """(following, counts, sums) of one connection, one number per publisher each."""
        start = _COUNTERS + BUCKETS
        return tuple(
            self._part(connection, start + part * self.publishers, self.publishers) for part in range(3)
        )

    def total(self, counter):
        """A counter summed over all connections."""
        return sum(
            self._words[_FLAGS + connection * self._slot + counter] for connection in range(self.connections)
        )

    def every(self, counter, connections):
        """Whether a counter is set for each of some connections."""
        return all(self._words[_FLAGS + connection * self._slot + counter] for connection in connections)

    def latest(self, counter, connections):
        """The largest value of a counter over some connections; 0 without any."""
        return max(
            (self._words[_FLAGS + connection * self._slot + counter] for connection in connections), default=0
        )

    def _part(self, connection, offset, count):
        start = _FLAGS + connection * self._slot + offset
        return self._words[start:start + count]
