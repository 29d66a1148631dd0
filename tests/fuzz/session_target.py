"""Fuzz target of an AMQP session behind the login: any methods in any order,
with a disk and a peer that take their time.

An input is a little program: whole methods with likely and unlikely fields, publishes, frames of any kind,
plain octets, cuts between reads, flushes that end well or badly, a socket that takes nothing for a while. No
socket: the connection is driven as net.stream does it, in one hub.
"""
import errno
import os
import shutil
import tempfile
from functools import cache

from gevent import socket as gevent_socket

from gomq_py.amqp.server.connection import Connection
from gomq_py.amqp.server.lifecycle import CLOSING, OPEN
from gomq_py.amqp.server.fast_lane import FastLane
from gomq_py.amqp.server.handshake import Limits
from gomq_py.amqp.wire import methods
from gomq_py.amqp.wire.errors import FrameError
from gomq_py.amqp.wire.frames import (
    BIT, FRAME_METHOD, LONG, LONGLONG, LONGSTR, OCTET, SHORT, SHORTSTR, TABLE, FrameReader, frame,
    header_payload, method_frame,
)
from gomq_py.amqp.wire.methods import METHODS, ChannelClose, ConnectionClose, decode_method
from gomq_py.broker.names import RESERVED_PREFIX
from gomq_py.broker.verbs.access import Access
from gomq_py.content.fields import encode_table
from gomq_py.content.properties import Properties
from gomq_py.net.output import Output
from gomq_py.net.stream import Stream
from tests.fuzz.target import Draw, Target, errors_logged
from tests.support.door import Door, poll_the_loop, publish_frames
from tests.support.exact import fenced
from tests.support.reads import TakingSocket, UnhurriedWalk

INTERNAL_ERROR = 541
REFUSAL = "the disk refuses"
FRAME_MAX = 4096
NOW_MS = 1_700_000_000_000

NAMES = (
    "q", "q2", "x", "x2", "", "amq.direct", "amq.topic", "amq.fanout", "amq.headers", "amq.rabbitmq.reply-to",
    "amq.gen", "direct", "topic", "fanout", "headers", "x-delayed-message", "x-consistent-hash", "x-random",
    "a.b", "#", "*.b", "t", "n\n", "\u00fc", "y" * 255, "1000",
)
TABLES = tuple(map(encode_table, (
    {}, {"x-message-ttl": 0}, {"x-max-length": 1}, {"x-max-length": 2, "x-overflow": "reject-publish"},
    {"x-max-priority": 3},
    {"x-dead-letter-exchange": "", "x-dead-letter-routing-key": "q2"}, {"x-delivery-limit": 1},
    {"x-expires": 1}, {"x-priority": 2},
    {"x-match": "any", "a": 1}, {"x-delayed-type": "direct"}, {"alternate-exchange": "x2"},
    {"x-single-active-consumer": True},
    {"x-queue-type": "stream"}, {"x-queue-type": "quorum"},
    {"x-max-length-bytes": 10, "x-overflow": "reject-publish-dlx"},
    {"x-message-ttl": "1"}, {"x-message-ttl": -1}, {"x-max-length": 2**40}, {"x-stream-offset": "first"},
    {"x-cancel-on-ha-failover": True},
))) + (
    b"\x00\x00\x00\x0b\x01kT" + b"\xff" * 8, b"\x00\x00\x00\x03\x01kI",
    b"\x00\x00\x00\x08\x01kD\xff\x80\x00\x00\x00", b"\xff\xff\xff\xff",
)
PROPERTIES = tuple(
    properties.encode()
    for properties in (
        Properties(), Properties(delivery_mode=2), Properties(delivery_mode=2, priority=9),
        Properties(expiration="0"), Properties(expiration="x"),
        Properties(headers={"CC": ["q2"], "BCC": ["q"]}), Properties(headers={"x-delay": 1}),
        Properties(headers={"a": 1}, delivery_mode=1),
        Properties(reply_to="amq.rabbitmq.reply-to"), Properties(user_id="guest"),
        Properties(user_id="other"), Properties(delivery_mode=3),
        Properties(
            headers={"x-death": [{"queue": "q", "reason": "expired", "count": 2**62}]}, delivery_mode=2
        ),
        Properties(headers={"x-schedule": {"name": "n", "every": 1000}}),
    )
) + (b"\x00\x01", b"\x20\x00\x00\x00\x00\x09")
NUMBERS = {
    OCTET: (0, 1, 2, 255), SHORT: (0, 1, 2, 65535), LONG: (0, 1, 1 << 20, 0xFFFFFFFF),
    LONGLONG: (0, 1, 2, 3, 5, (1 << 64) - 1),
}
CLIENT_METHODS = sorted(METHODS)
PUBLISH, RAW_FRAME, RAW_OCTETS, CUT, TURN, FLUSHED, REFUSED, STUCK = range(200, 208)


