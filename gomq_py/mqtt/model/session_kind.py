"""Session kind: what there is to say of sessions and their queues before there is one.

Below sessions and session_queue. Whoever builds a broker registers the kind; what a session needs by itself,
compiled modules for the most part, is imported for the first one (session), or when the doors of MQTT are
opened: 1.3 MB.
"""
from gomq_py.broker.features import (
    consumer_timeout, deduplication, delivery_limit, queue_type, retry, stream_retention,
)
from gomq_py.broker.features.length import DROP_HEAD, MAX_BYTES_ARGUMENT, OVERFLOW_ARGUMENT
from gomq_py.broker.topology.kinds import QueueKind

TYPE = "mqtt"
# Under which a vhost keeps its Sessions.
EXTRA = "mqtt"
# Of names: those of sessions' queues, and of our exchange.
PREFIX = "mqtt."
# Of a vhost's own store: what is under way at QoS 2 (inflight).
INFLIGHT_STORE = "mqtt.inflight"
# What orders, keeps or hands out messages in ways that a session has not: it has one consumer, which gets
# them in order and as often as it takes.
_LEFT_OUT = frozenset(
    row.policy
    for module in (consumer_timeout, deduplication, delivery_limit, queue_type, retry, stream_retention)
    for row in module.ROWS if row.policy is not None
)


def kept_arguments(octets, overflow):
    """Arguments of a session's queue that bound what is kept for it; 0 octets: nothing does."""
    if not octets:
        return {}
    # A policy may say another overflow than the usual one, and an argument would come before it.
    return {MAX_BYTES_ARGUMENT: octets, **({} if overflow == DROP_HEAD else {OVERFLOW_ARGUMENT: overflow})}


def _make_queue(parts):
    from gomq_py.mqtt.model.session_queue import SessionQueue

    return SessionQueue(parts)


KIND = QueueKind(name=TYPE, make=_make_queue, is_state=True, left_out=_LEFT_OUT)
