"""Elector: decides whether a node must follow, wait, campaign, lead or stop. Never switches greenlets.

The caller (``cluster.coordination``) gives each View of the coordinator's keys to ``viewed``, and carries out
the returned Decision. It also gives the View in the Outcome of each transaction to ``viewed``. So an election
whose answer was lost is won as soon as a View shows it. Clocks only decide how long a node lets other nodes
be elected first.

Confirmed messages are never lost, for three reasons. Only a member of ``isr`` is elected, by a transaction
that compares the revision at which ``isr`` was read. The member's folder has all changes that the member has
acknowledged. Every confirm has waited for that acknowledgement.

A node whose folder was restored from an older copy is not elected. Such a folder's epoch is lower than the
node's epoch in ``isr`` or, in an equal epoch, its position is lower than the node's position there.
"""
from typing import NamedTuple

from gomq_py.cluster.core.records import (
    CLUSTER, IN_SYNC, LEADER, MAX_EPOCH, InSyncRecord, Kept, LeaderRecord, View, decode_cluster, decoded,
)
from gomq_py.cluster.core.transactions import CREATE, MOD, Compare, Delete, Put, Transaction

# A follower that still hears its leader waits so long: a leader that wins again keeps its clients.
HEARING_S = 1.0
# A node with damage in its folder waits so long, so that a sound one wins.
DAMAGED_S = 10.0
# A `leader` without a lease, which no election has written, is deleted after this time: a leader that lives
# writes its own over it at its next look, and looks every 2 s at least.
FOREIGN_S = 5.0
ADOPT = (
    "was etcd emptied or put back? `gomq-py-ctl cluster_adopt` on the node with the newest data writes it "
    "anew")
# What a cluster needs whose first node was lost before another one had a copy.
NO_COPY = (
    "If no node has the data, delete the keys below `etcd_prefix` from etcd: the nodes begin a new, empty "
    "cluster")
LACKING = (
    "what this node has acknowledged may not be on its disk: a flush has failed, or its machine has lost its "
    "power with --no-sync. Another in-sync node must lead; if it is so on all of them: cluster_force_leader")


class Follow(NamedTuple):
    """Decision: follow the leader at ``address`` ("host:port"), which leads in ``epoch``."""

    address: str
    epoch: int


class Wait(NamedTuple):
    """Decision: do nothing. Until the next decision a leader neither confirms nor delivers.

    ``reason``: text for operators. ``again_s``: seconds until the keys must be read again; None: until a key
    changes.
    """

    reason: str
    again_s: float | None = None


class Campaign(NamedTuple):
    """Decision: try to be elected.

    Steps: end the link to the leader, and flush; stop here if the flush fails. Grant a lease if there is
    none, and set ``Elector.lease``. Send ``transaction(lease)``, and give the View in its Outcome to
    ``Elector.viewed``.

    ``compares``: comparisons that fail if a node was elected after the View was read. ``leader``, ``record``:
    next values of the keys ``leader`` and ``isr``. ``cluster``: id of the cluster.
    """

    compares: tuple[Compare, ...]
    leader: LeaderRecord
    record: InSyncRecord
    cluster: str

    def transaction(self, lease: int) -> Transaction:
        """Return the transaction that elects this node. ``lease``: id of a live lease."""
        return Transaction(self.compares, (
            Put(LEADER, self.leader.encode(), lease), Put(IN_SYNC, self.record.encode())))


class Bootstrap(Campaign):
    """A Campaign for a cluster that does not exist yet."""

    def transaction(self, lease: int, new_cluster_id: str = "") -> Transaction:
        """Return the transaction that begins cluster ``new_cluster_id`` (in hex) and elects this node."""
        compares, operations = super().transaction(lease)
        return Transaction(compares, (Put(CLUSTER, new_cluster_id.encode()), *operations))


class Again(Campaign):
    """A Campaign of a leader whose lease has ended, while no other node was elected.

    The leader keeps its links and clients, but neither confirms nor delivers.
    """


class Clear(NamedTuple):
    """Decision: delete a stale ``leader`` key, and give the View in the Outcome to ``Elector.viewed``.

    The key was written by an earlier process of this node, or by no election. The earlier process is dead,
    because this process holds the folder's lock.
    """

    transaction: Transaction


