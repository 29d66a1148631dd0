"""Stream consumer: the AMQP consumer of a stream, which writes messages to the output buffer when the stream
calls deliver().

An AMQPConsumer (delivery) with its own StreamReader, which knows each message's offset. Never switches
greenlets.
"""
from gomq_py import octets
from gomq_py.amqp.server import delivery as consumer_delivery
from gomq_py.amqp.wire import delivery
from gomq_py.broker.features.stream_offset import OFFSET
# its .pxd types objects of these modules
from gomq_py.broker.queues import stream_queue as _stream_queue  # noqa: F401
from gomq_py.broker.queues import stream_reader as _stream_reader  # noqa: F401
from gomq_py.content import forms
from gomq_py.observability.log import logger
from gomq_py.observability.quiet_log import QuietLog

BASIC = forms.BASIC  # so that its .pxd can type it
QUIET = QuietLog(logger("queue"))


class StreamConsumer(consumer_delivery.AMQPConsumer):
    """Delivers a stream's messages.

        start_at       the first position (broker.features.stream_offset)
        is_tracked     the stream stores the consumer's position under its tag
        wanted         a StreamFilter, or None
        most_octets    most bytes of unsettled bodies; 0: no limit; the last body may exceed it
    """

    __slots__ = ("stream", "reader", "start_at", "is_tracked", "wanted", "most_octets")

    def __init__(
        self, output, channel, queue, tag, start_at, is_tracked=False, wanted=None, most_octets=0, **options
    ):
        consumer_delivery.AMQPConsumer.__init__(self, output, channel, queue, tag, **options)
        self.stream = queue
        self.reader = None
        self.start_at = start_at
        self.is_tracked = is_tracked
        self.wanted = wanted
        self.most_octets = most_octets

    def stop(self):
        self._close()
        consumer_delivery.AMQPConsumer.stop(self)

    def cancel(self, reason):
        """Stop, and inform the client, because the stream has dropped this consumer."""
        self._close()
        consumer_delivery.AMQPConsumer.cancel(self, reason)

    def capacity(self):
        """Return how many messages may be sent now. The first call opens the reader at ``start_at``."""
        # A single active consumer gets this call when it becomes active.
        if self.reader is None and self.started:
            self.reader = self.stream.open_reader(
                self.start_at, self.tag if self.is_tracked else None, self.wanted, self.most_octets > 0
            )
        if self.most_octets and self.reader.octets_in_flight() >= self.most_octets:
            return 0
        return consumer_delivery.AMQPConsumer.capacity(self)

    def is_behind(self):
        """Return True if the stream has messages that this consumer's reader has not read."""
        return self.reader is not None and self.reader.is_behind()

    def _deliver_traced(self, limit):
        at = consumer_delivery.AMQPConsumer._deliver_traced(self, limit)
        return at + self.reader.forget_passed()

    def _show_next(self):
        return self.reader.next(self.message)

    def _headers_added(self):
        return {OFFSET: self.message.describe()["location"]}

    def _pass_over(self, error):
        QUIET.error(
            (self.stream.vhost, self.stream.name), "stream '%s' in vhost '%s': consumers do not get the "
            "message at offset %d: %s", self.stream.name, self.stream.vhost, self.message.location, error)
        self.reader.pass_over()

    def _deliver(self, limit):
        """Send up to ``limit`` messages. Returns the bytes written, plus a cost for messages filtered out."""
        reader = self.reader
        unacked = self.channel.unacked
        message = self.message
        buffers = self.output.buffers
        out = buffers.output_at
        room = self.capacity()
        if limit > room:
            limit = room
        room = buffers.output_octets
        prefix = octets.pointer(self.prefix)
        prefix_length = len(self.prefix)
        channel = self.channel.id
        now_s = self.stream.scheduler.now_ms // 1000
        most_octets = self.most_octets
        at = taken = 0
        try:
            while limit > 0 and reader.next(message):
                if message.kind != BASIC or message.properties_length > self.properties_max:
                    at = self._add_unusual(out, at, room)
                    if at < 0:
                        break
                else:
                    size = delivery.delivery_size(
                        prefix_length, message.routing_length,
                        message.properties_length + delivery.GROWTH_BYTES,
                        message.body_length, self.frame_max)
                    if at + size > room:
                        if at == 0:
                            return self._deliver_large(size)
                        break
                    at = self._write(out, at, prefix, prefix_length, channel)
                unacked.add(self.holder, reader.take(message.body_length), message.body_length, now_s)
                taken = at
                self.stream.note_delivered()
                limit -= 1
                if most_octets and reader.octets_in_flight() >= most_octets:
                    break
        finally:  # if the store fails at the next message, the messages taken before count all the same
            if taken:
                self.output.send_filled(taken)
        return taken + self._forget_apart() + reader.forget_passed()

    def _translated_size(self):
        """Return the most bytes that _write_translated() needs: frames, then a copy of the properties."""
        # Properties are translated there before they are copied into the header frame.
        return (
            consumer_delivery.AMQPConsumer._translated_size(self) + delivery.GROWTH_BYTES
            + delivery.translated_bound(self.form, self.message.properties_length, self.frame_max))

    def _write_translated(self, out, at, end):
        message = self.message
        properties_at = end - delivery.translated_bound(self.form, message.properties_length, self.frame_max)
        properties_end = delivery.write_properties(
            out, properties_at, self.form, message.buffer, message.routing_at, message.properties_at,
            message.properties_length, message.flags, self.frame_max - delivery.GROWTH_BYTES)
        if properties_end < 0:
            self._pass_over(forms.malformed(message.kind))
            return -1
        channel = self.channel.id
        at = delivery.write_delivery(
            out, at, channel, octets.pointer(self.prefix), len(self.prefix), self.channel.unacked.next_tag,
            False, message.buffer, message.routing_at, message.routing_length)
        end = delivery.write_stream_content(
            out, at, channel, out, properties_at, properties_end - properties_at, 0, 0, self.frame_max,
            message.location)
        octets.put_be64(out, at + 11, message.body_length)
        return delivery.write_body(
            out, end, channel, message.buffer, message.body_at, message.body_length, self.frame_max)

    def _write(self, out, at, prefix, prefix_length, channel):
        message = self.message
        at = delivery.write_delivery(
            out, at, channel, prefix, prefix_length, self.channel.unacked.next_tag, False, message.buffer,
            message.routing_at,
            message.routing_length)
        return delivery.write_stream_content(
            out, at, channel, message.buffer, message.properties_at, message.properties_length,
            message.body_at, message.body_length,
            self.frame_max, message.location)

    def _deliver_large(self, size):
        """Deliver ``message``, larger than the output buffer. Returns the number of bytes sent or skipped."""
        if not self.admits_large(size):
            return 0
        data = bytearray(size)
        out = octets.pointer(data)
        if self.message.kind == BASIC:
            size = self._write(out, 0, octets.pointer(self.prefix), len(self.prefix), self.channel.id)
        else:
            size = self._write_translated(out, 0, size)
            if size < 0:
                return 0
        del data[size:]
        body_length = self.message.body_length
        self.channel.unacked.add(
            self.holder, self.reader.take(body_length), body_length, self.stream.scheduler.now_ms // 1000
        )
        self.stream.note_delivered()
        self.output.write(data)
        self.wrote_large(size)
        return size + self.reader.forget_passed()

    def _close(self):
        if self.reader is not None:
            self.stream.close_reader(self.reader)
