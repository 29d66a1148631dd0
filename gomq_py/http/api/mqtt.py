"""/api/mqtt: lists, shows and ends MQTT connections, sessions, subscriptions and retained messages.

Users see their own sessions or, with the tag monitoring, all; and retained messages that they may read.
"""
from flask import Blueprint, g, request

from gomq_py.http import shapes
from gomq_py.http.answers import integer_of, json_answer, no_content
from gomq_py.http.api.connections import close_connection, visible
from gomq_py.http.errors import NoSuchObject
from gomq_py.http.entities import caller, find_vhost, vhosts_named
from gomq_py.http.kinds import MQTT_CONNECTIONS, MQTT_SESSIONS, MQTT_SUBSCRIPTIONS
from gomq_py.http.login import MANAGEMENT, MONITORING, access
from gomq_py.http.paging import listing
from gomq_py.hub.turns import paced
from gomq_py.mqtt.model import administration

blueprint = Blueprint("mqtt", __name__)
MOST_TOPICS, USUAL_TOPICS = 1000, 100
# Topics searched for one page, including hidden ones.
TOPICS_LOOKED_AT = 2000
# Rows between two checks of the clock: some 0.5 us each.
LOOK = 100
# Octets of a payload that are shown: default and maximum.
SHOWN_OCTETS, MOST_OCTETS = 50_000, 1 << 20


def _sessions(vhosts):
    """Yield (session, VHost) of each MQTT session in ``vhosts`` that the user sees. May switch greenlets."""
    everybody = MONITORING in g.tags
    for vhost in vhosts:
        for session in paced(administration.sessions_of(vhost), LOOK):
            if everybody or session.owner == g.user.identity:
                yield session, vhost


def _subscriptions(sessions):
    """Yield (subscription, session, VHost) of ``sessions``, pairs (session, VHost). May switch greenlets."""
    for session, vhost in sessions:
        for subscription in paced(list(session.subscriptions.values()), LOOK):
            yield subscription, session, vhost


def _session(vhost_name, client_id):
    """Return (session, VHost). Raises NoSuchObject if there is no such session or the user may not see it."""
    vhost = find_vhost(vhost_name)
    session = administration.find_session(vhost, client_id)
    if MONITORING not in g.tags and session.owner != g.user.identity:
        raise NoSuchObject()
    return session, vhost


@blueprint.get("/api/mqtt/connections")
@blueprint.get("/api/mqtt/connections/<vhost>")
@access(MANAGEMENT)
def list_connections(vhost=None):
    """Return the MQTT connections that the user sees, in one vhost or in all."""
    if vhost is not None:
        find_vhost(vhost)
    found = [one for one in visible() if one.door == "mqtt" and vhost in (None, one.vhost.name)]
    return listing(found, MQTT_CONNECTIONS)


@blueprint.get("/api/mqtt/sessions")
@blueprint.get("/api/mqtt/sessions/<vhost>")
@access(MANAGEMENT)
def list_sessions(vhost=None):
    """Return the MQTT sessions that the user sees, connected or not, in one vhost or in all."""
    return listing(_sessions(vhosts_named(vhost)), MQTT_SESSIONS)


@blueprint.get("/api/mqtt/sessions/<vhost>/<client_id>")
@access(MANAGEMENT)
def get_session(vhost, client_id):
    """Return one MQTT session."""
    return json_answer(shapes.mqtt_session(*_session(vhost, client_id)))


@blueprint.delete("/api/mqtt/sessions/<vhost>/<client_id>")
@access(MANAGEMENT)
def delete_session(vhost, client_id):
    """End the session, drop its subscriptions and waiting messages, and inform its client if connected."""
    _session(vhost, client_id)
    administration.end_session(caller(vhost), client_id)
    return no_content()


@blueprint.delete("/api/mqtt/sessions/<vhost>/<client_id>/connection")
@access(MANAGEMENT)
def delete_session_connection(vhost, client_id):
    """Close the connection of the session's client and log the ``X-Reason``; a persistent session stays."""
    session, _ = _session(vhost, client_id)
    if session.connection is None:
        raise NoSuchObject()
    close_connection(session.connection)
    return no_content()


@blueprint.get("/api/mqtt/subscriptions")
@blueprint.get("/api/mqtt/subscriptions/<vhost>")
@blueprint.get("/api/mqtt/sessions/<vhost>/<client_id>/subscriptions")
@access(MANAGEMENT)
def list_subscriptions(vhost=None, client_id=None):
    """Return the MQTT subscriptions of one session, of one vhost, or of all that the user sees."""
    sessions = _sessions(vhosts_named(vhost)) if client_id is None else [_session(vhost, client_id)]
    return listing(_subscriptions(sessions), MQTT_SUBSCRIPTIONS)


@blueprint.delete("/api/mqtt/sessions/<vhost>/<client_id>/subscriptions/<topic_filter>")
@access(MANAGEMENT)
def delete_subscription(vhost, client_id, topic_filter):
    """Delete the subscription to a topic filter from the session."""
    _session(vhost, client_id)
    administration.unsubscribe(caller(vhost), client_id, topic_filter)
    return no_content()


@blueprint.get("/api/mqtt/retained/<vhost>")
@access(MANAGEMENT)
def list_retained(vhost):
    """Return a page of the topics that have a retained message, sorted, each with the size of its payload in
    bytes. The page has at most ``limit`` topics, those after the topic ``after``. ``next`` is the value of
    ``after`` for the next page, null on the last page.
    """
    most = integer_of(request.args, "limit", USUAL_TOPICS, 1, MOST_TOPICS)
    topics = administration.retained_topics(caller(vhost), request.args.get("after", ""))
    found, place = [], None
    for looked_at, (topic, octets) in enumerate(paced(topics), 1):
        if octets is not None:
            found.append({"topic": topic, "vhost": vhost, "payload_bytes": octets})
        if len(found) == most or looked_at == TOPICS_LOOKED_AT:
            place = topic
            break
    return json_answer({"topics": found, "next": place})


@blueprint.get("/api/mqtt/retained/<vhost>/<topic>")
@access(MANAGEMENT)
def get_retained(vhost, topic):
    """Return the message retained for the topic; its payload is cut to the query's ``truncate`` octets."""
    most = integer_of(request.args, "truncate", SHOWN_OCTETS, 0, MOST_OCTETS)
    return json_answer(_retained(administration.retained_message(caller(vhost), topic), topic, vhost, most))


@blueprint.delete("/api/mqtt/retained/<vhost>/<topic>")
@access(MANAGEMENT)
def delete_retained(vhost, topic):
    """Delete the message retained for the topic."""
    administration.delete_retained(caller(vhost), topic)
    return no_content()


def _retained(message, topic, vhost, most):
    described = message.describe()
    return {
        "topic": topic, "vhost": vhost, **shapes.content_shown(message, "auto", most),
        "timestamp": described["timestamp_ms"], "expires_at": described["expires_at_ms"] or None,
    }
