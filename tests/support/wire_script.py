"""Wire script: a raw AMQP 0-9-1 peer that makes conformance tests short.

Above wire_encoding, over a plain blocking socket. `send` writes octets as they are, `call` sends a request
and returns its -ok, `expect` reads the next frame of a channel and compares the fields that are named: those
not named are wildcards. AMQP orders frames per channel only, so frames of other channels are kept for their
own expectation. Every wait has a deadline; a peer that closes when something else is expected is a failure
that shows it.
"""
import socket
import struct
import time
from collections import deque
from dataclasses import dataclass

from tests.support import wire_encoding as encoding
from tests.support.waiting import in_time, wait_until
from tests.support.wire_encoding import (
    BODY, HEADER, HEARTBEAT, METHOD, PROTOCOL_HEADER, frame, method_frame, publish_frames,
)

# RabbitMQ waits three seconds before it closes a handshake that failed (rabbit_reader's SILENT_CLOSE_DELAY).
PATIENCE_S = in_time(30)
CAPABILITIES = dict.fromkeys(
    (
        "authentication_failure_close", "basic.nack", "connection.blocked", "consumer_cancel_notify",
        "publisher_confirms",
    ),
    True)


class PeerClosed(Exception):
    """The peer closed or reset the connection."""


@dataclass
class Content:
    """A method with its content: the property octets as they came, and the body."""

    method: encoding.Method
    property_octets: bytes
    body: bytes

    @property
    def properties(self):
        """The properties present, decoded."""
        return encoding.decode_properties(self.property_octets)


