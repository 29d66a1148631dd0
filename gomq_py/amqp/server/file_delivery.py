"""File delivery: one large message on its way to a consumer, whose body the system sends from the file that
it lies in, without a copy in memory.

Beside delivery, which makes it; a Source of net.output, which asks for the next octets when the socket takes
some. The system sends the pages of the file themselves, and whoever reads late sees what is in them by then:
only of files that are never written to again, nor used for other messages (Store.body_file). Never yields,
but waits for a disk that has to read the pages again, as a look at the mapping would.
"""
import errno
import os
import socket
from struct import Struct

from gomq_py.amqp.wire.frames import FRAME_BODY, FRAME_END, FRAME_OVERHEAD

# What one message sends before others have their turn, and before its socket is looked at again.
SLICE_OCTETS = 1024 * 1024

# What the system says of a file system whose files it does not send.
NOT_SENT = frozenset({errno.EINVAL, errno.ENOSYS})

HEAD = Struct(">BHI")
END = bytes((FRAME_END,))
# More comes at once: no packet for seven octets.
_MORE = getattr(socket, "MSG_MORE", 0)


class FileDelivery:
    """``lead``: the frames before the body, which is ``count`` octets from ``start`` on of the file of
    ``reading`` (a storage.disk.open_file.Reading), closed with this. ``left``: octets that the socket has
    not taken.
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
