"""Reads and writes JSON in slices, so that definitions of ten thousand queues delay no message.

A fast library parses a whole text at once, which takes 10 ms per MiB or more. This module parses the elements
of lists in the outermost object one by one, and splits elements longer than GLANCE characters further. An
element has at most ELEMENT_MAX characters.
"""
import codecs
import json
import re
from typing import Any

import orjson

from gomq_py.hub.scheduler import SliceClock
from gomq_py.hub.turns import give_way, paced

# Characters of one element, as many as a request's body about a single thing.
ELEMENT_MAX = 1024 * 1024
# Characters parsed at once, or twice as many: some 2 ms.
GLANCE = 64 * 1024
# Octets of an answer written between two checks of the clock: some 20 us.
WRITTEN_OCTETS = 64 * 1024
# Nesting limit of an answer: far above a body's, below the JSON library's.
MAX_SHOWN_DEPTH = 100
_SPACES: Any = re.compile("[ \t\r\n]*")


class NotJSON(ValueError):
    """The client's text is not a JSON object."""


# Stands for a value that is longer than the decoded text.
_LONGER: Any = object()


class TooLong(Exception):
    """An element of the client's JSON is too long. The client gets the error's text."""


def parsed(pieces):
    """Parse a JSON object from a deque of bytes objects, which is emptied. Return a dict. Raises NotJSON,
    TooLong. May switch greenlets.
    """
    text = _Text(pieces)
    try:
        value = _object(text, None)
        if text.peek():
            raise ValueError("more than one value")
    except (ValueError, RecursionError):
        raise NotJSON("not valid JSON") from None
    return value


def dumped(sections):
    """Return the JSON object made of (key, value) pairs, as a list of bytes objects. Iterators become arrays.
    May switch greenlets.
    """
    parts = []
    for number, (key, value) in enumerate(sections):
        parts.append((b"," if number else b"{") + json_octets(key) + b":")
        if isinstance(value, (dict, list, str)):
            parts.append(json_octets(value))
        else:
            parts += (b"[", *elements(value), b"]")
    parts.append(b"}" if parts else b"{}")
    return parts


def elements(values):
    """Return the elements of a JSON array, separated by commas and without brackets, as a list of bytes
    objects. Works in slices. May switch greenlets.
    """
    parts, some, octets = [], [], 0
    for value in paced(values):
        some.append(json_octets(value))
        octets += len(some[-1])
        if octets >= WRITTEN_OCTETS:
            parts.append(b",".join(some))
            some, octets = [b""], 0  # a comma before the next
    if len(some) > 1 or some and some[0]:
        parts.append(b",".join(some))
    return parts


def json_octets(value):
    """Return a value as JSON, in bytes. Values that JSON cannot represent, such as names that are not UTF-8,
    are replaced, so that no list fails.
    """
    try:
        return orjson.dumps(value, default=_as_json, option=orjson.OPT_NON_STR_KEYS)
    except TypeError:
        return orjson.dumps(
            _sayable(value, MAX_SHOWN_DEPTH), default=_as_json, option=orjson.OPT_NON_STR_KEYS
        )


def _sayable(value, depth):
    if isinstance(value, str):
        return value.encode("utf-8", "replace").decode()
    if isinstance(value, int) and not isinstance(value, bool) and not -1 << 63 <= value < 1 << 64:
        return hex(value)
    if isinstance(value, (dict, list, tuple)) and not depth:
        return "..."
    if isinstance(value, dict):
        return {_sayable(key, depth): _sayable(item, depth - 1) for key, item in value.items()}
    if isinstance(value, (list, tuple)):
        return [_sayable(item, depth - 1) for item in value]
    return value


def _as_json(value):
    if isinstance(value, bytes):
        return value.decode("utf-8", "replace")
    if isinstance(value, (set, frozenset, tuple)):
        return list(value)
    return str(value)


def _refuse_constant(name):
    raise ValueError(f"{name} is no JSON")


_scan: Any = json.JSONDecoder(parse_constant=_refuse_constant).scan_once  # type: ignore[attr-defined]


