"""/api/vhosts: list, create, delete."""
from flask import Blueprint, g

from gomq_py.http.answers import body, json_answer, no_content, node, sliced
from gomq_py.http.errors import BadRequest, NoSuchObject
from gomq_py.http.login import ADMINISTRATOR, MANAGEMENT, access, sees_vhost
from gomq_py.http.paging import listing

blueprint = Blueprint("vhosts", __name__)


def find_vhost(name):
    """The vhost of this name that the user may look into. Raises NoSuchObject."""
    vhost = node().broker.vhosts.get(name)
    if vhost is None:
        raise NoSuchObject("vhost_not_found", error="not_found")
    return vhost


def visible_vhosts():
    """The vhosts that the request's user may look into."""
    return [vhost for name, vhost in sorted(node().broker.vhosts.items()) if sees_vhost(name)]


def shape(vhost):
    """RabbitMQ's fields of a vhost."""
    ready = sum(queue.ready_count for queue in vhost.queues.values())
    unacked = sum(queue.unacked_count for queue in vhost.queues.values())
    tags = list(vhost.tags)
    return {
        "name": vhost.name, "description": vhost.description, "tags": tags, "default_queue_type": "classic", "tracing": False,
        "metadata": {"description": vhost.description, "tags": tags}, "cluster_state": {node().name: "running"},
        "messages": ready + unacked, "messages_ready": ready, "messages_unacknowledged": unacked,
    }


@blueprint.get("/api/vhosts")
@access(MANAGEMENT)
def list_vhosts():
    """Every vhost that the user sees."""
    return listing(sliced(visible_vhosts(), shape))


@blueprint.get("/api/vhosts/<name>")
@access(MANAGEMENT)
def get_vhost(name):
    """One vhost."""
    return json_answer(shape(find_vhost(name)))


@blueprint.put("/api/vhosts/<name>")
@access(ADMINISTRATOR)
def put_vhost(name):
    """Create it, or leave it as it is; whoever creates it has all rights in it."""
    wanted = body()
    tags = wanted.get("tags", ())
    if isinstance(tags, str):
        tags = [tag.strip() for tag in tags.split(",") if tag.strip()]
    if not isinstance(tags, (list, tuple)) or not all(isinstance(tag, str) for tag in tags):
        raise BadRequest("tags must be a list of strings")
    existed = name in node().broker.vhosts
    node().broker.create_vhost(name, str(wanted.get("description", "")), tags, creator=g.user.name)
    return no_content(204 if existed else 201)


@blueprint.delete("/api/vhosts/<name>")
@access(ADMINISTRATOR)
def delete_vhost(name):
    """Delete it with all that is in it; its connections are closed."""
    find_vhost(name)
    for connection in node().connections():
        if connection.vhost is not None and connection.vhost.name == name:
            connection.force_close(f"vhost '{name}' is down")
    node().broker.delete_vhost(name)
    return no_content()
