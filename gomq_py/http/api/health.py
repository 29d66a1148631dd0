"""/api/health/checks, /api/healthchecks, /api/aliveness-test: answers load balancers and monitoring systems
with 200, or with 503 and a reason.
"""
import time

from flask import Blueprint

from gomq_py.broker.verbs.aliveness import is_alive
from gomq_py.diagnosis import clusters
from gomq_py.http import certificate, shapes
from gomq_py.http.answers import json_answer, node, number_in
from gomq_py.http.errors import BadRequest
from gomq_py.http.entities import caller, check_node_name, find_vhost
from gomq_py.http.login import MANAGEMENT, access

blueprint = Blueprint("health", __name__)
# For the metrics port, without a login: probes of an orchestrator have none.
public = Blueprint("public_health", __name__)
PROTOCOLS = {
    "amqp": "amqp", "amqp091": "amqp", "amqp0.9.1": "amqp", "amqp0-9-1": "amqp",
    "amqp/ssl": "amqps", "amqps": "amqps", "http": "http", "https": "https", "mqtt": "mqtt",
    "prometheus": "metrics", "http/prometheus": "metrics",
}
UNITS_S = {"days": 86400, "weeks": 7 * 86400, "months": 30 * 86400, "years": 365 * 86400}
OK = {"status": "ok"}


def failed(reason, **facts):
    """Return a response of status 503 with a JSON object that has the ``reason`` and the ``facts``."""
    return json_answer({"status": "failed", "reason": reason, **facts}, 503)


@blueprint.get("/api/aliveness-test/<vhost>")
@access(MANAGEMENT)
def aliveness(vhost):
    """Test the vhost: declare a queue, publish a message to it and get the message. 503 if that fails."""
    if is_alive(caller(vhost), node().broker.scheduler):
        return json_answer(OK)
    return failed("the message did not come back")


@blueprint.get("/api/health/checks/alarms")
@access(MANAGEMENT)
def health_of_alarms():
    """Check that no alarm is in effect; 503 if one is."""
    return _alarms("in the cluster")


@blueprint.get("/api/health/checks/local-alarms")
@blueprint.get("/api/healthchecks/node")
@blueprint.get("/api/healthchecks/node/<name>")
@access(MANAGEMENT)
def health_of_this_node(name=None):
    """Check that no alarm is in effect on this node; 503 if one is."""
    check_node_name(name)
    return _alarms("on the node")


def _alarms(place):
    alarms = [{"node": node().name, "resource": resource} for resource in node().broker.alarms.resources]
    return failed(f"There are alarms in effect {place}", alarms=alarms) if alarms else json_answer(OK)


@blueprint.get("/api/health/checks/virtual-hosts")
@blueprint.get("/api/health/checks/is-in-service")
@blueprint.get("/api/health/checks/ready-to-serve-clients")
@access(MANAGEMENT)
def health():
    """Check that the queues and the MQTT stores of every vhost are open; 503 if one is closed. An alarm does
    not fail this check, because consumers are needed to end an alarm.
    """
    vhosts = list(node().broker.vhosts.values())
    closed = [queue.name for vhost in vhosts for queue in list(vhost.queues.values()) if queue.closed]
    if closed:
        return failed("queues closed after a fault of their store", queues=closed[:100])
    stores = [name for vhost in vhosts for name in vhost.stores.closed()]
    return failed("stores closed after a fault", stores=stores[:100]) if stores else json_answer(OK)


@blueprint.get("/api/health/checks/node-is-mirror-sync-critical")
@blueprint.get("/api/health/checks/node-is-quorum-critical")
@access(MANAGEMENT)
def health_of_replicas():
    """Check that confirms go on if this node of a cluster stops; 503 if not. A single node passes."""
    return quorum_critical()


