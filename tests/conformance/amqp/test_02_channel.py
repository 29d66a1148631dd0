"""Channel: opening, closing from both sides, flow, and the order of replies."""
import re

import pytest

from tests.support.cases import cases
from tests.support.wire_encoding import BODY, METHOD, frame, header_frame, method_frame, publish_frames
from tests.support.wire_script import PeerClosed

MISSING = "no.such.queue"


def fail_channel(channel):
    """Make the broker close a channel with 404; its channel.close is read and not answered."""
    channel.send("queue.declare", queue=MISSING, passive=True)
    return channel.expect("channel.close", reply_code=404)


def test_channels_are_opened_in_any_order(wire):
    for number in (7, 1, 2047):
        wire.channel(number)


def test_channel_open_twice_closes_the_connection(channel, wire):
    channel.send("channel.open")

    wire.expect_connection_close(504, "CHANNEL_ERROR - second 'channel.open' seen", "channel.open")


def test_more_channels_than_channel_max_close_the_connection(open_wire):
    wire = open_wire(channel_max=5)
    for number in range(1, 6):
        wire.channel(number)

    wire.send_method(6, "channel.open")

    close = wire.expect(0, "connection.close", reply_code=530)
    assert close.reply_text.startswith("NOT_ALLOWED - ")


@pytest.mark.parametrize("number", [6, 65535])
def test_any_channel_number_may_be_opened_while_fewer_than_channel_max_are(open_wire, number):
    """As in RabbitMQ, which counts; the protocol's words can be read as a limit of the number itself."""
    wire = open_wire(channel_max=5)

    wire.channel(number)

    assert wire.channel(2).declare()


def test_closed_channel_number_may_be_used_again(wire):
    for _ in range(3):
        channel = wire.channel(5)
        assert channel.declare()
        channel.send("channel.close", reply_code=200, reply_text="done")
        channel.expect("channel.close-ok")


def test_closing_many_channels_many_times_leaves_room(open_wire):
    wire = open_wire(channel_max=2)

    for _ in range(50):
        wire.channel(1)
        wire.channel(2)
        for number in (1, 2):
            wire.send_method(number, "channel.close")
            wire.expect(number, "channel.close-ok")


def test_error_closes_the_channel_and_not_the_connection(wire, channel):
    other = wire.channel(2)

    channel.send("queue.declare", queue=MISSING, passive=True)

    channel.expect_close(404, f"NOT_FOUND - no queue '{MISSING}' in vhost '/'", "queue.declare")
    assert other.declare()


def test_everything_after_an_error_is_ignored_until_close_ok(channel, name):
    fail_channel(channel)

    channel.send("queue.declare", queue=name, exclusive=True)
    channel.publish("", MISSING, b"lost", mandatory=True)
    channel.send("channel.close-ok")
    channel.call("channel.open")

    channel.send("queue.declare", queue=name, passive=True)
    channel.expect_close(404, f"NOT_FOUND - no queue '{name}' in vhost '/'", "queue.declare")


def test_close_crossing_with_an_error_is_answered(channel):
    fail_channel(channel)

    channel.send("channel.close", reply_code=200)

    channel.expect("channel.close-ok")
    channel.send("channel.close-ok")
    channel.call("channel.open")
    assert channel.declare()


def test_open_before_close_ok_closes_the_connection(channel, wire):
    fail_channel(channel)

    channel.send("channel.open")

    wire.expect_connection_close(504, "CHANNEL_ERROR - second 'channel.open' seen", "channel.open")


@pytest.mark.deviates("RabbitMQ decodes what it drops, and waits for the rest of a content")
@cases("octets", {
    "cut": frame(METHOD, 1, b"\x00\x32\x00\x0a\x00"), "unknown": frame(METHOD, 1, b"\x00\x63\x00\x0a"),
    "body": frame(BODY, 1, b"x"),
    "half-a-publish": (
        method_frame(1, "basic.publish", routing_key="q") + header_frame(1, 5) + frame(BODY, 1, b"x")
    ),
})
def test_what_is_dropped_after_an_error_is_not_looked_at(channel, wire, octets):
    fail_channel(channel)

    wire.send(octets)

    channel.send("channel.close-ok")
    channel.call("channel.open")
    assert channel.declare()


