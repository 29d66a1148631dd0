"""Stream: encodes the changes of the leader's files as frames, once for all followers.

Called by ``storage.disk.register`` as its Replicator; used by the links to followers (cluster.leader).
Changes are put into one frame until it has FRAME_OCTETS, or is HELD_S old, or a flush or a confirm waits for
it. Each link sends the chained frames (``chain``) at its own pace, so a follower that reconnects soon needs
no full sync. The oldest frames are dropped when they take too much memory; a follower that still needs them
must do a full sync.

Never blocks, never switches greenlets, never raises to the storage. Long appended ranges (replication.Range)
are read when the first link needs them, in pieces of PIECE_OCTETS.
"""
import os
from bisect import bisect_left
from collections import deque

import gevent

from gomq_py.cluster.chain import FRAME_OCTETS, PIECE_OCTETS, Chain, Entry, Piece, Room
from gomq_py.cluster.former_run import is_part
from gomq_py.cluster.wire import events, frames
from gomq_py.hub.scheduler import SliceClock
from gomq_py.hub.turns import give_way
from gomq_py.observability.log import logger
from gomq_py.storage.disk.replication import Range, Replicator

LOG = logger("cluster")
# Longest time for events in a frame that is not closed, where nothing waits for them.
HELD_S = 0.005
# Memory for made frames: a second of a fast leader, so that a short cut of the network needs no sync.
KEPT_OCTETS = 64 << 20
# Most octets of ranges that are not read yet. Their files are retained, and so are not recycled.
UNREAD_OCTETS = 1 << 30
# Without a follower nothing is kept after this time.
ALONE_S = 60.0
# Entries between two marks, from which a search begins: 256 steps take some 10 us.
MARK_ENTRIES = 256
# Time of the hub for freeing a dropped chain, between two polls of the loop: 186 000 short frames take 80 ms.
FREE_S = 0.001


