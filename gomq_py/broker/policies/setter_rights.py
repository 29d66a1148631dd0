"""Setter rights: a policy may send messages to other entities only within the rights of the user who set it.

Such a policy names, for example, a dead letter exchange or a tee (a stream for copies). The user needs the
right read on each queue or exchange to which the policy applies, and write on the entity that the policy
names. Write is checked when the policy is set; both are checked when the policy is applied. RabbitMQ has no
such check. Administrators are not checked: they may give themselves any right.
"""
from gomq_py.broker.features.table import POLICY_KEYS
from gomq_py.broker.names import described
from gomq_py.broker.policies.parameters import DELETED, OPERATOR, ParameterError
from gomq_py.broker.policies.policy import EXCHANGE, POLICY
from gomq_py.observability.log import logger
from gomq_py.observability.quiet_log import QuietLog

QUIET = QuietLog(logger("broker"))
# {policy key that sends messages on: kind of the entity that its value names, or ""}
HANDS_ON = {key: row.hands_on_to for key, row in POLICY_KEYS.items() if row.hands_on_to is not None}
READ, WRITE = "read", "write"  # in auth.permissions
ADMINISTRATOR, POLICYMAKER = "administrator", "policymaker"
_NONE: frozenset[str] = frozenset()
_KEPT = object()


class SetterRights:
    """The rights of the user who set the vhost's policy ``name``; if given, those of the user ``by``."""

    __slots__ = ("_users", "_vhost", "_name", "_by")

    def __init__(self, users, vhost, name, by=_KEPT):
        self._users = users
        self._vhost = vhost
        self._name = name
        self._by = by

    @property
    def by(self):
        """The name of the policy's setter, OPERATOR, or None (see Parameters.set)."""
        return self._vhost.set_by.get((POLICY, self._name)) if self._by is _KEPT else self._by

    def left_out(self, definition, kind, name):
        """Return the frozenset of a definition's keys that the setter's rights exclude for an entity: the
        queue or exchange ``name``. ``kind``: EXCHANGE or a queue type.
        """
        if not HANDS_ON.keys() & definition.keys() or (user := limited(self._users, self.by)) is None:
            return _NONE
        may_take = _reads_all(user, self._vhost, kind, name)
        return frozenset(
            key for key in HANDS_ON.keys() & definition.keys()
            if not (may_take and _may_fill(user, self._vhost, definition, key)))

    def tell(self, left_out, kind, name):
        """Log that the policy keys ``left_out`` have no effect on the queue or exchange ``name``."""
        QUIET.warning(
            ("rights", self._vhost.name, self._name),
            "policy %r: %s has no effect on %s: user %r, who set the policy, may not read that, or not "
            "write to what the policy names", self._name, ", ".join(sorted(left_out)),
            described(kind, name, self._vhost.name), self.by)


def check_hands_on(users, vhost, definition, by):
    """Raise ParameterError if a policy sends messages to an entity that user ``by`` may not write to."""
    user = limited(users, by)
    for key in HANDS_ON.keys() & definition.keys() if user is not None else ():
        if not _may_fill(user, vhost, definition, key):
            what = described(HANDS_ON[key], definition[key] or "amq.default", vhost.name)
            raise ParameterError(
                f"{key}: access to {what} refused for user '{by}': it takes the right to write")


def limited(users, by):
    """Return the User ``by``, whose rights limit a policy; _Nobody for a deleted user; None for no limit."""
    if by in (None, OPERATOR):
        return None
    user = None if by == DELETED else users.get(by)
    if user is None:
        return _Nobody
    return None if user.has_tag(ADMINISTRATOR) else user


class _Nobody:
    """Stand-in for a deleted user, who has no rights."""

    tags = ()


def _allows(user, vhost, verb, name):
    permission = user.permission(vhost.name) if POLICYMAKER in user.tags else None
    return permission is not None and permission.allows(verb, name)


def _reads_all(user, vhost, kind, name):
    return _allows(user, vhost, READ, name) and (
        kind != EXCHANGE or user.topic_permission(vhost.name, name) is None)


def _may_fill(user, vhost, definition, key):
    return not HANDS_ON[key] or _allows(user, vhost, WRITE, definition[key])
