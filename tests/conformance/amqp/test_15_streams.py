"""Streams: queues whose messages stay, and are read from any offset by any number of consumers
(https://www.rabbitmq.com/docs/streams).
"""
import pytest

from tests.support.cases import cases
from tests.support.streams import STREAM
from tests.support.wire_encoding import BODY, field_value, properties, publish_frames

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
    channel.wire.send(
        b"".join(publish_frames(channel.number, "", stream, str(n)) for n in range(start, start + count))
    )
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
    # RabbitMQ counts now and then
    assert channel.call("queue.declare", queue=stream, passive=True).message_count in (0, 5)


def test_headers_of_the_publisher_survive_beside_the_offset(channel, stream):
    sent = properties(content_type="text/plain", headers={"a": 1, "deep": {"b": [True]}}, message_id="m")
    channel.publish("", stream, b"0", sent)
    channel.expect("basic.ack")

    channel.consume(stream, arguments={STREAM_OFFSET: "first"})

    got = channel.expect_content("basic.deliver").properties
    assert got["headers"].pop(STREAM_OFFSET) == 0
    assert got["headers"]["a"] == 1
    assert (got["content_type"], got["message_id"]) == ("text/plain", "m")


@pytest.mark.deviates("RabbitMQ 3.10 puts a second x-stream-offset beside the first", of="3.10")
def test_offset_of_an_earlier_stream_gives_way(channel, stream):
    sent = properties(headers={"a": "b", STREAM_OFFSET: 77, "c": 1})
    channel.publish("", stream, b"0", sent)
    channel.expect("basic.ack")

    channel.consume(stream, arguments={STREAM_OFFSET: "first"})

    assert channel.expect_content("basic.deliver").properties["headers"] == {
        "a": "b", "c": 1, STREAM_OFFSET: 0
    }


@cases("size", {"frame": 131064, "two frames": 131065, "large": 300_000})
def test_body_of_any_size_comes_back(channel, stream, size):
    channel.publish("", stream, bytes(size))
    channel.expect("basic.ack")

    channel.consume(stream, arguments={STREAM_OFFSET: "first"})

    content = channel.expect_content("basic.deliver")
    assert content.body == bytes(size) and content.properties["headers"] == {STREAM_OFFSET: 0}


def test_properties_that_fill_a_frame_leave_no_room_for_the_offset(channel, stream):
    sent = properties(headers={"a": "x" * (131072 - 8 - 12 - 2 - 4 - 7)})
    channel.publish("", stream, b"0", sent)
    channel.expect("basic.ack")

    channel.consume(stream, arguments={STREAM_OFFSET: "first"})

    headers = channel.expect_content("basic.deliver", b"0").properties["headers"]
    assert set(headers) <= {"a", STREAM_OFFSET}


@pytest.mark.deviates("RabbitMQ delivers a chunk at a time, beyond the prefetch where it is larger")
def test_prefetch_bounds_what_is_unacked_and_acks_give_credit(channel, stream):
    publish(channel, stream, 10)
    channel.call("basic.qos", prefetch_count=3)
    channel.consume(stream, arguments={STREAM_OFFSET: "first"})

    held = [channel.expect_content("basic.deliver") for _ in range(3)]
    expect_silence(channel)
    channel.send("basic.ack", delivery_tag=held[1].method.delivery_tag, multiple=True)

    assert [int(channel.expect_content("basic.deliver").body) for _ in range(2)] == [3, 4]
    expect_silence(channel)


@pytest.mark.deviates("RabbitMQ 3.10 closes the connection with 540", of="3.10")
@cases("refuse", {
    "nack with requeue": ("basic.nack", True), "nack": ("basic.nack", False),
    "reject with requeue": ("basic.reject", True),
    "reject": ("basic.reject", False),
})
def test_refused_messages_only_give_credit(channel, stream, refuse):
    publish(channel, stream, 3)
    channel.call("basic.qos", prefetch_count=1)
    channel.consume(stream, arguments={STREAM_OFFSET: "first"})

    for number in range(3):
        content = channel.expect_content("basic.deliver")
        assert (int(content.body), content.method.redelivered) == (number, False)
        channel.send(refuse[0], delivery_tag=content.method.delivery_tag, requeue=refuse[1])
    expect_silence(channel)