class Wire:
    """One connection. `connect` only opens the socket; `open` goes through the handshake as well."""

    # What compares these octets; PropertyOctets and FieldOctets for a broker that sorts headers.
    as_properties = as_field = bytes

    def __init__(self, connection):
        self.socket = connection
        self.received = bytearray()
        self.waiting = deque()

    @classmethod
    def connect(cls, address, receive_buffer_bytes=0):
        """A socket to `address` (host, port), nothing sent yet."""
        connection = socket.socket()
        if receive_buffer_bytes:
            connection.setsockopt(socket.SOL_SOCKET, socket.SO_RCVBUF, receive_buffer_bytes)
        connection.settimeout(PATIENCE_S)
        connection.connect(address)
        connection.setsockopt(socket.IPPROTO_TCP, socket.TCP_NODELAY, 1)
        return cls(connection)

    @classmethod
    def open(cls, address, virtual_host="/", capabilities=None, receive_buffer_bytes=0, **login):
        """A connection past open-ok. `login`: user, password, channel_max, frame_max, heartbeat."""
        wire = cls.connect(address, receive_buffer_bytes)
        wire.login(capabilities=capabilities, **login)
        wire.send_method(0, "connection.open", virtual_host=virtual_host)
        wire.expect(0, "connection.open-ok")
        return wire

    def login(
        self, user="guest", password="guest", channel_max=0, frame_max=131072, heartbeat=0, capabilities=None
    ):
        """Everything up to tune-ok; returns what the broker offered in tune."""
        self.send(PROTOCOL_HEADER)
        self.expect(0, "connection.start")
        client_properties = {
            "product": "wire script", "capabilities": CAPABILITIES if capabilities is None else capabilities
        }
        response = b"\x00" + encoding.as_octets(user) + b"\x00" + encoding.as_octets(password)
        self.send_method(
            0, "connection.start-ok", client_properties=client_properties, mechanism="PLAIN",
            response=response, locale="en_US",
        )
        tune = self.expect(0, "connection.tune")
        self.send_method(
            0, "connection.tune-ok", channel_max=channel_max or tune.channel_max, frame_max=frame_max,
            heartbeat=heartbeat,
        )
        return tune

    def channel(self, number=1):
        """Open a channel and return it."""
        self.send_method(number, "channel.open")
        self.expect(number, "channel.open-ok")
        return Channel(self, number)

    def send(self, octets):
        """Write octets as they are."""
        self.socket.settimeout(PATIENCE_S)  # and not what was left of it for the last read
        self.socket.sendall(octets)

    def send_pieces(self, octets, size=1):
        """Write octets in pieces of `size`, each in a segment of its own as far as TCP lets us."""
        for start in range(0, len(octets), size):
            self.send(octets[start:start + size])

    def send_method(self, channel, name, **values):
        """Write one method frame."""
        self.send(method_frame(channel, name, **values))

    def next_frame(self, heartbeats=False, timeout_s=PATIENCE_S):
        """The next frame as (type, channel, payload).

        Raises PeerClosed at the end of the connection, TimeoutError at the deadline.
        """
        deadline = time.monotonic() + timeout_s
        while True:
            if len(self.received) >= 7:
                type_, channel, size = struct.unpack_from(">BHI", self.received)
                if len(self.received) >= size + 8:
                    payload = bytes(self.received[7:size + 7])
                    assert self.received[size + 7] == 0xCE, f"frame end is {self.received[size + 7]:#x}"
                    del self.received[:size + 8]
                    if type_ == HEARTBEAT and not heartbeats:
                        continue
                    return type_, channel, payload
            self.receive(deadline)

    def receive(self, deadline):
        """Read what there is, at least one octet."""
        self.socket.settimeout(max(deadline - time.monotonic(), 0.001))
        try:
            octets = self.socket.recv(65536)
        except ConnectionResetError:
            raise PeerClosed(f"reset; unread: {bytes(self.received)!r}") from None
        if not octets:
            raise PeerClosed(f"closed; unread: {bytes(self.received)!r}")
        self.received += octets

    def next_of(self, channel, timeout_s=PATIENCE_S):
        """The next frame of one channel as (type, payload); frames of other channels wait for their turn.

        A closing connection fails at once.
        """
        for index, (type_, number, payload) in enumerate(self.waiting):
            if number == channel:
                del self.waiting[index]
                return type_, payload
        deadline = time.monotonic() + timeout_s
        while True:
            type_, number, payload = self.next_frame(timeout_s=deadline - time.monotonic())
            if number == channel:
                return type_, payload
            if number == 0 and type_ == METHOD:
                raise AssertionError(
                    f"channel {channel} was awaited, but {encoding.decode_method(payload)} came on channel 0"
                )
            self.waiting.append((type_, number, payload))

    def next_method(self, channel, timeout_s=PATIENCE_S):
        """The next frame of a channel, which must be a method."""
        type_, payload = self.next_of(channel, timeout_s)
        assert type_ == METHOD, f"a method was awaited, but frame type {type_} came: {payload!r}"
        return encoding.decode_method(payload)

    def expect(self, channel, name, timeout_s=PATIENCE_S, **values):
        """The next frame of a channel must be this method with these values."""
        method = self.next_method(channel, timeout_s)
        assert method.name == name, f"{name} was awaited, but {method} came"
        found = {field: method.fields[field] for field in values}
        assert found == values, f"{name} with {values} was awaited, but {method} came"
        return method

    def expect_content(self, channel, name, body=None, timeout_s=PATIENCE_S, **values):
        """The next frames of a channel must be this method with its content."""
        method = self.expect(channel, name, timeout_s, **values)
        type_, payload = self.next_of(channel, timeout_s)
        assert type_ == HEADER, f"a content header was awaited, but frame type {type_} came"
        class_id, weight, body_size = struct.unpack_from(">HHQ", payload)
        assert (class_id, weight) == (60, 0)
        octets = bytearray()
        while len(octets) < body_size:
            type_, part = self.next_of(channel, timeout_s)
            assert type_ == BODY and part, (
                f"a body frame was awaited, but frame type {type_} with {len(part)} octets came"
            )
            octets += part
        assert len(octets) == body_size
        if body is not None:
            assert bytes(octets) == encoding.as_octets(body)
        return Content(method, self.as_properties(payload[12:]), bytes(octets))

    def read_connection_close(self, code, text, failing="", timeout_s=PATIENCE_S):
        """connection.close with this code, text and failing method (a name or two numbers) must come; frames
        of channels before it are skipped.
        """
        channel = None
        while channel != 0:
            type_, channel, payload = self.next_frame(timeout_s=timeout_s)
        assert type_ == METHOD
        close = encoding.decode_method(payload)
        assert close.name == "connection.close", f"connection.close was awaited, but {close} came"
        assert_close(close, code, text, failing)

    def expect_connection_close(self, code, text, failing="", timeout_s=PATIENCE_S):
        """As read_connection_close; the close is answered then, and the peer must hang up."""
        self.read_connection_close(code, text, failing, timeout_s)
        self.send_method(0, "connection.close-ok")
        self.expect_end(timeout_s)

    def expect_end(self, timeout_s=PATIENCE_S):
        """The peer must close the socket, saying nothing more that matters;
        returns the octets that still came.
        """
        deadline = time.monotonic() + timeout_s
        try:
            while True:
                self.receive(deadline)
        except PeerClosed:
            return bytes(self.received)

    def close(self):
        """Close in order, as a polite client does; a connection that is already gone is fine."""
        try:
            self.send_method(0, "connection.close", reply_code=200, reply_text="bye")
            while self.next_frame() != (METHOD, 0, encoding.method("connection.close-ok")):
                pass
        except (OSError, PeerClosed, AssertionError):
            pass
        self.abort()

    def abort(self):
        """Drop the socket."""
        self.socket.close()


