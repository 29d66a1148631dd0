"""Descriptions of streams and segments, and the base class of the transports that read segments."""
from dataclasses import dataclass

# Size of a segment's head, before its first record.
HEAD_BYTES = 128
COPIED_BYTES = 65536


class SegmentGone(Exception):
    """The stream no longer has this segment, or a later stream has its name."""


@dataclass(frozen=True)
class Segment:
    """Describes a segment file of a stream. Its messages have offsets ``first_offset`` to ``next_offset``
    (exclusive). ``bytes``: length of the flushed part, which may be read.
    """

    number: int
    first_offset: int
    next_offset: int
    bytes: int
    first_timestamp_ms: int
    last_timestamp_ms: int


@dataclass(frozen=True)
class Shape:
    """Describes a stream. Messages with offsets ``first_offset`` to ``end_offset`` (exclusive) can be read.

    ``epoch``: differs from that of an earlier or later stream of the same name. ``segments``: a tuple of
    Segment. ``end_is_known``: False if the stream is empty and the broker does not report its next
    offset.
    """

    epoch: str
    first_offset: int
    end_offset: int
    segments: tuple
    end_is_known: bool = True

    def overlapping(self, first, until):
        """Return the segments that hold at least one offset from ``first`` to ``until`` (exclusive)."""
        return [
            part
            for part in self.segments
            if part.first_offset < until and part.next_offset > first and part.first_offset < self.end_offset
        ]


class SegmentTransport:
    """Base of the transports that read segment files, over HTTP or from a folder."""

    def octets_into(self, room, name, epoch, number, at, count):
        """Read ``count`` bytes of segment ``number``, from byte position ``at`` on, into the caller's memory.

        ``room()`` returns the memoryview for the next read. Yields the size of each read. Raises SegmentGone,
        NoStream, Refused, Unreachable.
        """
        raise NotImplementedError

    def octets(self, name, epoch, number, at, count):
        """Yield ``count`` bytes of segment ``number`` from byte position ``at`` on, in chunks."""
        piece = memoryview(bytearray(COPIED_BYTES))
        for came in self.octets_into(lambda: piece, name, epoch, number, at, count):
            yield bytes(piece[:came])

    def mark(self, name, offset):
        """Return "": this transport recognizes a stream by its epoch, not by a digest of a message."""
        return ""
