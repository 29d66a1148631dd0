"""Judges the answer to /api/cluster: whether the node may stop now, and which problems the cluster has.

``figures`` is that answer, a dict. A broker without followers gives it, too.
"""
from gomq_py.diagnosis.checks import BAD, WARNING, Finding

# A follower is late when the oldest change that it lacks is older than this.
LATE_S = 10.0
# State of a node that the leader misses.
DISCONNECTED = "disconnected"


def why_critical(figures):
    """Return why confirms, or the whole service, would stop if this node stopped; "" if it may be stopped."""
    members, node = figures.get("in_sync") or [], figures.get("node_id")
    nodes = figures.get("nodes") or ()
    if not figures.get("elects") or len(nodes) == 1 or nodes and node not in members:
        return ""
    if not nodes and not figures.get("cluster"):
        return ""  # its folder is empty
    if figures.get("etcd_error") or not nodes:
        why = figures.get("etcd_error") or figures.get("reason")
        return f"which nodes are in sync now is not known: {why}"
    left, least = len(members) - 1, figures.get("min_isr") or 1
    if left < 1:
        return "no other node is in sync: without this one nobody could lead"
    if left < least:
        return f"without this node {left} of the {least} nodes that min_isr asks for would be in sync"
    return ""


def why_not_in_sync(figures):
    """Return why this node of an elected cluster fails the check that it is in sync; "" if it passes."""
    if not figures.get("elects"):
        return ""
    if figures.get("node_id") not in (figures.get("in_sync") or ()):
        return "this node is not in sync"
    return "" if figures.get("leader_node") else "no node leads"


def findings(figures):
    """Yield a Finding for each problem of the cluster that a leader or follower reports."""
    name = figures.get("node") or "cluster"
    if figures.get("damaged"):
        yield _found(
            BAD, name, "damage was found in this data folder: no follower syncs from it",
            "let a sound follower lead, or accept_damage")
    if figures.get("elects"):
        yield from _of_election(figures, name)
    elif figures.get("replicates") and not figures.get("followers"):
        yield _found(WARNING, name, "no follower is connected: nobody has a copy", "see the follower's log")
    for follower in figures.get("followers") or ():
        yield from _of_follower(follower)


def _of_election(figures, name):
    members, nodes = figures.get("in_sync") or [], figures.get("nodes") or []
    least = figures.get("min_isr") or 1
    if figures.get("etcd_error"):
        yield _found(
            WARNING if nodes else BAD, "etcd", figures["etcd_error"],
            "see that most of its servers run, and etcd_endpoints of [clustering]")
    if figures.get("fenced"):
        why = figures.get("reason") or "etcd does not answer"
        yield _found(BAD, name, f"this leader is fenced, and confirms and delivers nothing: {why}", "")
    elif nodes and not figures.get("leader_node"):
        yield _found(BAD, "cluster", "no node leads, and nothing is served", "")
    # min_isr keeps a lost node in the set
    there = [node for node in nodes if node["in_sync"] and node["state"] != DISCONNECTED]
    if nodes and len(there) < least:  # without nodes etcd has not told yet
        yield _found(
            BAD, "cluster", f"{len(there)} of the {least} nodes that min_isr asks for are in sync and "
            "connected: nothing is confirmed", "bring the other nodes back")
    for node in nodes:
        if not node["in_sync"]:
            yield _found(
                WARNING, _name(node), f"is not in sync ({node['state'] or 'not known here'}): it cannot lead",
                "see its log; forget_cluster_node, if it does not come back")
    if len(members) == 1 < len(nodes) and least < 2:
        yield _found(
            WARNING, "cluster", "one node has all that is confirmed: nobody takes over when it is lost",
            "bring the other nodes back")
    for one in figures.get("settings_differ") or ():
        yield _found(
            WARNING, one["name"],
            f"has {one['setting']} = {one['there'] or 'nothing'}, here it is {one['here'] or 'nothing'}",
            "make them alike: any node may lead")


def _of_follower(follower):
    lag_s = follower.get("lag_seconds") or 0
    if lag_s > LATE_S:
        yield _found(
            WARNING, follower.get("name") or "follower",
            f"is {lag_s:.0f} s and {follower.get('lag_bytes')} bytes behind", "see its disk and its network")


def _found(level, subject, text, remedy):
    return Finding(level, "cluster", subject, text, remedy)


def _name(node):
    """Return a node's name and address, because nodes on one machine have the same name."""
    return f"{node['name']} ({node['address']})" if node["name"] else node["node"]
