"""Turns the bytes of segments into batches of rows. Runs in Spark's workers, but does not import Spark.

A reader keeps at most ``batchBytes`` and one record in memory. For a damaged or missing record it raises
DataLoss, which names stream, segment and position. If failOnDataLoss is false it logs the missing offsets
instead, and continues.
"""
import logging
from collections import OrderedDict
from typing import NamedTuple

from gomq_py.spark.errors import DataLoss
from gomq_py.spark.rows import Rows
from gomq_py.spark.transport import SegmentGone
from gomq_py.storage.format import columns, head

LOG = logging.getLogger("gomq_py.spark")
# A header with the longest routing, rounded up to the alignment of records: may begin in one chunk and end in
# the next.
_HEADER_BYTES = 1024


class PieceReader:
    """Reads Pieces (parts of segments) as rows with columns ``names``.

    ``lost``: number of missing messages so far.
    """

    def __init__(self, options, transport, names):
        self._transport = transport
        self._fails = options["failOnDataLoss"]
        self._rows = Rows(options["vhost"], names)
        self._block = columns.Block(options["batchRows"], options["batchBytes"])
        self._chunk_bytes = options["batchBytes"]
        self.lost = 0

    def batches(self, pieces):
        """Yield RecordBatches of these parts of segments, in order. Raises DataLoss and other GomqErrors."""
        for piece in pieces:
            yield from self._read(piece)

    def _read(self, piece):
        block = self._block
        until = piece.until - piece.segment_first
        source = None
        try:
            source, found = self._open(piece)
            yield from self._walk(piece, source, found, until)
            if block.next_ordinal == until:
                _PLACES[piece.epoch, piece.number] = Place(piece.until, source.position, found.seed)
                _PLACES.move_to_end((piece.epoch, piece.number))
                if len(_PLACES) > _MOST_PLACES:
                    _PLACES.popitem(last=False)
        except SegmentGone as error:
            self._lose(
                piece, until, f"its segment {piece.number} is gone ({error}); retention may have dropped it")
            return
        finally:
            if source is not None:
                source.close()
        if block.next_ordinal < until:
            self._lose(piece, until, f"segment {piece.number} ends before them")

    def _open(self, piece):
        """Return (PieceBuffer, segment head). The buffer begins at or before the piece's first record."""
        place = _PLACES.get((piece.epoch, piece.number))
        if place is None or not piece.at_offset < place.offset <= piece.first:
            place = Place(piece.at_offset, piece.at, 0)
        if place.position == head.HEAD_BYTES:
            return self._open_at_start(piece)
        first = b"".join(self._transport.octets(piece.stream, piece.epoch, piece.number, 0, head.HEAD_BYTES))
        found = self._head_of(piece, first)
        if place.seed not in (0, found.seed):  # the file was replaced, as by a restored data folder
            return self._open_at_start(piece)
        self._block.next_ordinal = place.offset - piece.segment_first
        return PieceBuffer(self._transport, piece, place.position), found

    def _open_at_start(self, piece):
        source = PieceBuffer(self._transport, piece, 0)
        source.fill(head.HEAD_BYTES)
        found = self._head_of(piece, bytes(source.buffer[:head.HEAD_BYTES]))
        source.drop(head.HEAD_BYTES)
        self._block.next_ordinal = 0
        return source, found

    def _head_of(self, piece, octets):
        found = head.decode(octets, head.MSGS_MAGIC)
        if (
            found is None or found.incarnation.hex() != piece.epoch
            or found.first_offset != piece.segment_first
        ):
            raise DataLoss(
                f"{self._place(piece, 0)}: the head of the segment does not check. The file is damaged")
        return found

    def _walk(self, piece, source, found, until):
        block = self._block
        first = piece.first - piece.segment_first
        source.fill(self._chunk_bytes)
        at = 0
        while True:
            status = block.walk(source.buffer, at, source.end, found, first, until)
            if block.count:
                yield self._rows.batch(block, source.buffer, piece)
            at = block.at
            if status == columns.FULL:
                continue
            if status in (columns.DONE, columns.END):
                source.drop(at)
                at = 0
            if status == columns.DONE:
                return
            if status == columns.END:
                wanted = max(self._chunk_bytes, block.skipped, source.end + _HEADER_BYTES)
                if not source.fill(wanted) and (at := self._seek(source, at, found.seed)) < 0:
                    return
            elif status == columns.SPOILED:
                ordinal = block.next_ordinal
                block.skip()
                self._lose(
                    piece, ordinal + 1,
                    f"the record at {self._place(piece, source.position + at)} does not check", ordinal,
                )
                at = block.at
            elif status == columns.MISSING:
                before = max(block.next_ordinal, first)
                self._lose(
                    piece, block.accept(source.buffer),
                    f"they are missing before {self._place(piece, source.position + at)}", before,
                )
            else:
                at = self._seek(source, at, found.seed)
                if at < 0:
                    return

    def _seek(self, source, at, seed):
        """Return the buffer position of the next valid record header after a damaged record, or -1."""
        while True:
            found = self._block.seek(source.buffer, at, source.end, seed)
            if found >= 0:
                return found
            source.drop(max(at, (source.end - _HEADER_BYTES) & ~3))
            at = 0
            if not source.fill(source.end + self._chunk_bytes):
                return -1

    def _lose(self, piece, until, why, first=None):
        """Count and log messages of a segment as missing, up to message number ``until`` (exclusive). Numbers
        count from 0 in each segment. ``first``: by default the next unread message. With option
        failOnDataLoss raises DataLoss instead.
        """
        first = max(self._block.next_ordinal, piece.first - piece.segment_first) if first is None else first
        begin, end = piece.segment_first + first, piece.segment_first + until
        self._block.next_ordinal = max(self._block.next_ordinal, until)
        if end <= begin:
            return
        what = f"offset {begin}" if end == begin + 1 else f"offsets {begin} to {end - 1}"
        text = f"stream '{piece.stream}' lacks {what}: {why}"
        if self._fails:
            raise DataLoss(text)
        self.lost += end - begin
        LOG.warning("%s: gone on without them, %d in all", text, self.lost)

    def _place(self, piece, position):
        return f"position {position} of segment {piece.number} of stream '{piece.stream}'"