@pytest.mark.deviates("RabbitMQ takes no negative numbers")
@cases("offset, first", {
    "the newest": (-1, 9), "the newest four": (-4, 6), "all": (-10, 0), "more than there are": (-11, 0)
})
def test_negative_offset_counts_from_the_end(channel, stream, offset, first):
    publish(channel, stream, 10)

    channel.consume(stream, arguments={STREAM_OFFSET: offset})

    assert offsets(channel, 10 - first) == list(range(first, 10))


def test_offset_that_has_not_come_yet_is_waited_for(channel, stream):
    publish(channel, stream, 2)
    channel.consume(stream, arguments={STREAM_OFFSET: 4})
    expect_silence(channel)

    for number in range(2, 6):
        channel.publish("", stream, str(number))
    found = []
    while len(found) < 2:
        if channel.wire.next_of(channel.number)[0] == BODY:
            found.append(True)
    assert len(found) == 2


@pytest.mark.deviates("RabbitMQ stores no positions for AMQP 0-9-1 consumers")
def test_named_consumer_goes_on_where_it_left(wire, channel, stream):
    publish(channel, stream, 10)
    tracked = {STREAM_OFFSET: "first", "x-stream-automatic-offset-tracking": True}
    channel.consume(stream, consumer_tag="joe", arguments=tracked)
    assert offsets(channel, 4) == [0, 1, 2, 3]
    for _ in range(6):
        channel.expect_content("basic.deliver")
    channel.call("basic.cancel", consumer_tag="joe")

    channel.call("channel.close", reply_code=200)
    channel.call("channel.open")
    channel.call("basic.qos", prefetch_count=1000)
    channel.consume(stream, consumer_tag="joe")

    assert offsets(channel, 6) == [4, 5, 6, 7, 8, 9]


@pytest.mark.deviates("RabbitMQ stores no positions for AMQP 0-9-1 consumers")
def test_position_is_that_of_the_oldest_message_not_settled(wire, channel, stream):
    publish(channel, stream, 10)
    channel.consume(
        stream, consumer_tag="joe",
        arguments={STREAM_OFFSET: "first", "x-stream-automatic-offset-tracking": "true"},
    )
    tags = [channel.expect_content("basic.deliver").method.delivery_tag for _ in range(10)]
    for index in (0, 1, 3, 7):
        channel.send("basic.ack", delivery_tag=tags[index])
    channel.call("channel.close", reply_code=200)

    channel.call("channel.open")
    channel.call("basic.qos", prefetch_count=1000)
    channel.consume(stream, consumer_tag="joe")

    assert offsets(channel, 8) == list(range(2, 10))


@pytest.mark.deviates("RabbitMQ stores no positions for AMQP 0-9-1 consumers")
@cases("tag, arguments", {
    "made by the broker": ("", {}), "with an offset": ("joe", {STREAM_OFFSET: "next"}),
    "not wanted": ("joe", {"x-stream-automatic-offset-tracking": False}),
})
def test_consumer_without_tracking_begins_where_it_says(channel, stream, tag, arguments):
    for number in range(2):
        consumer = channel.consume(stream, consumer_tag=tag, arguments=arguments)
        channel.publish("", stream, str(number))
        found = channel.wire.next_method(channel.number)
        if found.name == "basic.ack":
            content = channel.expect_content("basic.deliver", str(number).encode())
            channel.send("basic.ack", delivery_tag=content.method.delivery_tag)
        else:
            while channel.wire.next_of(channel.number)[0] != BODY:
                pass
            channel.expect("basic.ack")
        channel.call("basic.cancel", consumer_tag=consumer)


@pytest.mark.deviates("RabbitMQ filters whole chunks, and leaves the rest to clients")
@cases("arguments, wanted", {
    "a value": ({"x-stream-filter": "eu"}, [0, 2, 4]),
    "values": ({"x-stream-filter": ["eu", "us"]}, [0, 1, 2, 3, 4, 5]),
    "and those without": ({"x-stream-filter": "eu", "x-stream-match-unfiltered": True}, [0, 2, 4, 6, 7]),
    "a header": ({"x-stream-filter": {"n": 3}}, [3]),
    "a place": (
        {"x-stream-filter": {"geo-bbox": {"min_lat": 0, "max_lat": 2, "min_lon": 0, "max_lon": 9}}}, [0, 1, 2]
    ),
})
def test_filter_delivers_what_is_wanted(channel, stream, arguments, wanted):
    for number in range(8):
        headers = {"n": number, "x-geo-lat": number, "x-geo-lon": 5}
        if number < 6:
            headers["x-stream-filter-value"] = "us" if number % 2 else "eu"
        channel.publish("", stream, str(number), properties(headers=headers))
        channel.expect("basic.ack")

    channel.consume(stream, arguments={STREAM_OFFSET: "first", **arguments})

    assert offsets(channel, len(wanted)) == wanted
    expect_silence(channel)


