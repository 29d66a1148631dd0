"""Dead letters: what their properties tell of where they died, and the octets in which they tell it."""
import re

import pytest

from tests.support.wire_encoding import Cursor, decode_properties, field_value, longstr, properties, shortstr
from tests.support.wire_script import Wire

# RabbitMQ has these from 3.13 on.
LATER = ("x-last-death-exchange", "x-last-death-queue", "x-last-death-reason")


def entries(octets):
    """The octets of a table's entries by name, in their order."""
    inner, found = Cursor(Cursor(octets).longstr()), {}
    while not inner.exhausted:
        name, start = inner.shortstr(), inner.offset
        inner.value()
        found[name] = inner.octets[start:inner.offset]
    return found


def headers_of(content):
    """The headers of a content with no other property, as `entries` without those
    that RabbitMQ has only later.
    """
    assert content.property_octets[:2] == b"\x20\x00", content.properties
    return {
        name: octets for name, octets in entries(content.property_octets[2:]).items() if name not in LATER
    }


def told(count, reason, queue, exchange, keys, *more, again=False):
    """An entry of x-death, its time as `timeless` leaves it. It is sorted if the message had died before."""
    pairs = (
        ("count", field_value("l", count)), ("reason", field_value("S", reason)),
        ("queue", field_value("S", queue)), ("time", b"T" + bytes(8)),
        ("exchange", field_value("S", exchange)), ("routing-keys", field_value("A", keys)), *more,
    )
    return b"F" + longstr(
        b"".join(shortstr(name) + octets for name, octets in (sorted(pairs) if again else pairs))
    )


def timeless(octets):
    """The octets with the times of deaths put to 0."""
    return Wire.as_field(re.sub(rb"\x04timeT.{8}", b"\x04timeT" + bytes(8), octets, flags=re.DOTALL))


@pytest.fixture
def dead(channel, name):
    """A queue for dead letters."""
    return channel.declare(f"{name}.dead")


def dying(channel, name, dead, **arguments):
    """Declare a queue whose letters go to `dead`."""
    return channel.declare(
        name, arguments={"x-dead-letter-exchange": "", "x-dead-letter-routing-key": dead, **arguments}
    )


def first(reason, queue, exchange=""):
    """The headers that tell of the first death."""
    return {
        f"x-first-death-{name}": field_value("S", value)
        for name, value in (("exchange", exchange), ("queue", queue), ("reason", reason))
    }


def die(channel, queue):
    """Reject the oldest message of a queue."""
    channel.send(
        "basic.reject", delivery_tag=channel.get(queue, no_ack=False).method.delivery_tag, requeue=False
    )


def awaited(channel, queue):
    """The message that comes to a queue."""
    channel.expect_count(queue, 1)
    return channel.get(queue)


def test_death_is_told_in_the_headers_and_they_are_sorted(channel, name, dead):
    queue = dying(channel, name, dead)
    channel.publish("", queue, b"body", properties(headers={"z": b"B\x05", "a": b"u\x00\x07", "x-e": b"V"}))

    die(channel, queue)

    content = awaited(channel, dead)
    headers = headers_of(content)
    death = field_value("A", [told(1, "rejected", queue, "", [queue])])
    assert list(headers) == sorted(headers)
    assert {**headers, "x-death": timeless(headers["x-death"])} == {
        "a": b"u\x00\x07", "x-death": death, "x-e": b"V", **first("rejected", queue), "z": b"B\x05"}
    assert content.body == b"body"


def test_expiration_goes_into_the_story(channel, name, dead):
    queue = dying(channel, name, dead)
    channel.publish("", queue, b"", properties(expiration="0"))

    headers = headers_of(awaited(channel, dead))

    death = told(1, "expired", queue, "", [queue], ("original-expiration", field_value("S", "0")))
    assert {**headers, "x-death": timeless(headers["x-death"])} == {
        "x-death": field_value("A", [death]), **first("expired", queue)
    }


