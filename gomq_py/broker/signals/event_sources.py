"""Makes events of alarms and of changes of users and parameters, with RabbitMQ's routing keys and headers.

Alarms, Users and Parameters do not know about events: they call the objects of this module as callbacks.
"""
from gomq_py.broker.policies.policy import OPERATOR_POLICY, POLICY
from gomq_py.broker.policies.limits import COMPONENT as LIMITS


class AlarmEvents:
    """Callback that emits ``alarm.set`` for an alarm's reason, ``alarm.cleared`` for None."""

    def __init__(self, events):
        self._events = events
        self._reason = None

    def __call__(self, reason):
        before, self._reason = self._reason, reason
        self._events.emit("alarm.cleared" if reason is None else "alarm.set", _alarm, reason or before)


def _alarm(reason):
    return {"reason": reason or ""}


class UserEvents:
    """Callback: emits events about users. Call it with each record of the users' log before applying it."""

    def __init__(self, events, users):
        self._events = events
        self._users = users

    def __call__(self, record):
        name, op = record.get("user") or record["name"], record["op"]
        if op in _RIGHTS:
            key, fields = _RIGHTS[op]
            self._emit(key, {"user": name, **{field: record[field] for field in fields}})
        elif op == "user":
            self._user(name, record)
        elif op == "user-delete":
            self._emit("user.deleted", {"name": name})
        elif op == "limits":
            self._limits(name, record)

    def _emit(self, key, headers):
        self._events.emit(key, dict, headers)

    def _user(self, name, record):
        user = self._users.get(name)
        if user is None:
            self._emit("user.created", {"name": name})
        elif user.password_hash != record["hash"]:
            self._emit("user.password.changed" if record["hash"] else "user.password.cleared", {"name": name})
        if tuple(record["tags"]) != (() if user is None else user.tags):
            self._emit("user.tags.set", {"name": name, "tags": list(record["tags"])})
        for vhost in record.get("grants", ()):
            self._emit(
                "permission.created",
                {"user": name, "vhost": vhost, "configure": ".*", "write": ".*", "read": ".*"},
            )

    def _limits(self, name, record):
        self._emit(
            "user.limits.set" if record["limits"] else "user.limits.cleared",
            {"name": name, "limits": record["limits"]},
        )


# Kind of record about rights: (its event's key, fields of its headers).
_RIGHTS = {
    "permission": ("permission.created", ("vhost", "configure", "write", "read")),
    "permission-delete": ("permission.deleted", ("vhost",)),
    "topic-permission": ("topic.permission.created", ("vhost", "exchange", "write", "read")),
    "topic-permission-delete": ("topic.permission.deleted", ("vhost", "exchange")),
}


def _policy(headers, _component):
    return headers


class ParameterEvents:
    """Callback that emits an event about a changed parameter. ``value`` is None for a removed parameter.
    ``vhost`` is the vhost's name, or None for a parameter of the whole broker.
    """

    def __init__(self, events):
        self._events = events

    def __call__(self, vhost, component, name, value):
        done = "set" if value is not None else "cleared"
        if component in (POLICY, OPERATOR_POLICY):
            self._events.emit(
                f"policy.{done}", _policy, {**(value or {}), "name": name, "vhost": vhost}, component)
            return
        headers = {"name": name, "component": component, "value": value}
        self._emit(f"parameter.{done}", headers if vhost is None else {"vhost": vhost, **headers})
        if component == LIMITS:
            self._emit(
                f"vhost.limits.{done}",
                {**(value if isinstance(value, dict) else {}), "name": name, "vhost": vhost},
            )

    def _emit(self, key, headers):
        self._events.emit(key, dict, headers)
