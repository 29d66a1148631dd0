"""Describes the user and the broker: /api/whoami, /api/version, /api/cluster-name, /api/auth,
/api/extensions, /api/feature-flags, /api/deprecated-features.
"""
from flask import Blueprint, current_app, g

import gomq_py
from gomq_py.auth import passwords
from gomq_py.http.answers import body, json_answer, no_content, node, text_of
from gomq_py.http.entities import check_node_name
from gomq_py.http.errors import BadRequest, NoSuchObject
from gomq_py.http.login import ADMINISTRATOR, MANAGEMENT, MONITORING, access, sign_on_settings

blueprint = Blueprint("identity", __name__)
CLUSTER_NAME = "cluster_name"  # a global parameter, as in RabbitMQ


@blueprint.get("/api/whoami")
@access(MANAGEMENT)
def whoami():
    """Return the name and the tags of the user who sends the request."""
    return json_answer(
        {
            "name": g.user.name, "tags": list(g.user.tags),
            "is_internal_user": g.user.name in node().broker.users,
        }
    )


@blueprint.get("/api/version")
@access(MANAGEMENT)
def version():
    """Return the broker's version."""
    return json_answer({"version": gomq_py.__version__, "product": "gomq-py"})


@blueprint.get("/api/cluster-name")
@access(MANAGEMENT)
def cluster_name():
    """Return the cluster's name, which AMQP clients get in ``server-properties``."""
    return json_answer({"name": node().broker.cluster_name})


@blueprint.put("/api/cluster-name")
@access(ADMINISTRATOR)
def put_cluster_name():
    """Set the cluster's ``name`` for new connections. The name is a global parameter, as in RabbitMQ."""
    name = text_of(body(required=("name",)), "name")
    if not 0 < len(name.encode("utf-8", "surrogatepass")) <= 255:
        raise BadRequest("name must be of 1 to 255 bytes")
    node().broker.parameters.set_global(CLUSTER_NAME, name)
    return no_content()


@blueprint.get("/api/auth")
def auth():
    """Return whether and how a login page can log users in at an OAuth 2.0 issuer."""
    single = sign_on_settings(node().settings)
    return json_answer({
        "enable_uaa": False, "oauth_enabled": single is not None, "uaa_client_id": "", "uaa_location": "",
        **(single or {}),
    })


@blueprint.get("/api/auth/attempts", defaults={"name": None})
@blueprint.get("/api/auth/attempts/<name>")
@access(MONITORING)
def list_attempts(name):
    """Return the numbers of succeeded and failed logins by protocol, since the start or the last reset."""
    check_node_name(name)
    churn, http = node().clients.churn, current_app.extensions["gomq.logins"]
    return json_answer([
        {
            "protocol": protocol, "auth_attempts": succeeded + failed, "auth_attempts_failed": failed,
            "auth_attempts_succeeded": succeeded,
        }
        for protocol, succeeded, failed in (
            ("amqp091", churn.logins_succeeded, churn.logins_failed),
            ("http", http.succeeded_count, http.failed_count))])


@blueprint.get("/api/auth/attempts/<name>/source")
@access(MONITORING)
def list_attempt_sources(name):
    """Return an empty list: logins by address and user are not recorded, as that would fill the memory."""
    check_node_name(name)
    return json_answer([])


@blueprint.delete("/api/auth/attempts", defaults={"name": None})
@blueprint.delete("/api/auth/attempts/<name>")
@blueprint.delete("/api/auth/attempts/<name>/source")
@access(ADMINISTRATOR)
def reset_attempts(name):
    """Set the counts of logins to zero."""
    check_node_name(name)
    churn, http = node().clients.churn, current_app.extensions["gomq.logins"]
    churn.logins_succeeded = churn.logins_failed = http.succeeded_count = http.failed_count = 0
    return no_content()


@blueprint.get("/api/auth/hash_password/<path:password>")
@access(MANAGEMENT)
def hash_password(password):
    """Return a hash of the password in the path, for definitions and /api/users. The route is RabbitMQ's.
    Proxies may log the path: PUT /api/auth/hash_password has the password in its body.
    """
    return json_answer({"ok": passwords.hash_password(password.replace("%2F", "/").replace("%25", "%"))})


@blueprint.put("/api/auth/hash_password")
@access(MANAGEMENT)
def put_hash_password():
    """Return a hash of ``password``, for definitions and /api/users. The route is LavinMQ's."""
    return json_answer(
        {"password_hash": passwords.hash_password(text_of(body(required=("password",)), "password"))}
    )


@blueprint.get("/api/extensions")
@access(MANAGEMENT)
def list_extensions():
    """Return an empty list. In RabbitMQ it names plug-ins that add pages to the console."""
    return json_answer([])


@blueprint.get("/api/feature-flags")
@blueprint.get("/api/deprecated-features")
@blueprint.get("/api/deprecated-features/used")
@access(ADMINISTRATOR)
def list_feature_flags():
    """Return an empty list: a single node has no feature flags and no deprecated features."""
    return json_answer([])


@blueprint.put("/api/feature-flags/<name>/enable")
@access(ADMINISTRATOR)
def enable_feature_flag(name):
    """Answer 404: there are no feature flags, because every feature of this broker is always enabled."""
    raise NoSuchObject(f"there is no feature flag {name}: what this broker can do is on")
