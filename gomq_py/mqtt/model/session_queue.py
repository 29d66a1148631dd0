"""Session queue: keeps a session's messages over connections and restarts.

Only the session's connection consumes it. Management lists it, limits and policies apply, and its expiry or
deletion ends the session. Compiled, because it checks each published message.
"""
from gomq_py.broker.names import described
from gomq_py.broker.queues import queue as broker_queue
from gomq_py.errors import AccessRefused
from gomq_py.mqtt.model import interests as _interests  # noqa: F401  (its .pxd types the interests)
from gomq_py.mqtt.model import redistribution
from gomq_py.mqtt.model.exchange import MQTTExchange
from gomq_py.mqtt.model.session_kind import EXTRA
from gomq_py.mqtt.wire import crossing
from gomq_py.mqtt.wire.crossing import KIND
from gomq_py.storage.format import record


class SessionQueue(broker_queue.Queue):
    """The queue of an MQTT session. ``session`` is set when the queue is added."""

    __slots__ = ("session",)

    def __init__(self, parts):
        broker_queue.Queue.__init__(
            self, parts.name, parts.vhost, parts.store, parts.scheduler, parts.durable, parts.owner,
            parts.auto_delete, parts.arguments)
        self.session = None

    def publish(self, message):
        """Store a message, unless the session's own client published it and No Local excludes it."""
        if message.publisher is not None and message.publisher is self.session:
            return self._publish_own(message)
        if message.flags & crossing.OWN and message.kind == KIND:
            message.flags = message.flags & ~crossing.OWN  # the mark of another session
        return broker_queue.Queue.publish(self, message)

    def _publish_own(self, message):
        """Store a publish of the session's own client, with the flag OWN, unless No Local excludes it."""
        interests = self.session.interests
        at = message.routing_at + 1 + message.buffer[message.routing_at]
        own = interests.find(message.buffer, at + 1, message.buffer[at]).in_own()
        if not own.is_kept and not own.is_shared:
            return 1
        flags = message.flags
        message.flags = flags | crossing.OWN
        taken = broker_queue.Queue.publish(self, message)
        message.flags = flags
        return taken

    def may_go(self, message):
        """Return whether a message may be dropped: not after its delivery at QoS 2 began [MQTT-4.3.3-7]."""
        session = self.session
        return session is None or session.sent is None or not session.sent.is_owed(message)

    def spare(self, message):
        return self.session.sent.spare(message)

    def counted_bytes(self, message):
        """Return the approximate size in files of the ready messages and of ``message`` (or None)."""
        counted = self.store.ready_octets()
        if message is None:
            return counted
        return counted + record.size_of(
            message.routing_length, message.properties_length, message.body_length)

    def purge(self):
        count = broker_queue.Queue.purge(self)
        self.emptied()
        return count

    def purge_some(self, limit):
        count = broker_queue.Queue.purge_some(self, limit)
        self.emptied()
        return count

    def emptied(self):
        """Call ``emptied()`` of the consumers if no message is ready."""
        # One may wait to resend a message that was deleted.
        if self.ring is not None and self.ready_count == 0 and not self.is_opening():
            for consumer in self.ring.consumers:
                consumer.emptied()

    def check_taking(self):
        raise AccessRefused(f"{described('queue', self.name, self.vhost)} belongs to an MQTT session")

    def check_binding_from(self, source):
        if not isinstance(source, MQTTExchange):
            raise AccessRefused(
                f"cannot bind {described('queue', self.name, self.vhost)}, of an MQTT session, to "
                f"{described('exchange', source.name, self.vhost)}: its client gets what it has subscribed to"
            )

    def on_added(self, vhost):
        if self.durable and self.store is not None:
            # So that an identifier of QoS 2 and its message outlive a kill together (qos2_records).
            self.store.name_at_once()
        vhost.extras[EXTRA].queue_added(self)

    def fail(self, error):
        broker_queue.Queue.fail(self, error)
        if self.session is not None:
            self.session.queue_failed(self)

    def redistribution(self):
        return None if self.session is None else redistribution.of(self.session)

    def on_deleted(self, reason):
        if self.session is not None:
            self.session.queue_deleted(self, reason)
