"""/api/overview, /api/nodes, /api/health and the liveness test: how the broker as a whole is doing."""
import os
import resource
import sys

from flask import Blueprint

import gomq_py
from gomq_py.amqp.wire.properties import Properties
from gomq_py.broker.alarms import DISK, MEMORY
from gomq_py.broker.exchange_types import EXCHANGE_TYPES
from gomq_py.http import publishing, shapes
from gomq_py.http.answers import json_answer, node
from gomq_py.http.finding import find_vhost, visible_vhosts
from gomq_py.http.login import MANAGEMENT, MONITORING, access
from gomq_py.http.errors import NoSuchObject
from gomq_py.observability import resources

blueprint = Blueprint("overview", __name__)
# What tools that only know RabbitMQ take for its version: the release whose API this one speaks.
RABBITMQ_VERSION = "3.13.0"
PROTOCOLS = {"amqp": "amqp", "amqp091": "amqp", "amqp/ssl": "amqps", "amqps": "amqps", "http": "http", "https": "https", "mqtt": "mqtt"}


@blueprint.get("/api/overview")
@access(MANAGEMENT)
def overview():
    """Totals over the vhosts that the user sees."""
    vhosts = visible_vhosts()
    queues = [queue for vhost in vhosts for queue in vhost.queues.values()]
    ready, unacked = sum(queue.ready_count for queue in queues), sum(queue.unacked_count for queue in queues)
    connections = node().connections()
    rates = node().rates
    totals = {"messages": ready + unacked, "messages_ready": ready, "messages_unacknowledged": unacked}
    for name in list(totals):
        totals[f"{name}_details"] = shapes.details(rates.of(node(), name, totals[name]))
    return json_answer({
        "management_version": RABBITMQ_VERSION, "rabbitmq_version": RABBITMQ_VERSION, "product_name": "gomq-py",
        "product_version": gomq_py.__version__, "cluster_name": node().cluster_name, "node": node().name, "rates_mode": "basic",
        "erlang_version": "0", "erlang_full_version": f"none: Python {sys.version.split()[0]}", "statistics_db_event_queue": 0,
        "disable_stats": False, "enable_queue_totals": True, "is_op_policy_updating_enabled": True, "release_series_support_status": "supported",
        "cluster_tags": {}, "node_tags": {}, "default_queue_type": "classic",
        "exchange_types": [{"name": name, "description": f"{name} exchange", "enabled": True} for name in sorted(EXCHANGE_TYPES)],
        "object_totals": {
            "channels": sum(len(one.channels) for one in connections), "connections": len(connections),
            "consumers": sum(len(shapes.consumers_of(queue)) for queue in queues),
            "exchanges": sum(len(vhost.exchanges) for vhost in vhosts), "queues": len(queues),
        },
        "queue_totals": totals, "message_stats": _message_stats(queues), "churn_rates": {}, "listeners": listeners(),
        "contexts": [], "sample_retention_policies": {"global": [600], "basic": [600], "detailed": [600]},
    })


def _message_stats(queues):
    counters = {"publish": 0, "deliver": 0, "ack": 0, "redeliver": 0, "get": 0}
    for queue in queues:
        counters["publish"] += queue.published
        counters["deliver"] += queue.delivered
        counters["ack"] += queue.acked
        counters["redeliver"] += queue.requeued
        counters["get"] += queue.got
    counters["deliver_get"] = counters["deliver"] + counters["get"]
    stats = {}
    for name, count in counters.items():
        stats[name] = count
        stats[f"{name}_details"] = shapes.details(node().rates.of(node(), f"stats.{name}", count))
    return stats


def listeners():
    """Where the broker listens, in RabbitMQ's form."""
    shown = []
    for one in node().listeners():
        host, _, port = one.address.rpartition(":")
        shown.append({"node": node().name, "protocol": one.protocol, "ip_address": host.strip("[]"), "port": int(port) if port.isdigit() else 0,
                      "socket_opts": {}})
    return shown


