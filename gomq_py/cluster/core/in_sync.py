"""In-sync set: the followers that every confirm waits for, and the leader's changes of the key ``isr``.

Used by ``leadership``, with one InSync per won election. A *promise* is a waiting confirm. It is kept when
the local disk and every *required* node have flushed what it confirms. Required are the members of ``isr``
as last read, and the members in every unanswered change of ``isr``, because it may be in force. So every
node that may be elected has flushed what the kept promises confirmed:

- Promises wait for a removed node until the change that removes it has succeeded.
- A node becomes required before the leader sends the change that admits the node. By then the node has
  flushed all that was promised.
- Each change compares the create revision of ``leader`` and the mod revision of ``isr``. So a former leader
  changes nothing, and an unanswered change becomes impossible once a later one has succeeded.
- Promises wait until each member's epoch in ``isr`` is the leader's. So a node whose folder was restored from
  an earlier epoch, without the later promises, is not elected. Within an epoch each member notes its position
  in its folder from time to time, and ``isr`` has that position beside the epoch.
"""
from collections import deque
from collections.abc import Iterable, Mapping
from typing import NamedTuple

from gomq_py.cluster.core.records import IN_SYNC, LEADER, InSyncRecord, Kept, decoded
from gomq_py.cluster.core.transactions import CREATE, MOD, Compare, Outcome, Put, Transaction

# A longer time between two steps counts as this one: a leader that was stopped has heard no follower, through
# no fault of theirs.
STEP_S = 0.5
# A joining node becomes required when it has flushed all that was promised so long ago; then promises wait
# for it, so that it catches up under load, too.
NEAR_S = 0.5
# Part of ack_timeout_s that the former leader, which is most likely dead, has for its first connection.
FORMER = 1 / 3
# Each removal in the last FLAPS_S doubles the time for which a node must stream before it is admitted again,
# up to LONGEST_S.
FLAPS_S, LONGEST_S = 600.0, 60.0


class Progress(NamedTuple):
    """A follower's progress over its connection, in the leader's present epoch.

    ``flushed``: position that the follower has acknowledged as flushed. ``is_synced``: the follower has a
    complete copy in the leader's epoch. ``noted``: position in this epoch that the follower has written to
    its folder, on disk.
    """

    flushed: int
    is_synced: bool
    is_connected: bool = True
    noted: int = 0

    @property
    def is_streaming(self) -> bool:
        """Whether the follower's flushes count for confirms."""
        return self.is_connected and self.is_synced


ABSENT = Progress(0, False, False)


