"""Stream filter: selects the messages of a stream that a consumer wants; the broker skips the others.

broker.features.stream_filter defines the arguments. Never switches.
"""
from gomq_py import octets
from gomq_py.broker.features.stream_filter import ALL, ANY, filter_of
from gomq_py.content import fields, forms, properties
from gomq_py.content.fields import decode_table
from gomq_py.errors import Malformed

VALUE_KEY = b"\x15x-stream-filter-value"
VALUE_KEY_BYTES = 22
HEADERS = 0x2000
BASIC = forms.BASIC


class StreamFilter:
    """Made by parse_filter. ``values``: wanted octets; ``conditions``: functions of a message's headers."""

    __slots__ = ("values", "conditions", "match_unfiltered", "all_values", "any_part")

    def __init__(self, values, conditions, match_type=None, match_unfiltered=False):
        self.values = frozenset(values)
        self.conditions = tuple(conditions)
        self.match_unfiltered = match_unfiltered
        self.all_values = match_type == ALL
        self.any_part = match_type == ANY

    def matches(self, message):
        """True if the message is wanted, or unreadable: the consumer skips unreadable messages."""
        if message.kind == BASIC:
            return self._matches(message, message.buffer, message.properties_at)
        try:
            properties = message.get_properties()
        except Malformed:
            return True
        return self._matches(message, octets.pointer(properties), 0)

    def _matches(self, message, p, at):
        """matches() for basic properties at ``p[at]``."""
        if self.any_part:
            return self._matches_value(p, at) if not self.conditions else (
                bool(self.values) and self._matches_value(p, at) or self._matches_conditions(message))
        if self.values and not self._matches_value(p, at):
            return False
        return not self.conditions or self._matches_conditions(message)

    def _matches_value(self, p, at):
        found = -1
        if octets.be16(p, at) & HEADERS:
            table = properties.headers_at(p, at)
            found = fields.find_key(
                p, table + 4, table + 4 + octets.be32(p, table), VALUE_KEY, VALUE_KEY_BYTES
            )
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
    """The StreamFilter for a consumer's arguments, or None. Raises ValueError with the reason."""
    wanted = filter_of(arguments)
    return None if wanted is None else StreamFilter(*wanted)
