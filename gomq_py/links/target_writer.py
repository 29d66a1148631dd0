"""Target writer: sends a transfer's messages to the target, and reports when they are safe.

A WireTargetWriter publishes to another broker. A message is safe once the broker confirms it or, in other
acknowledgement modes, once it is written to the socket. Webhooks have their own writer (links.webhook).
"""
import time
from typing import Any

from gomq_py.broker.transfer.engine import Target
from gomq_py.links.confirms import Confirms
from gomq_py.links.ends import CLOSED, RefusedByTarget
from gomq_py.links.wire import READ_OCTETS, Wire

# Output above this size is written at once, otherwise at the end of the slice.
FLUSH_OCTETS = 64 * 1024
# With so much unwritten output, no more is taken from the source.
FULL_OCTETS = 256 * 1024


class TargetWriter(Target):
    """Sends messages to a link's target.

    ``channel``: number of the channel in sent frames. ``frame_max``: the frames' largest size, 0: no limit.
    ``is_blocked``: the target has asked for a pause. ``refused``: numbers of refused publishes, a set;
    the reader removes the numbers.
    """

    channel = 1
    frame_max = 0

    def __init__(self):
        self.confirms = Confirms(self.channel, self.frame_max)
        self.refused = set()
        self.is_blocked = False
        self._session: Any = CLOSED
        self.is_flowing = True  # False after the broker's channel.flow
        self._seen_low, self._seen_s = 1, time.monotonic()
        self._waiting = []  # (mark, callback); few
        self._last_mark = 0
        self._refusal = None
        self._is_answering = False

    def start(self, session):
        """Begin to report to ``session``, a LinkSession, by its ``target_turn`` and ``fail``."""
        raise NotImplementedError

    def is_held(self):
        """True if the target has asked for a pause."""
        return self.is_blocked or not self.is_flowing

    def can_take(self):
        """True if more messages may be sent to the target now."""
        return not self.is_held()

    def unconfirmed(self):
        """Return the number of publishes that are neither confirmed nor refused."""
        return int(self.confirms.following - self.confirms.low)

    def stalled_s(self):
        """Return the seconds since a call of this method last saw a new confirm; 0 while no message awaits a
        confirm, or the target wants a pause.
        """
        now = time.monotonic()
        if self.confirms.low != self._seen_low or not self.unconfirmed() or self.is_held():
            self._seen_low, self._seen_s = self.confirms.low, now
        return now - self._seen_s

    def tick(self):
        """Send a due heartbeat. Returns the seconds until the next call, or None without heartbeats. Raises
        ClientError if the target was silent for too long.
        """
        return None

    def unwatch(self):
        """Stop reading from the target."""

    def part(self):
        """Close the connection by a handshake. May switch greenlets."""

    def abort(self):
        """Close the connection without a handshake, and drop waiting callbacks. May be called again."""
        self._waiting.clear()
        self._session = CLOSED

    def when_safe(self, callback):
        """Call ``callback(None)`` once all sent messages are safe, ``callback(error)`` if any is refused."""
        self._waiting.append((self.sent(), callback))
        self.answer_waiting()

    def answer_waiting(self):
        """Call the callbacks of ``when_safe`` that are due. No effect within such a callback."""
        if self._is_answering:
            return
        self._is_answering = True
        try:
            waiting = self._waiting
            while waiting and waiting[0][0] <= self.reached():
                mark, callback = waiting.pop(0)
                callback(self._verdict(mark))
        finally:
            self._is_answering = False

    def sent(self):
        """Return the last sent message's number. It is settled once ``reached`` returns this or more."""
        return self.confirms.following - 1

    def reached(self):
        """Return the number up to which all messages are safe or refused."""
        return self.confirms.low - 1

    def _verdict(self, mark):
        """Move refused numbers up to ``mark`` to ``refused``. Returns an error for them; None without any."""
        # A second call with the same mark after a refusal returns the same error, so that a pause follows
        # before refused messages are sent again.
        numbers = self.confirms.refused
        is_asking, self._last_mark = self._last_mark == mark, mark
        if numbers and numbers[0] <= mark:
            self.refused.update(number for number in numbers if number <= mark)
            self.confirms.refused = [number for number in numbers if number > mark]
            self._refusal = self.refusal(numbers[0])
            return self._refusal
        if is_asking:
            refusal, self._refusal = self._refusal, None
            return refusal
        return None

    def refusal(self, number):
        """Return the error to report for refused publishes. ``number``: the first of them."""
        return RefusedByTarget("the broker refuses messages (basic.nack)")


