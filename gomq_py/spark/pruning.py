"""Pruning: which segments a filter on offsets excludes.

Filters of Spark in, yes or no out; what is not understood excludes nothing.

Not filters on time: a segment tells the times of its first and last message, and a clock that was set back
puts others between them.
"""
from pyspark.sql.datasource import EqualTo, GreaterThan, GreaterThanOrEqual, In, LessThan, LessThanOrEqual


class Bounds:
    """The offsets that may match, from ``first`` to ``last``."""

    def __init__(self, filters):
        self.first, self.last = 0, (1 << 63) - 1
        for one in filters:
            if getattr(one, "attribute", None) == ("offset",):
                self._narrow(one)

    def _narrow(self, one):
        if isinstance(one, EqualTo | GreaterThan | GreaterThanOrEqual):
            self.first = max(self.first, one.value + isinstance(one, GreaterThan))
        if isinstance(one, EqualTo | LessThan | LessThanOrEqual):
            self.last = min(self.last, one.value - isinstance(one, LessThan))
        if isinstance(one, In) and one.value:
            self.first, self.last = max(self.first, min(one.value)), min(self.last, max(one.value))

    def may_match(self, piece):
        """Whether rows of this piece may match."""
        return piece.until > self.first and piece.first <= self.last
