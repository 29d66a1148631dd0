"""Publish: what a publisher wrote is what a consumer reads, octet for octet."""
import struct

import pytest

from tests.support.cases import cases
from tests.support.wire_encoding import PROPERTIES, field_value, longstr, properties, shortstr, table

# Every field table type RabbitMQ knows, at the ends of its range.
VALUES = {
    "t-true": b"t\x01", "t-false": b"t\x00", "t-odd": b"t\x07",
    "b-least": b"b\x80", "b-most": b"b\x7f", "B-most": b"B\xff",
    "s-least": b"s\x80\x00", "s-most": b"s\x7f\xff", "u-most": b"u\xff\xff",
    "I-least": b"I\x80\x00\x00\x00", "I-most": b"I\x7f\xff\xff\xff", "i-most": b"i\xff\xff\xff\xff",
    "l-least": b"l\x80" + b"\x00" * 7, "l-most": b"l\x7f" + b"\xff" * 7,
    "L-small": b"L" + b"\x00" * 7 + b"\x01",
    "f-one": b"f\x3f\x80\x00\x00", "d-one": b"d" + struct.pack(">d", 1.0),
    "d-minus-zero": b"d\x80" + b"\x00" * 7,
    "D-money": b"D\x02\x00\x00\x30\x39", "D-scale-255": b"D\xff\xff\xff\xff\xff",
    "S-empty": b"S\x00\x00\x00\x00", "S-text": b"S" + longstr("é中\U0001f40d"),
    "S-not-utf8": b"S" + longstr(b"\xff\xfe\x00\x80"),
    "x-octets": b"x" + longstr(bytes(range(256))), "x-empty": b"x\x00\x00\x00\x00",
    "T-epoch": b"T" + b"\x00" * 8, "T-far": b"T" + b"\x00\x00\xff" + b"\xff" * 5,
    "V": b"V", "A-empty": b"A\x00\x00\x00\x00", "F-empty": b"F\x00\x00\x00\x00",
    "A-mixed": field_value("A", [1, "two", 3.0, None, True, {"four": [5, []]}, b"x\x00\x00\x00\x01\xff"]),
    "F-nested": field_value("F", {"a": {"b": {"c": {"d": [{"e": b"B\x01"}]}}}}),
}
SINGLE = {
    "content_type": "application/json", "content_encoding": "utf-8", "headers": {"a": 1}, "delivery_mode": 2,
    "priority": 7,
    "correlation_id": "c" * 255, "reply_to": "some.queue",
    "expiration": "60000", "message_id": "é中", "timestamp": 2 ** 40, "type": "t", "user_id": "guest",
    "app_id": "",
    "cluster_id": "c",
}
ROUTES = {
    "default-exchange": ("", {}), "topic": ("amq.topic", {}), "headers": ("amq.headers", {"x-match": "all"})
}


@pytest.fixture(params=list(ROUTES.values()), ids=list(ROUTES))
def path(request, channel, name):
    """A way from a publisher to a queue, as (exchange, queue):
    the exchanges look at the message more or less closely.
    """
    exchange, arguments = request.param
    queue = channel.declare(name)
    if exchange:
        channel.call("queue.bind", queue=queue, exchange=exchange, routing_key=queue, arguments=arguments)
    return exchange, queue


@pytest.mark.deviates("RabbitMQ 4.3 writes them as it would itself", of="4.3", cases=("t-odd", "L-small"))
@pytest.mark.parametrize("octets", list(VALUES.values()), ids=list(VALUES))
def test_header_value_of_every_type_survives(channel, path, octets):
    exchange, queue = path
    sent = properties(headers={"before": 1, "value": octets, "after": "text"})

    channel.publish(exchange, queue, b"body", sent)

    assert channel.get(queue).property_octets == sent


@pytest.mark.deviates("RabbitMQ's codec has no such numbers and closes the connection with 541")
@cases("octets", {
    "f-nan": b"f\x7f\xc0\x00\x01", "d-infinity": b"d\x7f\xf0" + b"\x00" * 6,
    "d-nan": b"d\xff\xf8" + b"\x00" * 6,
})
def test_header_value_that_is_no_finite_number_survives(channel, path, octets):
    exchange, queue = path
    sent = properties(headers={"value": octets})

    channel.publish(exchange, queue, b"body", sent)

    assert channel.get(queue).property_octets == sent


