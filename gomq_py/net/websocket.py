"""WebSocket: makes an upgraded connection a socket that ``net.stream`` and ``net.output`` can use (RFC 6455).

    socket > wsproto > WebSocket.receive_functions() > Stream          bytes of binary messages, as they come
    Output > WebSocket.send > header in front > socket                 a binary message for each write

AMQP and MQTT see a stream of bytes and no messages. Payload is passed on before its frame is complete, so
that long frames cost no memory. The library wsproto parses. This module writes the header of sent frames,
because the library would copy each payload four times. A text message, a violation of the RFC or the peer's
Close ends the stream; the broker then sends a Close. No extensions, so no compression.
"""
import os
import struct
import sys
from errno import ECONNRESET
from select import POLLERR
from socket import SHUT_WR
from ssl import SSLWantReadError, SSLWantWriteError
from typing import Any

import gevent
from gevent import monkey
from wsproto.connection import ConnectionState
from wsproto.events import BytesMessage, CloseConnection, Ping, Pong, TextMessage
from wsproto.frame_protocol import CloseReason
from wsproto.utilities import LocalProtocolError

from gomq_py.hub.lingering_close import end_our_side
from gomq_py.net.output import send_function
from gomq_py.observability.log import logger

LOG = logger("net")
# Least octets of a client's frame besides its payload: two octets and a mask (§5.2).
HEAD_OCTETS = 6
READ_OCTETS = 64 * 1024
NOTHING = memoryview(b"")
# Payload of one sent frame: as much as Output hands over at once.
PAYLOAD_MAX = 256 * 1024
BINARY_FRAME = 0x82  # FIN, and the opcode of a binary message
SHORT_MAX, MIDDLE_MAX = 125, 0xFFFF
WRITABLE = 2
# gevent's waits.
_poll = monkey.get_original("select", "poll")
_WOULD_BLOCK = (BlockingIOError, SSLWantReadError, SSLWantWriteError)
# Attributes of the socket below that lists of connections, logins and alarms ask for.
_ASKED_BELOW = frozenset(
    ("getsockname", "getpeername", "getpeercert", "cipher", "version", "family", "getsockopt"))


