"""Chain: encodes the changes of the leader's files as frames, once for all followers.

Called by storage.disk.replication; used by the links to followers (cluster.leader). The changes of one pass
of the event loop share a frame, up to FRAME_OCTETS. Each link sends the chained frames at its own pace, so a
follower that reconnects soon needs no full sync. Frames are dropped for a follower that is too far behind,
which then needs a full sync.

Never blocks, never switches, never raises to the storage. Long appended ranges (replication.Range) are read
when the first link needs them, in pieces of PIECE_OCTETS.
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
    """Flag that the entries of one chain share. ``is_dropped``: all these entries are dropped."""

    __slots__ = ("is_dropped",)

    def __init__(self, is_dropped=False):
        self.is_dropped = is_dropped


_DROPPED = Chain(True)


class Entry:
    """A frame in the chain.

        position     of the last whole event in this frame or before
        is_whole     whether the frame ends with that event
        end          bytes of events until the end of this frame, since the leader's boot
        made         bytes of frames until the end of this frame, since the leader's boot
        told_s       time of the frame
        next         the following Entry or None
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
        """Whether the frames after this one are gone."""
        return self._chain.is_dropped

    @property
    def unread(self):
        """Number of bytes of a range that are still to be read."""
        return 0 if self._piece is None else self._piece.count

    def drop(self):
        """Release the frame's bytes."""
        piece, self._octets, self._piece, self.cost = self._piece, b"", None, 0
        if piece is not None:
            piece.content.drop()

    def cut(self):
        """Unlink the frames after this one. Returns the next Entry, or None."""
        after, self.next, self._chain = self.next, None, _DROPPED
        return after


class Piece:
    """A part of a long range: ``count`` bytes from ``start``."""

    __slots__ = ("content", "file_id", "start", "count")

    def __init__(self, content, file_id, start, count):
        self.content = content
        self.file_id = file_id
        self.start = start
        self.count = count


class Room:
    """A buffer for payloads of frames. The first ``filled`` bytes are the payload of the frame that is still
    open. ``put_piece`` uses the space from FRAME_OCTETS on.
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
        """Append a write of a file's bytes from ``start`` to ``end``, at most PIECE_OCTETS."""
        at = self.filled + events.WRITTEN_OVERHEAD
        with memoryview(self.octets)[at:] as room:
            count = file.read_into(room, start, end)
        events.put_written(self.octets, self.filled, file_id, start, count)
        self.filled = at + count

    def put_piece(self, piece):
        """Write a Piece at FRAME_OCTETS. Returns the operation's end. Raises EOFError for a short file."""
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
