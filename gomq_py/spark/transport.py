"""Classes that transports share: they describe streams and segments, and read the bytes of segments."""
from dataclasses import dataclass

# Size of a segment's head, before its first record.
HEAD_BYTES = 128
COPIED_BYTES = 65536


class SegmentGone(Exception):
    """The stream has dropped this segment, or another stream has the same name now."""


@dataclass(frozen=True)
class Segment:
    """Describes a file of a stream. ``bytes``: how many of its bytes are flushed and may be read."""

    number: int
    first_offset: int
    next_offset: int
    bytes: int
    first_timestamp_ms: int
    last_timestamp_ms: int


@dataclass(frozen=True)
class Shape:
    """Describes a stream: offsets ``first_offset`` to ``end_offset`` (exclusive) can be read. Another
    ``epoch`` means that another stream has the name now. ``end_is_known``: False if the stream is empty and
    the broker does not tell the next offset.
    """

    epoch: str
    first_offset: int
    end_offset: int
    segments: tuple
    end_is_known: bool = True

    def overlapping(self, first, until):
        """The segments that hold any offset from ``first`` to ``until`` (exclusive)."""
        return [
            part
            for part in self.segments
            if part.first_offset < until and part.next_offset > first and part.first_offset < self.end_offset
        ]


class SegmentTransport:
    """Base of transports that read segments, over HTTP or from files."""

    def octets_into(self, room, name, epoch, number, at, count):
        """Read ``count`` bytes of a segment's file from ``at`` on into the views that ``room()`` returns;
        yields the count of each read. Raises SegmentGone, NoStream, Refused, Unreachable.
        """
        raise NotImplementedError

    def octets(self, name, epoch, number, at, count):
        """Like ``octets_into``, but yields the bytes themselves, in chunks."""
        piece = memoryview(bytearray(COPIED_BYTES))
        for came in self.octets_into(lambda: piece, name, epoch, number, at, count):
            yield bytes(piece[:came])

    def mark(self, name, offset):
        """Always "": this transport recognizes streams by their epochs and needs no marks."""
        return ""