@pytest.mark.deviates("RabbitMQ has no such argument")
def test_prefetch_in_octets_holds_beside_the_count(channel, stream):
    for _ in range(6):
        channel.publish("", stream, b"0" * 100)
        channel.expect("basic.ack")
    channel.consume(stream, arguments={STREAM_OFFSET: "first", "x-stream-prefetch-bytes": 250})

    tags = [channel.expect_content("basic.deliver").method.delivery_tag for _ in range(3)]
    expect_silence(channel)
    channel.send("basic.ack", delivery_tag=tags[0])
    channel.expect_content("basic.deliver")
    expect_silence(channel)


@pytest.mark.deviates("a single active consumer is a feature of RabbitMQ's stream protocol")
def test_single_active_consumer_is_followed_by_the_next_where_it_stopped(wire, channel, name):
    channel.declare(name, durable=True, arguments={**STREAM, "x-single-active-consumer": True})
    channel.call("basic.qos", prefetch_count=1000)
    standby = wire.channel(2)
    standby.call("basic.qos", prefetch_count=1000)
    channel.consume(name, consumer_tag="worker")
    standby.consume(name, consumer_tag="worker")
    for number in range(4):
        channel.publish("", name, str(number))

    held = []
    while len(held) < 4:
        kind, payload = wire.next_of(1)
        if kind == BODY:
            held.append(int(payload))
    channel.send("basic.ack", delivery_tag=2, multiple=True)
    channel.call("basic.cancel", consumer_tag="worker")

    assert offsets(standby, 2) == [2, 3]
    channel.call("queue.delete", queue=name)


@pytest.mark.deviates("RabbitMQ does not purge streams")
def test_purge_drops_what_is_there_and_offsets_go_on(channel, stream):
    publish(channel, stream, 5)

    assert channel.call("queue.purge", queue=stream).message_count == 5

    publish(channel, stream, 2, start=5)
    channel.consume(stream, arguments={STREAM_OFFSET: 0})
    assert offsets(channel, 2) == [5, 6]


def test_deleted_stream_cancels_its_consumers(open_wire, name):
    channel = open_wire(capabilities={"consumer_cancel_notify": True}).channel(1)
    channel.declare(name, durable=True, arguments=STREAM)
    channel.call("basic.qos", prefetch_count=10)
    channel.consume(name, consumer_tag="joe")

    channel.call("queue.delete", queue=name)

    channel.expect("basic.cancel", consumer_tag="joe")


# refusals

def test_exclusive_consumer_excludes_nobody(wire, channel, stream):
    """Readers take nothing from each other."""
    channel.call("basic.consume", queue=stream, consumer_tag="one", exclusive=True)
    channel.call("basic.consume", queue=stream, consumer_tag="two", exclusive=True)
    other = wire.channel(2)  # whose confirm does not come between
    other.publish("", stream, b"both")

    assert {channel.expect_content("basic.deliver", b"both").method.consumer_tag for _ in range(2)} == {
        "one", "two"
    }


@pytest.mark.deviates("RabbitMQ 4.3 takes it for one of each consumer", of="4.3")
def test_global_prefetch_closes_the_connection_with_540(wire, channel, stream):
    channel.call("basic.qos", prefetch_count=10, global_=True)
    channel.send("basic.consume", queue=stream)

    wire.expect_connection_close(
        540, f"NOT_IMPLEMENTED - queue '{stream}' in vhost '/' does not support global qos", "basic.consume"
    )


