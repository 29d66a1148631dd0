"""Decodes, encodes and checks AMQP field tables, and edits single keys of encoded tables.

A table is a u32 size and that many bytes of entries. An entry is a short string key, a type byte and the
value (§4.2.5.5). The type bytes have RabbitMQ's meaning where all implementations differ from the
specification's grammar:

    t boolean   b int8   B uint8   s int16   u uint16   I int32   i uint32   l L int64
    f float   d double   V void   D decimal (uint8 scale, int32 value)   T timestamp (u64 seconds)
    S text (u32 size)   x octets (u32 size)   A array (u32 size)   F table

A peer's table is checked whole (``check_table``) before it is read, because compiled code has no bounds
checks. Functions named ``read_*`` trust their caller, ``decode_*`` check first. Keys and text may hold any
bytes: keys decode with ``surrogateescape`` and encode back exactly, text that is not UTF-8 decodes to bytes.
"""
import sys
from datetime import datetime, timezone
from operator import itemgetter
from struct import Struct, error as StructError

from gomq_py import octets
from gomq_py.errors import Malformed

BOOLEAN, INT8, UINT8, INT16, UINT16, INT32, UINT32 = b"tbBsuIi"
INT64, INT64_ALIAS, FLOAT, DOUBLE, DECIMAL, TIMESTAMP = b"lLfdDT"
LONGSTR, OCTETS, ARRAY, TABLE, VOID = b"SxAFV"

# Header that keeps a message off the fast lane, as CC and BCC do: MQTT retains the message.
RETAIN_HEADER = "mqtt.retain"
_RETAIN = RETAIN_HEADER.encode()  # kept, because C points into it
RETAIN, RETAIN_BYTES = _RETAIN, len(_RETAIN)

# No client nests deeper than a handful (x-death is 3); the limit keeps a hostile 100 KiB table from
# exhausting the C stack.
MAX_DEPTH = 32

_INT8, _INT16, _INT32, _INT64 = Struct(">b"), Struct(">h"), Struct(">i"), Struct(">q")
_UINT16, _LONG, _FLOAT, _DOUBLE = Struct(">H"), Struct(">I"), Struct(">f"), Struct(">d")
_TYPED_INT32, _TYPED_INT64, _TYPED_DOUBLE, _TYPED_DECIMAL = (
    Struct(">ci"), Struct(">cq"), Struct(">cd"), Struct(">cBi")
)
_TYPED_TIMESTAMP, _TYPED_SIZE = Struct(">cQ"), Struct(">cI")
_KEY = itemgetter(0)
_EPOCH = datetime(1970, 1, 1, tzinfo=timezone.utc)
LAST_DATETIME_S = 253402300799  # 9999-12-31T23:59:59Z, the last second a datetime can hold


class Seconds(int):
    """A timestamp in seconds that is too late for a datetime. It is encoded as a timestamp."""

    __slots__ = ()


class TypedInt(int):
    """Base of the integer classes below, each of which is encoded as one AMQP type."""

    __slots__ = ()
    NAME = ""  # the type's name in RabbitMQ


class Int8(TypedInt):
    """An 8-bit integer, of AMQP type ``b``."""

    __slots__ = ()
    NAME = "byte"


class UInt8(TypedInt):
    """An unsigned 8-bit integer, of AMQP type ``B``."""

    __slots__ = ()
    NAME = "unsignedbyte"


class Int16(TypedInt):
    """A 16-bit integer, of AMQP type ``s``."""

    __slots__ = ()
    NAME = "short"


class UInt16(TypedInt):
    """An unsigned 16-bit integer, of AMQP type ``u``."""

    __slots__ = ()
    NAME = "unsignedshort"


class UInt32(TypedInt):
    """An unsigned 32-bit integer, of AMQP type ``i``."""

    __slots__ = ()
    NAME = "unsignedint"


class Int64(TypedInt):
    """A 64-bit integer, of AMQP type ``l``."""

    __slots__ = ()
    NAME = "long"


