"""Direct reply-to: sends replies to a consumer of amq.rabbitmq.reply-to. The default exchange routes replies
by a name that the client's requests carry.

The vhost lists the consumer in its ``sinks``. A reply is written to the socket of the consumer's channel, and
stored nowhere.
"""
import os
from base64 import urlsafe_b64encode

from gomq_py.amqp.server.replies import message_frames
from gomq_py.amqp.server.topology import REPLY_TO
from gomq_py.amqp.wire.frames import HEADER_OVERHEAD
from gomq_py.amqp.wire.methods import BasicDeliver
from gomq_py.broker.routing.route import Destination
from gomq_py.errors import Malformed
from gomq_py.observability.log import logger

LOG = logger("amqp")


class ReplyConsumer(Destination):
    """Sends the messages published to its ``name`` straight to the client of ``channel``, as direct replies.
    ``name`` replaces reply_to in this channel's requests; its 128 random bits cannot be guessed.
    """

    __slots__ = ("channel", "tag", "_has_told")

    def __init__(self, channel, tag):
        super().__init__(f"{REPLY_TO}.{urlsafe_b64encode(os.urandom(16)).rstrip(b'=').decode()}")
        self.channel = channel
        self.tag = tag
        self._has_told = False

    def start(self):
        """Let the default exchange route messages with the routing key ``name`` to this consumer."""
        self.channel.vhost.sinks[self.name] = self

    def stop(self):
        """End the routing to this consumer; later replies are unroutable."""
        self.channel.vhost.sinks.pop(self.name, None)

    def publish(self, message):
        """Send a reply to the client and return 1; or drop the reply and return 0. A reply is dropped if the
        client is gone or does not read, or if the header is malformed or too large for a frame.
        """
        connection = self.channel.connection
        if connection.output.broken or connection.output.blocked or connection.scheduler.is_shut:
            # Unread answers must not pile up; RabbitMQ's pseudo-queue keeps no answers either.
            return 0
        try:
            properties = message.get_properties(connection.limits.frame_max - HEADER_OVERHEAD)
        except Malformed:
            return 0
        if len(properties) > connection.properties_max:
            self._tell_too_large(len(properties) + HEADER_OVERHEAD)
            return 0
        connection.output.write(message_frames(
            self.channel, BasicDeliver, message, properties, message.get_body(), consumer_tag=self.tag,
            delivery_tag=self.channel.unacked.skip(), redelivered=False))
        return 1

    def _tell_too_large(self, octets):
        if not self._has_told:
            self._has_told = True
            connection = self.channel.connection
            LOG.warning(
                "connection %s, channel %d: a direct reply is dropped, because its header of %d bytes is "
                "larger than the negotiated frame_max of %d; the next ones are not logged", connection.name,
                self.channel.id, octets, connection.limits.frame_max)
