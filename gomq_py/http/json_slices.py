"""JSON slices: large JSON read and written a slice at a time, so that definitions of ten thousand queues hold up no message.

A fast library takes a whole text in one go: some 10 ms for each MiB. Here the lists of the outermost object are
gone through element by element, and an element, which is read in one go, may have so many characters and no more.
"""
import codecs
import json
from typing import Any

from gomq_py.broker.slice_clock import SliceClock
from gomq_py.broker.turns import give_way
from gomq_py.http.answers import elements, json_octets

# Characters of one element, as many as the body of a request that is about one thing: they take some 5 ms.
ELEMENT_MAX = 1024 * 1024
_SPACE = " \t\r\n"


class NotJSON(ValueError):
    """The text is no JSON object."""


class TooLong(Exception):
    """An element of it is too long; the text is for whoever sent it."""


def parsed(octets):
    """The JSON object in ``octets``. Raises NotJSON, TooLong. May switch."""
    try:
        text = _decoded(octets)
        value, end = _object(_Text(text), _at(text, 0))
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
            parts += (b"[", *elements(value), b"]")
    parts.append(b"}" if parts else b"{}")
    return parts


def _refuse_constant(name):
    raise ValueError(f"{name} is no JSON")


_scan: Any = json.JSONDecoder(parse_constant=_refuse_constant).scan_once  # type: ignore[attr-defined]


def _decoded(octets):
    """The text, a MiB at a time: letters beyond ASCII take ten times as long. May switch."""
    decoder = codecs.getincrementaldecoder("utf-8")()
    parts = []
    for start in range(0, len(octets), ELEMENT_MAX):
        if start:
            give_way()
        parts.append(decoder.decode(octets[start:start + ELEMENT_MAX]))
    parts.append(decoder.decode(b"", True))
    return "".join(parts)


class _Text:
    """A text and what of it the scanner is shown: it would read on to the end of an element, however long that is."""

    def __init__(self, text):
        self._text = text
        self._base = 0
        self._shown = text[:2 * ELEMENT_MAX]

    def __getitem__(self, at):
        return self._text[at]

    def value(self, at):
        """(the value that stands at a position, the position behind it). Raises ValueError, TooLong."""
        if at - self._base > ELEMENT_MAX:
            self._base = at
            self._shown = self._text[at:at + 2 * ELEMENT_MAX]
        is_all = self._base + len(self._shown) == len(self._text)
        start = at - self._base
        try:
            value, end = _scan(self._shown, start)
        except (StopIteration, ValueError):
            if is_all:
                raise ValueError("no value") from None
            raise TooLong(f"an element is no JSON or has more than {ELEMENT_MAX} characters") from None
        if end - start > ELEMENT_MAX:
            raise TooLong(f"an element has more than {ELEMENT_MAX} characters")
        return value, self._base + end


def _object(text, at):
    """(the object whose brace stands at a position, the position behind it)."""
    if text[at] != "{":
        raise ValueError("no object")
    found: dict = {}
    at = _at(text, at + 1)
    if text[at] == "}":
        return found, at + 1
    while True:
        key, at = text.value(at)
        if not isinstance(key, str):
            raise ValueError("no key")
        at = _expected(text, at, ":")
        found[key], at = _list(text, at) if text[at] == "[" else text.value(at)
        at = _at(text, at)
        if text[at] == "}":
            return found, at + 1
        at = _expected(text, at, ",")


def _list(text, at):
    elements: list = []
    at = _at(text, at + 1)
    if text[at] == "]":
        return elements, at + 1
    clock = SliceClock(every=10)
    while True:
        element, at = text.value(at)
        elements.append(element)
        if clock.is_over():
            give_way()
            clock.begin()
        at = _at(text, at)
        if text[at] == "]":
            return elements, at + 1
        at = _expected(text, at, ",")


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