def test_second_death_is_told_before_the_first(channel, name, dead):
    second = dying(channel, f"{name}.2", dead)
    queue = dying(channel, name, second)
    channel.publish("", queue, b"", properties(expiration="0"))
    channel.expect_count(second, 1)

    die(channel, second)

    headers = headers_of(awaited(channel, dead))
    expected = [
        told(1, "rejected", second, "", [second], again=True),
        told(1, "expired", queue, "", [queue], ("original-expiration", field_value("S", "0"))),
    ]
    assert {**headers, "x-death": timeless(headers["x-death"])} == {
        "x-death": field_value("A", expected), **first("expired", queue)
    }


@pytest.mark.deviates("RabbitMQ 3.10 turns the order of earlier deaths round each time", of="3.10")
def test_deaths_of_several_reasons_are_told_latest_first(channel, name, dead):
    """Expired in one queue, too many in the next, rejected in the third:
    each hop publishes by another key.
    """
    third = dying(channel, f"{name}.3", dead)
    second = dying(channel, f"{name}.2", third, **{"x-max-length": 0})
    queue = dying(channel, name, second)
    channel.publish("", queue, b"", properties(expiration="0"))
    channel.expect_count(third, 1)

    die(channel, third)

    deaths = entries(awaited(channel, dead).property_octets[2:])["x-death"]
    expected = [
        told(1, "rejected", third, "", [third], again=True),
        told(1, "maxlen", second, "", [second], again=True),
        told(1, "expired", queue, "", [queue], ("original-expiration", field_value("S", "0"))),
    ]
    assert timeless(deaths) == field_value("A", expected)


def test_death_of_the_same_kind_is_counted(channel, name):
    """A retry loop: rejected, sent back by the client that looked at it, rejected again."""
    queue = channel.declare(
        name, arguments={"x-dead-letter-exchange": "", "x-dead-letter-routing-key": f"{name}.dead"}
    )
    dead = channel.declare(
        f"{name}.dead", arguments={"x-dead-letter-exchange": "", "x-dead-letter-routing-key": queue}
    )
    channel.publish("", queue, b"")

    for holder in (queue, dead, queue, dead):
        channel.expect_count(holder, 1)
        die(channel, holder)

    deaths = entries(awaited(channel, queue).property_octets[2:])["x-death"]
    expected = [
        told(2, "rejected", dead, "", [dead], again=True), told(2, "rejected", queue, "", [queue], again=True)
    ]
    assert timeless(deaths) == field_value("A", expected)


@pytest.mark.deviates("RabbitMQ 4.3 keeps CC on a letter with a key of the queue's own", of="4.3")
def test_copies_are_told_and_forgotten_with_a_key_of_the_queues_own(channel, name, dead):
    """CC stays unless the queue has a routing key for its letters; either way the story has every key."""
    queue = dying(channel, name, dead)
    channel.publish("", queue, b"", properties(headers={"CC": ["other"], "BCC": ["hidden"]}))

    die(channel, queue)

    headers = headers_of(awaited(channel, dead))
    assert "CC" not in headers and "BCC" not in headers
    assert timeless(headers["x-death"]) == field_value(
        "A", [told(1, "rejected", queue, "", [queue, "other"])]
    )


def test_other_properties_stay_as_they_were(channel, name, dead):
    queue = dying(channel, name, dead)
    others = {
        "content_type": "t", "delivery_mode": 2, "priority": 4, "correlation_id": "c", "message_id": "m",
        "timestamp": 5, "app_id": "a",
    }
    channel.publish("", queue, b"", properties(**others))

    die(channel, queue)

    found = decode_properties(awaited(channel, dead).property_octets)
    found.pop("headers")
    assert found == others


def test_table_of_headers_is_made_where_there_was_none(channel, name, dead):
    queue = dying(channel, name, dead)
    channel.publish("", queue, b"", properties(message_id="m"))

    die(channel, queue)

    octets = awaited(channel, dead).property_octets
    size = int.from_bytes(octets[2:6], "big")
    assert octets[:2] == b"\x20\x80" and octets[6 + size:] == shortstr("m")
