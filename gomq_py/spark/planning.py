"""Decides which offsets a query reads, where they are in segment files, and how tasks share them.

This module does not import Spark, and accesses the broker only through a transport. Planning finds missing
messages before any task starts. For these it raises DataLoss or, if failOnDataLoss is false, logs them and
continues.
"""
import heapq
import logging
import re
from dataclasses import dataclass, replace

from gomq_py.spark.errors import DataLoss, NoStream, OptionError
from gomq_py.spark.offsets import Position
from gomq_py.spark.options import EARLIEST, LATEST, MOST_PARTITIONS
from gomq_py.spark.transport import HEAD_BYTES

LOG = logging.getLogger("gomq_py.spark")


@dataclass(frozen=True)
class Piece:
    """A part of one segment file that a task reads. The part has offsets ``first`` to ``until`` (exclusive),
    in the bytes from ``at`` to ``end``. ``at_offset``: offset of the message whose record begins at ``at``.
    """

    stream: str
    epoch: str
    number: int
    segment_first: int
    at: int
    at_offset: int
    end: int
    first: int
    until: int

    @property
    def bytes(self):
        """Approximate number of bytes of the segment file to read."""
        return self.end - self.at


class Planner:
    """Plans the reading of the streams named in the options. ``transport`` describes the streams."""

    def __init__(self, options, transport):
        self.options = options
        self.transport = transport

    def names(self):
        """Return the names of the streams to read. With subscribePattern, a later call may return more."""
        if self.options.streams is not None:
            return list(self.options.streams)
        wanted = re.compile(self.options["subscribePattern"])
        return sorted(name for name in self.transport.names() if wanted.fullmatch(name))

    def shapes(self):
        """Return {stream: Shape} of the streams to read. Raises NoStream if a stream named in the options is
        missing. With subscribePattern, a stream that is deleted meanwhile is left out.
        """
        shapes = {}
        for name in self.names():
            try:
                shapes[name] = self.transport.describe(name)
            except NoStream:
                if self.options.streams is not None:
                    raise
        return shapes

    # where to begin and to end

    def starts(self, shapes, default):
        """Return {stream: Position} where the query starts. ``shapes``: {stream: Shape}. ``default``:
        EARLIEST or LATEST, for streams whose start no option gives. Raises OptionError (a start beyond the
        end), DataLoss.
        """
        found = {}
        for name, shape in shapes.items():
            time_ms = self._time_ms("starting", name)
            if time_ms is not None:
                at = min(self.transport.offset_for_timestamp(name, time_ms), shape.end_offset)
            else:
                at = self._asked("startingOffsets", name, shape, default)
                if at > shape.end_offset:
                    raise OptionError(
                        f"option startingOffsets begins stream '{name}' at {at}, and it ends at "
                        f"{shape.end_offset}: give an offset up to this")
                at = self.kept(name, shape, at)
            found[name] = end_position(shape, at)
        return found

    def ends(self, shapes):
        """Return {stream: Position} where a batch query ends; by default at the end of each Shape."""
        found = {}
        for name, shape in shapes.items():
            time_ms = self._time_ms("ending", name)
            if time_ms is not None:
                at = self.transport.offset_for_timestamp(name, time_ms)
            else:
                at = self._asked("endingOffsets", name, shape, LATEST)
                if at > shape.end_offset:
                    self.lost(
                        f"option endingOffsets ends stream '{name}' at {at}, "
                        f"and it holds messages up to {shape.end_offset} only")
            found[name] = end_position(shape, min(at, shape.end_offset))
        return found

    def _time_ms(self, side, name):
        """Return the Unix ms to start or end a stream at (``side``: "starting", "ending"), or None."""
        times = self.options[f"{side}OffsetsByTimestamp"]
        return self.options[f"{side}Timestamp"] if times is None else times.get(name)

    def _asked(self, option, name, shape, default):
        """Return the offset that an option gives for a stream. ``default``: the value of a missing option."""
        asked = self.options[option]
        asked = asked.get(name) if isinstance(asked, dict) else asked
        asked = default if asked is None else asked
        return {EARLIEST: shape.first_offset, LATEST: shape.end_offset}.get(asked, asked)

    def kept(self, name, shape, offset):
        """Return ``offset`` or, if the stream begins later, its first offset. Calls ``lost`` in that case."""
        if offset >= shape.first_offset:
            return offset
        self.lost(
            f"stream '{name}' begins at offset {shape.first_offset} now, and {shape.first_offset - offset} "
            f"messages from {offset} on were not read before they were dropped (x-max-age, "
            "x-max-length-bytes, a purge)")
        return shape.first_offset

    def lost(self, text):
        """Raise DataLoss with ``text`` or, if failOnDataLoss is false, log it."""
        if self.options["failOnDataLoss"]:
            raise DataLoss(text)
        LOG.warning("%s: gone on without them", text)

    # division into tasks

    def pieces(self, name, shape, start, stop):
        """Return the Pieces (parts of segments) between two Positions of a stream.

        Calls ``lost`` for offsets that are in no segment.
        """
        found = []
        first, until = start.next, stop.next
        expected = first
        for part in shape.overlapping(first, until):
            begin, end = max(first, part.first_offset), min(until, part.next_offset)
            if begin > expected:
                self.lost(
                    f"stream '{name}' lacks offsets {expected} to {begin - 1}: "
                    "the broker lost them, its log says when")
            at, at_offset = (
                (start.at, first) if start.at and start.segment == part.number and first == begin
                else (HEAD_BYTES, part.first_offset)
            )
            stop_at = stop.at if stop.at and stop.segment == part.number and until == end else part.bytes
            if end > begin:
                found.append(Piece(
                    name, stop.epoch, part.number, part.first_offset, at, at_offset, stop_at, begin, end))
            expected = max(expected, end)
        if expected < until:
            self.lost(
                f"stream '{name}' lacks offsets {expected} to {until - 1}: "
                "the broker lost them, its log says when")
        return found

    def partitions(self, pieces):
        """Divide Pieces (parts of segments) into groups, one per task. Returns a list of lists.

        A group has adjacent Pieces of one stream, together up to ``partitionBytes`` and
        ``maxRecordsPerPartition``. There are at least ``minPartitions`` groups, unless there are fewer
        messages.
        """
        whole = sum(piece.bytes for piece in pieces)
        limit = max(1, min(self.options["partitionBytes"], whole // self.options["minPartitions"]))
        most = self.options["maxRecordsPerPartition"]
        groups, sizes, rows = [], [], 0
        for piece, size in ((piece, piece.bytes) for piece in pieces) if most is None else cut(pieces, most):
            rows += piece.until - piece.first
            if (
                groups and sizes[-1] + size <= limit and groups[-1][-1].stream == piece.stream
                and (most is None or rows <= most)
            ):
                groups[-1].append(piece)
                sizes[-1] += size
            else:
                groups.append([piece])
                sizes.append(size)
                rows = piece.until - piece.first
        return in_more(groups, sizes, self.options["minPartitions"])


def cut(pieces, most):
    """Cut each Piece into equal parts of at most ``most`` messages, and yield (part, its approximate bytes).
    Raises OptionError for more than MOST_PARTITIONS parts.
    """
    counts = [-(-(piece.until - piece.first) // most) for piece in pieces]
    if sum(counts) > MOST_PARTITIONS:
        raise OptionError(
            f"option maxRecordsPerPartition={most} makes {sum(counts)} tasks of a batch, and "
            f"{MOST_PARTITIONS} are the most: give a larger number, or maxOffsetsPerTrigger")
    for piece, count in zip(pieces, counts, strict=True):
        bounds = [piece.first + (piece.until - piece.first) * index // count for index in range(count + 1)]
        for first, until in zip(bounds, bounds[1:], strict=False):
            yield replace(piece, first=first, until=until), piece.bytes // count


def in_more(groups, sizes, least):
    """Return at least ``least`` groups of Pieces (parts of segments), in the same order.

    Divides the largest of the given groups, down to a single message each. ``sizes``: bytes of each group.
    """
    if len(groups) >= least:
        return groups
    divisible = [(-size, index, group[0].first, group) for index, (size, group) in enumerate(
        zip(sizes, groups, strict=True))]
    heapq.heapify(divisible)
    single = []
    while divisible and len(divisible) + len(single) < least:
        size, index, _, group = heapq.heappop(divisible)
        if len(group) > 1 or group[0].until - group[0].first > 1:
            for half in divided(group):
                heapq.heappush(divisible, (size // 2, index, half[0].first, half))
        else:
            single.append((index, group[0].first, group))
    ordered = sorted([*(one[1:] for one in divisible), *single], key=lambda one: one[:2])
    return [group for _, _, group in ordered]


def divided(group):
    """Return two halves of a group of Pieces (parts of segments). A single Piece is cut in the middle."""
    # The second half of a Piece begins at the first byte of the whole Piece, because the position of its
    # first message is not known yet: the reader skips the messages before.
    if len(group) > 1:
        return [group[:len(group) // 2], group[len(group) // 2:]]
    piece, = group
    middle = (piece.first + piece.until) // 2
    return [[replace(piece, until=middle)], [replace(piece, first=middle)]]


def end_position(shape, offset):
    """Return the Position of ``offset``, with segment number and byte position if the Shape shows them."""
    for part in reversed(shape.segments):
        if part.first_offset == offset:
            return Position(shape.epoch, offset, part.number, HEAD_BYTES)
        if offset == shape.end_offset and part.first_offset < offset:
            return (
                Position(shape.epoch, offset, part.number, part.bytes) if part.bytes >= HEAD_BYTES
                else Position(shape.epoch, offset)
            )
        if part.first_offset < offset:
            break
    return Position(shape.epoch, offset)