class _Text:
    """A JSON text with a reading position. Decodes a deque of bytes objects, and empties the deque."""

    def __init__(self, pieces):
        self._pieces = pieces
        self._decoder = codecs.getincrementaldecoder("utf-8")()
        self._shown = ""
        self._at = self._behind = 0
        self._is_all = False
        self._clock = SliceClock()

    def position(self):
        """Return the number of characters before the reading position."""
        return self._behind + self._at

    def peek(self):
        """Skip white space; return the next character, "" at the end. Raises ValueError. May switch
        greenlets.
        """
        while True:
            self._at = _SPACES.match(self._shown, self._at).end()
            if self._at < len(self._shown):
                return self._shown[self._at]
            if self._is_all:
                return ""
            self._look_ahead(1)
            self.give_way()

    def expect(self, mark):
        """Skip white space, then ``mark``. Raises ValueError if that is missing. May switch greenlets."""
        if self.peek() != mark:
            raise ValueError(f"no {mark}")
        self._at += 1

    def scan(self, ahead):
        """Parse and return the next value; _LONGER if it does not end within the decoded text. At least
        ``ahead`` characters are decoded before. Raises ValueError.
        """
        if not self._is_all and len(self._shown) - self._at < ahead:
            self._look_ahead(2 * ahead)
        try:
            value, end = _scan(self._shown, self._at)
        except (StopIteration, ValueError):
            if self._is_all:
                raise ValueError("no value") from None
            return _LONGER
        self._at = end
        return value

    def give_way(self):
        """Let other greenlets run if this greenlet has run for long. May switch greenlets."""
        if self._clock.is_over():
            give_way()
            self._clock.begin()

    def _look_ahead(self, count):
        """Decode ``count`` or more characters from the reading position, or the rest. Raises ValueError."""
        parts = [self._shown[self._at:]]
        self._behind += self._at
        self._at = 0
        have = len(parts[0])
        while have < count and not self._is_all:
            self._is_all = not self._pieces
            parts.append(self._decoder.decode(b"" if self._is_all else self._pieces.popleft(), self._is_all))
            have += len(parts[-1])
        self._shown = "".join(parts)


def _object(text, limit):
    """Parse the object at the reading position, and return a dict. It must end by the position ``limit``
    (None: no limit). May switch greenlets.
    """
    found: dict = {}
    text.expect("{")
    if text.peek() == "}":
        text.expect("}")
        return found
    while True:
        if text.peek() != '"':
            raise ValueError("no key")
        key = _value(text, _limit_of(text, limit))
        text.expect(":")
        found[key] = (
            _list(text, None) if limit is None and text.peek() == "["
            else _value(text, _limit_of(text, limit))
        )
        if text.peek() == "}":
            text.expect("}")
            return found
        text.expect(",")


def _list(text, limit):
    """Parse the list at the reading position. It must end by the position ``limit`` (None: no limit). May
    switch greenlets.
    """
    elements: list = []
    text.expect("[")
    if text.peek() == "]":
        text.expect("]")
        return elements
    while True:
        elements.append(_value(text, _limit_of(text, limit)))
        if text.peek() == "]":
            text.expect("]")
            return elements
        text.expect(",")


def _limit_of(text, limit):
    """Return ``limit``; if it is None, the last position where the element that begins here may end. May
    switch greenlets.
    """
    if limit is None:
        text.peek()
        return text.position() + ELEMENT_MAX
    return limit


def _value(text, limit):
    """Parse and return the next value, in parts if it is longer than GLANCE. Raises ValueError, TooLong. May
    switch greenlets.
    """
    text.give_way()
    mark = text.peek()
    value = text.scan(min(GLANCE, ELEMENT_MAX))
    if value is _LONGER and mark == '"':
        value = text.scan(ELEMENT_MAX + 1)  # a text is read fast
    elif value is _LONGER and mark in ("[", "{"):
        return _list(text, limit) if mark == "[" else _object(text, limit)
    if value is _LONGER or text.position() > limit:
        raise TooLong(f"an element has more than {ELEMENT_MAX} characters")
    return value