def test_pipelined_requests_are_answered_in_order(channel, wire):
    wire.send(
        b"".join(method_frame(1, "queue.declare", queue=f"order-{n}", exclusive=True) for n in range(50))
    )

    assert [channel.expect("queue.declare-ok").queue for _ in range(50)] == [f"order-{n}" for n in range(50)]


def test_error_in_a_pipeline_stops_what_follows_it(channel, wire, name):
    declare = method_frame(1, "queue.declare", queue=name, exclusive=True)
    failing = method_frame(1, "queue.declare", queue=MISSING, passive=True)

    wire.send(failing + declare)

    channel.expect_close(404, f"NOT_FOUND - no queue '{MISSING}' in vhost '/'", "queue.declare")
    channel.send("queue.declare", queue=name, passive=True)
    channel.expect_close(404, f"NOT_FOUND - no queue '{name}' in vhost '/'", "queue.declare")


def test_channels_do_not_share_what_is_in_flight(wire):
    """Contents of two channels may be interleaved frame by frame."""
    one, two = wire.channel(1), wire.channel(2)
    queues = one.declare(), two.declare()
    publishes = [method_frame(n, "basic.publish", routing_key=queue) for n, queue in zip((1, 2), queues)]

    wire.send(b"".join(publishes) + header_frame(1, 4) + header_frame(2, 6))
    wire.send(frame(BODY, 1, b"on") + frame(BODY, 2, b"two") + frame(BODY, 1, b"e!") + frame(BODY, 2, b"two"))

    assert one.get(queues[0]).body == b"one!"
    assert two.get(queues[1]).body == b"twotwo"


def test_close_in_the_middle_of_a_content_closes_the_connection(channel, wire):
    """AMQP 0-9-1 §4.2.6: the frames of a content belong together;
    RabbitMQ allows nothing between them, not even close.
    """
    wire.send(
        method_frame(1, "basic.publish", routing_key="q") + method_frame(1, "channel.close", reply_code=200)
    )

    wire.expect_connection_close(
        505, re.compile("^UNEXPECTED_FRAME - expected content header for class 60, got non content header"),
        "basic.publish",
    )


def test_flow_on_is_answered(channel):
    channel.send("channel.flow", active=True)

    channel.expect("channel.flow-ok", active=True)


def test_flow_off_closes_the_connection_with_540(channel, wire):
    channel.send("channel.flow", active=False)

    wire.expect_connection_close(540, "NOT_IMPLEMENTED - active=false", "channel.flow")


def test_access_request_is_granted(channel):
    """Obsolete since AMQP 0-9-1, answered for old clients."""
    channel.send("access.request", realm="/data", active=True, write=True, read=True)

    channel.expect("access.request-ok", ticket=1)


def test_closing_a_channel_requeues_what_it_has_not_acked(wire, channel):
    queue = channel.declare()
    other = wire.channel(2)
    other.publish("", queue, b"one")
    assert other.get(queue, no_ack=False).method.redelivered is False

    other.send("channel.close", reply_code=200)
    other.expect("channel.close-ok")

    channel.expect_count(queue, 1)
    assert channel.get(queue).method.redelivered is True


def test_error_on_a_channel_requeues_what_it_has_not_acked(wire, channel):
    queue = channel.declare()
    other = wire.channel(2)
    other.publish("", queue, b"one")
    other.get(queue, no_ack=False)

    fail_channel(other)
    other.send("channel.close-ok")

    channel.expect_count(queue, 1)


def test_hundred_channels_publish_and_get(wire):
    channels = [wire.channel(number) for number in range(1, 101)]
    queue = channels[0].declare()

    wire.send(
        b"".join(publish_frames(channel.number, "", queue, str(channel.number)) for channel in channels)
    )

    channels[0].expect_count(queue, 100)
    assert sorted(int(channel.get(queue).body) for channel in channels) == list(range(1, 101))


def test_a_channel_left_open_does_not_outlive_its_connection(open_wire, name):
    wire = open_wire()
    wire.channel(1).declare(name, durable=True)
    other = wire.channel(2)
    other.publish("", name, b"one")
    other.get(name, no_ack=False)
    wire.abort()

    channel = open_wire().channel()
    channel.expect_count(name, 1)
    with pytest.raises((PeerClosed, OSError)):
        wire.next_frame()
    channel.call("queue.delete", queue=name)
