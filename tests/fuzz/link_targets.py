"""Fuzz targets of links: what a source delivers, relayed to a target; what a target confirms.

Octets in front of fences: nothing behind what was read may be touched.
"""
from gomq_py.amqp.wire.errors import AMQPError
from gomq_py.amqp.wire.frames import content_frames, frame, method_frame
from gomq_py.amqp.wire.methods import (
    BasicAck, BasicCancel, BasicDeliver, BasicNack, BasicReturn, ChannelClose,
)
from gomq_py.content.properties import Properties
from gomq_py.links.confirms import Confirms
from gomq_py.links.relay import INPUT_OCTETS, OUTPUT_OCTETS, HeaderStamp, Relay, Unfit
from tests.fuzz.target import Draw, Target, pieces
from tests.fuzz.wire_targets import PROPERTIES
from tests.fuzz.wire_targets import WORDS as WIRE_WORDS
from tests.support.exact import fenced

INPUT, OUTPUT = bytearray(INPUT_OCTETS), bytearray(OUTPUT_OCTETS)
SOURCE, TARGET = 1, 7
STAMP = Properties(headers={"received": [{"uri": "amqp://a"}]}).encode()[6:]
STAMP_AGAIN = Properties(headers={"received": [{"uri": "amqp://a", "redelivered": True}]}).encode()[6:]


# relay

def run_relay(data):
    """However the stream is cut, the same is written: whole frames of the target's channel, none too large,
    a publish, a header and as much body as that says. What is refused is refused in both.
    """
    draw = Draw(data)
    frame_max = draw.choice((131072, 4096, 0))
    kind = draw.octet()
    most = draw.choice((1000, 1, 2))
    sizes = tuple(draw.octets(3)) or (1,)
    stream = draw.rest()

    whole, pieced = _relay(frame_max, kind, most, [stream]), _relay(frame_max, kind, 1, pieces(stream, sizes))

    (written, others, tags, refused), (written_1, others_1, tags_1, refused_1) = whole, pieced
    assert refused == refused_1
    if refused:
        # a walk that raises takes back what it has written
        assert written_1.startswith(written) and others_1[:len(others)] == others and tags <= tags_1
    else:
        assert (written, others, tags) == (written_1, others_1, tags_1)
    _check_written(written_1, frame_max, is_cut=True)


def _relay(frame_max, kind, most, parts):
    stamp = HeaderStamp(b"\x08received", STAMP, STAMP_AGAIN) if kind & 64 and kind & 28 else None

    def edit(properties, delivered):
        if stamp is not None and properties.user_id is None:  # then it goes by the headers alone
            headers = properties.headers or {}
            if kind & 4 and not headers.get("received"):
                return None
            if kind & 8 and len(headers) > 2:
                raise KeyError("an edit that fails")
        else:
            if kind & 4 and delivered.routing_key == "":
                return None
            if kind & 8 and properties.message_id:
                raise KeyError("an edit that fails")
        if kind & 16:
            properties.headers = {"edited": [properties.headers or {}]}
        return properties

    relay = Relay(
        INPUT, OUTPUT, SOURCE, TARGET, frame_max, exchange=b"other" if kind & 1 else None,
        routing_key=b"" if kind & 2 else None, edit=edit if kind & 28 else None,
        offset_header=b"x-stream-offset" if kind & 32 else b"",
        header_stamp=stamp)
    relay.signs = bool(kind & 128)
    written, others, tags, tail = b"", [], 0, b""
    for part in parts:
        tail += part
        while True:
            view = tail[:INPUT_OCTETS]
            INPUT[:len(view)] = view
            try:
                with fenced(INPUT, len(view)):
                    done = relay.walk(len(view), most)
            except Unfit:
                assert not relay.skips
                relay.skips = True  # it is rejected
                continue
            except AMQPError:
                return written, others, tags, True
            assert 0 <= done <= len(view) and 0 <= relay.written <= OUTPUT_OCTETS
            assert relay.count <= most and relay.offset >= -1
            assert not (relay.left_out and relay.written)
            written += bytes(OUTPUT[:relay.written])
            tags = relay.last_tag
            others += relay.others
            relay.others = []
            tail = tail[done:]
            if not done:
                break
    return written, others, tags, False


def _check_written(octets, frame_max, is_cut):
    at, missing, expected = 0, 0, 1
    while at < len(octets):
        kind, channel = octets[at], int.from_bytes(octets[at + 1:at + 3], "big")
        size = int.from_bytes(octets[at + 3:at + 7], "big")
        assert channel == TARGET and len(octets) >= at + size + 8 and octets[at + 7 + size] == 0xCE
        assert not frame_max or size + 8 <= frame_max
        payload = octets[at + 7:at + 7 + size]
        if expected == 3:
            assert kind == 3 and 0 < size <= missing
            missing -= size
        elif expected == 2:
            assert kind == 2 and payload[:4] == b"\x00\x3c\x00\x00"
            missing = int.from_bytes(payload[4:12], "big")
        else:
            assert kind == 1 and payload[:4] == b"\x00\x3c\x00\x28"
        expected = 2 if expected == 1 else 3 if missing else 1
        at += size + 8
    assert is_cut or expected == 1


def _delivery(tag, properties, body=b"body", routing_key="k", redelivered=False, channel=SOURCE):
    method = BasicDeliver(
        consumer_tag="c", delivery_tag=tag, redelivered=redelivered, exchange="e", routing_key=routing_key)
    return method_frame(channel, method) + content_frames(channel, properties.encode(), body, 4096)


