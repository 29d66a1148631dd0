"""Connection: frames, channel 0, heartbeats and closing, once it is open."""
import contextlib
import re
import socket
import struct

import pytest

from tests.support.cases import cases
from tests.support.held_up import again_when_held_up
from tests.support.waiting import wait_until
from tests.support.wire_encoding import (
    BODY, HEADER, HEARTBEAT, HEARTBEAT_FRAME, METHOD, METHODS, frame, header_frame, method, method_frame,
    publish_frames)
from tests.support.wire_script import Wire

FROM_SERVER_ON_CHANNEL_0 = (
    "connection.start", "connection.secure", "connection.tune", "connection.open-ok", "connection.blocked",
    "connection.unblocked")
ONCE_ONLY = ("connection.start-ok", "connection.secure-ok", "connection.tune-ok", "connection.open")
# Answers that only a broker may send; basic.deliver, return and get-ok bring content and have their own test.
FROM_SERVER = (
    "channel.open-ok", "channel.flow-ok", "exchange.declare-ok", "exchange.delete-ok", "exchange.bind-ok",
    "exchange.unbind-ok", "queue.declare-ok", "queue.bind-ok", "queue.purge-ok", "queue.delete-ok",
    "queue.unbind-ok",
    "basic.qos-ok", "basic.consume-ok", "basic.cancel-ok", "basic.get-empty", "basic.recover-ok",
    "confirm.select-ok", "tx.select-ok", "tx.commit-ok", "tx.rollback-ok", "access.request-ok")
FRAME_ERROR = re.compile("^FRAME_ERROR - .")
UNEXPECTED_FRAME = re.compile("^UNEXPECTED_FRAME - .")


def deliver_in_pieces(wire, octets, delivery):
    """Send octets whole, octet by octet, or with octets of the next frame behind them:
    the three ways a reader must agree on.
    """
    if delivery == "bytewise":
        # it may have heard enough, and need not wait for a slow sender
        with contextlib.suppress(ConnectionError):
            wire.send_pieces(octets)
    else:
        wire.send(octets + (b"\x01\x00\x01" if delivery == "trailing" else b""))


three_ways = pytest.mark.parametrize("delivery", ["whole", "bytewise", "trailing"])


@three_ways
@cases("octets, code", {
    "frame-end": (method_frame(1, "queue.declare", exclusive=True)[:-1] + b"\x00", 501),
    "frame-end-heartbeat": (HEARTBEAT_FRAME[:-1] + b"\xcf", 501),
    "frame-end-body": (frame(BODY, 1, b"abc")[:-1] + b"\x01", 501),
    "type-4": (frame(4, 1, b"abc"), 501),
    "type-0": (frame(0, 1, b"abc"), 501),
    "type-255": (frame(255, 0, b""), 501),
    "type-4-unopened-channel": (frame(4, 7, b"abc"), 501),
    "empty-method": (frame(METHOD, 1, b""), 501),
    "method-of-2-octets": (frame(METHOD, 0, b"\x00\x0a"), 501),
    "method-of-3-octets": (frame(METHOD, 1, b"\x00\x32\x00"), 501),
    "heartbeat-on-channel-1": (frame(HEARTBEAT, 1, b""), 505),
    "heartbeat-with-payload": (frame(HEARTBEAT, 0, b"abc"), 501),
    "header-on-0": (header_frame(0, 1), 505),
    "body-on-0": (frame(BODY, 0, b"x"), 505),
    "header-of-11-octets": (frame(HEADER, 1, b"\x00" * 11), 501),
    "empty-header-on-0": (frame(HEADER, 0, b""), 501),
    "header-without-method": (header_frame(1, 1), 505),
    "body-without-method": (frame(BODY, 1, b"x"), 505),
    "header-unopened-channel": (header_frame(7, 1), 505),
    "body-unopened-channel": (frame(BODY, 7, b"x"), 505),
})
def test_bad_frame_closes_the_connection(wire, octets, code, delivery):
    wire.channel(1)

    deliver_in_pieces(wire, octets, delivery)

    wire.read_connection_close(code, FRAME_ERROR if code == 501 else UNEXPECTED_FRAME)


@pytest.mark.deviates("RabbitMQ 4.3 takes no frame_max below 8192", of="4.3", cases=("4096-5000",))
@pytest.mark.parametrize(("frame_max", "size"), [
    (131072, 200000), (131072, 2 ** 32 - 1), (131072, 2 ** 31), (4096, 5000)
])
def test_frame_larger_than_frame_max_is_refused_before_its_payload_is_sent(open_wire, frame_max, size):
    wire = open_wire(frame_max=frame_max)
    wire.channel(1)

    wire.send(b"\x03\x00\x01" + size.to_bytes(4, "big"))

    wire.read_connection_close(501, FRAME_ERROR)


def test_socket_is_closed_after_a_frame_error_without_an_answer(wire):
    """Where frames begin is lost, so that close-ok could not be recognised;
    a client must not have to wait for a timeout.
    """
    wire.send(HEARTBEAT_FRAME[:-1] + b"\x00")

    wire.read_connection_close(501, FRAME_ERROR)
    assert wire.expect_end() == b""


