"""Delivery: the AMQP consumer, which writes messages to the output buffer when its queue calls deliver().

Never waits for the socket: while the client's output is blocked, the capacity is 0. Never switches greenlets.
"""
from gomq_py import octets
from gomq_py.amqp.server.body_delivery import OCTETS_PER_MS, FileDelivery, MemoryDelivery
from gomq_py.amqp.wire import delivery
from gomq_py.broker.queues import consumers, queue as broker_queue
from gomq_py.content import forms
from gomq_py.errors import Malformed
from gomq_py.hub.backpressure import Turn
from gomq_py.hub.scheduler import SliceClock
from gomq_py.storage.message import Message

BASIC = forms.BASIC  # so that its .pxd can type it
# The cost of an unreadable message, in octets of a turn: 5 us.
UNREADABLE_OCTETS = 1024


class AMQPConsumer(consumers.Consumer):
    """Delivers messages for one basic.consume.

        prefetch                        most unacked messages; 0: no limit, as with no_ack
        on_cancel(consumer, reason)     informs the client that the queue has dropped this consumer
        large                           the LargeOutput that limits the memory of large messages, or None
        timers                          the event loop's timers, which limit how long a large message waits
                                        until the client has read the one before; None: no such wait
        properties_max                  most bytes of properties in a header frame to the client
    """

    __slots__ = (
        "output", "channel", "source", "holder", "prefetch", "started", "on_cancel", "frame_max", "prefix",
        "message", "waiting", "held", "large", "timers", "form", "apart", "properties_max",
    )

    def __init__(
        self, output, channel, queue, tag, no_ack=False, exclusive=False, priority=0, arguments=None,
        prefetch=0, frame_max=131072, on_cancel=None,
    ):
        consumers.Consumer.__init__(self, tag, no_ack, exclusive, priority, arguments)
        self.output = output
        self.channel = channel
        self.source = queue
        self.holder = channel.unacked.make_holder(queue, self)
        self.prefetch = 0 if no_ack else prefetch
        self.frame_max = frame_max
        self.on_cancel = on_cancel
        self.started = self.waiting = self.held = False
        self.large = self.timers = self.form = None
        self.properties_max = consumers.UNLIMITED
        self.apart = 0  # octets of a turn that did not go through the output buffer
        name = tag.encode("utf-8", "surrogateescape")
        self.prefix = b"\x00\x3c\x00\x3c" + bytes((len(name),)) + name
        self.message = Message()

    def start(self):
        """Attach the consumer to its queue, after consume-ok. Raises AccessRefused if the queue has an
        exclusive consumer.
        """
        self.started = True
        self.source.add_consumer(self)

    def stop(self):
        """Detach the consumer from its queue. The channel keeps the unacked messages."""
        self.started = False
        self._wait_no_more()
        self.channel.unacked.let_go(self.holder)
        self.source.remove_consumer(self)

    def cancel(self, reason):
        """Stop, and inform the client, because the queue has dropped this consumer."""
        self.started = False
        self._wait_no_more()
        self.channel.unacked.let_go(self.holder)
        if self.on_cancel is not None:
            self.on_cancel(self, reason)

    def capacity(self):
        """Return how many messages the prefetch limits allow now; 0 while the client's socket is full."""
        if not self.started or self.output.broken or self.held:
            return 0
        if self.output.blocked:
            if not self.waiting:
                self.waiting = True
                self.output.call_when_drained(self._drained)
            return 0
        room = consumers.UNLIMITED
        if self.prefetch:
            room = self.prefetch - self.holder.unacked_count
        if self.channel.global_prefetch:
            shared = self.channel.global_prefetch - self.channel.unacked.consumer_count
            # A consumer without acks uses no credit of the channel, but delivers nothing while the channel
            # has none.
            if shared <= 0 or (shared < room and not self.no_ack):
                room = shared
        if not self.no_ack and self.channel.max_unacked - self.channel.unacked.count < room:
            room = self.channel.max_unacked - self.channel.unacked.count
        return room if room > 0 else 0

    def deliver(self, limit):
        """Send up to ``limit`` messages that fit the output buffer. Returns the number of bytes written."""
        if self.channel.tracing:
            return self._deliver_traced(limit)
        return self._deliver(limit)

    def _deliver_traced(self, limit):
        """Deliver up to ``limit`` messages within a slice of time, and report each to the vhost's tracing."""
        # The copy of large headers may take 1 ms per message.
        at = 0
        clock = SliceClock()
        while limit > 0 and self.capacity() > 0 and self._show_next():
            if self._may_go():
                self.channel.trace_delivery(self.message, self.source.name, self._headers_added())
            at += self._deliver(1)
            limit -= 1
            if at and clock.is_over():
                return max(at, broker_queue.TURN_OCTETS)  # ends the queue's turn
        return at

    def _show_next(self):
        return self.source.peek(self.message)

    def _headers_added(self):
        """Return the headers that the delivery adds to ``message``, as a dict."""
        return {}

    def _may_go(self):
        """Return True if the properties of ``message`` can be decoded, and fit into a frame to the client."""
        if self.message.kind == BASIC:
            return self.message.properties_length <= self.properties_max
        try:
            self.message.get_properties()
        except Malformed:
            return False
        return True

    def _deliver(self, limit):
        queue = self.source
        unacked = self.channel.unacked
        message = self.message
        buffers = self.output.buffers
        out = buffers.output_at
        room = self.output.room_to_fill()
        limit = min(limit, self.capacity())
        prefix = octets.pointer(self.prefix)
        prefix_length = len(self.prefix)
        channel = self.channel.id
        no_ack = self.no_ack
        now_s = queue.scheduler.now_ms // 1000
        at = taken = 0
        try:
            while limit > 0 and queue.peek(message):
                if message.kind != BASIC or message.properties_length > self.properties_max:
                    at = self._add_unusual(out, at, room)
                    if at < 0:
                        break
                else:
                    size = delivery.delivery_size(
                        prefix_length, message.routing_length, message.properties_length, message.body_length,
                        self.frame_max)
                    if at + size > room or size > buffers.output_octets:
                        if at == 0:
                            return self._deliver_large(size)
                        break
                    at = delivery.write_delivery(
                        out, at, channel, prefix, prefix_length, unacked.next_tag, message.redelivered,
                        message.buffer, message.routing_at, message.routing_length)
                    at = delivery.write_content(
                        out, at, channel, message.buffer, message.properties_at, message.properties_length,
                        message.body_at, message.body_length, self.frame_max)
                queue.take(message, no_ack)
                unacked.redelivered_count += message.redelivered
                if no_ack:
                    unacked.skip()
                else:
                    unacked.add(self.holder, message.location, message.body_length, now_s)
                taken = at
                limit -= 1
        finally:  # if the store fails at the next message, the taken ones are sent all the same
            if taken:
                self._send_taken(taken)
        return taken + self._forget_apart()

    def _size_of(self, message):
        return delivery.delivery_size(
            len(self.prefix), message.routing_length, message.properties_length, message.body_length,
            self.frame_max)

    def _write_frames(self, out, at, message):
        """Write the frames of an AMQP message at ``out[at]``. Returns the offset after them."""
        # _deliver() repeats this code, because a call took 5 % of its loop.
        channel = self.channel.id
        at = delivery.write_delivery(
            out, at, channel, octets.pointer(self.prefix), len(self.prefix), self.channel.unacked.next_tag,
            message.redelivered, message.buffer, message.routing_at, message.routing_length)
        return delivery.write_content(
            out, at, channel, message.buffer, message.properties_at, message.properties_length,
            message.body_at, message.body_length, self.frame_max)

    def _forget_apart(self):
        apart = self.apart
        self.apart = 0
        return apart

    # messages of another protocol, which ``form`` translates, and undeliverable messages

    def _add_unusual(self, out, at, room):
        """Write the translated frames of a ``message`` of another protocol to ``out[at:room]``. Returns the
        offset after them; -1 if nothing was written. Closes the channel if ``message`` is an AMQP message,
        which comes here only if its properties are too large for the client.
        """
        # -1: the buffer must be sent first; or the message is too large (sent without the buffer), unreadable
        # (set aside), or has a header too large for a frame (the channel is closed).
        if self.message.kind == BASIC:
            self._end_channel()
            return -1
        try:
            self.form = forms.of(self.message.kind)
        except Malformed as error:
            self._pass_over(error)
            return -1
        size = self._translated_size()
        if at + size <= room and size <= self.output.buffers.output_octets:
            return self._write_translated(out, at, at + size)
        if at == 0:
            self.apart += self._deliver_large(size)
        return -1

    def _translated_size(self):
        message = self.message
        return delivery.delivery_size(
            len(self.prefix), message.routing_length,
            delivery.translated_bound(self.form, message.properties_length, self.frame_max),
            message.body_length, self.frame_max)

    def _write_translated(self, out, at, end):
        """Write the frames of ``message``, which came by another protocol, to ``out[at:end]``. Returns the
        offset after them, or -1 if the message is malformed and was skipped.
        """
        message = self.message
        channel = self.channel.id
        at = delivery.write_delivery(
            out, at, channel, octets.pointer(self.prefix), len(self.prefix), self.channel.unacked.next_tag,
            message.redelivered, message.buffer, message.routing_at, message.routing_length)
        at = delivery.write_translated(
            out, at, channel, self.form, message.buffer, message.routing_at, message.properties_at,
            message.properties_length, message.flags, message.body_at, message.body_length, self.frame_max)
        if at < 0:
            self._pass_over(forms.malformed(message.kind))
        return at

    def _pass_over(self, error):
        """Skip the unreadable ``message``, which stays in the queue, so that later messages are delivered."""
        self.source.shift_head()
        self.source.set_aside(self.message.location, error, "delivering it")
        self.apart += UNREADABLE_OCTETS

    def _end_channel(self):
        """Close the channel, because the header of ``message`` is too large for a frame to this client."""
        self.held = True
        self.channel.cannot_take(self.source, self.message.properties_length)

    def _send_taken(self, at):
        queue = self.source
        # Deliveries are marked in the store before the client can answer.
        queue.write_out()
        self.output.send_filled(at)
        if not self.no_ack and self.holder.timeout_ms() and not self.channel.watched:
            self.channel.watch_unacked()

    def _deliver_large(self, size):
        """Deliver ``message``, which is larger than the output buffer. Returns the number of bytes sent."""
        if not self.admits_large(size):
            return 0
        message = self.message
        if message.kind == BASIC and self.output.takes_sources:
            reading = self.source.body_file(message)
            if reading is not None:
                return self._deliver_from(reading, size)
        data = bytearray(size)
        out = octets.pointer(data)
        if message.kind == BASIC:
            self._write_frames(out, 0, message)
        else:
            size = self._write_translated(out, 0, size)
            if size < 0:
                return 0
            del data[size:]
        self._take_large()
        self.output.write(data)
        self.wrote_large(size)
        return size

    def _lead(self, message):
        """Return the method frame and the header frame of a delivery."""
        lead = bytearray(
            2 * delivery.HEADER_OVERHEAD + len(self.prefix) + message.routing_length
            + message.properties_length)
        out = octets.pointer(lead)
        at = delivery.write_delivery(
            out, 0, self.channel.id, octets.pointer(self.prefix), len(self.prefix),
            self.channel.unacked.next_tag, message.redelivered, message.buffer, message.routing_at,
            message.routing_length)
        at = delivery.write_header(
            out, at, self.channel.id, message.buffer, message.properties_at, message.properties_length,
            message.body_length)
        del lead[at:]
        return lead

    def _deliver_from(self, reading, size):
        """Deliver ``message`` with its body sent from the open file ``reading``. Returns ``size``."""
        message = self.message
        lead = self._lead(message)
        frames = FileDelivery(
            reading, message.body_at, message.body_length, lead, self.channel.id, self.frame_max)
        try:
            self._take_large()
        except BaseException:
            frames.close()
            raise
        self.output.write_source(frames)
        self.wrote_large(size)
        return size

    def hand_over(self, message):
        """Send a message that is in no store, its body from the buffer that received it. Returns False if it
        was not sent; the queue then stores it.
        """
        # TLS needs copies, so over TLS it is never sent.
        if not self._can_have(message):
            return False
        size = self._size_of(message)
        if not self.admits_large(size):
            return False
        frames = MemoryDelivery(
            message.owner, message.body_view(), self._lead(message), self.channel.id, self.frame_max)
        self.channel.unacked.skip()
        self.output.write_source(frames)
        self.wrote_large(size)
        return True

    def _can_have(self, message):
        """Return True if hand_over() can send this message as soon as the consumer has capacity."""
        return (
            self.no_ack and self.output.takes_sources and not self.channel.tracing and message.kind == BASIC
            and message.properties_length <= self.properties_max and message.body_view() is not None)

    def wait_for(self, message, now_ms):
        """Let the unstored ``message`` wait until the client has read the large message before it. Returns
        the Turn (a timed wait) that delays the message, or None if the queue must store it.
        """
        if (
            self.timers is None or not self.started or self.held or self.output.broken
            or not self.output.blocked or not self._can_have(message)
        ):
            return None
        most_ms = 1 + message.body_length // OCTETS_PER_MS
        if not message.waits_until_ms:
            message.waits_until_ms = now_ms + most_ms
        if not now_ms < message.waits_until_ms <= now_ms + most_ms:
            return None  # the message has waited long enough, or the clock was set back
        return Turn(self.output, self.timers, message.waits_until_ms - now_ms)

    def _take_large(self):
        message = self.message
        self.source.take(message, self.no_ack)
        self.channel.unacked.redelivered_count += message.redelivered
        if self.no_ack:
            self.channel.unacked.skip()
        else:
            self.channel.unacked.add(
                self.holder, message.location, message.body_length, self.source.scheduler.now_ms // 1000
            )
            if self.holder.timeout_ms() and not self.channel.watched:
                self.channel.watch_unacked()
        self.source.write_out()

    def admits_large(self, size):
        """Return True if memory has room for ``size`` bytes. If not, deliveries pause until resume_held()."""
        if self.large is None or self.large.admit(self, size):
            return True
        self.held = True
        return False

    def wrote_large(self, size):
        """Count ``size`` bytes of a large message that the client has not read yet."""
        if self.large is not None and self.output.blocked:
            self.large.written(self, size)

    def _wait_no_more(self):
        if self.held and self.large is not None:
            self.large.forget(self)

    def resume_held(self):
        """Resume deliveries that admits_large() has paused, because memory may be free again."""
        self.held = False
        if self.queue is not None:
            self.queue.offer(self)

    def give_up(self, why):
        """Close the connection, because its client does not read a large message and memory is short."""
        self.channel.connection.abort(why)

    def _drained(self):
        self.waiting = False
        if self.queue is not None:
            self.queue.offer(self)
