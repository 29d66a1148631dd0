"""Header stamp: adds a header to the encoded properties of each message, without decoding, for links.relay.

A message that already has the header goes to the relay's ``edit``, and the resulting headers are cached: most
messages that come over several brokers have the same headers.
"""
from struct import Struct

from gomq_py import octets
from gomq_py.content import fields, properties
from gomq_py.content.properties import PropertyScan

# Property flags; structs of the flags field and of the headers' length.
HEADERS, USER_ID, CONTINUED = 0x2000, 0x0010, 0x0001
HEAD, LENGTH = Struct(">H"), Struct(">I")
# Most cached header tables, and most octets of one.
KNOWN_MOST, KNOWN_OCTETS = 64, 1024


class HeaderStamp:
    """``key``, ``entry``, ``entry_again`` (for a redelivered message): encoded header for messages that have
    neither this key nor a user id.

    For a message with the key and no user id, ``edit`` may change the headers only, and its answer may depend
    only on them and on whether the message is redelivered.
    """

    __slots__ = ("key", "entry", "entry_again", "scan", "known", "unknown")

    def __init__(self, key, entry, entry_again):
        self.key, self.entry, self.entry_again = key, entry, entry_again
        self.scan = PropertyScan()
        self.known = None  # {(encoded headers, redelivered): encoded table from edit, b"": left out}
        self.unknown = None  # key of the answer that edit is to give

    def stamped(self, p, start, end, redelivered):
        """The properties with the header or a cached table; b"": leave the message out; None: call ``edit``.
        """
        self.unknown = None
        if self.scan.scan(p, start, end) or self.scan.flags & (USER_ID | CONTINUED):
            return None
        entry = self.entry_again if redelivered else self.entry
        if self.scan.headers_at < 0:
            at = properties.headers_at(p, start)
            return b"".join((
                HEAD.pack(self.scan.flags | HEADERS), bytes(p[start + 2:at]), LENGTH.pack(len(entry)), entry,
                bytes(p[at:end]),
            ))
        at = self.scan.headers_at
        length = self.scan.headers_length - 4
        following = at + 4 + length
        if fields.find_key(p, at + 4, following, octets.pointer(self.key), len(self.key)) >= 0:
            if length > KNOWN_OCTETS:
                return None
            table = self.table_known(bytes(p[at + 4:following]), redelivered)
            return table and b"".join((bytes(p[start:at]), table, bytes(p[following:end])))
        return b"".join((
            bytes(p[start:at]), LENGTH.pack(length + len(entry)), bytes(p[at + 4:following]), entry,
            bytes(p[following:end]),
        ))

    def answered(self, content):
        """Cache the last answer of ``edit``: properties in wire form, or None to leave the message out."""
        if self.unknown is None:
            return 0
        table = b""
        if content is not None:
            if self.scan.scan(octets.pointer(content), 0, len(content)) or self.scan.headers_at < 0:
                return 0
            at = self.scan.headers_at
            table = content[at:at + self.scan.headers_length]
        if len(self.known) >= KNOWN_MOST:
            self.known.clear()
        self.known[self.unknown] = table
        return 0

    def table_known(self, headers, redelivered):
        """The cached table for these headers, or None."""
        key = headers, redelivered
        if self.known is None:
            self.known = {}
        table = self.known.get(key)
        if table is None:
            self.unknown = key
        return table
