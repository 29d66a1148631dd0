"""Messages: payloads of the frames that are not events: login, checksums of a sync, acks.

Each class is a NamedTuple with ``encode() -> bytes`` and ``decode(payload)``, which raises MessageError.
Integers are big endian; an id is 16 bytes, NO_ID for none.

    HELLO      node id, cluster id (NO_ID: empty folder), epoch u64, run (NO_ID: none), position u64,
               nonce 32, the node's name in printable UTF-8 (1 to 255 bytes)
    CHALLENGE  cluster id, epoch u64, run, nonce 32
    PROOF      32 bytes
    WELCOME    proof 32, u8: 1 if a sync comes first; + 2 if confirms need no flush of the follower; + 4 if
               the leader's run continues the run in HELLO
    REFUSED    text in UTF-8
    HASHES     file id u64, count u32, block_digest u64 of each MiB of the follower's file (count 0: no file)
    ACK        position received u64, position flushed u64, position u64 that is noted in the folder
    HEARTBEAT  the leader's clock u64, in ns since 1970
    FORWARD    node id, cluster id, epoch u64, nonce 32, u8 and the node's name (as in HELLO), u8 and the
               listener's name in ASCII, PROXY header (version 2) of the client

"u8 and the name": the length of the name in one byte, then the name.
"""
from struct import Struct
from typing import NamedTuple

from gomq_py.digests import blake2b

ID_OCTETS = 16
NO_ID = bytes(ID_OCTETS)
NONCE_OCTETS = 32
PROOF_OCTETS = 32
NAME_OCTETS = 255
REFUSED_OCTETS = 512
BLOCK_OCTETS = 1 << 20  # of a file, which HASHES has one number of

_HELLO = Struct(">16s16sQ16sQ32s")
_CHALLENGE = Struct(">16sQ16s32s")
_WELCOME = Struct(">32sB")
_HASHES = Struct(">QI")
_ACK = Struct(">QQQ")
_HEARTBEAT = Struct(">Q")
_FORWARD = Struct(">16s16sQ32s")
assert (_HELLO.size, _CHALLENGE.size, _WELCOME.size, _HASHES.size, _ACK.size) == (96, 72, 33, 12, 24)
assert _FORWARD.size == 72


class MessageError(Exception):
    """A message is malformed."""


class Hello(NamedTuple):
    """The follower's first frame: its own ids, and the last ``position`` received of the leader's ``run``."""

    node_id: bytes
    cluster_id: bytes
    epoch: int
    run: bytes
    position: int
    nonce: bytes
    name: str

    def encode(self):
        return _HELLO.pack(*self[:-1]) + self.name.encode()

    @classmethod
    def decode(cls, payload):
        name = payload[_HELLO.size:]
        if not 0 < len(name) <= NAME_OCTETS:
            raise MessageError(f"a HELLO has {len(payload)} bytes")
        return cls._make((*_HELLO.unpack_from(payload), _name(name)))


class Forward(NamedTuple):
    """The first frame of a follower that passes a client on.

    Contains the follower's ids, the name of the client's ``listener``, such as "amqps", and the ``proxy``
    header with the client's address.
    """

    node_id: bytes
    cluster_id: bytes
    epoch: int
    nonce: bytes
    name: str
    listener: str
    proxy: bytes

    def encode(self):
        name, listener = self.name.encode(), self.listener.encode()
        return b"".join((
            _FORWARD.pack(*self[:4]), bytes((len(name),)), name, bytes((len(listener),)), listener,
            self.proxy))

    @classmethod
    def decode(cls, payload):
        name, at = _short(payload, _FORWARD.size)
        listener, at = _short(payload, at)
        if not listener.isalnum():
            raise MessageError(f"a FORWARD names the listener {listener!r}")
        names = _name(name), str(listener, "ascii")
        return cls._make((*_FORWARD.unpack_from(payload), *names, payload[at:]))


class Challenge(NamedTuple):
    """The leader's answer to HELLO or FORWARD: its cluster, epoch and run, and a nonce to be signed."""

    cluster_id: bytes
    epoch: int
    run: bytes
    nonce: bytes

    def encode(self):
        return _CHALLENGE.pack(*self)

    @classmethod
    def decode(cls, payload):
        return cls(*_unpack(_CHALLENGE, payload, "CHALLENGE"))


class Proof(NamedTuple):
    """The follower's signature of HELLO or FORWARD, and of CHALLENGE (see cluster.login)."""

    digest: bytes

    def encode(self):
        return self.digest

    @classmethod
    def decode(cls, payload):
        if len(payload) != PROOF_OCTETS:
            raise MessageError(f"a PROOF has {len(payload)} bytes")
        return cls(payload)