class Float32(float):
    """A 32-bit float, which is encoded as AMQP type ``f``."""

    __slots__ = ()


def width_of(kind):
    """Return how many bytes follow the type byte ``kind`` of a fixed-width value; -1 for other types."""
    if kind == INT32 or kind == UINT32 or kind == FLOAT:
        return 4
    if kind == BOOLEAN or kind == INT8 or kind == UINT8:
        return 1
    if kind == INT64 or kind == INT64_ALIAS or kind == DOUBLE or kind == TIMESTAMP:
        return 8
    if kind == INT16 or kind == UINT16:
        return 2
    if kind == DECIMAL:
        return 5
    if kind == VOID:
        return 0
    return -1


def check_value(p, at, end, depth):
    """Check the value with type byte at ``at``. Return the offset after it; -1 if malformed or too deep."""
    if at >= end:
        return -1
    kind = p[at]
    at += 1
    if kind == LONGSTR or kind == OCTETS or kind == TABLE or kind == ARRAY:
        if end - at < 4:
            return -1
        size = octets.be32(p, at)
        at += 4
        if size > end - at:
            return -1
        if kind == TABLE and check_table(p, at, at + size, depth + 1) < 0:
            return -1
        if kind == ARRAY and check_array(p, at, at + size, depth + 1) < 0:
            return -1
        return at + size
    size = width_of(kind)
    if size < 0 or size > end - at:
        return -1
    return at + size


def check_array(p, at, end, depth):
    """Check that [``at``, ``end``) holds well-formed values. Return 0 if it does, otherwise -1."""
    if depth > MAX_DEPTH:
        return -1
    while at < end:
        at = check_value(p, at, end, depth)
        if at < 0:
            return -1
    return 0


def check_table(p, at, end, depth):
    """Check that [``at``, ``end``) holds well-formed table entries. Return -1 if it does not. Returns 1 if a
    key of this level is CC, BCC or mqtt.retain, otherwise 0.
    """
    special = 0
    if depth > MAX_DEPTH:
        return -1
    while at < end:
        size = p[at]
        if size > end - at - 1:
            return -1
        if size == 2 and p[at + 1] == 67 and p[at + 2] == 67:  # CC
            special = 1
        elif size == 3 and p[at + 1] == 66 and p[at + 2] == 67 and p[at + 3] == 67:  # BCC
            special = 1
        elif size == RETAIN_BYTES and octets.same(p, at + 1, RETAIN, 0, RETAIN_BYTES):
            special = 1
        at = check_value(p, at + 1 + size, end, depth)
        if at < 0:
            return -1
    return special


def table_end(p, at, end, depth=0):
    """Check the table at ``at``, u32 size first. Return the offset after it; -1 if malformed."""
    if end - at < 4:
        return -1
    size = octets.be32(p, at)
    at += 4
    if size > end - at or check_table(p, at, at + size, depth) < 0:
        return -1
    return at + size


def decode_table(data, offset=0, deeper=0):
    """Check and decode the table (u32 size first) at ``offset``. Return (dict, offset after the table). The
    first of equal keys wins, as in RabbitMQ. ``deeper``: levels allowed beyond MAX_DEPTH. Raises Malformed.
    """
    p = octets.pointer(data)
    end = table_end(p, offset, len(data), -deeper) if offset >= 0 else -1
    if end < 0:
        raise Malformed("malformed field table")
    return read_table(p, offset), end


def decode_value(data, offset=0):
    """Check and decode the value at ``offset``. Return (value, offset after it). Raises Malformed."""
    p = octets.pointer(data)
    end = check_value(p, offset, len(data), 0) if offset >= 0 else -1
    if end < 0:
        raise Malformed("malformed field value")
    return read_value(p, offset), end


def skip_value(p, at):
    """Return the offset after the already checked value whose type byte is at ``at``."""
    kind = p[at]
    if kind == LONGSTR or kind == OCTETS or kind == TABLE or kind == ARRAY:
        return at + 5 + octets.be32(p, at + 1)
    return at + 1 + width_of(kind)


