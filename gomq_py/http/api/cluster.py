"""/api/cluster: tells this node's role, and how far the copies on its followers are; lets followers sync from
a leader whose folder was damaged.
"""
from flask import Blueprint

from gomq_py.http.answers import json_answer, no_content, node
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
    node().accept_damage()
    return no_content()
