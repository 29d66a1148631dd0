"""The load: sizes, keys and bindings that match, properties,
and batches whose frames decode to what was asked for.
"""
import re
from argparse import Namespace

import pytest

from gomq_py.amqp.wire.frames import FrameReader, decode_header
from gomq_py.amqp.wire.methods import BasicPublish, decode_method
from gomq_py.client.channel import Channel
from gomq_py.content.properties import Properties
from gomq_py.perf.messages import binding_keys, filler, make_amqp_batch, parse_size, properties, routing_keys

DEFAULTS = dict(
    exchange="", routing_key=None, key_count=1, binding_count=1, header_count=0, header_every=1,
    size=(16, 16), properties={}, persistent=False, random_bodies=False, mandatory=False, verify=False,
    measure_latency=False,
)


def options(**values):
    return Namespace(**{**DEFAULTS, **values})


def batch_of(opts, frame_max=131072):
    return make_amqp_batch(opts, Channel(Namespace(frame_max=frame_max), 1), "jobs")


def published(batch):
    """(method, properties, body) of every message of a batch."""
    reader = FrameReader(0)
    reader.feed(bytes(batch.buffer))
    messages = []
    for kind, _, payload in iter(reader.next_frame, None):
        if kind == 1:
            messages.append([decode_method(payload), b"", b""])
        elif kind == 2:
            messages[-1][1] = decode_header(payload)[2]
        else:
            messages[-1][2] += payload
    return messages


@pytest.mark.parametrize(("text", "sizes"), [
    ("16", (16, 16)), ("16-512", (16, 512)), ("0", (0, 0)), ("64,16,512", (16, 512, 64, 16, 512)),
])
def test_a_size_is_a_number_a_range_or_a_list_that_is_taken_in_turn(text, sizes):
    assert parse_size(text) == sizes


@pytest.mark.parametrize("text", ["", "x", "512-16", "-5", "1-2-3", "1,", "5,-1", "1,2-3"])
def test_a_bad_size_is_refused(text):
    with pytest.raises(ValueError):
        parse_size(text)


def test_the_routing_key_is_the_queue_unless_it_is_given():
    assert routing_keys(options(), "jobs") == ["jobs"]
    assert routing_keys(options(routing_key=""), "jobs") == [""]


def matches(pattern, key):
    expression = re.escape(pattern).replace(r"\#", "#").replace(r"\*", "[^.]+")
    expression = expression.replace(r"\.#", r"(\..+)?").replace(r"#\.", r"(.+\.)?").replace("#", ".*")
    return re.fullmatch(expression, key) is not None


@pytest.mark.parametrize(("key_count", "binding_count"), [
    (1000, 100), (1000, 1), (1000, 7), (50, 100), (10, 250), (1, 1), (1, 2), (1, 250),
])
def test_bindings_match_every_key_and_are_all_different(key_count, binding_count):
    opts = options(key_count=key_count, binding_count=binding_count)

    keys, bindings = routing_keys(opts, "jobs"), binding_keys(opts, "jobs")

    assert len(set(keys)) == key_count
    assert len(set(bindings)) == binding_count
    assert [key for key in keys if not any(matches(pattern, key) for pattern in bindings)] == []


def test_a_queue_is_bound_with_the_only_key():
    assert binding_keys(options(routing_key="k"), "jobs") == ["k"]


def test_properties_are_those_asked_for():
    encoded = properties(
        options(properties={"priority": 3, "headers": {"mine": 1}}, header_count=2, persistent=True)
    )

    decoded = Properties.decode(encoded)
    assert (decoded.priority, decoded.delivery_mode, len(decoded.headers), decoded.headers["mine"]) == (
        3, 2, 3, 1
    )


def test_equal_messages_fill_one_write():
    batch = batch_of(options())

    assert 60000 < len(batch.buffer) <= 65536 + 100
    assert {tuple(message) for message in published(batch)} == {
        (BasicPublish(routing_key="jobs"), b"\x00\x00", filler(16)[:16])
    }


def test_mixed_messages_go_round_all_keys_with_sizes_of_the_range():
    batch = batch_of(options(exchange="x", key_count=1500, size=(16, 512), mandatory=True))

    messages = published(batch)
    assert [method.routing_key for method, _, _ in messages] == routing_keys(options(key_count=1500), "jobs")
    assert {(method.exchange, method.mandatory) for method, _, _ in messages} == {("x", True)}
    assert min(len(body) for _, _, body in messages) < 32 and max(len(body) for _, _, body in messages) > 480
    assert all(body == filler(512)[:len(body)] for _, _, body in messages)


def test_sizes_of_a_list_and_headers_of_every_nth_message_come_in_turn():
    batch = batch_of(options(size=(8, 64, 64, 8, 32), header_count=1, header_every=2))

    messages = published(batch)
    assert [len(body) for _, _, body in messages[:4]] == [64, 8, 32, 64]
    assert [encoded != b"\x00\x00" for _, encoded, _ in messages[:4]] == [True, False, True, False]


def test_random_bodies_are_the_same_in_every_run():
    first, second = batch_of(options(random_bodies=True)), batch_of(options(random_bodies=True))

    assert bytes(first.buffer) == bytes(second.buffer)
    assert len({body for _, _, body in published(first)}) > 100


@pytest.mark.parametrize("size", [16, 4088, 4089, 20000])
def test_stamps_lie_at_the_front_of_the_body_however_many_frames_it_has(size):
    batch = batch_of(options(size=(size, size), verify=True, measure_latency=True), frame_max=4096)

    batch.stamp(0, batch.count, 5, 77)

    bodies = [body for _, _, body in published(batch)]
    assert [body[:8] for body in bodies] == [(77).to_bytes(8, "little")] * batch.count
    assert [int.from_bytes(body[8:16], "little") for body in bodies] == list(range(5, 5 + batch.count))
    assert all(body[16:] == filler(size)[16:size] for body in bodies)


def test_empty_bodies_are_published_as_such():
    assert {body for _, _, body in published(batch_of(options(size=(0, 0))))} == {b""}