def find_key(p, at, end, key, key_length):
    """Return the offset of the entry of ``key`` (u8 size first) in checked [``at``, ``end``), or -1."""
    while at < end:
        value = at + 1 + p[at]
        if value - at == key_length and octets.same(p, at, key, 0, key_length):
            return at
        at = skip_value(p, value)
    return -1


def read_table(p, at):
    """Decode the already checked table whose u32 size is at ``at``."""
    table = {}
    end = at + 4 + octets.be32(p, at)
    at += 4
    while at < end:
        size = p[at]
        key = bytes(p[at + 1:at + 1 + size]).decode("utf-8", "surrogateescape")
        at += 1 + size
        table.setdefault(key, read_value(p, at))
        at = skip_value(p, at)
    return table


def read_array(p, at):
    """Decode the already checked array whose u32 size is at ``at``."""
    values = []
    end = at + 4 + octets.be32(p, at)
    at += 4
    while at < end:
        values.append(read_value(p, at))
        at = skip_value(p, at)
    return values


def read_value(p, at):
    """Decode the already checked value whose type byte is at ``at``."""
    kind = p[at]
    if kind == LONGSTR:
        return text_or_octets(bytes(p[at + 5:at + 5 + octets.be32(p, at + 1)]))
    if kind == OCTETS:
        return bytes(p[at + 5:at + 5 + octets.be32(p, at + 1)])
    if kind == TABLE:
        return read_table(p, at + 1)
    if kind == ARRAY:
        return read_array(p, at + 1)
    return read_scalar(p, at)


def read_scalar(p, at):
    """Decode the already checked fixed-width value whose type byte is at ``at``."""
    kind = p[at]
    at += 1
    if kind == BOOLEAN:
        return p[at] != 0
    if kind == UINT8:
        return UInt8(p[at])
    if kind == UINT16:
        return UInt16(octets.be16(p, at))
    if kind == UINT32:
        return UInt32(octets.be32(p, at))
    value = bytes(p[at:at + width_of(kind)])
    if kind == INT8:
        return Int8(_INT8.unpack(value)[0])
    if kind == INT16:
        return Int16(_INT16.unpack(value)[0])
    if kind == INT32:
        return _INT32.unpack(value)[0]
    if kind == INT64 or kind == INT64_ALIAS:
        return Int64(_INT64.unpack(value)[0])
    if kind == FLOAT:
        return Float32(_FLOAT.unpack(value)[0])
    if kind == DOUBLE:
        return _DOUBLE.unpack(value)[0]
    if kind == DECIMAL:
        return decimal_type()(_INT32.unpack(value[1:])[0]).scaleb(-value[0])
    if kind == TIMESTAMP:
        return datetime_or_seconds(octets.be64(p, at))
    return None


def is_integer(p, at):
    """Return True if the already checked value whose type byte is at ``at`` is an integer."""
    kind = p[at]
    return (
        kind == INT32 or kind == INT64 or kind == INT64_ALIAS or kind == INT16 or kind == INT8
        or kind == UINT32 or kind == UINT16 or kind == UINT8
    )


def integer(p, at):
    """Decode the integer whose type byte is at ``at``. Call only if ``is_integer()`` is true."""
    kind = p[at]
    at += 1
    if kind == UINT8:
        return p[at]
    if kind == INT8:
        number = p[at]
        return number - ((number & 0x80) << 1)
    if kind == UINT16:
        return octets.be16(p, at)
    if kind == INT16:
        number = octets.be16(p, at)
        return number - ((number & 0x8000) << 1)
    number = octets.be32(p, at)
    if kind == UINT32:
        return number
    number -= (number & 0x80000000) << 1
    if kind == INT32:
        return number
    return number * 0x100000000 + octets.be32(p, at + 4)


