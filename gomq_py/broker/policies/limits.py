"""Limits of a vhost's queues and connections, and of a user's connections and channels over all vhosts.

Names, meanings and error texts are RabbitMQ's.
"""
from gomq_py.broker.policies.parameters import Component, ParameterError
from gomq_py.broker.values import is_integer

COMPONENT, NAME = "vhost-limits", "limits"
MAX_CONNECTIONS, MAX_QUEUES, MAX_CHANNELS = "max-connections", "max-queues", "max-channels"
VHOST_LIMITS, USER_LIMITS = (MAX_CONNECTIONS, MAX_QUEUES), (MAX_CONNECTIONS, MAX_CHANNELS)


class LimitsComponent(Component):
    """Handler of the parameter ``limits`` of component ``vhost-limits``: applies it to ``vhost.limits``, a
    dict {"max-queues": n, ...}. Negative values mean no limit and are left out there.
    """

    administrators_only = True

    def check(self, vhost, name, value):
        if value != []:  # what RabbitMQ leaves in its exports when the last limit was cleared
            check_vhost_limits(value)

    def changed(self, vhost, name, value):
        vhost.limits = {key: limit for key, limit in dict(value).items() if limit >= 0}

    def cleared(self, vhost, name):
        vhost.limits = {}


def check_vhost_limits(limits):
    """Raise ParameterError unless ``limits`` is a valid {name: integer} of a vhost's limits."""
    if not isinstance(limits, dict):
        raise ParameterError("limits should be an object")
    for key, limit in limits.items():
        if key not in VHOST_LIMITS:
            raise ParameterError(f"{key} is not a recognised limit")
        if not is_integer(limit):
            raise ParameterError(f"{key} should be a number, actually was {limit!r}")


class UserLimitError(ValueError):
    """A user's limit is not acceptable. The exception's text is for the user who sets it."""


class UserLimits:
    """The limits of each user's connections and channels, stored until the user is deleted. A negative value
    means no limit, as in RabbitMQ; it is stored and shown.
    """

    def __init__(self, users):
        self._users = users

    def get(self, user):
        """Return one user's limits: {name: value}. Raises KeyError for an unknown user."""
        return dict(self._known(user).limits)

    def all(self):
        """Return the limits of all users who have any: {user's name: {name: value}}."""
        return {user.name: dict(user.limits) for user in self._users if user.limits}

    def set(self, user, name, value):
        """Set one limit of a user. Open connections and channels stay open, even if they exceed it. Raises
        UserLimitError, OSError, and KeyError for an unknown user.
        """
        limits = self.get(user)
        check(name, value)
        self._users.set_limits(user, {**limits, name: value})

    def replace(self, user, limits):
        """Replace all limits of a user. Raises UserLimitError, OSError, KeyError for an unknown user."""
        self._known(user)
        check_limits(limits)
        self._users.set_limits(user, limits)

    def clear(self, user, name):
        """Remove a limit. Returns False if there was none. Raises OSError, KeyError for an unknown user."""
        limits = self.get(user)
        if limits.pop(name, None) is None:
            return False
        self._users.set_limits(user, limits)
        return True

    def limit(self, user, name):
        """Return the limit ``name`` of the User ``user``; None if there is no limit."""
        value = user.limits.get(name, -1)
        return value if value >= 0 else None

    def _known(self, name):
        user = self._users.get(name)
        if user is None:
            raise KeyError(name)
        return user


def check_limits(limits):
    """Raise UserLimitError unless ``limits`` is a valid {name: integer} of a user's limits."""
    if not isinstance(limits, dict):
        raise UserLimitError("limits of a user should be an object")
    for name, value in limits.items():
        check(name, value)


def check(name, value):
    """Raise UserLimitError if users have no limit ``name``, or the value is not an integer."""
    if name not in USER_LIMITS:
        raise UserLimitError(f"{name} is not a recognised limit of a user")
    if not is_integer(value):
        raise UserLimitError(f"{name} should be a number, actually was {value!r}")
