"""Session kind: what there is to say of sessions and their queues before there is one.

A leaf of mqtt.model, below sessions and session_queue; mqtt.model.kinds has what a broker registers.
"""
from gomq_py.broker.features.length import DROP_HEAD, MAX_BYTES_ARGUMENT, OVERFLOW_ARGUMENT

TYPE = "mqtt"
# Under which a vhost keeps its Sessions.
EXTRA = "mqtt"
# Of names: those of sessions' queues, and of our exchange.
PREFIX = "mqtt."
# Of a vhost's own store: what is under way at QoS 2 (inflight).
INFLIGHT_STORE = "mqtt.inflight"


def kept_arguments(octets, overflow):
    """Arguments of a session's queue that bound what is kept for it; 0 octets: nothing does."""
    if not octets:
        return {}
    # A policy may say another overflow than the usual one, and an argument would come before it.
    return {MAX_BYTES_ARGUMENT: octets, **({} if overflow == DROP_HEAD else {OVERFLOW_ARGUMENT: overflow})}
