"""A blocking AMQP 0-9-1 connection for tests, shovels, load generation and Apache Spark.

Needs only the standard library. One thread or greenlet at a time may use it. Nothing runs in the background:
frames are read and heartbeats are sent only during calls, and only ``drain`` and ``take_ready`` call the
consumers' callbacks. So a program that makes no call for longer than the negotiated heartbeat interval should
set ``heartbeat_s=0``.
"""
import platform
import socket
import time
from typing import TYPE_CHECKING, Any

from gomq_py import __version__
from gomq_py.amqp.wire import errors as wire_errors
from gomq_py.amqp.wire.frames import (
    CHANNEL_MAX_DEFAULT, FRAME_HEARTBEAT, FRAME_MAX_DEFAULT, FRAME_METHOD, FRAME_MIN_SIZE, HEARTBEAT_FRAME,
    PROTOCOL_HEADER, REPLY_SUCCESS, FrameReader, method_frame,
)
from gomq_py.amqp.wire.methods import (
    ChannelOpen, ChannelOpenOk, ConnectionBlocked, ConnectionClose, ConnectionCloseOk, ConnectionOpen,
    ConnectionOpenOk, ConnectionSecure,
    ConnectionStart, ConnectionStartOk, ConnectionTune, ConnectionTuneOk, ConnectionUnblocked,
    ConnectionUpdateSecret, ConnectionUpdateSecretOk, decode_method,
)
from gomq_py.client.channel import Channel
from gomq_py.client.errors import ConnectionClosed, Timeout
from gomq_py.client.stream import Stream, deadline_in
from gomq_py.client.transport import TLS_ALERT
from gomq_py.client.url import DEFAULT_URL, Parameters, parse_url
from gomq_py.content.fields import encode_table
from gomq_py.errors import Malformed

if TYPE_CHECKING:
    from ssl import SSLContext

CAPABILITIES = {
    "publisher_confirms": True, "exchange_exchange_bindings": True, "basic.nack": True,
    "consumer_cancel_notify": True, "connection.blocked": True, "authentication_failure_close": True,
}
IF_TLS = "if that port is for TLS, the URL begins with amqps://"
# Most methods of channel 0 not taken yet: a login has one at a time.
_CONTROL_MOST = 8


