"""Group key: reads from a message to which group it belongs, for a group_store.

The key is the routing key, the correlation id, or a header with a text, bytes or an integer. A message
without a key belongs to no group. The same holds for an empty key and for a header of another type.
"""
from gomq_py import octets
from gomq_py.content import fields, properties
from gomq_py.digests import blake2b

# Longer keys are kept as digests: a group takes the same memory whatever its key.
WHOLE_KEY_OCTETS = 32


class GroupKey:
    """Reads the group keys of the messages of one queue. ``source``: "routing-key", "correlation-id" or
    "header". ``header``: name of the header, as bytes.
    """

    __slots__ = ("is_in_routing", "is_header", "header", "header_at", "header_octets")

    def __init__(self, source, header=b""):
        self.is_in_routing = source == "routing-key"
        self.is_header = source == "header"
        self.header = bytes((len(header),)) + header
        self.header_at = self.header  # for C: points into ``header``
        self.header_octets = len(self.header)

    def in_routing(self, p, at):
        """Return the group key in the exchange name and routing key, two short strings at ``p[at]``; None if
        the message has none.
        """
        at += 1 + p[at]
        return self._key(p, at + 1, p[at])

    def in_properties(self, p, at):
        """Return the key in valid AMQP basic properties at ``at``; None without a key."""
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
        """Return the key in valid AMQP basic properties, given as bytes; None without a key."""
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
    """Return a key as text, or as hexadecimal digits if it is a digest (of a long key) or unprintable."""
    try:
        text = key.decode()
    except UnicodeDecodeError:
        return key.hex()
    return text if len(key) <= 32 and text.isprintable() else key.hex()
