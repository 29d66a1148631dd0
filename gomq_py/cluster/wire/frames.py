"""Frames: the unit that leader and follower send each other, with a checksum.

``encode`` makes the bytes of a frame, ``FrameReader`` checks and reads frames from received bytes.
Integers are big endian:

    byte    0  4  magic "GMQC"
            4  1  version, 1
            5  1  kind
            6  1  flags: 1 = the payload is sent as an LZ4 block (without its size in front)
            7  1  zero
            8  8  epoch of the sender
           16  8  position (of EVENTS and HEARTBEAT)
           24  4  raw length: length of the payload, at most 1 MiB
           28  4  sent length: length of the payload as sent
           32  4  CRC-32C of the header, with zeros here, and of the payload as sent
"""
import functools
from struct import Struct
from typing import NamedTuple

from gomq_py.octets import crc32c

MAGIC = b"GMQC"
VERSION = 1
HEADER = Struct(">4sBBBxQQIII")
assert HEADER.size == 36
_CRC = Struct(">I")
_ZERO_AT, _CRC_AT = 7, 32

MAX_PAYLOAD = 1 << 20
LOGIN_MAX_PAYLOAD = 1024  # limit for a peer that has not logged in

HELLO, CHALLENGE, PROOF, WELCOME, REFUSED, EVENTS, HASHES, ACK, HEARTBEAT, FORWARD = range(1, 11)
KINDS = {
    HELLO: "HELLO", CHALLENGE: "CHALLENGE", PROOF: "PROOF", WELCOME: "WELCOME", REFUSED: "REFUSED",
    EVENTS: "EVENTS", HASHES: "HASHES", ACK: "ACK", HEARTBEAT: "HEARTBEAT", FORWARD: "FORWARD",
}
_LZ4 = 1
# LZ4 is used where it saves at least 1/8: a smaller gain is not worth the follower's decompression.
_LEAST_GAIN = 8
# Part of a long payload that is compressed first, for 3 us: 256 KiB in vain take 120.
_SAMPLE_OCTETS = 4096


class FrameError(Exception):
    """A frame is damaged, or is not of this protocol. The connection must be closed."""


class Frame(NamedTuple):
    """A received frame with a valid checksum. ``payload`` is decompressed."""

    kind: int
    epoch: int
    position: int
    payload: bytes


def encode(kind, payload, epoch=0, position=0, compress=False):
    """Return the bytes of a frame. Raises FrameError for a payload over MAX_PAYLOAD.

    ``payload``: bytes-like. ``compress``: use LZ4 if it is installed and saves enough.
    """
    raw = len(payload)
    if raw > MAX_PAYLOAD:
        raise FrameError(f"a payload of {raw} bytes is longer than {MAX_PAYLOAD}")
    sent = _compressed(payload) if compress else None
    flags = 0 if sent is None else _LZ4
    if sent is None:
        sent = payload
    head = bytearray(HEADER.pack(MAGIC, VERSION, kind, flags, epoch, position, raw, len(sent), 0))
    _CRC.pack_into(head, _CRC_AT, _checksum(head, sent))
    return b"".join((head, sent))


