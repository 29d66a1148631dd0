"""Turns devices' payloads into typed rows. Does not import Spark. A schema file in TOML says how:

    format = "json"              # json, ndjson, cbor, msgpack
    device = "topic:1"           # a word of the routing key, from 0, or "field:NAME"
    time = "field:ts"            # left out: when the broker took the message
    time_unit = "ms"             # s, ms or iso
    [fields]
    temperature = "double"       # double, long, boolean, string
    [windows]
    length = "1 minute"
    watermark = "10 minutes"
"""
import math
import reprlib
import tomllib
from dataclasses import dataclass
from datetime import UTC, datetime

from gomq_py.pipeline.payloads import DECODERS, Undecodable, decode
from gomq_py.spark.errors import OptionError

TYPES = ("double", "long", "boolean", "string")
UNITS = ("s", "ms", "iso")
RESERVED = ("queue", "offset", "device", "time", "date", "window", "error")
_KEYS = {"format", "device", "time", "time_unit", "fields", "windows"}
# Years 1 to 9999, the range of datetime.
_FIRST_S, _LAST_S = -62135596800, 253402300799


@dataclass(frozen=True)
class Schema:
    """The content of a schema file, which says how payloads are decoded into readings.

    ``device``: ("topic", number of a word) or ("field", name of a field).
    """

    format: str
    device: tuple
    time: str | None
    time_unit: str
    fields: tuple  # of (name, type)
    window: str
    watermark: str


def read_schema(path):
    """Read a Schema from a TOML file. Raises OptionError, which names the file and the key."""
    return from_toml(path, make_schema, "schema ")


def from_toml(path, make, what=""):
    """Return ``make(content)`` of a TOML file. Raises OptionError; its text begins with ``what``."""
    try:
        with open(path, "rb") as file:
            return make(tomllib.load(file))
    except OSError as error:
        raise OptionError(f"{what}{path} cannot be read: {error.strerror}") from None
    except (tomllib.TOMLDecodeError, UnicodeDecodeError, OptionError) as error:
        raise OptionError(f"{what}{path}: {error}") from None


def make_schema(given):
    """Return the Schema for the parsed TOML of a schema file. Raises OptionError."""
    strange = sorted(set(given) - _KEYS)
    if strange:
        raise OptionError(f"{strange[0]} is unknown; there are {', '.join(sorted(_KEYS))}")
    form, fields, windows = given.get("format", "json"), given.get("fields"), given.get("windows", {})
    if form not in DECODERS:
        raise OptionError(f"format is one of {', '.join(DECODERS)}, not {form!r}")
    if not isinstance(fields, dict) or not fields:
        raise OptionError("fields is missing: a table of names and types, such as temperature = \"double\"")
    for name, kind in fields.items():
        if kind not in TYPES:
            raise OptionError(f"field {name} is one of {', '.join(TYPES)}, not {kind!r}")
        if name in RESERVED:
            raise OptionError(f"field {name} has the name of a column that there is already")
    unit = given.get("time_unit", "ms")
    if unit not in UNITS:
        raise OptionError(f"time_unit is one of {', '.join(UNITS)}, not {unit!r}")
    time = given.get("time")
    if time is not None and _parsed(time)[0] != "field":
        raise OptionError(f"time is \"field:NAME\" or left out, not {time!r}")
    device = _parsed(given.get("device", "topic:0"))
    if device[0] is None or device[0] == "topic" and not device[1].isdecimal():
        raise OptionError(f"device is \"topic:NUMBER\" or \"field:NAME\", not {given.get('device')!r}")
    return Schema(form, device, None if time is None else _parsed(time)[1], unit, tuple(fields.items()),
                  windows.get("length", "1 minute"), windows.get("watermark", "10 minutes"))


def _parsed(text):
    kind, sign, name = str(text).partition(":")
    return (kind, name) if sign and name and kind in ("topic", "field") else (None, None)


def readings(schema, routing_key, body, came_at):
    """Decode a message's body into [(device, time, values)], one tuple per reading. Raises Undecodable.

    ``values``: a list, in the order of ``schema.fields``. ``came_at``: the time if the schema has no field
    for it.
    """
    found = []
    for one in decode(schema.format, body):
        found.append((_device(schema, routing_key, one), _time(schema, one, came_at),
                      [_value(one.get(name), name, kind) for name, kind in schema.fields]))
    return found


def _device(schema, routing_key, reading):
    kind, name = schema.device
    if kind == "topic":
        words = routing_key.split(".")
        if int(name) >= len(words):
            raise Undecodable(f"routing key '{routing_key}' has no word {name} for the device")
        return words[int(name)]
    value = reading.get(name)
    if not isinstance(value, str | int) or isinstance(value, bool) or not _is_text(str(value)):
        raise Undecodable(f"field {name} names no device: {_shown(value)}")
    return str(value)


def _time(schema, reading, came_at):
    if schema.time is None:
        return came_at
    value = reading.get(schema.time)
    try:
        if schema.time_unit == "iso":
            at = datetime.fromisoformat(value)
            return at.astimezone(UTC) if at.tzinfo else at.replace(tzinfo=UTC)
        seconds = _value(value, schema.time, "double") / (1000 if schema.time_unit == "ms" else 1)
        if _FIRST_S <= seconds <= _LAST_S:
            return datetime.fromtimestamp(seconds, UTC)
    except (TypeError, ValueError, OverflowError):  # OverflowError: in UTC before year 1 or after 9999
        pass
    raise Undecodable(f"field {schema.time} is no time in {schema.time_unit}: {_shown(value)}")


def _value(value, name, kind):
    """Convert the value of field ``name`` to the type ``kind``. None stays None. Raises Undecodable."""
    if value is None:
        return None
    is_number = isinstance(value, int | float) and not isinstance(value, bool)
    if kind == "double" and is_number:
        return _finite(value, name)
    if (
        kind == "long" and is_number and value == math.floor(_finite(value, name))
        and -1 << 63 <= value < 1 << 63
    ):
        return int(value)
    is_text = kind == "string" and isinstance(value, str) and _is_text(value)
    if is_text or kind == "boolean" and isinstance(value, bool):
        return value
    raise Undecodable(f"field {name} is no {kind}: {_shown(value)}")


def _is_text(value):
    """Return whether a str has no lone surrogates, which JSON allows and a Parquet table does not."""
    return value.isascii() or value.encode("utf-8", "ignore").decode() == value


def _shown(value):
    """Return the beginning of a value as text, also of a large or deeply nested value."""
    return reprlib.repr(value)[:60]


def _finite(value, name):
    try:
        number = float(value)
    except OverflowError:
        number = math.inf
    if not math.isfinite(number):
        raise Undecodable(f"field {name} is no finite number")
    return number
