"""Publisher: publishes over a link for any number of threads.

Each message has a Future, which is done when the broker has confirmed the message. Messages that are
unconfirmed when the connection is lost are published again over the next connection, so they may arrive
twice. A message is not published again if the caller has cancelled its Future.
"""

from concurrent.futures import Future, InvalidStateError
from typing import TYPE_CHECKING, Any

from gomq_py.amqp.wire.frames import FRAME_OVERHEAD
from gomq_py.client.errors import (
    ChannelClosed, ClientError, Disconnected, NotConfirmed, Refused, Unroutable,
)
from gomq_py.content.properties import Properties

if TYPE_CHECKING:
    from gomq_py.client.connection import Connection

# Class, weight and size of the body stand before the properties in a header frame.
_HEADER_FRAME_OCTETS = FRAME_OVERHEAD + 12
# Largest message that a caller writes itself, without waiting for room in the socket.
_SERVED_OCTETS = 16384


class _Message:
    """A message that is not confirmed yet. ``arguments``: (exchange, routing key, body, properties)."""

    __slots__ = ("arguments", "mandatory", "future")

    def __init__(self, arguments: tuple[Any, ...], mandatory: bool) -> None:
        self.arguments, self.mandatory = arguments, mandatory
        self.future: Future[None] = Future()


class Publisher:
    """Publishes messages over ``link``, a Link that the owner sets. The link's callbacks must call ``up``,
    ``down``, ``channel_closed`` and ``end``.
    """

    def __init__(self) -> None:
        self.link: Any = None
        self._channel: Any = None
        self._unconfirmed: dict[int, _Message] = {}  # sequence number -> _Message
        self._waiting: list[_Message] = []  # messages that wait for a connection

    def publish(
        self, exchange: str, routing_key: str, body: bytes, properties: Properties | bytes | None = None,
        mandatory: bool = True, serve_s: float = 0.0,
    ) -> Future[None]:
        """Publish a message. Any thread may call this.

        Returns a Future. Its result is None after the confirm. Its errors are Refused, Unroutable,
        Disconnected and NotConfirmed, or for example ValueError if the message cannot be encoded.
        ``serve_s``: the seconds for which the calling thread may serve the connection itself
        (``Link.serve``), which saves thread switches. It must be 0 for a greenlet, and for a caller that will
        not wait for the Future.
        """
        message = _Message((exchange, routing_key, body, properties), mandatory)
        if serve_s and len(body) <= _SERVED_OCTETS:
            if self.link.serve(message.future, serve_s, self._send, message):
                return message.future
        try:
            self.link.post(self._send, message)
        except Disconnected as error:
            _end(message, error)
        return message.future

    @property
    def unconfirmed_count(self) -> int:
        """The number of messages without a confirm, including those that wait for a connection."""
        return len(self._unconfirmed) + len(self._waiting)

    # In the link's thread.

    def up(self, connection: "Connection") -> None:
        """Open a channel on the new connection, and publish all messages that wait for a connection."""
        self._open(connection)
        waiting, self._waiting = self._waiting, []
        for number, message in enumerate(waiting):
            try:
                self._send(message)
            except BaseException:
                self._waiting += waiting[number + 1:]
                raise

    def down(self) -> None:
        """Keep all unconfirmed messages, to publish them again over the next connection."""
        self._channel = None
        self._waiting = [*self._unconfirmed.values(), *self._waiting]
        self._unconfirmed = {}

    def channel_closed(self, connection: "Connection", error: ChannelClosed) -> bool:
        """If the closed channel was the publisher's, fail all messages sent on it with NotConfirmed, open
        another channel and return True. Otherwise return False.
        """
        # Any of them may have been the reason.
        if self._channel is None or not error.is_same(self._channel.error):
            return False
        broken, self._unconfirmed = self._unconfirmed, {}
        for message in broken.values():
            _end(message, NotConfirmed(f"the broker closed the channel before the confirm: {error}"))
        self._open(connection)
        return True

    def end(self, error: BaseException | None) -> None:
        """Fail all unconfirmed messages with Disconnected, because the link has ended."""
        self.down()
        waiting, self._waiting = self._waiting, []
        for message in waiting:
            _end(message, Disconnected(f"disconnected: {error or 'the link was closed'}"))

    def _open(self, connection):
        channel = connection.channel()
        channel.confirm_select()
        channel.confirm_listener = self._confirmed
        self._channel = channel

    def _send(self, message):
        if message.future.cancelled():
            return
        if self.link.has_ended:
            _end(message, Disconnected("disconnected: the link has ended"))
        elif self._channel is None:
            self._waiting.append(message)
        else:
            # The message is recorded before it is sent, to be published again if sending fails.
            self._unconfirmed[self._channel.published + 1] = message
            try:
                exchange, routing_key, body, properties = message.arguments
                properties = self._wire_form(properties)
                self._channel.publish(exchange, routing_key, body, properties, mandatory=message.mandatory)
            except (ClientError, OSError):
                raise  # the connection's fault
            except Exception as error:  # a header or key that cannot be encoded (one that contains itself)
                del self._unconfirmed[self._channel.published + 1]
                _end(message, error)

    def _wire_form(self, properties):
        """Return the encoded properties, or None. Raises ValueError if they are too large for a frame."""
        # The broker would close the connection, and again the next one, where the message is sent again.
        if properties is None:
            return None
        octets = properties if isinstance(properties, (bytes, bytearray, memoryview)) else properties.encode()
        frame_max = self._channel.connection.frame_max
        if frame_max and len(octets) > frame_max - _HEADER_FRAME_OCTETS:
            raise ValueError(
                f"properties and headers of {len(octets)} bytes do not fit into a frame of {frame_max}")
        return octets

    def _confirmed(self, numbers, refused):
        if not refused:
            self.link.worked()
        returned = self._channel.returned if self._channel is not None else None
        for number in numbers:
            message = self._unconfirmed.pop(number, None)
            if message is None:
                continue
            if refused:
                error = Refused("the broker refused the message")
            else:
                error = self._came_back(message, returned) if returned else None
            _end(message, error)

    def _came_back(self, message, returned):
        """If the broker has returned this message, remove it from ``returned`` and return an Unroutable."""
        exchange, routing_key, body, _ = message.arguments
        for each in returned:
            if (each.exchange, each.routing_key, each.body) == (exchange, routing_key, body):
                returned.remove(each)
                return Unroutable(
                    f"{each.reply_code} {each.reply_text}: exchange {exchange!r}, routing key {routing_key!r}"
                )
        return None


def _end(message, error):
    try:
        if error is None:
            message.future.set_result(None)
        else:
            message.future.set_exception(error)
    except InvalidStateError:
        pass  # the caller has cancelled it meanwhile
