"""/metrics, /metrics/per-object, /metrics/detailed: for Prometheus. On the management port for users, on a port of its own for everybody there."""
from itertools import chain

from flask import Blueprint, Response, request
from prometheus_client.exposition import CONTENT_TYPE_PLAIN_0_0_4 as CONTENT_TYPE

from gomq_py.http.answers import node
from gomq_py.http.errors import BadRequest
from gomq_py.http.login import MONITORING, access
from gomq_py.http.metrics import PREFIX, Families, rendered
from gomq_py.http.own_metrics import OwnFamilies

blueprint = Blueprint("metrics", __name__)
public = Blueprint("public_metrics", __name__)

# LavinMQ's bound.
MAX_PREFIX = 20
# Families of /metrics/detailed, by RabbitMQ's names.
DETAILED = {
    "queue_coarse_metrics": lambda families, vhosts: families.per_queue(vhosts),
    "queue_metrics": lambda families, vhosts: families.per_queue(vhosts),
    "queue_consumer_count": lambda families, vhosts: families.per_queue(vhosts),
    "exchange_metrics": lambda families, vhosts: families.per_exchange(vhosts),
    "connection_coarse_metrics": lambda families, vhosts: families.per_connection(),
    "connection_metrics": lambda families, vhosts: families.per_connection(),
    "channel_metrics": lambda families, vhosts: families.per_channel(),
}
# Our own, with what RabbitMQ has no names for.
OWN = {
    "gomq_queue_ages": OwnFamilies.ages, "gomq_queue_returns": OwnFamilies.returns, "gomq_stream_consumer_lag": OwnFamilies.lags,
    "gomq_sync": OwnFamilies.sync, "gomq_event_loop": OwnFamilies.loop,
}


def overview():
    """Totals."""
    return _answer(chain(Families(node(), _prefix()).overview(), OwnFamilies(node()).overview()))


def per_object():
    """Totals, and every queue, exchange, connection and channel."""
    families = Families(node(), _prefix())

    def everything():
        for family in families.overview():
            if not family.name.startswith(f"{_prefix()}queue_"):
                yield family
        for part in (families.per_queue(), families.per_exchange(), families.per_connection(), families.per_channel()):
            yield from part
        own = OwnFamilies(node())
        yield from own.overview()
        yield from own.per_object()

    return _answer(everything())


def detailed():
    """The families that are asked for, of the vhosts that are asked for."""
    families = Families(node(), f"{_prefix()}detailed_")
    vhosts = request.args.getlist("vhost") or None
    chosen = {DETAILED[name] for name in request.args.getlist("family") if name in DETAILED}
    own = [OWN[name] for name in dict.fromkeys(request.args.getlist("family")) if name in OWN]
    return _answer(chain(
        (part for choose in chosen for part in choose(families, vhosts)),
        (part for choose in own for part in choose(OwnFamilies(node()), vhosts))))


def _prefix():
    prefix = request.args.get("prefix")
    if prefix is None:
        return PREFIX
    if len(prefix) > MAX_PREFIX or not prefix.replace("_", "a").isalnum() or not prefix.isascii():
        raise BadRequest(f"prefix must be at most {MAX_PREFIX} letters, digits and underscores")
    return f"{prefix}_"


def _answer(families):
    return Response(rendered(families), content_type=CONTENT_TYPE)


for _path, _view in (("/metrics", overview), ("/metrics/per-object", per_object), ("/metrics/detailed", detailed)):
    blueprint.add_url_rule(_path, view_func=access(MONITORING)(_view))
    public.add_url_rule(_path, view_func=_view)
