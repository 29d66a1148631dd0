"""Group key: reads which group a message belongs to, for a group_store.

It is the routing key, the correlation id, or a header: a text, octets or an integer. A message without a key,
or with an empty one, belongs to no group; nor does one with a header of another type.
"""
from gomq_py import octets
from gomq_py.content import fields, properties
from gomq_py.digests import blake2b

# Longer keys are kept as digests: a group takes the same memory whatever its key.
WHOLE_KEY_OCTETS = 32


class GroupKey:
    """Reads the keys of one queue. ``source``: "routing-key", "correlation-id" or "header"; ``header``: the
    header's name in octets, which the object keeps as a table has it, its length first.
    """

    __slots__ = ("is_in_routing", "is_header", "header", "header_at", "header_octets")

    def __init__(self, source, header=b""):
        self.is_in_routing = source == "routing-key"
        self.is_header = source == "header"
        self.header = bytes((len(header),)) + header
        self.header_at = self.header  # for C: points into ``header``
        self.header_octets = len(self.header)

    def in_routing(self, p, at):
        """The key in exchange name and routing key, two adjacent short strings at ``at``; None without one.
        """
        at += 1 + p[at]
        return self._key(p, at + 1, p[at])

    def in_properties(self, p, at):
        """The key in checked basic properties at ``at``; None without one."""
        flags = octets.be16(p, at)
        at = properties.headers_at(p, at)
        if self.is_header:
            return self._in_headers(p, at) if flags & properties.HEADERS else None
        if not flags & properties.CORRELATION_ID:
            return None
        if flags & properties.HEADERS:
            at += 4 + octets.be32(p, at)
        if flags & properties.DELIVERY_MODE:
            at += 1
        if flags & properties.PRIORITY:
            at += 1
        return self._key(p, at + 1, p[at])

    def of_octets(self, octets_):
        """The key in checked basic properties given as bytes, for those translated from another protocol."""
        return self.in_properties(octets.pointer(octets_), 0)

    def _in_headers(self, p, at):
        at = fields.find_key(p, at + 4, at + 4 + octets.be32(p, at), self.header_at, self.header_octets)
        if at < 0:
            return None
        at += 1 + p[at]
        if p[at] == fields.LONGSTR or p[at] == fields.OCTETS:
            return self._key(p, at + 5, octets.be32(p, at + 1))
        return b"%d" % fields.integer(p, at) if fields.is_integer(p, at) else None

    def _key(self, p, at, length):
        if length == 0:
            return None
        whole = octets.part(p, at, length)
        if length <= WHOLE_KEY_OCTETS:
            return whole
        return blake2b(whole, digest_size=WHOLE_KEY_OCTETS + 1).digest()  # longer than a key kept whole


def shown(key):
    """A key as text: octets that are no text, and digests of long keys, in hexadecimal digits."""
    try:
        text = key.decode()
    except UnicodeDecodeError:
        return key.hex()
    return text if len(key) <= 32 and text.isprintable() else key.hex()