class Welcome(NamedTuple):
    """The leader's signature (``digest``) of the login's messages and ``flags``.

    ``is_sync``: a full sync comes first. ``counts_received``: the leader's confirms wait until changes are
    received, not until they are flushed, so the follower acknowledges them at once. ``is_successor``: the
    leader's run is not the run in HELLO, but continues it.
    """

    digest: bytes
    is_sync: bool
    counts_received: bool = False
    is_successor: bool = False

    @property
    def flags(self):
        """The last byte of the encoded message."""
        return self.is_sync + 2 * self.counts_received + 4 * self.is_successor

    def encode(self):
        return _WELCOME.pack(self.digest, self.flags)

    @classmethod
    def decode(cls, payload):
        digest, flags = _unpack(_WELCOME, payload, "WELCOME")
        if flags > 7:
            raise MessageError(f"a WELCOME says {flags} in place of 0 to 7")
        return cls(digest, bool(flags & 1), bool(flags & 2), bool(flags & 4))


class Refused(NamedTuple):
    """A refusal. ``text``: the reason, for the peer's operator; cut at REFUSED_OCTETS bytes."""

    text: str

    # It is from a peer that may have proved nothing: show it quoted.
    def encode(self):
        return self.text.encode("utf-8", "replace")[:REFUSED_OCTETS]

    @classmethod
    def decode(cls, payload):
        return cls(str(payload[:REFUSED_OCTETS], "utf-8", "replace"))


def block_digest(octets):
    """Return the checksum of a file's block in HASHES: 8 bytes of BLAKE2b, as an integer."""
    # It is no CRC: records of the store end with their own CRC-32C, so that one in the place of another
    # leaves the CRC-32C of the block as it was.
    return int.from_bytes(blake2b(octets, digest_size=8).digest())


class Hashes(NamedTuple):
    """Checksums (``block_digest``) of each MiB of the follower's file; empty if it has no such file."""

    file_id: int
    checksums: tuple

    def encode(self):
        count = len(self.checksums)
        return _HASHES.pack(self.file_id, count) + Struct(f">{count}Q").pack(*self.checksums)

    @classmethod
    def decode(cls, payload, blocks_of=None):
        """Decode a payload. If the file's checksums are not awaited, drops them. Raises MessageError.

        ``blocks_of(file_id)`` returns the most checksums that the file may have, or None if they are not
        awaited.
        """
        # Limits what a follower can make a leader keep: checksums of a file that nobody waits for are not
        # read.
        if len(payload) < _HASHES.size:
            raise MessageError(f"a HASHES has {len(payload)} bytes")
        file_id, count = _HASHES.unpack_from(payload)
        if len(payload) != _HASHES.size + 8 * count:
            raise MessageError(f"a HASHES of {count} blocks has {len(payload)} bytes")
        most = count if blocks_of is None else blocks_of(file_id)
        if most is None:
            return cls(file_id, ())
        if count > most:
            raise MessageError(f"a HASHES has {count} checksums of a file of {most} blocks")
        return cls(file_id, Struct(f">{count}Q").unpack_from(payload, _HASHES.size))


class Ack(NamedTuple):
    """Positions that a follower has received, has flushed to its disk, and has noted in its ``.cluster``."""

    received: int
    flushed: int
    noted: int = 0

    def encode(self):
        return _ACK.pack(*self)

    @classmethod
    def decode(cls, payload):
        ack = cls(*_unpack(_ACK, payload, "ACK"))
        if not ack.noted <= ack.flushed <= ack.received:
            raise MessageError(
                f"an ACK says {ack.flushed} are flushed of {ack.received} received, {ack.noted} noted")
        return ack


class Heartbeat(NamedTuple):
    """The leader's clock, in nanoseconds since 1970, or None."""

    time_ns: int | None

    def encode(self):
        return b"" if self.time_ns is None else _HEARTBEAT.pack(self.time_ns)

    @classmethod
    def decode(cls, payload):
        return cls(*_unpack(_HEARTBEAT, payload, "HEARTBEAT")) if payload else cls(None)


def _unpack(fields, payload, name):
    if len(payload) != fields.size:
        raise MessageError(f"a {name} has {len(payload)} bytes")
    return fields.unpack(payload)


def _short(payload, at):
    """Read a byte string that follows its length, in one byte, at ``payload[at]``. Raises MessageError.

    Returns (the byte string, the offset after it).
    """
    end = at + 1 + payload[at] if at < len(payload) else 0
    if not at + 1 < end <= len(payload):
        raise MessageError(f"a FORWARD has {len(payload)} bytes")
    return payload[at + 1:end], end


def _name(octets):
    """Decode a node's printable name. Raises MessageError."""
    name = str(octets, "utf-8", "replace")
    if not name.isprintable() or "\ufffd" in name:
        raise MessageError("the name of a node is not printable UTF-8")
    return name
