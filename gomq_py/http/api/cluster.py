"""/api/cluster: tells this node's role, who is in sync, and how far the copies on its followers are; does
what only an operator may decide.
"""
from flask import Blueprint

from gomq_py.errors import ClusterError
from gomq_py.http.answers import json_answer, no_content, node
from gomq_py.http.errors import BadRequest
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
    return _change("accept_damage")


@blueprint.post("/api/cluster/adopt")
@access(ADMINISTRATOR)
def adopt():
    """Write the cluster's keys, which etcd has lost, anew from this node's data folder."""
    return _change("adopt")


@blueprint.post("/api/cluster/transfer-leadership")
@access(ADMINISTRATOR)
def transfer_leadership():
    """Let a follower in sync lead in place of this node, which follows then."""
    return _change("transfer_leadership")


@blueprint.delete("/api/cluster/nodes/<name>")
@access(ADMINISTRATOR)
def forget_node(name):
    """Remove a node, by name or id, that does not come back, from an elected cluster."""
    return _change("forget_node", name)


def _change(what, *arguments):
    try:
        node().change_cluster(what, *arguments)
    except ClusterError as error:
        raise BadRequest(str(error)) from None
    return no_content()
