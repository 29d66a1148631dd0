"""Messages that an AMQP client receives: for a consumer, by basic.get, or returned by the broker."""
from typing import TYPE_CHECKING, Any

from gomq_py.content.properties import Properties

if TYPE_CHECKING:
    from gomq_py.client.channel import Channel


class Message:
    """A received message. ``raw_properties``: its encoded properties, which ``properties`` decodes."""

    __slots__ = ("exchange", "routing_key", "raw_properties", "body", "_properties")

    def __init__(self, exchange: str, routing_key: str, raw_properties: bytes, body: bytes) -> None:
        self.exchange = exchange
        self.routing_key = routing_key
        self.raw_properties = raw_properties
        self.body = body
        self._properties: Properties | None = None

    @property
    def properties(self) -> Properties:
        """The decoded properties. Raises Malformed if the broker has sent malformed properties."""
        if self._properties is None:
            self._properties = Properties.decode(self.raw_properties)
        return self._properties


class Delivery(Message):
    """A message from a queue. The receiver must settle it on the same channel, unless ``no_ack`` was set.

    A message received by basic.get has ``message_count``, the number of messages left in the queue, and its
    ``consumer_tag`` is "". For other messages ``message_count`` is None.
    """

    __slots__ = ("channel", "delivery_tag", "redelivered", "consumer_tag", "message_count")

    def __init__(self, channel: "Channel", method: Any, raw_properties: bytes, body: bytes) -> None:
        super().__init__(method.exchange, method.routing_key, raw_properties, body)
        self.channel = channel
        self.delivery_tag: int = method.delivery_tag
        self.redelivered: bool = method.redelivered
        self.consumer_tag: str = getattr(method, "consumer_tag", "")
        self.message_count: int | None = getattr(method, "message_count", None)

    def ack(self, multiple: bool = False) -> None:
        """Acknowledge this delivery. ``multiple``: also every earlier unsettled delivery of the channel."""
        self.channel.ack(self.delivery_tag, multiple)

    def nack(self, multiple: bool = False, requeue: bool = True) -> None:
        """Refuse this delivery or, with ``multiple``, also every earlier unsettled delivery of the channel.
        The messages are requeued or, without ``requeue``, dead-lettered or dropped.
        """
        self.channel.nack(self.delivery_tag, multiple, requeue)

    def reject(self, requeue: bool = True) -> None:
        """Refuse only this delivery, by basic.reject."""
        self.channel.reject(self.delivery_tag, requeue)

    def __repr__(self) -> str:
        return (
            f"<Delivery {self.delivery_tag} of {len(self.body)} bytes from {self.exchange!r} with key "
            f"{self.routing_key!r}>"
        )


class Returned(Message):
    """A mandatory or immediate message that the broker returned, with the broker's reply code and text."""

    __slots__ = ("reply_code", "reply_text")

    def __init__(self, method: Any, raw_properties: bytes, body: bytes) -> None:
        super().__init__(method.exchange, method.routing_key, raw_properties, body)
        self.reply_code: int = method.reply_code
        self.reply_text: str = method.reply_text
