"""Pruning: finds segments that a filter on offsets or times excludes.

Takes Spark's filters; an unknown filter excludes nothing.

Filters on time are used only if asked for: a segment records the times of its first and last message, and
after a clock was set back others may lie outside.
"""
from datetime import UTC, datetime

from pyspark.sql.datasource import EqualTo, GreaterThan, GreaterThanOrEqual, In, LessThan, LessThanOrEqual

HIGHEST = (1 << 63) - 1


class Span:
    """The range of integers, ``first`` to ``last``, that may match all filters on one column."""

    def __init__(self, filters, column, read=int):
        """``read``: a filter's value as an integer, rounded down."""
        self.first, self.last = 0, HIGHEST
        self._read = read
        for one in filters:
            if getattr(one, "attribute", None) == (column,):
                self._narrow(one)

    def _narrow(self, one):
        if isinstance(one, EqualTo | GreaterThan | GreaterThanOrEqual):
            self.first = max(self.first, self._read(one.value))
        if isinstance(one, EqualTo | LessThan | LessThanOrEqual):
            self.last = min(self.last, self._read(one.value))
        if isinstance(one, In) and one.value:
            values = [self._read(value) for value in one.value]
            self.first, self.last = max(self.first, min(values)), min(self.last, max(values))

    def meets(self, first, last):
        """Whether an integer of this range may match."""
        return last >= self.first and first <= self.last


class Bounds:
    """The ranges that may match: by offset, and (``with_times``) by the broker's time."""

    def __init__(self, filters, with_times=False):
        self._offsets = Span(filters, "offset")
        self._times = Span(filters if with_times else (), "timestamp", milliseconds)

    def may_match(self, piece, segment):
        """Whether rows of this piece of a Segment may match."""
        return self._offsets.meets(piece.first, piece.until - 1) and (
            self._times.meets(segment.first_timestamp_ms, segment.last_timestamp_ms)
        )


def milliseconds(moment):
    """Unix milliseconds of a datetime, UTC by default."""
    since = (moment if moment.tzinfo else moment.replace(tzinfo=UTC)) - datetime(1970, 1, 1, tzinfo=UTC)
    return since.days * 86400000 + since.seconds * 1000 + since.microseconds // 1000
