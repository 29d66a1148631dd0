"""Fuzz: sessions that begin well and are then spoilt at random.

The broker may refuse them in any way but one: it must not fail itself.

A reply of 541 or an exception in the log is a fault of ours. Seeds are fixed, so that a failure is found
again; more of them in one run: `GOMQ_TEST_FUZZ_SESSIONS=5000 pytest tests/conformance/amqp/test_12_fuzz.py`.
"""
import os
import random

import pytest

from tests.support.broker_process import BrokerProcess
from tests.support.broker_under_test import KIND
from tests.support.wire_encoding import (
    BODY, HEADER, HEARTBEAT_FRAME, METHOD, METHODS, PROTOCOL_HEADER, decode_method, field_value, frame,
    header_frame, method, method_frame, properties, publish_frames)
from tests.support.wire_script import PeerClosed, Wire

pytestmark = pytest.mark.skipif(KIND != "gomq-py", reason="looks for faults of our broker in its log")

SESSIONS = int(os.environ.get("GOMQ_TEST_FUZZ_SESSIONS", "300"))
START_OK = method_frame(
    0, "connection.start-ok", client_properties={"product": "fuzz", "capabilities": {"basic.nack": True}},
    mechanism="PLAIN", response=b"\x00guest\x00guest", locale="en_US")
HANDSHAKE = [
    PROTOCOL_HEADER, START_OK,
    method_frame(0, "connection.tune-ok", channel_max=2047, frame_max=131072, heartbeat=0),
    method_frame(0, "connection.open", virtual_host="/"), method_frame(1, "channel.open")]
CLIENT_METHODS = sorted(name for name in METHODS if not name.startswith("connection."))


@pytest.fixture(scope="module")
def broker(tmp_path_factory):
    """A broker of this module's own, because its log is looked through."""
    with BrokerProcess(tmp_path_factory.mktemp("fuzz") / "data") as process:
        yield process
        assert "Traceback" not in process.log_text


def good_frames(dice):
    """What a lively client might send on channel 1."""
    queue = dice.choice(["q", "r", ""])
    octets = properties(**dice.choice([
        {}, {"headers": {"a": field_value(dice.choice("tbBsuIilLfdT"), 1), "CC": ["r"]}}, {"expiration": "1"},
        {"delivery_mode": 2, "priority": 3},
        {"reply_to": "amq.rabbitmq.reply-to"},
        {"user_id": "guest", "headers": {"n": {"m": [1, {"o": None}]}}}]))
    return dice.choice([
        lambda: method_frame(
            1, "queue.declare", queue=queue, exclusive=True,
            arguments=dice.choice([{}, {"x-max-length": 3}, {"x-max-priority": 3}])),
        lambda: method_frame(1, "queue.bind", queue=queue, exchange="amq.topic", routing_key="#"),
        lambda: method_frame(
            1, "basic.consume", queue=queue, consumer_tag=dice.choice(["", "t"]), no_ack=dice.random() < 0.5
        ),
        lambda: method_frame(1, "basic.get", queue=queue, no_ack=dice.random() < 0.5),
        lambda: method_frame(1, "basic.ack", delivery_tag=dice.randrange(4), multiple=dice.random() < 0.5),
        lambda: method_frame(
            1, "basic.nack", delivery_tag=dice.randrange(4), multiple=dice.random() < 0.5,
            requeue=dice.random() < 0.5,
        ),
        lambda: method_frame(
            1,
            dice.choice([
                "confirm.select", "tx.select", "tx.commit", "tx.rollback", "queue.purge", "queue.delete",
                "basic.recover"]),
        ),
        lambda: method_frame(1, "basic.qos", prefetch_count=dice.randrange(3), global_=dice.random() < 0.5),
        lambda: publish_frames(
            1, dice.choice(["", "amq.topic", "amq.headers"]), queue, b"x" * dice.choice([0, 1, 100, 70000]),
            octets, mandatory=dice.random() < 0.3, immediate=dice.random() < 0.01,
        ),
        lambda: method_frame(1, "channel.close", reply_code=200) + method_frame(1, "channel.open"),
        lambda: HEARTBEAT_FRAME,
    ])()


def odd_frames(dice):
    """Frames that are well formed and out of place, or have rubbish inside."""
    return dice.choice([
        lambda: method_frame(dice.choice([0, 1, 2]), dice.choice(CLIENT_METHODS)),
        lambda: frame(
            dice.choice([METHOD, HEADER, BODY, 4, 8]), dice.choice([0, 1, 7]),
            dice.randbytes(dice.randrange(40)),
        ),
        lambda: frame(
            METHOD, 1, method(dice.choice(CLIENT_METHODS))[:4] + dice.randbytes(dice.randrange(30))
        ),
        lambda: method_frame(1, "basic.publish", routing_key="q") + header_frame(
            1, dice.randrange(5), dice.randbytes(dice.randrange(20))
        ),
        lambda: method_frame(
            1, "queue.declare", queue=dice.randbytes(5),
            arguments=(n := dice.randbytes(9)) and len(n).to_bytes(4, "big") + n,
        ),
    ])()


def spoil(dice, octets):
    """Change, drop, double or insert a few octets."""
    octets = bytearray(octets)
    for _ in range(dice.choice([0, 0, 1, 1, 2, 5])):
        at = dice.randrange(len(octets))
        dice.choice([
            lambda: octets.__setitem__(at, dice.randrange(256)),
            lambda: octets.__delitem__(slice(at, at + dice.randrange(1, 9))),
            lambda: octets.__setitem__(slice(at, at), dice.randbytes(dice.randrange(1, 5))),
            lambda: octets.__setitem__(slice(at, at), octets[at:at + 20])])()
        octets = octets or bytearray(1)
    return bytes(octets)


def session(dice):
    """The octets of one session, spoilt from the handshake on or behind it."""
    talk = b"".join(
        (good_frames if dice.random() < 0.8 else odd_frames)(dice) for _ in range(dice.randrange(1, 12))
    )
    if dice.random() < 0.2:
        return spoil(dice, b"".join(HANDSHAKE) + talk)
    return b"".join(HANDSHAKE) + spoil(dice, talk)


def replies_to(address, octets, pieces):
    """Send a session, say that nothing more comes, and read until the broker hangs up;
    returns the methods it sent.
    """
    wire = Wire.connect(address)
    found = []
    try:
        wire.send_pieces(octets, pieces)
        wire.socket.shutdown(1)
        if not octets.startswith(PROTOCOL_HEADER):
            return found
        while True:
            type_, _, payload = wire.next_frame()
            if type_ == METHOD:
                found.append(decode_method(payload))
    except (PeerClosed, OSError):
        return found
    finally:
        wire.abort()


def test_spoilt_sessions_never_make_the_broker_fail(broker):
    address = ("127.0.0.1", broker.port)

    for seed in range(SESSIONS):
        dice = random.Random(seed)
        for method_ in replies_to(address, session(dice), dice.choice([1, 7, 1000, 1 << 20])):
            assert getattr(method_, "reply_code", 0) != 541, (
                f"seed {seed}: {method_}\n{broker.log_text[-3000:]}"
            )

    wire = Wire.open(address)
    assert wire.channel().declare()
    wire.close()
