"""AMQP channel of the blocking client, with one Python method for each AMQP method. A method that the broker
answers waits for the answer. Deliveries and returned messages are kept in deques for the caller.
"""
from collections import deque
from collections.abc import Callable, Iterable
from typing import TYPE_CHECKING, Any, Protocol, Self

from gomq_py.amqp.wire.errors import UnexpectedFrame
from gomq_py.amqp.wire.frames import (
    FRAME_BODY, FRAME_HEADER, FRAME_METHOD, REPLY_SUCCESS, Method, content_frames, decode_header,
    method_frame,
)
from gomq_py.amqp.wire.methods import (
    BasicAck, BasicCancel, BasicCancelOk, BasicConsume, BasicConsumeOk, BasicDeliver, BasicGet, BasicGetEmpty,
    BasicGetOk, BasicNack, BasicPublish, BasicQos, BasicQosOk, BasicRecover, BasicRecoverAsync,
    BasicRecoverOk, BasicReject, BasicReturn, ChannelClose, ChannelCloseOk, ChannelFlow, ChannelFlowOk,
    ConfirmSelect, ConfirmSelectOk, ExchangeBind, ExchangeBindOk, ExchangeDeclare,
    ExchangeDeclareOk, ExchangeDelete, ExchangeDeleteOk, ExchangeUnbind, ExchangeUnbindOk, QueueBind,
    QueueBindOk, QueueDeclare, QueueDeclareOk, QueueDelete, QueueDeleteOk, QueuePurge, QueuePurgeOk,
    QueueUnbind, QueueUnbindOk, TxCommit, TxCommitOk, TxRollback, TxRollbackOk, TxSelect, TxSelectOk,
    decode_method,
)
from gomq_py.client.delivery import Delivery, Returned
from gomq_py.client.errors import ChannelClosed, ClientError, ClosedError, Timeout
from gomq_py.content.properties import Properties

if TYPE_CHECKING:
    from gomq_py.client.connection import Connection

    class Declared(Protocol):
        """The fields of queue.declare-ok."""

        queue: str
        message_count: int
        consumer_count: int

NO_PROPERTIES = b"\x00\x00"
_CARRYING_CONTENT = (BasicDeliver, BasicGetOk, BasicReturn)
# publish_many writes this much at once: few system calls, and a small share of a socket's buffer
_BATCH_OCTETS = 65536
# Most answers not taken yet: some hundred if many methods are sent before the first answer is awaited.
_ANSWERS_MOST = 1024


class _Incoming:
    """A message of which the method frame has arrived, and the last body frame has not."""

    __slots__ = ("method", "properties", "parts", "missing")

    def __init__(self, method: Any) -> None:
        self.method = method
        self.properties: bytes | None = None  # until the header frame arrives
        self.parts: list[bytes] = []
        self.missing = 0


