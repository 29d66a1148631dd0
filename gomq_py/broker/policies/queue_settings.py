"""Queue settings: the limits of a queue, from its arguments and the policies that apply to it. Immutable.

A vhost makes QueueSettings when a queue is declared and when policies change, and passes them to the queue's
``configure``. Each feature defines how its argument and policy are merged (features.merging); policy and
operator policy have been merged before (broker.policies.policy).
"""
from gomq_py.broker.features.length import DROP_HEAD
from gomq_py.broker.features.table import SETTINGS


class QueueSettings:
    """The limits of a queue, named as in SETTINGS; None: unset. Times in ms; ``max_bytes`` counts bodies."""

    __slots__ = tuple(row.setting for row in SETTINGS)

    def __init__(self, arguments=None, policy=None):
        """Merge a queue's arguments with ``policy``, the merged definition of its policies."""
        arguments, policy = arguments or {}, policy or {}
        for row in SETTINGS:
            setattr(self, row.setting, row.merge(row, arguments, policy))

    def __eq__(self, other):
        return (
            isinstance(other, QueueSettings)
            and all(getattr(self, name) == getattr(other, name) for name in self.__slots__)
        )

    def __hash__(self):
        return hash(tuple(getattr(self, name) for name in self.__slots__))

    def __repr__(self):
        given = ", ".join(
            f"{name}={getattr(self, name)!r}"
            for name in self.__slots__ if getattr(self, name) not in (None, DROP_HEAD)
        )
        return f"<QueueSettings {given or 'plain'}>"

    @property
    def is_plain(self):
        return self == PLAIN

    @property
    def needs_limits(self):
        """True if a setting is set that the queue itself applies (``by_queue`` of the rows in SETTINGS)."""
        return any(
            getattr(self, row.setting) != getattr(PLAIN, row.setting) for row in SETTINGS if row.by_queue
        )


PLAIN = QueueSettings()
