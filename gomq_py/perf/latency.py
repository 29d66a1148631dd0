"""Latency histogram with 64 buckets per power of two: an error of at most 1.6 % at any count, and cheap
enough to add every message.

The buckets lie in memory given by the caller, so that a worker process writes them and its parent reads them.
"""
SUB_BUCKETS = 64
BUCKETS = 40 * SUB_BUCKETS  # up to 2^45 ns, which is ten hours
REGION_OCTETS = 8 * BUCKETS


class LatencyHistogram:
    """Counts of values in nanoseconds; ``region`` is a writable memoryview of BUCKETS u64."""

    __slots__ = ("buckets",)

    def __init__(self, region):
        self.buckets = region

    def add(self, value):
        """Count one value. Buckets are 1 ns wide below 64, and above 1/64 of their power of two."""
        shift = 0
        while value >= 128:
            value >>= 1
            shift += 1
        if shift > 38:
            shift = 38
        self.buckets[shift * 64 + value] += 1


def lower_bound(index):
    """The smallest value, in nanoseconds, that falls into a bucket."""
    if index < 2 * SUB_BUCKETS:
        return index
    shift = index // SUB_BUCKETS - 1
    return (index - shift * SUB_BUCKETS) << shift


def summarize(regions):
    """Summary over some regions: {"count", "min", "median", "p75", "p95", "p99", "max"} in milliseconds, or
    only a count of 0.
    """
    totals = [sum(counts) for counts in zip(*regions)]
    count = sum(totals)
    summary = {"count": count}
    if not count:
        return summary
    occupied = [index for index, number in enumerate(totals) if number]
    summary["min"] = lower_bound(min(occupied)) / 1e6
    for name, share in (("median", 0.5), ("p75", 0.75), ("p95", 0.95), ("p99", 0.99)):
        summary[name] = _quantile(totals, occupied, share * count) / 1e6
    summary["max"] = lower_bound(max(occupied)) / 1e6
    return summary


def _quantile(totals, occupied, rank):
    seen = 0
    for index in occupied:
        seen += totals[index]
        if seen >= rank:
            break
    return lower_bound(index)
