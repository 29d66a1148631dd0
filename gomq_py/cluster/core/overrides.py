"""Overrides: changes that an operator makes to a cluster's keys when no node can be elected.

If the operator chooses the wrong node, confirmed messages are lost. Only ``cluster`` and ``isr`` are written,
and a ``leader`` that no election has written is deleted; then the node is elected like any other node.
"""
from gomq_py.cluster.core.elector import NO_COPY
from gomq_py.cluster.core.records import CLUSTER, IN_SYNC, LEADER, InSyncRecord, View, decode_cluster, decoded
from gomq_py.cluster.core.transactions import MOD, Compare, Delete, Put, Transaction

# Epochs that are skipped where the last one in use is unknown: a node refuses a leader of a lower epoch than
# its folder's.
UNKNOWN = 1000


class NotPossible(Exception):
    """The keys cannot be changed. The text says why."""


def adopt(view: View, node: str, cluster: str, epoch: int) -> Transaction:
    """Return the transaction that writes a cluster's keys again, after etcd has lost them.

    ``cluster`` and ``epoch`` come from the folder of ``node``. Afterwards only ``node`` is in sync. Raises
    NotPossible.
    """
    if not cluster:
        raise NotPossible("this data folder belongs to no cluster: there is nothing to write anew")
    if _is_led(view):
        raise NotPossible("etcd knows a leader: nothing is lost")
    found = decoded(view.cluster, decode_cluster)
    record = decoded(view.in_sync, InSyncRecord.decode)
    if found == cluster and record is not None and record.epoch >= epoch:
        raise NotPossible(
            "etcd knows this cluster and who is in sync. If none of these nodes can come back: "
            "cluster_force_leader")
    return Transaction(_as_read(view), (
        Delete(LEADER), Put(CLUSTER, cluster.encode()),
        Put(IN_SYNC, InSyncRecord(epoch + UNKNOWN, {node: epoch}).encode())))


def force_leader(view: View, node: str, cluster: str, epoch: int) -> Transaction:
    """Return the transaction that makes ``node`` the only node in sync, even if its folder lacks data.

    ``cluster`` and ``epoch`` come from the node's folder. Raises NotPossible.
    """
    if not cluster:
        raise NotPossible(f"nothing has been copied to this node yet, so there is nothing to lead. {NO_COPY}")
    if _is_led(view):
        raise NotPossible("there is a leader: stop that node first")
    if decoded(view.cluster, decode_cluster) != cluster:
        raise NotPossible(
            f"this data folder belongs to cluster {cluster}, which etcd does not know: cluster_adopt")
    record = decoded(view.in_sync, InSyncRecord.decode)
    highest = epoch + UNKNOWN if record is None else max(epoch, record.epoch)
    return Transaction(
        _as_read(view), (Delete(LEADER), Put(IN_SYNC, InSyncRecord(highest, {node: epoch}).encode())))


def _is_led(view: View) -> bool:
    """Return whether an election has written the key ``leader``: only then the key has a lease."""
    return view.leader is not None and view.leader.lease != 0


def _as_read(view: View) -> tuple[Compare, ...]:
    return tuple(
        Compare(key, MOD, 0 if kept is None else kept.mod_revision)
        for key, kept in ((LEADER, view.leader), (CLUSTER, view.cluster), (IN_SYNC, view.in_sync)))
