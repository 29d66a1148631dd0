"""Defines the columns that Spark sees, and builds Arrow batches from blocks of records.

The batches have exactly the requested schema. In texts, U+FFFD replaces bytes that are not UTF-8.
"""
import json
from functools import lru_cache

import pyarrow as pa

from gomq_py.content.fields import decode_table
from gomq_py.errors import Malformed
from gomq_py.mqtt.wire import crossing
from gomq_py.spark.errors import OptionError
from gomq_py.storage.format import columns

PROPERTIES = (
    ("content_type", 0), ("content_encoding", 1), ("delivery_mode", columns.DELIVERY_MODE_PROPERTY),
    ("priority", columns.PRIORITY_PROPERTY), ("correlation_id", 5), ("reply_to", 6), ("expiration", 7),
    ("message_id", 8), ("timestamp", columns.TIMESTAMP_PROPERTY), ("type", 10),
    ("user_id", 11), ("app_id", 12), ("cluster_id", 13),
)
_TIME = pa.timestamp("us", "UTC")
_HEADERS_FLAG = 0x8000 >> columns.HEADERS_PROPERTY
# Largest Unix seconds that fit into 64-bit microseconds; a publisher may have sent any number.
LARGEST_SECONDS = (1 << 63) // 1000000 - 1


# Types of properties that are no text: for Arrow, in Spark's DDL.
_KINDS = {
    columns.DELIVERY_MODE_PROPERTY: (pa.int32(), "int"), columns.PRIORITY_PROPERTY: (pa.int32(), "int"),
    columns.TIMESTAMP_PROPERTY: (_TIME, "timestamp"),
}
_TEXT = (pa.string(), "string")
PROPERTIES_TYPE = pa.struct([(name, _KINDS.get(place, _TEXT)[0]) for name, place in PROPERTIES])
HEADERS_TYPE = pa.map_(pa.string(), pa.string())
SCHEMA = pa.schema([
    ("vhost", pa.string()), ("queue", pa.string()), ("epoch", pa.string()), ("offset", pa.int64()),
    ("timestamp", _TIME), ("exchange", pa.string()), ("routing_key", pa.string()),
    ("properties", PROPERTIES_TYPE), ("headers", HEADERS_TYPE), ("body", pa.binary()),
])
DDL = {
    "vhost": "string", "queue": "string", "epoch": "string", "offset": "bigint", "timestamp": "timestamp",
    "exchange": "string", "routing_key": "string",
    "properties": (
        "struct<" + ",".join(f"{name}:{_KINDS.get(place, _TEXT)[1]}" for name, place in PROPERTIES) + ">"
    ),
    "headers": "map<string,string>", "body": "binary",
}


def ddl(include_headers, include_epoch=False):
    """Return the source's columns as Spark's DDL, with the columns ``headers`` and ``epoch`` if included."""
    left_out = {name for name, is_in in (("headers", include_headers), ("epoch", include_epoch)) if not is_in}
    return ", ".join(f"{name} {kind}" for name, kind in DDL.items() if name not in left_out)


def check_projection(names, types):
    """Check that the source has columns of these names and types. Returns the names. Raises OptionError."""
    for name, kind in zip(names, types, strict=True):
        if name not in DDL:
            raise OptionError(f"the schema asks for column '{name}', and there are {', '.join(DDL)}")
        if kind != DDL[name]:
            raise OptionError(f"the schema asks for column '{name}' as {kind}, and it is {DDL[name]}")
    if len(set(names)) < len(names):
        raise OptionError("the schema asks for a column twice")
    return tuple(names)


class Rows:
    """Builds RecordBatches with the columns ``names`` from parsed records (storage.format.columns.Block)."""

    def __init__(self, vhost, names):
        self._vhost = vhost
        self._names = names
        self._schema = pa.schema([SCHEMA.field(name) for name in names])
        self._makers = {
            "vhost": lambda block, buffer, piece: _repeated(self._vhost, block.count),
            "queue": lambda block, buffer, piece: _repeated(piece.stream, block.count),
            "epoch": lambda block, buffer, piece: _repeated(piece.epoch, block.count),
            "offset": lambda block, buffer, piece: _fixed(pa.int64(), block.offsets, block.count),
            "timestamp": lambda block, buffer, piece: _fixed(_TIME, block.timestamps, block.count),
            "exchange": lambda block, buffer, piece: _texts(
                block.count, *block.gather(columns.EXCHANGE, buffer)),
            "routing_key": lambda block, buffer, piece: _texts(
                block.count, *block.gather(columns.ROUTING_KEY, buffer)),
            "properties": _properties,
            "headers": _headers,
            "body": lambda block, buffer, piece: pa.BinaryArray.from_buffers(
                pa.binary(), block.count, [None, *map(pa.py_buffer, block.gather(columns.BODY, buffer))]),
        }

    def batch(self, block, buffer, piece):
        """Return a RecordBatch of the block's records, which lie in ``buffer`` and belong to the Piece. The
        batch has copies, so that block and buffer may be reused.
        """
        if "properties" in self._names or "headers" in self._names:
            if block.others:
                buffer = _translated(block, buffer)
            block.scan_properties(buffer)
        return pa.RecordBatch.from_arrays(
            [self._makers[name](block, buffer, piece) for name in self._names], schema=self._schema)