class InSync:
    """The in-sync set of the leader ``node`` in ``epoch``.

    The arguments are those of elector.Lead. ``required``: ids of the other nodes that confirms wait for.
    ``late``: members without progress for ``ack_timeout_s``. ``is_deposed``: this election no longer counts,
    and the Elector decides what to do. ``noted``: position noted in this node's folder, on disk; set by
    ``leadership``.
    """

    def __init__(
            self, node: str, epoch: int, leader_revision: int, record: InSyncRecord, mod_revision: int,
            min_isr: int = 1, ack_timeout_s: float = 3.0, former: str = "") -> None:
        self.required: frozenset[str] = frozenset()
        self.late: frozenset[str] = frozenset()
        self.is_deposed = False
        self.noted = 0
        self._node, self._epoch, self._leader_revision = node, epoch, leader_revision
        self._min_isr, self._ack_timeout_s = min_isr, ack_timeout_s
        self._known, self._positions = record.members, record.positions
        self._mod_revision = mod_revision
        self._pending: list[Mapping[str, int]] = []  # changes without an answer, the one under way last
        self._is_under_way = False
        self._is_foreign = False  # somebody else has written `isr` since
        self._pace = _Pace(ack_timeout_s)
        self._joining: dict[str, float] = {}  # node id -> time since which it is required
        self._leaving: set[str] = set()
        self._pace.progressed(former, -ack_timeout_s * (1 - FORMER))
        self._update_required()

    # what the leader asks

    @property
    def members(self) -> Mapping[str, int]:
        """Members in ``isr`` as last known: {node id: epoch}."""
        return self._known

    @property
    def is_open(self) -> bool:
        """Whether clients may connect: ``isr`` has this node with the present epoch."""
        return self._known.get(self._node) == self._epoch

    @property
    def has_enough(self) -> bool:
        """Whether ``isr`` has at least ``min_isr`` members, whichever unanswered changes are in force."""
        return all(len(members) >= self._min_isr for members in (self._known, *self._pending))

    @property
    def may_promise(self) -> bool:
        """Whether a confirm may be sent once all required nodes have flushed its changes."""
        return (
            self.is_open and self.has_enough and not self.is_deposed
            and min(self._known.values()) == self._epoch)

    def step(
            self, now_s: float, progress: Mapping[str, Progress], asked: int | None, promised: int,
    ) -> Transaction | None:
        """Return the transaction that changes ``isr`` and must be sent now, or None.

        Updates ``required`` and ``late``. ``progress``: {node id: Progress} of all links. ``asked``: highest
        position that a confirm waits for, or None. ``promised``: highest position confirmed.
        """
        self._pace.step(now_s, self._known, progress, asked, promised)
        self.late = frozenset(
            node for node in self._known if node != self._node and self._pace.is_late(node))
        if self.is_deposed:
            return None
        self._leaving = {
            node for node in self._leaving & self._known.keys()
            if not progress.get(node, ABSENT).is_streaming}
        self._join(progress, promised)
        members = None if self._is_under_way else self._wanted(progress, promised)
        positions = {} if members is None else self._noted(members, progress)
        if members is None or not (
                members != self._known or positions != self._positions or self._pending or self._is_foreign):
            self._update_required()
            return None
        self._pending.append(members)
        self._is_under_way, self._is_foreign = True, False
        self._update_required()
        return Transaction(
            (Compare(LEADER, CREATE, self._leader_revision), Compare(IN_SYNC, MOD, self._mod_revision)),
            (Put(IN_SYNC, InSyncRecord(self._epoch, members, positions).encode()),))

    def leave(self, node: str) -> None:
        """Ask for the removal of a member, without the usual timeout.

        A later ``step`` removes it once its link has ended, if ``min_isr`` allows it.
        """
        # Its disk has failed, or an operator has forgotten it.
        self._leaving.add(node)

    def saw(self, kept: Kept | None) -> bool:
        """Note the value of ``isr`` that was read.

        Returns True once for a change that another process has made. The next ``step`` then writes the set
        again.
        """
        # The next step then writes it anew: nobody could be elected by what cannot be read, or by other
        # members.
        is_foreign = (
            kept is not None and kept.mod_revision > self._mod_revision
            and not self._is_under_way and not self._pending)
        is_new, self._is_foreign = is_foreign and not self._is_foreign, self._is_foreign or is_foreign
        return is_new

    # what became of a change

    def done(self, outcome: Outcome) -> None:
        """Note the Outcome of the last transaction of ``step``, whether its comparisons held or not."""
        self._is_under_way = False
        leader, kept = outcome.view.leader, outcome.view.in_sync
        if leader is None or leader.create_revision != self._leader_revision:
            self.is_deposed = True
            return
        self._mod_revision = 0 if kept is None else kept.mod_revision
        # No comparison with the former revision holds again, so each unanswered change is in this value, or
        # has become impossible. If the value cannot be read, or is an older one that somebody has put there
        # while this node leads, that is unknown until it is overwritten.
        record = decoded(kept, InSyncRecord.decode)
        if record is not None and record.epoch > self._epoch:
            self.is_deposed = True
        elif record is not None and record.epoch == self._epoch:
            for node in self._known.keys() - record.members.keys():
                self._pace.removed(node)
            self._known, self._positions = record.members, record.positions
            self._pending.clear()
        self._update_required()

    def unanswered(self) -> None:
        """Note that it is unknown whether the last transaction of ``step`` was or will be carried out."""
        self._is_under_way = False
        last = self._pending.pop()
        if last not in self._pending:
            self._pending.append(last)

    def not_done(self) -> None:
        """Note that the last transaction of ``step`` was certainly not carried out."""
        self._is_under_way = False
        self._pending.pop()
        self._update_required()

    # helpers

    def _update_required(self) -> None:
        required = {*self._known, *self._joining}
        required.update(*self._pending)
        required.discard(self._node)
        if required != self.required:
            self.required = frozenset(required)

    def _join(self, progress: Mapping[str, Progress], promised: int) -> None:
        pace = self._pace
        for node, since_s in list(self._joining.items()):
            found = progress.get(node, ABSENT)
            if node in self._known:
                del self._joining[node]
            elif not found.is_streaming or (
                    found.flushed < promised and pace.time_s - since_s > self._ack_timeout_s):
                del self._joining[node]
                pace.removed(node)
        for node, found in progress.items():
            if node not in self._known and node not in self._joining and pace.may_join(node, found):
                self._joining[node] = pace.time_s

    def _wanted(self, progress: Mapping[str, Progress], promised: int) -> dict[str, int]:
        members = {**self._known, self._node: self._epoch}
        for node, found in progress.items():
            if found.is_streaming and (
                    node in members or node in self._joining and found.flushed >= promised):
                members[node] = self._epoch
        leaving = [node for node in members if node in self.late or node in self._leaving]
        leaving.sort(key=lambda node: progress.get(node, ABSENT).flushed)
        for node in leaving[:max(0, len(members) - self._min_isr)]:
            del members[node]
        return members

    def _noted(self, members: Mapping[str, int], progress: Mapping[str, Progress]) -> dict[str, int]:
        positions = {}
        for node, epoch in members.items():
            position = self._positions.get(node, 0) if self._known.get(node) == epoch else 0
            if node == self._node:
                position = max(position, self.noted)
            elif progress.get(node, ABSENT).is_streaming:
                position = max(position, progress[node].noted)
            if position:
                positions[node] = position
        return positions


