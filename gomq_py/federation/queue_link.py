"""Queue links: let idle consumers of a queue here also get the messages of one upstream.

The link consumes while a consumer here is idle and no message is ready. When it pauses, up to ``prefetch``
messages may be in flight; these still come to the queue here. The link consumes with a priority below 0, so
that other consumers upstream come first. The other broker may have a queue link to the queue here, so two
queues may consume from each other.
"""
from gomq_py.broker.envelope import EXTRA_KEYS
from gomq_py.broker.exchanges.federation_upstream import RECEIVED_FROM
from gomq_py.broker.features.consumer_priority import PRIORITY
from gomq_py.client.errors import ChannelClosed
from gomq_py.content.fields import Int64
from gomq_py.federation.link import NOT_FOUND, FederationLink, with_received

LINK_PRIORITY = -1
VISITS = "visit-count"
# A signed 64-bit field, whose value comes from the sender.
VISITS_MOST = (1 << 63) - 1


class QueueLink(FederationLink):
    """A federation link that moves messages from a queue upstream to a queue here."""

    type = "queue"
    # Most messages taken in excess: between two queues that take from each other these go to and fro.
    prefetch = 100
    begins_paused = True  # until the queue reports an idle consumer

    # called by the supervisor

    def queue_had_turn(self, queue):
        """Called when the local queue has served its consumers: consume if one is idle, otherwise pause."""
        if queue.has_hungry():
            self._link.resume()
        else:
            self._link.pause()

    # called by the link

    def _source(self):
        return self._make_source(self._prepare, {PRIORITY: LINK_PRIORITY})

    def _target(self):
        return self._make_target("", self.name, self._edit)

    def _edit(self, properties, delivery):
        headers = properties.headers or {}
        passed = headers.get(RECEIVED_FROM)
        passed = passed if isinstance(passed, list) else []
        told = self._received_from()
        visits = 1
        for one in passed:
            if isinstance(one, dict) and all(one.get(key) == value for key, value in told.items()):
                # a message that was here before goes to and fro between consumers that come and go
                visits += one[VISITS] if isinstance(one.get(VISITS), int) else 1
                visits = min(visits, VISITS_MOST)
                passed = [each for each in passed if each is not one]
                break
        told.update({"redelivered": bool(delivery.redelivered), VISITS: Int64(visits)})
        # upstream has already routed by the keys of CC
        properties.headers = {
            **{"x-original-cc" if key == EXTRA_KEYS else key: value for key, value in headers.items()},
            "x-original-exchange": delivery.exchange, "x-original-routing-key": delivery.routing_key,
        }
        return with_received(properties, told, passed, self.upstream.trust_user_id)

    def _prepare(self, channel):
        """Declare the queue upstream if it is missing, with the properties of the queue here. Returns the
        queue's name. May switch greenlets. Raises ClientError, OSError.
        """
        name = self.upstream.queue
        try:
            channel.queue_declare(name, passive=True)
        except ChannelClosed as error:
            if error.reply_code != NOT_FOUND:
                raise
            here = self.vhost.queues.get(self.name)
            if here is None:
                raise OSError(f"queue '{self.name}' here has just gone") from None
            with channel.connection.channel() as another:
                another.queue_declare(
                    name, durable=bool(here.durable), auto_delete=bool(here.auto_delete),
                    arguments=here.arguments)
        return name