@pytest.mark.deviates(
    "RabbitMQ 4.3 takes no frame_max below 8192", of="4.3", cases=("4096-frame", "4096-payload"))
@pytest.mark.parametrize("overhead", [8, 0], ids=["frame", "payload"])
@pytest.mark.parametrize("frame_max", [4096, 131072])
def test_frames_as_large_as_frame_max_are_taken_and_none_larger_is_sent(open_wire, frame_max, overhead):
    """Some clients (AMQPStorm) cut bodies into payloads of frame_max, whose frames are 8 octets too large:
    they pass, as with RabbitMQ.
    """
    wire = open_wire(frame_max=frame_max)
    channel = wire.channel(1)
    queue = channel.declare()
    body = bytes(range(256)) * (frame_max * 3 // 256)

    channel.publish("", queue, body, body_frame_max=frame_max - overhead)
    channel.send("basic.get", queue=queue, no_ack=True)

    channel.expect("basic.get-ok")
    sizes, received = [], b""
    while len(received) < len(body):
        type_, payload = wire.next_of(1)
        sizes.append(len(payload))
        received += payload if type_ == BODY else b""
    assert received == body
    assert max(sizes) <= frame_max - 8


@pytest.mark.parametrize("name", FROM_SERVER_ON_CHANNEL_0 + ONCE_ONLY)
def test_connection_method_out_of_place_closes_the_connection(wire, name):
    wire.send_method(0, name)

    wire.expect_connection_close(504, "CHANNEL_ERROR - unexpected method in connection state running", name)


@pytest.mark.parametrize("name", sorted(name for name in METHODS if not name.startswith("connection.")))
def test_channel_methods_are_refused_on_channel_0(wire, name):
    wire.send_method(0, name)

    wire.expect_connection_close(504, "CHANNEL_ERROR - unexpected method in connection state running", name)


@pytest.mark.parametrize("name", sorted(name for name in METHODS if name.startswith("connection.")))
def test_connection_methods_are_refused_on_other_channels(wire, name):
    wire.channel(1)

    wire.send_method(1, name)

    wire.expect_connection_close(503, "COMMAND_INVALID - unimplemented method", name)


@pytest.mark.deviates("RabbitMQ 4.3 fails at it and says 541", of="4.3", cases=("basic.cancel-ok",))
@pytest.mark.parametrize("name", FROM_SERVER)
def test_methods_of_the_broker_are_refused_from_clients(wire, name):
    wire.channel(1)

    wire.send_method(1, name)

    wire.expect_connection_close(503, "COMMAND_INVALID - unimplemented method", name)


@pytest.mark.parametrize("name", ["basic.deliver", "basic.return", "basic.get-ok"])
def test_content_methods_of_the_broker_are_refused_from_clients(wire, name):
    """RabbitMQ waits for the content and then refuses the method; refusing at once is allowed."""
    wire.channel(1)

    wire.send(method_frame(1, name) + header_frame(1, 0))

    wire.expect_connection_close(503, "COMMAND_INVALID - unimplemented method", name)


@pytest.mark.deviates("RabbitMQ's reader crashes and hangs up without a word; we say 540")
@three_ways
@cases("channel, payload", {
    "class-99": (1, b"\x00\x63\x00\x0a"), "queue.99": (1, b"\x00\x32\x00\x63"),
    "basic.65535": (1, b"\x00\x3c\xff\xff"),
    "class-99-on-0": (0, b"\x00\x63\x00\x0a"), "connection.99": (0, b"\x00\x0a\x00\x63"),
})
def test_unknown_method_closes_the_connection_with_540(wire, channel, payload, delivery):
    wire.channel(1)

    deliver_in_pieces(wire, frame(METHOD, channel, payload), delivery)

    wire.read_connection_close(540, re.compile("^NOT_IMPLEMENTED - ."), struct.unpack(">HH", payload))


def test_unknown_method_ends_the_connection(wire):
    """RabbitMQ hangs up; a broker that says why first waits for the answer."""
    wire.channel(1)

    wire.send(frame(METHOD, 1, b"\x00\x63\x00\x0a") + method_frame(0, "connection.close-ok"))

    wire.expect_end()


@pytest.mark.parametrize("name", ["queue.declare", "basic.ack", "channel.close", "channel.flow", "tx.select"])
def test_methods_of_a_channel_that_is_not_open_close_the_connection(wire, name):
    wire.send_method(7, name)

    wire.expect_connection_close(504, "CHANNEL_ERROR - expected 'channel.open'", name)


def test_publish_on_a_channel_that_is_not_open_closes_the_connection(wire):
    wire.send(publish_frames(7, "", "anywhere", b"x"))

    wire.expect_connection_close(504, "CHANNEL_ERROR - expected 'channel.open'", "basic.publish")


def test_heartbeats_change_nothing(wire):
    channel = wire.channel(1)

    wire.send(HEARTBEAT_FRAME * 5)

    assert channel.declare()


def test_heartbeat_between_the_frames_of_a_content_changes_nothing(channel, wire):
    queue = channel.declare()
    method_, header, body = (
        method_frame(1, "basic.publish", routing_key=queue), header_frame(1, 2), frame(BODY, 1, b"x")
    )

    wire.send(method_ + HEARTBEAT_FRAME + header + HEARTBEAT_FRAME + body + HEARTBEAT_FRAME + body)

    assert channel.get(queue).body == b"xx"


@again_when_held_up(1)
def test_broker_sends_heartbeats_on_an_idle_connection(open_wire):
    wire = open_wire(heartbeat=1)

    assert wire.next_frame(heartbeats=True) == (HEARTBEAT, 0, b"")
    wire.send(HEARTBEAT_FRAME)
    assert wire.next_frame(heartbeats=True) == (HEARTBEAT, 0, b"")


def test_silent_client_is_dropped_after_two_heartbeat_intervals(open_wire):
    """With an interval of 1 s both RabbitMQ and we look every second and give up
    after about two missed ones.
    """
    wire = open_wire(heartbeat=1)

    octets = wire.expect_end()

    beats = len(octets) // 8  # its own, one about every half interval: so the broker is our clock
    assert octets == HEARTBEAT_FRAME * beats and beats < 8


@again_when_held_up(1)
def test_any_traffic_counts_as_a_heartbeat(open_wire):
    wire = open_wire(heartbeat=1)
    channel = wire.channel(1)
    queue = channel.declare()

    for _ in range(5):
        # about every half interval: so the broker is our clock
        assert wire.next_frame(heartbeats=True) == (HEARTBEAT, 0, b"")
        channel.publish("", queue, b"I am here")

    channel.expect_count(queue, 5)


def test_close_is_answered(wire):
    wire.channel(1)

    wire.send_method(0, "connection.close", reply_code=200, reply_text="bye")

    wire.expect(0, "connection.close-ok")


def test_close_is_answered_behind_what_was_asked_before(wire, name):
    channel, other = wire.channel(1), wire.channel(2)
    channel.declare(name, durable=True)

    wire.send(
        method_frame(1, "queue.delete", queue=name) + method_frame(2, "exchange.delete", exchange="nope")
        + method_frame(0, "connection.close", reply_code=200, reply_text="bye"))

    channel.expect("queue.delete-ok")
    other.expect("exchange.delete-ok")
    wire.expect(0, "connection.close-ok")


@pytest.mark.deviates("RabbitMQ leaves it to the client to close the socket")
def test_socket_is_closed_after_close_ok(wire):
    wire.send_method(0, "connection.close", reply_code=200, reply_text="bye")

    wire.expect(0, "connection.close-ok")
    assert wire.expect_end() == b""


def test_text_of_a_close_that_is_no_utf8_is_blamed_on_it(wire):
    wire.send_method(0, "connection.close", reply_code=200, reply_text=b"\xff")

    wire.expect_connection_close(501, "FRAME_ERROR - Malformed UTF-8 in shortstr", "connection.close")


def test_close_in_the_middle_of_a_content_is_answered(wire):
    wire.channel(1)

    wire.send(
        method_frame(1, "basic.publish", routing_key="q") + header_frame(1, 10)
        + method_frame(0, "connection.close", reply_code=200)
    )

    wire.expect(0, "connection.close-ok")


def test_half_closed_socket_ends_the_connection(wire):
    """A client that shuts down its writing side is gone, whatever it may still read."""
    channel = wire.channel(1)
    channel.declare()

    wire.socket.shutdown(socket.SHUT_WR)

    wire.expect_end()


def test_what_is_sent_after_close_is_ignored(wire, open_wire, name):
    channel = wire.channel(1)
    channel.declare(name, durable=True)

    wire.send(method_frame(0, "connection.close", reply_code=200) + publish_frames(1, "", name, b"late"))
    wire.expect(0, "connection.close-ok")

    other = open_wire().channel()
    other.expect_count(name, 0)
    other.call("queue.delete", queue=name)


def test_reset_connection_gives_up_its_exclusive_queues(broker_address, channel, name):
    wire = Wire.open(broker_address)
    wire.channel(1).declare(name)
    wire.socket.setsockopt(socket.SOL_SOCKET, socket.SO_LINGER, b"\x01\x00\x00\x00\x00\x00\x00\x00")

    wire.abort()

    wait_until(lambda: not channel.has_queue(name))


def test_update_secret_of_a_user_with_a_password_changes_nothing(wire):
    wire.send_method(0, "connection.update-secret", new_secret="token", reason="because")

    wire.expect(0, "connection.update-secret-ok")
    wire.channel(1)


def test_header_frame_too_short_for_its_fixed_part_closes_the_connection(wire):
    wire.channel(1)

    wire.send(method_frame(1, "basic.publish", routing_key="q") + frame(HEADER, 1, method("tx.select")))

    wire.expect_connection_close(501, FRAME_ERROR)
