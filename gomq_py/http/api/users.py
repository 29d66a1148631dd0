"""/api/users and /api/permissions: who may come in and what they may do where. For administrators."""
from flask import Blueprint

from gomq_py.http import shapes
from gomq_py.http.answers import body, json_answer, no_content, node
from gomq_py.http.errors import BadRequest, NoSuchObject
from gomq_py.http.finding import find_vhost, writable_vhost
from gomq_py.http.login import ADMINISTRATOR, access
from gomq_py.http.paging import listing

blueprint = Blueprint("users", __name__)


def find_user(name):
    """The user of this name. Raises NoSuchObject."""
    user = node().broker.users.get(name)
    if user is None:
        raise NoSuchObject()
    return user


@blueprint.get("/api/users")
@access(ADMINISTRATOR)
def list_users():
    """Every user."""
    return listing([shapes.user(user) for user in node().broker.users])


@blueprint.get("/api/users/without-permissions")
@access(ADMINISTRATOR)
def list_users_without_permissions():
    """Users who can open no vhost."""
    return listing([shapes.user(user) for user in node().broker.users if not user.permissions])


@blueprint.get("/api/users/<name>")
@access(ADMINISTRATOR)
def get_user(name):
    """One user."""
    return json_answer(shapes.user(find_user(name)))


@blueprint.put("/api/users/<name>")
@access(ADMINISTRATOR)
def put_user(name):
    """Create or change: a password, or a hash from another broker; tags as a comma list or an array."""
    wanted = body()
    if "tags" not in wanted:
        raise BadRequest("tags_not_present")
    tags = tags_of(wanted["tags"])
    users = node().broker.users
    existed = name in users
    try:
        if wanted.get("password"):
            users.set_user(name, password=text_of(wanted, "password"), tags=tags)
        else:
            algorithm = text_of(wanted, "hashing_algorithm", "SHA256")
            users.set_user(name, password_hash=text_of(wanted, "password_hash", ""), hashing_algorithm=algorithm, tags=tags)
    except ValueError as error:
        raise BadRequest(str(error)) from None
    return no_content(204 if existed else 201)


@blueprint.delete("/api/users/<name>")
@access(ADMINISTRATOR)
def delete_user(name):
    """Take the user away; its connections are closed."""
    find_user(name)
    _delete(name)
    return no_content()


@blueprint.post("/api/users/bulk-delete")
@access(ADMINISTRATOR)
def delete_users():
    """Several at once; names nobody has are passed over."""
    names = body(required=("users",))["users"]
    if not isinstance(names, list) or not all(isinstance(name, str) for name in names):
        raise BadRequest("users must be a list of names")
    for name in names:
        _delete(name)
    return no_content()


@blueprint.get("/api/users/<name>/permissions")
@access(ADMINISTRATOR)
def list_user_permissions(name):
    """The user's rights in every vhost."""
    return listing([shapes.permission(one) for one in find_user(name).permissions.values()], name_of=lambda item: item["vhost"])


@blueprint.get("/api/permissions")
@access(ADMINISTRATOR)
def list_permissions():
    """Every right of everybody."""
    rights = [one for user in node().broker.users for one in user.permissions.values()]
    return listing([shapes.permission(one) for one in rights], name_of=lambda item: item["user"])


@blueprint.get("/api/permissions/<vhost>/<user>")
@access(ADMINISTRATOR)
def get_permission(vhost, user):
    """One user's rights in one vhost."""
    find_vhost(vhost)
    rights = find_user(user).permission(vhost)
    if rights is None:
        raise NoSuchObject()
    return json_answer(shapes.permission(rights))


@blueprint.put("/api/permissions/<vhost>/<user>")
@access(ADMINISTRATOR)
def put_permission(vhost, user):
    """Grant rights: three regular expressions."""
    writable_vhost(vhost)
    existed = find_user(user).permission(vhost) is not None
    wanted = body(required=("configure", "write", "read"))
    try:
        patterns = [text_of(wanted, verb) for verb in ("configure", "write", "read")]
        node().broker.users.set_permission(user, vhost, *patterns)
    except ValueError as error:
        raise BadRequest(str(error)) from None
    return no_content(204 if existed else 201)


@blueprint.delete("/api/permissions/<vhost>/<user>")
@access(ADMINISTRATOR)
def delete_permission(vhost, user):
    """Take all rights in the vhost away."""
    find_vhost(vhost)
    if not node().broker.users.delete_permission(user, vhost):
        raise NoSuchObject()
    return no_content()


def _delete(name):
    for connection in node().connections():
        if connection.user is not None and connection.user.name == name:
            connection.force_close(f"user '{name}' was deleted")
    node().broker.users.delete_user(name)


def tags_of(value):
    """Tags given as ``a,b`` or as a list. Raises BadRequest."""
    if isinstance(value, str):
        return [tag.strip() for tag in value.split(",") if tag.strip()]
    if isinstance(value, list) and all(isinstance(tag, str) for tag in value):
        return value
    raise BadRequest("tags must be a comma separated string or a list of strings")


def text_of(wanted, key, default=None):
    """A string field of the body. Raises BadRequest for any other type."""
    value = wanted.get(key, default)
    if not isinstance(value, str):
        raise BadRequest(f"{key} must be a string")
    return value
