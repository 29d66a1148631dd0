"""Descriptions of streams and segments. Plain data; made by http_transport, files_transport and
amqp_transport.
"""
from dataclasses import dataclass

# Size of a segment's head, before its first record.
HEAD_BYTES = 128


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
