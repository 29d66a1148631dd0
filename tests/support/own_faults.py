"""What a close says of the broker itself: 541 is a fault of ours, unless a method is refused that only a
broker sends.

Above wire_encoding, like which it imports nothing of gomq_py.
"""
from tests.support.wire_encoding import METHODS, decode_method

INTERNAL_ERROR = 541
UNIMPLEMENTED = "INTERNAL_ERROR - unimplemented method"
# On channels; basic.deliver, return and get-ok bring content.
FROM_BROKER = (
    "channel.open-ok", "channel.flow-ok", "exchange.declare-ok", "exchange.delete-ok", "exchange.bind-ok",
    "exchange.unbind-ok", "queue.declare-ok", "queue.bind-ok", "queue.purge-ok", "queue.delete-ok",
    "queue.unbind-ok", "basic.qos-ok", "basic.consume-ok", "basic.cancel-ok", "basic.return",
    "basic.deliver", "basic.get-ok", "basic.get-empty", "basic.recover-ok", "confirm.select-ok",
    "tx.select-ok", "tx.commit-ok", "tx.rollback-ok", "access.request-ok",
)
# a client's close-ok is such a method where no close was sent
_REFUSED = frozenset(METHODS[name][:2] for name in (*FROM_BROKER, "channel.close-ok"))


def own_fault(payload):
    """The decoded method, if its payload is a close that tells of a fault of the broker's own; else None."""
    method = decode_method(payload)
    if method.name not in ("connection.close", "channel.close") or method.reply_code != INTERNAL_ERROR:
        return None
    refuses = method.name == "connection.close" and method.reply_text == UNIMPLEMENTED
    if refuses and (method.failing_class, method.failing_method) in _REFUSED:
        return None
    return method
