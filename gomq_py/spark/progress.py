"""The progress of a streaming query: the end of its next batch, and the messages between two checkpoints.

A stream that was deleted, recreated or truncated since the checkpoint counts as data loss. If failOnDataLoss
is false the query continues with the remaining messages. This module does not import Spark.
"""
import time
from dataclasses import replace

from gomq_py.spark.errors import NoStream
from gomq_py.spark.offsets import Position, behind
from gomq_py.spark.planning import end_position


class Progress:
    """Tracks one streaming query. ``seen``: {stream: Position}, the ends of the streams at ``next_end``;
    ``firsts``: {stream: first offset}, from the same time.
    """

    def __init__(self, options, planner, clock=time.monotonic):
        self._options = options
        self._planner = planner
        self._clock = clock
        self._target = None
        self._batch_s = None  # when the last batch began
        self._ends = {}
        self.firsts = {}
        self.seen = {}

    def metrics(self):
        """Return average, maximum and minimum number of unread messages per stream, as a dict.

        The keys are those of Spark's Kafka source. The numbers are those after the last ``next_end``; before
        it, the dict is empty.
        """
        counts = list(behind(self._ends, self.seen, self.firsts).values())
        return {
            "avgOffsetsBehindLatest": sum(counts) / len(counts), "maxOffsetsBehindLatest": max(counts),
            "minOffsetsBehindLatest": min(counts)} if counts else {}

    def fix_target(self):
        """Make the present ends of the streams the end of the query."""
        self._target = {
            name: end_position(shape, shape.end_offset) for name, shape in self._planner.shapes().items()
        }

    def next_end(self, start, is_limited):
        """Return {stream: Position} at which the batch that begins at ``start`` ends.

        The end is equal to ``start`` if there are no new messages, or too few (minOffsetsPerTrigger).
        ``is_limited``: apply maxOffsetsPerTrigger and maxBytesPerTrigger.
        """
        shapes = self._shapes(start)
        self.seen = {name: end_position(shape, shape.end_offset) for name, shape in shapes.items()}
        self.firsts = {name: shape.first_offset for name, shape in shapes.items()}
        spans = {name: self._span(name, shape, start.get(name)) for name, shape in shapes.items()}
        lengths = {name: end - begin for name, (begin, end) in spans.items()}
        if self._waits_for_more(sum(lengths.values())):
            self._ends = start
            return dict(start)
        if is_limited and self._options["maxOffsetsPerTrigger"] is not None:
            lengths = shares(lengths, self._options["maxOffsetsPerTrigger"])
        if is_limited and self._options["maxBytesPerTrigger"] is not None:
            lengths = {
                name: min(length, self._rows_of(shapes[name], spans[name], lengths))
                for name, length in lengths.items()
            }
        ends = dict(start)
        for name, length in lengths.items():
            if length:
                ends[name] = self._marked(name, self._smooth(shapes[name], spans[name], length), shapes[name])
            elif name not in start:
                ends[name] = end_position(shapes[name], spans[name][0])
        self._ends = ends
        return ends

    def _waits_for_more(self, count):
        """Return whether ``count`` unread messages are too few to begin a batch (minOffsetsPerTrigger).

        They are not too few if the last batch began at least maxTriggerDelay ago.
        """
        # Not in a query for what is there now, which would wait for messages that it must not read.
        least = self._options["minOffsetsPerTrigger"]
        if least is None or self._target is not None or not count:
            return False
        now_s = self._clock()
        if count < least and self._batch_s is not None and (
            (now_s - self._batch_s) * 1000 < self._options["maxTriggerDelay"]
        ):
            return True
        self._batch_s = now_s
        return False

    def pieces(self, start, end):
        """Return the Pieces (parts of segments) to read between two {stream: Position}."""
        found = []
        for name, stop in end.items():
            begin = start.get(name)
            if begin == stop:
                continue
            try:
                shape = self._planner.transport.describe(name)
            except NoStream:
                self._planner.lost(
                    f"stream '{name}' was deleted before its messages up to offset {stop.next - 1} were read")
                continue
            if shape.epoch not in ("", stop.epoch):
                self._planner.lost(
                    f"stream '{name}' was deleted and declared again before its messages up to offset "
                    f"{stop.next - 1} were read")
                continue
            # A stream found during the query is read from its first message.
            if begin is None or begin.epoch != stop.epoch:
                begin = Position(stop.epoch, min(shape.first_offset, stop.next))
            found += self._planner.pieces(name, shape, begin, stop)
        return found

    def _shapes(self, start):
        """Return {stream: Shape} of all streams in the options or in the checkpoint ``start``."""
        shapes = {}
        for name in dict.fromkeys([*self._planner.names(), *start]):
            try:
                shape = self._planner.transport.describe(name)
                shapes[name] = self._recognised(name, shape, start.get(name))
            except NoStream:
                if name in start:
                    self._planner.lost(
                        f"stream '{name}' is not there any more; it was read up to offset {start[name].next}")
        return shapes

    def _marked(self, name, offset, shape):
        """Return the Position of a batch's end, with a digest if the transport recognizes streams by it."""
        found = end_position(shape, offset)
        mark = self._planner.transport.mark(name, offset)
        return replace(found, mark=mark) if mark else found

    def _recognised(self, name, shape, begin):
        """Return the Shape with an epoch. ``begin``: the stream's Position in the checkpoint, or None.

        If the transport knows no epochs, the epoch is that of the checkpoint or, if a different stream has
        the name now, the next number.
        """
        # The mark or the end shows that.
        if shape.epoch or begin is None:
            return shape
        is_another = shape.end_is_known and begin.next > shape.end_offset
        if begin.mark and shape.first_offset < begin.next < shape.end_offset:
            is_another = self._planner.transport.mark(name, begin.next) not in ("", begin.mark)
        if is_another:
            return replace(shape, epoch=str(int(begin.epoch) + 1 if begin.epoch.isdecimal() else 1))
        return replace(shape, epoch=begin.epoch)

    def _span(self, name, shape, begin):
        """Return (first offset, end offset) of a stream's unread messages up to the query's end. ``begin``:
        the stream's Position in the checkpoint, or None. Raises DataLoss.
        """
        if begin is not None and not shape.end_is_known:
            return begin.next, begin.next
        end = shape.end_offset
        if self._target is not None:
            target = self._target.get(name)
            end = min(end, target.next) if target is not None and target.epoch in ("", shape.epoch) else 0
        if begin is None:
            at = shape.first_offset
        elif begin.epoch != shape.epoch:
            self._planner.lost(
                f"stream '{name}' was deleted and declared again since it was read up to offset {begin.next}")
            at = shape.first_offset
        elif begin.next > shape.end_offset:
            self._planner.lost(
                f"stream '{name}' was read up to offset {begin.next} and ends at {shape.end_offset}: its "
                "data folder is older than the checkpoint")
            at = shape.end_offset
        else:
            at = self._planner.kept(name, shape, begin.next)
        return at, max(at, end)

    def _smooth(self, shape, span, length):
        """Return the end offset of a batch of at most ``length`` rows: the end of a segment, if one is near.

        ``span``: (first, end) of the unread offsets.
        """
        # The last end of a segment in the batch's second half, so that the next batch begins with a segment;
        # otherwise ``length`` rows.
        end = span[0] + length
        if end < span[1]:
            bounds = [
                part.next_offset for part in shape.segments if span[0] + length // 2 < part.next_offset <= end
            ]
            return bounds[-1] if bounds else end
        return end

    def _rows_of(self, shape, span, lengths):
        """Return the number of a stream's rows that fit into its share of maxBytesPerTrigger; at least 1."""
        share = max(
            1, self._options["maxBytesPerTrigger"] // max(1, sum(1 for length in lengths.values() if length)))
        count, left = 0, share
        for part in shape.overlapping(*span):
            begin, end = max(part.first_offset, span[0]), min(part.next_offset, span[1])
            row_bytes = max(1, part.bytes // max(1, part.next_offset - part.first_offset))
            fitting = min(end - begin, left // row_bytes)
            count += fitting
            left -= fitting * row_bytes
            if fitting < end - begin:
                break
        return max(1, count)


def shares(lengths, limit):
    """Divide ``limit`` rows among streams in proportion to ``lengths``, {stream: unread rows}.

    Returns {stream: rows}. Each stream with unread rows gets at least one row, as long as rows are left.
    """
    whole = sum(lengths.values())
    if whole <= limit:
        return lengths
    found, left = {}, limit
    for name, length in sorted(lengths.items(), key=lambda item: item[1]):
        found[name] = min(length, left, max(1, limit * length // whole)) if length else 0
        left -= found[name]
    for name in found:
        more = min(lengths[name] - found[name], left)
        found[name] += more
        left -= more
    return found
