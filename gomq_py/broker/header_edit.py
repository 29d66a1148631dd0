"""Header edit: changes to a stored message's properties that keep all other octets, and properties of the
broker's own messages about other messages. Pure functions over wire form.
"""
from gomq_py.broker.tables import WIRE_DEPTH
from gomq_py.content.fields import encode_table
from gomq_py.content.properties import PropertyScan

EMPTY_TABLE = encode_table({})

# Flags of properties (content.properties).
CONTENT_TYPE, CONTENT_ENCODING, HEADERS, EXPIRATION = 0x8000, 0x4000, 0x2000, 0x0100

# Replaces tables and arrays that are nested too deep for the wire, in the broker's own messages.
CUT = "(nested too deep to be shown)"


class PropertyEdit:
    """Properties being edited: ``headers`` (raw table, u32 size first) may be set, ``expiration`` (text or
    None) only removed.
    """

    __slots__ = ("headers", "expiration", "_properties", "_scan")

    def __init__(self, properties):
        """Raises ValueError for malformed properties, which no door accepts."""
        scan = PropertyScan()
        if not scan.scan_octets(properties):
            raise ValueError("malformed basic properties")
        self._properties = properties
        self._scan = scan
        at = scan.headers_at
        self.headers = properties[at:at + scan.headers_length] if at >= 0 else EMPTY_TABLE
        at = scan.expiration_at
        self.expiration = (
            None if at < 0 else properties[at + 1:at + 1 + properties[at]].decode("utf-8", "surrogateescape")
        )

    def octets(self):
        """The edited properties in wire form; an empty table is added to none that had no headers."""
        properties, scan = self._properties, self._scan
        flags = scan.flags & ~EXPIRATION
        start = scan.headers_at if scan.headers_at >= 0 else self._place_of_headers()
        end = start + scan.headers_length if scan.headers_at >= 0 else start
        headers = self.headers
        if scan.headers_at >= 0 or headers != EMPTY_TABLE:
            flags |= HEADERS
        else:
            headers = b""
        if self.expiration is None and scan.expiration_at >= 0:
            after = scan.expiration_at + 1 + properties[scan.expiration_at]
            rest = properties[end:scan.expiration_at] + properties[after:]
        else:
            flags |= scan.flags & EXPIRATION
            rest = properties[end:]
        return flags.to_bytes(2, "big") + properties[2:start] + headers + rest

    def _place_of_headers(self):
        """The offset of the headers: behind the two short strings that may precede them."""
        at = 2
        for flag in (CONTENT_TYPE, CONTENT_ENCODING):
            if self._scan.flags & flag:
                at += 1 + self._properties[at]
        return at


def told_in_headers(properties):
    """Wire form of properties whose headers contain other messages' tables; those nested too deep for clients
    to read are cut. Raises ValueError or TypeError for a value that a table cannot hold.
    """
    raw = properties.encode()
    if not PropertyScan().scan_octets(raw):
        properties.headers = _cut(properties.headers, WIRE_DEPTH)
        raw = properties.encode()
    return raw


def _cut(value, levels):
    """The value without tables and arrays nested more than ``levels`` deep."""
    if not isinstance(value, (dict, list, tuple)):
        return value
    if levels < 0:
        return CUT
    if isinstance(value, dict):
        return {key: _cut(inner, levels - 1) for key, inner in value.items()}
    return [_cut(inner, levels - 1) for inner in value]
