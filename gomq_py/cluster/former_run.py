"""Former run: what a follower knows of its leader's run, for when the follower becomes the leader.

A run is the sequence of a leader's events from its boot on (``stream``). Made by ``follower``, used by
``stream``. Two exact copies of a run at one position are equal, and give files the same ids. So the new
leader keeps ids and positions. The other followers continue in the same folders, after their last changes,
without a full sync.
"""
from collections import deque
from collections.abc import Mapping, Sequence
from typing import Any, NamedTuple

from gomq_py.cluster.wire import events
from gomq_py.cluster.wire.frames import Frame

# Most runs that a copy remembers: several leaders may follow each other before a node finds one.
RUNS = 8
# Memory for the last frames that were applied, which a new leader sends to followers that are behind it; each
# takes FRAME_OCTETS besides its payload. Followers of one leader are less than a second apart.
LAST_OCTETS, FRAME_OCTETS = 4 << 20, 300
# A copy is exact behind so many flushes of the leader: what a thread of the leader had written when the sync
# read it was told with the flush that was under way then, or with the next one.
EXACT_FLUSHES = 2


class FormerRun(NamedTuple):
    """A copy of a leader's data folder at ``position``.

    ``runs``: {id of a run: position up to which this copy has its events}. ``paths``: {id: path} of the
    files. ``frames``: the last frames; they contain all events after ``begin`` up to ``position``.

    ``is_exact``: all copies of the run at this position are equal. If not, this copy may have data that a
    sync read before the leader reported it, or only the first of several frames of a long range.
    """

    position: int
    paths: Mapping[int, str]
    begin: int
    frames: Sequence[Frame]
    is_exact: bool
    runs: Mapping[bytes, int] = {}


def is_part(frame: Frame, before: int) -> bool:
    """Return whether a frame has only a part of an event. ``before``: the position before the frame."""
    return frame.position == before and frame.payload != events.hurry()


class Past:
    """What an Applier remembers of the data folder beside its Replica.

    ``former``: the folder's FormerRun for times without a Replica, as during a full sync; or None.
    ``trusts_disk``: False after a failed flush or read, because files on the disk may then differ from their
    cached content.
    """

    def __init__(self, trusts_disk: bool) -> None:
        self.former: FormerRun | None = None
        self.trusts_disk = trusts_disk
        self._begin = self._octets = 0
        self._frames: deque[Frame] = deque()
        self._begins_cut = False  # an event was dropped in part
        self._is_cut = False  # an event was applied in part

    def begin(self, position: int) -> None:
        """Forget earlier states and frames, because a full sync up to ``position`` is complete."""
        self.former, self.trusts_disk = None, True
        self._frames.clear()
        self._begin, self._octets = position, 0
        self._begins_cut = self._is_cut = False

    def applied(self, frame: Frame, before: int) -> None:
        """Keep a frame that was applied after the position ``before``.

        Drops the oldest frames beyond LAST_OCTETS.
        """
        self._is_cut = is_part(frame, before)
        self._frames.append(frame)
        self._octets += len(frame.payload) + FRAME_OCTETS
        while self._frames and (self._octets > LAST_OCTETS or self._begins_cut):
            dropped = self._frames.popleft()
            self._octets -= len(dropped.payload) + FRAME_OCTETS
            self._begins_cut = is_part(dropped, self._begin)  # what is left of the event is of no use
            self._begin = dropped.position

    def present(self, position: int, replica: Any) -> FormerRun:
        """Return the FormerRun, without ``runs``, of a Replica whose folder is at ``position``."""
        is_exact = replica.flushes >= EXACT_FLUSHES and not self._is_cut
        return FormerRun(position, replica.paths, self._begin, tuple(self._frames), is_exact)
