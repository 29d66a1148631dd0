"""/api/cluster: tells this node's role, and how far the copies on its followers are."""
from flask import Blueprint

from gomq_py.http.answers import json_answer, node
from gomq_py.http.login import MONITORING, access

blueprint = Blueprint("cluster", __name__)


@blueprint.get("/api/cluster")
@access(MONITORING)
def cluster():
    """Return the node's role, and for each follower its state and how far its copy is behind."""
    return json_answer(node().cluster_figures())
