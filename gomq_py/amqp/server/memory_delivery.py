"""Memory delivery: one large message on its way to a consumer, whose body is sent from where it was received.

Beside delivery, which makes it; a Source of net.output, as file_delivery is for bodies that lie in files.
There is no copy of the body: nobody writes to it any more, and its buffer is used for another one when this
has ended. Never yields.
"""
import os

from gomq_py.amqp.server.file_delivery import END, HEAD, SLICE_OCTETS
from gomq_py.amqp.wire.frames import FRAME_BODY, FRAME_OVERHEAD

# Parts of one call; the system takes 1024.
PARTS_MAX = 512
# What a consumer may take for a message before it, until the next one is stored instead: 2 ms for a mebibyte,
# which is about what it takes to write it and flush it.
OCTETS_PER_MS = 512 * 1024
WAITS_FOR = "consumers to take the message before"


class MemoryDelivery:
    """``lead``: the frames before the body, a view, at least one octet, that stays what it is for as long as
    somebody has its ``owner``. ``left``: octets that the socket has not taken.
    """

    __slots__ = ("left", "_owner", "_body", "_at", "_lead", "_part", "_channel", "_room")

    def __init__(self, owner, body, lead, channel, frame_max):
        self._owner = owner
        self._body = body
        self._at = 0  # where the next octet of the body lies
        self._channel = channel
        self._room = frame_max - FRAME_OVERHEAD
        # what is sent next, and octets of the body behind it
        self._lead, self._part = bytes(lead) + self._head(0), min(len(body), self._room)
        self.left = len(lead) + len(body) + FRAME_OVERHEAD * -(-len(body) // self._room)

    def send(self, send, fileno):
        """Give the socket what it takes of the next SLICE_OCTETS. Returns how much that was. Raises OSError.
        """
        before = self.left
        try:
            while self.left and before - self.left < SLICE_OCTETS:
                self._sent(os.writev(fileno, self._parts()))
        except BlockingIOError:
            pass
        return before - self.left

    def close(self):
        """Nothing more is sent: let go of the body."""
        self._owner = self._body = None

    def _parts(self):
        """The next octets as they are to be sent: SLICE_OCTETS, a frame more, or what is left."""
        lead, part, at = self._lead, self._part, self._at
        parts, count = [lead], 0
        while part and count < SLICE_OCTETS and len(parts) < PARTS_MAX:
            parts.append(self._body[at:at + part])
            at += part
            count += part
            lead, part = self._behind(at)
            parts.append(lead)
        return parts

    def _sent(self, count):
        """The socket has taken so many octets."""
        self.left -= count
        while count:
            here = min(count, len(self._lead))
            self._lead = self._lead[here:]
            count -= here
            here = min(count, self._part)
            self._part -= here
            self._at += here
            count -= here
            if not self._lead and not self._part and (count or self.left):
                self._lead, self._part = self._behind(self._at)

    def _behind(self, at):
        """What is sent behind the part of the body that ends here: the end of its frame and the head of the
        next one, and that one's octets of the body.
        """
        return END + self._head(at), min(len(self._body) - at, self._room)

    def _head(self, at):
        part = min(len(self._body) - at, self._room)
        return HEAD.pack(FRAME_BODY, self._channel, part) if part else b""


class Turn:
    """Waits until ``output`` has sent what it has, but no longer than ``most_ms``: a Message's ``lacking``.
    """

    __slots__ = ("_output", "_timers", "_most_ms", "_timer", "_callback")

    waits_for = WAITS_FOR

    def __init__(self, output, timers, most_ms):
        self._output = output
        self._timers = timers
        self._most_ms = most_ms
        self._timer = self._callback = None

    def __call__(self, callback):
        """Call ``callback(None)`` then, once."""
        self._callback = callback
        self._timer = self._timers.start(self._most_ms, self._come)
        self._output.call_when_drained(self._come)

    def _come(self):
        callback, self._callback = self._callback, None
        if callback is not None:
            self._timer.stop()
            self._output.not_when_drained(self._come)  # a client that reads nothing would collect them
            callback(None)
