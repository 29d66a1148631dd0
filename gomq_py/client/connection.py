"""A blocking AMQP 0-9-1 connection for tests, shovels, load generation and Spark: stdlib only, one thread or
greenlet at a time.

Nothing happens behind the caller's back: frames are read while it waits in a call, and consumers are called
only from ``drain``. Heartbeats are sent then too, so a program that stays away longer than the negotiated
interval should ask for ``heartbeat_s=0``. While a write waits for room, whatever the broker sends is taken
in, so that two peers that both write cannot wait for each other.
"""
import platform
import socket
import time

from gomq_py import __version__
from gomq_py.amqp.wire import errors as wire_errors
from gomq_py.amqp.wire.constants import (
    CHANNEL_MAX_DEFAULT, FRAME_HEARTBEAT, FRAME_MAX_DEFAULT, FRAME_METHOD, PROTOCOL_HEADER, REPLY_SUCCESS,
)
from gomq_py.amqp.wire.frames import HEARTBEAT_FRAME, FrameReader, method_frame
from gomq_py.amqp.wire.methods import (
    ConnectionBlocked, ConnectionClose, ConnectionCloseOk, ConnectionOpen, ConnectionOpenOk, ConnectionSecure,
    ConnectionStart, ConnectionStartOk, ConnectionTune, ConnectionTuneOk, ConnectionUnblocked,
    ConnectionUpdateSecret, ConnectionUpdateSecretOk, decode_method,
)
from gomq_py.client.channel import Channel
from gomq_py.client.errors import ConnectionClosed, Timeout
from gomq_py.client.transport import Transport
from gomq_py.client.url import DEFAULT_URL, parse_url
from gomq_py.content.fields import encode_table
from gomq_py.errors import Malformed

CAPABILITIES = {
    "publisher_confirms": True, "exchange_exchange_bindings": True, "basic.nack": True,
    "consumer_cancel_notify": True, "connection.blocked": True, "authentication_failure_close": True,
}
_HELD_OCTETS = 65536  # what is held is written at that size: still a small share of a socket's buffer
DEFAULT_TIMEOUT_S = 30  # a durable declare waits for the disk, which may be busy