class _Session:
    """A connection behind its login, and the reads it is given."""

    def __init__(self, door, fd):
        self.socket = TakingSocket(fd, 5672)
        server = door.server
        guest = self.guest = door.server.gate.identify(self.socket, "127.0.0.1")
        connection = self.connection = Connection(server, self.socket, ("127.0.0.1", 1), guest)
        connection.vhost, connection.user = door.vhost, door.broker.users.get("guest")
        connection.capabilities = {"consumer_cancel_notify": True, "connection.blocked": True}
        connection.limits = Limits(3, FRAME_MAX, 0)
        connection.access = Access(connection.user, connection.vhost.name)
        connection.state = OPEN
        connection.output = Output(self.socket, door.hub.buffers)
        connection.output.on_overflow = connection._unread
        connection.stream = Stream(self.socket, door.hub.buffers, connection.output, door.hub.coalescer)
        connection.slow_walk = UnhurriedWalk(connection.stream, door.hub.slow_turns)
        connection.lane = FastLane(
            connection, door.hub.buffers, connection.channels, FRAME_MAX, connection.scheduler,
            door.settings.max_message_size,
        )
        door.hub.clients.register(connection)
        self.buffers = door.hub.buffers
        self.tail = b""
        self.refused = False  # the disk has refused a flush: then it is no fault to say so

    def read(self, octets):
        """One read, as net.stream hands it over. Returns False when nothing more is read."""
        connection = self.connection
        if connection.state not in (OPEN, CLOSING) or connection.stream.paused or connection.output.broken:
            return False
        start, end = self.buffers.reserve - len(self.tail), self.buffers.reserve + len(octets)
        assert start >= 0
        self.buffers.input[start:end] = self.tail + octets
        connection.output.cork()
        try:
            with fenced(self.buffers.input, end):
                position = connection.lane.process(start, end, NOW_MS)
            self.tail = bytes(self.buffers.input[position:end])
        except FrameError as error:
            connection.fail(error)
            return False
        finally:
            connection.lane.finish()
            connection.output.uncork()
        return True


@cache
def _door():
    """A broker of this process, which every input finds as the one before did."""
    folder = tempfile.mkdtemp(prefix="gomq-fuzz.", dir="/dev/shm" if os.path.isdir("/dev/shm") else None)
    import atexit
    atexit.register(shutil.rmtree, folder, True)
    door = Door(folder, manual=True, default_consumer_prefetch=100, max_consumers_per_channel=4)
    return door, gevent_socket.socketpair()


def run_session(data):
    """Every answer is a frame of the protocol, no fault of ours is among them,
    and at the end nothing of the session is left.
    """
    door, (ours, _) = _door()
    with errors_logged() as errors:
        session = _Session(door, ours.fileno())
        _play(door, session, Draw(data))
        session.socket.stuck = False
        _settle(door)
        session.connection._end()
        session.connection.hub.endings.finish()
        _settle(door)
        codes = _codes(session.socket.taken)
        _forget_everything(door)
    assert INTERNAL_ERROR not in codes or session.refused, codes
    assert not [text for text in errors if REFUSAL not in text], errors
    assert not door.hub.clients and not door.hub.bodies.held
    assert not door.committer.waiting