def _translated(block, buffer):
    """Translate MQTT properties of records to AMQP. Returns ``buffer`` with the AMQP properties appended."""
    parts, end = [buffer], len(buffer)
    for row in range(block.count):
        other = block.other_kind(row, buffer)
        if other is None:
            continue
        kind, flags, routing, raw = other
        try:
            basic = crossing.basic_of(routing, raw, flags) if kind == crossing.KIND else b""
        except ValueError:
            basic = b""
        block.set_properties(row, end, len(basic))
        parts.append(basic)
        end += len(basic)
    return b"".join(parts)


def _repeated(text, count):
    return pa.repeat(pa.scalar(text), count)


def _fixed(kind, buffer, count):
    return pa.Array.from_buffers(kind, count, [None, pa.py_buffer(bytes(memoryview(buffer)[:8 * count]))])


def _texts(count, ends, content, present=None):
    array = pa.StringArray.from_buffers(
        count, pa.py_buffer(ends), pa.py_buffer(content), None if present is None else pa.py_buffer(present))
    if content.isascii():
        return array
    try:
        array.validate(full=True)
    except pa.ArrowInvalid:
        octets = array.cast(pa.binary()).to_pylist()
        array = pa.array(
            [None if one is None else one.decode("utf-8", "replace") for one in octets], pa.string())
    return array


def _properties(block, buffer, piece):
    children = []
    for _, place in PROPERTIES:
        if not block.property_flags & (0x8000 >> place):
            children.append(pa.nulls(block.count, _KINDS.get(place, _TEXT)[0]))
            continue
        present, ends, content = block.gather_property(place, buffer)
        if place in _KINDS:
            children.append(_numbers(block.count, present, ends, content, place))
        else:
            children.append(_texts(block.count, ends, content, present))
    return pa.StructArray.from_arrays(children, fields=list(PROPERTIES_TYPE))


def _numbers(count, present, ends, content, place):
    """Return the Arrow array of a numeric property.

    The values are single bytes or, for the property timestamp, Unix seconds. A timestamp out of Arrow's range
    becomes null. ``present``, ``ends``, ``content``: Arrow's buffers. ``place``: number of the property.
    """
    octets = pa.BinaryArray.from_buffers(
        pa.binary(), count, [pa.py_buffer(present), pa.py_buffer(ends), pa.py_buffer(content)])
    if place != columns.TIMESTAMP_PROPERTY:
        return pa.array([None if one is None else one[0] for one in octets.to_pylist()], pa.int32())
    seconds = [None if one is None else int.from_bytes(one) for one in octets.to_pylist()]
    return pa.array(
        [None if one is None or one > LARGEST_SECONDS else one * 1000000 for one in seconds], pa.int64()
    ).cast(_TIME)


def _headers(block, buffer, piece):
    if not block.property_flags & _HEADERS_FLAG:
        return pa.nulls(block.count, HEADERS_TYPE)
    present, ends, content = block.gather_property(columns.HEADERS_PROPERTY, buffer)
    tables = pa.BinaryArray.from_buffers(
        pa.binary(), block.count, [pa.py_buffer(present), pa.py_buffer(ends), pa.py_buffer(content)])
    return pa.array([None if table is None else _table(table) for table in tables.to_pylist()], HEADERS_TYPE)


@lru_cache(maxsize=1024)  # most publishers send the same headers again and again
def _table(octets):
    """Return [(name, value as JSON)] of an encoded header table; empty if it cannot be decoded."""
    try:
        return shown(decode_table(len(octets).to_bytes(4) + octets, 0)[0])
    except Malformed:
        return []


def shown(headers):
    """Return [(name, value as JSON)] of a dict of headers."""
    return [(name, json.dumps(value, default=_plain)) for name, value in headers.items()]


def _plain(value):
    """Return a string to stand in JSON for a value whose type JSON lacks."""
    if isinstance(value, bytes | bytearray | memoryview):
        return bytes(value).decode("utf-8", "replace")
    return str(value)
