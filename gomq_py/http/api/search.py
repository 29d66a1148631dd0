"""/api/queues/…/search: finds messages by content without taking them. Specific to gomq-py.

A request examines a limited number of messages and bytes, and returns the offset for the next request, so
that a client can stop a long search.
"""
import fnmatch
import re

import orjson
from flask import Blueprint

from gomq_py.broker.queues.peeking import browse
from gomq_py.broker.verbs import queues
from gomq_py.content.properties import Properties
from gomq_py.errors import Malformed
from gomq_py.http.answers import body, boolean_of, integer_of, json_answer, pattern_of
from gomq_py.http.api.messages import passed_over, shown
from gomq_py.http.errors import BadRequest
from gomq_py.http.entities import caller, find_queue
from gomq_py.http.login import MANAGEMENT, access
from gomq_py.hub.scheduler import SliceClock
from gomq_py.hub.turns import give_way
from gomq_py.storage.message import Message

blueprint = Blueprint("search", __name__)
# Messages and octets of bodies examined per request: maximum and default.
MOST_EXAMINED, USUAL_EXAMINED = 100_000, 10_000
MOST_OCTETS, USUAL_OCTETS = 256 * 1024 * 1024, 32 * 1024 * 1024
# Messages that are shown, and octets of each body.
MOST_SHOWN, USUAL_SHOWN = 200, 50
SHOWN_OCTETS = 16 * 1024
# Octets of a body that are searched: JSON takes some 5 ms for a MiB.
BODY_OCTETS = 1024 * 1024
# Octets of a body that a pattern searches: its time is limited, and long texts would use it up.
PATTERN_OCTETS = 64 * 1024
TEXT_MAX = 1024
# Most steps of a path into JSON.
STEPS_MAX = 64
_STEP = re.compile(r"\.?([^.\[\]]+)|\[(\d{1,9})\]")
_ANYTHING = object()


@blueprint.post("/api/queues/<vhost>/<name>/search")
@access(MANAGEMENT)
def search_messages(vhost, name):
    """Return ready messages from ``offset`` on that meet all given conditions: ``text`` in the body, a body
    that matches ``pattern``, JSON with ``json_value`` at ``json_path``, equal ``headers``, ``exchange`` and
    ``routing_key`` with wildcards ``*`` and ``?``. Examines at most ``examined_max`` messages and
    ``octets_max`` octets; ``next_offset``: the ``offset`` for the next search, null at the end of the queue.
    """
    find_queue(vhost, name)
    queue = queues.to_look_at(caller(vhost), name)
    wanted = body()
    criteria = Criteria(wanted)
    offset = integer_of(wanted, "offset", 0)
    count = integer_of(wanted, "count", USUAL_SHOWN, 1, MOST_SHOWN)
    examined_max = integer_of(wanted, "examined_max", USUAL_EXAMINED, 1, MOST_EXAMINED)
    octets_max = integer_of(wanted, "octets_max", USUAL_OCTETS, 1, MOST_OCTETS)
    browser = browse(queue)
    if browser is None:
        raise BadRequest(f"queue '{name}' in vhost '{vhost}' is closed or a stream: it cannot be searched")
    try:
        return json_answer(_found(browser, criteria, offset, count, examined_max, octets_max))
    finally:
        browser.close()


def _found(browser, criteria, offset, count, examined_max, octets_max):
    """Search the messages of a queue browser, and return the answer's JSON object. May switch greenlets."""
    found: list[dict] = []
    examined = octets = 0
    is_end = not passed_over(browser, offset)
    message, clock = Message(), SliceClock()
    while not is_end and len(found) < count and examined < examined_max and octets < octets_max:
        if not browser.next(message):
            is_end = True
            break
        octets += message.get_body_length()
        if criteria.meet(message):
            found.append(shown(message, offset + examined, "auto", SHOWN_OCTETS))
        examined += 1
        if clock.is_over():
            give_way()
            clock.begin()
    return {
        "messages": found, "examined": examined, "octets": octets,
        "next_offset": None if is_end else offset + examined,
    }


