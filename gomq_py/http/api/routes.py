"""/api/exchanges/…/route: shows where a message would go, and why. Specific to gomq-py."""
import time

from flask import Blueprint

from gomq_py.broker.envelope import envelope_of
from gomq_py.broker.exchanges.exchange import Exchange
from gomq_py.broker.topology.definitions import jsonable
from gomq_py.broker.verbs import exchanges
from gomq_py.http import shapes
from gomq_py.http.answers import body, json_answer, sliced, text_of
from gomq_py.http.api.exchanges import wire_properties
from gomq_py.http.errors import BadRequest
from gomq_py.http.entities import find_exchange, find_vhost
from gomq_py.http.login import MANAGEMENT, access

blueprint = Blueprint("routes", __name__)


@blueprint.post("/api/exchanges/<vhost>/<exchange:name>/route")
@access(MANAGEMENT)
def try_route(vhost, name):
    """Return where a message with this ``routing_key``, these ``headers`` and ``properties`` would go, step
    by step; publishes nothing. An exchange that chooses at random may choose otherwise the next time.
    """
    there, exchange = find_vhost(vhost), find_exchange(vhost, name)
    wanted = body(required=("routing_key",))
    key = text_of(wanted, "routing_key")
    if len(key.encode("utf-8", "surrogatepass")) > 255:
        raise BadRequest("a routing key is at most 255 bytes")
    properties = wanted.get("properties", {})
    if not isinstance(properties, dict):
        raise BadRequest("properties must be an object")
    if "headers" in wanted:
        properties = {**properties, "headers": wanted["headers"]}
    envelope = envelope_of(wire_properties(properties, there.tables), there.tables)
    found = exchanges.try_route(there, exchange, key, envelope, int(time.time() * 1000))
    steps = sliced(found.steps, lambda step: _step(there, step))
    ways = _ways(found.steps)
    matches = sliced(found.destinations, lambda one: _match(there, one, ways, found.due_ms))
    return json_answer({
        "matches": matches, "steps": steps, "unroutable": not found.destinations and not found.due_ms,
        "delayed": [{"exchange": one.name, "due": due_ms} for one, due_ms in found.due_ms.items()],
        "complete": found.is_whole,
    })


def _type(vhost, one):
    if isinstance(one, Exchange):
        return "exchange"
    return "queue" if vhost.queues.get(one.name) is one else "client"


def _step(vhost, step):
    shape = {
        "source": step.source.name, "source_type": _type(vhost, step.source),
        "destination": step.destination.name, "destination_type": _type(vhost, step.destination),
        "why": step.why, "routing_key": None, "arguments": {}, "properties_key": None,
    }
    if step.binding is not None:
        shape |= {
            "routing_key": step.binding.routing_key, "arguments": jsonable(step.binding.arguments),
            "properties_key": step.binding.properties_key,
        }
    return shape


def _ways(steps):
    first = {}
    for step in steps:
        first.setdefault(step.destination, step)
    return first


def _match(vhost, destination, ways, due_ms):
    kind = _type(vhost, destination)
    via = [ways[destination].source]
    while via[0] in ways and ways[via[0]].source not in via:
        via.insert(0, ways[via[0]].source)
    shape = {
        "destination": destination.name, "destination_type": kind, "why": ways[destination].why,
        "via": [one.name for one in via], "due": max((due_ms.get(one, 0) for one in via)) or None,
    }
    if kind == "queue":
        shape |= {
            "type": shapes.queue_kind(destination), "state": shapes.queue_state(destination),
            "messages": destination.ready_count + destination.unacked_count,
            "consumers": destination.consumer_count,
        }
    return shape