class Channel:
    """One channel of a Wire, so that tests need not repeat its number."""

    def __init__(self, wire, number):
        self.wire = wire
        self.number = number

    def send(self, name, **values):
        """Write one method."""
        self.wire.send_method(self.number, name, **values)

    def send_payload(self, payload):
        """Write a method frame with this payload, good or bad."""
        self.wire.send(frame(METHOD, self.number, payload))

    def call(self, name, **values):
        """Write one method and expect its -ok."""
        self.send(name, **values)
        return self.expect(name + "-ok")

    def expect(self, name, **values):
        """The next frame of this channel must be this method with these values."""
        return self.wire.expect(self.number, name, **values)

    def expect_content(self, name, body=None, **values):
        """The next frames of this channel must be this method with its content."""
        return self.wire.expect_content(self.number, name, body, **values)

    def expect_close(self, code, text, failing=""):
        """channel.close with this code, text and failing method must come;
        it is answered, and the connection must still be usable.
        """
        close = self.expect("channel.close")
        assert_close(close, code, text, failing)
        self.send("channel.close-ok")
        self.call("channel.open")
        return close

    def publish(self, exchange, routing_key, body=b"", property_octets=b"\x00\x00", **flags):
        """Write one publish with its content."""
        self.wire.send(publish_frames(self.number, exchange, routing_key, body, property_octets, **flags))

    def declare(self, queue="", **values):
        """Declare a queue and return its name.

        Exclusive unless something else is said, so that it goes with the test's connection.
        """
        values.setdefault("exclusive", not (values.get("durable") or values.get("auto_delete")))
        return self.call("queue.declare", queue=queue, **values).queue

    def has_queue(self, queue):
        """Whether a queue is there, somebody's exclusive one included."""
        self.send("queue.declare", queue=queue, passive=True)
        answer = self.wire.next_method(self.number)
        if answer.name == "queue.declare-ok":
            return True
        assert answer.name == "channel.close"
        self.send("channel.close-ok")
        self.call("channel.open")
        return answer.reply_code != 404

    def expect_count(self, queue, count):
        """A queue must have `count` ready messages, soon: RabbitMQ answers the question before it looks at
        what was published earlier.
        """
        def counted():
            return self.call("queue.declare", queue=queue, passive=True).message_count
        wait_until(lambda: counted() == count, what=f"{count} messages in {queue}")
        assert counted() == count

    def consume(self, queue, **values):
        """Start a consumer and return its tag."""
        return self.call("basic.consume", queue=queue, **values).consumer_tag

    def get(self, queue, no_ack=True):
        """The oldest message of a queue as Content, or None."""
        self.send("basic.get", queue=queue, no_ack=no_ack)
        type_, payload = self.wire.next_of(self.number)
        self.wire.waiting.appendleft((type_, self.number, payload))
        if type_ == METHOD and encoding.decode_method(payload).name == "basic.get-empty":
            self.expect("basic.get-empty")
            return None
        return self.expect_content("basic.get-ok")


def assert_close(close, code, text, failing):
    """Compare a close method with what is due; `text` may be a compiled pattern."""
    numbers = encoding.METHODS[failing][:2] if isinstance(failing, str) and failing else failing or (0, 0)
    assert close.reply_code == code, f"{code} {text!r} was awaited, but {close} came"
    if hasattr(text, "search"):
        assert text.search(close.reply_text), f"{text.pattern!r} was awaited, but {close.reply_text!r} came"
    else:
        assert close.reply_text == text
    assert (close.failing_class, close.failing_method) == numbers, (
        f"{failing} was to be blamed, but {close} came"
    )
