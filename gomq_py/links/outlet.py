"""Outlet: the target of a transfer, and when what was sent to it is safe.

A WireOutlet publishes to another broker over a wire. Safe is, by the link's mode: confirmed by that broker,
or written to its socket.

A HookOutlet posts messages one by one, each once the one before is settled: a confirm is a 2xx, a refusal any
other answer. What is posted runs in a greenlet of its own; everything else in callbacks, as of every outlet.
"""
import time
from typing import Any

from gomq_py.broker.transfer.engine import Target
from gomq_py.content.properties import Properties
from gomq_py.links.confirms import Confirms
from gomq_py.links.ends import GONE, Refused
from gomq_py.links.wire import READ_OCTETS, Wire
from gomq_py.observability.log import logger

LOG = logger("links")

# Written at once from so many octets on, otherwise at the end of the slice.
FLUSH_OCTETS = 64 * 1024
# Not written to the socket yet: nothing more is taken from the source.
FULL_OCTETS = 256 * 1024
DESTINATION = "destination"


class Outlet(Target):
    """``channel`` and ``frame_max`` are of the frames it is sent. ``is_blocked``: the target says that it
    takes nothing for now. ``refused``: numbers of publishes that it refused, for the inlet to take.
    """

    channel = 1
    frame_max = 0

    def __init__(self):
        self.confirms = Confirms(self.channel, self.frame_max)
        self.refused = set()
        self.is_blocked = False
        self._passage: Any = GONE
        self.is_flowing = True  # False after the broker's channel.flow
        self._seen_low, self._seen_s = 1, time.monotonic()
        self._waiting = []  # few: (mark, callback)
        self._last_mark = 0
        self._refusal = None
        self._is_settling = False

    def start(self, passage):
        """The passage begins. It is told of everything that happens by ``target_turn`` and ``fail``."""
        raise NotImplementedError

    def is_held(self):
        """Whether the target has said that it takes nothing for now."""
        return self.is_blocked or not self.is_flowing

    def can_take(self):
        """Whether more may be sent now."""
        return not self.is_held()

    def unconfirmed(self):
        """Publishes that are neither confirmed nor refused."""
        return int(self.confirms.following - self.confirms.low)

    def stalled_s(self):
        """For how long nothing was confirmed, as seen when this was asked before; 0: there is nothing to
        confirm, or the target says that it takes nothing.
        """
        now = time.monotonic()
        if self.confirms.low != self._seen_low or not self.unconfirmed() or self.is_held():
            self._seen_low, self._seen_s = self.confirms.low, now
        return now - self._seen_s

    def tick(self):
        """Seconds until a sign of life is due, which is sent where it is due now; None: never. Raises
        ClientError where the peer gives none.
        """
        return None

    def unwatch(self):
        """Hear nothing any more."""

    def part(self):
        """End in order. May switch."""

    def abort(self):
        """End at once: whoever waits is told nothing. Once is enough."""
        self._waiting.clear()
        self._passage = GONE

    def when_safe(self, callback):
        """Call ``callback(error or None)`` once all that was sent until now is safe, or was refused."""
        self._waiting.append((self.sent(), callback))
        self.settle()

    def settle(self):
        """Tell those for whom it is decided: one after the other, though the transfer asks anew when it is
        told, so that each finds the refusals of its own messages.
        """
        if self._is_settling:
            return
        self._is_settling = True
        try:
            waiting = self._waiting
            while waiting and waiting[0][0] <= self.reached():
                mark, callback = waiting.pop(0)
                callback(self._verdict(mark))
        finally:
            self._is_settling = False

    def sent(self):
        """A mark: all that was sent until now."""
        return self.confirms.following - 1

    def reached(self):
        """The mark up to which everything is safe, or was refused."""
        return self.confirms.low - 1

    def _verdict(self, mark):
        """What is the matter with what was sent up to ``mark``. Who asks whether all is well again hears of a
        refusal once more, so that there is a pause before what was refused is sent again.
        """
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
        """What the target says to messages that it refuses; ``number``: of the first."""
        return Refused("the broker refuses messages (basic.nack)")