class WebSocket:
    """The server's end of one WebSocket. ``is_used``: whether bytes were written or read. ``login_host``: the
    address to which logins are attributed instead of the peer's address, or None.
    """

    def __init__(
        self, socket: Any, connection: Any, turns: Any, is_leaving: Any = lambda: False,
        most_before_login: int = sys.maxsize, is_pending: Any = lambda: False,
    ):
        """Use ``socket``, a gevent socket, plain or TLS, which the WebSocket owns.

            connection           wsproto's connection, after its handshake
            is_leaving()         whether the server stops; the broker's Close frame then says so
            turns                the SlowTurns, since a frame costs wsproto some 25 us
            most_before_login    limit of bytes in heads and control frames while ``is_pending()``
            is_pending()         whether the client has not logged in yet
        """
        self._socket = socket
        self._connection = connection
        self._turns = turns
        self._is_leaving = is_leaving
        self._is_pending = is_pending
        self._most_before_login = most_before_login
        self._beside_octets = 0  # of heads and control frames
        self._events: Any = None
        self._payload = NOTHING
        self._send_below = send_function(socket)
        self._receive_below, self._pending_below = _receive_functions(socket)
        self._ended = self._told_end = self._said_close = self._is_shut = self._spent = False
        self._peer_ended = self._is_broken = False
        self.is_used = False
        self.login_host: str | None = None
        # Sent next: the rest of control frames and of a header, then _left octets of its payload.
        self._head = bytearray()
        self._left = 0
        self._pong = b""
        self._close_frame = b""
        self._watcher: Any = None

    def __getattr__(self, name: str) -> Any:
        if name in _ASKED_BELOW:
            return getattr(self._socket, name)
        raise AttributeError(name)

    @property
    def may_hear_more(self) -> bool:
        """Whether the peer may still send. False after the peer's Close, and after shutdown()."""
        return not self._peer_ended and not self._is_shut

    def fileno(self) -> int:
        return self._socket.fileno()

    # receiving

    def receive_functions(self) -> tuple[Any, Any]:
        """Return what net.receiving.receive_functions() returns for this socket."""
        return self.receive_into, self.pending

    def pending(self) -> bool:
        """Whether there are bytes to receive that a poll of the socket does not show."""
        if self._ended:
            return not self._told_end
        return self._has_more() or self._pending_below is not None and self._pending_below() > 0

    def wait(self, stream: Any) -> bool:
        """Pause reading of ``stream`` if the last read used up the time for slow work (hub.turns) before all
        frames were handled. Returns whether that was so.
        """
        if self._spent:
            self._turns.wait(stream)
        return self._spent

    def _has_more(self) -> bool:
        return bool(self._payload) or self._events is not None

    def receive_into(self, view: Any) -> int:
        """Receive payload of messages into ``view``, without waiting. Returns the number of bytes, 0 at the
        end. Raises OSError; BlockingIOError if no payload has come.
        """
        if not self._has_more() and not self._ended:
            self._feed_or_end(self._receive_below(READ_OCTETS))
        return self._take(view)

    def recv(self, count: int) -> bytes:
        """Receive up to ``count`` bytes of messages' payload, for logins; b"" at the end. May switch
        greenlets. After ``shutdown``, returns the peer's bytes unparsed. Raises OSError.
        """
        if self._is_shut:
            return self._socket.recv(count)
        octets = bytearray(count)
        while True:
            if self._spent:
                self._turns.take()
            if not self._has_more() and not self._ended:
                self._feed_or_end(self._socket.recv(READ_OCTETS))
            try:
                return bytes(octets[:self._take(memoryview(octets))])
            except BlockingIOError:
                continue

    def _feed_or_end(self, octets: bytes) -> None:
        if octets:
            self.feed(octets)
        else:
            self._ended = self._peer_ended = True

    def feed(self, octets: bytes) -> None:
        """Parse bytes that the caller has read from the socket. Later reads return their payload."""
        self._connection.receive_data(octets)
        self._events = self._connection.events()

    def _take(self, view: Any) -> int:
        """Move received payload into ``view``, without the socket. Returns and raises as receive_into()."""
        taken, is_first = 0, True
        if self._spent:
            self._spent = False
            self._drop_if_reset()
        self.is_used = True
        while taken < len(view):
            if self._payload:
                part = self._payload[:len(view) - taken]
                view[taken:taken + len(part)] = part
                taken += len(part)
                # an empty view would keep the frame's octets
                self._payload = self._payload[len(part):] if len(part) < len(self._payload) else NOTHING
            elif self._events is None:
                break
            elif not (self._turns.has_time() or is_first):
                self._spent = True
                break
            else:
                is_first = False
                event = next(self._events, None)
                if event is None:
                    self._events = None
                else:
                    self._handle(event)
        if not taken:
            if not self._ended:
                raise BlockingIOError
            self._told_end = True
        return taken

    def _drop_if_reset(self) -> None:
        """If the peer has reset the connection, drop its remaining frames and raise OSError."""
        poll = _poll()
        poll.register(self._socket.fileno(), 0)
        if self._is_broken or any(events & POLLERR for _, events in poll.poll(0)):
            self._ended = self._peer_ended = True
            self._payload, self._events = NOTHING, None
            raise ConnectionResetError(ECONNRESET, os.strerror(ECONNRESET))

    def _count_beside(self, event: Any) -> None:
        """Count the bytes of a frame's head and of a control frame. Raises OSError if they are too many."""
        self._beside_octets += HEAD_OCTETS
        if isinstance(event, (Ping, Pong)):
            self._beside_octets += len(event.payload)
        if self._beside_octets <= self._most_before_login:
            return
        if not self._is_pending():
            self._most_before_login = sys.maxsize
            return
        self._end(CloseReason.POLICY_VIOLATION, "too many frames before the login")
        self._peer_ended = True  # no code waits for its other octets
        raise OSError(
            f"{self._beside_octets} bytes of heads and control frames before the login "
            "(max_octets_before_login)")

    def _handle(self, event: Any) -> None:
        self._count_beside(event)
        if isinstance(event, BytesMessage):
            self._payload = memoryview(event.data)
        elif isinstance(event, Ping) and not self._said_close:
            # Only the last of several needs an answer (§5.5.3), so that a flood of them costs no memory.
            self._pong = self._connection.send(event.response())
            self._send_control()
        elif isinstance(event, CloseConnection):
            # The peer's, to be answered, or the library's, for an invalid frame.
            self._peer_ended = self._connection.state is not ConnectionState.OPEN
            self._end(event.code, event.reason)
        elif isinstance(event, TextMessage):
            self._end(CloseReason.UNSUPPORTED_DATA, "binary messages only")

    def _end(self, code: int, reason: Any) -> None:
        """Receive no more payload, and send the peer a Close with ``code`` and ``reason``."""
        self._ended = True
        self._events = None
        LOG.debug("a WebSocket ends with %d %s", code, reason)
        self._say_close(code, reason)

    # sending

    def send(self, view: Any) -> int:
        """Send bytes as payload without waiting. Returns how many were accepted. Raises OSError. The next
        call must begin with the bytes not accepted.
        """
        # The header of their frame may have been sent. Output does so.
        self.is_used = True
        taken = 0
        with memoryview(view) as octets:
            while taken < len(octets):
                if self._said_close and not self._left:
                    return len(octets)  # nothing follows a Close (§5.5.1)
                try:
                    taken += self._send_part(octets[taken:])
                except _WOULD_BLOCK:
                    if taken:
                        break
                    raise
                if self._head or self._left:
                    break
        return taken

    def _send_part(self, octets: Any) -> int:
        """Send a part of the half-sent or else of a new frame. Returns the number of payload bytes sent."""
        if not self._left:
            self._head += self._control()
            self._left = min(len(octets), PAYLOAD_MAX)
            self._head += _header(self._left)
        payload = octets[:self._left]
        if self._head:
            sent, before = self._send_below(bytes(self._head) + payload), len(self._head)
            del self._head[:sent]
            if self._head:
                return 0
            sent -= before
        else:
            sent = self._send_below(payload)
        self._left -= sent
        if not self._left:
            self._send_control()
        return sent

    def sendall(self, octets: Any) -> None:
        """Send all bytes as payload, for logins. Raises OSError. May switch greenlets. If ``send`` has left
        bytes, ``octets`` must begin with them.
        """
        self.is_used = True
        begun, rest = octets[:self._left], octets[self._left:]
        self._left -= len(begun)
        out = self._head + begun
        self._head = bytearray()
        if rest and not self._said_close:
            out += self._control() + _header(len(rest)) + rest
        if out:
            self._socket.sendall(out)

    def _control(self) -> bytes:
        """Return the waiting control frames, which the caller must send."""
        frames = self._pong + self._close_frame
        self._pong = self._close_frame = b""
        return frames

    def _send_control(self) -> None:
        """Send the waiting control frames, unless a data frame is half sent, which they must not split."""
        if self._watcher is not None:
            self._watcher.stop()
        if self._left or self._socket.fileno() < 0:
            return
        if not self._head:
            self._head += self._control()
        if not self._head:
            return
        try:
            sent = self._send_below(bytes(self._head))
        except _WOULD_BLOCK:
            sent = 0
        except OSError:
            self._is_broken = True  # the next read or write raises
            return
        del self._head[:sent]
        if self._head or self._pong or self._close_frame:
            if self._watcher is None:
                self._watcher = gevent.get_hub().loop.io(self._socket.fileno(), WRITABLE)
            self._watcher.start(self._send_control)

    # ends

    def _say_close(self, code: int, reason: str = "") -> None:
        if self._said_close:
            return
        self._said_close = True
        try:
            self._close_frame = self._connection.send(CloseConnection(code, reason or None))
        except LocalProtocolError:
            return
        self._send_control()

    def shutdown(self, how: int) -> None:
        """Send a Close and end the broker's writing side. Raises OSError."""
        self._say_close(CloseReason.GOING_AWAY if self._is_leaving() else CloseReason.NORMAL_CLOSURE)
        self._is_shut = True
        if how == SHUT_WR:
            end_our_side(self._socket)
        else:
            self._socket.shutdown(how)

    def close(self) -> None:
        """Send a Close if possible at once, and close the socket. A second call does nothing."""
        if self._socket.fileno() >= 0:
            self._say_close(CloseReason.GOING_AWAY if self._is_leaving() else CloseReason.NORMAL_CLOSURE)
        if self._watcher is not None:
            self._watcher.stop()
            self._watcher.close()
            self._watcher = None
        self._socket.close()

    def detach(self) -> int:
        """Detach the socket in a forked child. Returns its descriptor."""
        return getattr(self._socket, "_sock", self._socket).detach()


def _header(count: int) -> bytes:
    """Return the header of a binary message in one frame (§5.2)."""
    if count <= SHORT_MAX:
        return struct.pack(">BB", BINARY_FRAME, count)
    if count <= MIDDLE_MAX:
        return struct.pack(">BBH", BINARY_FRAME, 126, count)
    return struct.pack(">BBQ", BINARY_FRAME, 127, count)


def _receive_functions(socket: Any) -> tuple[Any, Any]:
    """Return (non-blocking recv, pending) of a gevent socket. ``pending()`` returns the number of bytes that
    TLS has decrypted. ``pending`` is None for a plain socket.
    """
    ssl_object = getattr(socket, "_sslobj", None)
    if ssl_object is None:
        return socket._sock.recv, None
    return ssl_object.read, ssl_object.pending
