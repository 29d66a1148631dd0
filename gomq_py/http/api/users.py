"""/api/users: lists, creates, changes and deletes users, for administrators."""
from flask import Blueprint, request

from gomq_py.auth.errors import LoginRefused, TooManyAttempts
from gomq_py.http import kinds, shapes
from gomq_py.http.answers import body, json_answer, no_content, node, text_of
from gomq_py.http.errors import BadRequest, Throttled
from gomq_py.http.entities import find_user, visible_vhosts
from gomq_py.http.login import ADMINISTRATOR, MANAGEMENT, access, check_login
from gomq_py.http.paging import listing
from gomq_py.hub.turns import paced

blueprint = Blueprint("users", __name__)
# Queues between two looks at the clock: below 0.1 us each.
LOOKED_AT = 1000


@blueprint.get("/api/users")
@access(ADMINISTRATOR)
def list_users():
    """Return all users."""
    return listing([shapes.user(user) for user in node().broker.users])


@blueprint.get("/api/users/without-permissions")
@access(ADMINISTRATOR)
def list_users_without_permissions():
    """Return the users without a permission in any vhost."""
    return listing([shapes.user(user) for user in node().broker.users if not user.permissions])


@blueprint.get("/api/users/<name>")
@access(ADMINISTRATOR)
def get_user(name):
    """Return one user."""
    return json_answer(shapes.user(find_user(name)))


@blueprint.get("/api/users/<name>/queues")
@access(MANAGEMENT)
def list_queues_of_user(name):
    """Return the queues that this user declared, in the vhosts that the caller sees; an empty list for an
    unknown user, as in RabbitMQ.
    """
    found = []
    for vhost in visible_vhosts():
        queues = paced(list(vhost.queues.values()), LOOKED_AT)
        found += [queue for queue in queues if queue.declared_by == name]
    return listing(found, kinds.QUEUES)


@blueprint.put("/api/users/<name>")
@access(ADMINISTRATOR)
def put_user(name):
    """Create or change a user. The body has ``password`` or ``password_hash``, and ``tags`` as a
    comma-separated text or an array.

    May switch greenlets.
    """
    wanted = body()
    if "tags" not in wanted:
        raise BadRequest("tags_not_present")
    tags = tags_of(wanted["tags"])
    broker = node().broker
    users = broker.users
    if wanted.get("password") and wanted.get("password_hash"):
        raise BadRequest("both_password_and_password_hash_are_provided")
    password = text_of(wanted, "password") if "password" in wanted else ""
    if password:
        broker.logins.ask_ahead(name, password, request.remote_addr or "")
        check_login()  # hashing may have taken a while
    existed = name in users
    try:
        if password:
            users.set_user(name, password=password, tags=tags)
        else:
            algorithm = text_of(wanted, "hashing_algorithm", "SHA256")
            users.set_user(
                name, password_hash=text_of(wanted, "password_hash", ""), hashing_algorithm=algorithm,
                tags=tags,
            )
    except ValueError as error:
        raise BadRequest(str(error)) from None
    return no_content(204 if existed else 201)


@blueprint.post("/api/users/<name>/authenticate")
@access(ADMINISTRATOR)
def authenticate(name):
    """Return whether the user can log in with ``password`` from the caller's address, and if not, the reason.
    May switch greenlets.
    """
    password = text_of(body(required=("password",)), "password")
    try:
        node().broker.logins.login(name, password, request.remote_addr or "")
    except TooManyAttempts as error:
        raise Throttled("too many failed logins", error.retry_after_s) from None
    except LoginRefused as error:
        return json_answer({"authenticated": False, "reason": str(error)})
    return json_answer({"authenticated": True, "reason": ""})


@blueprint.delete("/api/users/<name>")
@access(ADMINISTRATOR)
def delete_user(name):
    """Delete the user, and close the user's connections."""
    find_user(name)
    _delete((name,))
    return no_content()


@blueprint.post("/api/users/bulk-delete")
@access(ADMINISTRATOR)
def delete_users():
    """Delete the users named in ``users`` and close their connections; unknown names are ignored."""
    names = body(required=("users",))["users"]
    if not isinstance(names, list) or not all(isinstance(name, str) for name in names):
        raise BadRequest("users must be a list of names")
    _delete(dict.fromkeys(names))
    return no_content()


def _delete(names):
    """Delete these users, so that logins fail, and then close their connections. May switch greenlets."""
    for name in paced(names):
        user = node().broker.users.delete_user(name)
        for connection in paced([] if user is None else node().clients.of_user(user.identity)):
            connection.force_close(f"user '{name}' was deleted")


def tags_of(value):
    """Return the tags in ``value``, a comma-separated text or a list, as a list. Raises BadRequest."""
    if isinstance(value, str):
        return [tag.strip() for tag in value.split(",") if tag.strip()]
    if isinstance(value, list) and all(isinstance(tag, str) for tag in value):
        return value
    raise BadRequest("tags must be a comma separated string or a list of strings")
