"""Body delivery: sends one large message to a consumer without copying the body.

FileDelivery has the system send the body from the message's file; MemoryDelivery sends the body from the
buffer that received it. The connection's output (net.output) calls send() whenever the socket can take more.
Never switches greenlets.
"""
import errno
import os
import socket
from struct import Struct

from gomq_py.amqp.wire.frames import FRAME_BODY, FRAME_END, FRAME_OVERHEAD

# Octets of one message that are sent before other clients get their turn.
SLICE_OCTETS = 1024 * 1024

# Errors of sendfile on a file system that does not support it.
NOT_SENT = frozenset({errno.EINVAL, errno.ENOSYS})

# Most parts of one sendmsg call; the system takes 1024.
PARTS_MAX = 512
# How long a message waits for a consumer that is still reading the message before: 2 ms for a mebibyte, about
# the time to write and flush it. Then the message is stored.
OCTETS_PER_MS = 512 * 1024

HEAD = Struct(">BHI")
END = bytes((FRAME_END,))
# More octets follow at once: no packet for the seven octets of a frame's head alone.
_MORE = getattr(socket, "MSG_MORE", 0)


class FileDelivery:
    """Sends one large message to a client, with the body straight from the message's file.

    The file must not be overwritten or reused until close() (Store.body_file).

        lead            the bytes of the method frame and the header frame
        reading         the open file (storage.disk.open_file.Reading); close() closes it
        start, count    offset and length of the body in the file
        left            bytes that the socket has not taken
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
        """Write about SLICE_OCTETS of the message to the socket ``fileno``. Returns the number of bytes
        written. Raises OSError. ``send(octets, flags)``: the socket's method.
        """
        # Blocks if the disk must be read.
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
        self._reading.close()

    def _send_body(self, send, fileno):
        count = min(self._part, SLICE_OCTETS)  # a reading client would get all in one call
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
        self._part = min(self._end - self._at, self._room)
        return HEAD.pack(FRAME_BODY, self._channel, self._part) if self._part else b""


class MemoryDelivery:
    """Sends one large message to a client, with the body straight from the buffer that received it.

        lead     the method frame and the header frame
        body     a view of the body, which stays unchanged while ``owner`` is referenced
        left     bytes that the socket has not taken
    """

    __slots__ = ("left", "_owner", "_body", "_at", "_lead", "_part", "_channel", "_room")

    def __init__(self, owner, body, lead, channel, frame_max):
        self._owner = owner
        self._body = body
        self._at = 0  # offset of the next octet of the body
        self._channel = channel
        self._room = frame_max - FRAME_OVERHEAD
        # frames to send before the next octets of the body, and their count
        self._lead, self._part = bytes(lead) + self._head(0), min(len(body), self._room)
        self.left = len(lead) + len(body) + FRAME_OVERHEAD * -(-len(body) // self._room)

    def send(self, send, fileno):
        """Write about SLICE_OCTETS to ``fileno``, not by ``send``. Returns the byte count. Raises OSError."""
        before = self.left
        try:
            while self.left and before - self.left < SLICE_OCTETS:
                self._sent(os.writev(fileno, self._parts()))
        except BlockingIOError:
            pass
        return before - self.left

    def close(self):
        self._owner = self._body = None

    def _parts(self):
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
        """Return (frame bytes to send first, length) for the part of the body that begins at ``at``."""
        return END + self._head(at), min(len(self._body) - at, self._room)

    def _head(self, at):
        part = min(len(self._body) - at, self._room)
        return HEAD.pack(FRAME_BODY, self._channel, part) if part else b""
