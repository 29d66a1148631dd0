"""Set aside: counts messages that cannot be handled, such as a dead letter with unreadable headers.

Such a message stays in its queue, unacked, and no longer blocks the messages behind it. It is tried again
when the queue is next opened, usually at a restart. Operators see the count and the reasons. A queue or
delayed exchange has at most one SetAside.
"""
from gomq_py.errors import Refused
from gomq_py.observability.log import logger
from gomq_py.observability.quiet_log import QuietLog
from gomq_py.storage.format import record

LOG = logger("queue")

# Most reasons counted separately, and most characters of one: publishers' messages cause them.
REASONS = 20
REASON_LENGTH = 200
OTHER = "other reasons"


class SetAside:
    """Counts messages that cannot be handled. ``owner``: a name for the log; ``reasons``: {reason: count}."""

    __slots__ = ("count", "reasons", "_owner", "_log")

    def __init__(self, owner):
        self.count = 0
        self.reasons = {}
        self._owner = owner
        self._log = QuietLog(LOG)

    def add(self, location, error, doing):
        """Count and log a message that stays unacked. ``error`` was raised while ``doing``, e.g. "moving"."""
        reason = f"{doing}: {described(error)}"[:REASON_LENGTH]
        if reason not in self.reasons and len(self.reasons) >= REASONS:
            reason = OTHER
        self.count += 1
        self.reasons[reason] = self.reasons.get(reason, 0) + 1
        self._log.error(
            None, "%s: the message in segment %d at byte %d is set aside until the next restart: %s",
            self._owner,
            record.number_of(location), record.position_of(location), reason)


def described(error):
    """Return the text of an error for the log. Unexpected errors also show the name of their type."""
    if isinstance(error, (Refused, ValueError, OSError)) and str(error):
        return str(error)
    return f"{type(error).__name__}: {error}"
