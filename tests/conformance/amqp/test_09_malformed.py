"""Malformed: every method a client may send, cut short anywhere, with octets left over or with broken field
tables. The connection is closed.
"""
import pytest

from tests.support.cases import cases
from tests.support.wire_encoding import (
    HEADER, METHOD, METHODS, decode_method, frame, header_frame, method, method_frame, properties, table,
)
from tests.support.wire_script import PeerClosed, Wire

# Fields that make a method long enough to be cut in interesting places.
FILLED = {
    "connection.close": {"reply_code": 200, "reply_text": "bye"},
    "connection.update-secret": {"new_secret": "secret", "reason": "expired"},
    "channel.close": {"reply_code": 200, "reply_text": "bye"},
    "exchange.declare": {"exchange": "x", "type": "direct", "arguments": {"a": 1}},
    "exchange.delete": {"exchange": "x"},
    "exchange.bind": {"destination": "a", "source": "b", "routing_key": "c", "arguments": {"a": [True]}},
    "exchange.unbind": {
        "destination": "a", "source": "b", "routing_key": "c", "arguments": {"a": {"b": None}}
    },
    "queue.declare": {"queue": "q", "exclusive": True, "arguments": {"x-expires": 60000}},
    "queue.bind": {"queue": "q", "exchange": "amq.direct", "routing_key": "k", "arguments": {"a": "b"}},
    "queue.unbind": {"queue": "q", "exchange": "amq.direct", "routing_key": "k", "arguments": {"a": 1.5}},
    "queue.purge": {"queue": "q"},
    "queue.delete": {"queue": "q"},
    "basic.consume": {"queue": "q", "consumer_tag": "t", "arguments": {"x-priority": 1}},
    "basic.publish": {"exchange": "e", "routing_key": "k"},
    "basic.cancel": {"consumer_tag": "t"},
    "basic.get": {"queue": "q"},
}
ON_CHANNEL_0 = ("connection.close", "connection.update-secret")
OTHERS = (
    "channel.open", "channel.flow", "channel.close-ok", "basic.qos", "basic.ack", "basic.nack",
    "basic.reject", "basic.recover", "basic.recover-async", "confirm.select", "tx.select", "tx.commit",
    "tx.rollback")
CLIENT_METHODS = sorted({*FILLED, *OTHERS})
WITH_TABLE = sorted(name for name in FILLED if ("arguments", "table") in METHODS[name][2])
BROKEN_TABLES = {
    "tag": b"\x00\x00\x00\x04\x01aZ\x00",
    "value-cut": b"\x00\x00\x00\x05\x01aI\x00\x00",
    "name-cut": b"\x00\x00\x00\x02\x09a",
    "no-value": b"\x00\x00\x00\x02\x01a",
    "length-long": b"\x00\x00\x00\x09\x01t\x01",
    "length-huge": b"\xff\xff\xff\xff\x01at\x01",
    "string-long": b"\x00\x00\x00\x07\x01aS\x00\x00\x00\x05",
    "inner-table-long": b"\x00\x00\x00\x07\x01aF\x00\x00\x00\x01",
    "inner-array-huge": b"\x00\x00\x00\x07\x01aA\xff\xff\xff\xff",
    "array-item-cut": b"\x00\x00\x00\x09\x01aA\x00\x00\x00\x02I\x00",
    "decimal-cut": b"\x00\x00\x00\x06\x01aD\x02\x00\x00",
}


@pytest.fixture
def refused(broker_address):
    """Sends octets on a connection of their own with channel 1 open, and reads the close that must follow.

    RabbitMQ may hang up without one.
    """
    def send(octets, codes=(501, 502, 541), pieces=1 << 20):
        wire = Wire.open(broker_address)
        wire.channel(1)
        wire.send_pieces(octets, pieces)
        try:
            type_, number, payload = wire.next_frame()
        except PeerClosed:
            return None
        finally:
            wire.abort()
        close = decode_method(payload)
        assert (type_, number, close.name) == (METHOD, 0, "connection.close"), close
        assert close.reply_code in codes, close
        return close
    return send


@pytest.mark.parametrize("name", CLIENT_METHODS)
def test_method_cut_short_closes_the_connection(refused, name):
    payload = method(name, **FILLED.get(name, {}))

    for length in range(4, len(payload)):
        close = refused(frame(METHOD, 0 if name in ON_CHANNEL_0 else 1, payload[:length]))
        if name not in ON_CHANNEL_0:
            assert (close.reply_code, close.failing_class, close.failing_method) in (
                (501, *METHODS[name][:2]), (502, *METHODS[name][:2])
            ), length


@pytest.mark.parametrize("extra", [b"\x00", b"octets"], ids=["one-octet", "octets"])
@pytest.mark.parametrize("name", CLIENT_METHODS)
def test_method_with_octets_left_over_closes_the_connection(refused, name, extra):
    payload = method(name, **FILLED.get(name, {})) + extra

    close = refused(frame(METHOD, 0 if name in ON_CHANNEL_0 else 1, payload))

    if name not in ON_CHANNEL_0:
        assert (close.failing_class, close.failing_method) == METHODS[name][:2]


@cases("table_octets", BROKEN_TABLES)
@pytest.mark.parametrize("name", WITH_TABLE)
def test_broken_table_closes_the_connection(refused, name, table_octets):
    refused(method_frame(1, name, **{**FILLED[name], "arguments": table_octets}))


@cases("table_octets", BROKEN_TABLES)
def test_broken_table_octet_by_octet_closes_the_connection(refused, table_octets):
    refused(method_frame(1, "queue.declare", queue="q", arguments=table_octets), pieces=1)


@pytest.mark.parametrize("name", ["queue.declare", "basic.publish", "basic.consume", "basic.ack"])
def test_methods_cut_short_and_octet_by_octet_close_the_connection(refused, name):
    payload = method(name, **FILLED.get(name, {}))

    for length in range(4, len(payload), 3):
        refused(frame(METHOD, 1, payload[:length]), pieces=1)


def test_content_header_cut_short_closes_the_connection(refused):
    header = (
        header_frame(1, 0, properties(content_type="a", headers={"b": 1}, delivery_mode=2, timestamp=1))[7:-1]
    )

    for length in range(len(header)):
        refused(
            method_frame(1, "basic.publish", routing_key="q", mandatory=True)
            + frame(HEADER, 1, header[:length])
        )


def test_short_string_longer_than_its_frame_closes_the_connection(refused):
    refused(frame(METHOD, 1, b"\x00\x32\x00\x0a\x00\x00\xffq\x00\x00\x00\x00\x00"))


def test_arguments_of_2000_levels_harm_nobody(broker_address, open_wire):
    """Whether such a table is taken is a matter of taste; a stack overflow is not."""
    nested = b"V"
    for _ in range(2000):
        nested = b"A" + len(nested).to_bytes(4, "big") + nested
    wire = Wire.open(broker_address)
    wire.channel(1)

    wire.send_method(1, "queue.declare", queue="q", exclusive=True, arguments=table({"a": nested}))

    assert wire.next_frame()[0] == METHOD
    wire.abort()
    assert open_wire().channel().declare()
