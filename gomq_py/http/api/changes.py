"""/api/changes: what came, went or changed since a number that an earlier answer gave; gomq-py's own."""
from flask import Blueprint, g, request

from gomq_py.http.answers import json_answer, node
from gomq_py.http.arguments import number_in
from gomq_py.http.errors import BadRequest
from gomq_py.http.login import ADMINISTRATOR, MANAGEMENT, MONITORING, POLICYMAKER, access, sees_vhost
from gomq_py.hub.turns import paced

blueprint = Blueprint("changes", __name__)
# In one answer: whoever asks with its ``last`` gets the next ones.
SHOWN_MAX = 1000
# Changes between two looks at the clock: a microsecond each.
LOOK = 50


@blueprint.get("/api/changes")
@access(MANAGEMENT)
def list_changes():
    """What changed after the number ``since``, as far as the user may see it; without it, the number to begin
    with.
    """
    since = _since()
    last = node().feed.last
    changes = [] if since is None else node().feed.since(since)
    if changes is None:
        return json_answer({"last": last, "too_old": True, "changes": []})
    shown = []
    for number, change in paced(changes, LOOK):
        if _is_seen(change):
            shown.append(_shape(number, change))
            if len(shown) == SHOWN_MAX:
                last = number
                break
    return json_answer({"last": last, "too_old": False, "changes": shown})


def _since():
    text = request.args.get("since")
    if not text:
        return None
    number = number_in(text)
    if number is None or number < 0:
        raise BadRequest("since must be a number that an answer of /api/changes gave as last")
    return number


def _is_seen(change):
    """Whether the lists that the user may ask for would show it."""
    kind = change.what.partition(".")[0]
    if kind == "alarm":
        return True
    if kind in ("user", "permission", "topic"):  # topic.permission.created
        return ADMINISTRATOR in g.tags or change.user == g.user.name
    if kind in ("connection", "channel"):
        return MONITORING in g.tags or change.user == g.user.name
    if kind == "parameter" and POLICYMAKER not in g.tags:
        return False
    return change.vhost is None or sees_vhost(change.vhost)


def _shape(number, change):
    shape = {"number": number, "what": change.what, "at": change.at_ms, **change.facts}
    if change.vhost is not None:
        shape["vhost"] = change.vhost
    if change.user is not None:
        shape["user"] = change.user
    return shape
