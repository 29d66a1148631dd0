"""/api/vhost-limits and /api/user-limits: the limits on connections, queues and channels."""
from flask import Blueprint

from gomq_py.broker.policies.limits import COMPONENT as LIMITS
from gomq_py.broker.policies.limits import NAME as LIMITS_NAME
from gomq_py.http.answers import json_answer, no_content, node
from gomq_py.http.api.parameters import set_value
from gomq_py.http.entities import find_user, find_vhost, vhosts_named, writable_vhost
from gomq_py.http.login import ADMINISTRATOR, MANAGEMENT, access

blueprint = Blueprint("limits", __name__)


@blueprint.get("/api/vhost-limits")
@blueprint.get("/api/vhost-limits/<vhost>")
@access(MANAGEMENT)
def list_limits(vhost=None):
    """Return the limits of one vhost, or of all vhosts that the user sees and that have limits."""
    return json_answer(
        [{"vhost": one.name, "value": _kept(one)} for one in vhosts_named(vhost) if _kept(one)])


@blueprint.put("/api/vhost-limits/<vhost>/<kind>")
@access(ADMINISTRATOR)
def put_limit(vhost, kind):
    """Set the limit ``kind`` of the vhost; a negative ``value`` is kept and shown, and means no limit."""
    there = writable_vhost(vhost)
    set_value(
        lambda value: node().broker.parameters.set(there, LIMITS, LIMITS_NAME, {**_kept(there), kind: value})
    )
    return no_content()


@blueprint.delete("/api/vhost-limits/<vhost>/<kind>")
@access(ADMINISTRATOR)
def delete_limit(vhost, kind):
    """Delete the limit ``kind`` of the vhost. Succeeds also if the limit is not set."""
    there = find_vhost(vhost)
    if kind in _kept(there):
        left = {key: limit for key, limit in _kept(there).items() if key != kind}
        node().broker.parameters.set(there, LIMITS, LIMITS_NAME, left)
    return no_content()


def _kept(vhost):
    """Return {kind: limit}, all limits set for the vhost, including negative ones, which have no effect."""
    # RabbitMQ exports an empty list when the last limit was cleared
    return dict(vhost.parameters.get((LIMITS, LIMITS_NAME), ()))


@blueprint.get("/api/user-limits")
@blueprint.get("/api/user-limits/<user>")
@access(MANAGEMENT)
def list_user_limits(user=None):
    """Return the limits of one user, or of all users who have limits."""
    kept = node().broker.user_limits
    found = kept.all() if user is None else {user: kept.get(find_user(user).name)}
    return json_answer([{"user": name, "value": limits} for name, limits in found.items() if limits])


@blueprint.put("/api/user-limits/<user>/<kind>")
@access(ADMINISTRATOR)
def put_user_limit(user, kind):
    """Set the limit ``kind`` of the user; a negative ``value`` means no limit."""
    find_user(user)
    set_value(lambda value: node().broker.user_limits.set(user, kind, value))
    return no_content()


@blueprint.delete("/api/user-limits/<user>/<kind>")
@access(ADMINISTRATOR)
def delete_user_limit(user, kind):
    """Delete the limit ``kind`` of the user. Succeeds also if the limit is not set."""
    find_user(user)
    node().broker.user_limits.clear(user, kind)
    return no_content()
