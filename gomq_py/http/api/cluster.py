"""/api/cluster: shows this node's role, the nodes in sync and the progress of followers, and carries out
operators' requests to the cluster.
"""
from flask import Blueprint

from gomq_py.http.answers import body, json_answer, no_content, node, text_of
from gomq_py.http.login import ADMINISTRATOR, MONITORING, access

blueprint = Blueprint("cluster", __name__)


@blueprint.get("/api/cluster")
@access(MONITORING)
def cluster():
    """Return the node's role, and for each follower its state and how far its copy is behind."""
    return json_answer(node().cluster_figures())


@blueprint.post("/api/cluster/accept-damage")
@access(ADMINISTRATOR)
def accept_damage():
    """Let followers sync from this leader, although damage was found in its data folder."""
    return change("accept_damage")


@blueprint.post("/api/cluster/adopt")
@access(ADMINISTRATOR)
def adopt():
    """Write the cluster's keys to etcd again, from this node's data folder, after etcd has lost them."""
    return change("adopt")


@blueprint.post("/api/cluster/transfer-leadership")
@access(ADMINISTRATOR)
def transfer_leadership():
    """Let a follower in sync lead in place of this node, which then follows. ``node``: its name, address or
    id; without it, any follower in sync.
    """
    return change("transfer_leadership", text_of(body(), "node", ""))


@blueprint.delete("/api/cluster/nodes/<name>")
@access(ADMINISTRATOR)
def forget_node(name):
    """Remove a node that will not come back from an elected cluster. The path has its name, address or id."""
    return change("forget_node", name)


def change(what, *arguments):
    """Carry out an operator's request, such as "adopt". Returns an empty answer. Raises ClusterError."""
    node().change_cluster(what, *arguments)
    return no_content()
