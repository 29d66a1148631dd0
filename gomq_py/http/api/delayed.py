"""/api/delayed: shows messages that delayed exchanges keep until they are due. Specific to gomq-py."""
from flask import Blueprint, request

from gomq_py.broker.verbs import exchanges
from gomq_py.http.answers import integer_of, json_answer, paced_list
from gomq_py.http.errors import NoSuchObject
from gomq_py.http.entities import caller, find_exchange, vhosts_named
from gomq_py.http.login import MANAGEMENT, access
from gomq_py.http.shapes import content_shown, set_aside
from gomq_py.hub.turns import paced
from gomq_py.storage.message import Message

blueprint = Blueprint("delayed", __name__)
# Messages in one answer, the next due ones: finding so many in the heap takes 2 ms.
MOST, USUAL = 1000, 100
# Octets of a body that are shown: default and maximum.
USUAL_OCTETS, MOST_OCTETS = 1024, 64 * 1024
# Exchanges between two checks of the clock.
LOOK = 50


@blueprint.get("/api/delayed")
@blueprint.get("/api/delayed/<vhost>")
@access(MANAGEMENT)
def list_delayed(vhost=None):
    """Return the delayed exchanges of one vhost, or of all that the user sees. Each shows how many messages
    it holds, and when the next one is due.
    """
    return json_answer([
        _shape(one) for there in vhosts_named(vhost) for one in paced(list(there.exchanges.values()), LOOK)
        if one.delayed_store is not None
    ])


def _shape(exchange):
    store = exchange.delayed_store
    first = store.first(1)
    return {
        "vhost": exchange.vhost, "exchange": exchange.name, "messages": store.count,
        "next_due": first[0][0] if first else None, **set_aside(store.aside),
    }


@blueprint.get("/api/delayed/<vhost>/<name>")
@access(MANAGEMENT)
def list_delayed_messages(vhost, name):
    """Return the ``count`` messages of the exchange that are due next. ``due`` is the Unix time in
    milliseconds at which a message is sent on; bodies are cut to ``truncate`` octets. Needs the permission
    read on the exchange.
    """
    exchange = find_exchange(vhost, name)
    count = integer_of(request.args, "count", USUAL, 1, MOST)
    most = integer_of(request.args, "truncate", USUAL_OCTETS, 0, MOST_OCTETS)
    exchanges.to_look_at(caller(vhost), exchange.name)
    if exchange.delayed_store is None:
        raise NoSuchObject()
    return paced_list(_messages(exchange.delayed_store, count, most))


def _messages(store, count, most):
    message = Message()
    for due_ms, location in store.first(count):
        if store.show(location, message):
            yield {
                "due": due_ms, "timestamp": message.describe()["timestamp_ms"],
                "routing_key": message.get_routing_key().decode("utf-8", "replace"),
                **content_shown(message, "auto", most),
            }
