"""The transport that reads streams by AMQP consumers.

It is for brokers that serve no segment files (RabbitMQ, LavinMQ), and slower than the other transports,
because the broker delivers every message. AMQP has no request for a stream's first and last offset, nor for
its identity. So two short consumers, one from ``first`` and one from ``last``, find the two offsets. The
checkpoint keeps a digest of the last message that was read. If the message at that offset has another digest
later, a different stream has the name.
"""
import hashlib
import time
from contextlib import contextmanager

from gomq_py.client.errors import ChannelClosed, ClientError
from gomq_py.errors import Malformed
from gomq_py.spark.amqp_door import ACCESS_REFUSED, NOT_FOUND, AmqpDoor
from gomq_py.spark.errors import GomqError, NoStream, Refused, Unreachable
from gomq_py.spark.transport import HEAD_BYTES, Segment, Shape

PAUSE_S = 0.2
# Unsettled messages of a consumer. Further ones wait in sockets, not in this process.
PREFETCH = 2000
# Time for a stream without a message count in RabbitMQ (3.10 counts none) to deliver a message.
QUIET_S = 1.0
# How often a waiting consumer checks whether the broker has ended it.
LOOK_EVERY_S = 0.5
# A stream is divided at multiples of this many offsets, and a message counts as that many bytes: brokers do
# not report sizes.
SEGMENT_ROWS = 100_000
ROW_BYTES = 1024
OFFSET_HEADER = "x-stream-offset"
_CLIENT = "gomq-py spark source"


