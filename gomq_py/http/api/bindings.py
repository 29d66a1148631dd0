"""/api/bindings: lists, creates and deletes bindings. A URL has source, destination and properties key."""
from urllib.parse import quote

from flask import Blueprint

from gomq_py.broker.topology.bindings import Binding, escaped
from gomq_py.broker.verbs import bindings
from gomq_py.broker.verbs.access import EXCHANGE, QUEUE
from gomq_py.http import kinds, shapes
from gomq_py.http.answers import body, decoded_arguments, json_answer, no_content, sliced
from gomq_py.http.errors import BadRequest, NoSuchObject
from gomq_py.http.entities import caller, find_vhost, named, there_is, vhosts_named, writable_vhost
from gomq_py.http.login import MANAGEMENT, access
from gomq_py.http.paging import listing

blueprint = Blueprint("bindings", __name__)
KINDS = {"q": QUEUE, "e": EXCHANGE}


@blueprint.get("/api/bindings")
@blueprint.get("/api/bindings/<vhost>")
@access(MANAGEMENT)
def list_bindings(vhost=None):
    """Return the bindings, also those to the default exchange, in one vhost or in all that the user sees."""
    found = []
    for one in vhosts_named(vhost):
        found += one.queues.values()  # each stands for its binding to the default exchange
        found += [binding for exchange in one.exchanges.values() for binding in exchange.bindings()]
    return listing(found, kinds.BINDINGS)


def ends(vhost, source, kind, destination):
    """Return (source exchange, destination) for the names in a binding's path. ``kind`` is "q" if the
    destination is a queue, "e" if it is an exchange. Raises NoSuchObject.
    """
    if kind not in KINDS:
        raise NoSuchObject()
    exchange = there_is("exchange", vhost.exchanges.get(named(source)), source, vhost.name)
    end = vhost.queues.get(destination) if kind == "q" else vhost.exchanges.get(named(destination))
    return exchange, there_is(KINDS[kind], end, destination, vhost.name)


def between(exchange, destination):
    return [one for one in exchange.bindings() if one.destination is destination]


@blueprint.get("/api/bindings/<vhost>/e/<exchange:source>/<kind>/<destination>")
@access(MANAGEMENT)
def list_between(vhost, source, kind, destination):
    """Return the bindings from an exchange to a destination; an empty list if one of them is missing."""
    there = find_vhost(vhost)
    if kind not in KINDS:
        raise NoSuchObject()
    exchange = there.exchanges.get(named(source))
    end = there.queues.get(destination) if kind == "q" else there.exchanges.get(named(destination))
    if exchange is None or end is None:
        return listing([])
    if not exchange.name:
        same = kind == "q"
        return listing([shapes.default_binding(end)] if same else [])
    return listing(sliced(between(exchange, end), shapes.binding), kinds.BY_KEY)


@blueprint.post("/api/bindings/<vhost>/e/<exchange:source>/<kind>/<destination>")
@access(MANAGEMENT)
def post_binding(vhost, source, kind, destination):
    """Create a binding. Answers 201 with the binding's ``Location``, even if the binding existed before."""
    exchange, end = ends(writable_vhost(vhost), source, kind, destination)
    wanted = body()
    routing_key = wanted.get("routing_key", wanted.get("routingKey", ""))
    if not isinstance(routing_key, str) or len(routing_key.encode()) > 255:
        raise BadRequest("routing_key must be a string of at most 255 bytes")
    arguments = decoded_arguments(wanted)
    bindings.bind(caller(vhost), KINDS[kind], end.name, exchange.name, routing_key, arguments)
    made = [
        one for one in between(exchange, end) if one.routing_key == routing_key and one.arguments == arguments
    ]
    key = made[0].properties_key if made else "~"
    # Relative to the request's path, as in RabbitMQ: clients parse it.
    return no_content(201, location=f"{quote(destination, safe='')}/{quote(key, safe='')}")


@blueprint.get("/api/bindings/<vhost>/e/<exchange:source>/<kind>/<destination>/<key>")
@access(MANAGEMENT)
def get_binding(vhost, source, kind, destination, key):
    """Return one binding from an exchange to a queue or another exchange."""
    return json_answer(kinds.BINDINGS.build(_find(find_vhost(vhost), source, kind, destination, key)))


@blueprint.delete("/api/bindings/<vhost>/e/<exchange:source>/<kind>/<destination>/<key>")
@access(MANAGEMENT)
def delete_binding(vhost, source, kind, destination, key):
    """Delete one binding from an exchange to a queue or another exchange."""
    one = _find(find_vhost(vhost), source, kind, destination, key)
    if isinstance(one, Binding):
        end, source, routing_key, arguments = (
            one.destination.name, one.source.name, one.routing_key, one.arguments
        )
    else:
        # the default exchange's binding, whose deletion is refused
        end, source, routing_key, arguments = one.name, "", one.name, {}
    bindings.unbind(caller(vhost), KINDS[kind], end, source, routing_key, arguments)
    return no_content()


def _find(vhost, source, kind, destination, key):
    """Return the Binding with this properties key or routing key; for a queue's implicit binding to the
    default exchange, return the queue. Raises NoSuchObject.
    """
    exchange, end = ends(vhost, source, kind, destination)
    if not exchange.name and kind == "q" and key in (end.name, escaped(end.name)):
        return end
    found = between(exchange, end)
    # The key is percent-encoded itself, and again as part of a path; clients differ in how much of that they
    # decode.
    for matches in (
        lambda one: key == one.properties_key, lambda one: quote(key, safe="") == one.properties_key,
        lambda one: key == one.routing_key,
    ):
        for one in filter(matches, found):
            return one
    raise NoSuchObject()
