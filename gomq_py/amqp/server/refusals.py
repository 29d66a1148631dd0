"""Refusals: turns the broker's refusals (gomq_py.errors) and malformed or misplaced frames into AMQP errors.

Handshake and connection call these functions and catch the errors, which are classes of amqp.wire. Malformed
content closes the connection, any other refusal only the channel, as in RabbitMQ.
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
    errors.UnknownType: wire.PreconditionFailed,
    errors.Malformed: wire.SyntaxError_,
}
# The least octets of a payload by frame type: the ids of a method, the fixed part of a content header.
LEAST_PAYLOAD = {FRAME_METHOD: 4, FRAME_HEADER: 12, FRAME_BODY: 0, FRAME_HEARTBEAT: 0}
# Most octets of a frame shown in an error text, as in RabbitMQ.
SHOWN = 16


def as_amqp(error):
    """Return the AMQPError for ``error``, an AMQPError itself or a Refused of the broker."""
    if isinstance(error, wire.AMQPError):
        return error
    if isinstance(error, errors.OutOfResources):
        return wire.ResourceError(error.text).soft()
    return _ERRORS[type(error)](error.text)


def check_frame(kind, payload):
    """Raise FrameError for an unknown type, a payload too short for it, or a heartbeat with payload."""
    if len(payload) < LEAST_PAYLOAD.get(kind, len(payload) + 1) or (kind == FRAME_HEARTBEAT and payload):
        raise wire.FrameError(f"{described_frame(kind, payload)}: unknown_frame")


def described_frame(kind, payload):
    """Describe a frame for an error text as RabbitMQ does: at most 16 bytes, in Erlang's notation."""
    part = payload[:SHOWN]
    shown = (
        f'"{part.decode()}"' if part and all(32 <= octet < 127 for octet in part)
        else ",".join(map(str, part))
    )
    return f"type {kind}, {'all' if len(payload) <= SHOWN else 'first 16'} octets = <<{shown}>>"


def method_on_channel_0(payload):
    """Decode the method of a frame on channel 0. Raises FrameError, NotImplemented_. The error has the
    method's id, which RabbitMQ adds on this channel only.
    """
    try:
        return decode_method(payload)
    except wire.AMQPError as error:
        raise blamed(error, int.from_bytes(payload[:4], "big"))


def blamed(error, method_id):
    """Set in ``error`` the ids of the method that caused it, unless ids are set. Returns the error."""
    if not error.class_id and method_id:
        error.class_id, error.method_id = method_id >> 16, method_id & 0xFFFF
    return error
