"""Administration: shows an elected cluster to operators, and removes a node that does not come back.

Used by ``elected``. Shows this node's last view of etcd, its links to followers, and its lease.
"""
from collections.abc import Mapping, Sequence
from typing import Any

import gevent

from gomq_py.cluster.core.coordinator import Coordinator
from gomq_py.cluster.core.elector import Follow
from gomq_py.cluster.core.in_sync import InSync
from gomq_py.cluster.core.records import (
    LEADER, NODES, InSyncRecord, LeaderRecord, NodeRecord, View, decoded,
)
from gomq_py.cluster.core.transactions import (
    CREATE, Compare, CoordinatorError, Delete, Transaction, Unanswered,
)
from gomq_py.errors import ClusterError

LEADING, FENCED, DISCONNECTED = "leading", "fenced", "disconnected"
# Time for the removal of a forgotten node from the in-sync set, and between two looks.
REMOVAL_S, LOOK_S = 5.0, 0.05


def figures(
        coordination: Any, node: str, own: Mapping[str, Any], followers: Sequence[Any]) -> dict[str, Any]:
    """Return the cluster's state for /api/cluster, as this node sees it.

    ``node``: id of this node. ``own``: this node's status as a follower, or an empty mapping. ``followers``:
    the status of each follower that is connected to this leader. Both use the keys of /api/cluster.
    """
    view, decision, leadership = coordination.view, coordination.decision, coordination.leadership
    found: dict[str, Any] = {
        "decision": type(decision).__name__.lower(), "reason": getattr(decision, "reason", ""),
        "etcd_error": coordination.error, "min_isr": coordination.min_isr,
        "settings_differ": [one._asdict() for one in coordination.differences]}
    if isinstance(decision, Follow):
        found["leader"] = decision.address
    if leadership is not None:
        found["lease_seconds_left"] = round(leadership.lease_left_s, 3)
    if view is None:
        return found | {"leader_node": "", "in_sync": [], "nodes": []}
    leader = decoded(view.leader, LeaderRecord.decode)
    members = _members(view, None if leadership is None else leadership.in_sync)
    leader_node = "" if leader is None else leader.node
    states: dict[str, Mapping[str, Any]] = {one["node"]: one for one in followers}
    if leadership is not None:
        states[node] = {
            "state": FENCED if leadership.is_fenced else LEADING, "lag_bytes": 0, "lag_seconds": 0.0}
    elif own:
        states[node] = own
    absent = {"state": DISCONNECTED if leadership is not None else None}
    return found | {
        "leader_node": leader_node, "in_sync": sorted(members),
        "nodes": [
            _node(one, record, members, leader_node, states.get(one, absent))
            for one, record in sorted(_known(view, members).items())]}


def _known(view: View, members: Mapping[str, int]) -> dict[str, NodeRecord | None]:
    """Return {node id: record} of all nodes that ``members`` or etcd names.

    The value is None for a node whose record in etcd is missing or malformed.
    """
    known: dict[str, NodeRecord | None] = dict.fromkeys(members)
    return known | {node: decoded(kept, NodeRecord.decode) for node, kept in view.nodes.items()}


def _members(view: View, in_sync: InSync | None) -> Mapping[str, int]:
    if in_sync is not None:
        return in_sync.members
    record = decoded(view.in_sync, InSyncRecord.decode)
    return {} if record is None else record.members


def _node(
        node: str, record: NodeRecord | None, members: Mapping[str, int], leader_node: str,
        state: Mapping[str, Any]) -> dict[str, Any]:
    is_leader = node == leader_node
    return {
        "node": node, "name": "" if record is None else record.name,
        "address": "" if record is None else record.address,
        "version": "" if record is None else record.settings.get("version", ""),
        "role": "leader" if is_leader else "follower", "in_sync": node in members, "epoch": members.get(node),
        "state": state["state"] or (LEADING if is_leader else None),
        "lag_bytes": state.get("lag_bytes"), "lag_seconds": state.get("lag_seconds")}


def calls(etcd: Any) -> dict[str, Any]:
    """Return the durations of calls to etcd: {"buckets", "seconds": their sum, "failures": failed calls}."""
    taken = etcd.call_seconds
    return {
        "buckets": [list(pair) for pair in taken.cumulative()], "seconds": round(taken.total, 6),
        "failures": etcd.failures}


def successor(coordination: Any, node: str, named: str) -> str:
    """Return the id of the node that is to lead in place of this one.

    ``node``: id of this node. ``named``: id, name or address of the node that is to lead. Raises
    ClusterError if ``named`` means this node, a node that is not in sync, several nodes or none.
    """
    members = coordination.leadership.in_sync.members
    other = _found(named, _known(coordination.view, members))
    if other == node:
        raise ClusterError("this node leads already")
    if other not in members:
        raise ClusterError(f"{named} is not in sync, and so may not lead: see list_in_sync_replicas")
    return other


def forget(
        coordinator: Coordinator, coordination: Any, node: str, named: str, connected: Sequence[str]) -> None:
    """Remove a node from the in-sync set, and its name from etcd. May switch greenlets.

    ``node``: id of this node, which leads. ``named``: id, name or address of the node to remove.
    ``connected``: ids of the connected followers, which cannot be removed. Raises ClusterError.
    """
    leadership = coordination.leadership
    if leadership is None:
        raise ClusterError("this node does not lead: ask the leader")
    try:
        view = coordinator.read()
        other = _found(named, _known(view, leadership.in_sync.members))
        if other == node:
            raise ClusterError("this node leads, and cannot be forgotten")
        if other in connected:
            raise ClusterError(f"{named} is connected: stop it first")
        _remove(leadership, other, named)
        outcome = coordinator.transact(Transaction(
            (Compare(LEADER, CREATE, coordination.revision),), (Delete(NODES + other),)))
    except (CoordinatorError, Unanswered) as error:
        raise ClusterError(f"etcd: {error}; look at cluster_status, and try again") from error
    if not outcome.is_done:
        raise ClusterError("this node leads no more: ask the leader")


def _found(named: str, known: Mapping[str, NodeRecord | None]) -> str:
    """Return the id of the one node with this id, name or address.

    Raises ClusterError if there is none, or several.
    """
    if named in known:
        return named
    found = {
        node: record.address for node, record in known.items()
        if record is not None and named in (record.name, record.address)}
    if len(found) > 1:
        addresses = ", ".join(sorted(found.values()))
        raise ClusterError(f"{len(found)} nodes are named {named!r}: give the address, one of {addresses}")
    if not found:
        raise ClusterError(f"no node has the name, address or id {named!r}: see cluster_status")
    return next(iter(found))


def _remove(leadership: Any, node: str, named: str) -> None:
    """Remove a node from the in-sync set, and wait for etcd's answer. May switch greenlets.

    Raises ClusterError if the node is still in the set after REMOVAL_S.
    """
    in_sync = leadership.in_sync
    in_sync.leave(node)
    with gevent.Timeout(REMOVAL_S, False):
        while node in in_sync.required or node in in_sync.members:
            gevent.sleep(LOOK_S)
        return
    raise ClusterError(
        f"{named} is still in sync: with {len(in_sync.members)} such nodes none is removed below min_isr, or "
        "etcd does not answer. Let another node come into sync first")
