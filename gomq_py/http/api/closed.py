"""/api/closed: shows why connections and channels have recently ended. Specific to gomq-py."""
from flask import Blueprint, g, request

from gomq_py.http.answers import json_answer, node
from gomq_py.http.errors import BadRequest
from gomq_py.http.login import MANAGEMENT, MONITORING, access

blueprint = Blueprint("closed", __name__)
KINDS = ("connections", "channels")


@blueprint.get("/api/closed")
@access(MANAGEMENT)
def list_closed():
    """Return the connections that ended last, and the channels that the broker closed because of an error,
    the latest first, each with its reason. Users see their own connections and channels or, with the tag
    monitoring, all. ``kind`` selects connections or channels, ``name`` one connection.
    """
    kind, name = request.args.get("kind") or None, request.args.get("name") or None
    if kind not in (None, *KINDS):
        raise BadRequest("kind must be connections or channels")
    everybody = MONITORING in g.tags
    ended = node().clients.ended
    found = [
        {**one, "user": one["user"][0]}
        for each in KINDS if kind in (None, each) for one in list(getattr(ended, each))
        if (everybody or one["user"] == g.user.identity) and (name is None or one["name"] == name)
    ]
    found.sort(key=lambda one: -one["number"])
    return json_answer(found)
