"""Crossing: topics and routing keys, properties of MQTT and of AMQP, there and back."""
import tracemalloc
from decimal import Decimal

import pytest
from hypothesis import given, strategies as st

from gomq_py.content.fields import Int64
from gomq_py.content.properties import FIELDS, Properties
from gomq_py.errors import Malformed
from gomq_py.mqtt.wire import crossing
from gomq_py.mqtt.wire.topics import swapped, topic_name_fault
from tests.support.crossing import stored, values_of


def basic(topic="a/b", values=None, **options):
    """A PUBLISH as basic properties: a dict."""
    return Properties.decode(stored(topic, values, **options).get_properties()).as_dict()


def published(expiry_s=-1, **values):
    """Basic properties as those of a PUBLISH: a dict."""
    return values_of(crossing.block_of(Properties(**values).encode(), expiry_s))


# topics and routing keys

@pytest.mark.parametrize("topic, key", [
    ("a/b", "a.b"), ("sensors/v1.2/t", "sensors.v1/2.t"), ("/", "."), ("a", "a"), ("a//b/", "a..b."),
    ("ä/ö.ü", "ä.ö/ü"),
])
def test_separators_of_both_sides_are_exchanged(topic, key):
    assert crossing.swap(topic.encode()) == key.encode()
    assert swapped(topic) == key


@given(st.binary())
def test_exchange_undoes_itself_and_changes_no_length(name):
    assert crossing.swap(crossing.swap(name)) == name
    assert len(crossing.swap(name)) == len(name)


@given(st.text(st.characters(exclude_categories=("Cs",)), max_size=60))
def test_topic_name_stays_one_and_no_other_becomes_one(name):
    other = swapped(name)

    assert swapped(other) == name
    assert crossing.swap(name.encode()) == other.encode()
    assert bool(topic_name_fault(name)) == bool(topic_name_fault(other))


# to basic properties

def test_octets_of_a_message_without_properties():
    assert stored("a/b.c", qos=1, retain=True).get_properties() == (
        b"\x30\x00\x00\x00\x00\x38\x0amqtt.topicS\x00\x00\x00\x05a/b.c\x12x-mqtt-publish-qosB\x01\x0bmqtt.ret"
        b"aint\x01\x02")


@pytest.mark.parametrize("qos, delivery_mode", [(0, 1), (1, 2), (2, 2)])
def test_quality_of_service_is_delivery_mode_and_a_header(qos, delivery_mode):
    found = basic(qos=qos)

    assert found == {
        "delivery_mode": delivery_mode, "headers": {"mqtt.topic": "a/b", "x-mqtt-publish-qos": qos}
    }


@pytest.mark.parametrize("values, expected", [
    ({"content_type": "text/plain"}, {"content_type": "text/plain"}),
    ({"content_type": "t" * 256}, {"headers": {"mqtt.content-type": "t" * 256}}),
    ({"payload_format_indicator": 1}, {"headers": {"mqtt.payload-format": 1}}),
    ({"payload_format_indicator": 0}, {}),
    ({"message_expiry_interval": 60}, {"expiration": "60000"}),
    ({"message_expiry_interval": 0}, {"expiration": "0"}),
    ({"message_expiry_interval": 0xFFFFFFFF}, {"expiration": "4294967295"}),
    ({"correlation_data": b"id"}, {"correlation_id": "id"}),
    ({"correlation_data": b"\xff"}, {"headers": {"mqtt.correlation-data": b"\xff"}}),
    ({"correlation_data": b"i" * 256}, {"headers": {"mqtt.correlation-data": b"i" * 256}}),
    ({"response_topic": "r/s"}, {"reply_to": "amq.topic.r.s", "headers": {"mqtt.response-topic": "r/s"}}),
    (
        {"response_topic": "r" * 245},
        {"reply_to": "amq.topic." + "r" * 245, "headers": {"mqtt.response-topic": "r" * 245}},
    ),
    ({"response_topic": "r" * 246}, {"headers": {"mqtt.response-topic": "r" * 246}}),
    ({"response_topic": "$default/amq/gen-1"}, {"reply_to": "amq.gen-1"}),
    (
        {"response_topic": "$default/"},
        {"reply_to": "amq.topic.$default.", "headers": {"mqtt.response-topic": "$default/"}},
    ),
    ({"topic_alias": 5}, {}),
    ({"user_property": [("a", "1"), ("b", "ä")]}, {"headers": {"a": "1", "b": "ä"}}),
    ({"user_property": [("n" * 255, "1"), ("n" * 256, "2")]}, {"headers": {"n" * 255: "1"}}),
    (
        {
            "user_property": [
                ("mqtt.retain", "1"), ("mqtt.topic", "x"), ("x-mqtt-publish-qos", "2"), ("mqtt", "y")
            ],
        },
        {"headers": {"mqtt": "y"}},
    ),
])
def test_property_becomes_a_basic_one(values, expected):
    expected = {"delivery_mode": 1, **expected}
    expected["headers"] = {"mqtt.topic": "a/b", "x-mqtt-publish-qos": 0, **expected.get("headers", {})}

    assert basic(values=values) == expected


