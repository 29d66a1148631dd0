"""Pruning: finds the segments that Spark's filters on offsets or times exclude, so that they are not read.

Filters on other columns exclude no segment. Filters on time are used only with pushFilters=times. A segment
notes the times of its first and last message; if the clock was set back, messages in between may have times
outside this range.
"""
from datetime import UTC, datetime

from pyspark.sql.datasource import EqualTo, GreaterThan, GreaterThanOrEqual, In, LessThan, LessThanOrEqual

HIGHEST = (1 << 63) - 1


class Span:
    """The range ``first`` to ``last`` of integers that can match all filters on one column."""

    def __init__(self, filters, column, read=int):
        """Combine the filters on the column. ``read(value)`` converts a value to an integer, rounded down."""
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
        """Return whether an integer from ``first`` to ``last`` (inclusive) may match the filters."""
        return last >= self.first and first <= self.last


class Bounds:
    """The ranges of offsets and, if ``with_times``, of timestamps that a query's filters allow."""

    def __init__(self, filters, with_times=False):
        self._offsets = Span(filters, "offset")
        self._times = Span(filters if with_times else (), "timestamp", milliseconds)

    def may_match(self, piece, segment):
        """Return whether rows of ``piece``, a part of ``segment``, may match the filters."""
        return self._offsets.meets(piece.first, piece.until - 1) and (
            self._times.meets(segment.first_timestamp_ms, segment.last_timestamp_ms)
        )


def milliseconds(moment):
    """Convert a datetime to Unix milliseconds. A datetime without a time zone counts as UTC."""
    since = (moment if moment.tzinfo else moment.replace(tzinfo=UTC)) - datetime(1970, 1, 1, tzinfo=UTC)
    return since.days * 86400000 + since.seconds * 1000 + since.microseconds // 1000