def quorum_critical():
    """Answer 503 if a stop of this node would stop the service or confirms, otherwise 200."""
    figures = node().cluster_figures()
    reason = clusters.why_critical(figures)
    if reason:
        return failed(reason)
    return json_answer(OK if len(figures.get("nodes", ())) > 1 else {**OK, "reason": "single node cluster"})


@blueprint.get("/api/health/checks/is-in-sync")
@access(MANAGEMENT)
def health_in_cluster():
    """Check that this node, if in an elected cluster, is in sync and has a leader; 503 if not."""
    return in_sync()


@public.get("/api/health/checks/is-in-sync")
def in_sync():
    """Check that this node, if in an elected cluster, is in sync and has a leader; 503 if not."""
    reason = clusters.why_not_in_sync(node().cluster_figures())
    return failed(reason) if reason else json_answer(OK)


@public.get("/api/health/checks/is-alive")
def alive():
    """Answer ok: the process and its event loop are alive."""
    return json_answer(OK)


@blueprint.get("/api/health/checks/metadata-store/initialized")
@blueprint.get("/api/health/checks/metadata-store/initialized/with-data")
@blueprint.get("/api/health/checks/below-node-connection-limit")
@blueprint.get("/api/health/checks/quorum-queues-without-elected-leaders/all-vhosts")
@blueprint.get("/api/health/checks/quorum-queues-without-elected-leaders/vhost/<vhost>")
@access(MANAGEMENT)
def health_by_answering(vhost=None):
    """Always answer ok: a broker that answers has its definitions, accepts connections, leads all queues."""
    if vhost is not None:
        find_vhost(vhost)
    return json_answer(OK)


@blueprint.get("/api/health/checks/port-listener/<port>")
@access(MANAGEMENT)
def health_of_port(port):
    """Check that the broker listens on the port; 503 if not."""
    number = number_in(port)
    if number is None or not 0 <= number <= 65535:
        raise BadRequest("Invalid port")
    ports = sorted({one["port"] for one in shapes.listeners()})
    if number in ports:
        return json_answer({**OK, "port": number})
    return failed("No active listener", missing=number, ports=ports)


@blueprint.get("/api/health/checks/protocol-listener/<path:protocol>")
@access(MANAGEMENT)
def health_of_protocol(protocol):
    """Check that the broker has a listener for the protocol; 503 if not."""
    protocol = protocol.replace("%2F", "/")
    protocols = sorted({one["protocol"] for one in shapes.listeners()})
    if PROTOCOLS.get(protocol.lower(), protocol) in protocols:
        return json_answer({**OK, "protocol": protocol})
    return failed("No active listener", missing=protocol, protocols=protocols)


@blueprint.get("/api/health/checks/certificate-expiration/<within>/<unit>")
@access(MANAGEMENT)
def health_of_certificates(within, unit):
    """503 if a TLS listener's certificate expires within this number of days, weeks, months or years."""
    number = number_in(within)
    if number is None or number < 0:
        raise BadRequest("Invalid expiration value.")
    if unit not in UNITS_S:
        raise BadRequest(f"Time unit not recognised. Supported units: {', '.join(UNITS_S)}.")
    until_s = time.time() + number * UNITS_S[unit]
    expired = [
        {
            "node": node().name, "protocol": one["protocol"], "ip": one["ip_address"], "port": one["port"],
            "not_after": ends_s,
        }
        for one, ends_s in certificates() if ends_s < until_s
    ]
    return failed("Certificates expiring", expired=expired) if expired else json_answer(OK)


def certificates():
    """Yield (TLS listener as JSON, expiry of its certificate in Unix seconds, or 0 if it cannot be read)."""
    path = node().settings.tls_cert
    if not path:
        return
    try:
        ends_s = certificate.end_s(path)
    except (OSError, ValueError):
        ends_s = 0  # the file is unreadable: a restart would fail
    for one in shapes.listeners():
        if one["protocol"] in ("amqps", "https", "mqtts"):
            yield one, ends_s
