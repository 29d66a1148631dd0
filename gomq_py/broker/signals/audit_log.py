"""Audit log: one line of the log for each user, tag, permission, vhost, policy, parameter, setting, queue and
exchange that is created, changed or deleted: by whom, by which protocol and from where.

Listens to the broker's events, so that requests of every protocol, imports and the broker's own deletions
are told alike. Names the parameters but not their values, which may hold passwords.
"""
import logging

from gomq_py.broker.policies.limits import COMPONENT as LIMITS
from gomq_py.broker.policies.policy import OPERATOR_POLICY
from gomq_py.broker.signals.events import ACTOR, INTERNAL
from gomq_py.observability.log import logger

LOG = logger("audit")
# A policy's definition or a list of tags may be long; a line of the log should not.
SHOWN_MAX = 500


class AuditLog:
    """Logs the changes that ``events`` report."""

    def __init__(self, events):
        events.subscribe(self._heard, LINES.keys())

    def _heard(self, key, subjects):
        subject = subjects[0]
        level = logging.DEBUG if _goes_by_itself(subject) else logging.INFO
        if not LOG.isEnabledFor(level):
            return
        line = LINES[key](*subjects)
        if line:
            tell(line, level)


def tell(line, level=logging.INFO):
    """Log what the ACTOR of this greenlet does. Returns whether the log has this level."""
    LOG.log(level, "%s by %s", line, _told(ACTOR.get()))
    return LOG.isEnabledFor(level)


def _goes_by_itself(subject):
    """Whether this is a queue or exchange that ends with its client or its last use. RabbitMQ logs no queue
    at all at level info; RPC clients make such queues many times a second.
    """
    is_exclusive = getattr(subject, "exclusive_owner", None) is not None
    return is_exclusive or bool(getattr(subject, "auto_delete", False))


def _told(actor):
    who = "the broker" if actor.user is INTERNAL.user else f"user {actor.user.name!r}"
    by_what = f"{actor.protocol} from {actor.peer}" if actor.peer else actor.protocol
    given = getattr(actor, "client_properties", {})
    name = given.get("connection_name") or given.get("client_id")  # a shovel's, too
    as_ = f" as {_short(name)!r}" if isinstance(name, str) else ""
    return f"{who} ({by_what}{as_})" if by_what else who


def _short(value):
    text = str(value)
    return text if len(text) <= SHOWN_MAX else f"{text[:SHOWN_MAX]}..."


def _entity(kind, done):
    """A line about a queue or an exchange."""
    return lambda entity: f"{kind} {entity.name!r} in vhost {entity.vhost!r} {done}"


def _vhost(done):
    return lambda vhost: f"vhost {vhost.name!r} {done}"


def _user(what):
    return lambda headers: what.format(repr(headers["name"]))


def _tags(headers):
    return f"tags of user {headers['name']!r} set to {_short(headers['tags'])}"


def _user_limits(headers):
    return f"limits of user {headers['name']!r} set to {headers['limits']}"


def _rights(kind, done):
    """A line about a user's permissions or topic permissions."""
    def line(headers):
        place = f"vhost {headers['vhost']!r}"
        if "exchange" in headers:
            place = f"exchange {headers['exchange']!r} of {place}"
        rights = ", ".join(
            f"{right} {_short(headers[right])!r}" for right in ("configure", "write", "read")
            if right in headers)
        return f"{kind} of user {headers['user']!r} in {place} {done}{rights and f': {rights}'}"

    return line


def _policy(done):
    def line(headers, component):
        kind = "operator policy" if component == OPERATOR_POLICY else "policy"
        values = ", ".join(
            f"{key} {_short(headers[key])!r}" if isinstance(headers[key], str)
            else f"{key} {_short(headers[key])}"
            for key in ("pattern", "apply-to", "definition", "priority") if key in headers)
        return (
            f"{kind} {headers['name']!r} in vhost {headers['vhost']!r} {done}{values and f': {values}'}")

    return line


def _parameter(done):
    def line(headers):
        if headers["component"] == LIMITS:
            return ""  # an event of its own follows
        place = f" in vhost {headers['vhost']!r}" if "vhost" in headers else ""
        return f"parameter {headers['name']!r} of component {headers['component']!r}{place} {done}"

    return line


def _vhost_limits(done):
    def line(headers):
        values = {key: headers[key] for key in headers if key not in ("name", "vhost")}
        return f"limits of vhost {headers['vhost']!r} {done}{f' to {values}' if values else ''}"

    return line


# Event's key: function from the event's subjects to the line, without the actor.
LINES = {
    "user.created": _user("user {} created"),
    "user.deleted": _user("user {} deleted"),
    "user.password.changed": _user("password of user {} changed"),
    "user.password.cleared": _user("password of user {} cleared"),
    "user.tags.set": _tags,
    "user.limits.set": _user_limits,
    "user.limits.cleared": _user("limits of user {} cleared"),
    "permission.created": _rights("permissions", "set"),
    "permission.deleted": _rights("permissions", "deleted"),
    "topic.permission.created": _rights("topic permissions", "set"),
    "topic.permission.deleted": _rights("topic permissions", "deleted"),
    "policy.set": _policy("set"),
    "policy.cleared": _policy("deleted"),
    "parameter.set": _parameter("set"),
    "parameter.cleared": _parameter("deleted"),
    "vhost.created": _vhost("created"),
    "vhost.updated": _vhost("changed"),
    "vhost.deleted": _vhost("deleted"),
    "vhost.limits.set": _vhost_limits("set"),
    "vhost.limits.cleared": _vhost_limits("cleared"),
    "exchange.created": _entity("exchange", "created"),
    "exchange.deleted": _entity("exchange", "deleted"),
    "queue.created": _entity("queue", "created"),
    "queue.deleted": _entity("queue", "deleted"),
}
