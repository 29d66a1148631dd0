"""Handshake: decides each step from the protocol header to connection.open-ok, by a state table without I/O.

The login feeds received bytes to the Handshake, and carries out the steps that the Handshake returns: bytes
to send, credentials to check, a virtual host to open. Never reads, writes, hashes or waits. Before tune-ok a
frame may have at most ``frame_max_before`` bytes, so that an unauthenticated peer can use little memory.

    header   the eight bytes of the protocol       -> start
    starting connection.start-ok                   -> Login      (the login then calls logged_in() or
                                                   refused())
    tuning   connection.tune-ok
    opening  connection.open                       -> Open       (the login then calls opened(), or raises)
    open     rest() returns the bytes read after connection.open

lifecycle.OF_HANDSHAKE is the table of its states and events.
"""
from functools import lru_cache
from typing import Any, NamedTuple

from gomq_py.amqp.server.refusals import check_frame, described_frame, method_on_channel_0
from gomq_py.amqp.server.lifecycle import (
    GREETED, HEADER, LEFT, LOGGED_IN, OF_HANDSHAKE, OPEN, OPENED, OPENING, STARTING, TAKEN_LEAVE, TUNED,
    TUNING, moved,
)
from gomq_py.amqp.wire.errors import AccessRefused, AMQPError, ChannelError, NotAllowed, UnexpectedFrame
from gomq_py.amqp.wire.frames import (
    FRAME_HEARTBEAT, FRAME_METHOD, FRAME_MIN_SIZE, PROTOCOL_HEADER, FrameReader, method_frame,
)
from gomq_py.amqp.wire.methods import (
    ConnectionClose, ConnectionCloseOk, ConnectionOpen, ConnectionOpenOk, ConnectionStart, ConnectionStartOk,
    ConnectionTune, ConnectionTuneOk,
)
from gomq_py.connections.login import LoginFailed
from gomq_py.content.fields import decode_table
from gomq_py.errors import Malformed

# RabbitMQ accepts the header of the specification's 0-9 draft too, and some clients still send it.
PROTOCOL_HEADERS = (PROTOCOL_HEADER, b"AMQP\x01\x01\x00\x09")
HEADER_SIZE = len(PROTOCOL_HEADER)
LOCALES = b"en_US"
OPEN_OK_FRAME = method_frame(0, ConnectionOpenOk())


class HandshakeError(LoginFailed):
    """The handshake has failed. ``reply``: bytes to send, usually empty, as in RabbitMQ."""


class Limits(NamedTuple):
    """Limits of a connection, as offered by the server or agreed by both peers. 0: no limit."""

    channel_max: int
    frame_max: int
    heartbeat_s: int


limits_of = lru_cache(64)(Limits)  # cached: most clients of a fleet agree to the same limits


class Send(NamedTuple):
    """Asks the caller of the handshake to send ``octets`` (bytes) to the client."""

    octets: bytes


class Login(NamedTuple):
    """Asks the caller of the handshake to check credentials, then to call logged_in() or refused()."""

    mechanism: str
    username: str
    password: bytes | None
    """None where the client's certificate stands for it."""


class Open(NamedTuple):
    """Asks the caller of the handshake to open a virtual host for the user, then to call opened()."""

    virtual_host: str


opening = lru_cache(64)(Open)


class Closed(NamedTuple):
    """Asks the caller of the handshake to close the socket, after the client's connection.close."""


