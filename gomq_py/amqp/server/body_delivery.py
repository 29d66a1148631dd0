"""Body delivery: one large message on its way to a consumer, whose body is sent without a copy in memory: by
the system from the file that it lies in (FileDelivery), or from where it was received (MemoryDelivery).

Beside delivery, which makes it; a Source of net.output, which asks for the next octets when the socket takes
some. Never switches.
"""
import errno
import os
import socket
from struct import Struct

from gomq_py.amqp.wire.frames import FRAME_BODY, FRAME_END, FRAME_OVERHEAD

# Octets that one message sends before others have their turn.
SLICE_OCTETS = 1024 * 1024

# Errors of sendfile on a file system that does not support it.
NOT_SENT = frozenset({errno.EINVAL, errno.ENOSYS})

# Parts of one call; the system takes 1024.
PARTS_MAX = 512
# How long a message waits for a consumer that reads the one before it, until it is stored instead: 2 ms for a
# mebibyte, which is about the time to write and flush it.
OCTETS_PER_MS = 512 * 1024
WAITS_FOR = "consumers to take the message before"

HEAD = Struct(">BHI")
END = bytes((FRAME_END,))
# More octets follow at once: no packet for the seven of a head.
_MORE = getattr(socket, "MSG_MORE", 0)


class FileDelivery:
    """The system sends the pages of the file themselves, and a client that reads late sees what is in them by
    then: only of files that are never written to again, nor used for other messages (Store.body_file). A disk
    that has to read the pages again is waited for, as a look at the mapping would.

    ``lead``: the frames before the body, which is ``count`` octets from ``start`` on of the file of
    ``reading`` (storage.disk.open_file.Reading), which is closed with this. ``left``: octets that the socket
    has not taken.
    """

    __slots__ = ("left", "_reading", "_at", "_end", "_lead", "_part", "_channel", "_room")

    def __init__(self, reading, start, count, lead, channel, frame_max):
        self._reading = reading
        self._at = start
        self._end = start + count
        self._channel = channel
        self._room = frame_max - FRAME_OVERHEAD
        self._part = 0  # octets of this frame's body that are still to be sent
        self._lead = bytes(lead) + self._begin_frame()
        self.left = len(lead) + count + FRAME_OVERHEAD * -(-count // self._room)

    def send(self, send, fileno):
        """Give the socket what it takes of the next SLICE_OCTETS. Returns how much that was. Raises OSError.
        """
        before = self.left
        try:
            while self.left and before - self.left < SLICE_OCTETS:
                if self._lead:
                    sent = send(self._lead, _MORE if self._part else 0)
                    self._lead = self._lead[sent:]
                elif self._part:
                    sent = self._send_body(send, fileno)
                else:
                    self._lead = END + self._begin_frame()
                    continue
                self.left -= sent
        except BlockingIOError:
            pass
        return before - self.left

    def close(self):
        """Nothing more is sent: let go of the file."""
        self._reading.close()

    def _send_body(self, send, fileno):
        count = min(self._part, SLICE_OCTETS)  # while the client reads, one call would send all of it
        try:
            sent = os.sendfile(fileno, self._reading.fd, self._at, count)
        except OSError as error:
            if error.errno not in NOT_SENT:
                raise
            octets = self._reading.file.read(self._at, self._at + count)
            sent = send(octets) if octets else 0
        if not sent:
            raise OSError(errno.EIO, f"the file ends at {self._at}, in a message", self._reading.file.path)
        self._at += sent
        self._part -= sent
        return sent

    def _begin_frame(self):
        """The head of the next body frame; nothing where there is none."""
        self._part = min(self._end - self._at, self._room)
        return HEAD.pack(FRAME_BODY, self._channel, self._part) if self._part else b""


class MemoryDelivery:
    """``lead``: the frames before ``body``, a view of at least one octet that does not change while its
    ``owner`` is referenced; afterwards its buffer is used for another body. ``left``: octets that the socket
    has not taken.
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
        """Views of the next octets to be sent: SLICE_OCTETS and up to a frame, or the rest."""
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
        """Behind the part of the body that ends at ``at``: (end of its frame and head of the next one, body
        octets of the next one).
        """
        return END + self._head(at), min(len(self._body) - at, self._room)

    def _head(self, at):
        part = min(len(self._body) - at, self._room)
        return HEAD.pack(FRAME_BODY, self._channel, part) if part else b""


class Turn:
    """A Message's ``lacking``: waits until ``output`` has drained, at most ``most_ms``."""

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
