"""Session kind: defines names and arguments of session queues, for modules that need no session."""
from gomq_py.broker.features.length import DROP_HEAD, MAX_BYTES_ARGUMENT, OVERFLOW_ARGUMENT

TYPE = "mqtt"
# Key of a vhost's Sessions in its extras.
EXTRA = "mqtt"
# Prefix of the names of session queues and of the MQTT exchange.
PREFIX = "mqtt."
# Name of the vhost's store of QoS 2 identifiers (qos2_records).
QOS2_STORE = "mqtt.inflight"


def kept_arguments(octets, overflow):
    """Return queue arguments for a limit of ``octets`` and an overflow behaviour; {} for 0 (no limit)."""
    if not octets:
        return {}
    # Explicit only if unusual: a policy may set another overflow, and an argument would override it.
    return {MAX_BYTES_ARGUMENT: octets, **({} if overflow == DROP_HEAD else {OVERFLOW_ARGUMENT: overflow})}