@pytest.mark.deviates("RabbitMQ ignores what it does not understand")
@cases("argument, value, text", {
    "no filter": (
        "x-stream-filter", 5,
        "failed consuming from stream {}: x-stream-filter must be a text, a table, or an array of these",
    ),
    "empty filter": ("x-stream-filter", [], "failed consuming from stream {}: x-stream-filter is empty"),
    "match": (
        "x-stream-match-unfiltered", "yes",
        "failed consuming from stream {}: x-stream-match-unfiltered must be a boolean",
    ),
    "type": (
        "x-filter-match-type", "some",
        "failed consuming from stream {}: x-filter-match-type must be 'all' or 'any'",
    ),
    "geography": (
        "x-stream-filter", {"geo-bbox": {}}, "failed consuming from stream {}: geo-bbox: min_lat is missing"
    ),
    "tracking": (
        "x-stream-automatic-offset-tracking", 5,
        "invalid arg 'x-stream-automatic-offset-tracking' for {}: {{unacceptable_type,signedint}}",
    ),
    "octets": (
        "x-stream-prefetch-bytes", "5",
        "invalid arg 'x-stream-prefetch-bytes' for {}: \"expected integer, got longstr\"",
    ),
    "negative": (
        "x-stream-prefetch-bytes", -1, "invalid arg 'x-stream-prefetch-bytes' for {}: {{value_negative,-1}}"
    ),
})
def test_bad_consumer_argument_is_406(channel, stream, argument, value, text):
    channel.send("basic.consume", queue=stream, arguments={argument: value})

    channel.expect_close(
        406, "PRECONDITION_FAILED - " + text.format(f"queue '{stream}' in vhost '/'"), "basic.consume"
    )


@cases("flags, wrong", {
    "not durable": ({"durable": False}, "non-durable"),
    "deletes itself": ({"durable": True, "auto_delete": True}, "auto-delete"),
})
def test_streams_are_durable_and_shared(channel, name, flags, wrong):
    refused_declare(channel, name, flags, wrong)


@pytest.mark.deviates("RabbitMQ 3.10 calls it non-durable", of="3.10")
@pytest.mark.parametrize("durable", [True, False])
def test_exclusive_stream_is_406(channel, name, durable):
    refused_declare(channel, name, {"durable": durable, "exclusive": True}, "exclusive-owner")


def refused_declare(channel, name, flags, wrong):
    channel.send("queue.declare", queue=name, arguments=STREAM, **flags)

    channel.expect_close(
        406, f"PRECONDITION_FAILED - invalid property '{wrong}' for queue '{name}' in vhost '/'",
        "queue.declare",
    )


@pytest.mark.deviates(
    "RabbitMQ names another error, or (3.10) closes the connection with 541; the text is that of 4.0"
)
@pytest.mark.parametrize("offset", ["", "xx", "0D", "1x", "-1h", "first "])
def test_text_that_is_no_offset_is_406(channel, stream, offset):
    channel.send("basic.consume", queue=stream, arguments={STREAM_OFFSET: offset})

    text = (
        f"PRECONDITION_FAILED - failed consuming from stream queue '{stream}' in vhost '/': invalid_max_age"
    )
    channel.expect_close(406, text, "basic.consume")


@cases("offset, kind", {
    "boolean": (True, "bool"), "fraction": (1.5, "double"), "table": ({}, "table"), "void": (None, "void")
})
@pytest.mark.deviates("RabbitMQ closes the connection with 541")
def test_value_that_is_no_offset_is_406(channel, stream, offset, kind):
    channel.send("basic.consume", queue=stream, arguments={STREAM_OFFSET: offset})

    text = (
        f"PRECONDITION_FAILED - failed consuming from stream queue '{stream}' in vhost '/': "
        f"{{invalid_offset_arg,{kind}}}"
    )
    channel.expect_close(406, text, "basic.consume")


@pytest.mark.deviates("RabbitMQ 3.10 words it otherwise", of="3.10")
def test_consumer_without_a_prefetch_is_406(wire, channel, stream):
    other = wire.channel(2)
    text = (
        f"PRECONDITION_FAILED - consumer prefetch count is not set for stream queue '{stream}' in vhost '/'"
    )

    for _ in range(2):
        other.send("basic.consume", queue=stream)
        other.expect_close(406, text, "basic.consume")
        other.call("basic.qos", prefetch_count=0)


@pytest.mark.deviates("RabbitMQ 3.10 words it otherwise", of="3.10")
def test_consumer_that_does_not_acknowledge_closes_the_connection_with_540(wire, channel, stream):
    channel.send("basic.consume", queue=stream, no_ack=True)

    text = (
        f"NOT_IMPLEMENTED - automatic acknowledgement not supported by stream queue '{stream}' in vhost '/'"
    )
    wire.expect_connection_close(540, text, "basic.consume")


def test_get_closes_the_connection_with_540(wire, channel, stream):
    channel.send("basic.get", queue=stream)

    text = f"NOT_IMPLEMENTED - basic.get not supported by stream queues queue '{stream}' in vhost '/'"
    wire.expect_connection_close(540, text, "basic.get")
