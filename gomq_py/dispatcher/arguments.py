"""Converts and checks task arguments, which are sent as ``{"type": "int", "value": 3}``.

The names of types are Go's, as in gofort/dispatcher. ``json`` is our addition, for values such as lists.
Integers are exact up to 64 bits, because they are never converted to a float.
"""

import math
import struct
import traceback

from gomq_py.dispatcher.errors import BadArgument

_FLOAT32 = struct.Struct("<f")
# Go's int and uint have 64 bits on every machine that matters.
INTEGERS = {
    "int": (-(2**63), 2**63 - 1),
    "int8": (-(2**7), 2**7 - 1),
    "int16": (-(2**15), 2**15 - 1),
    "int32": (-(2**31), 2**31 - 1),
    "int64": (-(2**63), 2**63 - 1),
    "uint": (0, 2**64 - 1),
    "uint8": (0, 2**8 - 1),
    "uint16": (0, 2**16 - 1),
    "uint32": (0, 2**32 - 1),
    "uint64": (0, 2**64 - 1),
}
# The class's own name: __name__ of a metaclass may be any text, or raise.
_NAME = type.__dict__["__name__"]
# Up to this float every integer is exact; beyond it a float does not say which integer was meant.
_EXACT = 2**53


def type_of(value):
    """Return the type name with which a value is sent if the function's signature has no type for it."""
    if isinstance(value, bool):
        return "bool"
    if isinstance(value, int):
        return "int" if value <= INTEGERS["int"][1] else "uint64"
    if isinstance(value, float):
        return "float64"
    return "string" if isinstance(value, str) else "json"


def convert(type_name, value):
    """Convert a value to the named type. Raises BadArgument, to which the caller adds the argument's name."""
    checks = _CHECKS.get(type_name) if isinstance(type_name, str) else None
    if checks is None:
        raise BadArgument(f"unknown type {shown(type_name)}: {', '.join(_CHECKS)} are known")
    return checks(type_name, value)


def shown(value):
    """Return the value's repr, shortened, for an error text."""
    try:
        return brief(repr(value))
    except (ValueError, RecursionError):  # huge integers, deeply nested lists
        return f"a value of type {type(value).__name__} that is too large to show"


def brief(text, most=60):
    """Return the text, shortened to ``most`` characters."""
    return text if len(text) <= most else text[: most - 3] + "..."


def on_one_line(text):
    """Return the text shortened for a log line, as its repr if it has line breaks or control characters."""
    return brief(text) if text.isprintable() else shown(text)


def text_of(error, most=1000):
    """Return an error's text, of at most ``most`` characters and valid UTF-8, even if ``__str__`` raises."""
    try:
        return _writable(brief(str(error), most))
    except Exception as fault:  # a faulty class of the task must not stop the settlement
        return f"a {name_of(error)} whose text cannot be had ({name_of(fault)})"


def trace_of(error):
    """Return (``exc_info`` for the log, further text for the log): (error, "") or, if UTF-8 cannot encode
    some characters of the traceback, (None, the traceback as text, with these characters escaped).
    """
    trace = "".join(traceback.format_exception(error))
    writable = _writable(trace)
    return (error, "") if writable == trace else (None, "\n" + writable)


def name_of(error):
    """Return the name of the error's class, at most 60 characters, for headers and logs."""
    return brief(_NAME.__get__(type(error)))


def _writable(text):
    """Return the text with its surrogates escaped, because UTF-8 cannot encode them."""
    return text.encode("utf-8", "backslashreplace").decode("utf-8")


def _plain(type_name, value):
    if not isinstance(value, bool if type_name == "bool" else str):
        raise BadArgument(f"{shown(value)} is not a {type_name}")
    return value


def _integer(type_name, value):
    # A sender in a language without integers writes 3.0.
    if isinstance(value, float) and value.is_integer() and abs(value) <= _EXACT:
        value = int(value)
    if isinstance(value, bool) or not isinstance(value, int):
        raise BadArgument(f"{shown(value)} is not an {type_name}")
    least, most = INTEGERS[type_name]
    if not least <= value <= most:
        raise BadArgument(f"{shown(value)} is not between {least} and {most}, the bounds of {type_name}")
    return value


def _float(type_name, value):
    if isinstance(value, bool) or not isinstance(value, (int, float)):
        raise BadArgument(f"{shown(value)} is not a {type_name}")
    try:
        number = float(value)
        if type_name == "float32":
            number = _FLOAT32.unpack(_FLOAT32.pack(number))[0]
    except OverflowError:
        raise BadArgument(f"{shown(value)} is too large for a {type_name}") from None
    if not math.isfinite(number):
        raise BadArgument(f"{shown(value)} has no form in JSON")
    return number


_CHECKS = {
    "bool": _plain,
    "string": _plain,
    **dict.fromkeys(INTEGERS, _integer),
    "float32": _float,
    "float64": _float,
    "json": lambda _, value: value,
}
TYPES = tuple(_CHECKS)
