"""The memory that worker processes share with their parent: flags, counters, latencies and checks.

The parent writes the flags. The worker of a connection writes everything else about that connection.
Each 8-byte word has one writer, and its store is atomic, so no locks are needed. The parent creates the
memory before it forks the workers.
"""
import mmap

from gomq_py.perf.walk import BUCKETS

# Flags, written by the parent.
STARTED, STOP_PUBLISHING, STOP = 0, 1, 2
_FLAGS = 8

# Counters of one connection, written by its worker.
(
    READY, DONE, PUBLISHED, CONFIRMED, REFUSED, RETURNED, DELIVERED, REDELIVERED, MISORDERED, CORRUPT,
    BODY_OCTETS, EMPTY_GETS, LAST_NS, CPU_NS, DOUBLED,
) = range(15)
_COUNTERS = 16


class SharedRegion:
    """The shared memory of one run.

    It has counters of each connection, publishers first; a latency histogram per consumer, and one of confirm
    times per publisher; the numbers of a SequenceCheck for each consumer. ``numbered``: how many publishers
    number their messages.
    """

    def __init__(self, publishers, consumers, numbered):
        self._publishers = publishers
        self._numbered = numbered
        self._consumer_words = BUCKETS + 3 * numbered
        self._consumers_at = _FLAGS + (publishers + consumers) * _COUNTERS
        self._publishers_at = self._consumers_at + consumers * self._consumer_words
        # Untouched pages take no memory.
        self._memory = mmap.mmap(-1, 8 * (self._publishers_at + publishers * BUCKETS))
        self._words = memoryview(self._memory).cast("Q")

    def flag(self, index):
        return self._words[index] != 0

    def set_flag(self, index):
        self._words[index] = 1

    def counters(self, connection):
        """Return a connection's counters: a memoryview indexed by READY, DONE, PUBLISHED and so on."""
        start = _FLAGS + connection * _COUNTERS
        return self._words[start:start + _COUNTERS]

    def latencies(self, connection):
        """Return the memory of a consumer's latency histogram. ``connection``: the consumer's number."""
        return self._of_consumer(connection, 0, BUCKETS)

    def confirm_latencies(self, publisher):
        start = self._publishers_at + publisher * BUCKETS
        return self._words[start:start + BUCKETS]

    def check(self, connection):
        """Return (following, counts, sums), the memory of a consumer's SequenceCheck."""
        return tuple(
            self._of_consumer(connection, BUCKETS + part * self._numbered, self._numbered)
            for part in range(3))

    def total(self, counter):
        return sum(self._column(counter))

    def every(self, counter, connections):
        """Return whether ``counter``, such as READY, is not 0 in each of these connections (a range)."""
        return all(self._column(counter)[connections.start:connections.stop])

    def latest(self, counter, connections):
        """Return the largest value of ``counter`` in these connections (a range); 0 for an empty range."""
        return max(self._column(counter)[connections.start:connections.stop], default=0)

    def _column(self, counter):
        """Return a view of one counter of all connections. Fast even for 10,000 connections."""
        return self._words[_FLAGS + counter:self._consumers_at:_COUNTERS]

    def _of_consumer(self, connection, offset, count):
        start = self._consumers_at + (connection - self._publishers) * self._consumer_words + offset
        return self._words[start:start + count]
