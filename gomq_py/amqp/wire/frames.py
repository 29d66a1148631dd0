"""Frames and methods: decodes bytes to (type, channel, payload) and to methods, and encodes both. No I/O.

A frame is (§4.2.3)

    0  u8   type: 1 method, 2 content header, 3 content body, 8 heartbeat
    1  u16  channel
    3  u32  payload size
    7  ...  payload, then the byte 0xCE

The payload of a method frame is class id (u16), method id (u16), then the fields in order without padding
(§4.2.4). Adjacent bits share bytes, first bit lowest. The module ``methods`` lists the methods.

The client, the handshake and all slow code use this module; the fast lane parses frames itself. Compiled,
because a login or a declare spends most of its time here.
"""
from struct import Struct
from typing import TYPE_CHECKING, Any

from gomq_py import octets
from gomq_py.amqp.wire.errors import FrameError, UnexpectedFrame
from gomq_py.content import fields
from gomq_py.errors import Malformed

PROTOCOL_HEADER = b"AMQP\x00\x00\x09\x01"  # §4.2.2

# Frame types (§4.2.3). Types 2 and 3 only follow a method that carries content.
FRAME_METHOD = 1
FRAME_HEADER = 2
FRAME_BODY = 3
FRAME_HEARTBEAT = 8
FRAME_END = 0xCE

FRAME_OVERHEAD = 8  # octets of a frame besides its payload: type, channel, payload size, end octet
HEADER_OVERHEAD = 20  # the same for a header frame, with class, weight and body size
FRAME_MIN_SIZE = 4096  # §4.2.3: every peer must accept this before frame_max is negotiated
# RabbitMQ's and LavinMQ's default; larger frames starve the other channels of a connection
FRAME_MAX_DEFAULT = 131072
CHANNEL_MAX_DEFAULT = 2047  # RabbitMQ's default
CLASS_BASIC = 60
REPLY_SUCCESS = 200

HEARTBEAT_FRAME = b"\x08\x00\x00\x00\x00\x00\x00\xce"

# Kinds of fields. Short strings are str, long strings bytes, tables dicts.
OCTET, SHORT, LONG, LONGLONG, BIT, SHORTSTR, LONGSTR, TABLE = (
    "octet", "short", "long", "longlong", "bit", "shortstr", "longstr", "table"
)

_HEAD = Struct(">BHI")
_HEADER = Struct(">HHQ")  # class, weight (unused, 0), body size: the fixed part of a content header
assert _HEAD.size == 7
assert _HEADER.size == 12

_END = bytes((FRAME_END,))
_STRUCTS = {OCTET: Struct(">B"), SHORT: Struct(">H"), LONG: Struct(">I"), LONGLONG: Struct(">Q")}
_DEFAULTS = {OCTET: 0, SHORT: 0, LONG: 0, LONGLONG: 0, BIT: False, SHORTSTR: "", LONGSTR: b"", TABLE: None}
_ID = Struct(">I")  # class id and method id together
_SIZE = Struct(">I")


class FrameReader:
    """Cuts received bytes into frames, and keeps an incomplete frame until the next feed(). ``frame_max``:
    largest payload accepted; 0: no limit.
    """

    __slots__ = ("frame_max", "buffer", "position")

    def __init__(self, frame_max):
        self.frame_max = frame_max
        self.buffer = bytearray()
        self.position = 0

    def feed(self, data):
        if self.position:
            del self.buffer[:self.position]
            self.position = 0
        self.buffer += data

    def take_rest(self):
        """Return the bytes that next_frame() has not returned, and forget them."""
        rest = bytes(self.buffer[self.position:])
        self.buffer.clear()
        self.position = 0
        return rest

    def next_frame(self):
        """Return (type, channel, payload) of the next frame, or None if the frame is incomplete. Raises
        FrameError; the reader is unusable afterwards.
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
                f"type {kind} frame on channel {channel} has a payload of {size} bytes, negotiated "
                f"frame_max is {self.frame_max}"
            )
        if length - at < size + 8:
            return None
        if p[at + 7 + size] != 0xCE:
            raise FrameError(
                f"type {kind} frame on channel {channel} ends with byte {p[at + 7 + size]} instead of 206"
            )
        self.position = at + size + 8
        return int(kind), int(channel), bytes(p[at + 7:at + 7 + size])


def frame(kind, channel, payload):
    """Encode a frame of type ``kind``."""
    return _HEAD.pack(kind, channel, len(payload)) + payload + _END


def method_frame(channel, method):
    """Encode the frame of a Method."""
    return frame(FRAME_METHOD, channel, method.encode())


def header_payload(properties, body_size, class_id=CLASS_BASIC):
    """Return the payload of a content header frame. ``properties``: encoded, as bytes."""
    return _HEADER.pack(class_id, 0, body_size) + properties


def decode_header(payload):
    """Decode a content header's payload. Returns (class_id, body_size, properties as unchecked bytes). As
    in RabbitMQ, raises FrameError if the payload is too short, UnexpectedFrame if the weight is not 0.
    """
    if len(payload) < _HEADER.size:
        raise FrameError(f"content header of {len(payload)} bytes")
    class_id, weight, body_size = _HEADER.unpack_from(payload)
    if weight:
        raise UnexpectedFrame("expected content header for class 60, got non content header frame instead")
    return class_id, body_size, bytes(payload[_HEADER.size:])


def content_frames(channel, properties, body, frame_max, class_id=CLASS_BASIC):
    """Encode a message's header and body frames. ``properties``: encoded, as bytes. With ``frame_max`` 0
    the body is one frame.
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


