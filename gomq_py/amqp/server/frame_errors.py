"""Frame errors: what is told of a frame that can be none, or comes at a wrong place.

Shared by handshake and connection.

Looks at the outside of frames only; what their contents mean is for those who call. Never reads, writes or
closes.
"""
from gomq_py.amqp.wire.frames import FRAME_BODY, FRAME_HEADER, FRAME_HEARTBEAT, FRAME_METHOD
from gomq_py.amqp.wire.errors import AMQPError, FrameError
from gomq_py.amqp.wire.methods import decode_method

# Octets that a frame must have to be one, by its type: the ids of a method, the fixed part of a content
# header.
LEAST_PAYLOAD = {FRAME_METHOD: 4, FRAME_HEADER: 12, FRAME_BODY: 0, FRAME_HEARTBEAT: 0}
# Octets of a frame that an error text shows, as in RabbitMQ.
SHOWN = 16


def check_frame(kind, payload):
    """Raises FrameError for an unknown type, too few octets for the type, or a heartbeat that holds any."""
    if len(payload) < LEAST_PAYLOAD.get(kind, len(payload) + 1) or (kind == FRAME_HEARTBEAT and payload):
        raise FrameError(f"{described_frame(kind, payload)}: unknown_frame")


def described_frame(kind, payload):
    """A frame in an error text: RabbitMQ's words, the octets in Erlang's notation and at most 16 of them."""
    part = payload[:SHOWN]
    shown = (
        f'"{part.decode()}"' if part and all(32 <= octet < 127 for octet in part)
        else ",".join(map(str, part))
    )
    return f"type {kind}, {'all' if len(payload) <= SHOWN else 'first 16'} octets = <<{shown}>>"


def method_on_channel_0(payload):
    """The method of a frame on channel 0.

    What cannot be decoded is blamed on it: RabbitMQ names it there, though not on other channels.

    Raises FrameError, NotImplemented_.
    """
    try:
        return decode_method(payload)
    except AMQPError as error:
        raise blamed(error, int.from_bytes(payload[:4], "big"))


def blamed(error, method_id):
    """The error, naming the method it is about unless it names one already."""
    if not error.class_id and method_id:
        error.class_id, error.method_id = method_id >> 16, method_id & 0xFFFF
    return error
