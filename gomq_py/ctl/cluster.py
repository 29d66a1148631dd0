"""Commands that show a cluster's nodes and make a node the leader."""
import time

import click

from gomq_py.ctl.api import APIError
from gomq_py.ctl.commands import command
from gomq_py.diagnosis.clusters import DISCONNECTED

LEADER = "leader"
# Most time of a promotion, and between two looks whether it is over: a large folder is read meanwhile.
PROMOTION_S, LOOK_S = 120.0, 0.2
ALARMS = {"mem_alarm": "memory", "disk_free_alarm": "disk"}
# What a follower of an elected cluster tells of itself.
FOLLOWER = ("role", "node", "leader", "state", "reason", "error", "lag_bytes", "lag_seconds")
COLUMNS = ("name", "role", "epoch", "state", "lag_bytes", "lag_seconds", "address", "node")


def figures_of(api):
    """Return the answer to /api/cluster. A broker without that route counts as a leader without followers."""
    try:
        return api.get("cluster")
    except APIError as error:
        if error.status != 404:
            raise
        return {"role": LEADER, "followers": []}


@command("cluster_status")
def cluster_status(session):
    """Show the node's role and alarms, the nodes in sync, and how far behind its followers are."""
    figures = figures_of(session.api)
    elected = _elected(figures) if figures.get("elects") else {}
    if figures["role"] != LEADER:
        names = FOLLOWER if elected else figures
        kept = {name: figures[name] for name in names if not elected or figures.get(name) not in (None, "")}
        session.out.fields({name.replace("_", " ").capitalize(): kept[name] for name in kept} | elected)
        return
    nodes = session.api.get("nodes")
    role = {"Role": LEADER} if elected else {}
    session.out.fields(role | ({"Reason": figures["reason"]} if figures.get("reason") else {}) | {
        "Cluster": session.api.get("cluster-name").get("name"),
        "Nodes": [node["name"] for node in nodes],
        "Running nodes": [node["name"] for node in nodes if node.get("running")],
        "Alarms": [
            f"{name} on {node['name']}" for node in nodes for key, name in ALARMS.items() if node.get(key)
        ],
        "Followers": [
            f"{_named(figures, one['node']) if elected else '{name} ({address})'.format_map(one)}: "
            f"{one['state']}, {one['lag_bytes']} bytes and {one['lag_seconds']} s behind"
            for one in figures["followers"]
        ],
    } | elected | _nodes(figures))


def _nodes(figures):
    found = {one["node"]: one["state"] for one in figures.get("nodes", [])}
    if not found:
        return {}
    return {
        "Nodes": [_named(figures, node) for node in found],
        "Running nodes": [_named(figures, node) for node in found if found[node] != DISCONNECTED]}


def _elected(figures):
    members = figures.get("in_sync", [])
    return {
        "Leader": _named(figures, figures.get("leader_node") or ""),
        "Epoch": figures.get("epoch"),
        "In sync": [_named(figures, node) for node in members],
        "Not in sync": [
            _named(figures, one["node"]) for one in figures.get("nodes", []) if not one["in_sync"]],
        "Needed for a confirm": figures.get("min_isr", 1),
        "Fenced": figures.get("fenced", False),
        "Etcd": figures.get("etcd_error") or "answers",
        "Settings that differ": [
            f"{one['setting']}: {one['there']!r} on {one['name']}, here {one['here']!r}"
            for one in figures.get("settings_differ", [])],
    }


def _named(figures, node):
    for one in figures.get("nodes", []):
        if one["node"] == node and one["name"]:
            return f"{one['name']} ({one['address']})"
    return node


@command("list_in_sync_replicas")
def list_in_sync_replicas(session):
    """List the nodes that have all confirmed messages. Any of them may become the leader."""
    figures = figures_of(session.api)
    rows = [one for one in figures.get("nodes", []) if one["in_sync"]]
    session.out.rows("Listing in-sync nodes", rows, COLUMNS)


@command("promote")
@click.option("--force", is_flag=True, help="Also while a sync is under way: to the older state.")
def promote(session, force):
    """Make this follower the leader. Run it on the follower's machine; it ends when the node serves clients.
    Stop the old leader first: two leaders would accept messages that no copy has.
    """
    if session.api.get("cluster")["role"] == LEADER:
        session.out.said("this node leads already")
        return
    session.api.post("cluster", "promote", query={"force": "true"} if force else None)
    until = time.monotonic() + PROMOTION_S
    while _role(session.api) != LEADER:
        if time.monotonic() > until:
            raise APIError(f"this node does not lead after {PROMOTION_S:g} s: see its log")
        time.sleep(LOOK_S)
    session.out.said("this node leads now")


def _role(api):
    try:
        return api.get("cluster")["role"]
    except APIError:
        return ""  # its listeners are closed and opened again


@command("cluster_force_leader")
def cluster_force_leader(session):
    """Make this node the leader although it is not in sync, because no node in sync can come back. Confirmed
    messages that this node lacks are lost.
    """
    if session.api.get("cluster")["role"] == LEADER:
        session.out.said("this node leads already")
        return
    session.api.post("cluster", "force-leader")
