"""Session queue: the queue of what a client is to get, over connections and restarts.

A kind of queue for broker.topology.kinds. Management shows it among queues, limits and policies apply, expiry
and deletion end its session; messages are taken by the session's own connection alone.
"""
from gomq_py.broker.features import (
    consumer_timeout, deduplication, delivery_limit, queue_type, retry, stream_retention,
)
from gomq_py.broker.names import described
from gomq_py.broker.queues.queue import Queue
from gomq_py.broker.topology.kinds import QueueKind
from gomq_py.errors import AccessRefused

TYPE = "mqtt"
# Of names: those of sessions' queues, and of our exchange.
PREFIX = "mqtt."
# Under which a vhost keeps its Sessions.
EXTRA = "mqtt"


class SessionQueue(Queue):
    """``session`` is that of its client id, from when it is in place."""

    __slots__ = ("session",)

    def __init__(self, parts):
        Queue.__init__(
            self, parts.name, parts.vhost, parts.store, parts.scheduler, parts.durable, parts.owner,
            parts.auto_delete, parts.arguments)
        self.session = None

    def check_taking(self):
        raise AccessRefused(f"{described('queue', self.name, self.vhost)} belongs to an MQTT session")

    def on_added(self, vhost):
        vhost.extras[EXTRA].queue_added(self)

    def on_deleted(self, reason):
        if self.session is not None:
            self.session.queue_deleted(self, reason)


# What orders, keeps or hands out messages in ways that a session has not: it has one consumer, which gets
# them in order and as often as it takes.
_LEFT_OUT = frozenset(
    row.policy
    for module in (consumer_timeout, deduplication, delivery_limit, queue_type, retry, stream_retention)
    for row in module.ROWS if row.policy is not None
)
KIND = QueueKind(name=TYPE, make=SessionQueue, is_state=True, left_out=_LEFT_OUT)