def put_integer(target, at, number):
    """Encode an integer at ``target[at]``, in at most nine bytes. Return the offset after it."""
    if -0x80000000 <= number <= 0x7FFFFFFF:
        target[at] = INT32
        octets.put_be32(target, at + 1, number & 0xFFFFFFFF)
        return at + 5
    target[at] = INT64
    octets.put_be32(target, at + 1, number >> 32 & 0xFFFFFFFF)
    octets.put_be32(target, at + 5, number & 0xFFFFFFFF)
    return at + 9


def datetime_or_seconds(seconds):
    """Convert seconds since 1970 to a datetime in UTC, or to ``Seconds`` if they are too many."""
    return datetime.fromtimestamp(seconds, timezone.utc) if seconds <= LAST_DATETIME_S else Seconds(seconds)


def text_or_octets(raw):
    """Decode bytes to str if they are UTF-8; otherwise return them unchanged."""
    try:
        return raw.decode("utf-8")
    except UnicodeDecodeError:
        return raw


def encode_shortstr(text):
    """Encode str or bytes as a short string (u8 size first). Raises ValueError over 255 bytes."""
    raw = text.encode("utf-8", "surrogateescape") if isinstance(text, str) else bytes(text)
    if len(raw) > 255:
        raise ValueError(f"a short string holds at most 255 bytes, not {len(raw)}: {text[:40]!r}...")
    return bytes((len(raw),)) + raw


def encode_table(table):
    """Encode a dict as a field table, u32 size first. Raises ValueError, TypeError for unsupported values."""
    parts = []
    for key, value in table.items():
        parts.append(encode_shortstr(key))
        parts.append(encode_value(value))
    entries = b"".join(parts)
    return _LONG.pack(len(entries)) + entries


def encode_array(values):
    """Encode a sequence as a field array, u32 size first."""
    entries = b"".join([encode_value(value) for value in values])
    return _LONG.pack(len(entries)) + entries


def encode_value(value):
    """Encode a value with its type byte. The Python type decides the AMQP type. A plain int becomes an int32,
    or an int64 if it is too large for that. Raises ValueError, TypeError for unsupported values.
    """
    encode = ENCODERS.get(type(value))
    if encode is None:
        decimal_type()
        for kind, candidate in ENCODERS.items():
            if isinstance(value, kind):
                encode = candidate
                break
        else:
            raise TypeError(f"a field table cannot hold {type(value).__name__}: {value!r}")
    return encode(value)


def _encode_text(value):
    raw = value.encode("utf-8", "surrogateescape")
    return _TYPED_SIZE.pack(b"S", len(raw)) + raw


def _encode_octets(value):
    raw = bytes(value)
    return _TYPED_SIZE.pack(b"x", len(raw)) + raw


def _encode_int(value):
    if -0x80000000 <= value <= 0x7FFFFFFF:
        return _TYPED_INT32.pack(b"I", value)
    try:
        return _TYPED_INT64.pack(b"l", value)
    except StructError:
        raise ValueError(f"a field table holds integers of 64 bits, not {value}") from None


def decimal_type():
    """Return decimal.Decimal, and let encode_value() encode such values. Imports the module at first use."""
    from decimal import Decimal  # few tables hold decimals, and the module takes 0.4 MB

    ENCODERS[Decimal] = _encode_decimal
    return Decimal


def is_decimal(value):
    """Return whether a value is a decimal.Decimal, without importing decimal."""
    decimal = sys.modules.get("decimal")
    return decimal is not None and isinstance(value, decimal.Decimal)


def _encode_decimal(value):
    sign, digits, exponent = value.as_tuple()
    if not isinstance(exponent, int):
        raise ValueError(f"a field table cannot hold {value}")
    scale = -exponent if exponent < 0 else 0
    unscaled = int(value.scaleb(scale))
    if scale > 255 or not -0x80000000 <= unscaled <= 0x7FFFFFFF:
        raise ValueError(f"a field table holds decimals of 32 bits and 255 places, not {value}")
    return _TYPED_DECIMAL.pack(b"D", scale, unscaled)


