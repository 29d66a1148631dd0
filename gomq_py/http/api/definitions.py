"""/api/definitions: exports and imports users, vhosts, queues etc. as JSON like RabbitMQ's and LavinMQ's."""
from collections import Counter, deque
from functools import partial
from urllib.parse import quote

from flask import Blueprint, request
from werkzeug.http import dump_options_header

from gomq_py.broker.exchanges.types import EXCHANGE_TYPES
from gomq_py.broker.topology.definitions import DefinitionsError, Importer, sections, sections_of_vhost
from gomq_py.http import foreign_pages
from gomq_py.http.answers import body_pieces, no_content, node, paced_answer, paths_in
from gomq_py.http.errors import BadRequest
from gomq_py.http.entities import find_vhost
from gomq_py.http.json_slices import NotJSON, TooLong, dumped, parsed
from gomq_py.http.login import ADMINISTRATOR, access, set_by
from gomq_py.hub.turns import paced
from gomq_py.diagnosis.difference import KEYS, Difference
from gomq_py.observability.garbage import held_while_making
from gomq_py.observability.log import logger

LOG = logger("http")
blueprint = Blueprint("definitions", __name__)
# Some hundred thousand queues with their bindings.
MAX_DEFINITIONS_OCTETS = 64 * 1024 * 1024
# Rows of a difference in one answer, which also has their number.
DIFFERENCES_SHOWN = 10_000
# Entries between two checks of the clock, for little work per entry.
LOOK = 100


@blueprint.get("/api/definitions")
@blueprint.get("/api/definitions/<vhost>")
@access(ADMINISTRATOR)
def get_definitions(vhost=None):
    """Return the definitions of one vhost or of the whole broker; only the keys in ``columns``, if given."""
    parts, paths = _present(vhost and find_vhost(vhost)), paths_in(request.args)
    answer = paced_answer(dumped(parts if paths is None else (part for part in parts if [part[0]] in paths)))
    name = "".join(filter(str.isprintable, request.args.get("download", "")))
    if name:
        options = {"filename": name} if name.isascii() else {"filename*": f"UTF-8''{quote(name, safe='')}"}
        answer.headers["Content-Disposition"] = dump_options_header("attachment", options)
    return answer


def _present(vhost):
    """Yield (key, value) of the present definitions of a VHost; None means the whole broker."""
    return sections(node().broker) if vhost is None else sections_of_vhost(vhost)


@blueprint.post("/api/definitions")
@blueprint.post("/api/definitions/upload")
@blueprint.post("/api/definitions/<vhost>")
@blueprint.post("/api/definitions/<vhost>/upload")
@access(ADMINISTRATOR, MAX_DEFINITIONS_OCTETS)
def post_definitions(vhost=None):
    """Import definitions into the broker, or into one vhost. Existing queues, exchanges and bindings stay as
    they are; users, permissions, policies and parameters of the same name are replaced.
    """
    there, events = vhost and find_vhost(vhost), node().broker.events
    actor = events.actor._replace(protocol=f"import by {events.actor.protocol}")
    try:
        with held_while_making():
            report = events.on_behalf_of(
                actor, partial(Importer(node().broker, there, set_by()).run, _parsed(), keep=False))
    except DefinitionsError as error:
        raise BadRequest(str(error)) from None
    for problem in paced(report.problems):
        LOG.warning("definitions: %s", problem)
    if request.args.get("report") == "true" or report.problems:
        lists = {
            key: value if isinstance(value, dict) else iter(value) for key, value in report.as_json().items()
        }
        return paced_answer(dumped(lists.items()))
    return no_content()


@blueprint.post("/api/definitions/difference")
@blueprint.post("/api/definitions/<vhost>/difference")
@access(ADMINISTRATOR, MAX_DEFINITIONS_OCTETS)
def compare_definitions(vhost=None):
    """Compare the definitions in the body with the broker, or with the vhost in the path: return what an
    import would create, replace, leave unchanged and refuse. Changes nothing.
    """
    here = _Here(vhost and find_vhost(vhost))
    with held_while_making():
        there = _parsed()
        if not isinstance(there, dict):
            raise BadRequest("definitions should be an object")
        for kind in KEYS:
            entries = there.get(kind) or ()
            if not isinstance(entries, (list, tuple)) or not all(
                isinstance(one, dict) for one in paced(entries, LOOK)
            ):
                raise BadRequest(f"{kind} should be a list of objects")
        counts: Counter = Counter()
        shown = []
        try:
            for row in Difference(here, there, set(EXCHANGE_TYPES), paced, vhost is None).rows():
                counts[row["action"]] += 1
                if len(shown) < DIFFERENCES_SHOWN:
                    shown.append(row)
        except (TypeError, AttributeError):
            raise BadRequest("a name, an argument or a tag is of no type that definitions have") from None
        finally:
            for kind in KEYS:
                entries = there.pop(kind, None) or []
                for _ in paced(range(len(entries)), LOOK):
                    entries.pop()  # freeing all at once takes 20 ms
    return paced_answer(dumped([("counts", dict(counts)), ("differences", iter(shown))]))


class _Here:
    # All kinds at once would be as large as an export.
    def __init__(self, vhost):
        self._vhost = vhost

    def get(self, kind, default=None):
        return next((entries for key, entries in _present(self._vhost) if key == kind), default)


def _parsed():
    """Return the JSON object in the body; {} for an empty body. Raises BadRequest, TooLarge, UnsupportedType.
    May switch greenlets.
    """
    foreign_pages.check_body(b"")  # not by ``curl -d``, as in RabbitMQ
    try:
        return parsed(body_pieces() or deque((b"{}",)))
    except NotJSON:
        raise BadRequest("failed_to_parse_json") from None
    except TooLong as error:
        raise BadRequest(f"failed_to_parse_json: {error}") from None
