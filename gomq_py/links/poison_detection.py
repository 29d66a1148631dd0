"""PoisonDetection: finds a message that makes a link's sessions fail, and decides when the link rejects it.

A link has one PoisonDetection for all its sessions. If a message may have ended a session, the next session
sends messages one at a time, until as many are settled as were in flight. If that session ends as well, the
message that was in flight is suspected. It is recognized by its checksum (links.relay) when it is delivered
again.

A target may also refuse a message because its disk or queue is full, which brokers report late or never. So a
refused message is rejected only under three conditions: the broker is not asking for a pause; NACKED_S have
passed since the first refusal after the last accepted message; the message's refusals have reached the limit.
The limit grows with each further message rejected in a row.
"""
import re
import time

from gomq_py.client.errors import ClosedError, is_distrust
from gomq_py.links.session import Unsendable
from gomq_py.links.wire import Silent

# Final before a link was ever up: retrying cannot mend a wrong name, password or right.
FINAL_CODES = frozenset({402, 403, 404, 530})
# Texts of a 404 that is not final: the queue exists but is not running; ours and RabbitMQ's.
AWAY = re.compile("closed after a fault|stopped by supervisor|failed to restart|down or inaccessible")
# A message may be at fault (too large, or malformed) if a broker closes with these codes.
POISON_CODES = frozenset({311, 406, 501, 502, 503, 505, 540, 541})
# The same, if each message has its own exchange, or a routing key without write permission.
ACCESS_REFUSED, NOT_FOUND, TO_TOPIC = 403, 404, " to topic '"
# The broker stops or an operator closes the connection: no message is at fault.
CONNECTION_FORCED = 320
# Sessions in a row that end at the target without an error and without moving anything, before a message is
# suspected: some brokers and proxies close the socket instead of reporting a fault.
FRUITLESS_MOST = 2
# A nack gives no reason. A broker with a full disk reports that by connection.blocked after its next check:
# RabbitMQ checks at least every 10 s, gomq-py every 5 s.
NACKED_S = 10.0
# GIVEN_UP_FREELY messages in a row are given up at the plain limit. Each further one doubles it, up to
# DOUBLED_MOST refusals, one per second, until the destination takes a message: so a destination that is full
# for hours costs tens of messages, and faulty messages do not stop the link for ever.
GIVEN_UP_FREELY, DOUBLED_MOST = 3, 600
# Most refused large messages remembered: more than a source sends at once by default.
LARGE_MOST = 4096
# INTERNAL_ERROR text of a peer whose disk failed.
INTERNAL_ERROR, OF_DISK = 541, re.compile(r"enospc|no space left|\bdisk\b|quota exceeded", re.IGNORECASE)


def is_final(error, codes):
    """True if retrying cannot help: a bad URI, a reply code in ``codes``, a certificate refused for good."""
    return (
        isinstance(error, ValueError) and not isinstance(error, OSError)
        or isinstance(error, ClosedError) and error.reply_code in codes and not AWAY.search(error.reply_text)
        or is_distrust(error)
    )


class PoisonDetection:
    """Decides which messages of a link to reject at the source.

        limit        number of ended sessions, or of refusals, after which a message is rejected; 0: no limit
        careful      number of messages that the next session sends one at a time
        alone        set by a session at its end: the checksum of a message sent alone, or None
        unsettled    set by a session at its end: the number of messages in flight
    """

    def __init__(self, target, limit):
        self.careful = 0
        self.alone = None
        self.unsettled = 0
        self._target = target
        self._limit = limit
        self._suspect = None  # (checksum, sessions that it ended)
        self._fruitless = 0  # sessions in a row that ended at the target without moving anything
        self._given_up = 0  # messages given up in a row
        self._refused_s = None  # time of the first refusal since the target last took a message
        self._large = {}  # {checksum: (refusals, time of the first)}

    def forget(self):
        self.careful = 0
        self._given_up = 0
        self.has_no_room()

    def has_no_room(self):
        """Clear suspicions and refusals, because the target has begun or ended a pause: it may lack room."""
        self._suspect = None
        self._refused_s = None
        self._large.clear()

    def refused(self):
        if self._refused_s is None:
            self._refused_s = time.monotonic()

    def is_limit(self, refusals):
        """True if a message that was refused this many times must be rejected at the source."""
        return self._is_limit(refusals, self._refused_s)

    def large_refused(self, checksum):
        """Count a refusal of a large message. Returns True if the message must be rejected at the source."""
        # The count is kept here, because the link keeps no copy of a large message, and sends other messages
        # before the source delivers it again.
        refusals, since_s = self._large.pop(checksum, (0, time.monotonic()))
        refusals += 1
        if self._is_limit(refusals, since_s):
            return True
        self._large[checksum] = refusals, since_s
        if len(self._large) > LARGE_MOST:
            del self._large[next(iter(self._large))]
        return False

    def large_settled(self, checksum):
        """Forget the refusals of a large message that is settled at its source."""
        self._large.pop(checksum, None)

    def _is_limit(self, refusals, since_s):
        if not self._target.has_lane or not self._limit:  # web servers refuse only faulty messages
            return 0 < self._limit <= refusals
        limit, more = self._limit, self._given_up - GIVEN_UP_FREELY + 1
        if more > 0:
            limit = max(limit, min(limit << min(more, DOUBLED_MOST), DOUBLED_MOST))
        return (
            refusals >= limit and since_s is not None and time.monotonic() - since_s >= NACKED_S
        )

    def is_poison(self, checksum):
        """True if the message with this checksum has ended so many sessions that it must be rejected."""
        return (
            0 < self._limit and self._suspect is not None and self._suspect[0] == checksum
            and self._suspect[1] >= self._limit
        )

    def settled(self, batch):
        """Update suspicions and counts, because this LinkBatch is settled at its source."""
        if batch.is_rejected:
            self._suspect = None
            self._given_up += 1
        else:
            self._fruitless = 0
            if batch.is_sent:
                self._given_up = 0
                self._refused_s = None
        self.careful = max(0, self.careful - batch.count)

    def passed(self, checksum):
        """Drop the suspicion of a message that the target has accepted."""
        if self._suspect is not None and self._suspect[0] == checksum:
            self._suspect = None

    def failed(self, error, is_at_target):
        """Record that a session has failed with ``error``, and decide whether a message in flight may be the
        cause. If so, the next session sends messages one at a time. Uses and clears ``alone`` and
        ``unsettled``.
        """
        alone, self.alone = self.alone, None
        unsettled, self.unsettled = self.unsettled, 0
        if is_at_target and self._may_be_of_message(error, alone, unsettled):
            if alone is not None:
                count = self._suspect[1] if self._suspect and self._suspect[0] == alone else 0
                self._suspect = alone, count + 1
            self.careful = max(self.careful, unsettled, 1)

    def _may_be_of_message(self, error, alone, unsettled):
        """True if a message in flight may have caused the error."""
        code = getattr(error, "reply_code", 0)
        if isinstance(error, Unsendable):
            return True
        if not self._target.has_lane or isinstance(error, Silent) or code == CONNECTION_FORCED:
            return False  # web servers refuse only faulty messages
        if code == INTERNAL_ERROR and OF_DISK.search(error.reply_text):
            return False
        if code in FINAL_CODES:
            return code == NOT_FOUND and self._target.exchange is None or code == ACCESS_REFUSED and (
                self._target.exchange is None or TO_TOPIC in error.reply_text)
        if self._limit and unsettled:
            self._fruitless += 1
        return alone is not None or code in POISON_CODES or self._fruitless >= FRUITLESS_MOST
