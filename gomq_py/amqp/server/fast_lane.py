"""Fast lane: parses all bytes of one socket read in one compiled pass, with no Python object per message.

Uses amqp.wire, broker and storage directly, as consume and delivery do. The stream passes the shared input
buffer. A publish goes straight to its queues if its method, header and single body frame are complete. A
basic.ack goes straight to the channel's unacked messages. All other frames go one by one to
``handler.slow_frame``, which gives the same results. Never switches greenlets. Raises only for framing
errors, which end the connection.

This module is compiled without bounds checks, so each length is checked against the end of its frame before
it is used.
"""
from functools import partial

from gomq_py import octets
from gomq_py.amqp.server.settling import Settling
from gomq_py.broker.features.retry import LOST
from gomq_py.broker.queues.unacked import Unacked
from gomq_py.amqp.wire import errors
# its .pxd types the objects that resume_consumers walks
from gomq_py.broker.queues import consumers as _consumers  # noqa: F401
from gomq_py.broker.routing import route as routes
from gomq_py.broker.routing.route import RememberedRoutes
from gomq_py.broker.verbs.pending_confirms import UnsyncedQueues
from gomq_py.content import fields, properties
from gomq_py.content.properties import PropertyScan
from gomq_py.hub import backpressure
from gomq_py.net import stream as streams
from gomq_py.storage.message import Message

BASIC_PUBLISH = 0x003C0028
BASIC_ACK = 0x003C0050
FRAME_END = 0xCE
DELIVERY_MODE = 0x1000
# Most routes of one connection that depend on a header, and most octets of that header. Links write the same
# header on all messages that they publish; with three brokers it takes 500 octets.
WATCHED_ROUTES = 64
WATCHED_OCTETS = 1024
# The rest of a body frame of at least so many octets is read straight into the body's buffer.
DIRECT_OCTETS = 16 * 1024
# Answers of _publish() instead of a position: WAIT: read more first; SLOW: use the slow lane.
WAIT = 0
SLOW = -1
# A ``global_prefetch`` that leaves no room for a message, even after acks.
NO_CREDIT = -1


