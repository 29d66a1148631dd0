"""Former run: what a follower knows of its leader's run when it becomes the leader itself.

Made by follower, used by stream. All copies of one run are alike at a position, and know files by the same
ids. So the new leader keeps ids and positions, and the other followers go on in the same folders, behind what
they have, without a sync.
"""
from collections.abc import Mapping, Sequence
from typing import NamedTuple

from gomq_py.cluster.wire.frames import Frame

# Most runs that a copy remembers: several leaders may follow each other before a node finds one.
RUNS = 8


class FormerRun(NamedTuple):
    """A copy at ``position``. ``runs``: {id of a run: position up to which this copy has its events};
    ``paths``: {id: path} of the files; ``frames``: the last ones, without a gap, up to ``position``, the
    first of which goes on behind ``begin``.

    ``is_exact``: whether another copy of the run at the same position is the same. A sync reads what a thread
    of the leader has written and not told yet, and a long range comes in several frames.
    """

    position: int
    paths: Mapping[int, str]
    begin: int
    frames: Sequence[Frame]
    is_exact: bool
    runs: Mapping[bytes, int] = {}

    def has(self, run: bytes, position: int) -> bool:
        """Whether the first ``position`` events of a run are among those of this copy."""
        return position <= self.runs.get(run, -1)
