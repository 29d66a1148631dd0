"""/api/queues/…/messages, move, copy, replay: shows messages without taking them, moves and copies them."""
from flask import Blueprint, request
from gevent.event import AsyncResult

from gomq_py.broker.queues.peeking import browse
from gomq_py.broker.transfer.moves import Filter, Move
from gomq_py.broker.verbs import moves, queues
from gomq_py.http.answers import body, boolean_of, integer_of, json_answer, node, paced_list
from gomq_py.http.errors import BadRequest
from gomq_py.http.entities import caller, find_queue, find_vhost, there_is
from gomq_py.http.login import MANAGEMENT, access
from gomq_py.http.shapes import content_shown
from gomq_py.hub.turns import give_way
from gomq_py.storage.message import Message

blueprint = Blueprint("messages", __name__)
MAX_PEEK = 1000
DEFAULT_PEEK = 10
# Octets of bodies in one answer; a message beyond it is cut, and payload_bytes has its full length.
MAX_PEEK_OCTETS = 16 * 1024 * 1024
# Records skipped per turn: some 2 ms.
SKIP_SLICE = 5000
MAX_PATTERN = 255


@blueprint.get("/api/queues/<vhost>/<name>/messages")
@access(MANAGEMENT)
def peek_messages(vhost, name):
    """Return up to ``count`` ready messages from ``offset`` on, oldest first. Nothing is delivered, counted
    or reordered.
    """
    find_queue(vhost, name)
    queue = queues.to_look_at(caller(vhost), name)
    look = Look(integer_of(request.args, "offset", 0))
    browser = _browsed(queue)
    try:
        return paced_list(_peeked(browser, look))
    finally:
        browser.close()


class Look:
    """The query of a request that shows messages: offset, count, truncate, encoding. Raises BadRequest."""

    def __init__(self, offset):
        query = request.args
        self.offset = offset
        self.count = integer_of(query, "count", DEFAULT_PEEK, 0, MAX_PEEK)
        self._truncate = integer_of(query, "truncate", 0) if "truncate" in query else MAX_PEEK_OCTETS
        self._encoding = query.get("encoding", "auto")
        if self._encoding not in ("auto", "base64"):
            raise BadRequest("encoding must be auto or base64")
        self._octets_left = MAX_PEEK_OCTETS

    def shown(self, message, position):
        """Return a Message as JSON. Its body is cut to the query's ``truncate`` bytes, and the bodies of all
        messages together to MAX_PEEK_OCTETS.
        """
        limit = min(self._octets_left, self._truncate)
        self._octets_left -= min(self._octets_left, message.get_body_length())
        return shown(message, position, self._encoding, limit)


def _browsed(queue):
    browser = browse(queue)
    if browser is None:
        raise BadRequest(
            f"queue '{queue.name}' in vhost '{queue.vhost}' is closed or a stream: its messages cannot be "
            "looked at this way"
        )
    return browser


def passed_over(browser, count):
    """Skip ``count`` messages of a queue browser. Return whether there were enough. May switch greenlets."""
    while count:
        passed = browser.skip(count, SKIP_SLICE)
        if passed == 0:
            return False
        count -= passed
        give_way()
    return True


def _peeked(browser, look):
    if not passed_over(browser, look.offset):
        return
    message = Message()
    for position in range(look.offset, look.offset + look.count):
        if not browser.next(message):
            return
        yield look.shown(message, position)


def shown(message, position, encoding, limit):
    """Return a message as JSON, with its ``position`` in the queue and up to ``limit`` bytes of its body."""
    facts = message.describe()
    return {
        "position": position, "redelivered": facts["redelivered"],
        "delivery_count": facts["delivery_count"],
        "exchange": message.get_exchange().decode("utf-8", "replace"),
        "routing_key": message.get_routing_key().decode("utf-8", "replace"),
        "timestamp": facts["timestamp_ms"], **content_shown(message, encoding, limit),
    }


@blueprint.post("/api/queues/<vhost>/<name>/move")
@access(MANAGEMENT)
def move_messages(vhost, name):
    """Move ready messages (all, at most ``count``, or matching ones) to the queue ``destination``; with
    ``dry_run``, only count them.
    """
    return _move(vhost, name, keep=False)


@blueprint.post("/api/queues/<vhost>/<name>/copy")
@access(MANAGEMENT)
def copy_messages(vhost, name):
    """Copy ready messages (all, at most ``count``, or matching ones) to the queue ``destination``; with
    ``dry_run``, only count them.
    """
    return _move(vhost, name, keep=True)


@blueprint.post("/api/queues/<vhost>/<name>/replay")
@access(MANAGEMENT)
def replay_messages(vhost, name):
    """Move dead letters back to the queue where they died first; if ``to`` is ``exchange``, to the exchange
    that they were first published to. If ``x_death`` is ``clean``, they lose the headers about deaths.
    """
    find_queue(vhost, name)
    wanted = body()
    to, x_death = wanted.get("to", "queue"), wanted.get("x_death", "keep")
    if to not in ("queue", "exchange"):
        raise BadRequest("to must be queue or exchange")
    if x_death not in ("keep", "clean"):
        raise BadRequest("x_death must be keep or clean")
    queue, route = moves.to_where_they_died(caller(vhost), name, to, x_death == "clean")
    return _run(queue, route, wanted, keep=False)


def _move(vhost, name, keep):
    find_queue(vhost, name)
    wanted = body(required=("destination",))
    target_vhost = wanted.get("destination_vhost", vhost)
    if not isinstance(wanted["destination"], str) or not isinstance(target_vhost, str):
        raise BadRequest("destination and destination_vhost must be names")
    target = there_is(
        "queue", find_vhost(target_vhost).queues.get(wanted["destination"]), wanted["destination"],
        target_vhost,
    )
    queue, route = moves.to_another_queue(caller(vhost), name, caller(target_vhost), target, keep)
    if target is queue:
        raise BadRequest("destination is the queue itself")
    return _run(queue, route, wanted, keep)


def _run(queue, route, wanted, keep):
    """Move messages, or copy them if ``keep``, then respond with the counts. May switch greenlets."""
    _browsed(queue).close()
    dry_run = boolean_of(wanted, "dry_run")
    count = integer_of(wanted, "count", 0, 1) if "count" in wanted else None
    broker, finished = node().broker, AsyncResult()

    def ended(result, error):
        # The request may end earlier: until here the broker must know the move, to be able to stop it.
        broker.moves.discard(move)
        finished.set((result, error))

    move = Move(
        queue, route, broker.durability, broker.scheduler, ended, _filter_of(wanted), count, keep, dry_run
    )
    move.start()
    broker.moves.add(move)
    result, error = finished.get()
    answer = {
        "dry_run": dry_run, "examined": result.examined, "matched": result.matched,
        "copied" if keep else "moved": result.done, "targets": result.targets, "stayed": result.stayed,
    }
    if error is not None:
        answer["error"] = "the copies could not be flushed to disk; the originals are in their queue"
    elif result.fault is not None:
        answer["error"] = f"not all messages were looked at: {result.fault}"
    return json_answer(answer, 500 if "error" in answer else 200)


def _filter_of(wanted):
    texts = {}
    for key in ("exchange", "routing_key"):
        texts[key] = wanted.get(key)
        if texts[key] is not None and (not isinstance(texts[key], str) or len(texts[key]) > MAX_PATTERN):
            raise BadRequest(f"{key} must be a text of at most {MAX_PATTERN} characters")
    headers = wanted.get("headers", {})
    if not isinstance(headers, dict):
        raise BadRequest("headers must be an object")
    return Filter(texts["exchange"], texts["routing_key"], headers)
