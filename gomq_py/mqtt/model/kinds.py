"""Kinds: registers MQTT's kinds of queues, exchanges and stores with a broker.

Every process that builds a broker or reads its folder registers these kinds, even without MQTT listeners: an
earlier run may have left MQTT state. Modules that only sessions need (1.3 MB, mostly compiled) are imported
for the first session, or when MQTT's listeners open.
"""
from functools import partial

from gomq_py.broker.features import (
    consumer_timeout, deduplication, delivery_limit, queue_type, retry, stream_retention,
)
from gomq_py.broker.names import TOPIC_EXCHANGE
from gomq_py.broker.topology.kinds import Kinds, QueueKind
from gomq_py.mqtt.model import retained, wills
from gomq_py.mqtt.model.exchange import MQTTExchange
from gomq_py.mqtt.model.session_kind import EXTRA, PREFIX, QOS2_STORE, TYPE
from gomq_py.mqtt.model.sessions import Sessions
from gomq_py.mqtt.model.source import COMPONENT, SourceComponent

EXCHANGE = "mqtt.default"
# Features that order, keep or distribute messages: a session's queue has one consumer, which gets messages in
# order and as often as it takes.
_LEFT_OUT = frozenset(
    row.policy
    for module in (consumer_timeout, deduplication, delivery_limit, queue_type, retry, stream_retention)
    for row in module.ROWS if row.policy is not None
)


def all_kinds(source=TOPIC_EXCHANGE):
    """Return a new Kinds with MQTT's kinds. ``source`` names the exchange that clients publish to."""
    kinds = Kinds()
    register(kinds, source)
    return kinds


def register(kinds, source=TOPIC_EXCHANGE):
    """Add MQTT's kinds to a broker's Kinds. ``source`` names the exchange that clients publish to."""
    kinds.add_queue_kind(
        QueueKind(name=TYPE, make=_make_queue, is_state=True, left_out=_LEFT_OUT))
    kinds.add_exchange_type(MQTTExchange)
    kinds.reserve(PREFIX)
    kinds.predeclare(EXCHANGE, MQTTExchange.type, internal=True)
    kinds.add_store(retained.STORE, lambda vhost, store: vhost.extras[EXTRA].retained.recovered(store))
    kinds.add_store(wills.STORE, lambda vhost, store: vhost.extras[EXTRA].wills.recovered(store))
    kinds.add_store(QOS2_STORE, _qos2_records_opened)
    kinds.on_vhost(partial(_vhost_made, source), _vhost_gone)
    kinds.on_exchange(_exchange_added)
    kinds.add_component(COMPONENT, SourceComponent(source))


def _make_queue(parts):
    from gomq_py.mqtt.model.session_queue import SessionQueue

    return SessionQueue(parts)


def _vhost_made(source, vhost):
    exchange = vhost.exchange(EXCHANGE)
    exchange.retained = retained.Retained(vhost)
    sessions = vhost.extras[EXTRA] = Sessions(vhost, exchange, exchange.retained, wills.Wills(vhost))
    sessions.take_from(source)


def _vhost_gone(vhost):
    sessions = vhost.extras[EXTRA]
    sessions.retained.close()
    sessions.wills.close()


def _exchange_added(vhost, exchange):
    if EXTRA in vhost.extras:
        vhost.extras[EXTRA].exchange_added(exchange)


def _qos2_records_opened(vhost, store):
    sessions = vhost.extras[EXTRA]
    durable = [session for session in sessions.by_client.values() if session.is_durable and session.queue]
    sessions.qos2_records.recovered(store, durable)