class Lead(NamedTuple):
    """Decision: lead in ``epoch``. Returned again for each View in which this node still leads.

    Steps for a new ``revision`` (create revision of the key ``leader``), in this order. If the node was a
    follower, end its link, and apply and flush all received changes. Write cluster and epoch into
    ``.cluster``, and flush it. Call ``Elector.folder``. Make an InSync of ``epoch``, ``revision``,
    ``record``, ``mod_revision`` (of ``isr``) and ``former`` (id of the last leader seen, or ""). Serve
    clients once InSync.is_open.

    ``mend``: a transaction to send, because ``leader`` was overwritten from outside, or None.
    """

    epoch: int
    cluster: str
    revision: int
    record: InSyncRecord
    mod_revision: int
    former: str = ""
    mend: Transaction | None = None


class Deposed(NamedTuple):
    """Decision: stop leading. Refuse all confirms, stop serving clients, and restart as a follower.

    The follower needs a new Elector, because this one returns the same decision for ever. ``reason``: text
    for operators.
    """

    reason: str


Decision = Follow | Wait | Campaign | Clear | Lead | Deposed  # Bootstrap and Again are Campaigns


class Elector:
    """Decides what one node does next. This process has locked the node's data folder.

    ``node``: the node's id. ``cluster``: id of the folder's cluster, or "". ``epoch``: the folder's.
    ``position``: in that epoch; according to the folder's note, it has all changes up to this position.
    ``address``: "host:port" of the node's cluster port. ``is_whole``: the folder has all changes that the
    node has acknowledged; False after a failed flush. ``is_damaged``: damage was found in the folder.

    ``lease``: id of the present lease; the caller sets it before it sends an election, and to 0 when the
    lease has ended. ``revision``: of the newest View.
    """

    def __init__(
            self, node: str, cluster: str, epoch: int, address: str, is_whole: bool = True,
            is_damaged: bool = False, position: int = 0) -> None:
        self.node = node
        self.address = address
        self.lease = 0
        self.revision = 0
        self._lead: Lead | None = None
        self._last: Decision = Wait("nothing was read from etcd yet")
        self._former = ""
        self._absent_since_s: float | None = None
        self._foreign_since_s: float | None = None
        self.folder(cluster, epoch, is_whole, is_damaged, position=position)

    def folder(
            self, cluster: str, epoch: int, is_whole: bool = True, is_damaged: bool = False,
            is_copy: bool = False, position: int = 0) -> None:
        """Note the folder's new state: a completed sync, a higher epoch, a noted position, or a failed flush.

        Arguments as for the class. ``is_copy``: another process has this node's id, and acknowledges changes
        in this node's place.
        """
        self.cluster, self.epoch, self.is_whole, self.is_damaged = cluster, epoch, is_whole, is_damaged
        self.is_copy, self.position = is_copy, position

    def viewed(self, view: View, now_s: float, since: int, hears_leader: bool = False) -> Decision:
        """Return the decision for a new View.

        ``now_s``: time of the caller's clock. ``since``: value of ``revision`` when the request for this
        View was sent; shows whether a newer View has overtaken this one, which is then ignored.
        ``hears_leader``: the followed leader has sent something within the last second.
        """
        # A view that is older than the newest one, but not older than ``since``, was overtaken on its way and
        # is ignored; one that is older than ``since`` is of an etcd that was put back to an older state.
        if since <= view.revision < self.revision:
            return self._last
        self.revision = view.revision
        if view.leader is not None:
            self._absent_since_s = None
        elif self._absent_since_s is None:
            self._absent_since_s = now_s
        if view.leader is None or view.leader.lease:
            self._foreign_since_s = None
        elif self._foreign_since_s is None:
            self._foreign_since_s = now_s
        lead = self._lead
        if lead is None:
            self._last = self._as_follower(view, now_s, hears_leader)
        elif not isinstance(self._last, Deposed):
            self._last = self._as_leader(lead, view)
        if isinstance(self._last, Lead):
            self._lead = self._last
            self._former = ""
        return self._last

    # a follower or candidate

    def _as_follower(self, view: View, now_s: float, hears_leader: bool) -> Decision:
        if view.leader is None:
            why = self._why_not(view)
            if why:
                return Wait(why)
            rest_s = self._rest_s(view, now_s, hears_leader)
            if rest_s > 0:
                return Wait("another node may lead first", rest_s)
            return self._campaign(view)
        if self._is_foreign(view, now_s, hears_leader):
            return _without(view.leader)
        leader = decoded(view.leader, LeaderRecord.decode)
        if leader is None:
            return Wait("`leader` in etcd cannot be read")
        if leader.node == self.node:
            return self._named_leader(view, view.leader, leader)
        self._former = leader.node
        why = self._why_other_cluster(view)
        return Wait(why) if why else Follow(leader.address, leader.epoch)

    def _why_not(self, view: View) -> str:
        """Return the reason why this node may not be elected while the key ``leader`` is absent, or ""."""
        if view.cluster is None and not self.cluster:
            return "" if view.in_sync is None else f"etcd has `isr`, but no `cluster`: {ADOPT}"
        why = self._why_other_cluster(view) or _why_no_set(view)
        if why:
            return why
        record = decoded(view.in_sync, InSyncRecord.decode)
        assert record is not None
        if self.node not in record.members:
            why = "no leader, and this node is not in sync: one of the in-sync nodes must come back"
            return why if self.cluster else f"{why}. {NO_COPY}"
        epoch, position = record.place(self.node)
        if self.epoch < epoch:
            return (
                f"this data folder is of epoch {self.epoch}, but was in sync in epoch "
                f"{epoch}: it was put back, or emptied. Another in-sync node must lead")
        if self.epoch == epoch and self.position < position:
            return (
                f"this data folder has noted position {self.position} of epoch {epoch}, but had come to "
                f"{position}: it was put back. Another in-sync node must lead")
        if self.epoch > record.epoch:
            return f"this data folder is of epoch {self.epoch}, etcd of epoch {record.epoch}: {ADOPT}"
        if self.is_copy:
            return (
                "another node follows the leader with this node's id, so this data folder may lack what that "
                "one has acknowledged: remove .cluster of the copy, or start this node anew if there is none")
        if not self.is_whole and len(record.members) > 1:  # else nobody has more
            return LACKING
        return "" if record.epoch < MAX_EPOCH else "`isr` in etcd has the highest epoch"

    def _why_other_cluster(self, view: View) -> str:
        if view.cluster is None:
            return f"this data folder belongs to cluster {self.cluster}, but etcd knows none: {ADOPT}"
        cluster = decoded(view.cluster, decode_cluster)
        if cluster is None:
            return "`cluster` in etcd cannot be read"
        if self.cluster not in ("", cluster):
            return f"this data folder belongs to cluster {self.cluster}, etcd has {cluster}"
        return ""

    def _rest_s(self, view: View, now_s: float, hears_leader: bool) -> float:
        """Return the seconds for which this node still lets other nodes be elected first."""
        record = decoded(view.in_sync, InSyncRecord.decode)
        if record is None or len(record.members) < 2:
            return 0.0
        rest_s = DAMAGED_S if self.is_damaged else HEARING_S if hears_leader else 0.0
        assert self._absent_since_s is not None
        return min(rest_s, rest_s - (now_s - self._absent_since_s))  # min(): the clock may be set back

    def _is_foreign(self, view: View, now_s: float, hears_leader: bool) -> bool:
        """Return whether this node must delete the key ``leader``, and could be elected then.

        This is so if no election has written the key (it has no lease), and no living leader has overwritten
        it within FOREIGN_S.
        """
        since_s = self._foreign_since_s
        if since_s is None or hears_leader or self._why_not(view):
            return False
        self._foreign_since_s = min(since_s, now_s)  # the clock may be set back
        return now_s - self._foreign_since_s >= FOREIGN_S

    def _campaign(self, view: View) -> Campaign:
        nobody = Compare(LEADER, CREATE, 0)
        if view.cluster is None:
            record = InSyncRecord(1, {self.node: 0})
            compares = (Compare(CLUSTER, CREATE, 0), Compare(IN_SYNC, CREATE, 0), nobody)
            return Bootstrap(compares, LeaderRecord(self.node, 1, self.address), record, "")
        return Campaign(*self._election(view, nobody))

    def _election(
            self, view: View, nobody: Compare,
    ) -> tuple[tuple[Compare, ...], LeaderRecord, InSyncRecord, str]:
        record = decoded(view.in_sync, InSyncRecord.decode)
        assert record is not None and view.in_sync is not None and view.cluster is not None
        epoch = record.epoch + 1
        return (
            (nobody, Compare(IN_SYNC, MOD, view.in_sync.mod_revision),
             Compare(CLUSTER, MOD, view.cluster.mod_revision)),
            LeaderRecord(self.node, epoch, self.address), record._replace(epoch=epoch),
            decode_cluster(view.cluster.value))

    def _named_leader(self, view: View, kept: Kept, leader: LeaderRecord) -> Decision:
        if kept.lease != self.lease or not self.lease:
            if leader.address != self.address:  # a copy of this folder, with its node id, may run there
                return Wait(
                    f"this node leads at {leader.address}, says etcd, and this process is at {self.address}: "
                    "unless the address has changed, the data folder is a copy that must lose its .cluster")
            return _without(kept)
        why = self._why_other_cluster(view) or _why_no_set(view)
        if why:
            return Wait(why)
        record = decoded(view.in_sync, InSyncRecord.decode)
        assert record is not None and view.in_sync is not None and view.cluster is not None
        if record.epoch != leader.epoch:
            return Wait(f"`isr` in etcd is of epoch {record.epoch}, `leader` of {leader.epoch}")
        return Lead(
            leader.epoch, decode_cluster(view.cluster.value), kept.create_revision, record,
            view.in_sync.mod_revision, self._former)

    # a leader

    def _as_leader(self, lead: Lead, view: View) -> Decision:
        kept = view.leader
        if kept is not None and kept.create_revision != lead.revision:
            return self._other_election(view, kept)
        why = self._why_other_cluster(view)
        if why or view.in_sync is None:
            return Wait(why or _why_no_set(view))
        record = decoded(view.in_sync, InSyncRecord.decode)
        if record is None:  # InSync writes it anew, guarded by `leader`
            return Wait(_why_no_set(view)) if kept is None else lead
        # a set of this node alone is no successor's, even in a higher epoch: this node was elected without
        # seeing it and lost the lease, or an operator has written the set anew
        is_alone = kept is None and set(record.members) == {self.node}
        if record.epoch > lead.epoch and not is_alone:
            return Deposed(f"`isr` in etcd is of epoch {record.epoch}, this node led in {lead.epoch}")
        if record.epoch < lead.epoch:
            return Wait(f"this node leads in epoch {lead.epoch}, etcd has {record.epoch}: {ADOPT}")
        if kept is not None:
            own = LeaderRecord(self.node, lead.epoch, self.address).encode()
            is_own = not self.lease or (kept.value, kept.lease) == (own, self.lease)
            mend = None if is_own else _if_unchanged(kept, Put(LEADER, own, self.lease))
            return lead._replace(record=record, mod_revision=view.in_sync.mod_revision, mend=mend)
        if self.epoch < record.members.get(self.node, MAX_EPOCH):
            return Deposed("the lease is lost, and this node is not in sync any more")
        return Again(*self._election(view, Compare(LEADER, CREATE, 0)))

    def _other_election(self, view: View, kept: Kept) -> Decision:
        if not kept.lease:
            return _without(kept)
        leader = decoded(kept, LeaderRecord.decode)
        if leader is None:
            return Wait("`leader` in etcd cannot be read")
        if leader.node != self.node:
            return Deposed(f"node {leader.node} leads in epoch {leader.epoch}")
        return self._named_leader(view, kept, leader)


# helpers


def _without(leader: Kept) -> Clear:
    return Clear(_if_unchanged(leader, Delete(LEADER)))


def _if_unchanged(leader: Kept, operation: Put | Delete) -> Transaction:
    """Return a transaction that does the operation only if ``leader`` was neither replaced nor changed."""
    return Transaction(
        (Compare(LEADER, CREATE, leader.create_revision), Compare(LEADER, MOD, leader.mod_revision)),
        (operation,))


def _why_no_set(view: View) -> str:
    """Return the reason why the members of ``isr`` are unknown, or ""."""
    if view.in_sync is None:
        return f"etcd has no `isr`: {ADOPT}"
    return "" if decoded(view.in_sync, InSyncRecord.decode) else "`isr` in etcd cannot be read"