class WireOutlet(Outlet):
    """Publishes on ``channel`` of the client. ``is_confirmed``: its broker confirms what is published.
    ``queue``: the one that gets everything, or None.
    """

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

    def start(self, passage):
        """Watch the socket."""
        self._passage = passage
        passage.target_turn(lambda: self._walk(self._put_tail()))
        self._wire.watch()

    def can_take(self):
        """Not while the socket takes nothing."""
        return Outlet.can_take(self) and self._wire.kept_octets < FULL_OCTETS

    def send(self, item, message):
        """Publish the messages of a run."""
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
                self._wire.flush()
        return None

    def slice_over(self):
        """Write what the slice has sent."""
        self._wire.flush()
        self.settle()

    def sent(self):
        """A number of a publish, or a count of octets."""
        return self.confirms.following - 1 if self._is_confirmed else self._wire.queued_octets

    def reached(self):
        """As sent()."""
        return self.confirms.low - 1 if self._is_confirmed else self._wire.written_octets()

    def tick(self):
        """Heartbeats."""
        return self._wire.tick(True)

    def refusal(self, number):
        """That of a nack, or of messages that came back."""
        if number > self.confirms.doubted:
            return Outlet.refusal(self, number)
        return Refused(
            f"the broker returns messages (basic.return): queue '{self._queue}' is not there, or takes none "
            "from clients of AMQP; it is declared when the link connects anew")

    def unwatch(self):
        self._wire.unwatch()

    def part(self):
        self._wire.part()

    def abort(self):
        super().abort()
        self._wire.abort()

    # The rest is private.

    def _readable(self):
        self._passage.target_turn(self._read)

    def _drained(self):
        self._passage.target_turn(self.settle)

    def _broken(self, error):
        self._passage.fail("destination", error)

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
        """What was read before and is no whole frame, at the beginning of the buffer."""
        kept = len(self._tail)
        self._buffers.input_view[:kept] = self._tail
        return kept

    def _walk(self, end):
        """Confirms settle what waits for them; other methods are dealt with in their order."""
        confirms = self.confirms
        while True:
            done = confirms.walk(self._buffers.input, end)
            self._tail = bytes(self._buffers.input_view[done:end])
            self.settle()
            if confirms.returned and not self._is_confirmed:
                self._passage.fail("destination", self.refusal(0))
            if not confirms.others:
                return
            others, confirms.others = confirms.others, []
            self._passage.target_methods(self._wire, others)
            end = self._put_tail()


class Posted:
    """A message to post, of the frames in which a relay writes it."""

    __slots__ = ("_raw_properties", "_properties", "body")

    def __init__(self, octets):
        view, at, parts = memoryview(octets), 0, []
        while at < len(view):
            end = at + 7 + int.from_bytes(view[at + 3:at + 7], "big")
            parts.append(view[at + 7:end])
            at = end + 1
        # the publish, the header (class, weight, size, properties), the body
        self._raw_properties = bytes(parts[1][12:])
        self._properties = None
        self.body = bytes(parts[2]) if len(parts) == 3 else b"".join(parts[2:])

    @property
    def properties(self):
        """Raises Malformed."""
        if self._properties is None:
            self._properties = Properties.decode(self._raw_properties)
        return self._properties


class HookOutlet(Outlet):
    """Posts through ``session`` (links.webhook.Session), which it owns. A transfer gives it runs of one
    message or of a piece of one.
    """

    def __init__(self, session, hub):
        super().__init__()
        self._session = session
        self._hub = hub
        self._pieces = []
        self._posting = None
        self._why = None
        session.on_trouble = self._troubled

    def start(self, passage):
        self._passage = passage

    def can_take(self):
        """Not while one is on its way."""
        return self._posting is None

    def send(self, item, message):
        """Post the message, once all of it is there."""
        item.first_number = self.confirms.following
        keep = self._passage.inlet.keep_octets
        if not item.is_sent:
            keep(-sum(map(len, self._pieces)))
            self._pieces.clear()
            return None
        self._pieces.append(item.octets)
        if not item.is_whole:
            keep(len(item.octets))
        if not item.count:
            item.octets = None
            return None
        octets = b"".join(self._pieces) if len(self._pieces) > 1 else item.octets
        self._pieces.clear()
        if not item.is_whole:
            # It is kept as a whole: sent again from here it keeps its place.
            item.octets, item.size, item.is_whole = octets, len(octets), True
        self.confirms.published(1)
        self._posting = self._hub.spawn(self._post, item.first_number, octets)
        self._posting.name = "webhook"
        return None

    def part(self):
        self.abort()

    def abort(self):
        """A message that is on its way may arrive, and comes again."""
        super().abort()
        self._pieces.clear()
        self._session.on_trouble = None
        self._session.close()
        if self._posting is not None:
            self._posting.kill(block=False)
            self._posting = None

    def refusal(self, number):
        return self._why or Outlet.refusal(self, number)

    # The rest is private.

    def _post(self, number, octets):
        """In a greenlet: post a message, then say what became of it."""
        is_taken, failure = True, None
        try:
            self._session.send(Posted(octets))
        except Refused as refused:
            is_taken, self._why = False, Refused(*refused.args)  # without its frames, which have us
        except OSError as error:
            failure = error
        except Exception as error:  # of this message: it counts towards the limit of refusals
            LOG.exception("a message cannot be posted: a fault of ours")
            is_taken, self._why = False, Refused(f"a fault of ours: {error}")
        self._posting = None
        if failure is not None:
            self._passage.fail(DESTINATION, failure)
            failure = None  # or it and this frame would hold each other
        else:
            self._passage.target_turn(lambda: self._answered(number, is_taken))

    def _answered(self, number, is_taken):
        self.confirms.answered(number, not is_taken)
        self.settle()

    def _troubled(self, text):
        self._passage.refused(0, text)
