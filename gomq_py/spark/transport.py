"""What a transport knows of streams: their shape, and octets of their segments. Plain data; http_transport,
files_transport and amqp_transport make it.
"""
from dataclasses import dataclass

# What is before the first record of a segment.
HEAD_BYTES = 128


@dataclass(frozen=True)
class Segment:
    """One file of a stream. ``bytes``: how many octets of it, from its start, are flushed and may be read;
    times are Unix milliseconds.
    """

    number: int
    first_offset: int
    next_offset: int
    bytes: int
    first_timestamp_ms: int
    last_timestamp_ms: int


@dataclass(frozen=True)
class Shape:
    """What a stream holds: offsets from ``first_offset`` up to, not including, ``end_offset`` can be read,
    and mean the same as long as ``epoch`` is the same. ``end_is_known`` is False for an empty stream of a
    broker that does not tell which offset comes next.
    """

    epoch: str
    first_offset: int
    end_offset: int
    segments: tuple
    end_is_known: bool = True

    def overlapping(self, first, until):
        """The segments that hold offsets from ``first`` up to, not including, ``until``."""
        return [
            part
            for part in self.segments
            if part.first_offset < until and part.next_offset > first and part.first_offset < self.end_offset
        ]