class WireTargetWriter(TargetWriter):
    """Publishes to a broker. ``is_confirmed``: in confirm mode. ``queue``: as in links.ends.TargetEnd."""

    def __init__(self, channel, buffers, is_confirmed, queue=None):
        connection = channel.connection
        self.channel, self.frame_max = channel.id, connection.frame_max
        super().__init__()
        self.is_blocked = connection.blocked_reason is not None
        self._buffers = buffers
        self._is_confirmed = is_confirmed
        self._queue = queue
        self._wire = Wire(connection, self._readable, self._broken, self._drained)
        self._tail = self._wire.ahead

    def start(self, session):
        self._session = session
        session.target_turn(lambda: self._walk(self._put_tail()))
        self._wire.watch()

    def can_take(self):
        """True if the target has not asked for a pause and the output is not full."""
        return TargetWriter.can_take(self) and self._wire.kept_octets < FULL_OCTETS

    def send(self, item, message):
        item.first_number = self.confirms.following
        if not item.is_sent:
            return None
        if self._is_confirmed and item.count:
            self.confirms.published(item.count)
        if item.octets:
            self._wire.write(item.octets)
            if not item.is_whole:
                item.octets = None
            if self._wire.kept_octets >= FLUSH_OCTETS:
                self._wire.send_queued()
        return None

    def slice_over(self):
        """Write the output of a slice of the transfer, and call callbacks that are due."""
        self._wire.send_queued()
        self.answer_waiting()

    def sent(self):
        """Return the number of the last publish or, without confirms, the count of all bytes ever queued."""
        return self.confirms.following - 1 if self._is_confirmed else self._wire.queued_octets

    def reached(self):
        """Return the number up to which publishes are settled or, without confirms, the count of bytes
        written.
        """
        wire = self._wire
        return self.confirms.low - 1 if self._is_confirmed else wire.queued_octets - wire.kept_octets

    def tick(self):
        return self._wire.tick(True)

    def refusal(self, number):
        if number > self.confirms.doubted:
            return TargetWriter.refusal(self, number)
        return RefusedByTarget(
            f"the broker returns messages (basic.return): queue '{self._queue}' is not there, or takes none "
            "from clients of AMQP; it is declared when the link connects anew")

    def unwatch(self):
        self._wire.unwatch()

    def part(self):
        self._wire.part()

    def abort(self):
        super().abort()
        self._wire.abort()

    # private from here on

    def _readable(self):
        self._session.target_turn(self._read)

    def _drained(self):
        self._session.target_turn(self.answer_waiting)

    def _broken(self, error):
        self._session.fail("destination", error)

    def _read(self):
        while True:
            kept = self._put_tail()
            room = self._buffers.input_view[kept:kept + READ_OCTETS]
            count = self._wire.receive_into(room)
            if count:
                self._walk(kept + count)
            if not (count and self._wire.has_more()):
                return

    def _put_tail(self):
        """Copy the incomplete frame of the last read to the shared buffer. Returns its length."""
        kept = len(self._tail)
        self._buffers.input_view[:kept] = self._tail
        return kept

    def _walk(self, end):
        """Parse ``end`` bytes of input: call due callbacks, pass methods except confirms to the session."""
        confirms = self.confirms
        while True:
            done = confirms.walk(self._buffers.input, end)
            self._tail = bytes(self._buffers.input_view[done:end])
            self.answer_waiting()
            if confirms.returned and not self._is_confirmed:
                self._session.fail("destination", self.refusal(0))
            if not confirms.others:
                return
            others, confirms.others = confirms.others, []
            self._session.target_methods(self._wire, others)
            end = self._put_tail()