def seconds_of(value):
    """Convert an int or datetime to seconds since 1970. A datetime without a time zone counts as UTC."""
    if not isinstance(value, datetime):
        return int(value)
    if value.tzinfo is None:
        value = value.replace(tzinfo=timezone.utc)
    return (value - _EPOCH).days * 86400 + (value - _EPOCH).seconds


def _encode_timestamp(value):
    seconds = seconds_of(value)
    if seconds < 0:
        raise ValueError(f"a timestamp starts at 1970, not {value}")
    return _TYPED_TIMESTAMP.pack(b"T", seconds)


# In the order isinstance must try them for subclasses: bool before int.
ENCODERS = {
    str: _encode_text,
    bool: lambda value: b"t\x01" if value else b"t\x00",
    int: _encode_int,
    float: lambda value: _TYPED_DOUBLE.pack(b"d", value),
    dict: lambda value: b"F" + encode_table(value),
    list: lambda value: b"A" + encode_array(value),
    tuple: lambda value: b"A" + encode_array(value),
    bytes: _encode_octets,
    bytearray: _encode_octets,
    memoryview: _encode_octets,
    datetime: _encode_timestamp,
    Seconds: lambda value: _TYPED_TIMESTAMP.pack(b"T", value),
    Int8: lambda value: b"b" + _INT8.pack(value),
    UInt8: lambda value: bytes((UINT8, value)),
    Int16: lambda value: b"s" + _INT16.pack(value),
    UInt16: lambda value: b"u" + _UINT16.pack(value),
    UInt32: lambda value: b"i" + _LONG.pack(value),
    Int64: lambda value: _TYPED_INT64.pack(b"l", value),
    Float32: lambda value: b"f" + _FLOAT.pack(value),
    type(None): lambda value: b"V",
}


def find_entry(p, length, key):
    """Find a key (bytes) in a raw table of ``length`` bytes (u32 size first). Returns three offsets (of the
    entry, of its value's type byte, of the byte after the entry), or None if missing. Raises Malformed.
    """
    if table_end(p, 0, length) != length:
        raise Malformed("malformed field table")
    at = 4
    while at < length:
        size = p[at]
        value_at = at + 1 + size
        end = skip_value(p, value_at)
        if size == len(key) and bytes(p[at + 1:value_at]) == key:
            return at, value_at, end
        at = end
    return None


def get_key(raw, key, default=None):
    """Return the value of a key in a raw table (u32 size first); ``default`` if missing. Raises Malformed."""
    entry = find_entry(octets.pointer(raw), len(raw), key.encode("utf-8", "surrogateescape"))
    return default if entry is None else decode_value(raw, entry[1])[0]


def remove_key(raw, key):
    """Return a copy of a raw table (u32 size first) without this key. Raises Malformed."""
    entry = find_entry(octets.pointer(raw), len(raw), key.encode("utf-8", "surrogateescape"))
    if entry is None:
        return bytes(raw)
    return _framed(bytes(raw[4:entry[0]]) + bytes(raw[entry[2]:]))


def set_key(raw, key, value):
    """Return a copy of a raw table with the key set, in place or last. Raises Malformed, ValueError."""
    entry = find_entry(octets.pointer(raw), len(raw), key.encode("utf-8", "surrogateescape"))
    start, end = (len(raw), len(raw)) if entry is None else (entry[0], entry[2])
    return _framed(bytes(raw[4:start]) + encode_shortstr(key) + encode_value(value) + bytes(raw[end:]))


def sort_keys(raw):
    """Return a copy of a raw table, sorted by the bytes of the keys (stable). Raises Malformed."""
    p = octets.pointer(raw)
    length = len(raw)
    if table_end(p, 0, length) != length:
        raise Malformed("malformed field table")
    entries = []
    at = 4
    while at < length:
        value_at = at + 1 + p[at]
        end = skip_value(p, value_at)
        entries.append((bytes(raw[at + 1:value_at]), bytes(raw[at:end])))
        at = end
    entries.sort(key=_KEY)
    return _framed(b"".join([entry for _, entry in entries]))


def _framed(entries):
    return _LONG.pack(len(entries)) + entries