class Handshake:
    """Decides the server's steps from protocol header to connection.open-ok. Reads and writes no socket.
    ``limits``: the offered Limits; from tune-ok on, the agreed Limits. ``client_properties``: of start-ok.
    """

    def __init__(self, offered, start, certified_name=None, frame_max_before=FRAME_MIN_SIZE):
        """Begin a handshake.

            start               the frame made by start_frame()
            certified_name      user named by the client's verified certificate; "" if the certificate has no
                                user; None without a certificate
            frame_max_before    most bytes of a frame before tune-ok
        """
        self.offered = offered
        self._start = start
        self.certified_name = certified_name
        self.limits = offered
        self.client_properties = {}
        self.mechanism = ""
        self.state = HEADER
        self._header = b""
        self._reader = FrameReader(frame_max_before)

    @property
    def capabilities(self):
        """The ``capabilities`` of the client's properties, a dict; empty if they are missing or no table."""
        capabilities = self.client_properties.get("capabilities")
        return capabilities if isinstance(capabilities, dict) else {}

    def feed(self, data):
        if self.state == HEADER:
            needed = HEADER_SIZE - len(self._header)
            self._header += data[:needed]
            data = data[needed:]
        if data:
            self._reader.feed(data)

    def next_step(self):
        """Return the next Send, Login, Open or Closed; None if bytes are missing. Raises HandshakeError."""
        if self.state == HEADER:
            return self._greet()
        if self.state == LEFT:
            return Closed()
        try:
            while True:
                frame = self._reader.next_frame()
                if frame is None:
                    return None
                kind, channel, payload = frame
                decode, identity, handler = AWAITED.get(self.state, NOTHING)
                handle: Any = self._other
                arguments: tuple = (kind, channel, payload)
                if kind == FRAME_METHOD and channel == 0 and payload[:4] == identity:
                    try:
                        handle, arguments = handler, (self, decode(payload))
                    except (AMQPError, Malformed):
                        pass  # _other() decodes it again, and reports the error
                step = handle(*arguments)
                if step is not None:
                    return step
        except AMQPError as error:
            raise HandshakeError(f"{error} in handshake state {self.state}", self.reply_to(error)) from error

    def logged_in(self):
        """Record that the credentials are correct. Returns connection.tune with the offered limits."""
        moved(self, OF_HANDSHAKE, LOGGED_IN)
        return tune_frame(self.offered)

    def refused(self):
        """Return the bytes to send before the connection is closed for wrong credentials. As in RabbitMQ,
        there are none unless the client supports ``authentication_failure_close``.
        """
        if not self.capabilities.get("authentication_failure_close"):
            return b""
        error = AccessRefused(
            f"Login was refused using authentication mechanism {self.mechanism}. For details see the broker "
            "logfile."
        )
        return close_frame(error)

    def opened(self):
        """Record that the virtual host is open. Returns connection.open-ok, as bytes."""
        moved(self, OF_HANDSHAKE, OPENED)
        return OPEN_OK_FRAME

    def reply_to(self, error):
        """Return a connection.close for ``error``, as bytes. Empty before the login, as in RabbitMQ."""
        return close_frame(error) if self.state in (TUNING, OPENING, OPEN) else b""

    def rest(self):
        """Return, and forget, the bytes after the last frame that next_step() has handled."""
        return self._reader.take_rest()

    def _greet(self):
        if not PROTOCOL_HEADER.startswith(self._header[:4]):
            raise HandshakeError("the peer does not speak AMQP", PROTOCOL_HEADER)
        if len(self._header) < HEADER_SIZE:
            return None
        if self._header not in PROTOCOL_HEADERS:
            raise HandshakeError(f"unsupported protocol version {tuple(self._header[4:])}", PROTOCOL_HEADER)
        moved(self, OF_HANDSHAKE, GREETED)
        return Send(self._start)

    def _other(self, kind, channel, payload):
        """Handle a frame that is not the awaited method. Raises AMQPError unless it may come at any time."""
        if channel == 0:
            check_frame(kind, payload)
            if kind == FRAME_HEARTBEAT:
                return None
        if kind != FRAME_METHOD or channel != 0:
            raise UnexpectedFrame(described_frame(kind, payload))
        method = method_on_channel_0(payload)
        if isinstance(method, ConnectionClose):
            moved(self, OF_HANDSHAKE, TAKEN_LEAVE)
            return Send(method_frame(0, ConnectionCloseOk()))
        raise ChannelError(
            f"unexpected method in connection state {self.state}", method.ID >> 16, method.ID & 0xFFFF)

    def _start_ok(self, method):
        self.client_properties = method.client_properties
        self.mechanism = method.mechanism
        if method.mechanism == EXTERNAL:
            return self._external()
        credentials = MECHANISMS.get(method.mechanism)
        if credentials is None:
            raise HandshakeError(f"unknown authentication mechanism {method.mechanism!r}")
        username, password = credentials(method.response)
        if password is None:  # treated as a wrong password, as in RabbitMQ
            raise HandshakeError(
                f"{method.mechanism} login with a password that is no string", self.refused()
            )
        return Login(method.mechanism, username, password)

    def _external(self):
        """Return the Login for the certificate's user. Raises HandshakeError if there is none."""
        if self.certified_name is None:
            raise HandshakeError("EXTERNAL login without a verified client certificate", self.refused())
        if not self.certified_name:
            raise HandshakeError(
                "EXTERNAL login: no user name found in the client's certificate", self.refused()
            )
        return Login(EXTERNAL, self.certified_name, None)

    def _tune_ok(self, method):
        frame_max, offered = method.frame_max, self.offered
        if 0 < frame_max < FRAME_MIN_SIZE:
            raise not_negotiated("frame_max", frame_max, "lower than the minimum", FRAME_MIN_SIZE)
        if offered.frame_max and not 0 < frame_max <= offered.frame_max:
            raise not_negotiated("frame_max", frame_max, "higher than the maximum", offered.frame_max)
        if offered.channel_max and not 0 < method.channel_max <= offered.channel_max:
            raise not_negotiated(
                "channel_max", method.channel_max, "higher than the maximum", offered.channel_max
            )
        self.limits = limits_of(method.channel_max, frame_max, method.heartbeat)
        self._reader.frame_max = frame_max
        moved(self, OF_HANDSHAKE, TUNED)

    def _open(self, method):
        return opening(method.virtual_host)


