"""Suspicion: which message may have ended the passages of a link, and whether it has ended enough of them.

Beside the link, which outlasts its passages. After an end that may be a message's fault messages go through
one at a time, until as many are settled as were on their way; the one at which a passage ends again is known
by its checksum (links.relay).
"""
from gomq_py.client.errors import ClosedError, is_distrust
from gomq_py.links.passage import Unsendable
from gomq_py.links.wire import Silent

# Met before a link was ever up these are final: no waiting mends a name, a password or a right.
FINAL_CODES = frozenset({402, 403, 404, 530})
# A broker that closes a channel or connection with these may mean one message: too large, or malformed.
POISON_CODES = frozenset({311, 406, 501, 502, 503, 505, 540, 541})
# The same where each message has an exchange of its own, or a routing key to which one may not publish.
ACCESS_REFUSED, NOT_FOUND, TO_TOPIC = 403, 404, " to topic '"
# A broker that ends, or an operator who closes the connection: no message's fault.
CONNECTION_FORCED = 320
# So many passages in a row that end at the target without a word, and have moved nothing, may mean one
# message: some brokers, and proxies in front of them, close the socket where others say what is wrong.
FRUITLESS_MOST = 2


def is_final(error, codes):
    """Whether no waiting mends it: a URI, one of these reply codes, a certificate of somebody else."""
    return (
        isinstance(error, ValueError) and not isinstance(error, OSError)
        or isinstance(error, ClosedError) and error.reply_code in codes
        or is_distrust(error)
    )


class Suspicion:
    """Of one link. ``limit``: how many passages a message may end before it is poison, 0: any number.

    ``careful``: so many messages go through one at a time. ``alone``, ``unsettled``: what a passage says at
    its end: checksum of the message that was on its way alone, or None, and how many were on their way.
    """

    def __init__(self, target, limit):
        self.careful = 0
        self.alone = None
        self.unsettled = 0
        self._target = target
        self._limit = limit
        self._suspect = None  # (checksum, passages that it ended)
        self._fruitless = 0  # passages in a row that ended at the target and have moved nothing

    def forget(self):
        """Begin anew."""
        self.careful = 0
        self._suspect = None

    def is_poison(self, checksum):
        """Whether this message has ended passages often enough to be rejected."""
        return (
            0 < self._limit and self._suspect is not None and self._suspect[0] == checksum
            and self._suspect[1] >= self._limit
        )

    def settled(self, run):
        """A run is settled at its source."""
        if run.is_rejected:
            self._suspect = None
        else:
            self._fruitless = 0
        self.careful = max(0, self.careful - run.count)

    def passed(self, checksum):
        """A message that went alone is taken."""
        if self._suspect is not None and self._suspect[0] == checksum:
            self._suspect = None

    def failed(self, error, is_at_target):
        """A passage has ended, or did not begin; what it said of its messages counts once."""
        alone, self.alone = self.alone, None
        unsettled, self.unsettled = self.unsettled, 0
        if is_at_target and self._may_be_of_message(error, alone, unsettled):
            if alone is not None:
                count = self._suspect[1] if self._suspect and self._suspect[0] == alone else 0
                self._suspect = alone, count + 1
            self.careful = max(self.careful, unsettled, 1)

    def _may_be_of_message(self, error, alone, unsettled):
        """Whether a message, which was on its way alone or is one of many, may have brought this about."""
        code = getattr(error, "reply_code", 0)
        if isinstance(error, Unsendable):
            return True
        if not self._target.has_lane or isinstance(error, Silent) or code == CONNECTION_FORCED:
            return False  # web servers refuse what is a message's fault
        if code in FINAL_CODES:
            return code == NOT_FOUND and self._target.exchange is None or code == ACCESS_REFUSED and (
                self._target.exchange is None or TO_TOPIC in error.reply_text)
        if self._limit and unsettled:
            self._fruitless += 1
        return alone is not None or code in POISON_CODES or self._fruitless >= FRUITLESS_MOST