def _play(door, session, draw):
    pending = bytearray()
    steps = 0
    while draw and steps < 300:
        steps += 1
        what = draw.octet()
        if what < PUBLISH:
            pending += _method(draw, CLIENT_METHODS[what % len(CLIENT_METHODS)])
        elif what == PUBLISH:
            pending += publish_frames(
                draw.choice(NAMES), b"b" * draw.choice((0, 1, 10, 5000)), draw.choice(NAMES),
                draw.choice(PROPERTIES), 1 + draw.octet() % 3, FRAME_MAX, mandatory=bool(draw.octet() & 1))
        elif what == RAW_FRAME:
            kind, channel = draw.choice((1, 2, 2, 3, 3, 8, 0)), draw.octet() % 4
            payload = draw.octets(draw.octet())
            pending += frame(kind, channel, header_payload(payload, draw.octet()) if kind == 2 else payload)
        elif what == RAW_OCTETS:
            pending += draw.octets(draw.octet())
        else:
            session.read(bytes(pending))
            pending.clear()
            _world(door, session, what)
    session.read(bytes(pending))


def _world(door, session, what):
    if what == FLUSHED:
        door.committer.finish()
    elif what == TURN:
        poll_the_loop()
    elif what == STUCK:
        session.socket.stuck = not session.socket.stuck
    elif what == REFUSED:
        session.refused = True
        door.committer.finish(OSError(errno.EIO, REFUSAL))


def _method(draw, identity):
    method_class = METHODS[identity]
    channel = draw.choice((1, 1, 1, 1, 2, 0, 3, 9))
    values, tables = {}, []
    for name, kind in method_class.FIELDS:
        if kind is BIT:
            values[name] = bool(draw.octet() & 1)
        elif kind is SHORTSTR:
            values[name] = draw.choice(NAMES)
        elif kind is LONGSTR:
            values[name] = draw.octets(draw.octet() % 16)
        elif kind is TABLE:
            tables.append(draw.choice(TABLES))
        else:
            values[name] = draw.choice(NUMBERS[kind])
    octets = method_class(**values).encode()
    if tables:  # no method has two; where the table is the last field it can be any octets
        octets = octets[:-4] + tables[0] if method_class.FIELDS[-1][1] is TABLE else octets
    return frame(FRAME_METHOD, channel, octets)


def _settle(door):
    """Let the loop and the disk do what is left to do."""
    for _ in range(200):
        poll_the_loop()
        if not door.committer.finish() and not door.broker.scheduler.is_armed():
            return
    raise AssertionError("the broker does not come to rest")


def _codes(octets):
    """The codes of the closes in what the server sent, all of which must be frames."""
    reader = FrameReader(FRAME_MAX)
    reader.feed(bytes(octets))
    codes = []
    while (found := reader.next_frame()) is not None:
        if found[0] == FRAME_METHOD:
            method = decode_method(found[2])
            if isinstance(method, (ChannelClose, ConnectionClose)):
                codes.append(method.reply_code)
    assert not reader.take_rest(), "the last frame is not whole"
    return codes


def _forget_everything(door):
    vhost = door.vhost
    for name in list(vhost.queues):
        if name in vhost.queues:
            vhost.delete_queue(name, owner=vhost.queues[name].exclusive_owner)
    kept = (RESERVED_PREFIX, *vhost.kinds.reserved_prefixes)
    for name in list(vhost.exchanges):
        if name in vhost.exchanges and name and not name.startswith(kept):
            vhost.delete_exchange(name)
    _settle(door)
    assert not vhost.queues


def _call(method_class, table=0, channel=0, **values):
    """The octets that _method() draws to make this method."""
    octets = [CLIENT_METHODS.index(method_class.ID), channel]
    for name, kind in method_class.FIELDS:
        value = values.pop(name, "" if kind is SHORTSTR else 0)
        if kind is SHORTSTR:
            octets.append(NAMES.index(value))
        elif kind is TABLE:
            octets.append(table)
        elif kind in (BIT, LONGSTR):
            octets.append(value)
        else:
            octets.append(NUMBERS[kind].index(value))
    assert not values, values
    return bytes(octets)