def test_user_properties_keep_their_order_and_their_duplicates_on_the_wire():
    raw = stored("a", {"user_property": [("k", "1"), ("a", "2"), ("k", "3")]}).get_properties()

    assert raw.endswith(b"\x01kS\x00\x00\x00\x011\x01aS\x00\x00\x00\x012\x01kS\x00\x00\x00\x013\x01")


def test_user_properties_that_do_not_fit_are_left_out_and_others_kept():
    many = [(f"{number:03}", "v" * 1000) for number in range(200)]
    values = {
        "user_property": [*many, ("last", "x")], "correlation_data": b"c" * 255, "response_topic": "r" * 245,
        "content_type": "t" * 255,
    }
    raw = stored("k" * 255, values, qos=1).get_properties()

    found = Properties.decode(raw)

    assert len(raw) <= 65536
    assert found.headers["000"] == "v" * 1000 and "199" not in found.headers and found.headers["last"] == "x"
    assert (found.correlation_id, found.content_type) == ("c" * 255, "t" * 255)
    assert found.reply_to == "amq.topic." + "r" * 245


@pytest.mark.parametrize("block", [
    b"\x00", b"\x7f\x00", b"\x01", b"\x02\x00\x00\x00", b"\x03\x00", b"\x03\x00\x05text", b"\x08\xff\xff",
    b"\x09\x00\x01", b"\x0b\xff\xff\xff\xff\x01", b"\x0b", b"\x23\x00", b"\x26\x00\x01k",
    b"\x26\x00\x01k\x00\x02v", b"\x18\x00",
])
def test_octets_that_are_no_properties_are_malformed(block):
    with pytest.raises(Malformed, match="malformed content of kind 2"):
        stored("a", block=block).get_properties()


# from basic properties

@pytest.mark.parametrize("values, expected", [
    ({}, {}),
    ({"content_type": "t"}, {"content_type": "t"}),
    ({"content_type": "\0"}, {}),
    ({"content_type": "t", "headers": {"mqtt.content-type": "other"}}, {"content_type": "t"}),
    ({"correlation_id": "c", "headers": {"mqtt.correlation-data": b"other"}}, {"correlation_data": b"c"}),
    ({"headers": {"mqtt.correlation-data": "text"}}, {"correlation_data": b"text"}),
    ({"reply_to": "amq.gen-1"}, {"response_topic": "$default/amq/gen-1"}),
    ({"reply_to": "amq.topic.r.s"}, {"response_topic": "r/s"}),
    ({"reply_to": "amq.topic." + "r" * 245}, {"response_topic": "r" * 245}),
    ({"reply_to": "amq.topic."}, {"response_topic": "$default/amq/topic/"}),
    ({"reply_to": "amq.topic.#"}, {}),
    ({"reply_to": "q#"}, {}),
    ({"reply_to": ""}, {}),
    ({"reply_to": "r.s", "headers": {"mqtt.response-topic": "r/s"}}, {"response_topic": "r/s"}),
    ({"reply_to": "q", "headers": {"mqtt.response-topic": "r/+"}}, {"response_topic": "$default/q"}),
    ({"headers": {"mqtt.payload-format": 1}}, {"payload_format_indicator": 1}),
    ({"headers": {"mqtt.payload-format": 2}}, {}),
    ({"headers": {"mqtt.topic": "x", "mqtt.retain": True, "x-mqtt-publish-qos": 1, "mqtt.new": "x"}}, {}),
    (
        {"headers": {"a": "b", "n": -1, "l": Int64(2 ** 40), "f": 0.5, "t": True, "": False}},
        {
            "user_property": [
                ("a", "b"), ("n", "-1"), ("l", "1099511627776"), ("f", "0.5"), ("t", "true"), ("", "false")
            ],
        },
    ),
    (
        {
            "headers": {
                "x": b"octets", "y": None, "z": [1], "t": {"a": 1}, "d": Decimal("1.5"), "nul": "\0",
                "\0": "x",
            },
        },
        {},
    ),
    (
        {
            "message_id": "m", "type": "t", "app_id": "a", "user_id": "u", "content_encoding": "e",
            "timestamp": 2 ** 64 - 1,
        },
        {"user_property": [
            ("amqp.content-encoding", "e"), ("amqp.message-id", "m"),
            ("amqp.timestamp", "18446744073709551615"), ("amqp.type", "t"),
            ("amqp.user-id", "u"), ("amqp.app-id", "a")]},
    ),
    ({"delivery_mode": 2, "priority": 5, "expiration": "5", "cluster_id": "c"}, {}),
])
def test_basic_property_becomes_one_of_a_publish(values, expected):
    assert published(**values) == expected


@pytest.mark.parametrize("expiry_s", [0, 1, 0xFFFFFFFF])
def test_what_is_left_of_its_time_is_told(expiry_s):
    assert published(expiry_s, content_type="t") == {"message_expiry_interval": expiry_s, "content_type": "t"}


