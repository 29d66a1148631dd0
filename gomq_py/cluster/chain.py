"""Chain: the frames of a leader's events, as a linked list that all links to followers share.

Made by ``stream``, which appends frames and drops the oldest ones. Each link to a follower remembers its
entry of the list, and sends the frames after it at its own pace. A long appended range (replication.Range) is
read when the first link needs it, in pieces of PIECE_OCTETS.
"""
import time

from gomq_py.cluster.wire import events, frames

# A frame is closed at this size: large enough that its header and checksum cost little, small enough to be
# made within a millisecond.
FRAME_OCTETS = 256 * 1024
# Part of a long range in one frame.
PIECE_OCTETS = 256 * 1024
# Shorter frames are sent as they are: a packet of the network carries them either way.
COMPRESSED_OCTETS = 1024
ENTRY_OCTETS = 300  # memory of a frame besides its octets


class Chain:
    """State that all entries of one list share. ``is_dropped``: the whole list was dropped."""

    __slots__ = ("is_dropped",)

    def __init__(self, is_dropped=False):
        self.is_dropped = is_dropped


_DROPPED = Chain(True)


class Entry:
    """A frame in the list.

        position     of the last event that is complete at the end of this frame
        is_whole     False if the frame ends within a later event
        end          total bytes of events up to the end of this frame, since the leader's boot
        made         total memory of frames up to this one, in bytes, since the leader's boot
        told_s       time.monotonic() when the entry was made
        next         the following Entry or None
        cost         memory of this frame, in bytes
    """

    __slots__ = (
        "position", "is_whole", "end", "made", "told_s", "next", "cost", "_chain", "_octets", "_piece")

    def __init__(self, chain, position, is_whole, end, octets=b"", piece=None):
        self.position = position
        self.is_whole = is_whole
        self.end = end
        self.made = 0
        self.told_s = time.monotonic()
        self.next = None
        self._chain = chain
        self.cost = len(octets) + ENTRY_OCTETS
        self._octets = octets
        self._piece = piece  # makes the octets

    @property
    def is_dropped(self):
        """Whether the frames after this one were dropped, so that a link at this entry cannot continue."""
        return self._chain.is_dropped

    @property
    def unread(self):
        """Number of bytes that are still to be read from a file."""
        return 0 if self._piece is None else self._piece.count

    def drop(self):
        """Release the frame's bytes, and the file that they would be read from."""
        piece, self._octets, self._piece, self.cost = self._piece, b"", None, 0
        if piece is not None:
            piece.content.drop()

    def cut(self):
        """Unlink the entries after this one, and set ``is_dropped`` of this one.

        Returns the next Entry, or None.
        """
        after, self.next, self._chain = self.next, None, _DROPPED
        return after


class Piece:
    """A part of ``content``, a long replication.Range: ``count`` bytes from offset ``start`` of the file."""

    __slots__ = ("content", "file_id", "start", "count")

    def __init__(self, content, file_id, start, count):
        self.content = content
        self.file_id = file_id
        self.start = start
        self.count = count


class Room:
    """A buffer in which payloads of frames are put together.

    The first ``filled`` bytes are the payload of the frame that is still open. ``put_piece`` uses the space
    from FRAME_OCTETS on.
    """

    __slots__ = ("octets", "filled")

    def __init__(self):
        self.octets = bytearray(FRAME_OCTETS + events.WRITTEN_OVERHEAD + PIECE_OCTETS)
        self.filled = 0

    def put(self, operation):
        end = self.filled + len(operation)
        self.octets[self.filled:end] = operation
        self.filled = end

    def put_written(self, file_id, file, start, end):
        """Append a WRITTEN to the open frame: the bytes [start, end) of a file, at most PIECE_OCTETS."""
        at = self.filled + events.WRITTEN_OVERHEAD
        with memoryview(self.octets)[at:] as room:
            count = file.read_into(room, start, end)
        events.put_written(self.octets, self.filled, file_id, start, count)
        self.filled = at + count

    def put_piece(self, piece):
        """Put a WRITTEN with the bytes of a Piece at offset FRAME_OCTETS. Returns the offset of its end.

        Raises EOFError if the file is too short.
        """
        at = events.put_written(self.octets, FRAME_OCTETS, piece.file_id, piece.start, piece.count)
        with memoryview(self.octets)[at:at + piece.count] as room:
            count = piece.content.take_into(room)
        if count != piece.count:
            raise EOFError(f"a file of {piece.count} bytes more at {piece.start} ends after {count}")
        return at + count

    def frame(self, start, end, epoch, position):
        """Return an encoded EVENTS frame whose payload is ``octets[start:end]``."""
        with memoryview(self.octets)[start:end] as payload:
            return frames.encode(
                frames.EVENTS, payload, epoch, position, compress=end - start >= COMPRESSED_OCTETS)
