"""JSON slices: large JSON read and written a slice at a time, so that definitions of ten thousand queues hold up no message.

A fast library takes a whole text in one go: some 10 ms for each MiB. Here only the lists of the outermost object are gone through piece by piece.
"""
import json
from typing import Any

from gomq_py.broker.turns import give_way
from gomq_py.http.answers import json_octets

# Elements between two turns of the loop: some 10 us each.
SLICE = 100
_SPACE = " \t\r\n"


class NotJSON(ValueError):
    """The text is no JSON object."""


def parsed(octets):
    """The JSON object in ``octets``. Raises NotJSON. May switch."""
    try:
        text = octets.decode("utf-8")
        value, end = _object(text, _at(text, 0))
    except (ValueError, IndexError, RecursionError):
        raise NotJSON("not valid JSON") from None
    if _rest(text, end):
        raise NotJSON("not valid JSON")
    return value


def dumped(sections):
    """The JSON object of (key, value) pairs as a list of octets; a value that is no dict, list or text is an iterator of elements. May switch."""
    parts = []
    for number, (key, value) in enumerate(sections):
        parts.append((b"," if number else b"{") + json_octets(key) + b":")
        if isinstance(value, (dict, list, str)):
            parts.append(json_octets(value))
        else:
            _dump_list(parts, value)
    parts.append(b"}" if parts else b"{}")
    return parts


def _dump_list(parts, elements):
    parts.append(b"[")
    some = []
    for element in elements:
        some.append(element)
        if len(some) == SLICE:
            _dump_some(parts, some)
            give_way()
    if some:
        _dump_some(parts, some)
    parts.append(b"]")


def _dump_some(parts, some):
    if parts[-1] != b"[":
        parts.append(b",")
    parts.append(json_octets(some)[1:-1])
    some.clear()


def _refuse_constant(name):
    raise ValueError(f"{name} is no JSON")


_scan: Any = json.JSONDecoder(parse_constant=_refuse_constant).scan_once  # type: ignore[attr-defined]


def _object(text, at):
    """(the object whose brace stands at a position, the position behind it)."""
    if text[at] != "{":
        raise ValueError("no object")
    found: dict = {}
    at = _at(text, at + 1)
    if text[at] == "}":
        return found, at + 1
    while True:
        key, at = _value(text, at)
        if not isinstance(key, str):
            raise ValueError("no key")
        at = _expected(text, at, ":")
        found[key], at = _list(text, at) if text[at] == "[" else _value(text, at)
        at = _at(text, at)
        if text[at] == "}":
            return found, at + 1
        at = _expected(text, at, ",")


def _list(text, at):
    elements: list = []
    at = _at(text, at + 1)
    if text[at] == "]":
        return elements, at + 1
    while True:
        element, at = _value(text, at)
        elements.append(element)
        if len(elements) % SLICE == 0:
            give_way()
        at = _at(text, at)
        if text[at] == "]":
            return elements, at + 1
        at = _expected(text, at, ",")


def _value(text, at):
    try:
        return _scan(text, at)
    except StopIteration:
        raise ValueError("no value") from None


def _expected(text, at, mark):
    """The position of what comes behind a mark."""
    at = _at(text, at)
    if text[at] != mark:
        raise ValueError(f"no {mark}")
    return _at(text, at + 1)


def _at(text, at):
    """The next position that is no white space. Raises IndexError at the end."""
    while text[at] in _SPACE:
        at += 1
    return at


def _rest(text, at):
    return text[at:at + 1] and text[at:].strip(_SPACE)
