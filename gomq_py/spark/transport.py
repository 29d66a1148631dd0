"""Parts that all transports share: descriptions of streams and segments, and reading segments' bytes."""
from dataclasses import dataclass

# Size of a segment's head, before its first record.
HEAD_BYTES = 128
COPIED_BYTES = 65536


class SegmentGone(Exception):
    """The broker no longer has this segment, or has another stream of this name."""


@dataclass(frozen=True)
class Segment:
    """One file of a stream. ``bytes``: the flushed length, which may be read; times are Unix milliseconds."""

    number: int
    first_offset: int
    next_offset: int
    bytes: int
    first_timestamp_ms: int
    last_timestamp_ms: int


@dataclass(frozen=True)
class Shape:
    """Offsets from ``first_offset`` to ``end_offset`` (exclusive) of a stream can be read, and mean the same
    as long as ``epoch`` is the same. ``end_is_known``: False for an empty stream of a broker that does not
    report the next offset.
    """

    epoch: str
    first_offset: int
    end_offset: int
    segments: tuple
    end_is_known: bool = True

    def overlapping(self, first, until):
        """The segments with offsets from ``first`` to ``until`` (exclusive)."""
        return [
            part
            for part in self.segments
            if part.first_offset < until and part.next_offset > first and part.first_offset < self.end_offset
        ]


class SegmentTransport:
    """A transport that reads segments: over HTTP, or from files."""

    def octets_into(self, room, name, epoch, number, at, count):
        """Read ``count`` bytes of a segment's file from ``at`` on into the views that ``room()`` returns;
        yields the count of each read. Raises SegmentGone, NoStream, Refused, Unreachable.
        """
        raise NotImplementedError

    def octets(self, name, epoch, number, at, count):
        """``octets_into`` as chunks of bytes."""
        piece = memoryview(bytearray(COPIED_BYTES))
        for came in self.octets_into(lambda: piece, name, epoch, number, at, count):
            yield bytes(piece[:came])

    def mark(self, name, offset):
        """Always "": epochs identify streams."""
        return ""
