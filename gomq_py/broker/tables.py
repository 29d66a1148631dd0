"""Limits of the depth, length and size of nested values from peers, such as arguments and headers.

The decoders refuse only nesting that could exhaust the stack. This module checks stricter limits, which
settings give: a frame of 128 KiB holds up to 130 000 entries, and each becomes an object. JSON values are
checked, too, before they are stored.
"""
import math

from gomq_py.broker.values import is_integer
from gomq_py.content.fields import encode_table
from gomq_py.errors import Malformed, PreconditionFailed

# Infinity (which JSON readers make of 1e400) and NaN: answers could not show them, and exports could not be
# imported.
NOT_FINITE = "a number that no JSON holds: infinity, or larger than 1.8e308, or not a number"
# Octets of the smallest entry (in an array, a value without content) and of the smallest nested array (a
# type, a size).
ENTRY_OCTETS, NEST_OCTETS = 1, 5
# The wire's own limit of depth: with this limit or a larger one, depth needs no check.
WIRE_DEPTH = 32
# The settings' defaults.
ENTRIES, FRAME_MAX = 8192, 131072
# Octets of a content header frame besides its properties: frame header and end, class, weight, body size.
HEADER_FRAME_OCTETS = 8 + 12


class TableLimits:
    """Limits for tables, and the checks. ``depth``: levels of nesting. ``entries``: number of entries, those
    of inner tables included. ``frame_max``: bytes of a frame. A table of at most ``safe_octets`` bytes cannot
    exceed ``depth`` or ``entries``.
    """

    __slots__ = ("depth", "entries", "frame_max", "safe_octets")

    def __init__(self, depth=WIRE_DEPTH, entries=ENTRIES, frame_max=FRAME_MAX):
        self.depth = depth
        self.entries = entries
        self.frame_max = frame_max
        self.safe_octets = ENTRY_OCTETS * entries
        if depth < WIRE_DEPTH:
            self.safe_octets = min(self.safe_octets, NEST_OCTETS * depth)

    def fault_of(self, value):
        """Return which limit a value exceeds, as in "nested deeper than 32 (max_table_depth)", or None."""
        depth, level, entries = 0, [value] if isinstance(value, (dict, list)) else [], 0
        while level:
            if depth > self.depth:
                return f"nested deeper than {self.depth} (max_table_depth)"
            entries += sum(map(len, level))
            if entries > self.entries:
                return f"of more than {self.entries} entries (max_table_entries)"
            level = [
                inner for one in level
                for inner in (one.values() if isinstance(one, dict) else one)
                if isinstance(inner, (dict, list))
            ]
            depth += 1
        return None

    def check(self, table, octets):
        """Raise Malformed if a decoded table exceeds the limits. ``octets``: at least its encoded size."""
        if octets > self.safe_octets:
            fault = self.fault_of(table)
            if fault is not None:
                raise Malformed(f"field table {fault}")

    def check_table(self, what, table):
        """Raise PreconditionFailed if a table exceeds the limits or cannot be encoded. ``what``: its name."""
        if not table:
            return
        fault = self.fault_of(table)
        if fault is None and not all(map(_is_finite, _leaves(table))):
            fault = f"with {NOT_FINITE}"
        if fault is None:
            try:
                octets = len(encode_table(table))
                fault = (
                    None if octets <= self.frame_max
                    else f"of {octets} bytes, more than a frame has (frame_max {self.frame_max})"
                )
            except (ValueError, TypeError, OverflowError) as error:
                raise PreconditionFailed(f"{what}: {error}") from None
        if fault is not None:
            raise PreconditionFailed(f"{what}: field table {fault}")

    def check_properties(self, octets):
        """Raise PreconditionFailed if the encoded properties ``octets`` do not fit into one frame."""
        if len(octets) + HEADER_FRAME_OCTETS > self.frame_max:
            raise PreconditionFailed(
                f"properties of {len(octets)} bytes fit into no frame (frame_max {self.frame_max})"
            )

    def check_json(self, what, value):
        """Raise ValueError for JSON over the limits or with bad text, infinity or NaN. ``what``: its name."""
        fault = self.fault_of(value)
        if fault is not None:
            raise ValueError(f"{what}: JSON {fault}")
        for item in _leaves(value):
            if isinstance(item, str) and not item.isascii() and not _is_unicode(item):
                raise ValueError(f"{what}: a text with half of a surrogate pair")
            if not _is_finite(item):
                raise ValueError(f"{what}: JSON with {NOT_FINITE}")


def check_numbers(what, value):
    """Raise ValueError if JSON has integers over 64 bits: some readers refuse them. ``what``: its name."""
    if any(
        isinstance(item, int) and not isinstance(item, bool) and not is_integer(item)
        for item in _leaves(value)
    ):
        raise ValueError(f"{what}: a number of more than 64 bits")


# For stored values: settings may have changed since they were stored.
STORED = TableLimits(WIRE_DEPTH, 1 << 62)


def _leaves(value):
    """Yield the scalars of a JSON value, and the keys of its objects, in any order."""
    if not isinstance(value, (dict, list)):
        yield value
        return
    left = [value]
    while left:
        one = left.pop()
        if isinstance(one, dict):
            yield from one
        for item in one.values() if isinstance(one, dict) else one:
            if isinstance(item, (dict, list)):
                left.append(item)
            else:
                yield item


def _is_finite(value):
    return not isinstance(value, float) or math.isfinite(value)


def _is_unicode(text):
    try:
        text.encode()
        return True
    except UnicodeEncodeError:
        return False