def start_frame(server_properties, offers_external):
    """Return connection.start with the broker's properties and login mechanisms, as bytes."""
    names = [*MECHANISMS, EXTERNAL] if offers_external else list(MECHANISMS)
    return method_frame(0, ConnectionStart(
        version_major=0, version_minor=9, server_properties=server_properties,
        mechanisms=" ".join(names).encode(), locales=LOCALES,
    ))


@lru_cache(8)
def tune_frame(offered):
    """Return connection.tune with the limits ``offered``, as bytes."""
    return method_frame(0, ConnectionTune(
        channel_max=offered.channel_max, frame_max=offered.frame_max, heartbeat=offered.heartbeat_s))


def not_negotiated(name, value, relation, limit):
    """Return the NotAllowed for a value of tune-ok outside the offered limit, with RabbitMQ's text."""
    return NotAllowed(
        f"failed to negotiate connection parameters: negotiated {name} = {value} is {relation} allowed value "
        f"({limit})",
        ConnectionTuneOk.ID >> 16, ConnectionTuneOk.ID & 0xFFFF,
    )


def close_frame(error):
    """Return connection.close with the code and text of ``error``, as bytes."""
    return method_frame(0, ConnectionClose(
        reply_code=error.reply_code, reply_text=error.reply_text, class_id=error.class_id,
        method_id=error.method_id,
    ))


def start_ok(payload):
    """Return the ConnectionStartOk in a method frame's payload. Raises AMQPError, Malformed."""
    # Many clients send the same properties, so these are cached; the password behind them is not.
    end = 8 + int.from_bytes(payload[4:8], "big")
    method = ConnectionStartOk.decode(payload[:4] + EMPTY_TABLE + payload[end:])
    method.client_properties = client_properties_of(payload[4:end])
    return method


@lru_cache(64)
def client_properties_of(octets):
    """Decode the table in these bytes. Connections share the dict; do not change it. Raises Malformed."""
    return decode_table(octets)[0]


def plain_credentials(response):
    """Return (username, password in bytes) of a SASL PLAIN response: NUL, name, NUL, password (RFC 4616). As
    in RabbitMQ, an authorization identity is refused. Raises HandshakeError.
    """
    parts = response.split(b"\0")
    if len(parts) != 3 or parts[0]:
        raise HandshakeError("malformed PLAIN response")
    return parts[1].decode("utf-8", "surrogateescape"), parts[2]


def amqplain_credentials(response):
    """Return (username, password in bytes) of an AMQPLAIN response: a field table with LOGIN and PASSWORD,
    without its size in front. The password is None if it is no string. Raises HandshakeError.
    """
    try:
        table, _ = decode_table(len(response).to_bytes(4, "big") + response)
    except Malformed as error:
        raise HandshakeError("malformed AMQPLAIN response") from error
    username, password = table.get("LOGIN"), table.get("PASSWORD")
    if not isinstance(username, (str, bytes)) or "PASSWORD" not in table:
        raise HandshakeError("AMQPLAIN response without LOGIN and PASSWORD")
    if isinstance(username, bytes):
        username = username.decode("utf-8", "surrogateescape")
    if isinstance(password, str):
        password = password.encode("utf-8", "surrogateescape")
    return username, password if isinstance(password, bytes) else None


# In the order offered, which is RabbitMQ's. Clients that take the first mechanism they know take PLAIN, since
# few know AMQPLAIN.
EXTERNAL = "EXTERNAL"
MECHANISMS = {"AMQPLAIN": amqplain_credentials, "PLAIN": plain_credentials}
EMPTY_TABLE = bytes(4)
# The decoder of the method awaited in each state, the method's id, and its handler.
AWAITED = {
    state: (decode, method.ID.to_bytes(4, "big"), handler) for state, method, decode, handler in (
        (STARTING, ConnectionStartOk, start_ok, Handshake._start_ok),
        (TUNING, ConnectionTuneOk, ConnectionTuneOk.decode, Handshake._tune_ok),
        (OPENING, ConnectionOpen, ConnectionOpen.decode, Handshake._open),
    )
}
NOTHING = (None, None, None)
