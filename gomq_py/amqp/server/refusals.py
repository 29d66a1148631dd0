"""Refusals: what a client is told, in AMQP's words, of what the core refuses (gomq_py.errors), and of a frame
that is malformed or comes at a wrong place.

Between handshake and connection, which catch the errors, and the wire's errors. RabbitMQ closes the
connection because of an unknown type or malformed content, and only the channel because of everything else
that the core refuses. Looks at the outside of frames only; never reads, writes or closes.
"""
from gomq_py import errors
from gomq_py.amqp.wire import errors as wire
from gomq_py.amqp.wire.frames import FRAME_BODY, FRAME_HEADER, FRAME_HEARTBEAT, FRAME_METHOD
from gomq_py.amqp.wire.methods import decode_method

_ERRORS = {
    errors.AccessRefused: wire.AccessRefused,
    errors.NoPermission: wire.AccessRefused,
    errors.NotFound: wire.NotFound,
    errors.ResourceLocked: wire.ResourceLocked,
    errors.PreconditionFailed: wire.PreconditionFailed,
    errors.UnknownType: wire.CommandInvalid,
    errors.Malformed: wire.SyntaxError_,
}
# The least octets of a frame's payload, by its type: the ids of a method, the fixed part of a content header.
LEAST_PAYLOAD = {FRAME_METHOD: 4, FRAME_HEADER: 12, FRAME_BODY: 0, FRAME_HEARTBEAT: 0}
# Octets of a frame that an error text shows, as in RabbitMQ.
SHOWN = 16


def as_amqp(error):
    """The AMQPError that tells the client of an AMQPError or a Refused."""
    if isinstance(error, wire.AMQPError):
        return error
    if isinstance(error, errors.OutOfResources):
        return wire.ResourceError(error.text).soft()
    return _ERRORS[type(error)](error.text)


def check_frame(kind, payload):
    """Raises FrameError for an unknown type, too few octets for the type, or a heartbeat that holds any."""
    if len(payload) < LEAST_PAYLOAD.get(kind, len(payload) + 1) or (kind == FRAME_HEARTBEAT and payload):
        raise wire.FrameError(f"{described_frame(kind, payload)}: unknown_frame")


def described_frame(kind, payload):
    """A frame in an error text: RabbitMQ's words, the octets in Erlang's notation and at most 16 of them."""
    part = payload[:SHOWN]
    shown = (
        f'"{part.decode()}"' if part and all(32 <= octet < 127 for octet in part)
        else ",".join(map(str, part))
    )
    return f"type {kind}, {'all' if len(payload) <= SHOWN else 'first 16'} octets = <<{shown}>>"


def method_on_channel_0(payload):
    """The method of a frame on channel 0. Raises FrameError, NotImplemented_, naming the method, as RabbitMQ
    does on this channel only.
    """
    try:
        return decode_method(payload)
    except wire.AMQPError as error:
        raise blamed(error, int.from_bytes(payload[:4], "big"))


def blamed(error, method_id):
    """The error, naming the method it is about unless it names one already."""
    if not error.class_id and method_id:
        error.class_id, error.method_id = method_id >> 16, method_id & 0xFFFF
    return error
