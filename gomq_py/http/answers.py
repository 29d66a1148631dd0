"""Builds JSON answers and reads JSON requests of the management API.

Long bodies are processed in slices, so that other greenlets run in between: an answer about ten thousand
queues delays no message. The module ``paging`` sorts and pages lists.
"""
from collections import deque

import orjson
from flask import Response, current_app, g, request

from gomq_py.broker.tables import WIRE_DEPTH, TableLimits
from gomq_py.http import foreign_pages
from gomq_py.http.errors import BadRequest, TooLarge, UnsupportedType
from gomq_py.http.json_slices import (
    WRITTEN_OCTETS, NotJSON, TooLong, elements, json_octets, parsed,
)
from gomq_py.hub.scheduler import SliceClock
from gomq_py.hub.turns import give_way, paced
from gomq_py.patterns import Pattern

# Octets of a body read between two checks of the clock.
RECEIVED_OCTETS = 64 * 1024
# Seconds of writing until other work runs: the reader takes as much processor time again, and with slices of
# 2 ms messages beside it waited twice as long.
WRITTEN_S = 0.0005
# Largest request body; definitions, some 10 MiB on a large broker, have their own limit.
MAX_BODY_OCTETS = 1024 * 1024
# Values that the JSON library parses in about a millisecond.
MANY_VALUES = 5000
# Nesting limit of a body: arguments and headers as deep as a client's, inside an object or two. Code that
# walks a body may recurse.
_BODY = TableLimits(WIRE_DEPTH + 3, 1 << 62)


def node():
    """Return the Node that this Flask app manages; on a follower, its FollowerManagement."""
    return current_app.extensions["gomq.node"]


def json_answer(value, status=200):
    """Return a response with ``value`` as JSON. In the answer to a GET, ``columns`` of the query selects
    fields. Bytes that are not UTF-8 get replacement characters, so callers encode message bodies as base64
    first.
    """
    paths = paths_in(request.args) if request.method == "GET" and status == 200 else None
    if paths is not None:
        value = [cut(item, paths) for item in value] if isinstance(value, list) else cut(value, paths)
    return Response(json_octets(value), status, mimetype="application/json")


def paced_answer(parts, content_type="application/json"):
    """Return a response whose body is the bytes objects in the list ``parts``. It is sent in slices, so that
    other greenlets run in between. Sending empties the list.
    """
    response = Response(_paced(parts), content_type=content_type)
    response.content_length = sum(map(len, parts))
    return response


def _paced(parts):
    some, octets = [], 0
    clock = SliceClock(WRITTEN_S)
    parts.reverse()
    while parts:  # each part is freed once written: 600 of 64 KiB at once take 13 ms
        part = parts.pop()
        some.append(part)
        octets += len(part)
        if octets >= WRITTEN_OCTETS:
            yield b"".join(some)
            some.clear()
            octets = 0
            if clock.is_over():
                give_way()
                clock.begin()
    yield b"".join(some)


def paced_list(values):
    """Return a response with ``values`` as a JSON array, sent in slices. ``columns`` in a GET's query selects
    the fields of the elements. May switch greenlets.
    """
    paths = paths_in(request.args) if request.method == "GET" else None
    return paced_answer(
        [b"[", *elements(values if paths is None else (cut(value, paths) for value in values)), b"]"]
    )


def no_content(status=204, location=None):
    """Return a response without a body."""
    response = Response(status=status)
    del response.headers["Content-Type"]  # there is no body; clients parse a body by its type
    if location is not None:
        response.headers["Location"] = location
    return response


def sliced(objects, build):
    """Call ``build`` with each object, and return a list of the results that are not None. Works in slices.
    May switch greenlets.
    """
    built = []
    for one in paced(objects):
        value = build(one)
        if value is not None:
            built.append(value)
    return built


def body(required=()):
    """Return the JSON object in the request's body; {} for an empty body. Raises TooLarge, UnsupportedType,
    BadRequest. If ``required`` keys are missing, the text of BadRequest names all of them, as RabbitMQ's
    does.
    """
    value = g.pop("parsed", None)
    if value is None:
        octets = body_octets()
        try:
            value = orjson.loads(octets) if octets else {}
        except orjson.JSONDecodeError:
            raise BadRequest("not_json") from None
    if value is None:
        value = {}  # RabbitMQ treats null as an empty body
    if isinstance(value, str):
        raise BadRequest(
            "invalid payload: the request body JSON-decoded to a string. Is the input doubly-JSON-encoded?"
        )
    if not isinstance(value, dict):
        raise BadRequest("not_json")
    if _BODY.fault_of(value) is not None:
        raise BadRequest(
            f"the body is nested too deep: arguments, headers and values have at most {WIRE_DEPTH} levels "
            "(max_table_depth)"
        )
    check_required(value, required)
    return value


def check_required(value, keys):
    """Raise BadRequest if the dict ``value`` lacks any of ``keys``. The text names all missing keys."""
    missing = [key for key in keys if key not in value]
    if missing:
        raise BadRequest("[" + ",".join(f"{{key_missing,{key}}}" for key in missing) + "]")


def check_node(wanted):
    """Raise BadRequest if the field ``node`` of a request's body ``wanted`` names another node."""
    wanted_node = wanted.get("node")
    if wanted_node not in (None, "", node().name, node().name.partition("@")[0]):
        raise BadRequest(f"Node {wanted_node} could not be contacted")


