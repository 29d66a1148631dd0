"""/api/exchanges: lists, declares and deletes exchanges, publishes, and lists an exchange's bindings."""
import base64
import binascii
import struct
from functools import partial

from flask import Blueprint, request

from gomq_py.broker.envelope import envelope_of
from gomq_py.broker.verbs import exchanges
from gomq_py.broker.verbs.publishing import prepare, store_and_wait
from gomq_py.content.properties import Properties
from gomq_py.errors import AccessRefused, NoPermission
from gomq_py.http import curves, kinds, shapes
from gomq_py.http.answers import (
    body, boolean_of, check_node, decoded_arguments, json_answer, no_content, node, sliced, text_of,
)
from gomq_py.http.errors import BadRequest, Unavailable
from gomq_py.http.entities import (
    caller, exchange_to_publish_to, find_exchange, find_vhost, named, vhosts_named, writable_vhost,
)
from gomq_py.http.login import MANAGEMENT, access
from gomq_py.http.paging import listing

blueprint = Blueprint("exchanges", __name__)
# Largest message published by hand: larger ones need AMQP.
MAX_PUBLISH_OCTETS = 16 * 1024 * 1024


@blueprint.get("/api/exchanges")
@blueprint.get("/api/exchanges/<vhost>")
@access(MANAGEMENT)
def list_exchanges(vhost=None):
    """Return the exchanges of one vhost, or of all vhosts that the user sees."""
    found = (exchange for one in vhosts_named(vhost) for exchange in list(one.exchanges.values()))
    return listing(found, kinds.EXCHANGES)


@blueprint.get("/api/exchanges/<vhost>/<name>")
@access(MANAGEMENT)
def get_exchange(vhost, name):
    """Return one exchange."""
    curves.with_history()
    shape = shapes.exchange(find_exchange(vhost, name))
    shape["incoming"], shape["outgoing"] = [], []
    return json_answer(shape)


@blueprint.put("/api/exchanges/<vhost>/<name>")
@access(MANAGEMENT)
def put_exchange(vhost, name):
    """Declare the exchange: 201 if it is new, 204 if an equal one exists, 400 if a different one exists."""
    writable_vhost(vhost)
    wanted = body()
    arguments = decoded_arguments(wanted)
    check_node(wanted)
    declared = exchanges.declare(
        caller(vhost), name, text_of(wanted, "type", "direct"), boolean_of(wanted, "durable"),
        boolean_of(wanted, "auto_delete"), boolean_of(wanted, "internal"), arguments)
    return no_content(201 if declared.created else 204)


@blueprint.delete("/api/exchanges/<vhost>/<name>")
@access(MANAGEMENT)
def delete_exchange(vhost, name):
    """Delete the exchange; with ``?if-unused=true`` only if it has no bindings."""
    find_exchange(vhost, name)
    exchanges.delete(caller(vhost), name, if_unused=request.args.get("if-unused") == "true")
    return no_content()


@blueprint.get("/api/exchanges/<vhost>/<exchange:name>/bindings/source")
@access(MANAGEMENT)
def list_bindings_from(vhost, name):
    """Return the bindings that have the exchange as source; an empty list if it does not exist."""
    exchange = find_vhost(vhost).exchanges.get(named(name))
    if exchange is None:
        return listing([])
    if not exchange.name:
        return listing(find_vhost(vhost).queues.values(), kinds.DEFAULT_BINDINGS)
    return listing(sliced(exchange.bindings(), shapes.binding), kinds.BY_DESTINATION)


@blueprint.get("/api/exchanges/<vhost>/<exchange:name>/bindings/destination")
@access(MANAGEMENT)
def list_bindings_to(vhost, name):
    """Return the bindings that have the exchange as destination; an empty list if it does not exist."""
    there = find_vhost(vhost)
    exchange = there.exchanges.get(named(name))
    bindings = [] if exchange is None else sliced(list(there.bindings.to(exchange)), shapes.binding)
    return listing(bindings, kinds.BY_SOURCE)


@blueprint.post("/api/exchanges/<vhost>/<exchange:name>/publish")
@access(MANAGEMENT, MAX_PUBLISH_OCTETS)
def publish(vhost, name):
    """Publish one message to the exchange. ``routed`` says whether any queue has stored the message."""
    exchange, publisher, broker = exchange_to_publish_to(vhost, name), caller(vhost), node().broker
    wanted = body(required=("routing_key", "properties", "payload", "payload_encoding"))
    routing_key = text_of(wanted, "routing_key")
    if len(routing_key.encode("utf-8")) > 255:
        raise BadRequest("a routing key is at most 255 bytes")
    properties = wire_properties(wanted["properties"], publisher.vhost.tables)
    try:
        publication = prepare(
            publisher, exchange.name, routing_key, partial(envelope_of, properties), _payload(wanted),
            broker.scheduler.now_ms, mandatory=True)
    except NoPermission:
        raise
    except AccessRefused as error:
        # for an internal exchange RabbitMQ answers with its channel's error, as for a missing one
        raise BadRequest(f"ACCESS_REFUSED - {error.text}") from None
    if broker.alarms.reason is not None:
        raise Unavailable(f"publishers are held: {broker.alarms.reason}")
    return json_answer({"routed": store_and_wait(publisher, publication, broker.scheduler).somebody_took})


def _payload(wanted):
    text = text_of(wanted, "payload")
    if wanted["payload_encoding"] == "string":
        return text.encode()
    if wanted["payload_encoding"] == "base64":
        try:
            return base64.b64decode(text, validate=True)
        except (binascii.Error, ValueError):
            raise BadRequest("payload is not base64") from None
    raise BadRequest("payload_encoding must be string or base64")


def _is_octet(value):
    return type(value) is int and 0 <= value <= 255


def _is_short_text(value):
    return isinstance(value, str) and len(value.encode("utf-8", "surrogatepass")) <= 255


# Property: (check of a value, text about valid values)
PROPERTIES = {
    **dict.fromkeys(
        (
            "content_type", "content_encoding", "correlation_id", "reply_to", "expiration", "message_id",
            "type", "user_id", "app_id", "cluster_id",
        ), (_is_short_text, "a text of at most 255 bytes"),
    ),
    **dict.fromkeys(("delivery_mode", "priority"), (_is_octet, "a number from 0 to 255")),
    "timestamp": (lambda value: type(value) is int and 0 <= value < 1 << 63, "Unix seconds"),
    "headers": (lambda value: isinstance(value, dict), "an object"),
}


def wire_properties(given, limits):
    """Return the basic properties in the JSON object ``given`` as bytes for AMQP. Unknown properties are
    ignored. Raises BadRequest, or PreconditionFailed if they exceed ``limits`` (TableLimits).
    """
    if isinstance(given, list) and not given:
        given = {}  # PHP clients send this for an empty object
    if not isinstance(given, dict):
        raise BadRequest("properties must be an object")
    # Unknown properties are ignored, as in RabbitMQ: clients send back fields they got from elsewhere.
    given = {name: value for name, value in given.items() if name in PROPERTIES}
    if given.get("headers") == []:
        given["headers"] = {}  # as above
    for name, value in given.items():
        expected, what = PROPERTIES[name]
        if not expected(value):
            raise BadRequest(f"properties: {name} must be {what}")
    try:
        octets = Properties(**given).encode()
    except (TypeError, ValueError, AttributeError, struct.error) as error:
        raise BadRequest(f"properties: {error}") from None
    limits.check_table("headers", given.get("headers"))
    limits.check_properties(octets)
    return octets
