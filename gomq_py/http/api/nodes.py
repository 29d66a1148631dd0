"""/api/nodes: shows the node's memory, file descriptors and disk, and collects garbage as in LavinMQ."""
import gc
import os
import resource

from flask import Blueprint

import gomq_py
from gomq_py.broker.exchanges.types import EXCHANGE_TYPES
from gomq_py.broker.signals import audit_log
from gomq_py.broker.signals.alarms import DISK, MEMORY
from gomq_py.http import curves, shapes, statistics
from gomq_py.http.answers import body, json_answer, no_content, node
from gomq_py.http.entities import check_node_name
from gomq_py.http.errors import BadRequest
from gomq_py.http.login import ADMINISTRATOR, MONITORING, access
from gomq_py.net.listener import BindError
from gomq_py.observability import resources
from gomq_py.observability.garbage import collect_everything

blueprint = Blueprint("nodes", __name__)
# RabbitMQ 4's purposes of memory, which rabbitmqadmin wants all.
MEMORY_PURPOSES = (
    "connection_readers", "connection_writers", "connection_channels", "connection_other", "queue_procs",
    "quorum_queue_procs", "quorum_queue_dlx_procs", "stream_queue_procs", "stream_queue_replica_reader_procs",
    "stream_queue_coordinator_procs", "plugins", "metadata_store", "other_proc", "metrics", "mgmt_db",
    "mnesia", "quorum_ets", "metadata_store_ets", "other_ets", "binary", "msg_index", "code", "atom",
    "other_system", "allocated_unused", "reserved_unallocated",
)


def node_shape():
    """Return this node as a JSON object, with its counters and their rates."""
    alarms, watch = node().broker.alarms, node().broker.resource_watch
    descriptors = resource.getrlimit(resource.RLIMIT_NOFILE)[0]
    shape = {
        "name": node().name, "type": "disc", "running": True, "os_pid": str(os.getpid()),
        "uptime": int(node().uptime_s() * 1000),
        "processors": os.cpu_count(), "rates_mode": "basic", "fd_total": descriptors,
        "sockets_total": descriptors,
        "mem_limit": watch.memory_limit, "mem_alarm": alarms.is_on(MEMORY), "mem_calculation_strategy": "rss",
        "disk_total": watch.total_disk, "disk_free_limit": watch.disk_limit,
        "disk_free_alarm": alarms.is_on(DISK), "proc_total": 1,
        "run_queue": 0, "partitions": [], "being_drained": False, "net_ticktime": 60,
        "db_dir": node().settings.data_dir,
        "log_files": [node().settings.log_file] if node().settings.log_file else ["<stderr>"],
        "config_files": [], "enabled_plugins": [],
        "applications": [{"name": "gomq_py", "description": "gomq-py", "version": gomq_py.__version__}],
        "auth_mechanisms": [
            {"name": name, "description": description, "enabled": True}
            for name, description in (
                ("PLAIN", "SASL PLAIN authentication mechanism"), ("AMQPLAIN", "QPid AMQPLAIN mechanism")
            )
        ],
        "followers": node().cluster_figures().get("followers", []),
        "exchange_types": [
            {"name": name, "description": f"{name} exchange", "enabled": True}
            for name in sorted(EXCHANGE_TYPES)
        ],
        "contexts": shapes.contexts(), "cluster_links": [],
        "gc_num": sum(one["collections"] for one in gc.get_stats()),
        "failed_jobs": dict(node().broker.scheduler.failed_jobs),
    }
    curves.view(statistics.THE_NODE, node()).put(shape)
    return curves.view(statistics.NODE_CHURN, node()).put(shape)


@blueprint.get("/api/nodes")
@access(MONITORING)
def list_nodes():
    """Return a list with one entry, this node."""
    curves.with_history()
    return json_answer([node_shape()])


@blueprint.get("/api/nodes/<name>")
@access(MONITORING)
def get_node(name):
    """Return this node; 404 for the name of another node."""
    curves.with_history()
    check_node_name(name)
    return json_answer(node_shape())


@blueprint.get("/api/nodes/<name>/memory")
@access(MONITORING)
def get_memory(name):
    """Return the memory that the node uses, in bytes. Of RabbitMQ's figures by purpose, all but
    ``other_system`` are 0; clients expect them.
    """
    check_node_name(name)
    used, resident = resources.used_memory(), resources.resident_memory()
    return json_answer({"memory": {
        **dict.fromkeys(MEMORY_PURPOSES, 0), "other_system": used,
        "strategy": "rss", "total": {"rss": resident, "allocated": used, "erlang": 0},
        "mapped_files": resident - used,
    }})


@blueprint.get("/api/nodes/gc_stats")
@access(ADMINISTRATOR)
def gc_stats():
    """Return statistics of Python's cycle collector, by generation."""
    return json_answer(
        [{"generation": generation, **stats} for generation, stats in enumerate(gc.get_stats())]
    )


@blueprint.post("/api/nodes/gc_collect", defaults={"name": None})
@blueprint.post("/api/nodes/<name>/gc_collect")
@access(ADMINISTRATOR)
def gc_collect(name):
    """Collect garbage in reference cycles, and return free memory to the operating system. The broker does
    nothing else meanwhile, for some milliseconds per 100 MB.
    """
    check_node_name(name)
    collect_everything()
    resources.give_memory_back()
    return no_content()


@blueprint.put("/api/listeners")
@access(ADMINISTRATOR)
def put_listeners():
    """Suspend the TCP ports of AMQP and MQTT if ``suspended`` is true, reopen them if it is false. Suspended
    ports refuse new clients until the next start; clients that are connected go on.
    """
    suspended = body(required=("suspended",))["suspended"]
    if not isinstance(suspended, bool):
        raise BadRequest("suspended is true or false")
    try:
        node().doors.suspend() if suspended else node().doors.resume()
    except BindError as error:
        raise BadRequest(f"still suspended: {error}") from None
    audit_log.LOG.info(
        "listeners of AMQP and MQTT %s by %s", "suspended" if suspended else "resumed",
        audit_log.told(node().broker.events.actor))
    return no_content()
