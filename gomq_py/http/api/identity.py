"""/api/whoami, /api/version, /api/cluster-name, /api/auth, /api/extensions: who is asking whom."""
from flask import Blueprint, g

import gomq_py
from gomq_py.http.answers import json_answer, node
from gomq_py.http.login import access

blueprint = Blueprint("identity", __name__)


@blueprint.get("/api/whoami")
@access(None)
def whoami():
    """The user of the request and its tags."""
    return json_answer({"name": g.user.name, "tags": list(g.user.tags), "is_internal_user": True})


@blueprint.get("/api/version")
@access(None)
def version():
    """The broker's version."""
    return json_answer({"version": gomq_py.__version__, "product": "gomq-py"})


@blueprint.get("/api/cluster-name")
@access(None)
def cluster_name():
    """The name that clients are told in server-properties."""
    return json_answer({"name": node().cluster_name})


@blueprint.get("/api/auth")
def auth():
    """How to log in, for a login page: nobody has logged in yet when it asks."""
    return json_answer({"enable_uaa": False, "oauth_enabled": False, "uaa_client_id": "", "uaa_location": ""})


@blueprint.get("/api/extensions")
@access(None)
def extensions():
    """Pages that plug-ins add to RabbitMQ's console: there are none."""
    return json_answer([])