def receive_body(max_octets):
    """Receive the request's body, at most ``max_octets`` bytes, before the view reads any state. Raises
    BodyLost, and UnsupportedType for a form. Other errors of size and type are kept, and raised when the view
    asks for the body. May switch greenlets.
    """
    # A body may come slowly, and that state could change meanwhile.
    if request.method in ("PUT", "POST"):
        try:
            g.body = _received(max_octets)
            if max_octets <= MAX_BODY_OCTETS:
                _parse_if_long(g.body)
        except (TooLarge, UnsupportedType) as error:
            g.body = error
        foreign_pages.check_body(b"" if isinstance(g.body, Exception) or not g.body else g.body[0])


def _parse_if_long(pieces):
    """Parse a body of MANY_VALUES values or more in slices, into ``g.parsed``. Leave other bodies to
    ``body()``. May switch greenlets.
    """
    octets = b"".join(pieces)
    if octets.count(b",") < MANY_VALUES or b"\\u" in octets:
        return
    try:
        g.parsed = parsed(deque((octets,)))
    except (NotJSON, TooLong):
        pass  # body() reports the error
    give_way()


def body_octets():
    """Return the raw request body as bytes; a second call returns b"". Raises TooLarge, UnsupportedType."""
    return b"".join(body_pieces())


def body_pieces():
    """Return the raw request body as a deque of bytes objects, which the caller may empty. A second call
    returns an empty deque. Raises TooLarge, UnsupportedType.
    """
    pieces = g.pop("body", None) or deque()
    if isinstance(pieces, Exception):
        raise pieces
    return pieces


def _received(max_octets):
    """Receive the body, and return it as a deque of bytes objects, because joining 60 MB would take 30 ms.
    Raises TooLarge, UnsupportedType, BodyLost. May switch greenlets.
    """
    length = request.content_length
    if length is not None and length > max_octets:
        raise TooLarge(f"a body of {length} bytes is over the limit of {max_octets}")
    if request.mimetype not in ("", "application/json", foreign_pages.URLENCODED):
        raise UnsupportedType(f"content type {request.mimetype} is not application/json: bodies are JSON")
    pieces: deque = deque()
    clock = SliceClock()
    left = max_octets + 1
    while left and (piece := request.stream.read(min(left, RECEIVED_OCTETS))):
        pieces.append(piece)
        left -= len(piece)
        if clock.is_over():
            give_way()
            clock.begin()
    if not left:
        raise TooLarge(f"the body is over the limit of {max_octets} bytes")
    return pieces


# columns of a query

def paths_in(query):
    """Return the fields that the query's ``columns`` names, each as a list of keys; None without ``columns``.
    ``name,message_stats.publish`` (RabbitMQ's syntax) gives [["name"], ["message_stats", "publish"]].
    """
    wanted = query.get("columns")
    return [column.split(".") for column in wanted.split(",") if column] if wanted else None


def at(item, path):
    """Return the value at ``path``, a list of keys, in nested JSON objects; None if there is no value."""
    for part in path:
        if not isinstance(item, dict):
            return None
        item = item.get(part)
    return item


def cut(item, paths):
    """Return a copy of a JSON object with only the fields at ``paths``, as from ``paths_in()``. Fields that
    are null or missing are left out. A value that is no object is returned unchanged.
    """
    if not isinstance(item, dict):
        return item
    left = {}
    for path in paths:
        value = at(item, path)
        if value is None:
            continue
        inner = left
        for part in path[:-1]:
            inner = inner.setdefault(part, {})
        inner[path[-1]] = value
    return left


# fields of a body or a query

def boolean_of(wanted, key, default=False):
    """Return the field ``key`` of a body or query as a bool; ``default`` if it is missing. Accepts the texts
    "true" and "false". Raises BadRequest for other values.
    """
    value = wanted.get(key, default)
    if isinstance(value, str) and value.lower() in ("true", "false"):
        return value.lower() == "true"
    if not isinstance(value, bool):
        raise BadRequest(f"{key} must be a boolean")
    return value


def text_of(wanted, key, default=None):
    """Return the string field ``key`` of a body or query; ``default`` if it is missing. Raises BadRequest if
    the result is no string, also for a missing field without ``default``.
    """
    value = wanted.get(key, default)
    if not isinstance(value, str):
        raise BadRequest(f"{key} must be a string")
    return value


def number_in(text):
    """Return the integer in ``text``: at most 19 digits after an optional "-". None for other texts."""
    digits = text.removeprefix("-")
    return int(text) if digits.isascii() and digits.isdigit() and len(digits) < 20 else None


def pattern_of(text, ignore_case):
    """Return a Pattern made from a client's regular expression. Raises BadRequest if it is invalid."""
    try:
        return Pattern(text, ignore_case)
    except ValueError as error:
        raise BadRequest(str(error)) from None


def integer_of(wanted, key, default, lowest=0, highest=2**31 - 1):
    """Return the field ``key`` of a body or query as an int; ``default`` if it is missing. Accepts a text of
    digits. Raises BadRequest for other values, and for integers outside of ``lowest`` to ``highest``.
    """
    value = wanted.get(key, default)
    if isinstance(value, str):
        value = number_in(value)
    if isinstance(value, bool) or not isinstance(value, int) or not lowest <= value <= highest:
        raise BadRequest(f"{key} must be an integer between {lowest} and {highest}")
    return value


def decoded_arguments(wanted):
    """Return a body's object ``arguments``, {} if missing; its content is unchecked. Raises BadRequest."""
    arguments = wanted.get("arguments", {})
    if arguments == []:
        return {}  # PHP clients send this for an empty object
    if not isinstance(arguments, dict):
        raise BadRequest("arguments must be an object")
    return arguments