class FastLane(streams.Lane):
    """Parses the frames that one connection has read, and publishes and acks ordinary messages itself.

    All other frames go to ``handler``, the connection, which has these methods:

        slow_frame(type, channel number, payload)
            Handles a frame. Returns False to stop the parsing: the connection closes or is paused.
        route(exchange, routing_key, entry)
            Returns a Route to cache, or None if such messages go to slow_frame(). ``entry``: the encoded
            header on which the Route depends, or empty.
        publish_later(...)
            Finishes a publish once its queue, which waits for files, can store the message.
        outruns(queues)
            Called if the client publishes faster than the consumers of these queues consume.
        has_time()
            Returns True if the parsing may go on: this read has not used up its time.
        body_begins(channel number, size, start, end)
            Takes the first part of a body frame, ``input[start:end]``. Returns True if the stream reads
            the rest. Then body_ends() is called, which returns False to stop, as slow_frame() does.

    ``channels``: the connection's dict of HotChannels by number. ``confirming_channels``: list of channels
    with publishes to confirm at the end of the read.
    """

    __slots__ = (
        "confirming_channels", "max_message", "frame_max", "handler", "buffers", "channels", "remembered",
        "watching", "scheduler", "settled_channels", "channel", "message", "scan", "at",
        "header_max", "body_max", "now_ms", "held", "stored_copies", "look_at", "in_body", "routed", "rate",
    )

    def __init__(
        self, handler, buffers, channels, frame_max, scheduler, max_message=134217728, safe_octets=131072
    ):
        """``safe_octets``: messages with more bytes of properties go to slow_frame() (long tables)."""
        self.handler = handler
        self.buffers = buffers
        self.at = self.buffers.input_at
        self.channels = channels
        self.scheduler = scheduler
        self.max_message = max_message
        self.confirming_channels = []
        self.settled_channels = []
        self.remembered = RememberedRoutes(partial(_route_of, handler))
        self.watching = None  # RememberedRoutes that also depend on a header
        self.channel = None
        self.message = Message()
        self.message.may_wait = True
        self.held = False
        self.in_body = False  # the next octet ends a body frame that was read into the body's buffer
        self.stored_copies = self.routed = 0  # in this read: copies stored, and messages routed to a queue
        self.rate = backpressure.PublishRate()
        self.look_at = routes.LOOK_AFTER
        self.scan = PropertyScan()
        self.now_ms = 0
        self.header_max = 12 + safe_octets
        self.set_frame_max(frame_max)

    def set_frame_max(self, frame_max):
        """Set the negotiated maximal frame size, against which later frames are checked."""
        # Payloads may have 8 octets more than fit a frame: RabbitMQ accepts them, because some clients
        # (AMQPStorm) count without the overhead.
        self.frame_max = frame_max
        self.header_max = min(self.header_max, frame_max)
        self.body_max = min(frame_max, self.max_message)

    def process(self, start, end, now_ms):
        """Handle the complete frames in ``input[start:end]``. Returns the offset after the last one handled.
        Raises FrameError for broken framing.
        """
        self.scheduler.begin(now_ms)
        self.now_ms = now_ms
        self.held = False
        self.stored_copies = self.routed = 0
        self.look_at = routes.LOOK_AFTER
        at = self.at
        position = start
        if self.in_body:
            if end == start:
                return start
            self.in_body = False
            if at[start] != FRAME_END:
                raise errors.FrameError(f"frame end byte is {at[start]}, expected {FRAME_END}")
            position += 1
            if not self.handler.body_ends():
                return position
        while end - position >= 7:
            size = octets.be32(at, position + 3)
            if size > self.frame_max:
                raise errors.FrameError(
                    f"a frame has a payload of {size} bytes, the negotiated frame_max is {self.frame_max}"
                )
            frame_end = position + 7 + size
            if frame_end >= end:
                if at[position] == 3 and size >= DIRECT_OCTETS and self.handler.body_begins(
                        octets.be16(at, position + 1), size, position + 7, end):
                    self.in_body = True
                    position = end
                break
            if at[frame_end] != FRAME_END:
                raise errors.FrameError(f"frame end byte is {at[frame_end]}, expected {FRAME_END}")
            kind = at[position]
            number = octets.be16(at, position + 1)
            if kind == 1 and size >= 9:
                method = octets.be32(at, position + 7)
                if method == BASIC_PUBLISH or method == BASIC_ACK:
                    channel = self._find(number)
                    if channel is not None and not channel.slow:
                        if method == BASIC_PUBLISH:
                            after = self._publish(channel, position, frame_end, end)
                            if after == WAIT:
                                break
                            if after > 0:
                                position = after
                                if self.held:
                                    break
                                continue
                        elif (
                            size == 13
                            and not (at[position + 19] & 1
                                     and channel.unacked.is_long(octets.be64(at, position + 11)))
                            and channel.unacked.settle(octets.be64(at, position + 11), at[position + 19] & 1)
                        ):
                            if not channel.in_settled:
                                channel.in_settled = True
                                self.settled_channels.append(channel)
                            position = frame_end + 1
                            continue
            # The slow lane may close and open channels: forget the last channel.
            self.channel = None
            going_on = self.handler.slow_frame(kind, number, bytes(at[position + 7:frame_end]))
            position = frame_end + 1
            if not going_on:
                break
        return position

    def finish(self):
        """Finish one socket read: resume consumers with new credit, deliver, then confirm the publishes."""
        if self.settled_channels:
            for channel in self.settled_channels:
                channel.in_settled = False
                channel.resume_consumers()
            self.settled_channels.clear()
        self.scheduler.finish()
        if self.stored_copies:
            self._look_behind()
        self.send_confirms()

    def _look_behind(self):
        """Call handler.outruns() if the client publishes very fast, and the consumers of each queue of its
        last message are too slow.
        """
        if len(self.confirming_channels) > 0:  # a channel that waits for confirms: this read counts alone
            is_flood = self.routed >= backpressure.FLOOD
        else:
            is_flood = self.rate.is_flood(self.now_ms, self.routed)
        route = self.remembered.last
        if is_flood and route is not None and route.queues and route.delayed is None:
            for queue in route.queues:
                if not queue.is_outrun():
                    break
            else:
                self.handler.outruns(route.queues)

    def send_confirms(self):
        """Confirm all publishes since the last call, on every channel in confirm mode."""
        if self.confirming_channels:
            channels = self.confirming_channels
            self.confirming_channels = []
            for channel in channels:
                channel.in_confirming = False
            for channel in channels:
                channel.send_confirms()

    def confirm(self, channel):
        """Have the channel's publishes confirmed at the end of the read."""
        if not channel.in_confirming:
            channel.in_confirming = True
            self.confirming_channels.append(channel)

    def _find(self, number):
        channel = self.channel
        if channel is None or channel.id != number:
            channel = self.channels.get(number)
            self.channel = channel
        return channel

    def _publish(self, channel, position, frame_end, end):
        """Publish the message whose basic.publish is at ``position``, if it is complete and ordinary. Returns
        the offset after its frames, WAIT if bytes are missing, or SLOW if slow_frame() must handle it.
        """
        at = self.at
        # before the exchange: class id, method id and a reserved short
        routing = position + 13
        if frame_end - routing < 3:
            return SLOW
        length = 1 + at[routing]
        if frame_end - routing < length + 2:
            return SLOW
        length += 1 + at[routing + length]
        # exactly the octet of bits must be left, with immediate unset
        if frame_end - routing != length + 1 or at[routing + length] > 1:
            return SLOW
        after = self._content(channel.id, position, frame_end + 1, end)
        if after <= 0:
            return after
        route = self._route(routing, length)
        # A mandatory message without a queue is returned, by the slow lane.
        if route is None or at[routing + length] and not route.queues:
            return SLOW
        self.message.routing_at = routing
        self.message.routing_length = length
        self._store(channel, route)
        return after

    def _content(self, number, position, header, end):
        """Check the header frame at ``input[header]`` and the body frame after it; store their offsets.
        Returns the offset after both, WAIT if bytes are missing, or SLOW if slow_frame() must handle them.
        """
        at = self.at
        if end - header < 22:
            # Reject a frame that cannot be a header at once: the client may wait for the answer.
            if end > header and at[header] != 2 or end - header >= 7 and octets.be32(at, header + 3) < 14:
                return SLOW
            return WAIT
        header_size = octets.be32(at, header + 3)
        header_end = header + 7 + header_size
        if (
            at[header] != 2 or octets.be16(at, header + 1) != number or header_size < 14
            or header_size > self.header_max
        ):
            return SLOW
        if header_end >= end:
            return WAIT if header_end + 1 - position <= self.buffers.reserve else SLOW
        # class basic and weight 0
        if at[header_end] != FRAME_END or octets.be32(at, header + 7) != 0x003C0000:
            return SLOW
        size = octets.be64(at, header + 11)
        if size > self.body_max:
            return SLOW
        body = header_end + 1
        after = body
        if size:
            after = body + 8 + size
            if after > end:
                if end > body and at[body] != 3 or end - body >= 7 and octets.be32(at, body + 3) != size:
                    return SLOW
                return WAIT if after - position <= self.buffers.reserve else SLOW
            if (
                at[body] != 3 or octets.be16(at, body + 1) != number or octets.be32(at, body + 3) != size
                or at[after - 1] != FRAME_END
            ):
                return SLOW
        if not self._properties(header + 19, header_end):
            return SLOW
        message = self.message
        message.buffer = at
        message.properties_at = header + 19
        message.properties_length = header_size - 12
        message.body_at = body + 7
        message.body_length = size
        message.timestamp_ms = self.now_ms
        return after

    def _properties(self, start, end):
        """Store persistence and priority in the message. Returns False if slow_frame() must handle it."""
        at = self.at
        message = self.message
        message.persistent = False
        message.priority = 0
        if end - start == 2 and at[start] == 0 and at[start + 1] == 0:
            return True
        scan = self.scan
        if scan.scan(at, start, end) != 0 or scan.special or scan.expiration_at >= 0 or scan.user_id_at >= 0:
            return False
        # A delivery mode other than transient and persistent is an error (an absent one is 0 here).
        if scan.delivery_mode > 2 or scan.delivery_mode == 0 and scan.flags & DELIVERY_MODE:
            return False
        # the broker itself answers amq.rabbitmq.reply-to and its aliases
        if (
            scan.reply_to_at >= 0 and at[scan.reply_to_at] >= 4
            and octets.same(at, scan.reply_to_at + 1, b"amq.", 0, 4)
        ):
            return False
        message.persistent = scan.delivery_mode == 2
        message.priority = scan.priority
        return True

    def _route(self, routing, length):
        # Not assigned to a variable: that would count a reference to self.remembered for every message.
        route = self.remembered.last
        if (
            route is not None and length == len(self.remembered.last_key)
            and octets.same(self.at, routing, self.remembered.last_key, 0, length) and route.is_current()
        ):
            return self._by_headers(route, routing, length) if route.needs_headers else route
        route = self.remembered.find(self.at, routing, length)
        if route is not None and route.needs_headers:
            return self._by_headers(route, routing, length)
        return route

    def _by_headers(self, route, routing, length):
        """Return the Route for the message's headers, or None if slow_frame() must handle the message."""
        # Properties of two octets, both zero, were not scanned.
        if self.message.properties_length == 2 or self.scan.headers_at < 0:
            return route
        if route.delayed is None:
            return self._watched(route, routing, length)
        due_ms = properties.due_ms(
            self.at, self.scan.headers_at + 4, self.scan.headers_at + self.scan.headers_length, self.now_ms)
        if due_ms == properties.NOT_DELAYED:
            return route
        return None if due_ms == properties.UNTOLD else route.delayed

    def _watched(self, route, routing, length):
        at = self.at
        end = self.scan.headers_at + self.scan.headers_length
        # The first of equal keys counts, as everywhere.
        entry = fields.find_key(
            at, self.scan.headers_at + 4, end, octets.pointer(route.watched), len(route.watched))
        if entry < 0:
            return route
        size = fields.skip_value(at, entry + len(route.watched)) - entry
        if size > WATCHED_OCTETS:
            return None
        watching = self.watching
        if watching is None:
            watching = self.watching = RememberedRoutes(partial(_route_of, self.handler), WATCHED_ROUTES)
        found = watching.last
        if (
            found is not None and length + size == len(watching.last_key)
            and octets.same(at, routing, watching.last_key, 0, length)
            and octets.same(at, entry, watching.last_key, length, size) and found.is_current()
        ):
            return found
        return watching.find_key(bytes(at[routing:routing + length]) + bytes(at[entry:entry + size]))

    def _store(self, channel, route):
        message = self.message
        answer = routes.to_all(message, route)
        if answer > routes.SOME_REFUSED:
            self._wait(channel, route, (answer >> 1) - 1, answer & 1 == 0)
        else:
            self._stored(channel, route, message.persistent, answer == routes.ALL)
            self.stored_copies += len(route.queues)
            self.routed += len(route.queues) > 0
            if self.stored_copies >= self.look_at:
                self.look_at = self.stored_copies + routes.LOOK_AFTER
                if not self.handler.has_time():
                    self.held = True

    def _wait(self, channel, route, at, taken):
        """Have the handler finish the publish once queue number ``at`` has room. Ends the parsing of this
        read. ``taken``: all queues before ``at`` stored the message.
        """
        message = self.message
        mandatory = self.at[message.routing_at + message.routing_length] & 1
        message.own()
        self.message = Message()
        self.message.may_wait = self.held = True
        self.handler.publish_later(channel, message, route.queues, at, taken, bool(mandatory))

    def _stored(self, channel, route, persistent, taken):
        """Count a publish, and note whether to ack or nack it. ``taken``: all queues stored the message."""
        channel.drop_unroutable += route.count() == 0
        channel.publishes += 1
        if channel.confirming:
            channel.published += 1
            if not channel.in_confirming:
                channel.in_confirming = True
                self.confirming_channels.append(channel)
            if not taken:
                channel.refused.append(channel.published)
            elif persistent and route.durable and channel.unsynced.last is not route.queues:
                channel.unsynced.add(route.queues)


