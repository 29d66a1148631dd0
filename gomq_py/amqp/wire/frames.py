"""Frames: octets from a socket to (type, channel, payload), and back. No I/O.

A frame is (§4.2.3)

    0  u8   type: 1 method, 2 content header, 3 content body, 8 heartbeat
    1  u16  channel
    3  u32  payload size
    7  ...  payload, then the octet 0xCE

Used by the client, the handshake and everything slow; the broker's fast lane walks frames in its own buffer.
Never holds more than one incomplete frame beyond what was fed, and never accepts a payload larger than
frame_max.
"""
from struct import Struct

from gomq_py import octets
from gomq_py.amqp.wire.constants import (
    CLASS_BASIC, FRAME_BODY, FRAME_END, FRAME_HEAD_SIZE, FRAME_HEADER, FRAME_HEARTBEAT, FRAME_METHOD,
    FRAME_OVERHEAD,
)
from gomq_py.amqp.wire.errors import FrameError, UnexpectedFrame

HEARTBEAT_FRAME = b"\x08\x00\x00\x00\x00\x00\x00\xce"

_HEAD = Struct(">BHI")
_HEADER = Struct(">HHQ")  # class, weight (unused, 0), body size: the fixed part of a content header
assert _HEAD.size == FRAME_HEAD_SIZE
assert _HEADER.size == 12

_END = bytes((FRAME_END,))


class FrameReader:
    """Cuts a stream of octets into frames.

    Set ``frame_max`` when it has been negotiated; 0 means no limit.
    """

    __slots__ = ("frame_max", "buffer", "position")

    def __init__(self, frame_max):
        self.frame_max = frame_max
        self.buffer = bytearray()
        self.position = 0

    def feed(self, data):
        """Append received octets."""
        if self.position:
            del self.buffer[:self.position]
            self.position = 0
        self.buffer += data

    def take_rest(self):
        """Give up what has been fed and not been cut into frames yet."""
        rest = bytes(self.buffer[self.position:])
        self.buffer.clear()
        self.position = 0
        return rest

    def next_frame(self):
        """(type, channel, payload) of the next whole frame, or None.

        Raises FrameError; the reader is of no use afterwards.
        """
        length = len(self.buffer)
        at = self.position
        if length - at < 7:
            return None
        p = octets.pointer(self.buffer)
        kind = p[at]
        if kind != 1 and kind != 2 and kind != 3 and kind != 8:
            raise FrameError(f"unknown frame type {kind}")
        channel = octets.be16(p, at + 1)
        size = octets.be32(p, at + 3)
        # A payload of frame_max itself is 8 octets too long for the frame; RabbitMQ lets it pass because some
        # clients count without the overhead.
        if self.frame_max and size > self.frame_max:
            raise FrameError(
                f"type {kind} frame on channel {channel} has a payload of {size} octets, negotiated "
                f"frame_max is {self.frame_max}"
            )
        if length - at < size + 8:
            return None
        if p[at + 7 + size] != 0xCE:
            raise FrameError(
                f"type {kind} frame on channel {channel} ends with octet {p[at + 7 + size]} instead of 206"
            )
        self.position = at + size + 8
        return int(kind), int(channel), bytes(p[at + 7:at + 7 + size])

    def rest(self):
        """Hand over what was fed and not cut into frames yet; the reader is empty afterwards."""
        left = bytes(self.buffer[self.position:])
        self.buffer = bytearray()
        self.position = 0
        return left


def frame(kind, channel, payload):
    """One frame of any type."""
    return _HEAD.pack(kind, channel, len(payload)) + payload + _END


def method_frame(channel, method):
    """A method frame."""
    return frame(FRAME_METHOD, channel, method.encode())


def header_payload(properties, body_size, class_id=CLASS_BASIC):
    """The payload of a content header; ``properties`` in wire form."""
    return _HEADER.pack(class_id, 0, body_size) + properties


def decode_header(payload):
    """(class_id, body_size, properties in wire form, unchecked) of a content header's payload.

    Raises FrameError if it is cut short, UnexpectedFrame for a weight other than 0 (RabbitMQ's answers).
    """
    if len(payload) < _HEADER.size:
        raise FrameError(f"content header of {len(payload)} octets")
    class_id, weight, body_size = _HEADER.unpack_from(payload)
    if weight:
        raise UnexpectedFrame("expected content header for class 60, got non content header frame instead")
    return class_id, body_size, bytes(payload[_HEADER.size:])


def content_frames(channel, properties, body, frame_max, class_id=CLASS_BASIC):
    """Header and body frames of one message; ``properties`` in wire form, the body cut to ``frame_max`` (0:
    never).
    """
    size = len(body)
    header = frame(FRAME_HEADER, channel, header_payload(properties, size, class_id))
    room = frame_max - FRAME_OVERHEAD if frame_max else size
    if size <= room:
        return header + frame(FRAME_BODY, channel, body) if size else header
    parts = [header]
    for at in range(0, size, room):
        parts.append(frame(FRAME_BODY, channel, body[at:at + room]))
    return b"".join(parts)


assert HEARTBEAT_FRAME == frame(FRAME_HEARTBEAT, 0, b"")
