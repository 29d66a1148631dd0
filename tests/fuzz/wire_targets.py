"""Fuzz targets of the wire: frames, field tables, properties, methods, the fast lane, the handshake.

Octets in front of exact ends.
"""
import struct

from gomq_py.amqp.server.handshake import Closed, Handshake, HandshakeError, Limits, Login, Open, start_frame
from gomq_py.amqp.wire.errors import AMQPError, FrameError
from gomq_py.amqp.wire.frames import (
    PROTOCOL_HEADER, FrameReader, content_frames, frame, header_payload, method_frame,
)
from gomq_py.amqp.wire.methods import (
    METHODS, BasicAck, BasicConsume, ConnectionClose, ConnectionOpen, ConnectionStartOk, ConnectionTuneOk,
    QueueDeclare, decode_method,
)
from gomq_py.content import fields
from gomq_py.content.properties import Properties, PropertyEdit, PropertyScan
from gomq_py.errors import Malformed
from gomq_py.storage.stores.group_key import GroupKey
from tests.fuzz.target import Draw, Target, pieces
from tests.support.exact import exact, fenced
from tests.support.lanes import NOW_MS, LaneBench, ack, content_header, publish

TABLE = {
    "t": True, "i": 1, "l": 1 << 40, "d": 0.5, "s": "x", "o": b"\xff", "n": None,
    "a": [1, "x", [2.5, {"k": 1}]], "f": {"g": {"h": False}},
    "CC": ["a", "b"],
}
RARE_VALUES = (
    b"\x01bb\xff\x01BB\x02\x01ss\xff\xfe\x01uu\x00\x07\x01ii\x00\x00\x00\x07\x01ff\x3f\x80\x00\x00\x01DD\x02"
    b"\x00\x00\x01\x00"
)
RARE_VALUES += b"\x01TT" + bytes(8)
PROPERTIES = Properties(
    content_type="text/plain", content_encoding="gzip", headers={"a": 1, "BCC": ["q"]}, delivery_mode=2,
    priority=5, correlation_id="c", reply_to="amq.rabbitmq.reply-to", expiration="1000", message_id="m",
    timestamp=1_700_000_000, type="t", user_id="guest", app_id="a", cluster_id="k")


# Octets of the longest key of a group that is kept whole.
WHOLE_KEY = 32


# frames

def run_frames(data):
    """However the stream is cut, the same frames come out, and they are the stream."""
    draw = Draw(data)
    frame_max = draw.choice((0, 4096, 64, 8))
    sizes = tuple(draw.octets(3)) or (1,)
    stream = draw.rest()

    whole, pieced = _cut([stream], frame_max), _cut(pieces(stream, sizes), frame_max)

    assert whole == pieced
    found, _ = whole
    encoded = b"".join(frame(*each) for each in found)
    assert stream.startswith(encoded)
    assert not frame_max or all(len(payload) <= frame_max for _, _, payload in found)


def _cut(parts, frame_max):
    reader, found = FrameReader(frame_max), []
    for part in parts:
        reader.feed(part)
        try:
            while (each := reader.next_frame()) is not None:
                found.append(each)
        except FrameError:
            return found, "refused"
    return found, reader.take_rest()


def sample_frames():
    body = content_frames(1, PROPERTIES.encode(), b"x" * 40, 64)
    for prefix in (b"\x00\x01\x02\x03", b"\x01\xff\xff\xff", b"\x02\x07\x01\x20"):
        yield prefix + method_frame(1, QueueDeclare(queue="q")) + body + frame(8, 0, b"")
    yield b"\x01\x00\x00\x00\x01\x00\x00\x00\x00\x00\x00\xcf"


# field tables

def run_tables(data):
    """What is decoded encodes to what decodes to it again;
    single keys are changed in place without touching the others.
    """
    with exact(data) as view:
        for decode in (fields.decode_table, fields.decode_value):
            try:
                value, end = decode(view)
            except Malformed:
                continue
            assert 0 <= end <= len(data)
            with exact(data[:end]) as whole:
                assert repr(decode(whole)) == repr((value, end))
            encode = fields.encode_table if decode is fields.decode_table else fields.encode_value
            octets = encode(value)
            assert repr(decode(octets)) == repr((value, len(octets)))
            if decode is fields.decode_table:
                _edit_keys(bytes(data[:end]), value)