class Connection:
    """Connects and logs in when made.

    Raises ConnectionClosed with the broker's reason, Timeout, or OSError where nothing listens.

    Keyword arguments win over the URL's query. ``heartbeat_s``, ``frame_max`` and ``channel_max`` are what is
    asked for; the attributes of that name are what was agreed, where 0 means none. ``timeout_s`` bounds each
    wait for an answer. ``socket_module`` may be ``gevent.socket``.
    """

    def __init__(
        self, url=DEFAULT_URL, *, socket_module=socket, tls_context=None, timeout_s=None, heartbeat_s=None,
        frame_max=None, channel_max=None, client_properties=None, name=None,
    ):
        self.parameters = parse_url(url)
        options = self.parameters.options
        self.timeout_s = (
            timeout_s if timeout_s is not None
            else options.get("connection_timeout", DEFAULT_TIMEOUT_S * 1000) / 1000
        )
        self.heartbeat_s = heartbeat_s if heartbeat_s is not None else options.get("heartbeat")
        self.frame_max = frame_max if frame_max is not None else options.get("frame_max", FRAME_MAX_DEFAULT)
        self.channel_max = (
            channel_max if channel_max is not None else options.get("channel_max", CHANNEL_MAX_DEFAULT)
        )
        self.server_properties = {}
        self.blocked_reason = None  # text while the broker holds publishers back
        self.error: ConnectionClosed | None = None  # the ConnectionClosed that ended the connection
        self._channels: dict = {}
        self._failed: list = []  # channels closed by the broker and not yet told
        self._control = []  # methods on channel 0 nobody has waited for yet
        self._reader = FrameReader(self.frame_max)
        self._outgoing = bytearray()
        self._sending = False
        self._held = False  # between hold() and flush()
        self._ended_by_peer = False
        self._transport = Transport(socket_module)
        self._last_sent = self._last_received = time.monotonic()
        self._transport.connect(self.parameters, self.timeout_s, tls_context)
        try:
            self._open(client_properties or {}, name or options.get("name"))
        except BaseException:
            self._transport.close()
            raise

    def __enter__(self):
        return self

    def __exit__(self, *_):
        if self.error is None:
            self.close()

    @property
    def closed(self):
        """Whether the connection has ended; ``error`` says why."""
        return self.error is not None

    def fileno(self):
        """The socket's descriptor, for a select of one's own."""
        return self._transport.socket.fileno()

    def channel(self, channel_id=None):
        """Open a channel, by default the lowest free one.

        Raises ConnectionClosed, Timeout, or ValueError when all are taken.
        """
        if channel_id is None:
            limit = self.channel_max or 65535
            channel_id = next((number for number in range(1, limit + 1) if number not in self._channels), 0)
            if not channel_id:
                raise ValueError(f"all {limit} channels of the connection are open")
        channel = Channel(self, channel_id)
        self._channels[channel_id] = channel
        channel.open()
        return channel

    def drain(self, timeout_s=None):
        """Wait for the broker and call consumers for what came: True if anything came, False after
        ``timeout_s`` (None: wait for ever).

        Raises ConnectionClosed, ChannelClosed when the broker closed a channel, and whatever a consumer
        raises. May switch.
        """
        if self._call_consumers():
            return True
        if not self.receive(_deadline(timeout_s)):
            return False
        self._call_consumers()
        return True

    def take_ready(self):
        """Hand out what has come by now, without waiting: True if anything had.

        Sends a heartbeat that is due.

        For a loop that waits on ``fileno`` and other things, up to ``due_in`` seconds; once more while it
        returns True, for TLS may hold octets that no poll sees. Raises as ``drain`` does. May switch, for it
        may write.
        """
        self._raise_if_closed()
        try:
            self._take()
        except OSError as error:
            self._lost(error)
        came = self._dispatch()
        if not came:
            self._raise_if_closed()
            if self._ended_by_peer:
                self._fail(ConnectionClosed(0, "the broker closed the socket without saying why"))
            self._keep_alive()
        return bool(self._call_consumers()) or came

    def due_in(self):
        """Seconds until a heartbeat must be sent or is missed; None without heartbeats."""
        return self._patience()

    def hold(self):
        """Collect what is sent up to ``flush`` or the next wait for an answer: many frames, one system call.
        """
        self._held = True

    def flush(self):
        """Send what ``hold`` collected. May switch."""
        self._held = False
        if self._outgoing:
            self.send(b"")

    def close(self, reply_code=REPLY_SUCCESS, reply_text="bye"):
        """Tell the broker and close; does nothing on a closed connection. May switch."""
        if self.error is not None:
            return
        try:
            self.send(method_frame(0, ConnectionClose(reply_code=reply_code, reply_text=reply_text)))
            self._await_control((ConnectionCloseOk,), self.timeout_s)
        except (ConnectionClosed, Timeout, OSError):
            pass  # it is closed either way, and nobody is left to do anything about it
        self._end(ConnectionClosed(0, "closed by this client"))

    def abort(self):
        """Close the socket without a word, as a crashed client would."""
        self._end(ConnectionClosed(0, "aborted by this client"))

    def update_secret(self, new_secret, reason):
        """Renew an OAuth token. Raises ConnectionClosed where the broker refuses it."""
        self.send(method_frame(0, ConnectionUpdateSecret(new_secret=new_secret, reason=reason)))
        self._await_control((ConnectionUpdateSecretOk,), self.timeout_s)

    @property
    def socket(self):
        """The non-blocking socket, for a caller that takes over reading and writing: see ``take_over``."""
        return self._transport.socket

    def take_over(self):
        """What was received and not dispatched yet.

        From here on the caller reads and writes the socket, up to ``give_back``.
        """
        return self._reader.take_rest()

    def give_back(self, octets):
        """The caller has stopped reading, with these octets of an incomplete frame left over; the connection
        can be closed in order.
        """
        self._reader.feed(octets)

    # What channels call.

    def send(self, octets):
        """Write whole frames. Raises ConnectionClosed. May switch."""
        self._raise_if_closed()
        self._outgoing += octets
        if self._sending:
            return  # another greenlet is in the loop below and takes this along
        if self._held and len(self._outgoing) < _HELD_OCTETS:
            return
        self._sending = True
        try:
            while self._outgoing:
                with memoryview(self._outgoing) as view:
                    sent = self._transport.send(view)
                del self._outgoing[:sent]
                if self._outgoing and not sent:
                    # No longer than silence is allowed: it is not for this loop to send the heartbeats in
                    # between.
                    silence_s = self._silence_left()
                    if not self._transport.wait(silence_s, writable=True) and self._silence_left() <= 0:
                        self._fail_of_silence()
                    self._take()
                    if self._ended_by_peer:
                        break
            self._last_sent = time.monotonic()
        except OSError as error:
            self._lost(error)
        finally:
            self._sending = False

    def receive(self, deadline=None):
        """Read and dispatch at least one frame; False once the monotonic ``deadline`` has passed.

        Raises ConnectionClosed. May switch.
        """
        if self._held:
            self.flush()
        while True:
            if self._dispatch():
                return True
            self._raise_if_closed()
            if self._ended_by_peer:
                self._fail(ConnectionClosed(0, "the broker closed the socket without saying why"))
            self._keep_alive()
            wait_s = self._patience()
            if deadline is not None:
                remaining_s = deadline - time.monotonic()
                wait_s = remaining_s if wait_s is None else min(wait_s, remaining_s)
                if remaining_s <= 0 and not self._transport.wait(0):
                    return False
            try:
                self._transport.wait(wait_s)
                self._take()
            except OSError as error:
                self._lost(error)

    def wait_for(self, predicate, timeout_s=None):
        """Receive until ``predicate()`` holds. Raises Timeout, ConnectionClosed. May switch."""
        deadline = _deadline(timeout_s)
        while not predicate():
            if not self.receive(deadline):
                raise Timeout(
                    f"no answer from {self.parameters.host}:{self.parameters.port} within {timeout_s} s"
                )

    def forget(self, channel):
        """A channel has been closed."""
        self._channels.pop(channel.id, None)

    def channel_failed(self, channel):
        """The broker has closed a channel; the next ``drain`` raises it unless its own call does."""
        self.forget(channel)
        self._failed.append(channel)

    def failure_told(self, channel):
        """A call on the channel has raised its error already."""
        if channel in self._failed:
            self._failed.remove(channel)

    # The rest is private.

    def _call_consumers(self):
        count = sum([channel.call_consumers() for channel in list(self._channels.values())])
        if self._failed:
            raise self._failed.pop(0).error.with_traceback(None)
        return count

    def _open(self, client_properties, name):
        deadline = _deadline(self.timeout_s)
        self.send(PROTOCOL_HEADER)
        start = self._await_control((ConnectionStart,), self.timeout_s)
        self.server_properties = start.server_properties
        mechanism, response = self._login(start.mechanisms.decode().split())
        properties = {
            "product": "gomq-py client", "version": __version__,
            "platform": f"Python {platform.python_version()}",
            "capabilities": dict(CAPABILITIES), **({"connection_name": name} if name else {}),
            **client_properties,
        }
        self.send(
            method_frame(
                0,
                ConnectionStartOk(
                    client_properties=properties, mechanism=mechanism, response=response, locale="en_US"
                ),
            )
        )
        tune = self._await_control((ConnectionTune, ConnectionSecure), deadline - time.monotonic())
        if isinstance(tune, ConnectionSecure):
            raise ConnectionClosed(
                0, f"the broker asks for a further {mechanism} response, which this client does not know"
            )
        self.frame_max = _agree(self.frame_max, tune.frame_max)
        self.channel_max = _agree(self.channel_max, tune.channel_max)
        self.heartbeat_s = tune.heartbeat if self.heartbeat_s is None else self.heartbeat_s
        self._reader.frame_max = self.frame_max
        self.send(
            method_frame(
                0,
                ConnectionTuneOk(
                    channel_max=self.channel_max, frame_max=self.frame_max, heartbeat=self.heartbeat_s
                ),
            )
        )
        self.send(method_frame(0, ConnectionOpen(virtual_host=self.parameters.virtual_host)))
        self._await_control((ConnectionOpenOk,), deadline - time.monotonic())

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

    def _await_control(self, expected, timeout_s):
        def arrived():
            return any(isinstance(method, expected) for method in self._control)

        self.wait_for(arrived, timeout_s)
        method = next(method for method in self._control if isinstance(method, expected))
        self._control.remove(method)
        return method

    def _take(self):
        """Move what the socket holds to the reader."""
        octets = self._transport.receive()
        if octets:
            self._last_received = time.monotonic()
            if not self.server_properties and octets.startswith(b"AMQP"):
                self._fail(
                    ConnectionClosed(0, f"the broker does not speak AMQP 0-9-1, it offers {octets[:8]!r}")
                )
            self._reader.feed(octets)
        elif octets is not None:
            self._ended_by_peer = True

    def _dispatch(self):
        """Hand every whole frame to its channel; False if there was none."""
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
            # The broker broke the protocol: say so and leave.
            self.send(
                method_frame(0, ConnectionClose(reply_code=error.reply_code, reply_text=error.reply_text))
            )
            self._fail(
                ConnectionClosed(error.reply_code, f"closed by this client: {error.reply_text}"), error
            )
        return any_frame

    def _control_frame(self, kind, payload):
        if kind == FRAME_HEARTBEAT:
            return
        if kind != FRAME_METHOD:
            raise wire_errors.UnexpectedFrame(f"content frame of type {kind} on channel 0")
        method = decode_method(payload)
        if isinstance(method, ConnectionClose):
            self.send(method_frame(0, ConnectionCloseOk()))
            self._fail(
                ConnectionClosed(method.reply_code, method.reply_text, method.class_id, method.method_id)
            )
        if isinstance(method, ConnectionBlocked):
            self.blocked_reason = method.reason
        elif isinstance(method, ConnectionUnblocked):
            self.blocked_reason = None
        else:
            self._control.append(method)

    def _patience(self):
        """Seconds until a heartbeat must be sent or is missed; None without heartbeats."""
        if not self.heartbeat_s:
            return None
        now = time.monotonic()
        return max(
            0, min(self._last_sent + self.heartbeat_s / 2, self._last_received + 2 * self.heartbeat_s) - now
        )

    def _keep_alive(self):
        if not self.heartbeat_s:
            return
        now = time.monotonic()
        if self._silence_left() < 0:
            self._fail_of_silence()
        if now - self._last_sent >= self.heartbeat_s / 2 and not self._outgoing:
            self.send(HEARTBEAT_FRAME)

    def _silence_left(self):
        """Seconds until the broker has been silent for too long; None without heartbeats."""
        return self._last_received + 2 * self.heartbeat_s - time.monotonic() if self.heartbeat_s else None

    def _fail_of_silence(self):
        self._fail(ConnectionClosed(0, f"nothing heard from the broker for {2 * self.heartbeat_s} s"))

    def _lost(self, error):
        """The socket failed.

        What the broker said before may still be in the reader, and says more than the error.
        """
        if self.error is None:
            try:
                self._take()
                self._dispatch()
            except (OSError, ConnectionClosed):
                pass
        self._fail(
            ConnectionClosed(0, f"connection to {self.parameters.host}:{self.parameters.port} lost: {error}"),
            error,
        )

    def _raise_if_closed(self):
        if self.error is not None:
            raise self.error.with_traceback(None)

    def _fail(self, error, cause=None):
        """End and raise the reason, which is an earlier one where there was one."""
        self._end(error)
        raise self.error or error from cause

    def _end(self, error):
        """The one way out: keeps the first reason, ends the channels, closes the socket."""
        if self.error is not None:
            return
        self.error = error
        for channel in list(self._channels.values()):
            channel.connection_ended(error)
        self._transport.close()


def _deadline(timeout_s):
    return None if timeout_s is None else time.monotonic() + timeout_s


def _agree(ours, theirs):
    """The smaller of two limits where 0 means none."""
    return min(ours, theirs) if ours and theirs else ours or theirs