def sample_relay():
    plain, deep = Properties(headers={"x-stream-offset": 1 << 40, "a": [1, {"b": "c"}]}), {}
    for _ in range(40):
        deep = {"a": deep}
    stream = (
        _delivery(1, plain) + _delivery(2, Properties(), b"") + frame(8, 0, b"")
        + _delivery(3, PROPERTIES, b"x" * 9000, "", True) + _delivery(4, Properties(headers=deep))
        + _delivery(5, Properties(message_id="m")) + method_frame(SOURCE, BasicCancel(consumer_tag="c")))
    for prefix in (
        b"\x00\x00\x00\x01\x01\x01", b"\x01\x33\x01\xff\x10\x07", b"\x02\x54\x00\x40\x01\x30",
        b"\x01\xdc\x02\x20\xff\x03", b"\x00\xf8\x00\x80\x80\x80",
    ):
        yield prefix + stream
        yield prefix + stream[:-40] + method_frame(SOURCE, ChannelClose(reply_code=404, reply_text="gone"))
    yield b"\x01\x40\x00\xff\xff\xff" + _delivery(1, Properties(), b"x" * 5000)[:-1000]
    yield b"\x01\x10\x00\xff\xff\xff" + _delivery(1, Properties(headers={"a": "x" * 4000}))
    yield b"\x00\x80\x00\x01\x01\x01" + _delivery(2, plain)
    yield b"\x00\x80\x00\x01\x01\x01" + _delivery(1, plain, channel=2)


# confirms

def run_confirms(data):
    """However the stream is cut, the same is confirmed and refused, and it is what a set of numbers says."""
    draw = Draw(data)
    counts = [draw.octet() for _ in range(3)]
    sizes = tuple(draw.octets(3)) or (1,)
    stream = draw.rest()

    whole, pieced = _confirm(counts, [stream]), _confirm(counts, pieces(stream, sizes))

    if whole[0] or pieced[0]:
        assert whole[0] == pieced[0]
    else:
        assert whole == pieced


def _confirm(counts, parts):
    """(whether something was refused as no broker's, low, following, refused numbers, others)."""
    confirms, model, doubted = Confirms(TARGET, 4096), {}, set()
    others, tail = [], b""
    for count in counts:
        confirms.published(count)
        model.update((number, None) for number in range(len(model) + 1, len(model) + 1 + count))
    for part in parts:
        tail += part
        while True:
            buffer = bytearray(tail)
            try:
                done = confirms.walk(buffer, len(buffer))
                _model(model, doubted, tail[:done])
            except AMQPError:
                return True, 0, 0, [], []
            others += confirms.others
            confirms.others = []
            tail = tail[done:]
            if not done:
                break
    low = next((number for number, how in model.items() if how is None), len(model) + 1)
    assert (confirms.low, confirms.following) == (low, len(model) + 1)
    assert confirms.refused == [n for n, how in model.items() if how == "refused" and n < low]
    return False, confirms.low, confirms.following, confirms.refused, others


def _model(model, doubted, octets):
    at = 0
    while at < len(octets):
        size = int.from_bytes(octets[at + 3:at + 7], "big")
        method, payload = octets[at + 7:at + 11], octets[at + 11:at + 7 + size]
        if octets[at] == 1 and octets[at + 1:at + 3] == b"\x00\x07" and method == b"\x00\x3c\x00\x32":
            doubted.update(model)
        if octets[at] == 1 and octets[at + 1:at + 3] == b"\x00\x07" and method in (
                b"\x00\x3c\x00\x50", b"\x00\x3c\x00\x78"):
            number, multiple = int.from_bytes(payload[:8], "big"), payload[8] & 1
            last = number or len(model)
            for each in range(1 if multiple else number, (last if multiple else number) + 1):
                if each in model and model[each] is None:
                    is_taken = method[3] == 0x50 and each not in doubted
                    model[each] = "confirmed" if is_taken else "refused"
        at += size + 8


def sample_confirms():
    def ack(number, multiple=False):
        return method_frame(TARGET, BasicAck(delivery_tag=number, multiple=multiple))

    def nack(number, multiple=False):
        return method_frame(TARGET, BasicNack(delivery_tag=number, multiple=multiple))

    for prefix in (b"\x03\x00\x05\x01\x01\x01", b"\x40\xff\x01\xff\x15\x02"):
        yield prefix + ack(1) + ack(3) + nack(2) + frame(8, 0, b"") + ack(0, True)
        yield prefix + nack(5, True) + ack(5) + ack(5) + method_frame(
            TARGET, ChannelClose(reply_code=406, reply_text="x")) + ack(6)
        yield prefix + ack(1 << 63) + ack(1)
    yield b"\x03\x00\x05\x01\x01\x01" + ack(1) + method_frame(
        TARGET, BasicReturn(reply_code=312, reply_text="NO_ROUTE", exchange="", routing_key="q")
    ) + content_frames(TARGET, Properties().encode(), b"body", 4096) + ack(0, True)
    yield b"\x00\x00\x00\x01\x01\x01" + ack(0, True) + ack(1)
    yield b"\x02\x00\x00\x01\x01\x01" + method_frame(TARGET + 1, BasicAck(delivery_tag=1))


WORDS = (
    *WIRE_WORDS, b"\x00\x3c\x00\x3c", b"\x00\x3c\x00\x78", b"\x01\x00\x07\x00\x00\x00\x0d", b"\x02\x00\x01",
    b"x-stream-offset", b"received",
)
TARGETS = {
    "relay": Target(run_relay, sample_relay, 8192, WORDS),
    "confirms": Target(run_confirms, sample_confirms, 2048, WORDS),
}
