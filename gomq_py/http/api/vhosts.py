"""/api/vhosts: lists, creates and deletes vhosts; lists the connections and channels of one vhost."""
from flask import Blueprint, g, request

from gomq_py.broker.features.arguments import TYPES
from gomq_py.errors import PreconditionFailed
from gomq_py.http import curves, kinds, shapes
from gomq_py.http.answers import body, boolean_of, json_answer, no_content, node, text_of
from gomq_py.http.api.connections import list_of_channels, visible
from gomq_py.http.errors import BadRequest, PreconditionNotMet
from gomq_py.http.entities import check_node_name, find_vhost, visible_vhosts
from gomq_py.http.login import ADMINISTRATOR, MANAGEMENT, access, check_login
from gomq_py.http.paging import listing

blueprint = Blueprint("vhosts", __name__)


@blueprint.get("/api/vhosts")
@access(MANAGEMENT)
def list_vhosts():
    """Return every vhost that the user sees."""
    return listing(visible_vhosts(), kinds.VHOSTS)


@blueprint.get("/api/vhosts/<name>")
@access(MANAGEMENT)
def get_vhost(name):
    """Return one vhost."""
    curves.with_history()
    return json_answer(shapes.vhost(find_vhost(name)))


@blueprint.put("/api/vhosts/<name>")
@access(ADMINISTRATOR)
def put_vhost(name):
    """Create the vhost, or change its description and settings; its creator gets all rights in it."""
    wanted = body()
    tracing = boolean_of(wanted, "tracing") if wanted.get("tracing") is not None else None
    described = {
        "description": text_of(wanted, "description") if "description" in wanted else None,
        "tags": _tags(wanted.get("tags")),
        "default_queue_type": _queue_type(wanted.get("default_queue_type", wanted.get("defaultqueuetype"))),
        "protected_from_deletion": (
            None if wanted.get("protected_from_deletion") is None
            else boolean_of(wanted, "protected_from_deletion")
        )}
    node().broker.wait_until_gone(name)
    check_login()
    existed = name in node().broker.vhosts
    # The user of a token or of the control socket has no stored rights, whatever its name.
    creator = g.user.name if node().broker.users.get(g.user.name) is g.user else None
    vhost = node().broker.create_vhost(
        name, described["description"] or "", described["tags"] or (), creator=creator)
    node().broker.describe_vhost(vhost, **described)
    if tracing is not None:
        vhost.set_tracing(tracing)
    return no_content(204 if existed else 201)


def _tags(tags):
    """Return the tags in a comma-separated text or a list as a list; None for None. Raises BadRequest."""
    if isinstance(tags, str):
        return [tag.strip() for tag in tags.split(",") if tag.strip()]
    if tags is not None and not (isinstance(tags, list) and all(isinstance(tag, str) for tag in tags)):
        raise BadRequest("tags must be a list of strings")
    return tags


def _queue_type(kind):
    """Return the default queue type that a body names; None for None, "" and ``undefined``, which RabbitMQ's
    page sends. Raises BadRequest for an unknown type.
    """
    if kind in (None, "", "undefined"):
        return None
    if not isinstance(kind, str) or kind not in TYPES:
        raise BadRequest(f"default_queue_type must be one of {', '.join(sorted(TYPES))}")
    return kind


@blueprint.delete("/api/vhosts/<name>")
@access(ADMINISTRATOR)
def delete_vhost(name):
    """Delete the vhost with all that it contains, and close its connections. 412 while it is protected."""
    vhost = find_vhost(name)
    try:
        node().broker.check_may_be_deleted(vhost)
    except PreconditionFailed as error:
        raise PreconditionNotMet(error.text) from None
    node().broker.delete_vhost(name, node().clients.in_vhost(vhost))
    node().broker.wait_until_gone(name)
    return no_content()


@blueprint.post("/api/vhosts/<name>/deletion/protection")
@blueprint.delete("/api/vhosts/<name>/deletion/protection")
@access(ADMINISTRATOR)
def protect_vhost(name):
    """Protect the vhost from deletion; a DELETE lifts the protection."""
    node().broker.describe_vhost(find_vhost(name), protected_from_deletion=request.method == "POST")
    return no_content()


@blueprint.post("/api/vhosts/<name>/start/<where>")
@access(ADMINISTRATOR)
def start_vhost(name, where):
    """Do nothing: all vhosts run on the only node."""
    find_vhost(name)
    check_node_name(where)
    return no_content()


@blueprint.get("/api/vhosts/<name>/connections")
@access(MANAGEMENT)
def list_vhost_connections(name):
    """Return those connections to the vhost that the user may see."""
    find_vhost(name)
    return listing([one for one in visible() if one.vhost.name == name], kinds.CONNECTIONS)


@blueprint.get("/api/vhosts/<name>/channels")
@access(MANAGEMENT)
def list_vhost_channels(name):
    """Return the channels in the vhost whose connections the user may see."""
    find_vhost(name)
    return list_of_channels([one for one in visible() if one.vhost.name == name])