class Criteria:
    """The conditions of a search, from the request's JSON object. Raises BadRequest for invalid ones."""

    def __init__(self, wanted):
        ignore_case = boolean_of(wanted, "ignore_case")
        text = _text(wanted, "text")
        self._ignore_case = ignore_case
        self._text = None if text is None else (text.lower() if ignore_case else text).encode()
        pattern = _text(wanted, "pattern")
        self._pattern = None if pattern is None else pattern_of(pattern, ignore_case)
        self._exchange = _globbed(_text(wanted, "exchange"))
        self._routing_key = _globbed(_text(wanted, "routing_key"))
        self._headers = wanted.get("headers", {})
        if not isinstance(self._headers, dict):
            raise BadRequest("headers must be an object")
        path = _text(wanted, "json_path")
        self._path = None if path is None else steps_of(path)
        self._value = wanted.get("json_value", _ANYTHING)
        if self._value is not _ANYTHING and self._path is None:
            raise BadRequest("json_value takes a json_path")

    def meet(self, message):
        for pattern, octets in (
            (self._exchange, message.get_exchange), (self._routing_key, message.get_routing_key),
        ):
            if pattern is not None and not pattern.fullmatch(octets().decode("utf-8", "replace")):
                return False
        if self._headers and not self._has_headers(message):
            return False
        if self._text is None and self._pattern is None and self._path is None:
            return True
        return self._has_body(message.get_body_start(BODY_OCTETS))

    def _has_headers(self, message):
        try:
            headers = Properties.decode(message.get_properties()).headers or {}
        except Malformed:
            return False
        return all(headers.get(key, _ANYTHING) == value for key, value in self._headers.items())

    def _has_body(self, octets):
        if self._text is not None and self._text not in (octets.lower() if self._ignore_case else octets):
            return False
        if self._pattern is not None:
            try:
                if not self._pattern.found_in(octets[:PATTERN_OCTETS].decode("utf-8", "replace")):
                    return False
            except TimeoutError:
                raise BadRequest("the pattern takes too long: write it without nested repeats") from None
        return self._path is None or self._has_value(octets)

    def _has_value(self, octets):
        try:
            value = orjson.loads(octets)
        except orjson.JSONDecodeError:
            return False
        for step in self._path or ():
            if isinstance(step, int) and isinstance(value, list) and step < len(value):
                value = value[step]
            elif isinstance(step, str) and isinstance(value, dict) and step in value:
                value = value[step]
            else:
                return False
        return self._value is _ANYTHING or value == self._value or (
            # converting a list of a MiB to a text takes 30 ms
            not isinstance(value, (list, dict)) and str(value) == self._value)


def steps_of(path):
    """Return a JSON path as a list of keys (str) and indexes (int). Raises BadRequest.

    >>> steps_of("$.order.lines[0].sku")
    ['order', 'lines', 0, 'sku']
    """
    steps: list = []
    at = 1 if path.startswith("$") else 0
    while at < len(path):
        found = _STEP.match(path, at)
        if found is None or len(steps) == STEPS_MAX:
            raise BadRequest(f"json_path is names and [numbers], at most {STEPS_MAX}, such as $.lines[0].sku")
        steps.append(found.group(1) if found.group(1) is not None else int(found.group(2)))
        at = found.end()
    return steps


def _text(wanted, key):
    value = wanted.get(key)
    if value is None:
        return None
    if not isinstance(value, str) or not 0 < len(value) <= TEXT_MAX:
        raise BadRequest(f"{key} must be a text of 1 to {TEXT_MAX} characters")
    try:
        value.encode()
    except UnicodeEncodeError:
        raise BadRequest(f"{key} is no text") from None
    return value


def _globbed(text):
    """Return a pattern for the wildcards ``*`` and ``?``; None for None. Joins runs of ``*``, for speed."""
    return None if text is None else re.compile(fnmatch.translate(re.sub(r"\*+", "*", text)), re.DOTALL)
