"""Decodes payloads of devices: turns JSON, lines of JSON, CBOR and MessagePack into Python values.

Does no I/O. Payloads are not trusted: whatever the bytes are, decoding raises no other error than
Undecodable. Depth and size are bounded; a length is compared with the remaining bytes before it is used.
"""
import json
import struct

DEEPEST = 64
_CBOR_FLOATS = {25: ">e", 26: ">f", 27: ">d"}
_CBOR_SIMPLE = {20: False, 21: True, 22: None, 23: None}
_MSGPACK_NUMBERS = {
    0xCA: ">f", 0xCB: ">d", 0xCC: ">B", 0xCD: ">H", 0xCE: ">I", 0xCF: ">Q",
    0xD0: ">b", 0xD1: ">h", 0xD2: ">i", 0xD3: ">q"}
# First byte: (bytes of the length, unit of the length).
_MSGPACK_SIZED = {
    0xC4: (1, "octets"), 0xC5: (2, "octets"), 0xC6: (4, "octets"),
    0xD9: (1, "text"), 0xDA: (2, "text"), 0xDB: (4, "text"),
    0xDC: (2, "array"), 0xDD: (4, "array"), 0xDE: (2, "map"), 0xDF: (4, "map")}
_BREAK = object()


class Undecodable(ValueError):
    """The payload is malformed. The text says why."""


def decode(kind, octets):
    """Decode a payload into a list of readings (dicts). Raises Undecodable.

    ``kind``: json, ndjson, cbor or msgpack. Each line of ndjson, or element of an array, is a reading.
    """
    try:
        found = DECODERS[kind](bytes(octets))
    except RecursionError:
        raise Undecodable("nested too deep") from None
    found = found if isinstance(found, list) else [found]
    for one in found:
        if not isinstance(one, dict):
            raise Undecodable(f"it holds {type(one).__name__}, no object with fields")
    return found


def _json(octets):
    try:
        return json.loads(octets)
    except ValueError as error:
        raise Undecodable(f"no JSON: {error}") from None


def _lines(octets):
    return [_json(line) for line in octets.splitlines() if line.strip()]


def _whole(reader):
    def decode_whole(octets):
        value, at = reader(octets, 0, 0)
        if at != len(octets):
            raise Undecodable(f"{len(octets) - at} bytes behind its end")
        return value
    return decode_whole


def _take(octets, at, count):
    if count > len(octets) - at:
        raise Undecodable(f"cut short at byte {len(octets)}")
    return octets[at:at + count], at + count


def _text(octets):
    try:
        return octets.decode()
    except UnicodeDecodeError:
        raise Undecodable("a text is no UTF-8") from None


def _key(value):
    return value if isinstance(value, str) else str(value)


def _cbor(octets, at, depth):
    """Decode the CBOR item at ``at`` (RFC 8949), skipping tags. Returns (value, position after it).

    For the stop code 0xFF the value is _BREAK. Raises Undecodable.
    """
    if depth > DEEPEST:
        raise Undecodable("nested too deep")
    first, at = _take(octets, at, 1)
    major, info = first[0] >> 5, first[0] & 31
    if major == 7:
        return _cbor_simple(octets, at, info)
    length = info
    if 24 <= info <= 27:
        part, at = _take(octets, at, 1 << info - 24)
        length = int.from_bytes(part)
    elif info == 31 and 2 <= major <= 5:
        length = None
    elif info > 27:
        raise Undecodable("no CBOR")
    if major < 2:
        return (length if major == 0 else -1 - length), at
    if major in (2, 3):
        content, at = _cbor_string(octets, at, length, major, depth)
        return (content if major == 2 else _text(content)), at
    if major == 6:
        return _cbor(octets, at, depth + 1)
    return _cbor_items(octets, at, length, major, depth)


def _cbor_simple(octets, at, info):
    if info in _CBOR_FLOATS:
        part, at = _take(octets, at, 1 << info - 24)
        return struct.unpack(_CBOR_FLOATS[info], part)[0], at
    if info == 31:
        return _BREAK, at
    if info in _CBOR_SIMPLE:
        return _CBOR_SIMPLE[info], at
    raise Undecodable("no CBOR")


def _cbor_string(octets, at, length, major, depth):
    if length is not None:
        return _take(octets, at, length)
    content = bytearray()
    while True:
        if _take(octets, at, 1)[0][0] == 0xFF:
            return bytes(content), at + 1
        part, at = _cbor(octets, at, depth + 1)
        if isinstance(part, bytes) and major == 2:
            content += part
        elif isinstance(part, str) and major == 3:
            content += part.encode()
        else:
            raise Undecodable("no CBOR")


def _cbor_items(octets, at, length, major, depth):
    items: list = []
    wanted = None if length is None else length * (major - 3)
    if wanted is not None and wanted > len(octets) - at:
        raise Undecodable(f"cut short at byte {len(octets)}")
    while wanted is None or len(items) < wanted:
        value, at = _cbor(octets, at, depth + 1)
        if value is _BREAK:
            if wanted is None:
                break
            raise Undecodable("no CBOR")
        items.append(value)
    if major == 4:
        return items, at
    if len(items) % 2:
        raise Undecodable("no CBOR")
    return {_key(name): value for name, value in zip(items[::2], items[1::2], strict=True)}, at


def _msgpack(octets, at, depth):
    """Decode the MessagePack value at ``at``. Returns (value, position after it). Raises Undecodable."""
    if depth > DEEPEST:
        raise Undecodable("nested too deep")
    head, at = _take(octets, at, 1)
    first = head[0]
    if first < 0x80 or first >= 0xE0:
        return (first if first < 0x80 else first - 256), at
    if first in _MSGPACK_NUMBERS:
        form = _MSGPACK_NUMBERS[first]
        part, at = _take(octets, at, struct.calcsize(form))
        return struct.unpack(form, part)[0], at
    if first in (0xC0, 0xC2, 0xC3):
        return {0xC0: None, 0xC2: False, 0xC3: True}[first], at
    if first < 0xC0:
        kind, length = (
            ("map", first & 15) if first < 0x90
            else ("array", first & 15) if first < 0xA0
            else ("text", first & 31)
        )
    elif first in _MSGPACK_SIZED:
        width, kind = _MSGPACK_SIZED[first]
        part, at = _take(octets, at, width)
        length = int.from_bytes(part)
    else:
        raise Undecodable("no MessagePack, or with an extension type")
    if kind in ("text", "octets"):
        content, at = _take(octets, at, length)
        return (_text(content) if kind == "text" else content), at
    return _msgpack_items(octets, at, kind, length, depth)


def _msgpack_items(octets, at, kind, length, depth):
    wanted = length * (2 if kind == "map" else 1)
    if wanted > len(octets) - at:
        raise Undecodable(f"cut short at byte {len(octets)}")
    items = []
    for _ in range(wanted):
        value, at = _msgpack(octets, at, depth + 1)
        items.append(value)
    if kind == "array":
        return items, at
    return {_key(name): value for name, value in zip(items[::2], items[1::2], strict=True)}, at


DECODERS = {"json": _json, "ndjson": _lines, "cbor": _whole(_cbor), "msgpack": _whole(_msgpack)}