def _publish(routing_key, exchange="", size=1, properties=1, mandatory=0):
    return bytes((PUBLISH, NAMES.index(routing_key), size, NAMES.index(exchange), properties, 0, mandatory))


def sample_session():
    """Every method on an open channel, and some of the ways they follow one another."""
    opened = _call(methods.ChannelOpen)
    declare = _call(methods.QueueDeclare, queue="q", durable=1)
    exchange = _call(methods.ExchangeDeclare, exchange="x", type="topic", durable=1)
    bind = _call(methods.QueueBind, queue="q", exchange="x", routing_key="#")
    confirm, consume = _call(methods.ConfirmSelect), _call(methods.BasicConsume, queue="q", consumer_tag="t")
    publish, get = _publish("q"), _call(methods.BasicGet, queue="q")
    ack, nack = _call(methods.BasicAck, delivery_tag=1), _call(methods.BasicNack, delivery_tag=2, requeue=1)
    reject = _call(methods.BasicReject, delivery_tag=3)
    for identity in CLIENT_METHODS:
        yield opened + declare + bytes((FLUSHED, TURN)) + _call(METHODS[identity])
        yield opened + declare + exchange + bytes(
            (CLIENT_METHODS.index(identity), 0, 1, 0, 2, 1, 1, 1, 1, 1, 1, FLUSHED)
        )
    yield opened + declare + exchange + bind + confirm + consume + publish * 3 + bytes(
        (CUT, FLUSHED)
    ) + ack + nack + bytes((TURN,)) + reject
    yield opened + declare + publish + get + get + _call(methods.BasicRecover, requeue=1) + get + _call(
        methods.ChannelClose
    )
    yield opened + _call(
        methods.TxSelect
    ) + declare + publish + _call(methods.TxCommit) + publish + _call(methods.TxRollback) + bytes((FLUSHED,))
    yield opened + declare + consume + bytes((STUCK,)) + publish * 5 + bytes((TURN, STUCK, TURN)) + ack
    yield opened + declare + _call(
        methods.QueueDelete, queue="q"
    ) + publish + opened + bytes((REFUSED,)) + declare
    for table in range(len(TABLES)):
        limited = _call(methods.QueueDeclare, table, queue="q", durable=1)
        yield opened + limited + publish * 4 + get + _call(
            methods.BasicReject, delivery_tag=1, requeue=1
        ) + bytes((FLUSHED, TURN)) + publish
        yield opened + declare + _call(methods.BasicConsume, table, queue="q", consumer_tag="t") + publish
    for properties in range(len(PROPERTIES)):
        yield opened + confirm + declare + exchange + bind + _publish(
            "q", "x", 3, properties, 1
        ) + bytes((FLUSHED, TURN)) + get
    for kind in ("x-delayed-message", "x-consistent-hash", "headers", "x-random"):
        made = _call(methods.ExchangeDeclare, 10, exchange="x", type=kind, durable=1)
        yield opened + declare + made + _call(
            methods.QueueBind, queue="q", exchange="x", routing_key="1000"
        ) + _publish("q", "x", 1, 6) + get
        yield opened + declare + made + bind + _publish("q", "x", 1, 6) + bytes((FLUSHED, TURN)) + get
    reply_to = _call(methods.BasicConsume, queue="amq.rabbitmq.reply-to", no_ack=1)
    yield opened + reply_to + declare + _publish("q", properties=8) + get
    yield opened + bytes((RAW_FRAME, 1, 1, 2, 0, 0, 5, RAW_OCTETS, 3, 1, 0, 1))
    raw = method_frame(1, methods.ChannelOpen()) + publish_frames("q")[:30]
    yield bytes((RAW_OCTETS, len(raw))) + raw


TARGETS = {"session": Target(run_session, sample_session, 600)}