class Connection(Stream):
    """An AMQP connection. The constructor connects and logs in. It raises ConnectionClosed with the broker's
    reason, Timeout, or OSError if nothing listens.

        url              a text or client.url.Parameters; keyword arguments override its query
        heartbeat_s, frame_max, channel_max
                         as arguments the requested values, as attributes the negotiated ones; 0: no
                         heartbeats, no limit
        timeout_s        limits each wait for an answer
        socket_module    the module that makes the socket; may be ``gevent.socket``
        connected        a connected socket of that module to use instead; the Connection then owns it
        wary             limit the bytes that an untrusted broker may send (see client.stream.Stream); only
                         for callers that do not consume
    """

    def __init__(
        self, url: str | Parameters = DEFAULT_URL, *, socket_module: Any = socket,
        tls_context: "SSLContext | None" = None, timeout_s: float | None = None,
        heartbeat_s: int | None = None, frame_max: int | None = None, channel_max: int | None = None,
        client_properties: dict[str, Any] | None = None, name: str | None = None, connected: Any = None,
        wary: bool = False,
    ) -> None:
        self.parameters: Parameters = url if isinstance(url, Parameters) else parse_url(url)
        options = self.parameters.options
        self.heartbeat_s: int | None = heartbeat_s if heartbeat_s is not None else options.get("heartbeat")
        self.frame_max: int = (
            frame_max if frame_max is not None else options.get("frame_max", FRAME_MAX_DEFAULT))
        default_max = options.get("channel_max", CHANNEL_MAX_DEFAULT)
        self.channel_max: int = default_max if channel_max is None else channel_max
        self.server_properties: dict[str, Any] = {}
        self.blocked_reason: str | None = None  # text while the broker blocks publishers
        self._channels: dict[int, Channel] = {}
        self._failed: list[Channel] = []  # channels closed by the broker, not yet reported
        self._control: list[Any] = []  # methods on channel 0, not yet taken
        self._has_heard = False  # whether anything was received
        self._reader = FrameReader(self.frame_max)
        super().__init__(self.parameters, socket_module, tls_context, timeout_s, connected, wary)
        try:
            self._open(client_properties or {}, name or options.get("name"))
        except BaseException:
            self._transport.close()
            raise

    def channel(self, channel_id: int | None = None) -> Channel:
        """Open a channel. ``channel_id`` None: with the lowest free number. Raises ConnectionClosed, Timeout,
        or ValueError if all numbers are taken. May switch greenlets.
        """
        if channel_id is None:
            limit = self.channel_max or 65535
            channel_id = next((number for number in range(1, limit + 1) if number not in self._channels), 0)
            if not channel_id:
                raise ValueError(f"all {limit} channels of the connection are open")
        channel = Channel(self, channel_id)
        self._channels[channel_id] = channel
        channel.call(ChannelOpen(), ChannelOpenOk)
        return channel

    def drain(self, timeout_s: float | None = None) -> bool:
        """Wait for input, handle it, and call the consumers' callbacks. May switch greenlets.

        Returns True if input or deliveries were handled, False after ``timeout_s`` (None: no limit). Raises
        ConnectionClosed, ChannelClosed if the broker has closed a channel, and the callbacks' errors.
        """
        if self._call_consumers():
            return True
        if not self.receive(deadline_in(timeout_s)):
            return False
        self._call_consumers()
        return True

    def take_ready(self) -> bool:
        """Handle the input that has arrived, call the consumers' callbacks, and send a heartbeat if one is
        due. Does not wait for input.

        Returns False if neither input nor a delivery was handled. Raises the errors of ``drain``. May switch
        greenlets.

        For a loop that polls ``fileno()`` and other descriptors. The loop calls this method at least every
        ``due_in()`` seconds, and repeats the call until it returns False, because TLS may hold received bytes
        that poll() does not report.
        """
        came = self.receive_ready()
        return bool(self._call_consumers()) or came

    def close(self, reply_code: int = REPLY_SUCCESS, reply_text: str = "bye") -> None:
        """Close the connection and its channels by connection.close, if still open. May switch greenlets."""
        if self.error is None:
            try:
                self._tell(ConnectionClose(reply_code=reply_code, reply_text=reply_text))
                self._await_control((ConnectionCloseOk,), self.timeout_s)
            except (ConnectionClosed, Timeout, OSError):
                pass  # closed either way
        self.abort("closed by this client")

    def abort(self, why: str = "aborted by this client") -> None:
        self.end(ConnectionClosed(0, why))
        # channels refer to the connection: breaks the reference cycle
        self._channels.clear()

    def update_secret(self, new_secret: bytes, reason: str) -> None:
        """Send the broker a new OAuth token for this connection. Raises ConnectionClosed or Timeout."""
        self._tell(ConnectionUpdateSecret(new_secret=new_secret, reason=reason))
        self._await_control((ConnectionUpdateSecretOk,), self.timeout_s)

    def take_over(self) -> bytes:
        """Let the caller use the socket until ``give_back``. Returns bytes received but not handled yet."""
        return self._reader.take_rest()

    def release(self) -> tuple[bytes, Any]:
        """Hand the socket to the caller for good. Returns (bytes received and not handled yet, socket). The
        connection and its channels must not be used any more.
        """
        octets, sock = self._reader.take_rest(), self._transport.release()
        self.error = ConnectionClosed(0, "its socket was given away")
        self._channels.clear()
        return octets, sock

    def give_back(self, octets: bytes) -> None:
        """End ``take_over``, so that the connection can be closed. ``octets``: the bytes of an incomplete
        frame that the caller has read.
        """
        self._reader.feed(octets)

    # Called by channels.

    def forget(self, channel: Channel) -> None:
        self._channels.pop(channel.id, None)

    def channel_failed(self, channel: Channel) -> None:
        """Record that the broker closed ``channel``: its next call or the next ``drain`` raises its error."""
        self.forget(channel)
        self._failed.append(channel)

    def failure_told(self, channel: Channel) -> None:
        """Record that a call has raised the channel's error, so that ``drain`` does not raise it again."""
        if channel in self._failed:
            self._failed.remove(channel)

    # The rest is private.

    def _call_consumers(self):
        count = sum([channel.call_consumers() for channel in list(self._channels.values())])
        if self._failed:
            raise self._failed.pop(0).error.again()
        return count

    def _open(self, client_properties, name):
        deadline = deadline_in(self.timeout_s)
        self.send(PROTOCOL_HEADER)
        start = self._await_start()
        self.server_properties = start.server_properties
        mechanism, response = self._login(start.mechanisms.decode("utf-8", "replace").split())
        properties = {
            "product": "gomq-py client", "version": __version__,
            "platform": f"Python {platform.python_version()}",
            "capabilities": dict(CAPABILITIES), **({"connection_name": name} if name else {}),
            **client_properties,
        }
        self._tell(ConnectionStartOk(
            client_properties=properties, mechanism=mechanism, response=response, locale="en_US"))
        tune = self._await_control((ConnectionTune, ConnectionSecure), deadline - time.monotonic())
        if isinstance(tune, ConnectionSecure):
            raise ConnectionClosed(
                0, f"the broker asks for a further {mechanism} response, which this client does not know")
        if 0 < tune.frame_max < FRAME_MIN_SIZE:
            raise ConnectionClosed(0, (
                f"the broker takes frames of {tune.frame_max} bytes at most, and each broker has to take "
                f"{FRAME_MIN_SIZE}"))
        self.frame_max = _agree(self.frame_max, tune.frame_max)
        self.channel_max = _agree(self.channel_max, tune.channel_max)
        self.heartbeat_s = tune.heartbeat if self.heartbeat_s is None else self.heartbeat_s
        self._reader.frame_max = self.frame_max
        self._tell(ConnectionTuneOk(
            channel_max=self.channel_max, frame_max=self.frame_max, heartbeat=self.heartbeat_s))
        self._tell(ConnectionOpen(virtual_host=self.parameters.virtual_host))
        self._await_control((ConnectionOpenOk,), deadline - time.monotonic())

    def _await_start(self):
        """Wait for connection.start and return it. If the peer closes the socket without having sent
        anything, the error's text says that the port may be for TLS.
        """
        try:
            return self._await_control((ConnectionStart,), self.timeout_s)
        except ConnectionClosed as error:
            if error.reply_code or self.parameters.tls or self._has_heard:
                raise
            raise ConnectionClosed(0, f"{error}, before it said anything: {IF_TLS}") from error

    def _login(self, offered):
        user, password = self.parameters.user, self.parameters.password
        mechanism = self.parameters.options.get("auth_mechanism", "PLAIN").upper()
        if mechanism == "EXTERNAL":
            return mechanism, b""
        if mechanism == "AMQPLAIN":
            return mechanism, encode_table({"LOGIN": user, "PASSWORD": password})[4:]
        if mechanism != "PLAIN" or mechanism not in offered:
            raise ConnectionClosed(0, f"the broker offers {', '.join(offered)}, not {mechanism}")
        return mechanism, b"\0%s\0%s" % (user.encode(), password.encode())

    def _tell(self, method):
        self.send(method_frame(0, method))

    def _await_control(self, expected, timeout_s):
        def arrived():
            return any(isinstance(method, expected) for method in self._control)

        self.wait_for(arrived, timeout_s, expected[0].NAME)
        method = next(method for method in self._control if isinstance(method, expected))
        self._control.remove(method)
        return method

    # Called by the stream.

    @property
    def interval_s(self) -> float | None:
        return self.heartbeat_s

    def feed(self, octets: bytes) -> None:
        if not self._has_heard:
            self._has_heard = True
            if octets.startswith(b"AMQP"):
                self.fail(ConnectionClosed(
                    0, f"the broker does not speak AMQP 0-9-1, it offers {octets[:8]!r}"))
            if octets.startswith(TLS_ALERT):
                self.fail(ConnectionClosed(0, f"the broker answers in TLS: {IF_TLS}"))
        self._reader.feed(octets)

    def dispatch(self) -> bool:
        """Pass every complete frame to its channel. Returns False if there was no complete frame. Raises
        ConnectionClosed if the broker closes the connection or violates the protocol.
        """
        any_frame = False
        try:
            while (frame := self._reader.next_frame()) is not None:
                any_frame = True
                kind, channel_id, payload = frame
                if channel_id == 0:
                    self._control_frame(kind, payload)
                elif channel_id in self._channels:
                    self._channels[channel_id].handle_frame(kind, payload)
        except (wire_errors.AMQPError, Malformed) as fault:
            error = wire_errors.SyntaxError_(fault.text) if isinstance(fault, Malformed) else fault
            # The broker broke the protocol: close with the error.
            self._tell(ConnectionClose(reply_code=error.reply_code, reply_text=error.reply_text))
            self.fail(
                ConnectionClosed(error.reply_code, f"closed by this client: {error.reply_text}"), error)
        return any_frame

    def _control_frame(self, kind, payload):
        if kind == FRAME_HEARTBEAT:
            return
        if kind != FRAME_METHOD:
            raise wire_errors.UnexpectedFrame(f"content frame of type {kind} on channel 0")
        method = decode_method(payload)
        if isinstance(method, ConnectionClose):
            self._tell(ConnectionCloseOk())
            self.fail(
                ConnectionClosed(method.reply_code, method.reply_text, method.class_id, method.method_id))
        if isinstance(method, ConnectionBlocked):
            self.blocked_reason = method.reason
        elif isinstance(method, ConnectionUnblocked):
            self.blocked_reason = None
        elif len(self._control) >= _CONTROL_MOST:
            raise wire_errors.UnexpectedFrame(f"{method.NAME}, which nobody has asked for")
        else:
            self._control.append(method)

    def send_sign_of_life(self) -> None:
        self.send(HEARTBEAT_FRAME)

    def ended(self, error: ConnectionClosed) -> None:
        for channel in list(self._channels.values()):
            channel.connection_ended(error)


def _agree(ours, theirs):
    """Return the smaller of two limits, where 0 means no limit."""
    return min(ours, theirs) if ours and theirs else ours or theirs
