"""Framed log records: the bytes of an append-only file of small records.

Little-endian. The first record has ordinal 0 and no payload, and marks the beginning of the log.

    record head, 36 bytes
     0  2  magic "RL"
     2  1  version, 1
     3  1  reserved, 0
     4  4  payload length
     8  8  ordinal: 0, 1, 2... in the order of appending
    16  8  flushed bytes of this log when the record was written
    24  4  log id: random, new with every rewrite
    28  4  CRC-32C of the payload, starting from the log id
    32  4  CRC-32C of bytes 0 to 32
    36     payload

The log id distinguishes a record of this log from a record of an older log, or from a record quoted in a
payload. After an invalid head a scan searches, byte by byte, for a valid head with this log id and a higher
ordinal. Damage in flushed bytes is a fault of the disk. Two forms of other damage are normal after a crash:
the last append is short, or unwritten parts of sectors read as zeros.
storage.logs.framed_log writes and reads logs; ``fsck`` reads them. Does no I/O, and never interprets a
payload.
"""
import os
from struct import Struct

from gomq_py import octets

HEAD = Struct("<2sBBIQQII")
CHECK = Struct("<I")
HEAD_SIZE = 36
assert HEAD.size + CHECK.size == HEAD_SIZE

MAGIC = b"RL"
VERSION = 1

# 16 MiB: far above any definition (argument tables end at a frame), far below what would hurt when a length
# lies.
MAX_PAYLOAD = 1 << 24

# The unit that a drive writes as a whole.
SECTOR = 512

# No log lives to write that many; a larger ordinal would leave no number for the next record.
MAX_ORDINAL = 1 << 62


class LogError(Exception):
    """The log cannot be read at all. The text has the ``path`` and the ``reason``."""

    def __init__(self, path, reason):
        super().__init__(f"{path}: {reason}")
        self.path = path
        self.reason = reason


class Damage:
    """Bytes [start, end) of a log that contain no valid record. ``torn``: a crash can leave such bytes.
    ``promised``: the bytes were promised to be kept (flushed), or are not ``torn``, so the disk is at fault.
    """

    __slots__ = ("start", "end", "reason", "promised", "torn")

    def __init__(self, start, end, reason, torn):
        self.start = start
        self.end = end
        self.reason = reason
        self.torn = torn
        self.promised = False

    def __repr__(self):
        return f"<Damage {self.start}..{self.end}: {self.reason}{', promised' if self.promised else ''}>"


class LogScan:
    """Reads ``content``, the bytes of a log: iterates over the payloads of the valid records, and collects
    ``damage``, a list of Damage.

    ``end``: position after the last valid record. ``left``: {log id: flushed bytes} that the last run
    recorded for this log and a log replacing it; None if unknown. A shorter log, or one with another id,
    counts as damaged.
    """

    def __init__(self, path, content, left=None):
        self.path = path
        self._left = left
        self.damage = []
        self.end = 0
        self.log_id = None
        self.next_ordinal = 0
        self._content = content
        self._synced = 0

    def __iter__(self):
        position, size = 0, len(self._content)
        while position < size:
            head = self._head_at(position)
            if head is None:
                position = self._skip_to_head(position)
                continue
            ordinal, length, expected = head
            start, position = position, position + HEAD_SIZE + length
            if position > size:
                self.damage.append(Damage(start, size, "payload is cut short", True))
                break
            self.next_ordinal = ordinal + 1
            payload = self._content[start + HEAD_SIZE:position]
            if octets.crc32c(self.log_id, payload, 0, length) != expected:
                self.damage.append(
                    Damage(
                        start, position, f"checksum of record {ordinal} is wrong",
                        self._may_be_torn(start, position),
                    )
                )
                continue
            self.end = position
            if ordinal:
                yield payload
        self._compare_with_left()
        for damage in self.damage:
            damage.promised = damage.start < self._synced or not damage.torn

    def _compare_with_left(self):
        if not self._left or self.log_id is None:
            return
        left = self._left.get(self.log_id)
        if left is None:
            reason = "it is not the log that the last run has left, but an older one or another folder's"
            self.damage.append(Damage(self.end, max(self.end, *self._left.values()), reason, False))
        elif left > len(self._content):
            reason = "the file is shorter than the last run has left it"
            self.damage.append(Damage(len(self._content), left, reason, False))
        else:
            self._synced = max(self._synced, left)

    def _head_at(self, position):
        """Return (ordinal, payload length, payload checksum) of a record head; None if it is invalid."""
        content = self._content
        if position + HEAD_SIZE > len(content):
            return None
        magic, version, _, length, ordinal, synced, log_id, check = HEAD.unpack_from(content, position)
        if (
            magic != MAGIC
            or CHECK.unpack_from(content, position + HEAD.size)[0] != octets.crc32c(
                0, content, position, HEAD.size
            )
        ):
            return None
        if (
            length > MAX_PAYLOAD or not self.next_ordinal <= ordinal <= MAX_ORDINAL
            or (self.log_id is not None and log_id != self.log_id)
        ):
            return None
        if version != VERSION:
            raise LogError(self.path, f"record version {version} at {position}, this gomq-py knows {VERSION}")
        self.log_id = log_id
        self._synced = max(self._synced, synced)
        return ordinal, length, check

    def _skip_to_head(self, start):
        position = start
        while True:
            position = self._content.find(MAGIC, position + 1)
            if position < 0:
                position = len(self._content)
                break
            if self._head_at(position) is not None:
                break
        torn = len(self._content) - start < HEAD_SIZE or self._may_be_torn(start, position)
        self.damage.append(Damage(start, position, "no valid record head", torn))
        return position

    def _may_be_torn(self, start, end):
        """Return whether a crash may have left bytes [start, end): a sector there ends with a zero byte."""
        while start < end:
            until = min(end, start - start % SECTOR + SECTOR)
            if not self._content[until - 1]:
                return True
            start = until
        return False


def log_id_of(content):
    """Return the log id in the first record; None if it is invalid. Raises LogError for unknown versions."""
    scan = LogScan("", content)
    return None if scan._head_at(0) is None else scan.log_id


def encode_record(log_id, ordinal, synced_size, payload):
    """Encode a record. ``synced_size``: the log's flushed bytes. Raises ValueError for a payload too long."""
    if len(payload) > MAX_PAYLOAD:
        raise ValueError(f"a record of {len(payload)} octets is above {MAX_PAYLOAD}")
    head = HEAD.pack(
        MAGIC, VERSION, 0, len(payload), ordinal, synced_size, log_id,
        octets.crc32c(log_id, payload, 0, len(payload)),
    )
    return b"".join((head, CHECK.pack(octets.crc32c(0, head, 0, HEAD.size)), payload))


def encode_log(payloads):
    """Encode a new log with these payloads. Returns (content, log id, number of records)."""
    log_id, count = new_log_id(), 0
    parts = []
    for count, payload in enumerate(payloads, 1):
        parts.append(encode_record(log_id, count, 0, payload))
    content = b"".join(parts)
    # The log takes its name when all of it has been flushed: its birth may say so.
    return encode_record(log_id, 0, HEAD_SIZE + len(content), b"") + content, log_id, count


def new_log_id():
    return int.from_bytes(os.urandom(4), "little")
