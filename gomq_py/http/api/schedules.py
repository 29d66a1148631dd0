"""/api/schedules: lists, shows and deletes the schedules of delayed exchanges. Specific to gomq-py."""
from flask import Blueprint

from gomq_py.broker.exchanges import schedule as _schedule
from gomq_py.broker.verbs import schedules
from gomq_py.http.answers import json_answer, no_content, paced_list
from gomq_py.http.entities import caller, find_exchange, vhosts_named
from gomq_py.http.errors import NoSuchObject
from gomq_py.http.login import MANAGEMENT, access
from gomq_py.http.shapes import content_shown

blueprint = Blueprint("schedules", __name__)


@blueprint.get("/api/schedules")
@blueprint.get("/api/schedules/<vhost>")
@access(MANAGEMENT)
def list_schedules(vhost=None):
    """Return the schedules of exchanges that the user may read, in one vhost or in all that the user sees."""
    return paced_list(
        _shape(exchange, due_ms, message) for there in vhosts_named(vhost)
        for exchange in list(there.exchanges.values())
        for due_ms, message in schedules.shown(caller(there.name), exchange))


@blueprint.get("/api/schedules/<vhost>/<exchange>/<name>")
@access(MANAGEMENT)
def get_schedule(vhost, exchange, name):
    """Return one schedule with its message. Needs the permission read on the exchange."""
    found = _exchange(vhost, exchange)
    due_ms, message = schedules.show(caller(vhost), found, name)
    return json_answer({
        **_shape(found, due_ms, message), **content_shown(message, "auto", _schedule.MOST_OCTETS)})


@blueprint.delete("/api/schedules/<vhost>/<exchange>/<name>")
@access(MANAGEMENT)
def delete_schedule(vhost, exchange, name):
    """Delete a schedule. Needs the permission write on the exchange."""
    schedules.delete(caller(vhost), _exchange(vhost, exchange), name)
    return no_content()


def _exchange(vhost, name):
    exchange = find_exchange(vhost, name)
    if exchange.delayed_store is None:
        raise NoSuchObject()
    return exchange


def _shape(exchange, due_ms, message):
    return {
        "vhost": exchange.vhost, "exchange": exchange.name, **_schedule.of_message(message).described(),
        "next": due_ms, "routing_key": message.get_routing_key().decode("utf-8", "replace"),
        "payload_bytes": message.get_body_length(),
    }
