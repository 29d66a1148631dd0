"""Session outlet: the target of a transfer that takes messages one by one and says of each whether it is
safe: a webhook.

What is to be sent waits as the frames that the relay wrote. A greenlet puts messages together and gives them
to the session, which may wait as long as it likes; nothing else here does.
"""
from collections import deque

from gevent.event import Event

from gomq_py.amqp.wire.frames import FrameReader, decode_header
from gomq_py.amqp.wire.methods import decode_method
from gomq_py.client.delivery import Message
from gomq_py.links.ends import Refused
from gomq_py.links.outlet import FULL_OCTETS, Outlet

METHOD, HEADER = 1, 2


class SessionOutlet(Outlet):
    """``session.send(message)`` returns once the message is safe, or raises Refused, which counts for this
    message, or OSError, which ends the passage. ``session.close()`` ends a ``send`` under way.
    """

    def __init__(self, session, hub):
        super().__init__()
        self._session = session
        self._hub = hub
        self._passage = None
        self._greenlet = None
        self._waiting_octets = 0
        self._runs = deque()
        self._wakened = Event()
        self._reader = FrameReader(0)
        self._refused_with = "the destination refuses messages"

    def start(self, passage):
        self._passage = passage
        self._greenlet = self._hub.spawn(self._work)

    def can_take(self):
        """Not while enough waits."""
        return Outlet.can_take(self) and self._waiting_octets < FULL_OCTETS

    def trouble(self):
        """Why a message is tried again, while it is; else an empty text."""
        return self._session.trouble or ""

    def send(self, item, message):
        """Have the messages of a run sent."""
        item.first_number = self.confirms.following
        if not item.is_sent:
            return None
        if item.count:
            self.confirms.published(item.count)
        if item.octets:
            self._runs.append(item.octets)
            self._waiting_octets += len(item.octets)
            if not item.is_whole:
                item.octets = None
            self._wakened.set()
        return None

    def slice_over(self):
        """Tell those for whom it is decided."""
        self.settle()

    def refusal(self):
        """What the session says."""
        return Refused(self._refused_with)

    def unwatch(self):
        """Send nothing any more."""
        self._passage = None
        self._session.close()
        self._wakened.set()

    def part(self):
        """There is nobody to take leave of."""
        self.abort()

    def abort(self):
        """End the session, and what sends by it."""
        self.unwatch()
        self._runs.clear()

    # The rest is private; the greenlet.

    def _work(self):
        number = 0
        while self._passage is not None:
            message = self._next()
            if message is None:
                return
            number += 1
            is_refused = False
            try:
                self._session.send(message)
            except Refused as refused:
                is_refused, self._refused_with = True, str(refused)
            except OSError as error:
                if self._passage is not None:
                    self._passage.fail("destination", error)
                return
            if self._passage is not None:
                self._passage.target_turn(lambda: self._settled(number, is_refused))  # noqa: B023

    def _settled(self, number, is_refused):
        self.confirms.answered(number, is_refused)
        self.settle()

    def _next(self):
        """The next message, put together of its frames; None at the end. May switch."""
        method = properties = None
        size, body = 0, []
        while (frame := self._next_frame()) is not None:
            kind, _, payload = frame
            if kind == METHOD:
                method = decode_method(payload)
            elif kind == HEADER:
                _, size, properties = decode_header(payload)
            else:
                body.append(payload)
                size -= len(payload)
            if kind != METHOD and not size:
                return Message(method.exchange, method.routing_key, properties, b"".join(body))
        return None

    def _next_frame(self):
        """The next frame; None at the end. May switch."""
        while self._passage is not None:
            frame = self._reader.next_frame()
            if frame is not None:
                return frame
            if self._runs:
                run = self._runs.popleft()
                self._waiting_octets -= len(run)
                self._reader.feed(run)
                if self._passage is not None:
                    self._passage.target_turn(self.settle)  # there is room again
                continue
            self._wakened.clear()
            self._wakened.wait()
        return None
