"""Answers: builds JSON answers and reads JSON requests, in slices, so that ten thousand queues do not delay a
message. Cuts answers to the query's ``columns`` and checks fields of bodies.

The module ``paging`` sorts and pages lists.
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
    """Return the Node, the running broker that this Flask app manages."""
    return current_app.extensions["gomq.node"]


def json_answer(value, status=200):
    """A JSON response; the answer to a GET is cut to the query's columns. Octets that are no UTF-8 become
    replacement characters, so callers encode message bodies first.
    """
    paths = paths_in(request.args) if request.method == "GET" and status == 200 else None
    if paths is not None:
        value = [cut(item, paths) for item in value] if isinstance(value, list) else cut(value, paths)
    return Response(json_octets(value), status, mimetype="application/json")


def paced_answer(parts, content_type="application/json"):
    """A response from a list of bytes objects, sent in slices: many megabytes at once would stop the loop."""
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
    """A response of a JSON array, sent in slices. A GET gets only the query's columns. May switch."""
    paths = paths_in(request.args) if request.method == "GET" else None
    return paced_answer(
        [b"[", *elements(values if paths is None else (cut(value, paths) for value in values)), b"]"]
    )


def no_content(status=204, location=None):
    """A response without a body."""
    response = Response(status=status)
    del response.headers["Content-Type"]  # there is no body; clients parse a body by its type
    if location is not None:
        response.headers["Location"] = location
    return response


def sliced(objects, build):
    """A list of the results of ``build(object)`` that are not None, built in slices. May switch."""
    built = []
    for one in paced(objects):
        value = build(one)
        if value is not None:
            built.append(value)
    return built


def body(required=()):
    """Return the request's JSON object. Raises TooLarge, UnsupportedType, and BadRequest, whose text names
    all missing ``required`` keys as RabbitMQ's does.
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
    """Raises BadRequest, whose text names the missing ``keys`` in this order."""
    missing = [key for key in keys if key not in value]
    if missing:
        raise BadRequest("[" + ",".join(f"{{key_missing,{key}}}" for key in missing) + "]")


def check_node(wanted):
    """Raises BadRequest if the field ``node`` of a request's body (``wanted``) names another node."""
    wanted_node = wanted.get("node")
    if wanted_node not in (None, "", node().name, node().name.partition("@")[0]):
        raise BadRequest(f"Node {wanted_node} could not be contacted")


def receive_body(max_octets):
    """Receive the request's body before the view reads any state. Raises BodyLost, UnsupportedType for a
    form. May switch.
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
    """Parse a body of very many values in slices, into ``g.parsed``. Leaves other bodies unparsed."""
    octets = b"".join(pieces)
    if octets.count(b",") < MANY_VALUES or b"\\u" in octets:
        return
    try:
        g.parsed = parsed(deque((octets,)))
    except (NotJSON, TooLong):
        pass  # body() reports the error
    give_way()


def body_octets():
    """Return the raw request body, bytes. Raises TooLarge, UnsupportedType."""
    return b"".join(body_pieces())


def body_pieces():
    """The raw request body as a deque of bytes; the caller may empty it. Raises TooLarge, UnsupportedType."""
    pieces = g.pop("body", None) or deque()
    if isinstance(pieces, Exception):
        raise pieces
    return pieces


def _received(max_octets):
    """The body as a deque of bytes: joining 60 MB would take 30 ms. Raises TooLarge, UnsupportedType."""
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
    """The fields that the query's ``columns`` names (``name,message_stats.publish_details.rate``, as in
    RabbitMQ), each field as a list of names; None without ``columns``.
    """
    wanted = query.get("columns")
    return [column.split(".") for column in wanted.split(",") if column] if wanted else None


def at(item, path):
    """The value of the field ``path``, a list of names, in nested JSON objects, or None."""
    for part in path:
        if not isinstance(item, dict):
            return None
        item = item.get(part)
    return item


def cut(item, paths):
    """A copy of a JSON object with only the fields at these paths; any other value unchanged."""
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
    """The boolean field ``key``, else ``default``; texts true and false are accepted. Raises BadRequest."""
    value = wanted.get(key, default)
    if isinstance(value, str) and value.lower() in ("true", "false"):
        return value.lower() == "true"
    if not isinstance(value, bool):
        raise BadRequest(f"{key} must be a boolean")
    return value


def text_of(wanted, key, default=None):
    """The string field ``key``, else ``default``. Raises BadRequest if that is no string."""
    value = wanted.get(key, default)
    if not isinstance(value, str):
        raise BadRequest(f"{key} must be a string")
    return value


def number_in(text):
    """The whole number in a text of plain digits; None if it has other characters or 20 digits and more."""
    digits = text.removeprefix("-")
    return int(text) if digits.isascii() and digits.isdigit() and len(digits) < 20 else None


def pattern_of(text, ignore_case):
    """Return a Pattern made from a client's regular expression. Raises BadRequest."""
    try:
        return Pattern(text, ignore_case)
    except ValueError as error:
        raise BadRequest(str(error)) from None


def integer_of(wanted, key, default, lowest=0, highest=2**31 - 1):
    """The integer field ``key``, else ``default``; accepts digits in a text. Raises BadRequest."""
    value = wanted.get(key, default)
    if isinstance(value, str):
        value = number_in(value)
    if isinstance(value, bool) or not isinstance(value, int) or not lowest <= value <= highest:
        raise BadRequest(f"{key} must be an integer between {lowest} and {highest}")
    return value


def decoded_arguments(wanted):
    """The object in the field ``arguments``, whose content the caller checks; else {}. Raises BadRequest."""
    arguments = wanted.get("arguments", {})
    if arguments == []:
        return {}  # PHP clients send this for an empty object
    if not isinstance(arguments, dict):
        raise BadRequest("arguments must be an object")
    return arguments
