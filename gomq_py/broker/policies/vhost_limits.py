"""Limits of a vhost: queues and connections. Kept as parameter ``limits`` of component ``vhost-limits``."""
from gomq_py.broker.policies.parameters import Component, ParameterError
from gomq_py.broker.values import is_integer

COMPONENT, NAME = "vhost-limits", "limits"
MAX_CONNECTIONS, MAX_QUEUES = "max-connections", "max-queues"
KEYS = (MAX_CONNECTIONS, MAX_QUEUES)


class LimitsComponent(Component):
    """Keeps ``vhost.limits`` = {"max-queues": n}; negative values mean no limit and are left out."""

    administrators_only = True

    def check(self, vhost, name, value):
        if not isinstance(value, dict):
            raise ParameterError("limits should be an object")
        for key, limit in value.items():
            if key not in KEYS:
                raise ParameterError(f"{key} is not a recognised limit")
            if not is_integer(limit):
                raise ParameterError(f"{key} should be a number, actually was {limit!r}")

    def changed(self, vhost, name, value):
        vhost.limits = {key: limit for key, limit in value.items() if limit >= 0}

    def cleared(self, vhost, name):
        vhost.limits = {}
