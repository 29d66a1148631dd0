"""Header scan: where the header table of properties, and an entry of it, lie in octets that were checked when
they came.

A leaf, no I/O.

Beside properties, which check and decode. For whoever looks into many messages as they lie in a segment:
nothing is copied, nothing is decoded.
"""
from gomq_py import octets
from gomq_py.content import fields

# Flags of the headers, and of the properties in front of them (content.properties).
CONTENT_TYPE, CONTENT_ENCODING, HEADERS = 0x8000, 0x4000, 0x2000


def headers_at(p, at):
    """Where in checked properties at ``at`` the headers are, or would be: behind content type and encoding.
    """
    flags = octets.be16(p, at)
    at += 2
    if flags & CONTENT_TYPE:
        at += 1 + p[at]
    if flags & CONTENT_ENCODING:
        at += 1 + p[at]
    return at


def find_key(p, at, end, key, key_length):
    """Where the entry with this key (a short string) begins in the checked entries of a table from ``at`` to
    ``end``; -1: nowhere.
    """
    while at < end:
        value = at + 1 + p[at]
        if value - at == key_length and octets.same(p, at, key, 0, key_length):
            return at
        at = fields.skip_value(p, value)
    return -1