def test_no_more_user_properties_are_written_than_a_packet_may_have():
    headers = {f"h{number}": number for number in range(1000)}

    found = published(headers=headers, message_id="m", reply_to="q")

    assert len(found["user_property"]) == 241
    assert found["user_property"][1] == ("h0", "0")


def test_headers_that_do_not_fit_are_left_out_and_others_kept():
    headers = {**{f"{number:03}": "v" * 1000 for number in range(100)}, "long": "v" * 65536, "last": "x"}
    block = crossing.block_of(Properties(headers=headers, correlation_id="c").encode())

    found = values_of(block)

    assert len(block) <= 65536
    assert found["correlation_data"] == b"c"
    assert found["user_property"][0] == ("000", "v" * 1000) and found["user_property"][-1] == ("last", "x")


def test_malformed_basic_properties_are_refused():
    with pytest.raises(ValueError, match="malformed basic properties"):
        crossing.block_of(b"\x80\x00\x05t")


@pytest.mark.parametrize("headers, persistent, expected", [
    (None, False, 0), (None, True, 2), ({}, True, 2), ({"x-mqtt-publish-qos": 0}, True, 0),
    ({"x-mqtt-publish-qos": 2}, False, 4),
    ({"x-mqtt-publish-qos": 3}, True, 2), ({"x-mqtt-publish-qos": "1"}, False, 0),
    ({"x-mqtt-publish-qos": Int64(2)}, False, 4), ({"x-mqtt-publish-qos": -1}, False, 0),
    ({"x-mqtt-publish-qos": True}, False, 0), ({"x-mqtt-publish-qos": [2]}, False, 0),
    ({"mqtt.retain": True}, True, 10),
    ({"mqtt.retain": False}, False, 0), ({"mqtt.retain": 1}, False, 0),
])
def test_flags_are_told_by_delivery_mode_and_headers(headers, persistent, expected):
    assert crossing.flags_of_basic(
        Properties(headers=headers, content_type="t").encode(), persistent
    ) == expected


def test_value_that_is_no_integer_is_not_decoded():
    """Whatever a publisher puts there, nothing is made of it for each client that gets the message."""
    long = Properties(headers={key: [0.5] * 20_000 for key in ("x-mqtt-publish-qos", "mqtt.payload-format")})
    raw = long.encode()
    tracemalloc.start()
    try:
        crossing.flags_of_basic(raw, True)
        crossing.block_of(raw)
        peak = tracemalloc.get_traced_memory()[1]
    finally:
        tracemalloc.stop()

    assert peak < 200_000


# there and back

TEXT = st.text(st.characters(exclude_categories=("Cs",), exclude_characters="\0"), max_size=300)
TOPIC = st.text(
    st.characters(exclude_categories=("Cs", "Cc"), exclude_characters="+#"), min_size=1, max_size=80
)
VALUES = st.fixed_dictionaries({}, optional={
    "payload_format_indicator": st.just(1), "content_type": TEXT, "response_topic": TOPIC,
    "correlation_data": st.binary(max_size=300),
    "user_property": st.lists(
        st.tuples(TEXT.filter(
            lambda name: len(name.encode()) < 256 and not name.startswith("mqtt.")), TEXT),
        min_size=1, max_size=5, unique_by=lambda pair: pair[0],
    ),
})


@given(
    TOPIC.filter(lambda topic: len(topic.encode()) < 256), VALUES, st.integers(0, 2), st.booleans(),
    st.none() | st.integers(0, 4294967),
)
def test_publish_comes_back_as_it_was(topic, values, qos, retain, expiry_s):
    made = stored(
        topic, values if expiry_s is None else {"message_expiry_interval": expiry_s, **values}, qos, retain
    )
    raw = made.get_properties()

    found = Properties.decode(raw)

    assert found.headers["mqtt.topic"] == topic
    assert crossing.swap(made.get_routing_key()) == topic.encode()
    assert crossing.flags_of_basic(raw, qos > 0) == made.describe()["flags"]
    assert found.expiration == (None if expiry_s is None else str(expiry_s * 1000))
    assert values_of(crossing.block_of(raw)) == values


VALUE = st.none() | st.booleans() | st.integers(
    -2 ** 63, 2 ** 63 - 1
) | st.floats(allow_nan=False) | TEXT | st.binary(max_size=9)
BASIC = st.fixed_dictionaries({}, optional={
    **{name: st.text(max_size=60) for name, _, kind in FIELDS if kind == "shortstr"},
    "timestamp": st.integers(0, 2 ** 40),
    "delivery_mode": st.integers(1, 2),
    "headers": st.dictionaries(st.text(max_size=20), VALUE | st.lists(VALUE, max_size=3), max_size=6),
})


@given(BASIC)
def test_whatever_amqp_sends_is_a_block_that_a_client_of_mqtt_accepts(values):
    raw = Properties(**values).encode()

    found = values_of(crossing.block_of(raw, 5))

    assert found.pop("message_expiry_interval") == 5
    assert len(crossing.block_of(raw, 5)) <= 256 + 4 * len(raw)
    if values.get("correlation_id") is not None:
        assert found["correlation_data"] == values["correlation_id"].encode()
