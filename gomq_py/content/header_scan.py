"""Header scan: where the headers of checked properties, and a single header, lie. A leaf, no I/O.

For scans of many messages in a segment: nothing is copied or decoded (content.properties does both).
"""
from gomq_py import octets
from gomq_py.content import fields

# Flags of the headers and of the properties in front of them (content.properties).
CONTENT_TYPE, CONTENT_ENCODING, HEADERS = 0x8000, 0x4000, 0x2000


def headers_at(p, at):
    """The offset of the headers in checked properties at ``at``, or the offset where they would be."""
    flags = octets.be16(p, at)
    at += 2
    if flags & CONTENT_TYPE:
        at += 1 + p[at]
    if flags & CONTENT_ENCODING:
        at += 1 + p[at]
    return at


def find_key(p, at, end, key, key_length):
    """The offset of the entry with this key (a short string) in the checked entries ``at`` to ``end`` of a
    table; -1 if there is none.
    """
    while at < end:
        value = at + 1 + p[at]
        if value - at == key_length and octets.same(p, at, key, 0, key_length):
            return at
        at = fields.skip_value(p, value)
    return -1