class Place(NamedTuple):
    """Where a record begins in a segment file. ``offset``: of its message in the stream. ``position``: of the
    record in the file. ``seed``: the segment's checksum seed; 0: unknown.
    """

    offset: int
    position: int
    seed: int


# Where this process stopped reading inside segments. Spark reuses a worker for the next batch, which would
# otherwise begin at the segment's start: batches much smaller than a segment would read it again and again.
_PLACES: OrderedDict = OrderedDict()
_MOST_PLACES = 1024


class PieceBuffer:
    """Reads a Piece of a segment file. ``buffer[:end]`` has the file's bytes from ``position`` on."""

    def __init__(self, transport, piece, start):
        self.buffer = bytearray()
        self.end = 0
        self.position = start
        self._counts = transport.octets_into(
            self._room, piece.stream, piece.epoch, piece.number, start, piece.end - start)

    def close(self):
        self._counts.close()

    def drop(self, count):
        with memoryview(self.buffer) as view:
            view[:self.end - count] = view[count:self.end]
        self.end -= count
        self.position += count

    def fill(self, count):
        """Read until the buffer has ``count`` bytes or the Piece ends. Returns whether anything was read."""
        before = self.end
        if len(self.buffer) < count:
            larger = bytearray(count)
            larger[:self.end] = memoryview(self.buffer)[:self.end]
            self.buffer = larger
        while self.end < count:
            came = next(self._counts, None)
            if came is None:
                break
            self.end += came
        return self.end > before

    def _room(self):
        return memoryview(self.buffer)[self.end:]