def _edit_keys(raw, table):
    assert fields.get_key(raw, "not there", 7) == table.get("not there", 7)
    for key in list(table)[:4] + ["new"]:
        changed = fields.set_key(raw, key, "changed")
        assert fields.get_key(changed, key) == "changed"
        others = {name: value for name, value in fields.decode_table(changed)[0].items() if name != key}
        assert repr(others) == repr({name: value for name, value in table.items() if name != key})
        fields.decode_table(fields.remove_key(raw, key))


def sample_tables():
    table = fields.encode_table(TABLE)
    yield table
    yield fields.encode_array(list(TABLE.values()))
    yield struct.pack(">I", len(RARE_VALUES)) + RARE_VALUES
    yield fields.encode_table({"a": 1, "a\udcff": 2}) + b"rest"
    yield fields.encode_value({"x": [1]})
    yield b"\x00\x00\x00\x08\x01kF\x00\x00\x00\x00"


# properties

def run_properties(data):
    """A scan and a decode agree on what is well-formed;
    an edit that changes nothing gives the same octets.
    """
    with exact(data) as view:
        well_formed = PropertyScan().scan_octets(view)
        try:
            decoded = Properties.decode(view)
        except Malformed:
            assert not well_formed
            return
    assert well_formed
    assert repr(Properties.decode(decoded.encode())) == repr(decoded)
    raw = bytes(data)
    _check_group_keys(raw, decoded)
    edit = PropertyEdit(raw)
    assert edit.octets() == raw
    edit.expiration = None
    without = Properties.decode(edit.octets())
    assert without.expiration is None and without.message_id == decoded.message_id
    edit.headers = fields.set_key(edit.headers, "x-death", [1])
    assert Properties.decode(edit.octets()).headers["x-death"] == [1]


def _check_group_keys(raw, decoded):
    """The key of a message's group is the same in octets and decoded."""
    assert _is_key_of(GroupKey("correlation-id").of_octets(raw), decoded.correlation_id)
    for name, value in list((decoded.headers or {}).items())[:4]:
        key = name.encode("utf-8", "surrogateescape")
        if isinstance(value, int) and not isinstance(value, (bool, fields.Seconds)):
            value = str(value)
        assert not key or _is_key_of(GroupKey("header", key).of_octets(raw), value)


def _is_key_of(key, value):
    if isinstance(value, str):
        value = value.encode("utf-8", "surrogateescape")
    if not value or not isinstance(value, bytes):
        return key is None
    return key == value if len(value) <= WHOLE_KEY else len(key) == WHOLE_KEY + 1


def sample_properties():
    yield PROPERTIES.encode()
    yield Properties(delivery_mode=1).encode()
    yield Properties(headers={}).encode()
    yield Properties(headers={**TABLE, "key": "k" * 40, "small": -7}, correlation_id="c" * 33).encode()
    yield Properties(expiration="").encode()
    yield b"\x00\x02"
    yield b"\x00\x00"
    yield b"\x00\x01\x00\x00"


# methods

def run_methods(data):
    """What decodes encodes to what decodes to it again; the rest is refused with a code of the protocol."""
    with exact(data) as view:
        try:
            method = decode_method(view)
        except AMQPError:
            return
    assert repr(decode_method(method.encode())) == repr(method)


def sample_methods():
    for method_class in METHODS.values():
        yield method_class().encode()
    yield QueueDeclare(queue="q" * 200, durable=True, arguments=TABLE).encode()
    yield BasicConsume(queue="q", consumer_tag="t", arguments={"x-priority": 1}).encode()


# the fast lane

class _FencedLane(LaneBench):
    """Nothing behind a read may be touched."""

    def read(self, octets):
        start, end = self.buffers.reserve - len(self.tail), self.buffers.reserve + len(octets)
        assert start >= 0
        self.buffers.input[start:end] = self.tail + octets
        with fenced(self.buffers.input, end):
            try:
                position = self.lane.process(start, end, NOW_MS)
            finally:
                self.lane.finish()
        assert start <= position <= end
        self.tail = bytes(self.buffers.input[position:end])


def run_lane(data):
    """However the stream is cut, the lane stores and hands over the same."""
    draw = Draw(data)
    sizes = tuple(draw.octets(3)) or (1,)
    stream = draw.rest()

    assert _walk([stream], len(stream)) == _walk(pieces(stream, sizes), len(stream))


def _walk(parts, most):
    bench = _FencedLane(frame_max=4096, max_message=3000)
    for part in parts:
        try:
            for piece in pieces(part, (bench.buffers.input_octets,)):
                bench.read(piece)
        except FrameError:
            return bench.log, "refused"
        assert len(bench.tail) <= most
    return bench.log, bench.tail


