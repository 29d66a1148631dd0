"""Tables: how deep and how long the field tables of clients may be. Between decoding and whatever acts on a table.

The wire itself refuses what is nested so deep that reading it could exhaust the stack. Here are the operator's limits: a frame of 128 KiB holds up to
130 000 entries, each an object of its own for a moment. Small tables cannot break a limit and are not looked at.
"""
from gomq_py.amqp.wire.errors import SyntaxError_

# Octets of the smallest entry (in an array, a value without content) and of the smallest nested array (a type, a size).
ENTRY_OCTETS, NEST_OCTETS = 1, 5
# The wire's own bound: who is given no smaller one need not be looked at for depth.
WIRE_DEPTH = 32


class TableLimits:
    """``depth`` of nesting, ``entries`` in a table with all that it holds. ``safe_octets``: a table of no more can break neither."""

    __slots__ = ("depth", "entries", "safe_octets")

    def __init__(self, depth, entries):
        self.depth = depth
        self.entries = entries
        self.safe_octets = ENTRY_OCTETS * entries
        if depth < WIRE_DEPTH:
            self.safe_octets = min(self.safe_octets, NEST_OCTETS * depth)

    def check(self, table, octets):
        """Look at a decoded table that came in a frame of ``octets``. Raises SyntaxError_."""
        if octets <= self.safe_octets:
            return
        depth, level, entries = 0, [table], 0
        while level:
            if depth > self.depth:
                raise SyntaxError_(f"field table nested deeper than {self.depth} (max_table_depth)")
            entries += sum(map(len, level))
            if entries > self.entries:
                raise SyntaxError_(f"field table of more than {self.entries} entries (max_table_entries)")
            level = [inner for one in level for inner in (one.values() if isinstance(one, dict) else one) if isinstance(inner, (dict, list))]
            depth += 1

    def check_method(self, method, octets):
        """Look at the tables of a decoded method. Raises SyntaxError_."""
        if octets > self.safe_octets:
            for name, _ in method.FIELDS:
                value = getattr(method, name)
                if isinstance(value, dict):
                    self.check(value, octets)
