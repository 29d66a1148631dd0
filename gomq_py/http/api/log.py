"""/api/log: shows the last lines of the broker's log, and streams new lines. Specific to gomq-py."""
from flask import Blueprint, request

from gomq_py.http import live
from gomq_py.http.answers import integer_of, json_answer, node
from gomq_py.http.api.changes import resumed_at
from gomq_py.http.login import ADMINISTRATOR, access

blueprint = Blueprint("log", __name__)
# Lines of an answer or at the start of a stream: default and maximum.
USUAL, MOST = 200, 1000
# Lines written at once to a stream.
TOLD_MAX = 200


@blueprint.get("/api/log")
@access(ADMINISTRATOR)
def show_log():
    """Return the newest lines of the log, at most ``last``. A client that accepts text/event-stream gets
    these lines, and then each new line. Passwords in the lines are hidden.
    """
    most = integer_of(request.args, "last", USUAL, 0, MOST)
    ring = node().log
    after = max(0, ring.last - most)
    if not live.is_wanted():
        return json_answer({"last": ring.last, "lines": [_shape(one) for one in ring.since(after)]})
    place = resumed_at()
    if place is not None and place <= ring.last:
        after = max(after, place) if most else place

    def tell():
        nonlocal after
        lines = ring.since(after)[:TOLD_MAX]
        if lines:
            after = lines[-1].number
            if after < ring.last:
                node_log_source.wake()
        return [(None, one.number, _shape(one)) for one in lines]

    node_log_source = node().log_source
    return live.answer(node_log_source, tell)


def _shape(line):
    return {
        "number": line.number, "at": line.at_ms, "level": line.level, "source": line.source,
        "message": line.message,
    }
