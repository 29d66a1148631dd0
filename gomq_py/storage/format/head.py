"""Heads: encodes and decodes the first 128 bytes of a segment's two files. Numbers are little-endian.

    Both files: the head proper, unchanged until the file is recycled.

    offset size
         0    8  magic "GOMQMSGS" or "GOMQACKS"
         8    4  schema version: 2; in version 1 there are no small records (format.record)
        12    4  segment number
        16   16  incarnation of the queue: random, made when it was declared
        32    8  generation: unique, so that old content of a recycled file is not valid
        40    8  offset of the first record (streams); 0 otherwise
        48    4  capacity of the msgs file in bytes
        52    8  begun: base of the timestamps of small records, Unix milliseconds; 0 in version 1
        60    4  CRC-32C of bytes 0..59: the seed of every other checksum in the file

msgs only: the seal (closing counts), written when all records have been flushed.

    offset size
        64    4  records                           64..111 are zeros: not sealed
        68    4  next ordinal
        72    8  body bytes of all records
        80    4  end of the data
        84    8  first timestamp                   of the first record, Unix milliseconds
        92    8  last timestamp
       100    8  0
       108    4  CRC-32C of bytes 64..107, from the seed + 1
       112    4  synced through: everything before this position was flushed; damage there is a fault of the
              disk, not the effect of a crash
       116    4  CRC-32C of the position, from the seed + 2

    offset size                                    acks only
        64    4  delivered through: records before this position have been given to a consumer once
        68    4  CRC-32C of the position, from the seed + 3
        72    4  entries                           the seal of a clean stop; 72..95 are zeros: none
        76    4  acked records
        80    8  body bytes of acked records
        88    4  0
        92    4  CRC-32C of bytes 72..91, from the seed + 4

From 128 on, format.record describes the content of both files. Does no I/O.
"""
from struct import Struct
from typing import NamedTuple

from gomq_py import octets

SCHEMA_VERSION = 2
VERSIONS = (1, SCHEMA_VERSION)
HEAD_BYTES = 128
MSGS_MAGIC = b"GOMQMSGS"
ACKS_MAGIC = b"GOMQACKS"

_HEAD = Struct("<8sII16sQQIQI")
_SEAL = Struct("<IIQIQQ8xI")
_ACKS_SEAL = Struct("<IIQ4xI")
assert (_HEAD.size, _SEAL.size, _ACKS_SEAL.size) == (64, 48, 24)

SEAL_AT = 64
SYNCED_AT = 112
DELIVERED_AT = 64
ACKS_SEAL_AT = 72
ACKS_SEAL_BYTES = _ACKS_SEAL.size

# Salts of the seed, one for each kind of checksum in a head, so that none can stand for another.
_SEAL_SALT = 1
SYNCED_SALT = 2
DELIVERED_SALT = 3
_ACKS_SEAL_SALT = 4


class Head(NamedTuple):
    """The 64 bytes at the start of both segment files, decoded. ``seed`` is their checksum."""

    magic: bytes
    number: int
    incarnation: bytes
    generation: int
    first_offset: int
    capacity: int
    begun_ms: int
    seed: int = 0
    version: int = SCHEMA_VERSION

    def twin(self, magic):
        """Return the head of the segment's other file, which differs in ``magic`` and checksum."""
        return decode(self._replace(magic=magic).encode())

    def encode(self):
        head = _HEAD.pack(self.magic, self.version, *self[1:7], 0)
        return head[:60] + octets.crc32c(0, head, 0, 60).to_bytes(4, "little")


class Seal(NamedTuple):
    """The closing counts in the head of a complete msgs file."""

    records: int
    next_ordinal: int
    body_bytes: int
    end: int
    first_timestamp_ms: int
    last_timestamp_ms: int


class AcksSeal(NamedTuple):
    """The closing counts in the head of an acks file, written at a normal stop."""

    entries: int
    acked: int
    body_bytes: int


def decode(head, magic=None):
    """Decode a ``Head`` from 64 bytes. Returns None if the bytes are invalid, have an unknown schema version,
    or do not begin with ``magic``. ``magic``: MSGS_MAGIC, ACKS_MAGIC, or None for either.
    """
    if len(head) < 64:
        return None
    found, version, *fields = _HEAD.unpack_from(head)
    if found not in (MSGS_MAGIC, ACKS_MAGIC) or version not in VERSIONS or magic not in (None, found):
        return None
    if octets.crc32c(0, head, 0, 60) != fields[-1]:
        return None
    return Head(found, *fields)._replace(version=version)


def encode_seal(seed, seal):
    """Encode a msgs file's seal (closing counts) in 48 bytes."""
    return _closed(seed + _SEAL_SALT, _SEAL.pack(*seal, 0))


def decode_seal(seed, head):
    """Return the ``Seal`` (closing counts) in a msgs file's first 128 bytes; None if missing or damaged."""
    part = head[SEAL_AT:SEAL_AT + _SEAL.size]
    return Seal(*_SEAL.unpack(part)[:-1]) if _is_closed(seed + _SEAL_SALT, part, _SEAL.size) else None


def encode_acks_seal(seed, seal):
    """Encode an acks file's seal (closing counts) in 24 bytes."""
    return _closed(seed + _ACKS_SEAL_SALT, _ACKS_SEAL.pack(*seal, 0))


def decode_acks_seal(seed, head):
    """Return ``AcksSeal`` (closing counts) of an acks file's first 128 bytes; None if missing or damaged."""
    part = head[ACKS_SEAL_AT:ACKS_SEAL_AT + _ACKS_SEAL.size]
    return (
        AcksSeal(*_ACKS_SEAL.unpack(part)[:-1]) if _is_closed(seed + _ACKS_SEAL_SALT, part, _ACKS_SEAL.size)
        else None
    )


def decode_mark(seed, salt, head, at):
    """Return the position in ``head[at:at + 8]``; 0 if the checksum after it is wrong. ``salt``: number that
    this kind of position adds to the seed.
    """
    part = head[at:at + 8]
    if len(part) < 8 or not _is_closed(seed + salt, part, 8):
        return 0
    return int.from_bytes(part[:4], "little")


def _closed(seed, part):
    return part[:-4] + octets.crc32c(seed & 0xFFFFFFFF, part, 0, len(part) - 4).to_bytes(4, "little")


def _is_closed(seed, part, size):
    return len(part) == size and any(part) and _closed(seed, part) == part
