"""/api/overview: shows totals and rates over the vhosts that the user may see."""
import sys

from flask import Blueprint, g

import gomq_py
from gomq_py.broker.exchanges.types import EXCHANGE_TYPES
from gomq_py.build_info import RABBITMQ_VERSION
from gomq_py.http import curves, shapes, statistics
from gomq_py.http.answers import json_answer, node, no_content
from gomq_py.http.entities import check_node_name, visible_vhosts
from gomq_py.http.login import ADMINISTRATOR, MANAGEMENT, MONITORING, access

blueprint = Blueprint("overview", __name__)
# RabbitMQ's three kinds of samples, which have one retention here.
RETENTION = ("global", "basic", "detailed")


@blueprint.get("/api/overview")
@access(MANAGEMENT)
def overview():
    """Return totals, rates, listeners and versions. Totals and rates are of the vhosts that the user sees."""
    curves.with_history()
    vhosts = visible_vhosts()
    sees_all = MONITORING in g.tags
    # Users who see all share one history, whichever vhosts come and go.
    view = curves.view(statistics.WHOLE, (None if sees_all else tuple(vhosts), node()))
    lengths, octets = len(statistics.LENGTH_NAMES), len(view.group.names) - len(statistics.OCTETS)
    churn = curves.view(statistics.NODE_CHURN, node()).put({}) if sees_all else {}
    settings = node().settings
    retention = settings.stats_interval * settings.stats_log_size // 1000
    return json_answer({
        "management_version": RABBITMQ_VERSION, "rabbitmq_version": RABBITMQ_VERSION,
        "product_name": "gomq-py",
        "product_version": gomq_py.__version__, "cluster_name": node().broker.cluster_name,
        "node": node().name, "rates_mode": "basic",
        "erlang_version": "0", "erlang_full_version": f"none: Python {sys.version.split()[0]}",
        "statistics_db_event_queue": 0,
        "disable_stats": False, "enable_queue_totals": True, "is_op_policy_updating_enabled": True,
        "release_series_support_status": "supported",
        "cluster_tags": {}, "node_tags": {}, "default_queue_type": "classic",
        "exchange_types": [
            {"name": name, "description": f"{name} exchange", "enabled": True}
            for name in sorted(EXCHANGE_TYPES)
        ],
        "object_totals": _object_totals(vhosts), "queue_totals": view.put({}, 0, lengths),
        "message_stats": view.put({}, lengths, octets), **view.put({}, octets),
        "churn_rates": churn, "listeners": shapes.listeners(), "contexts": shapes.contexts(),
        "sample_retention_policies": {name: [retention] for name in RETENTION},
    })


def _object_totals(vhosts):
    names = {vhost.name for vhost in vhosts}
    connections = [one for one in node().clients.all() if one.vhost.name in names]
    return {
        "channels": sum(len(one.channels) for one in connections), "connections": len(connections),
        "consumers": sum(
            len(channel.consumers) for one in connections for channel in list(one.channels.values())
        ),
        "exchanges": sum(len(vhost.exchanges) for vhost in vhosts),
        "queues": sum(len(vhost.queues) for vhost in vhosts),
    }


@blueprint.delete("/api/reset", defaults={"name": None})
@blueprint.delete("/api/reset/<name>")
@access(ADMINISTRATOR)
def reset(name):
    """Delete all rates and their history, which then begin anew. The counters stay."""
    check_node_name(name)
    node().rates.forget()
    return no_content()