@pytest.mark.deviates(
    "RabbitMQ 4.3 writes values as it would itself, and a field once", of="4.3", cases=("all-types", "twice"))
@cases("headers", {
    "order": {"z": 1, "a": 2, "m": 3}, "none": {}, "names": {"": 1, "é": 2, "n" * 255: 3},
    "all-types": VALUES,
    "many": {f"header-{n}": n for n in range(500)},
    "twice": longstr(shortstr("same") + b"t\x01" + shortstr("same") + b"t\x00"),
    "name-not-utf8": longstr(shortstr(b"\xff\xfe") + b"t\x01"),
})
def test_header_tables_survive_as_a_whole(channel, path, headers):
    exchange, queue = path
    sent = b"\x20\x00" + table(headers)

    channel.publish(exchange, queue, b"body", sent)

    assert channel.get(queue).property_octets == sent


@pytest.mark.parametrize("property_name", [property_name for property_name, _ in PROPERTIES])
def test_property_survives_alone(channel, name, property_name):
    queue = channel.declare(name)
    sent = properties(**{property_name: SINGLE[property_name]})

    channel.publish("", queue, b"x", sent)

    content = channel.get(queue)
    assert content.property_octets == sent
    assert list(content.properties) == [property_name]


def test_all_properties_survive_together(channel, path):
    exchange, queue = path
    sent = properties(**SINGLE)
    assert sent[:2] == b"\xff\xfc"

    channel.publish(exchange, queue, b"x", sent)

    assert channel.get(queue).property_octets == sent


def test_properties_survive_a_delivery_and_a_redelivery(channel, name):
    queue = channel.declare(name)
    sent = properties(**SINGLE)
    channel.consume(queue)

    channel.publish("", queue, b"x", sent)
    first = channel.expect_content("basic.deliver", b"x", redelivered=False)
    channel.send("basic.reject", delivery_tag=first.method.delivery_tag, requeue=True)
    second = channel.expect_content("basic.deliver", b"x", redelivered=True)

    assert first.property_octets == second.property_octets == sent


def test_properties_survive_a_return(channel):
    sent = properties(**SINGLE)

    channel.publish("", "no.such.queue", b"x", sent, mandatory=True)

    assert channel.expect_content("basic.return", b"x").property_octets == sent


@pytest.mark.parametrize("exchange", ["", "amq.topic"])
@pytest.mark.parametrize(
    "octets", [b"x", bytes(range(256)), b"\xce" * 64, b"\x00" * 1000, b"\x01\x00\x01\x00\x00\x00\x05" * 100],
    ids=[
        "one", "all-values", "frame-ends", "zeros", "frame-heads"],
)
def test_body_octets_survive(channel, name, exchange, octets):
    queue = channel.declare(name)
    if exchange:
        channel.call("queue.bind", queue=queue, exchange=exchange, routing_key=queue)

    channel.publish(exchange, queue, octets)

    assert channel.get(queue).body == octets


def test_routing_key_of_255_octets_survives(channel, name):
    queue = channel.declare(name)
    key = "é" * 127 + "x"
    channel.call("queue.bind", queue=queue, exchange="amq.fanout", routing_key="")

    channel.publish("amq.fanout", key, b"x")

    assert channel.get(queue).method.routing_key == key


@pytest.mark.deviates("RabbitMQ 4.3 takes no frame_max below 8192", of="4.3")
def test_small_frames_carry_large_properties(open_wire, name):
    """With a frame_max of 4096 a header of 4088 octets just fits, in both directions."""
    channel = open_wire(frame_max=4096).channel()
    queue = channel.declare(name)
    sent = properties(headers={"filling": "x" * (4096 - 8 - 12 - 2 - 4 - 8 - 5)})
    assert len(sent) == 4096 - 8 - 12

    channel.publish("", queue, b"y" * 10000, sent, body_frame_max=4088)

    content = channel.get(queue)
    assert (content.property_octets, content.body) == (sent, b"y" * 10000)