class AmqpTransport:
    """Reads the streams of one vhost over one AMQP connection. A pickled copy opens its own connection."""

    def __init__(self, options, credentials):
        self._door = AmqpDoor(options, credentials)
        self._vhost = options["vhost"]
        self._timeout_s = options["timeoutSeconds"]
        self._retry_s = options["retrySeconds"]
        self._connection = None

    def __getstate__(self):
        return {**self.__dict__, "_connection": None}

    def close(self):
        if self._connection is not None:
            self._connection.abort()
            self._connection = None

    # queries

    def describe(self, name):
        """Return the Shape of a stream. Raises NoStream, Refused, Unreachable.

        AMQP does not show segments. The Shape has ranges of SEGMENT_ROWS offsets in their place, and
        estimated sizes.
        """
        first = self._retrying(lambda: self._first(name))
        last = None if first is None else self._retrying(lambda: self._last(name))
        if first is None or last is None:
            return Shape("", 0, 0, (), end_is_known=False)
        end = last + 1
        starts = [first, *range(first - first % SEGMENT_ROWS + SEGMENT_ROWS, end, SEGMENT_ROWS), end]
        parts = tuple(
            Segment(begin // SEGMENT_ROWS, begin, until, HEAD_BYTES + (until - begin) * ROW_BYTES, 0, 0)
            for begin, until in zip(starts, starts[1:], strict=False))
        return Shape("", first, end, parts)

    def mark(self, name, offset):
        """Return a digest of the message before this offset; "" if the stream does not have that message."""
        return self._retrying(lambda: self._mark(name, offset)) if offset > 0 else ""

    def deliveries(self, name, start):
        """Yield (offset, Delivery) of each message from offset ``start`` on, without end.

        Leaves out offsets that the stream does not have. Reconnects after a failure. Raises Unreachable after
        ``retrySeconds`` without a message; also NoStream, Refused.
        """
        at = start
        deadline = time.monotonic() + self._retry_s
        while True:
            try:
                with self._consuming(name, at, PREFETCH) as consumer:
                    while True:
                        for offset, delivery in consumer.next_ones(self._timeout_s):
                            if offset >= at:
                                at = offset + 1
                                yield offset, delivery
                        deadline = time.monotonic() + self._retry_s
            except (ClientError, OSError, Unreachable) as error:
                self._pause(deadline, error, name)

    # how queries are answered

    def _first(self, name):
        """Return the offset of the stream's first message, or None if the stream is empty."""
        with self._consuming(name, "first", 1) as consumer:
            ready = consumer.first_ones(self._timeout_s)
            return ready[0][0] if ready else None

    def _last(self, name):
        """Return the offset of the stream's last message, or None if the stream is empty."""
        with self._consuming(name, "last", PREFETCH) as consumer:
            ready = consumer.first_ones(self._timeout_s)
            while len(ready) >= PREFETCH // 2:  # the prefetch may have stopped it
                more = consumer.ready()
                if not more:
                    break
                ready = more
            return ready[-1][0] if ready else None

    def _mark(self, name, offset):
        with self._consuming(name, offset - 1, 1) as consumer:
            while True:
                for found, delivery in consumer.next_ones(self._timeout_s):
                    if found == offset - 1:
                        return digest(delivery)
                    if found >= offset:
                        return ""

    @contextmanager
    def _consuming(self, name, start, prefetch):
        """Context manager: yields a Consumer of the stream. Raises a GomqError if the broker refuses it."""
        channel = None
        try:
            if self._connection is None or self._connection.error is not None:
                self._connection = self._door.connect(_CLIENT)
            channel = self._connection.channel()
            yield Consumer(channel, name, start, prefetch)
        except ChannelClosed as error:
            raise self._refused(error, name) from None
        except NoStream:
            self.close()  # before anything was settled: requeues the messages
            raise self._no_stream(name) from None
        except (ClientError, OSError):
            self.close()
            raise
        finally:
            if channel is not None and self._connection is not None:
                self._end(channel)

    def _end(self, channel):
        try:
            channel.close()
        except (ClientError, OSError):
            self.close()

    def _no_stream(self, name):
        return NoStream(
            f"'{name}' in vhost '{self._vhost}' at {self._door.shown} is no stream, or was deleted while it "
            "was read")

    def _refused(self, error, name):
        called = f"stream '{name}' in vhost '{self._vhost}'"
        if error.reply_code == NOT_FOUND:
            return NoStream(f"there is no {called} at {self._door.shown}")
        if OFFSET_HEADER in error.reply_text:
            return self._no_stream(name)
        if error.reply_code == ACCESS_REFUSED:
            return Refused(
                f"user '{self._door.credentials.user}' may not read {called} at {self._door.shown} "
                f"({error}): give it read permission there")
        return GomqError(f"{called} at {self._door.shown} cannot be consumed: {error}")

    def _retrying(self, ask):
        deadline = time.monotonic() + self._retry_s
        while True:
            try:
                return ask()
            except (ClientError, OSError, Unreachable) as error:
                self._pause(deadline, error)

    def _pause(self, deadline, error, name=None):
        """Close the connection, and wait before the next attempt. Raises Unreachable after the deadline."""
        self.close()
        if time.monotonic() >= deadline:
            what = "" if name is None else f" (reading stream '{name}')"
            raise Unreachable(
                f"{self._door.shown} gives nothing, tried for {self._retry_s:g} s (option retrySeconds): "
                f"{error}{what}") from None
        time.sleep(PAUSE_S)


class Consumer:
    """Consumes a stream on its own channel. When half of the prefetch limit has been returned to the caller,
    the next call acknowledges these messages.
    """

    def __init__(self, channel, name, start, prefetch):
        self._channel = channel
        self._name = name
        self._tag = 0
        self._settle_from = max(1, prefetch // 2)
        self._given = 0
        self._offset = None
        channel.qos(prefetch_count=prefetch)
        channel.consume(name, arguments={OFFSET_HEADER: start})
        self._count = 0

    def ready(self):
        """Return [(offset, Delivery)] of the messages that the broker sends within one round trip."""
        # Those before the answer to a passive declare.
        self._settle()
        self._count = self._channel.queue_declare(self._name, passive=True).message_count
        return self._take()

    def first_ones(self, timeout_s):
        """Return [(offset, Delivery)] of the first messages, or [] if none arrive.

        Waits up to ``timeout_s`` if the broker says that the stream has messages. If it does not say so,
        waits up to QUIET_S for RabbitMQ, and not at all for other brokers.
        """
        ready = self.ready()
        if ready:
            return ready
        platform = str(self._channel.connection.server_properties.get("platform"))
        quiet_s = QUIET_S if platform.startswith("Erlang") else 0.0
        return self.next_ones(timeout_s if self._count else quiet_s, is_there=False)

    def next_ones(self, timeout_s, is_there=True):
        """Return [(offset, Delivery)] of the next messages, of which the first arrives within ``timeout_s``.

        If none arrives, raises Unreachable or, with ``is_there`` False, returns []. Raises NoStream if the
        broker has cancelled the consumer.
        """
        self._settle()
        deadline = time.monotonic() + timeout_s
        while not self._channel.deliveries:
            left = deadline - time.monotonic()
            if self._channel.cancelled:
                raise NoStream(self._name)
            if left <= 0:
                if is_there:
                    raise Unreachable(f"no message came for {timeout_s:g} s (option timeoutSeconds)")
                return []
            one = self._channel.next_delivery(min(left, LOOK_EVERY_S))
            if one is not None:
                self._channel.deliveries.appendleft(one)
        return self._take()

    def _take(self):
        found = []
        deliveries = self._channel.deliveries
        while deliveries:
            one = deliveries.popleft()
            self._tag = one.delivery_tag
            found.append((self._offset_of(one), one))
        self._given += len(found)
        return found

    def _offset_of(self, one):
        """Return the offset in the header, or else the previous offset + 1. Raises NoStream without both."""
        try:
            offset = (one.properties.headers or {}).get(OFFSET_HEADER)
        except Malformed:
            offset = None
        if not isinstance(offset, int):
            if self._offset is None:
                raise NoStream(self._name)
            offset = self._offset + 1
        self._offset = offset
        return offset

    def _settle(self):
        if self._given >= self._settle_from:
            self._channel.ack(self._tag, multiple=True)
            self._given = 0


def digest(delivery):
    """Return 16 hex digits of exchange, routing key and body, without properties: brokers may change them."""
    parts = [
        text.encode("utf-8", "surrogateescape") for text in (delivery.exchange, delivery.routing_key)
    ]
    found = hashlib.sha256(b"%d:%d:" % (len(parts[0]), len(parts[1])) + b"".join(parts))
    found.update(delivery.body)
    return found.hexdigest()[:16]
