"""Pruning: which segments a filter excludes. Filters of Spark in, yes or no out; what is not understood
excludes nothing.
"""
from datetime import UTC, datetime

from pyspark.sql.datasource import EqualTo, GreaterThan, GreaterThanOrEqual, In, LessThan, LessThanOrEqual


class Bounds:
    """The offsets that may match."""

    def __init__(self, filters):
        self.first, self.last = 0, (1 << 63) - 1
        self.first_ms, self.last_ms = None, None
        for one in filters:
            if getattr(one, "attribute", None) == ("offset",):
                self._offset(one)
            elif getattr(one, "attribute", None) == ("timestamp",):
                self._time(one)

    def _offset(self, one):
        if isinstance(one, EqualTo | GreaterThan | GreaterThanOrEqual):
            self.first = max(self.first, one.value + isinstance(one, GreaterThan))
        if isinstance(one, EqualTo | LessThan | LessThanOrEqual):
            self.last = min(self.last, one.value - isinstance(one, LessThan))
        if isinstance(one, In) and one.value:
            self.first, self.last = max(self.first, min(one.value)), min(self.last, max(one.value))

    def _time(self, one):
        if not isinstance(one.value, datetime):
            return
        value = one.value if one.value.tzinfo else one.value.replace(tzinfo=UTC)
        at_ms = value.timestamp() * 1000
        if isinstance(one, EqualTo | GreaterThan | GreaterThanOrEqual):
            self.first_ms = at_ms if self.first_ms is None else max(self.first_ms, at_ms)
        if isinstance(one, EqualTo | LessThan | LessThanOrEqual):
            self.last_ms = at_ms if self.last_ms is None else min(self.last_ms, at_ms)

    def may_match(self, shape, piece):
        """Whether rows of this piece may match."""
        return piece.until > self.first and piece.first <= self.last
