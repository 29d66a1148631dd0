"""Stamp: a header that a relay writes on each message, octets in and octets out.

For relays (links.relay). Decodes nothing. A message that has the header already is shown to the relay's
``edit``; what that has made of its headers is remembered: of messages that come over several brokers most
have the same.
"""
from struct import Struct

from gomq_py import octets
from gomq_py.content import header_scan
from gomq_py.content.properties import PropertyScan

# Flags of properties, and what stands in front of them and of the headers.
HEADERS, USER_ID, CONTINUED = 0x2000, 0x0010, 0x0001
HEAD, LENGTH = Struct(">H"), Struct(">I")
# Tables of headers that are remembered, and how large one may be.
KNOWN_MOST, KNOWN_OCTETS = 64, 1024


class Stamp:
    """``key``, ``entry``, ``entry_again`` (of a redelivered message): octets of a header, which messages get
    that have none of this key and no user id.

    ``edit`` may change nothing but the headers of a message that has the key and no user id, and goes by
    those and whether it is redelivered.
    """

    __slots__ = ("key", "entry", "entry_again", "scan", "known", "unknown")

    def __init__(self, key, entry, entry_again):
        self.key, self.entry, self.entry_again = key, entry, entry_again
        self.scan = PropertyScan()
        self.known = None  # {(octets of headers, redelivered): their table as edited, b"": left out}
        self.unknown = None  # its next key

    def stamped(self, p, start, end, redelivered):
        """The properties that stand from ``start`` to ``end``, with the header, or changed as those of a
        message before; b"": the message is left out. None where ``edit`` is to be asked.
        """
        self.unknown = None
        if self.scan.scan(p, start, end) or self.scan.flags & (USER_ID | CONTINUED):
            return None
        entry = self.entry_again if redelivered else self.entry
        if self.scan.headers_at < 0:
            at = header_scan.headers_at(p, start)
            return b"".join((
                HEAD.pack(self.scan.flags | HEADERS), bytes(p[start + 2:at]), LENGTH.pack(len(entry)), entry,
                bytes(p[at:end]),
            ))
        at = self.scan.headers_at
        length = self.scan.headers_length - 4
        following = at + 4 + length
        if header_scan.find_key(p, at + 4, following, octets.pointer(self.key), len(self.key)) >= 0:
            if length > KNOWN_OCTETS:
                return None
            table = self.table_known(bytes(p[at + 4:following]), redelivered)
            return table and b"".join((bytes(p[start:at]), table, bytes(p[following:end])))
        return b"".join((
            bytes(p[start:at]), LENGTH.pack(length + len(entry)), bytes(p[at + 4:following]), entry,
            bytes(p[following:end]),
        ))

    def answered(self, content):
        """What ``edit`` has made of the last message, in wire form; None: it is left out."""
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
        """The table that ``edit`` has made of these headers; None: it was not asked yet."""
        key = headers, redelivered
        if self.known is None:
            self.known = {}
        table = self.known.get(key)
        if table is None:
            self.unknown = key
        return table