class _Pace:
    """Measures the followers' progress, and decides which are late and which may be admitted.

    ``time_s``: seconds that the leader has been running.
    """

    def __init__(self, ack_timeout_s: float) -> None:
        self.time_s = 0.0
        self._ack_timeout_s = ack_timeout_s
        self._now_s: float | None = None
        self._progress_s: dict[str, float] = {}  # node id -> time of its last progress
        self._flushed: dict[str, int] = {}
        self._streams_since_s: dict[str, float] = {}
        self._removals: dict[str, deque[float]] = {}
        self._marks = deque([(0.0, 0)])  # (time, position promised)

    def progressed(self, node: str, time_s: float) -> None:
        self._progress_s[node] = time_s

    def step(
            self, now_s: float, nodes: Iterable[str], progress: Mapping[str, Progress], asked: int | None,
            promised: int,
    ) -> None:
        if self._now_s is not None:
            self.time_s += min(max(0.0, now_s - self._now_s), STEP_S)
        self._now_s = now_s
        if self.time_s - self._marks[-1][0] >= NEAR_S / 4:
            self._marks.append((self.time_s, promised))
        while len(self._marks) > 1 and self._marks[1][0] <= self.time_s - NEAR_S:
            self._marks.popleft()
        for node in {*nodes, *progress}:
            found = progress.get(node, ABSENT)
            if found.is_streaming:
                self._streams_since_s.setdefault(node, self.time_s)
            else:
                self._streams_since_s.pop(node, None)
            self._progress_s.setdefault(node, self.time_s)
            if self._has_moved(node, found, asked):
                self._progress_s[node] = self.time_s
            self._flushed[node] = found.flushed

    def _has_moved(self, node: str, found: Progress, asked: int | None) -> bool:
        if not found.is_connected:
            return False
        if asked is None:  # a promise for what was promised before may wait, too: for a member's epoch
            return True
        return found.is_streaming and (
            found.flushed >= asked or found.flushed > self._flushed.get(node, 0))

    def is_late(self, node: str) -> bool:
        """Return whether the node has made no progress for ``ack_timeout_s``."""
        return self.time_s - self._progress_s.get(node, self.time_s) >= self._ack_timeout_s

    def may_join(self, node: str, found: Progress) -> bool:
        """Return whether the node has nearly caught up, and has streamed long enough to become required."""
        if not found.is_streaming or found.flushed < self._marks[0][1]:
            return False
        removals = self._removals.get(node, ())
        flaps = sum(self.time_s - removed_s < FLAPS_S for removed_s in removals)
        needed_s = min(2.0 ** flaps, LONGEST_S) if flaps else 0.0
        return self.time_s - self._streams_since_s[node] >= needed_s

    def removed(self, node: str) -> None:
        """Note that the node was removed from the set, or did not catch up in time."""
        # 2 ** 6 s is above LONGEST_S
        self._removals.setdefault(node, deque(maxlen=6)).append(self.time_s)