def sample_lane():
    persistent = b"\x10\x00\x02"
    yield b"\x01\x01\x01" + publish() + ack(1) + publish(b"", routing_key=b"other") + publish(
        b"x" * 100, properties=PROPERTIES.encode()
    )
    yield b"\x07\x20\x03" + publish(
        properties=persistent, channel=2
    ) + publish(bits=1) + ack(5, True, 2) + publish(exchange=b"e", routing_key=b"")
    yield b"\xff\xff\xff" + publish()[:-1] + b"\x00"
    yield b"\x10\x10\x10" + frame(8, 0, b"") + content_header(3) + publish(properties=b"\x08\x00\x09")[:40]
    yield b"\x05\x05\x05" + method_frame(
        1, QueueDeclare(queue="q")
    ) + method_frame(1, BasicAck(delivery_tag=1)) + frame(3, 1, b"stray")


# the handshake

def run_handshake(data):
    """However the stream is cut, the same steps are taken,
    and a stranger makes the broker hold one small frame.
    """
    draw = Draw(data)
    sizes = tuple(draw.octets(3)) or (1,)
    stream = draw.rest()

    assert _shake_hands([stream]) == _shake_hands(pieces(stream, sizes))


def _shake_hands(parts):
    handshake = Handshake(Limits(2047, 131072, 60), start_frame({"product": "x"}, False))
    steps = []
    for part in parts:
        if handshake.state == "open":
            break
        handshake.feed(part)
        try:
            while handshake.state != "open" and (step := handshake.next_step()) is not None:
                steps.append(repr(step))
                if isinstance(step, Closed):
                    return steps
                if isinstance(step, Login):
                    steps.append(handshake.logged_in() if step.username else handshake.refused())
                    if not step.username:
                        return steps
                elif isinstance(step, Open):
                    steps.append(handshake.opened())
        except HandshakeError as error:
            return [*steps, error.reply]
    assert isinstance(handshake.capabilities, dict) and handshake.limits.frame_max <= 131072
    return steps


def sample_handshake():
    properties = {"capabilities": {"authentication_failure_close": True}, "connection_name": "n"}
    plain = ConnectionStartOk(
        client_properties=properties, mechanism="PLAIN", response=b"\0guest\0guest", locale="en_US"
    )
    login = fields.encode_table({"LOGIN": "guest", "PASSWORD": "guest"})[4:]
    amqplain = ConnectionStartOk(
        client_properties={"capabilities": 1}, mechanism="AMQPLAIN", response=login, locale="en_US"
    )
    tuned = method_frame(0, ConnectionTuneOk(channel_max=10, frame_max=8192, heartbeat=0))
    opened = method_frame(0, ConnectionOpen(virtual_host="/"))
    for prefix in (b"\x01\x01\x01", b"\x08\xff\x10"):
        yield prefix + PROTOCOL_HEADER + method_frame(0, plain) + tuned + opened + b"rest"
        yield prefix + PROTOCOL_HEADER + method_frame(0, amqplain) + tuned + frame(8, 0, b"") + opened
        yield prefix + b"AMQP\x01\x01\x00\x09" + method_frame(0, ConnectionClose())
    yield b"\x01\x01\x01GET / HTTP/1.1\r\n"
    yield b"\x02\x02\x02" + PROTOCOL_HEADER + method_frame(
        0, ConnectionStartOk(mechanism="PLAIN", response=b"\0\0")
    ) + tuned
    yield b"\x02\x02\x02" + PROTOCOL_HEADER + method_frame(0, plain) + method_frame(
        0, ConnectionTuneOk(channel_max=0, frame_max=100, heartbeat=1)
    )


WORDS = (
    b"\xce", b"\x00\x3c\x00\x28", b"\x00\x3c\x00\x50", b"\x00\x3c\x00\x00", b"\x02\x00\x01", b"\x03\x00\x01",
    b"CC", b"BCC", b"F\x00\x00\x00",
    b"A\x00\x00\x00", b"S\x00\x00\x00", b"PLAIN", b"AMQPLAIN", b"LOGIN", b"PASSWORD", b"amq.",
    header_payload(b"\0\0", 5),
)

TARGETS = {
    "frames": Target(run_frames, sample_frames, 1024, WORDS),
    "tables": Target(run_tables, sample_tables, 1024, WORDS),
    "properties": Target(run_properties, sample_properties, 1024, WORDS),
    "methods": Target(run_methods, sample_methods, 512, WORDS),
    "lane": Target(run_lane, sample_lane, 8192, WORDS),
    "handshake": Target(run_handshake, sample_handshake, 4096, WORDS),
}
