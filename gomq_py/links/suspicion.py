"""Suspicion: which message may have ended the passages of a link, and whether it has ended enough of them.

Beside the link, which outlasts its passages. After an end that may be a message's fault messages go through
one at a time, until as many are settled as were on their way; the one at which a passage ends again is known
by its checksum (links.relay).

A destination without room, on its disk or in its queue, refuses messages of which none is at fault. Brokers
tell the one from the other late, or never: so what is refused is given up after a while only, not at all
while the broker says that it takes nothing, and ever more slowly where it takes none.
"""
import re
import time

from gomq_py.client.errors import ClosedError, is_distrust
from gomq_py.links.passage import Unsendable
from gomq_py.links.wire import Silent

# Met before a link was ever up these are final: no waiting mends a name, a password or a right.
FINAL_CODES = frozenset({402, 403, 404, 530})
# But for a queue that is there, and does not run: as we say it, and RabbitMQ.
AWAY = re.compile("closed after a fault|stopped by supervisor|failed to restart|down or inaccessible")
# A broker that closes a channel or connection with these may mean one message: too large, or malformed.
POISON_CODES = frozenset({311, 406, 501, 502, 503, 505, 540, 541})
# The same where each message has an exchange of its own, or a routing key to which one may not publish.
ACCESS_REFUSED, NOT_FOUND, TO_TOPIC = 403, 404, " to topic '"
# A broker that ends, or an operator who closes the connection: no message's fault.
CONNECTION_FORCED = 320
# So many passages in a row that end at the target without a word, and have moved nothing, may mean one
# message: some brokers, and proxies in front of them, close the socket where others say what is wrong.
FRUITLESS_MOST = 2
# A broker's nack says nothing of the message. Where its disk is full it says so by connection.blocked, once
# it has looked: RabbitMQ looks every 10 s at least, gomq-py every 5 s.
NACKED_S = 10.0
# So many messages in a row are given up by the limit as it is. It doubles with each one more, up to so many
# refusals, one a second, until the destination takes a message: one that has no room for hours costs tens of
# messages, and messages that are at fault do not stop the link for ever.
GIVEN_UP_FREELY, DOUBLED_MOST = 3, 600
# Large messages that were refused and are remembered: more than a source sends at once by default.
LARGE_MOST = 4096
# What a broker says that ends a connection since it cannot write: 541 with the words of its system.
INTERNAL_ERROR, OF_DISK = 541, re.compile(r"enospc|no space left|\bdisk\b|quota exceeded", re.IGNORECASE)


def is_final(error, codes):
    """Whether no waiting mends it: a URI, one of these reply codes, a certificate of somebody else."""
    return (
        isinstance(error, ValueError) and not isinstance(error, OSError)
        or isinstance(error, ClosedError) and error.reply_code in codes and not AWAY.search(error.reply_text)
        or is_distrust(error)
    )


class Suspicion:
    """Of one link. ``limit``: how many passages a message may end, or how often it may be refused, before it
    is given up: rejected at its source. 0: any number.

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
        self._given_up = 0  # messages in a row
        self._refused_s = None  # since when the target has refused messages and taken none
        self._large = {}  # {checksum: (how often it was refused, since when)}

    def forget(self):
        """Begin anew."""
        self.careful = 0
        self._given_up = 0
        self.has_no_room()

    def has_no_room(self):
        """The target says that it takes nothing, or takes messages again: no message's fault until now."""
        self._suspect = None
        self._refused_s = None
        self._large.clear()

    def refused(self):
        """The target has refused messages."""
        if self._refused_s is None:
            self._refused_s = time.monotonic()

    def is_limit(self, refusals):
        """Whether a message that was refused so often is to be given up."""
        return self._is_limit(refusals, self._refused_s)

    def large_refused(self, checksum):
        """The target has refused a message that links do not keep. Whether it is to be given up: others pass
        it before it comes again, so that what is counted is its own.
        """
        refusals, since_s = self._large.pop(checksum, (0, time.monotonic()))
        refusals += 1
        if self._is_limit(refusals, since_s):
            return True
        self._large[checksum] = refusals, since_s
        if len(self._large) > LARGE_MOST:
            del self._large[next(iter(self._large))]
        return False

    def large_settled(self, checksum):
        """Such a message is taken, or rejected at its source."""
        self._large.pop(checksum, None)

    def _is_limit(self, refusals, since_s):
        if not self._target.has_lane or not self._limit:  # web servers refuse what is a message's fault
            return 0 < self._limit <= refusals
        limit, more = self._limit, self._given_up - GIVEN_UP_FREELY + 1
        if more > 0:
            limit = max(limit, min(limit << min(more, DOUBLED_MOST), DOUBLED_MOST))
        return (
            refusals >= limit and since_s is not None and time.monotonic() - since_s >= NACKED_S
        )

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
            self._given_up += 1
        else:
            self._fruitless = 0
            if run.is_sent:
                self._given_up = 0
                self._refused_s = None
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
        if code == INTERNAL_ERROR and OF_DISK.search(error.reply_text):
            return False
        if code in FINAL_CODES:
            return code == NOT_FOUND and self._target.exchange is None or code == ACCESS_REFUSED and (
                self._target.exchange is None or TO_TOPIC in error.reply_text)
        if self._limit and unsettled:
            self._fruitless += 1
        return alone is not None or code in POISON_CODES or self._fruitless >= FRUITLESS_MOST
