"""/api/permissions, /api/topic-permissions: shows, grants and deletes rights in vhosts and on routing keys,
for administrators only.
"""
from flask import Blueprint

from gomq_py.http import kinds, shapes
from gomq_py.http.answers import body, json_answer, no_content, node, sliced, text_of
from gomq_py.http.errors import BadRequest, NoSuchObject
from gomq_py.http.entities import find_user, find_vhost
from gomq_py.http.login import ADMINISTRATOR, access
from gomq_py.http.paging import listing

blueprint = Blueprint("permissions", __name__)


def rights(user):
    """Return a list of a user's permissions in all vhosts, as JSON."""
    return [shapes.permission(one) for one in user.permissions.values()]


def topic_rights(user, vhost=None):
    """Return a list of a user's topic permissions, in one vhost or in all, as JSON."""
    return [
        shapes.topic_permission(one) for one in user.topic_permissions.values() if vhost in (None, one.vhost)
    ]


def _of_everybody(of_user, vhost):
    if vhost is not None:
        find_vhost(vhost)
    return [
        one for entries in sliced(node().broker.users, of_user) for one in entries
        if vhost in (None, one["vhost"])
    ]


@blueprint.get("/api/permissions")
@blueprint.get("/api/vhosts/<name>/permissions")
@access(ADMINISTRATOR)
def list_permissions(name=None):
    """Return the permissions of every user, in one vhost or in all."""
    return listing(_of_everybody(rights, name), kinds.BY_USER)


@blueprint.get("/api/users/<name>/permissions")
@access(ADMINISTRATOR)
def list_user_permissions(name):
    """Return the permissions of the user in every vhost."""
    return listing(rights(find_user(name)), kinds.BY_VHOST)


@blueprint.get("/api/permissions/<vhost>/<user>")
@access(ADMINISTRATOR)
def get_permission(vhost, user):
    """Return the permissions of the user in the vhost."""
    find_vhost(vhost)
    permission = find_user(user).permission(vhost)
    if permission is None:
        raise NoSuchObject()
    return json_answer(shapes.permission(permission))


@blueprint.put("/api/permissions/<vhost>/<user>")
@access(ADMINISTRATOR)
def put_permission(vhost, user):
    """Grant the user ``configure``, ``write`` and ``read`` in the vhost, each a regular expression."""
    existed = _holder(user, vhost).permission(vhost) is not None
    wanted = body(required=("configure", "write", "read"))
    patterns = [text_of(wanted, verb) for verb in ("configure", "write", "read")]
    _granted(node().broker.users.set_permission, user, vhost, *patterns)
    return no_content(204 if existed else 201)


@blueprint.delete("/api/permissions/<vhost>/<user>")
@access(ADMINISTRATOR)
def delete_permission(vhost, user):
    """Delete all permissions of the user in the vhost."""
    find_vhost(vhost)
    if not node().broker.users.delete_permission(user, vhost):
        raise NoSuchObject()
    return no_content()


@blueprint.get("/api/topic-permissions")
@blueprint.get("/api/vhosts/<name>/topic-permissions")
@access(ADMINISTRATOR)
def list_topic_permissions(name=None):
    """Return the topic permissions of every user, in one vhost or in all."""
    return listing(_of_everybody(topic_rights, name), kinds.BY_USER)


@blueprint.get("/api/users/<name>/topic-permissions")
@access(ADMINISTRATOR)
def list_user_topic_permissions(name):
    """Return the topic permissions of the user in every vhost."""
    return listing(topic_rights(find_user(name)), kinds.BY_VHOST)


@blueprint.get("/api/topic-permissions/<vhost>/<user>")
@access(ADMINISTRATOR)
def get_topic_permissions(vhost, user):
    """Return the topic permissions of the user in the vhost, one entry per exchange."""
    find_vhost(vhost)
    limits = topic_rights(find_user(user), vhost)
    if not limits:
        raise NoSuchObject()
    return json_answer(limits)


@blueprint.put("/api/topic-permissions/<vhost>/<user>")
@access(ADMINISTRATOR)
def put_topic_permission(vhost, user):
    """Limit a user's routing keys at a topic exchange by the regexes ``write`` (publish), ``read`` (bind)."""
    holder = _holder(user, vhost)
    wanted = body(required=("exchange", "write", "read"))
    exchange, write, read = (text_of(wanted, key) for key in ("exchange", "write", "read"))
    existed = holder.topic_permission(vhost, exchange) is not None
    _granted(node().broker.users.set_topic_permission, user, vhost, exchange, write, read)
    return no_content(204 if existed else 201)


@blueprint.delete("/api/topic-permissions/<vhost>/<user>", defaults={"exchange": None})
@blueprint.delete("/api/topic-permissions/<vhost>/<user>/<exchange>")
@access(ADMINISTRATOR)
def delete_topic_permissions(vhost, user, exchange):
    """Delete the topic permissions of the user in the vhost: all, or those at one exchange."""
    find_vhost(vhost)
    if not node().broker.users.delete_topic_permissions(user, vhost, exchange):
        raise NoSuchObject()
    return no_content()


def _holder(user, vhost):
    """Return the User. Raises BadRequest, as RabbitMQ does, if the user or the vhost is missing."""
    holder = node().broker.users.get(user)
    if holder is None or vhost not in node().broker.vhosts:
        raise BadRequest("vhost_or_user_not_found")
    return holder


def _granted(grant, *values):
    """Call ``grant(*values)``. Raises BadRequest for an invalid regular expression."""
    try:
        grant(*values)
    except ValueError as error:
        raise BadRequest(str(error)) from None
