"""What came over MQTT, read by pika: from every kind of queue, in every way, past what nobody can read."""
import pika
import pytest

from gomq_py import Broker
from tests.support import crossing
from tests.support.waiting import in_time

ARGUMENTS = {
    "classic": {}, "priority": {"x-max-priority": 5},
    "limited": {"x-delivery-limit": 5, "x-max-length": 1000},
    "stream": {"x-queue-type": "stream"},
}
VALUES = {
    "content_type": "application/json", "message_expiry_interval": 60, "correlation_data": b"id-1",
    "response_topic": "answers/here", "user_property": [("unit", "°C"), ("room", "7")],
}
HEADERS = {
    "mqtt.topic": "sensors/v1.2/t", "x-mqtt-publish-qos": 1, "mqtt.response-topic": "answers/here",
    "unit": "°C", "room": "7",
}


@pytest.fixture(scope="module")
def broker():
    with Broker(http_port=0) as broker:
        yield broker


@pytest.fixture(params=ARGUMENTS)
def queue(request, channel):
    channel.queue_declare(request.param, durable=True, arguments=ARGUMENTS[request.param])
    channel.queue_bind(request.param, "amq.topic", "sensors.#")
    yield request.param
    channel.queue_delete(request.param)


def published(**options):
    return crossing.stored("sensors/v1.2/t", VALUES, qos=1, **options)


def unreadable():
    """Content that has no end, and of a kind of a later version."""
    malformed, unknown = crossing.stored("a", block=b"\x03\x00\x09t"), crossing.stored("a", qos=1)
    unknown.set_kind(77)
    return malformed, unknown


def consumed(channel, queue, count, ack=True):
    """The next ``count`` messages: (method, properties, body)."""
    found = []
    channel.basic_qos(prefetch_count=100)
    is_stream = queue == "stream"
    for delivered in channel.consume(
        queue, auto_ack=not (ack or is_stream), inactivity_timeout=in_time(10),
        arguments={"x-stream-offset": "first"} if is_stream else None,
    ):
        assert delivered[0] is not None, f"{len(found)} of {count} messages came"
        found.append(delivered)
        if ack or is_stream:
            channel.basic_ack(delivered[0].delivery_tag)
        if len(found) == count:
            break
    assert channel.cancel() == 0
    return found


def check(properties, queue, offset=0):
    extra = {"x-stream-offset": offset} if queue == "stream" else {}
    assert properties.headers == {**HEADERS, **extra}
    assert (properties.content_type, properties.correlation_id) == ("application/json", "id-1")
    assert (properties.reply_to, properties.expiration) == ("amq.topic.answers.here", "60000")
    assert properties.delivery_mode == 2


@pytest.mark.parametrize("ack", [True, False])
def test_consumer_gets_what_came_over_mqtt(broker, channel, queue, ack):
    broker.call(crossing.publish, published(body=b"1"), published(body=b"2" * 300_000), published(body=b""))

    found = consumed(channel, queue, 3, ack)

    assert [body for _, _, body in found] == [b"1", b"2" * 300_000, b""]
    for offset, (method, properties, _) in enumerate(found):
        assert (method.exchange, method.routing_key) == ("amq.topic", "sensors.v1/2.t")
        check(properties, queue, offset)


def test_frames_of_a_consumer_are_not_larger_than_it_takes(broker, queue):
    url = pika.URLParameters(broker.amqp_url)
    url.frame_max = 4096
    connection = pika.BlockingConnection(url)
    made = crossing.stored("sensors", {"user_property": [(f"k{n}", "v" * 1000) for n in range(20)]})
    broker.call(crossing.publish, made)

    (_, properties, _), = consumed(connection.channel(), queue, 1)

    assert list(properties.headers) == [
        "mqtt.topic", "x-mqtt-publish-qos", "k0", "k1", "k2",
        *(["x-stream-offset"] if queue == "stream" else [])]
    connection.close()


@pytest.mark.parametrize("ack", [True, False])
def test_consumer_does_not_wait_behind_what_nobody_can_read(broker, channel, queue, ack):
    malformed, unknown = unreadable()
    broker.call(crossing.put, queue, malformed, published(body=b"1"), unknown, published(body=b"2"))

    found = consumed(channel, queue, 2, ack)

    assert [body for _, _, body in found] == [b"1", b"2"]
    for (_, properties, _), offset in zip(found, (1, 3)):
        check(properties, queue, offset)


@pytest.mark.parametrize("ack", [True, False])
@pytest.mark.parametrize("queue", ["classic", "priority", "limited"], indirect=True)
def test_basic_get_passes_over_what_nobody_can_read(broker, channel, queue, ack):
    malformed, unknown = unreadable()
    broker.call(crossing.put, queue, malformed, published(body=b"1"), unknown, published(body=b"2"))

    for expected in (b"1", b"2"):
        _, properties, body = channel.basic_get(queue, auto_ack=not ack)
        assert body == expected
        check(properties, queue)

    assert channel.basic_get(queue) == (None, None, None)
    aside = broker.call(lambda launcher: launcher.broker.vhosts["/"].queues[queue].aside)
    assert aside.count == 2 and sorted(aside.reasons) == [
        "getting it: content of kind 77, which is unknown here", "getting it: malformed content of kind 2"]


def test_traces_tell_of_what_came_over_mqtt(broker, channel, queue):
    malformed, unknown = unreadable()
    traces = channel.queue_declare("", exclusive=True).method.queue
    channel.queue_bind(traces, "amq.rabbitmq.trace", "deliver.#")
    broker.call(lambda launcher: launcher.broker.vhosts["/"].set_tracing(True))
    try:
        broker.call(crossing.put, queue, malformed, published(body=b"1"), unknown, published(body=b"2"))
        consumed(channel, queue, 2)
    finally:
        broker.call(lambda launcher: launcher.broker.vhosts["/"].set_tracing(False))

    found = [(properties.headers["properties"]["headers"], body)
             for _, properties, body in consumed(channel, traces, 2)]

    extra = [{"x-stream-offset": offset} if queue == "stream" else {} for offset in (1, 3)]
    assert found == [({**HEADERS, **extra[0]}, b"1"), ({**HEADERS, **extra[1]}, b"2")]


def test_what_was_set_aside_is_tried_again_when_the_queue_is_opened_again(broker, channel):
    channel.queue_declare("again", durable=True)
    _, unknown = unreadable()
    broker.call(crossing.put, "again", unknown)
    assert channel.basic_get("again") == (None, None, None)

    # as after an upgrade to a version that knows the kind
    broker.call(lambda launcher: launcher.broker.vhosts["/"].queues["again"].fail("a fault"))
    broker.call(lambda launcher: launcher.broker.vhosts["/"].restart_queue(
        launcher.broker.vhosts["/"].queues["again"]))

    assert channel.queue_declare("again", passive=True).method.message_count == 1
    channel.queue_delete("again")
