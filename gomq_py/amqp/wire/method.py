"""Method: the base of every AMQP method: a field table, and octets to objects and back by that table.

A leaf; the methods themselves are in methods.

A method frame's payload is class id (u16), method id (u16), then the fields in order without padding
(§4.2.4); runs of bits share octets, first bit lowest. Short strings are str, long strings bytes, tables
dicts. What cannot be decoded is a FrameError as in RabbitMQ, not the SyntaxError of the prose.
"""
from struct import Struct
from typing import TYPE_CHECKING, Any

from gomq_py.amqp.wire.errors import FrameError
from gomq_py.amqp.wire.method_fields import (
    BIT, LONG, LONGLONG, LONGSTR, OCTET, SHORT, SHORTSTR, TABLE, read_fields,
)
from gomq_py.content.fields import encode_shortstr, encode_table
from gomq_py.errors import Malformed

_STRUCTS = {OCTET: Struct(">B"), SHORT: Struct(">H"), LONG: Struct(">I"), LONGLONG: Struct(">Q")}
_DEFAULTS = {OCTET: 0, SHORT: 0, LONG: 0, LONGLONG: 0, BIT: False, SHORTSTR: "", LONGSTR: b"", TABLE: None}
_ID = Struct(">I")  # class id and method id together
_SIZE = Struct(">I")


def names(fields):
    """The names of a FIELDS table, for ``__slots__``."""
    return tuple(name for name, _ in fields)


class Method:
    """Base of all methods. Fields are keyword arguments; what is not given is zero, false or empty."""

    NAME = ""
    ID = 0
    SYNCHRONOUS = False
    # whether short strings may be no UTF-8: RabbitMQ looks at none on the way of a message
    ANY_OCTETS = False
    FIELDS: tuple = ()
    __slots__: tuple = ()

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
        """From a method frame's payload, the fields beginning at ``offset``.

        Raises FrameError unless they fill it exactly.
        """
        self = cls.__new__(cls)
        try:
            if read_fields(self, cls.FIELDS, payload, offset, cls.ANY_OCTETS):
                return self
        except UnicodeDecodeError:
            raise FrameError("Malformed UTF-8 in shortstr") from None
        except Malformed:
            pass
        raise cls._malformed()

    @classmethod
    def _malformed(cls):
        return FrameError(f"cannot decode {cls.NAME}", cls.ID >> 16, cls.ID & 0xFFFF)

    def encode(self):
        """A method frame's payload: ids and fields.

        Raises ValueError or struct.error for values that do not fit.
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
        return encode_shortstr(value)
    if kind is TABLE:
        return encode_table(value)
    if kind is LONGSTR:
        raw = value.encode("utf-8") if isinstance(value, str) else bytes(value)
        return _SIZE.pack(len(raw)) + raw
    return _STRUCTS[kind].pack(value)