class EventStream(Replicator):
    """The events of one run of the leader.

        run           random id of the run, 16 bytes
        position      number of events reported so far
        octets        total bytes of the events put into frames
        made          total memory for these frames, in bytes
        epoch         for the frames' headers
        kept_most     most bytes of frames that are kept at a time
    """

    __slots__ = (
        "epoch", "position", "octets", "made", "kept", "unread", "wakes", "kept_most", "_inside", "_room",
        "_closer", "_chain", "_first", "_last", "_marks", "_added", "_dead", "_freeing", "_is_keeping",
        "_followers", "_runs", "_timer", "_has_failed",
    )

    def __init__(self, root):
        self._runs = {os.urandom(16): float("inf")}  # this run, then those before it: see FormerRun.runs
        self.epoch = 0
        self.position = 0
        self.octets = self.made = 0
        self.kept = self.unread = 0  # octets of the chain
        self.wakes = set()  # functions that are called when frames were added, or the chain began anew
        self._inside = os.path.join(os.path.abspath(os.fspath(root)), "")
        self.kept_most = KEPT_OCTETS
        self._room = None  # where frames are put together, while they are kept
        self._closer = None  # libev timer, active while events other than flushed() are pending
        # The chain: links may be at any of these entries; the frames behind _first are kept.
        self._chain = Chain()
        self._first = self._last = Entry(self._chain, 0, True, 0)
        self._marks = deque()  # each MARK_ENTRIES-th entry
        self._added = 0
        self._dead = None  # first entry of what is still to be freed
        self._freeing = None
        self._is_keeping = False
        self._followers = 0
        self._timer = None
        self._has_failed = False

    @property
    def run(self):
        return next(iter(self._runs))

    # what the storage tells: see replication.Replicator

    def created(self, file_id, path, size):
        self._tell(events.created, file_id, size, self._path(path))

    def folder_created(self, path):
        self._tell(events.folder_created, self._path(path))

    def appended(self, file_id, file, start, end):
        if end - start <= PIECE_OCTETS:
            self._tell_written(file_id, file, start, end)
            return
        self.position += 1
        if self._is_keeping:
            try:
                self._add_later(file_id, file, start, end)
            except Exception as error:
                self._fail(error)

    def overwritten(self, file_id, file, start, end):
        if end - start <= PIECE_OCTETS:
            self._tell_written(file_id, file, start, end)
            return
        self.position += 1
        if self._is_keeping:
            try:
                self._add_pieces(file_id, file, start, end)
            except Exception as error:
                self._fail(error)

    def resized(self, file_id, path, size):
        self._tell(events.resized, file_id, size)

    def renamed(self, file_id, source, target):
        self._tell(events.renamed, file_id, self._path(source), self._path(target))

    def unlinked(self, file_id, path):
        self._tell(events.unlinked, file_id, self._path(path))

    def folder_removed(self, path):
        self._tell(events.folder_removed, self._path(path))

    def flushing(self):
        """Send the pending events, with a request to flush: followers acknowledge only flushed positions."""
        try:
            if self._is_keeping:
                self._room.put(events.hurry())
                self.close_frame()
        except Exception as error:
            self._fail(error)

    def flushed(self):
        """Add FLUSHED to the open frame, which is sent with the next event or heartbeat."""
        self.position += 1
        if self._is_keeping:
            try:
                self._room.put(events.flushed())
                if self._room.filled >= FRAME_OCTETS:
                    self.close_frame()
            except Exception as error:
                self._fail(error)

    def diverged(self):
        self.position += 1
        if self._is_keeping:
            self._begin_anew()

    def succeed(self, former, epoch):
        """Continue the former leader's stream, which this node has received. Call before the broker boots.

        The former leader's other followers then find their position in this stream. ``former``: the
        former_run.FormerRun of this node's copy. ``epoch``: this node's, for the headers of its frames.
        """
        assert self._last is self._first and not self._is_keeping
        self.position, self.epoch = former.position, epoch
        self._runs.update(former.runs)
        self._first = self._last = Entry(self._chain, former.begin, True, 0)
        self._room, self._is_keeping = Room(), True
        self._timer = gevent.spawn_later(ALONE_S, self._stop_keeping)
        before = former.begin
        for frame in former.frames:
            octets = frames.encode(frames.EVENTS, frame.payload, frame.epoch, frame.position, compress=True)
            self._append(Entry(self._chain, frame.position, not is_part(frame, before), 0, octets))
            before = frame.position

    # for links

    def attach(self):
        """Keep frames from now on, for one more follower, until ``detach`` is called for it."""
        self._followers += 1
        if self._timer is not None:
            self._timer.kill()
            self._timer = None
        if not self._is_keeping:
            self._is_keeping = True
            self._begin_anew()

    def detach(self):
        """Note that a follower has gone. ALONE_S seconds after the last has gone, all frames are dropped."""
        self._followers -= 1
        if not self._followers:
            self._timer = gevent.spawn_later(ALONE_S, self._stop_keeping)

    def close(self):
        """Drop all frames, and keep no further ones. May switch greenlets."""
        if self._timer is not None:
            self._timer.kill()
            self._timer = None
        self._stop_keeping()
        if self._freeing is not None:
            self._freeing.join()

    def end(self):
        """Close the open frame, and return the last Entry. A link that begins there gets all later events."""
        self.close_frame()
        return self._last

    def entry_at(self, run, position):
        """Return the Entry after which a follower can continue without a full sync, or None.

        ``run``, ``position``: the last event that the follower has.
        """
        if position > self._runs.get(run, -1) or not self._is_keeping:
            return None
        entry = self.end()
        if entry.position != position:
            at = bisect_left(self._marks, position, key=_position)
            entry = self._marks[at - 1] if at else self._first
            while entry is not None and (entry.position < position or not entry.is_whole):
                entry = entry.next
        return entry if entry is not None and entry.position == position and entry.is_whole else None

    def want(self, position, hurries=True):
        """Send all events up to ``position`` now, because a confirm waits for them.

        ``hurries``: also ask followers to flush. Does nothing if these events are in frames already.
        """
        if position > self._last.position:
            if hurries:
                self.flushing()
            else:
                self.close_frame()

    def octets_of(self, entry):
        """Return the bytes of an Entry's frame, read from its file if necessary.

        Returns None after a failure, which drops all frames.
        """
        if entry._piece is None:
            return entry._octets
        try:
            octets = self._read(entry)
            self._trim()  # may drop this one, too
            return octets
        except Exception as error:
            self._fail(error)
            return None

    def close_frame(self):
        """Put the pending events into a frame, and wake the links."""
        self._close(self.position, True)

    # helpers

    def _path(self, path):
        return path.removeprefix(self._inside)

    def _tell(self, encode, *arguments):
        self.position += 1
        if self._is_keeping:
            try:
                self._room.put(encode(*arguments))
                self._told()
            except Exception as error:
                self._fail(error)

    def _tell_written(self, file_id, file, start, end):
        self.position += 1
        if self._is_keeping:
            try:
                self._room.put_written(file_id, file, start, end)
                self._told()
            except Exception as error:
                self._fail(error)

    def _told(self):
        if self._room.filled >= FRAME_OCTETS:
            self._close(self.position, True)
        elif self._closer is None:
            self._closer = gevent.get_hub().loop.timer(HELD_S)
            self._closer.start(self._close_due)

    def _close_due(self):
        try:
            self.close_frame()
        except Exception as error:
            self._fail(error)

    def _stop_closer(self):
        closer, self._closer = self._closer, None
        if closer is not None:
            closer.stop()
            closer.close()

    def _close(self, position, is_whole):
        self._stop_closer()
        if not (count := self._room.filled if self._room else 0):
            return
        self._room.filled = 0
        self.octets += count
        frame = self._room.frame(0, count, self.epoch, position)
        self._append(Entry(self._chain, position, is_whole, self.octets, frame))

    def _add_pieces(self, file_id, file, start, end):
        """Put a range of a file into frames of its own at once."""
        # The last frame alone has the event's position.
        self._close(self.position - 1, True)
        for at in range(start, end, PIECE_OCTETS):
            until = min(end, at + PIECE_OCTETS)
            self._room.put_written(file_id, file, at, until)
            is_last = until == end
            self._close(self.position if is_last else self.position - 1, is_last)

    def _add_later(self, file_id, file, start, end):
        """Add entries for the pieces of a range, which are read later."""
        # The last one alone has the event's position.
        self._close(self.position - 1, True)
        content = Range(file, start, end)
        for at in range(start, end, PIECE_OCTETS):
            piece = Piece(content, file_id, at, min(PIECE_OCTETS, end - at))
            is_last = at + piece.count == end
            self.octets += events.WRITTEN_OVERHEAD + piece.count
            position = self.position if is_last else self.position - 1
            self._append(Entry(self._chain, position, is_last, self.octets, piece=piece))

    def _read(self, entry):
        piece = entry._piece
        end = self._room.put_piece(piece)
        frame = self._room.frame(FRAME_OCTETS, end, self.epoch, entry.position)
        entry._octets, entry._piece = frame, None
        entry.cost += len(frame)
        self.kept += len(frame)
        self.unread -= piece.count
        return frame

    def _append(self, entry):
        self._last.next = entry
        self._last = entry
        self._added += 1
        if self._added % MARK_ENTRIES == 0:
            self._marks.append(entry)
        self.kept += entry.cost
        self.unread += entry.unread
        self.made += entry.cost + entry.unread
        entry.made = self.made
        self._trim()
        for wake in self.wakes:
            wake()

    def _trim(self):
        while self.kept > self.kept_most or self.unread > UNREAD_OCTETS:
            self._drop_first()

    def _drop_first(self):
        dropped, first = self._first, self._first.next
        self._first = first
        dropped.cut()
        if self._marks and self._marks[0] is dropped:
            self._marks.popleft()
        self.kept -= first.cost
        self.unread -= first.unread
        first.drop()

    def _begin_anew(self):
        """Drop all frames. All links then end, and their followers need a full sync."""
        self._stop_closer()
        self._room = Room() if self._is_keeping else None
        self._chain.is_dropped = True
        self._last.next, self._dead = self._dead, self._first
        self._chain = Chain()
        self._first = self._last = Entry(self._chain, self.position, True, self.octets)
        self._first.made = self.made
        self._marks.clear()
        self.kept = self.unread = 0
        if self._freeing is None and not self._free_some():
            self._freeing = gevent.spawn(self._free)
            self._freeing.name = "cluster: frees dropped frames"
        for wake in self.wakes:
            wake()

    def _free(self):
        """Free dropped frames, and the files held by them, in slices. May switch greenlets."""
        try:
            give_way()
            while not self._free_some():
                give_way()
        finally:
            self._freeing = None

    def _free_some(self):
        """Free dropped frames for FREE_S. Returns whether all are free."""
        clock = SliceClock(FREE_S)
        while (entry := self._dead) is not None:
            self._dead = entry.cut()
            try:
                entry.drop()
            except Exception as error:
                LOG.error("a file cannot be given back", exc_info=error)
            if clock.is_over():
                break
        return self._dead is None

    def _stop_keeping(self):
        self._timer = None
        self._is_keeping = False
        self._begin_anew()

    def _fail(self, error):
        """Log an unexpected error and drop all frames, so that all followers sync again."""
        # The storage must not hear of it.
        if not self._has_failed:
            LOG.error("a change could not be sent to the followers, which begin anew", exc_info=error)
        self._has_failed = True
        self._begin_anew()


def _position(entry):
    return entry.position
