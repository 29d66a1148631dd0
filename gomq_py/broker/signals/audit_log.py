"""Audit log: one log line for each change of an entity, with the user, the protocol and the client's address.

Entities are users, tags, permissions, vhosts, policies, parameters, settings, queues and exchanges. The lines
come from the broker's events, so that requests of every protocol, imports and the broker's own deletions are
logged alike. A line has a parameter's name but not its value, which may hold passwords. Long text of clients
is cut, and each user other than an administrator has a limited number of lines, so that none of them can fill
the disk.
"""
import logging
import time

from gomq_py.broker.policies.limits import COMPONENT as LIMITS
from gomq_py.broker.policies.policy import OPERATOR_POLICY
from gomq_py.broker.signals.events import INTERNAL, vhost_updated
from gomq_py.observability.log import logger

LOG = logger("audit")
ADMINISTRATOR = "administrator"
# A name, a policy's definition or a list of tags may be long; a line of the log should not.
SHOWN_MAX = 500
# Lines per user and interval, and remembered users. A client can declare and delete queues some 2000 times a
# second, which would be 25 GB of lines a day; 1000 in ten minutes are 22 MB.
LINES_MAX, LINES_S, USERS_MAX = 1000, 600.0, 1024


class AuditLog:
    """Logs the changes that ``events``, an Events, reports. ``now_s()``: a monotonic clock in seconds."""

    def __init__(self, events, now_s=time.monotonic):
        self._events = events
        self._now_s = now_s
        self._budgets = {}  # {who: (end of the interval, lines in it)}, the least recently heard first
        events.subscribe(self._heard, LINES.keys())

    def _heard(self, key, subjects):
        subject = subjects[0]
        level = logging.DEBUG if _goes_by_itself(subject) else logging.INFO
        if not LOG.isEnabledFor(level):
            return
        line, actor = LINES[key](*subjects), self._events.actor
        if line and (level == logging.DEBUG or _is_trusted(actor) or self._has_room(_who(actor))):
            LOG.log(level, "%s by %s", line, told(actor))

    def _has_room(self, who):
        """Count a line of the user ``who``. Returns False if that user has used up this interval's lines."""
        now = self._now_s()
        ends_s, lines = self._budgets.pop(who, (0.0, 0))
        if now >= ends_s:
            if lines > LINES_MAX:
                LOG.info("%d changes by %s were left out", lines - LINES_MAX, who)
            ends_s, lines = now + LINES_S, 0
        self._budgets[who] = ends_s, lines + 1
        if len(self._budgets) > USERS_MAX:
            del self._budgets[next(iter(self._budgets))]
        if lines == LINES_MAX:
            LOG.warning(
                "%d changes by %s within %d s: further ones are counted but not told", LINES_MAX, who,
                LINES_S)
        return lines < LINES_MAX


def _goes_by_itself(subject):
    """Return True for an exclusive or auto-delete queue or exchange, whose changes are logged at level debug.
    RPC clients make such queues many times a second, and RabbitMQ logs no queue at level info.
    """
    is_exclusive = getattr(subject, "exclusive_owner", None) is not None
    return is_exclusive or bool(getattr(subject, "auto_delete", False))


def _is_trusted(actor):
    """Return True for an administrator or an import at boot, whose changes are all logged."""
    if actor.user is INTERNAL.user:
        return bool(actor.protocol)
    return ADMINISTRATOR in actor.user.tags


def _who(actor):
    return "the broker" if actor.user is INTERNAL.user else f"user {_named(actor.user.name)}"


def told(actor):
    """Return a text about an actor: the user, protocol, address, and the client's name for its connection."""
    by_what = f"{actor.protocol} from {actor.peer}" if actor.peer else actor.protocol
    given = getattr(actor, "client_properties", {})
    name = given.get("connection_name") or given.get("client_id")  # a shovel's, too
    as_ = f" as {_named(name)}" if isinstance(name, str) else ""
    return f"{_who(actor)} ({by_what}{as_})" if by_what else _who(actor)


def _short(value):
    text = str(value)
    return text if len(text) <= SHOWN_MAX else f"{text[:SHOWN_MAX]}..."


def _named(text):
    return _short(repr(text[:SHOWN_MAX + 1]))


def _entity(kind, done):
    return lambda entity: f"{kind} {_named(entity.name)} in vhost {_named(entity.vhost)} {done}"


def _vhost(done):
    return lambda vhost: f"vhost {_named(vhost.name)} {done}"


def _vhost_deleted(vhost, queues, exchanges):
    return f"vhost {_named(vhost.name)} deleted with {queues} queue(s) and {exchanges} exchange(s)"


def _vhost_changed(vhost):
    values = vhost_updated(vhost)
    return f"vhost {_named(values.pop('name'))} changed to {_short(values)}"


def _user(what, *values):
    return lambda headers: what.format(_named(headers["name"]), *(_short(headers[key]) for key in values))


def _rights(kind, done):
    def line(headers):
        place = f"vhost {_named(headers['vhost'])}"
        if "exchange" in headers:
            place = f"exchange {_named(headers['exchange'])} of {place}"
        rights = ", ".join(
            f"{right} {_named(headers[right])}" for right in ("configure", "write", "read")
            if right in headers)
        return f"{kind} of user {_named(headers['user'])} in {place} {done}{rights and f': {rights}'}"

    return line


def _policy(done):
    def line(headers, component):
        kind = "operator policy" if component == OPERATOR_POLICY else "policy"
        values = ", ".join(
            f"{key} {_named(headers[key])}" if isinstance(headers[key], str)
            else f"{key} {_short(headers[key])}"
            for key in ("pattern", "apply-to", "definition", "priority") if key in headers)
        return (
            f"{kind} {_named(headers['name'])} in vhost {_named(headers['vhost'])} {done}"
            f"{values and f': {values}'}")

    return line


def _parameter(done):
    def line(headers):
        if headers["component"] == LIMITS:
            return ""  # an event of its own follows
        place = f" in vhost {_named(headers['vhost'])}" if "vhost" in headers else ""
        what = f"parameter {_named(headers['name'])} of component {_named(headers['component'])}"
        return f"{what}{place} {done}"

    return line


def _vhost_limits(done):
    def line(headers):
        values = {key: headers[key] for key in headers if key not in ("name", "vhost")}
        return f"limits of vhost {_named(headers['vhost'])} {done}{f' to {_short(values)}' if values else ''}"

    return line


# Event's key: function from the event's subjects to the line, without the actor.
LINES = {
    "user.created": _user("user {} created"),
    "user.deleted": _user("user {} deleted"),
    "user.password.changed": _user("password of user {} changed"),
    "user.password.cleared": _user("password of user {} cleared"),
    "user.tags.set": _user("tags of user {} set to {}", "tags"),
    "user.limits.set": _user("limits of user {} set to {}", "limits"),
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
    "vhost.updated": _vhost_changed,
    "vhost.deleted": _vhost_deleted,
    "vhost.limits.set": _vhost_limits("set"),
    "vhost.limits.cleared": _vhost_limits("cleared"),
    "exchange.created": _entity("exchange", "created"),
    "exchange.deleted": _entity("exchange", "deleted"),
    "queue.created": _entity("queue", "created"),
    "queue.deleted": _entity("queue", "deleted"),
}
