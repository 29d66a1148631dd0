"""/metrics, /metrics/per-object, /metrics/detailed: answers Prometheus with the broker's metrics.

Needs a login on the management port, none on the metrics port.
"""
from itertools import chain

from flask import Blueprint, request
from prometheus_client.exposition import CONTENT_TYPE_PLAIN_0_0_4 as CONTENT_TYPE

from gomq_py.http.answers import node, paced_answer
from gomq_py.http.errors import BadRequest
from gomq_py.http.login import MONITORING, access
from gomq_py.http.exposition import rendered
from gomq_py.http.metrics import PREFIX, Families
from gomq_py.http.own_metrics import LinkFamilies, OwnFamilies

blueprint = Blueprint("metrics", __name__)
public = Blueprint("public_metrics", __name__)

# Characters of a prefix: LavinMQ's limit.
MAX_PREFIX = 20
# Families of /metrics/detailed, by RabbitMQ's names; the missing ones describe RabbitMQ's internals.
DETAILED = {
    "queue_coarse_metrics": Families.queue_coarse, "queue_metrics": Families.queue_details,
    "queue_consumer_count": Families.queue_consumers,
    "channel_metrics": Families.channels, "channel_queue_metrics": Families.channel_queue,
    "channel_exchange_metrics": Families.channel_exchange,
    "channel_queue_exchange_metrics": Families.queue_published,
    "queue_delivery_metrics": Families.queue_delivery,
    "exchange_metrics": Families.exchanges, "connection_coarse_metrics": Families.connection_octets,
    "connection_metrics": Families.connection_channels, "connection_churn_metrics": Families.churn,
    "auth_attempt_metrics": Families.auth,
    "node_coarse_metrics": Families.node_coarse, "node_metrics": Families.node_limits,
    "alarm_metrics": Families.alarms,
    "vhost_status": Families.vhost_status, "exchange_bindings": Families.exchange_bindings,
    "exchange_names": Families.exchange_names,
}
# Own families, without a name in RabbitMQ.
OWN = {
    "gomq_queue_ages": OwnFamilies.ages, "gomq_queue_returns": OwnFamilies.returns,
    "gomq_stream_consumer_lag": OwnFamilies.lags, "gomq_queue_set_aside": OwnFamilies.set_aside,
    "gomq_message_groups": OwnFamilies.groups, "gomq_schedules": OwnFamilies.schedules,
    "gomq_sync": OwnFamilies.sync, "gomq_damage": OwnFamilies.damage, "gomq_event_loop": OwnFamilies.loop,
}
OF_LINKS = {"gomq_shovels": LinkFamilies.shovels, "gomq_federation_links": LinkFamilies.federation}
OF_THE_NODE = (
    Families.identity, Families.churn, Families.node_coarse, Families.node_limits, Families.alarms,
    Families.auth, Families.counts,
)
PER_OBJECT = (
    Families.queue_coarse, Families.queue_details, Families.channel_queue, Families.queue_published,
    Families.channel_exchange, Families.channels, Families.connection_octets, Families.connection_channels,
    Families.exchanges,
)


def overview():
    """Return the broker's totals as metrics for Prometheus."""
    families = Families(node(), _prefix())
    return _answer(chain(
        _of_the_node(families), families.totals(), OwnFamilies(node()).overview(),
        LinkFamilies(node()).overview()))


def per_object():
    """Return the metrics of every queue, exchange, connection and channel, and the totals of the node."""
    families, own = Families(node(), _prefix(), "per-object"), OwnFamilies(node())
    links = LinkFamilies(node())
    return _answer(chain(
        _of_the_node(families), families.global_counters(),
        (family for part in PER_OBJECT for family in part(families)), own.overview(),
        own.per_object(), links.overview(), links.per_object()))


def detailed():
    """Return the metric families named by ``family``, for the vhosts named by ``vhost``, or else for all."""
    families, own = Families(node(), _prefix(), "detailed", inner="detailed_"), OwnFamilies(node())
    links = LinkFamilies(node())
    vhosts = request.args.getlist("vhost") or None
    wanted = dict.fromkeys(request.args.getlist("family"))
    return _answer(_once(chain(
        (family for name in wanted if name in DETAILED for family in DETAILED[name](families, vhosts)),
        (family for name in wanted if name in OWN for family in OWN[name](own, vhosts)),
        (family for name in wanted if name in OF_LINKS for family in OF_LINKS[name](links, vhosts)),
        families.identity())))


def _of_the_node(families):
    return (family for part in OF_THE_NODE for family in part(families))


def _once(families):
    # ``queue_metrics`` includes ``queue_consumer_count``.
    seen = set()
    for family in families:
        name = family[0].name if isinstance(family, tuple) else family.name
        if name not in seen:
            seen.add(name)
            yield family


def _prefix():
    prefix = request.args.get("prefix")
    if prefix is None:
        return PREFIX
    if len(prefix) > MAX_PREFIX or not prefix.replace("_", "a").isalnum() or not prefix.isascii():
        raise BadRequest(f"prefix must be at most {MAX_PREFIX} letters, digits and underscores")
    return f"{prefix}_"


def _answer(families):
    return paced_answer(rendered(families), CONTENT_TYPE)


for _path, _view in (
    ("/metrics", overview), ("/metrics/per-object", per_object), ("/metrics/detailed", detailed)
):
    blueprint.add_url_rule(_path, view_func=access(MONITORING)(_view))
    public.add_url_rule(_path, view_func=_view)
