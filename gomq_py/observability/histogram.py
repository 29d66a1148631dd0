"""Counts events by duration in a few buckets, without memory per event."""
from bisect import bisect_left

# Seconds: from a flush into a disk's cache to a flush that hangs.
SYNC_BOUNDS_S = (0.0005, 0.001, 0.0025, 0.005, 0.01, 0.025, 0.05, 0.1, 0.25, 0.5, 1.0, 2.5, 5.0, 10.0)


class Histogram:
    """Counts events by duration in seconds. ``total`` is the sum of all durations. ``counts[n]`` counts
    events that took at most ``bounds[n]`` and more than ``bounds[n - 1]``. The last count is of events beyond
    all bounds.
    """

    __slots__ = ("bounds", "counts", "total")

    def __init__(self, bounds: tuple[float, ...] = SYNC_BOUNDS_S) -> None:
        self.bounds = bounds
        self.counts = [0] * (len(bounds) + 1)
        self.total = 0.0

    def observe(self, value: float) -> None:
        self.counts[bisect_left(self.bounds, value)] += 1
        self.total += value

    def cumulative(self) -> list[tuple[str, int]]:
        """Return [(bound as text, number of events up to it)], as in Prometheus. The last bound is +Inf."""
        buckets, events = [], 0
        for bound, count in zip((*map(str, self.bounds), "+Inf"), self.counts):
            events += count
            buckets.append((bound, events))
        return buckets
