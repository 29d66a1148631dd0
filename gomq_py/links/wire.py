"""Wire: the socket of a gomq_py.client connection, which a link reads and writes without blocking.

Used by sessions; uses the client. Output that the socket does not accept at once is kept until the event loop
reports the socket writable. ``tick`` sends heartbeats and notices missing ones.
"""
import time
from ssl import SSLWantReadError, SSLWantWriteError

import gevent

from gomq_py.amqp.wire.frames import HEARTBEAT_FRAME, method_frame
from gomq_py.amqp.wire.methods import ConnectionClose, ConnectionCloseOk
from gomq_py.client.errors import ClientError, ConnectionClosed
from gomq_py.hub.turns import give_way

READABLE, WRITABLE = 1, 2
# Size of one read: stays in the second-level cache, like the server's.
READ_OCTETS = 64 * 1024
# Time for a peer to agree to a close.
PARTING_S = 2.0
_NOT_NOW = (BlockingIOError, InterruptedError, SSLWantReadError, SSLWantWriteError)
_CLOSE = method_frame(0, ConnectionClose(reply_code=200, reply_text="bye"))
_CLOSE_OK = method_frame(0, ConnectionCloseOk())


class Silent(ConnectionClosed):
    """The broker has sent nothing for two heartbeat intervals."""


class Wire:
    """Reads and writes the socket of ``connection``, a client's Connection, which must not be used any more.

    The event loop calls ``readable()`` when bytes have arrived, ``broken(error)`` when writing has failed,
    and ``drained()`` when it has written output that had to wait. None of these may switch greenlets.
    ``ahead``: bytes that the client had already read. ``kept_octets``: bytes queued and not yet written.
    ``queued_octets``: bytes ever queued.
    """

    __slots__ = (
        "heartbeat_s", "ahead", "kept_octets", "queued_octets", "last_sent", "last_received", "_socket",
        "_receive_into", "_send", "_pending", "_kept", "_reader", "_writer", "_readable", "_broken",
        "_drained", "_watching", "is_closed",
    )

    def __init__(self, connection, readable, broken, drained):
        self.heartbeat_s = connection.heartbeat_s
        # bytes that the client has already read
        self.ahead, self._socket = connection.release()
        is_plain = not hasattr(self._socket, "pending")
        raw = getattr(self._socket, "_sock", self._socket) if is_plain else self._socket
        self._receive_into, self._send = raw.recv_into, raw.send
        self._pending = getattr(self._socket, "pending", None)  # TLS: decrypted bytes that no poll reports
        self._kept = []
        self.kept_octets = self.queued_octets = 0
        loop = gevent.get_hub().loop
        self._reader = loop.io(self._socket.fileno(), READABLE)
        self._writer = None
        self._readable, self._broken, self._drained = readable, broken, drained
        self._watching = self.is_closed = False
        self.last_sent = self.last_received = time.monotonic()

    def watch(self):
        """Call ``readable()`` for input from now on, until ``unwatch``."""
        if not self._watching and not self.is_closed:
            self._watching = True
            self._reader.start(self._readable)

    def unwatch(self):
        """Stop the calls of ``readable()``. Input stays in the socket."""
        if self._watching:
            self._watching = False
            self._reader.stop()

    def has_more(self):
        """True if TLS holds decrypted bytes, which no socket event announces."""
        return self._pending is not None and not self.is_closed and self._pending() > 0

    def receive_into(self, view):
        """Read bytes into ``view``. Returns their count, 0 if none came. Raises ConnectionClosed, OSError."""
        try:
            count = self._receive_into(view)
        except _NOT_NOW:
            return 0
        if not count:
            raise ConnectionClosed(0, "the broker closed the socket without saying why")
        self.last_received = time.monotonic()
        return count

    def write(self, octets):
        """Queue ``octets`` for the next ``send_queued``."""
        self._kept.append(memoryview(octets))
        self.kept_octets += len(octets)
        self.queued_octets += len(octets)

    def send_queued(self):
        """Write as much output as the socket accepts now. The rest follows when the socket is writable."""
        if not self._kept or self._writer is not None or self.is_closed:
            return
        self._send_queued()
        if self._kept and not self.is_closed:
            self._writer = gevent.get_hub().loop.io(self._socket.fileno(), WRITABLE)
            self._writer.start(self._writable)

    def tick(self, is_read):
        """Send a due heartbeat. Returns the seconds until the next call, or None without heartbeats. Raises
        ConnectionClosed if the peer was silent for two intervals. ``is_read``: False if the link does not
        read at present, so that silence proves nothing.
        """
        interval_s = self.heartbeat_s
        if not interval_s:
            return None
        now = time.monotonic()
        if not is_read:
            self.last_received = now
        if now - self.last_received > 2 * interval_s:
            raise Silent(0, f"nothing heard from the broker for {2 * interval_s} s")
        if now - self.last_sent >= interval_s / 2:
            self.last_sent = now
            if not self._kept:
                self.write(HEARTBEAT_FRAME)
                self.send_queued()
        return max(
            0.0, min(self.last_sent + interval_s / 2, self.last_received + 2 * interval_s + 0.001) - now)

    def part(self):
        """Close the connection by a handshake of at most PARTING_S. May switch greenlets."""
        self._stop_watching()
        if self.is_closed:
            return
        if not self._kept:
            self.write(_CLOSE)
            self._send_queued()
        try:
            if not self.is_closed and not self._kept:
                self._await_end()
        except (ClientError, OSError):
            pass  # closed either way
        finally:
            self.abort()

    def abort(self):
        """Close the socket without a handshake. May be called again."""
        self.is_closed = True
        self._stop_watching()
        if self._reader is not None:
            self._reader.close()
            self._reader = None
        self._kept.clear()
        self._readable = self._broken = self._drained = None
        self._socket.close()

    # private from here on

    def _await_end(self):
        room = bytearray(READ_OCTETS)
        tail = b""
        self._socket.settimeout(PARTING_S)
        until = time.monotonic() + PARTING_S
        while time.monotonic() < until and not tail.endswith(_CLOSE_OK):
            count = self._socket.recv_into(room)
            if not count:
                break
            tail = (tail + room[:count])[-len(_CLOSE_OK):]
            give_way()  # bytes already received are read without a switch

    def _send_queued(self):
        kept, at = self._kept, 0
        try:
            while at < len(kept):
                view = kept[at]
                sent = self._send(view)
                self.kept_octets -= sent
                if sent < len(view):
                    kept[at] = view[sent:]
                else:
                    at += 1
        except _NOT_NOW:
            pass
        except OSError as error:
            broken = self._broken
            kept.clear()
            if broken is not None:
                broken(error)
            return
        del kept[:at]
        self.last_sent = time.monotonic()

    def _writable(self):
        self._send_queued()
        if not self._kept:
            self._stop_writing()
        if self._drained is not None:
            self._drained()

    def _stop_writing(self):
        if self._writer is not None:
            self._writer.stop()
            self._writer.close()
            self._writer = None

    def _stop_watching(self):
        self.unwatch()
        self._stop_writing()