def node_shape():
    """The one node there is."""
    usage = resource.getrusage(resource.RUSAGE_SELF)
    descriptors = len(os.listdir("/proc/self/fd"))
    alarms, watch = node().broker.alarms, node().broker.resource_watch
    uptime_ms = int(node().uptime_s() * 1000)
    connections = len(node().connections())
    return {
        "name": node().name, "type": "disc", "running": True, "os_pid": str(os.getpid()), "uptime": uptime_ms, "processors": os.cpu_count(),
        "rates_mode": "basic", "fd_used": descriptors, "fd_total": resource.getrlimit(resource.RLIMIT_NOFILE)[0],
        "sockets_used": connections, "sockets_total": resource.getrlimit(resource.RLIMIT_NOFILE)[0], "mem_used": resources.used_memory(),
        "mem_limit": watch.memory_limit, "mem_alarm": alarms.is_on(MEMORY), "disk_free": watch.free_disk, "disk_total": watch.total_disk,
        "disk_free_limit": watch.disk_limit, "disk_free_alarm": alarms.is_on(DISK),
        "proc_used": 1, "proc_total": 1, "run_queue": 0, "partitions": [], "being_drained": False,
        "cpu_user_time": usage.ru_utime, "cpu_sys_time": usage.ru_stime, "net_ticktime": 60, "db_dir": node().settings.data_dir,
        "log_files": [], "config_files": [], "enabled_plugins": [],
        "applications": [{"name": "gomq_py", "description": "gomq-py", "version": gomq_py.__version__}],
        "auth_mechanisms": [{"name": "PLAIN", "description": "", "enabled": True}, {"name": "AMQPLAIN", "description": "", "enabled": True}],
        "exchange_types": [{"name": name, "description": "", "enabled": True} for name in sorted(EXCHANGE_TYPES)],
        "contexts": [], "cluster_links": [],
    }


@blueprint.get("/api/nodes")
@access(MONITORING)
def list_nodes():
    """The nodes: one."""
    return json_answer([node_shape()])


@blueprint.get("/api/nodes/<name>")
@access(MONITORING)
def get_node(name):
    """The node of this name."""
    if name != node().name:
        raise NoSuchObject()
    return json_answer(node_shape())


@blueprint.get("/api/aliveness-test/<vhost>")
@access(MANAGEMENT)
def aliveness(vhost):
    """Declare a queue, publish to it and take the message out again."""
    there = find_vhost(vhost)
    queue, _ = there.declare_queue("aliveness-test", durable=False, auto_delete=False)
    publishing.publish(there, there.default_exchange, "aliveness-test", Properties(), b"test_message")
    taken = publishing.take(queue, 1, requeue=False, reject=False)
    return json_answer({"status": "ok" if taken else "failed"})


@blueprint.get("/api/health/checks/alarms", defaults={"place": "in the cluster"})
@blueprint.get("/api/health/checks/local-alarms", defaults={"place": "on the node"})
@blueprint.get("/api/healthchecks/node", defaults={"place": "on the node"})
@access(MANAGEMENT)
def health_of_alarms(place):
    """No alarm is on; 503 with those that are otherwise."""
    alarms = [{"node": node().name, "resource": resource} for resource in node().broker.alarms.resources]
    if alarms:
        return json_answer({"status": "failed", "reason": f"There are alarms in effect {place}", "alarms": alarms}, 503)
    return json_answer({"status": "ok"})


@blueprint.get("/api/health/checks/virtual-hosts")
@blueprint.get("/api/health/checks/node-is-mirror-sync-critical")
@blueprint.get("/api/health/checks/node-is-quorum-critical")
@blueprint.get("/api/health/checks/is-in-service")
@blueprint.get("/api/health/checks/ready-to-serve-clients")
@access(MANAGEMENT)
def health():
    """Every vhost's queues are open; 503 with the reason otherwise. An alarm is no reason: consumers are needed to end it."""
    closed = [queue.name for vhost in node().broker.vhosts.values() for queue in vhost.queues.values() if queue.closed]
    if closed:
        return json_answer({"status": "failed", "reason": "queues closed after a fault of their store", "queues": closed[:100]}, 503)
    return json_answer({"status": "ok"})


@blueprint.get("/api/health/checks/port-listener/<int:port>")
@access(MANAGEMENT)
def health_of_port(port):
    """Somebody listens on the port."""
    ports = sorted({one["port"] for one in listeners()})
    if port in ports:
        return json_answer({"status": "ok", "port": port})
    return json_answer({"status": "failed", "reason": "No active listener", "missing": port, "ports": ports}, 503)


@blueprint.get("/api/health/checks/protocol-listener/<protocol>")
@access(MANAGEMENT)
def health_of_protocol(protocol):
    """Somebody speaks the protocol."""
    protocols = sorted({one["protocol"] for one in listeners()})
    if PROTOCOLS.get(protocol, protocol) in protocols:
        return json_answer({"status": "ok", "protocol": protocol})
    return json_answer({"status": "failed", "reason": "No active listener", "missing": protocol, "protocols": protocols}, 503)
