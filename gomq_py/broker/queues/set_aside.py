"""Set aside: messages that cannot go where they should, so that the others can: a dead letter whose headers
cannot be read.

Beside queues and delayed exchanges, each of which has at most one of these. A message that is set aside stays
where it is, unacknowledged; it is ready again, and tried again, when its queue is next opened, as a rule at a
restart. Operators see how many there are and why.
"""
from gomq_py.errors import Refused
from gomq_py.observability.log import logger
from gomq_py.observability.quiet_log import QuietLog
from gomq_py.storage import locations

LOG = logger("queue")

# Different reasons that are counted each by itself, and characters of each: publishers bring them about.
REASONS = 20
REASON_LENGTH = 200
OTHER = "other reasons"


class SetAside:
    """Of one ``owner``, which the log names so: ``count`` messages, and ``reasons``: {reason: how many of
    them}.
    """

    __slots__ = ("count", "reasons", "_owner", "_log")

    def __init__(self, owner):
        self.count = 0
        self.reasons = {}
        self._owner = owner
        self._log = QuietLog(LOG)

    def add(self, location, error, doing):
        """The unacked message at ``location`` (storage.stores.message_store) stays: ``error`` was raised
        while ``doing``.
        """
        reason = f"{doing}: {described(error)}"[:REASON_LENGTH]
        if reason not in self.reasons and len(self.reasons) >= REASONS:
            reason = OTHER
        self.count += 1
        self.reasons[reason] = self.reasons.get(reason, 0) + 1
        self._log.error(
            None, "%s: the message in segment %d at octet %d is set aside until the next restart: %s",
            self._owner,
            locations.number_of(location), locations.position_of(location), reason)


def described(error):
    """What to tell of an error that somebody's message has brought about."""
    if isinstance(error, (Refused, ValueError, OSError)) and str(error):
        return str(error)
    return f"{type(error).__name__}: {error}"
