"""Stream filter: which messages a consumer of a stream wants, as its arguments say. Others are passed over in the broker.

    x-stream-filter             values (a text, split at commas), conditions (a table), or an array of both
    x-stream-match-unfiltered   true: messages without a value are wanted too, as far as values go
    x-filter-match-type         "all" or "any"

Values are compared with those in a message's header ``x-stream-filter-value`` (split at commas, too). A condition is a header's name and the text of
its value, or one of ``geo-within-radius``, ``geo-bbox``, ``geo-polygon`` (stream_geo). Without a match type one value is enough, as in RabbitMQ, and
all conditions must hold, as in LavinMQ; "all" asks for all values, too, and "any" for one value or one condition. Never yields.
"""
from decimal import Decimal

from gomq_py import octets
from gomq_py.broker.features.stream_geo import GEO_CONDITIONS
from gomq_py.content import header_scan
from gomq_py.content.fields import decode_table

FILTER, MATCH_UNFILTERED, MATCH_TYPE = "x-stream-filter", "x-stream-match-unfiltered", "x-filter-match-type"
VALUE_KEY = b"\x15x-stream-filter-value"
VALUE_KEY_BYTES = 22
HEADERS = 0x2000

ALL, ANY = "all", "any"


class StreamFilter:
    """Made by parse_filter. ``values``: octets wanted; ``conditions``: functions of a message's headers."""

    __slots__ = ("values", "conditions", "match_unfiltered", "all_values", "any_part")

    def __init__(self, values, conditions, match_type=None, match_unfiltered=False):
        self.values = frozenset(values)
        self.conditions = tuple(conditions)
        self.match_unfiltered = match_unfiltered
        self.all_values = match_type == ALL
        self.any_part = match_type == ANY

    def matches(self, message):
        """Whether the message is wanted."""
        if self.any_part:
            return self._matches_value(message) if not self.conditions else (
                bool(self.values) and self._matches_value(message) or self._matches_conditions(message))
        if self.values and not self._matches_value(message):
            return False
        return not self.conditions or self._matches_conditions(message)

    def _matches_value(self, message):
        p = message.buffer
        found = -1
        if octets.be16(p, message.properties_at) & HEADERS:
            table = header_scan.headers_at(p, message.properties_at)
            found = header_scan.find_key(p, table + 4, table + 4 + octets.be32(p, table), VALUE_KEY, VALUE_KEY_BYTES)
        if found < 0 or p[found + VALUE_KEY_BYTES] != 83:  # a text
            return self.match_unfiltered
        found += VALUE_KEY_BYTES + 1
        value = bytes(p[found + 4:found + 4 + octets.be32(p, found)])
        if b"," in value or self.all_values:
            there = {part.strip() for part in value.split(b",")}
            return self.values <= there if self.all_values else not self.values.isdisjoint(there)
        return value.strip() in self.values

    def _matches_conditions(self, message):
        headers = headers_of(message)
        if self.any_part:
            return any(condition(headers) for condition in self.conditions)
        return all(condition(headers) for condition in self.conditions)


def headers_of(message):
    """A message's headers as a dict."""
    properties = message.get_properties()
    if not properties[0] & 0x20:
        return {}
    at = 2
    for flag in (0x80, 0x40):
        if properties[0] & flag:
            at += 1 + properties[at]
    return decode_table(properties, at)[0]


def parse_filter(arguments):
    """The StreamFilter that a consumer's arguments ask for, or None. Raises ValueError with the reason."""
    match_type = arguments.get(MATCH_TYPE)
    if isinstance(match_type, str):
        match_type = match_type.lower()
    if match_type not in (None, ALL, ANY):
        raise ValueError(f"{MATCH_TYPE} must be 'all' or 'any'")
    match_unfiltered = arguments.get(MATCH_UNFILTERED, False)
    if not isinstance(match_unfiltered, bool):
        raise ValueError(f"{MATCH_UNFILTERED} must be a boolean")
    if FILTER not in arguments:
        return None
    values, conditions = [], []
    given = arguments[FILTER]
    for part in given if isinstance(given, list) else [given]:
        if isinstance(part, str):
            values += [value.strip().encode() for value in part.split(",")]
        elif isinstance(part, dict):
            conditions += [_condition(key, value) for key, value in part.items()]
        else:
            raise ValueError(f"{FILTER} must be a text, a table, or an array of these")
    if not values and not conditions:
        raise ValueError(f"{FILTER} is empty")
    return StreamFilter(values, conditions, match_type, match_unfiltered)


def _condition(key, value):
    """One condition on a message's headers."""
    if key in GEO_CONDITIONS:
        return GEO_CONDITIONS[key](value)
    wanted = text_of(value)
    if wanted is None:
        raise ValueError(f"the condition on header '{key}' must be a text, a number or a boolean")
    return lambda headers: key in headers and text_of(headers[key]) == wanted


def text_of(value):
    """How a header's value reads in a condition; None for what has no text (tables, arrays, octets)."""
    if isinstance(value, bool):
        return "true" if value else "false"
    if isinstance(value, str):
        return value
    if isinstance(value, float) and value.is_integer():
        return str(int(value))
    if isinstance(value, (int, float, Decimal)):
        return str(value)
    return None
