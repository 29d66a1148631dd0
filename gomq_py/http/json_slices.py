"""JSON slices: large JSON read and written a slice at a time, so that definitions of ten thousand queues hold
up no message.

A fast library takes a whole text in one go: 10 ms for each MiB, and more where it holds little but brackets.
Here the lists of the outermost object are gone through element by element, and so are elements that are
longer than a glance; one may have so many characters and no more.
"""
import codecs
import json
import re
from typing import Any

from gomq_py.http.answers import elements, json_octets
from gomq_py.hub.slice_clock import SliceClock
from gomq_py.hub.turns import give_way

# Characters of one element, as many as the body of a request that is about one thing.
ELEMENT_MAX = 1024 * 1024
# Characters that are read in one go, or twice as many: some 2 ms.
GLANCE = 64 * 1024
_SPACES: Any = re.compile("[ \t\r\n]*")


class NotJSON(ValueError):
    """The text is no JSON object."""


# In place of a value: it is longer than what was shown.
_LONGER: Any = object()


class TooLong(Exception):
    """An element of it is too long; the text is for whoever sent it."""


def parsed(pieces):
    """The JSON object in octets that came in ``pieces``, a deque that is used up.

    Raises NotJSON, TooLong. May switch.
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
    """The JSON object of (key, value) pairs as a list of octets; a value that is no dict, list or text is an
    iterator of elements.

    May switch.
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


def _refuse_constant(name):
    raise ValueError(f"{name} is no JSON")


_scan: Any = json.JSONDecoder(parse_constant=_refuse_constant).scan_once  # type: ignore[attr-defined]


class _Text:
    """The text of octets in pieces, and a place in it.

    What has been read is freed, and what lies far ahead not decoded yet.
    """

    def __init__(self, pieces):
        self._pieces = pieces
        self._decoder = codecs.getincrementaldecoder("utf-8")()
        self._shown = ""
        self._at = self._behind = 0
        self._is_all = False
        self._clock = SliceClock()

    def position(self):
        """Characters before this place."""
        return self._behind + self._at

    def peek(self):
        """The next character that is no white space; "" at the end. Raises ValueError."""
        while True:
            self._at = _SPACES.match(self._shown, self._at).end()
            if self._at < len(self._shown):
                return self._shown[self._at]
            if self._is_all:
                return ""
            self._look_ahead(1)
            self.give_way()

    def expect(self, mark):
        """Pass over a mark. Raises ValueError where something else stands."""
        if self.peek() != mark:
            raise ValueError(f"no {mark}")
        self._at += 1

    def scan(self, ahead):
        """The value that stands here, which is passed over; _LONGER where ``ahead`` characters do not hold
        it.

        Raises ValueError.
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
        """Let others have their turn if it is time. May switch."""
        if self._clock.is_over():
            give_way()
            self._clock.begin()

    def _look_ahead(self, count):
        """Have so many characters before this place, or all there are.

        Raises ValueError where they are none.
        """
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
    """The object that stands here; ``limit`` is the position where the element that it is in has to end, None
    for the outermost.
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
    """Likewise the list."""
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
    """Where an element has to end that begins here, or is part of one that has a limit."""
    if limit is None:
        text.peek()
        return text.position() + ELEMENT_MAX
    return limit


def _value(text, limit):
    """The value that stands here.

    One that is longer than a glance is gone through piece by piece. Raises ValueError, TooLong. May switch.
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
