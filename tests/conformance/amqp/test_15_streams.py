"""Streams: queues whose messages stay, and are read from any offset by any number of consumers (https://www.rabbitmq.com/docs/streams)."""
import pytest

from tests.support.cases import cases
from tests.support.streams import STREAM
from tests.support.wire_encoding import field_value, properties, publish_frames

STREAM_OFFSET = "x-stream-offset"


@pytest.fixture
def stream(open_wire, channel, name):
    """The name of a stream that goes with the test; `channel` confirms and has a prefetch of 1000."""
    channel.declare(name, durable=True, arguments=STREAM)
    channel.call("confirm.select")
    channel.call("basic.qos", prefetch_count=1000)
    yield name
    open_wire().channel(1).call("queue.delete", queue=name)


def publish(channel, stream, count, start=0):
    """Publish messages with their offsets as bodies, and wait until they are there."""
    channel.wire.send(b"".join(publish_frames(channel.number, "", stream, str(n)) for n in range(start, start + count)))
    confirmed = 0
    while confirmed < count:
        ack = channel.expect("basic.ack")
        confirmed = confirmed + 1 if not ack.multiple else ack.delivery_tag - start
    return count


def offsets(channel, count):
    """The offsets of the next deliveries, which are acknowledged; each must be the body, too."""
    found = []
    for _ in range(count):
        content = channel.expect_content("basic.deliver")
        assert content.properties["headers"][STREAM_OFFSET] == int(content.body)
        found.append(int(content.body))
        channel.send("basic.ack", delivery_tag=content.method.delivery_tag)
    return found


def expect_silence(channel):
    """Nothing is on its way: the next frame must be the answer to a question."""
    channel.call("basic.qos", prefetch_count=1000)


@cases("offset, first", {
    "first": ("first", 0), "0": (0, 0), "4": (4, 4), "the last": (9, 9),
    "long ago": (field_value("T", 1_500_000_000), 0), "an hour": ("1h", 0), "seven days": ("7D", 0),
})
def test_consumer_begins_where_its_offset_says(channel, stream, offset, first):
    publish(channel, stream, 10)

    channel.consume(stream, arguments={STREAM_OFFSET: offset})

    assert offsets(channel, 10 - first) == list(range(first, 10))


@cases("offset", {"next": "next", "none": None})
def test_consumer_of_what_comes_sees_nothing_older(wire, channel, stream, offset):
    publish(channel, stream, 3)

    channel.consume(stream, arguments={} if offset is None else {STREAM_OFFSET: offset})
    expect_silence(channel)

    other = wire.channel(2)
    other.call("confirm.select")
    other.publish("", stream, b"3")
    assert offsets(channel, 1) == [3]


def test_last_is_the_newest_message(channel, stream):
    """RabbitMQ delivers from the beginning of the last chunk, which is what it happened to write at once."""
    for start in range(3):
        publish(channel, stream, 1, start)

    channel.consume(stream, arguments={STREAM_OFFSET: "last"})

    assert offsets(channel, 1) == [2]


def test_messages_stay_for_every_consumer(channel, stream):
    publish(channel, stream, 5)

    for _ in range(3):
        tag = channel.consume(stream, arguments={STREAM_OFFSET: "first"})
        assert offsets(channel, 5) == [0, 1, 2, 3, 4]
        channel.call("basic.cancel", consumer_tag=tag)
    assert channel.call("queue.declare", queue=stream, passive=True).message_count in (0, 5)  # RabbitMQ counts now and then


def test_headers_of_the_publisher_survive_beside_the_offset(channel, stream):
    sent = properties(content_type="text/plain", headers={"a": 1, "deep": {"b": [True]}}, message_id="m")
    channel.publish("", stream, b"0", sent)
    channel.expect("basic.ack")

    channel.consume(stream, arguments={STREAM_OFFSET: "first"})

    got = channel.expect_content("basic.deliver").properties
    assert got["headers"].pop(STREAM_OFFSET) == 0
    assert got["headers"]["a"] == 1
    assert (got["content_type"], got["message_id"]) == ("text/plain", "m")


# refusals

@cases("flags, wrong", {
    "not durable": ({"durable": False}, "non-durable"), "deletes itself": ({"durable": True, "auto_delete": True}, "auto-delete"),
    "exclusive": ({"durable": True, "exclusive": True}, "non-durable"),
})
def test_streams_are_durable_and_shared(channel, name, flags, wrong):
    channel.send("queue.declare", queue=name, arguments=STREAM, **flags)

    channel.expect_close(406, f"PRECONDITION_FAILED - invalid property '{wrong}' for queue '{name}' in vhost '/'", "queue.declare")


@pytest.mark.parametrize("offset", ["", "xx", "0D", "1x", "-1h", "first "])
def test_text_that_is_no_offset_is_406(channel, stream, offset):
    channel.send("basic.consume", queue=stream, arguments={STREAM_OFFSET: offset})

    text = f"PRECONDITION_FAILED - failed consuming from stream queue '{stream}' in vhost '/': invalid_max_age"
    channel.expect_close(406, text, "basic.consume")


@cases("offset, kind", {"boolean": (True, "bool"), "fraction": (1.5, "double"), "table": ({}, "table"), "void": (None, "void")})
@pytest.mark.deviates("RabbitMQ closes the connection with 541")
def test_value_that_is_no_offset_is_406(channel, stream, offset, kind):
    channel.send("basic.consume", queue=stream, arguments={STREAM_OFFSET: offset})

    text = f"PRECONDITION_FAILED - failed consuming from stream queue '{stream}' in vhost '/': {{invalid_offset_arg,{kind}}}"
    channel.expect_close(406, text, "basic.consume")


def test_consumer_without_a_prefetch_is_406(wire, channel, stream):
    other = wire.channel(2)
    text = f"PRECONDITION_FAILED - consumer prefetch count is not set for stream queue '{stream}' in vhost '/'"

    for _ in range(2):
        other.send("basic.consume", queue=stream)
        other.expect_close(406, text, "basic.consume")
        other.call("basic.qos", prefetch_count=0)


def test_consumer_that_does_not_acknowledge_closes_the_connection_with_540(wire, channel, stream):
    channel.send("basic.consume", queue=stream, no_ack=True)

    text = f"NOT_IMPLEMENTED - automatic acknowledgement not supported by stream queue '{stream}' in vhost '/'"
    wire.expect_connection_close(540, text, "basic.consume")


def test_get_closes_the_connection_with_540(wire, channel, stream):
    channel.send("basic.get", queue=stream)

    text = f"NOT_IMPLEMENTED - basic.get not supported by stream queues queue '{stream}' in vhost '/'"
    wire.expect_connection_close(540, text, "basic.get")
