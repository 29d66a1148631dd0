"""/api/changes: lists entities created, deleted or changed since an earlier answer. /api/events streams the
same. Specific to gomq-py.
"""
from flask import Blueprint, g, request

from gomq_py.http import live
from gomq_py.http.answers import json_answer, node, number_in
from gomq_py.http.errors import BadRequest
from gomq_py.http.login import (
    ADMINISTRATOR, MANAGEMENT, MONITORING, POLICYMAKER, access, user_sees_vhost,
)
from gomq_py.hub.turns import paced

blueprint = Blueprint("changes", __name__)
# Changes per answer; a request with its ``last`` gets the next ones.
SHOWN_MAX = 1000
# Changes between two checks of the clock: a microsecond each.
LOOK = 50
# Changes written at once to a stream, and changes searched for it.
TOLD_MAX, LOOKED_AT = 200, 2000


@blueprint.get("/api/changes")
@access(MANAGEMENT)
def list_changes():
    """Return the changes after number ``since`` that the user may see; without ``since``, only the number of
    the last change. ``too_old`` is true if changes after ``since`` are no longer kept.
    """
    since = _since()
    last = node().feed.last
    changes = [] if since is None else node().feed.since(since)
    if changes is None:
        return json_answer({"last": last, "too_old": True, "changes": []})
    shown = []
    for number, change in paced(changes, LOOK):
        if _is_seen(change, g.user, g.tags):
            shown.append(_shape(number, change))
            if len(shown) == SHOWN_MAX:
                last = number
                break
    return json_answer({"last": last, "too_old": False, "changes": shown})


@blueprint.get("/api/events")
@access(MANAGEMENT)
def follow_changes():
    """Stream each change after ``since`` or the header ``Last-Event-ID`` to a client that accepts
    text/event-stream; the event ``too_old`` says that changes were missed. Any other client gets the answer
    of /api/changes.
    """
    if not live.is_wanted():
        return list_changes.__wrapped__()
    feed, user, tags = node().feed, g.user, g.tags
    since = _since() if request.args.get("since") else resumed_at()
    after = feed.last if since is None else since

    def tell():
        nonlocal after
        changes = feed.since(after)
        if changes is None:
            after = feed.last
            return [("too_old", after, {"last": after})]
        told = []
        for number, change in changes[:LOOKED_AT]:
            after = number
            if _is_seen(change, user, tags):
                told.append((None, number, _shape(number, change)))
                if len(told) == TOLD_MAX:
                    break
        if after < feed.last:
            feed.source.wake()
        return told

    return live.answer(feed.source, tell)


def resumed_at():
    """Return the number ``Last-Event-ID``, the last event a browser received; None if missing or invalid."""
    number = number_in(request.headers.get("Last-Event-ID", ""))
    return None if number is None or number < 0 else number


def _since():
    text = request.args.get("since")
    if not text:
        return None
    number = number_in(text)
    if number is None or number < 0:
        raise BadRequest("since must be a number that an answer of /api/changes gave as last")
    return number


def _is_seen(change, user, tags):
    kind = change.what.partition(".")[0]
    if kind == "alarm":
        return True
    if kind in ("user", "permission", "topic"):  # topic.permission.created
        return ADMINISTRATOR in tags or change.user == user.identity
    if kind in ("connection", "channel", "consumer"):
        return MONITORING in tags or change.user == user.identity
    if kind == "parameter" and POLICYMAKER not in tags:
        return False
    return change.vhost is None or user_sees_vhost(user, tags, change.vhost)


def _shape(number, change):
    shape = {"number": number, "what": change.what, "at": change.at_ms, **change.facts}
    if change.vhost is not None:
        shape["vhost"] = change.vhost
    if change.user is not None:
        shape["user"] = change.user[0]
    return shape