class Channel:
    """An AMQP channel, opened by ``Connection.channel``.

    Any call that sends or waits may switch greenlets. It raises ChannelClosed or ConnectionClosed if the
    channel or the connection is closed, and Timeout if the broker does not answer.

    The caller must empty these deques: ``deliveries``, messages for consumers without a callback;
    ``returned``, messages that the broker returned; ``cancelled``, tags of consumers that the broker
    cancelled.
    """

    def __init__(self, connection: "Connection", channel_id: int) -> None:
        self.connection = connection
        self.id = channel_id
        self.error: ClosedError | None = None
        self.active = True  # False after the broker's channel.flow
        self.deliveries: deque[Delivery] = deque()
        self.returned: deque[Returned] = deque()
        self.cancelled: deque[str] = deque()
        self.consumers: dict[str, Callable[[Delivery], object] | None] = {}  # tag -> callback
        self.published = 0  # sequence number of the last publish in confirm mode
        self.confirming = False
        self.unconfirmed: dict[int, None] = {}  # sequence numbers in order, as keys: an ordered set
        self.nacked: list[int] = []  # sequence numbers refused since the last wait_for_confirms
        # listener(tag), instead of ``cancelled``; must not wait
        self.cancel_listener: Callable[[str], object] | None = None
        # listener(sequence numbers, refused), instead of ``nacked``; must not wait
        self.confirm_listener: Callable[[list[int], bool], object] | None = None
        self._replies: deque[Any] = deque()
        self._incoming: _Incoming | None = None  # the message being received

    def __enter__(self) -> Self:
        return self

    def __exit__(self, kind: type[BaseException] | None, *_: object) -> None:
        if self.error is None:
            try:
                self.close()
            except (ClientError, OSError):
                if kind is None:  # otherwise the block's error says more, and may end the greenlet
                    raise

    @property
    def closed(self) -> bool:
        """True if the channel has been closed, by either side; ``error`` is then the reason."""
        return self.error is not None

    # Life

    def close(self, reply_code: int = REPLY_SUCCESS, reply_text: str = "bye") -> None:
        """Close the channel and wait for the broker's answer. Does nothing if it is closed already."""
        if self.error is not None:
            return
        self.send(ChannelClose(reply_code=reply_code, reply_text=reply_text))
        # Answers to calls of greenlets that were killed may come first.
        while not isinstance(self.await_reply(object), ChannelCloseOk):
            pass
        self.error = ChannelClosed(0, "closed by this client")
        self.connection.forget(self)

    def flow(self, active: bool) -> bool:
        """Ask the broker to stop (``active`` False) or restart deliveries. Returns True if it delivers."""
        return self.call(ChannelFlow(active=active), ChannelFlowOk).active

    # Exchanges

    def exchange_declare(
        self, exchange: str, type: str = "direct", passive: bool = False, durable: bool = False,
        auto_delete: bool = False, internal: bool = False, arguments: dict[str, Any] | None = None,
    ) -> None:
        """Create an exchange or, if it exists, check its values. ``passive``: only check that it exists."""
        self.call(ExchangeDeclare(
            exchange=exchange, type=type, passive=passive, durable=durable, auto_delete=auto_delete,
            internal=internal, arguments=arguments or {},
        ), ExchangeDeclareOk)

    def exchange_delete(self, exchange: str, if_unused: bool = False) -> None:
        self.call(ExchangeDelete(exchange=exchange, if_unused=if_unused), ExchangeDeleteOk)

    def exchange_bind(
        self, destination: str, source: str, routing_key: str = "", arguments: dict[str, Any] | None = None,
    ) -> None:
        """Bind exchange ``destination`` to exchange ``source``, which then routes matching messages to it."""
        self.call(ExchangeBind(
            destination=destination, source=source, routing_key=routing_key, arguments=arguments or {},
        ), ExchangeBindOk)

    def exchange_unbind(
        self, destination: str, source: str, routing_key: str = "", arguments: dict[str, Any] | None = None,
    ) -> None:
        self.call(ExchangeUnbind(
            destination=destination, source=source, routing_key=routing_key, arguments=arguments or {},
        ), ExchangeUnbindOk)

    # Queues

    def queue_declare(
        self, queue: str = "", passive: bool = False, durable: bool = False, exclusive: bool = False,
        auto_delete: bool = False, arguments: dict[str, Any] | None = None,
    ) -> "Declared":
        """Create a queue, or check that the existing one has these values. Returns its name (``queue``; the
        broker chooses one if "" is given), ``message_count`` (ready messages) and ``consumer_count``.
        ``passive``: only check that the queue exists.
        """
        return self.call(QueueDeclare(
            queue=queue, passive=passive, durable=durable, exclusive=exclusive, auto_delete=auto_delete,
            arguments=arguments or {},
        ), QueueDeclareOk)

    def queue_bind(
        self, queue: str, exchange: str, routing_key: str = "", arguments: dict[str, Any] | None = None,
    ) -> None:
        """Bind ``queue`` to ``exchange``, which then routes matching messages to it."""
        self.call(QueueBind(
            queue=queue, exchange=exchange, routing_key=routing_key, arguments=arguments or {},
        ), QueueBindOk)

    def queue_unbind(
        self, queue: str, exchange: str, routing_key: str = "", arguments: dict[str, Any] | None = None,
    ) -> None:
        self.call(QueueUnbind(
            queue=queue, exchange=exchange, routing_key=routing_key, arguments=arguments or {},
        ), QueueUnbindOk)

    def queue_purge(self, queue: str) -> int:
        """Drop all ready messages of a queue. Returns their number."""
        return self.call(QueuePurge(queue=queue), QueuePurgeOk).message_count

    def queue_delete(self, queue: str, if_unused: bool = False, if_empty: bool = False) -> int:
        """Delete a queue and its messages. Returns the number of its ready messages. ``if_unused``,
        ``if_empty``: raise ChannelClosed instead if the queue has consumers or messages.
        """
        method = QueueDelete(queue=queue, if_unused=if_unused, if_empty=if_empty)
        return self.call(method, QueueDeleteOk).message_count

    # Publishing

    def publish(
        self, exchange: str, routing_key: str, body: bytes | str,
        properties: Properties | bytes | None = None, mandatory: bool = False, immediate: bool = False,
    ) -> int:
        """Publish a message without waiting for the confirm. Returns the message's sequence number in confirm
        mode, else 0. ``properties``: a Properties, encoded properties as bytes, or None. A str body is
        encoded as UTF-8.
        """
        frames = self.publish_frames(exchange, routing_key, body, properties, mandatory, immediate)
        number = self._number_publish()  # first: while a write waits, others publish, and confirms come
        self._write(frames)
        return number

    def publish_many(
        self, messages: Iterable[tuple[str, str, bytes | str, Properties | bytes | None]],
        mandatory: bool = False,
    ) -> int:
        """Publish each (exchange, routing_key, body, properties) of an iterable, in few large writes. Returns
        the last message's sequence number in confirm mode, else 0. Messages before an error are published.
        """
        batch, last = bytearray(), self.published
        try:
            for exchange, routing_key, body, properties in messages:
                batch += self.publish_frames(exchange, routing_key, body, properties, mandatory)
                last = self._number_publish()
                if len(batch) >= _BATCH_OCTETS:
                    full, batch = batch, bytearray()
                    self._write(bytes(full))
        finally:
            if batch:
                self._write(bytes(batch))
        return last

    def publish_frames(
        self, exchange: str, routing_key: str, body: bytes | str,
        properties: Properties | bytes | None = None, mandatory: bool = False, immediate: bool = False,
    ) -> bytes:
        """Return a publish's frames as bytes, unsent, for a caller that sends many publishes in one write."""
        if properties is None:
            properties = NO_PROPERTIES
        elif not isinstance(properties, (bytes, bytearray, memoryview)):
            properties = properties.encode()
        if isinstance(body, str):
            body = body.encode()
        method = BasicPublish(
            exchange=exchange, routing_key=routing_key, mandatory=mandatory, immediate=immediate)
        return method_frame(self.id, method) + content_frames(
            self.id, properties, body, self.connection.frame_max)

    def confirm_select(self) -> None:
        """Enter confirm mode: publishes are numbered from 1, and the broker confirms or refuses each."""
        self.call(ConfirmSelect(), ConfirmSelectOk)
        self.confirming = True

    def wait_for_confirms(self, timeout_s: float | None = None) -> bool:
        """Wait until the broker has confirmed or refused every publish. Returns True if it has refused none
        since the last call. Raises Timeout after ``timeout_s`` (None: the connection's ``timeout_s``).
        """
        self._wait(
            lambda: not self.unconfirmed, self.connection.timeout_s if timeout_s is None else timeout_s)
        refused = bool(self.nacked)
        self.nacked.clear()
        return not refused

    def tx_select(self) -> None:
        self.call(TxSelect(), TxSelectOk)

    def tx_commit(self) -> None:
        """Carry out the publishes and acknowledgements since the last commit or rollback."""
        self.call(TxCommit(), TxCommitOk)

    def tx_rollback(self) -> None:
        """Discard the publishes and acknowledgements since the last commit or rollback."""
        self.call(TxRollback(), TxRollbackOk)

    # Consuming

    def qos(self, prefetch_count: int = 0, prefetch_size: int = 0, global_: bool = False) -> None:
        """Limit the unacknowledged deliveries of each consumer started later or, with ``global_``, of the
        whole channel. ``prefetch_count``: the limit in messages. ``prefetch_size``: in bytes. 0: no limit.
        """
        method = BasicQos(prefetch_size=prefetch_size, prefetch_count=prefetch_count, global_=global_)
        self.call(method, BasicQosOk)

    def consume(
        self, queue: str, callback: Callable[[Delivery], object] | None = None, consumer_tag: str = "",
        no_ack: bool = False, exclusive: bool = False, no_local: bool = False,
        arguments: dict[str, Any] | None = None,
    ) -> str:
        """Start a consumer. Returns the consumer's tag. ``Connection.drain`` and ``take_ready`` call
        ``callback(delivery)`` for each delivery. Without a callback, ``next_delivery`` returns the
        deliveries.
        """
        method = BasicConsume(
            queue=queue, consumer_tag=consumer_tag, no_ack=no_ack, exclusive=exclusive, no_local=no_local,
            arguments=arguments or {},
        )
        tag = self.call(method, BasicConsumeOk).consumer_tag
        self.consumers[tag] = callback
        return tag

    def cancel(self, consumer_tag: str) -> None:
        """Cancel a consumer. Deliveries that have arrived already stay in ``deliveries``, unsettled."""
        self.call(BasicCancel(consumer_tag=consumer_tag), BasicCancelOk)
        self.consumers.pop(consumer_tag, None)

    def next_delivery(self, timeout_s: float | None = None) -> Delivery | None:
        """Wait for a delivery; None after ``timeout_s`` (None: no limit). For channels without callbacks."""
        try:
            self._wait(lambda: self.deliveries, timeout_s)
        except Timeout:
            return None
        return self.deliveries.popleft()

    def get(self, queue: str, no_ack: bool = False) -> Delivery | None:
        """Take one message from a queue by basic.get. Returns a Delivery, or None if the queue is empty."""
        reply = self.call(BasicGet(queue=queue, no_ack=no_ack), (Delivery, BasicGetEmpty))
        return reply if isinstance(reply, Delivery) else None

    def ack(self, delivery_tag: int = 0, multiple: bool = False) -> None:
        """Acknowledge a delivery. ``multiple``: all deliveries up to this delivery tag (0: all so far)."""
        self.send(BasicAck(delivery_tag=delivery_tag, multiple=multiple))

    def nack(self, delivery_tag: int = 0, multiple: bool = False, requeue: bool = True) -> None:
        """Refuse a delivery. ``multiple``: all deliveries up to this delivery tag (0: all so far).
        ``requeue`` False: the broker dead-letters or drops the message.
        """
        self.send(BasicNack(delivery_tag=delivery_tag, multiple=multiple, requeue=requeue))

    def reject(self, delivery_tag: int, requeue: bool = True) -> None:
        self.send(BasicReject(delivery_tag=delivery_tag, requeue=requeue))

    def recover(self, requeue: bool = True) -> None:
        """Ask the broker to requeue all unsettled deliveries of this channel, and wait for the answer."""
        self.call(BasicRecover(requeue=requeue), BasicRecoverOk)

    def recover_async(self, requeue: bool = True) -> None:
        """Ask the broker to requeue the channel's unsettled deliveries, without waiting for an answer."""
        self.send(BasicRecoverAsync(requeue=requeue))

    # Any method

    def send(self, method: Method) -> None:
        """Send any AMQP method on this channel, without waiting for an answer."""
        self._write(method_frame(self.id, method))

    def call(self, method: Method, expected: Any, timeout_s: float | None = None) -> Any:
        """Send any AMQP method, wait for the answer and return it. ``expected``: the answer's class, or a
        tuple of classes. Raises UnexpectedFrame for an answer of another class.
        """
        self.send(method)
        return self.await_reply(expected, timeout_s)

    def await_reply(self, expected: Any, timeout_s: float | None = None) -> Any:
        """Wait for the next answer on this channel and return it. Raises UnexpectedFrame unless it is an
        instance of ``expected``, a class or a tuple of classes.
        """
        self._wait(
            lambda: self._replies, self.connection.timeout_s if timeout_s is None else timeout_s,
            getattr(expected, "NAME", ""),
        )
        reply = self._replies.popleft()
        if not isinstance(reply, expected):
            name = getattr(reply, "NAME", "a message")
            raise UnexpectedFrame(f"{name} where an answer of another kind was expected")
        return reply

    # Called by the connection.

    def handle_frame(self, kind: int, payload: bytes) -> None:
        """Handle one received frame, of type ``kind``. Raises AMQPError or Malformed for protocol errors."""
        incoming = self._incoming
        if kind == FRAME_METHOD and incoming is None:
            method = decode_method(payload)
            if isinstance(method, _CARRYING_CONTENT):
                self._incoming = _Incoming(method)
            else:
                self._handle_method(method)
        elif kind == FRAME_HEADER and incoming is not None and incoming.properties is None:
            _, incoming.missing, incoming.properties = decode_header(payload)
            self._finish_content(incoming)
        elif kind == FRAME_BODY and incoming is not None and incoming.properties is not None:
            incoming.parts.append(payload)
            incoming.missing -= len(payload)
            if incoming.missing < 0:
                raise UnexpectedFrame(f"channel {self.id}: the body is longer than its header says")
            self._finish_content(incoming)
        else:
            raise UnexpectedFrame(f"frame of type {kind} on channel {self.id} out of order")

    def call_consumers(self) -> int:
        """Pass the received deliveries to the callbacks of their consumers. Returns the number of calls."""
        count = 0
        for _ in range(len(self.deliveries)):
            delivery = self.deliveries.popleft()
            callback = self.consumers.get(delivery.consumer_tag)
            if callback is None:
                self.deliveries.append(delivery)
            else:
                count += 1
                callback(delivery)
        return count

    def connection_ended(self, error: ClosedError) -> None:
        self.error = self.error or error

    # The rest is private.

    def _finish_content(self, incoming):
        if incoming.missing:
            return
        self._incoming = None
        method, properties = incoming.method, incoming.properties
        body = incoming.parts[0] if len(incoming.parts) == 1 else b"".join(incoming.parts)
        if isinstance(method, BasicReturn):
            self.returned.append(Returned(method, properties, body))
        else:
            inbox = self._replies if isinstance(method, BasicGetOk) else self.deliveries
            inbox.append(Delivery(self, method, properties, body))

    def _handle_method(self, method):
        handler = _HANDLERS.get(type(method))
        if handler is None:
            if len(self._replies) >= _ANSWERS_MOST:
                raise UnexpectedFrame(f"{method.NAME}, which nobody has asked for")
            self._replies.append(method)
        else:
            handler(self, method)

    def _confirmed(self, method):
        if not method.multiple:
            self.unconfirmed.pop(method.delivery_tag, None)
            tags = [method.delivery_tag]
        else:
            tags = []
            for tag in self.unconfirmed:
                if method.delivery_tag and tag > method.delivery_tag:
                    break
                tags.append(tag)
            for tag in tags:
                del self.unconfirmed[tag]
        refused = isinstance(method, BasicNack)
        if self.confirm_listener is not None:
            self.confirm_listener(tags, refused)
        elif refused:
            self.nacked += tags

    def _closed_by_broker(self, method):
        self.error = ChannelClosed(method.reply_code, method.reply_text, method.class_id, method.method_id)
        self.connection.send(method_frame(self.id, ChannelCloseOk()))
        self.connection.channel_failed(self)

    def _cancelled_by_broker(self, method):
        self.consumers.pop(method.consumer_tag, None)
        if self.cancel_listener is None:
            self.cancelled.append(method.consumer_tag)
        else:
            self.cancel_listener(method.consumer_tag)
        if not method.no_wait:
            self.send(BasicCancelOk(consumer_tag=method.consumer_tag))

    def _flow_asked(self, method):
        self.active = method.active
        self.send(ChannelFlowOk(active=method.active))

    def _number_publish(self):
        if not self.confirming:
            return 0
        self.published += 1
        self.unconfirmed[self.published] = None
        return self.published

    def _write(self, octets):
        if self.error is not None:
            self._raise()
        self.connection.send(octets)

    def _wait(self, predicate, timeout_s, what=""):
        self.connection.wait_for(lambda: predicate() or self.error is not None, timeout_s, what)
        if not predicate():
            self._raise()

    def _raise(self):
        self.connection.failure_told(self)
        assert self.error is not None
        raise self.error.again()


_HANDLERS = {
    BasicAck: Channel._confirmed,
    BasicNack: Channel._confirmed,
    ChannelClose: Channel._closed_by_broker,
    BasicCancel: Channel._cancelled_by_broker,
    ChannelFlow: Channel._flow_asked,
}