class MethodType(type):
    """The type of the Method classes: gives each class a slot for each of its FIELDS."""

    def __new__(cls, name, bases, namespace):
        namespace["__slots__"] = tuple(field for field, _ in namespace.get("FIELDS", ()))
        return super().__new__(cls, name, bases, namespace)


class Method(metaclass=MethodType):
    """Base class of all AMQP methods. Fields are keyword arguments, with zero, false or empty as default."""

    NAME = ""
    ID = 0
    SYNCHRONOUS = False
    # whether short strings may be no UTF-8: RabbitMQ does not check those of methods that carry messages
    ANY_OCTETS = False
    FIELDS: tuple = ()

    if TYPE_CHECKING:  # the fields are slots named by FIELDS, which a type checker cannot see

        def __getattr__(self, name: str) -> Any: ...

    def __init__(self, **values):
        for name, kind in self.FIELDS:
            if name in values:
                setattr(self, name, values.pop(name))
            else:
                setattr(self, name, {} if kind is TABLE else _DEFAULTS[kind])
        if values:
            raise TypeError(f"{self.NAME} has no field {', '.join(sorted(values))}")

    @classmethod
    def decode(cls, payload, offset=4):
        """Decode a method from its frame's payload, whose fields begin at ``offset``. Raises FrameError if
        the fields are malformed or do not fill the payload exactly.
        """
        # As RabbitMQ; the specification asks for a syntax error.
        self = cls.__new__(cls)
        try:
            if read_fields(self, cls.FIELDS, payload, offset, cls.ANY_OCTETS):
                return self
        except UnicodeDecodeError:
            raise FrameError("Malformed UTF-8 in shortstr") from None
        except Malformed:
            pass
        raise FrameError(f"cannot decode {cls.NAME}", cls.ID >> 16, cls.ID & 0xFFFF)

    def encode(self):
        """Return the method frame's payload: class id, method id and fields. Raises ValueError or
        struct.error for values that do not fit their fields.
        """
        parts = [_ID.pack(self.ID)]
        bits = bit = 0
        for name, kind in self.FIELDS:
            value = getattr(self, name)
            if kind is BIT:
                if not bit & 0xFF:
                    if bit:
                        parts.append(bytes((bits,)))
                    bits, bit = 0, 1
                if value:
                    bits |= bit
                bit <<= 1
                continue
            if bit:
                parts.append(bytes((bits,)))
                bits = bit = 0
            parts.append(_encode_field(value, kind))
        if bit:
            parts.append(bytes((bits,)))
        return b"".join(parts)

    def __eq__(self, other):
        return (
            type(self) is type(other)
            and all(getattr(self, name) == getattr(other, name) for name, _ in self.FIELDS)
        )

    def __hash__(self):
        return hash(self.encode())

    def __repr__(self):
        given = ", ".join(f"{name}={getattr(self, name)!r}" for name, _ in self.FIELDS)
        return f"{type(self).__name__}({given})"


def _encode_field(value, kind):
    if kind is SHORTSTR:
        return fields.encode_shortstr(value)
    if kind is TABLE:
        return fields.encode_table(value)
    if kind is LONGSTR:
        raw = value.encode("utf-8") if isinstance(value, str) else bytes(value)
        return _SIZE.pack(len(raw)) + raw
    return _STRUCTS[kind].pack(value)


def read_fields(method, kinds, data, at, any_octets):
    """Decode the fields of ``method`` from ``data``, beginning at offset ``at``. ``kinds``: (name, kind) of
    each field in order. Returns True if the fields end exactly with the data. ``any_octets``: accept short
    strings that are not UTF-8, which otherwise raise UnicodeDecodeError. Raises Malformed for a malformed
    table.
    """
    p = octets.pointer(data)
    length = len(data)
    bits = bit = 0
    for name, kind in kinds:
        if kind is BIT:
            if not bit & 0xFF:
                if at >= length:
                    return False
                bits, bit = p[at], 1
                at += 1
            setattr(method, name, bits & bit != 0)
            bit <<= 1
            continue
        bit = 0
        if kind is TABLE:
            value, at = fields.decode_table(data, at)
            setattr(method, name, value)
            continue
        size = (
            1 if kind is SHORTSTR or kind is OCTET else 2 if kind is SHORT else 8 if kind is LONGLONG else 4)
        if size > length - at:
            return False
        if kind is SHORTSTR or kind is LONGSTR:
            start = at + size
            size = p[at] if kind is SHORTSTR else octets.be32(p, at)
            if size > length - start:
                return False
            at = start + size
            raw = bytes(p[start:at])
            if kind is LONGSTR:
                setattr(method, name, raw)
            else:
                setattr(method, name, raw.decode("utf-8", "surrogateescape" if any_octets else "strict"))
            continue
        if kind is OCTET:
            setattr(method, name, int(p[at]))
        elif kind is SHORT:
            setattr(method, name, int(octets.be16(p, at)))
        elif kind is LONG:
            setattr(method, name, int(octets.be32(p, at)))
        else:
            setattr(method, name, int(octets.be64(p, at)))
        at += size
    return at == length


assert HEARTBEAT_FRAME == frame(FRAME_HEARTBEAT, 0, b"")
