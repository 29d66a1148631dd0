"""Comparisons of field values, such as those of arguments, and RabbitMQ's names of their types."""
from datetime import datetime

from gomq_py.content.fields import Float32, Seconds, TypedInt, is_decimal

# Integers that a field table, a compiled counter and JSON libraries can all hold.
MIN_INTEGER, MAX_INTEGER = -(1 << 63), (1 << 63) - 1
# Ten years: RabbitMQ's longest timer.
MAX_TIMER_MS = 10 * 365 * 24 * 3600 * 1000

_INT32 = 1 << 31
_MISSING = object()


def is_integer(value):
    """Return True for a 64-bit integer. Booleans and timestamps do not count as integers."""
    return (
        isinstance(value, int) and not isinstance(value, (bool, Seconds))
        and MIN_INTEGER <= value <= MAX_INTEGER
    )


def is_count(value):
    """Return True for a 64-bit integer of at least 0."""
    return is_integer(value) and value >= 0


def equal(one, other):
    """Return True if two decoded values are equal. Numbers of different widths are compared by value, a
    boolean never equals a number, and bytes equal the text that they encode.
    """
    if isinstance(one, bool) or isinstance(other, bool):
        return one is other
    if isinstance(one, str) and isinstance(other, bytes):
        return one.encode("utf-8", "surrogateescape") == other
    if isinstance(one, bytes) and isinstance(other, str):
        return one == other.encode("utf-8", "surrogateescape")
    if isinstance(one, dict) and isinstance(other, dict):
        return one.keys() == other.keys() and all(equal(value, other[key]) for key, value in one.items())
    if isinstance(one, list) and isinstance(other, list):
        return len(one) == len(other) and all(map(equal, one, other))
    return one == other


def same_argument(one, other, key):
    """Return True if ``key`` has equal values in both tables, or is in neither. Integers of different widths
    may be equal; an integer and a float never are.
    """
    return (
        (key in one) == (key in other) and _class(one.get(key)) == _class(other.get(key))
        and equal(one.get(key), other.get(key))
    )


def _class(value):
    if is_decimal(value):
        return "decimal"
    return next((kind for kind in (int, float) if isinstance(value, kind)), None)


def type_name(value):
    """Return RabbitMQ's name for the field type of a value, such as "longstr", for error texts."""
    if isinstance(value, bool):
        return "bool"
    if isinstance(value, TypedInt):
        return value.NAME
    if isinstance(value, Seconds):
        return "timestamp"
    if isinstance(value, int):
        return "signedint" if -_INT32 <= value < _INT32 else "long"
    if is_decimal(value):
        return "decimal"
    for kind, name in _TYPE_NAMES:
        if isinstance(value, kind):
            return name
    return "void"


_TYPE_NAMES = (
    (str, "longstr"), (bytes, "binary"), (Float32, "float"),
    (float, "double"), (datetime, "timestamp"), (list, "array"), (dict, "table"),
)


def written(value):
    """Format a value for an error text, without quotes."""
    if isinstance(value, bool):
        return "true" if value else "false"
    return value.decode("utf-8", "replace") if isinstance(value, bytes) else str(value)


def difference(key, entity, received, current):
    """Return RabbitMQ's error text for the argument ``key``, whose received value differs from the current
    one. ``entity``: the words for the entity (names.described).
    """
    if received is _MISSING:
        return f"inequivalent arg '{key}' for {entity}: received none but current is {_typed(current)}"
    if current is _MISSING:
        return f"inequivalent arg '{key}' for {entity}: received {_typed(received)} but current is none"
    return (
        f"inequivalent arg '{key}' for {entity}: received '{written(received)}' but current is "
        f"'{written(current)}'"
    )


def difference_in(key, entity, received, current):
    """Return difference() for ``key`` in the tables ``received`` and ``current``; one may lack it."""
    return difference(key, entity, received.get(key, _MISSING), current.get(key, _MISSING))


def _typed(value):
    return f"the value '{written(value)}' of type '{type_name(value)}'"