class FrameReader:
    """Reads frames from bytes that arrive in pieces of any size.

    After a FrameError each ``next`` raises it again. ``limit``: longest accepted payload, in bytes; may be
    raised between two frames. ``decompresses``: accept frames compressed with LZ4; False at a leader, whose
    followers never compress.
    """

    __slots__ = ("limit", "_flags", "_octets", "_at")

    def __init__(self, limit=MAX_PAYLOAD, decompresses=True):
        self.limit = limit
        self._flags = _LZ4 if decompresses else 0
        self._octets = bytearray()
        self._at = 0  # octets before it were read

    def feed(self, octets):
        """Add received bytes. Call only after ``next`` has returned None, so that the buffer stays small."""
        if self._at:
            del self._octets[:self._at]
            self._at = 0
        self._octets += octets

    @property
    def buffered(self):
        """Number of received bytes that were not returned in a frame yet."""
        return len(self._octets) - self._at

    def next(self):
        """Return the next frame, or None until more bytes arrive.

        Raises FrameError for a wrong magic, version, kind, flag, length or checksum, and for a payload that
        does not decompress to its raw length.
        """
        start = self._at + HEADER.size
        if len(self._octets) < start:
            return None
        kind, flags, epoch, position, raw, length, checksum = self._header()
        if len(self._octets) < start + length:
            return None
        sent = bytes(memoryview(self._octets)[start:start + length])
        head = self._octets[self._at:start]
        _CRC.pack_into(head, _CRC_AT, 0)
        if _checksum(head, sent) != checksum:
            raise FrameError(f"wrong checksum of a frame {KINDS[kind]} of {length} bytes")
        payload = _decompressed(sent, raw) if flags else sent
        self._at = start + length
        return Frame(kind, epoch, position, payload)

    def _header(self):
        """Return the header's fields from the kind to the checksum. Raises FrameError if one is invalid."""
        magic, version, kind, flags, epoch, position, raw, length, checksum = HEADER.unpack_from(
            self._octets, self._at)
        if magic != MAGIC:
            raise FrameError(f"not a frame of a cluster: it begins with {magic!r}")
        if version != VERSION:
            raise FrameError(f"version {version} of the cluster protocol is unknown, this is {VERSION}")
        if kind not in KINDS:
            raise FrameError(f"unknown kind of frame {kind}")
        if flags & ~self._flags:
            if flags == _LZ4:
                raise FrameError("compressed frames are not expected")
            raise FrameError(f"unknown flags {flags:#x} in a frame {KINDS[kind]}")
        if self._octets[self._at + _ZERO_AT]:
            raise FrameError(f"byte {_ZERO_AT} of a frame {KINDS[kind]} is not zero")
        if raw > self.limit:
            raise FrameError(f"a frame {KINDS[kind]} of {raw} bytes is longer than {self.limit}")
        if length > raw or length < raw and not flags:
            raise FrameError(f"a frame {KINDS[kind]} of {raw} bytes is said to be sent as {length}")
        return kind, flags, epoch, position, raw, length, checksum


@functools.cache
def lz4_block():
    """Return the module lz4.block, or None if it is not installed. The first call may read the disk."""
    # The first call may read the disk, and its result stays.
    try:
        import lz4.block
    except (ImportError, OSError):  # OSError: no descriptor is left
        return None
    return lz4.block


def _checksum(head, sent):
    """Return the CRC-32C of a header whose CRC field is zero, and of the payload as sent."""
    return crc32c(crc32c(0, head, 0, len(head)), sent, 0, len(sent))


def _compressed(payload):
    """Return the payload as an LZ4 block, or None if LZ4 is not installed or saves too little."""
    block = lz4_block()
    if block is None or not payload:
        return None
    if len(payload) > 4 * _SAMPLE_OCTETS:
        middle = len(payload) // 2
        sample = payload[middle:middle + _SAMPLE_OCTETS]
        if not _gains(block.compress(sample, store_size=False), _SAMPLE_OCTETS):
            return None
    sent = block.compress(payload, store_size=False)
    return sent if _gains(sent, len(payload)) else None


def _gains(sent, raw):
    return len(sent) <= raw - raw / _LEAST_GAIN


def _decompressed(sent, raw):
    """Return the ``raw`` bytes of a decompressed LZ4 block. Raises FrameError."""
    block = lz4_block()
    if block is None:
        raise FrameError("the leader compresses: install gomq-py[cluster] here, too")
    try:
        payload = block.decompress(sent, uncompressed_size=raw)
    except block.LZ4BlockError as error:
        raise FrameError(f"a payload that should have {raw} bytes cannot be decompressed: {error}") from None
    if len(payload) != raw:
        raise FrameError(f"a payload has {len(payload)} bytes decompressed in place of {raw}")
    return payload