class HotChannel:
    """Holds what every message needs of a channel's state. Its subclass Channel adds AMQP's methods.

        slow                            all frames go to slow_frame(), as in tx mode or while closing
        published, publishes            number of the last publish in confirm mode; count of all publishes
        return_unroutable, drop_unroutable  counts of publishes without a queue: mandatory ones, others
        refused                         numbers of the publishes to nack next
        unsynced                        queues whose messages must be on disk before the next acks
        prefetch_count, global_prefetch most unacked messages of each new consumer, of all consumers together
        max_unacked                     most unacked messages of the channel (max_unacked_per_channel)
        watched                         a check of consumer timeouts is scheduled
        tracing                         trace_delivery() is called for every delivery
    """

    __slots__ = (
        "id", "slow", "confirming", "unsynced", "published", "publishes", "return_unroutable",
        "drop_unroutable", "refused", "unacked", "prefetch_count", "global_prefetch", "max_unacked",
        "consumers", "confirms", "in_confirming", "in_settled", "watched", "tracing", "resume_at", "settling",
    )

    def __init__(self, id_):
        self.id = id_
        self.unsynced = UnsyncedQueues()
        self.slow = self.confirming = self.in_confirming = self.in_settled = False
        self.watched = self.tracing = False
        self.published = self.publishes = self.return_unroutable = self.drop_unroutable = 0
        self.refused = []
        self.confirms = None
        self.unacked = Unacked()
        self.prefetch_count = self.global_prefetch = self.resume_at = 0
        self.max_unacked = 1 << 62
        self.consumers = {}
        self.settling = None

    def send_confirms(self):
        """Confirm the publishes since the last call."""
        if self.confirming:
            refused = self.refused
            if refused:
                self.refused = []
            self.confirms.published(self.published, refused, self.unsynced.take())

    def ack(self, tag, multiple):
        """Ack this message; if ``multiple``, all up to ``tag``. Unknown tag: returns False, no effect."""
        if not self.unacked.settle(tag, multiple):
            return False
        self.resume_consumers()
        return True

    def reject(self, tag, multiple, requeue):
        """Reject this message; if ``multiple``, all up to ``tag``. Returns False, without effect, for an
        unknown tag. ``requeue``: the reason to requeue (LOST, RETURNED or FAILED), or 0 not to requeue.
        """
        if not self.unacked.reject(tag, multiple, requeue):
            return False
        self.resume_consumers()
        return True

    def settle_in_slices(self, tag, how, scheduler, done=None):
        """Settle all messages up to ``tag``. Returns False if all are settled at return. Otherwise returns
        True, and ``done()`` is called after the last message. ``how``: ACK, REJECT, or a reason to requeue.
        """
        return self.settlements(scheduler).order(tag, how, done)

    def settlements(self, scheduler):
        """Return the channel's Settling, a job that settles very many messages in slices."""
        if self.settling is None:
            self.settling = Settling(self, scheduler)
        return self.settling

    def lend_nothing(self):
        """Stop all deliveries, because the channel is about to close."""
        self.slow = True
        self.global_prefetch = NO_CREDIT

    def close(self, scheduler):
        """Detach the consumers and requeue the unacked messages, in slices if there are very many."""
        self.slow = True
        for consumer in list(self.consumers.values()):
            consumer.stop()
        self.consumers.clear()
        if self.unacked.count or self.settling is not None:
            self.settle_in_slices(self.unacked.next_tag - 1, LOST, scheduler)
        self.settling = None  # unfinished settling keeps the channel alive until it is done

    def watch_unacked(self):
        """Watch for overdue deliveries, because a queue has a consumer timeout. Channel overrides this."""

    def trace_delivery(self, message, queue_name, added):
        """Report a delivery to the vhost's tracing. ``added``: a dict of headers that the broker adds."""

    def resume_consumers(self):
        """Have queues deliver to consumers that have new credit after acks or basic.qos."""
        if self.global_prefetch and len(self.consumers) > 1:
            self._resume_in_turns()
            return
        for consumer in self.consumers.values():
            if not consumer.ringed and consumer.queue is not None:
                consumer.queue.offer(consumer)

    def _resume_in_turns(self):
        """Have queues deliver to consumers that share a credit. Each call begins with another consumer."""
        # The first consumer may use up the credit.
        consumers = list(self.consumers.values())
        first = self.resume_at % len(consumers)
        consumers = consumers[first:] + consumers[:first]
        for consumer in consumers:
            if not consumer.ringed and consumer.queue is not None:
                consumer.queue.offer(consumer)
        for at, consumer in enumerate(consumers):
            if consumer.ringed and consumer.queue.ready_count:
                self.resume_at = first + at + 1
                # otherwise the queue of the consumer that has just acked would always come first
                consumer.queue.serve()
                return


def _route_of(handler, key):
    """Call ``handler.route()``. ``key``: exchange and routing key as short strings, then any header."""
    split = 1 + key[0]
    end = split + 1 + key[split]
    return handler.route(key[1:split], key[split + 1:end], key[end:])
