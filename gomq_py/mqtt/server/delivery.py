"""Delivery: writes PUBLISH packets for one client.

SessionConsumer delivers messages of the client's session queue. Sink sends QoS 0 messages that no queue
keeps. mqtt.server.flows makes consumer and sink; publication writes packets for them. The queue calls the
consumer, which fills the shared output buffer; the consumer's capacity is 0 while the output is blocked. The
sink is a Destination without a store, bound like a queue. It gathers packets while a read is handled, and
sends them at the read's end. Publishers wait a while for a client whose share of memory is full; then the
client loses messages. Never switches greenlets.
"""
from functools import partial

from gomq_py import octets
from gomq_py.broker.queues import consumers, queue as broker_queue
from gomq_py.broker.routing import route as routes
from gomq_py.content import forms
from gomq_py.hub import backpressure, buffers
from gomq_py.hub import scheduler as _scheduler  # noqa: F401  (its .pxd types the scheduler)
from gomq_py.hub.scheduler import SliceClock
from gomq_py.mqtt.model import interests as _interests, sent as _sent  # noqa: F401
from gomq_py.mqtt.server import publication as mqtt_publication
from gomq_py.mqtt.wire import crossing
from gomq_py.mqtt.wire.constants import PUBREL
from gomq_py.mqtt.wire.frames import Acknowledgements
from gomq_py.net import output as _output  # noqa: F401
from gomq_py.storage.message import Message

# Undeliverable messages dropped in one turn before others have theirs: 2 ms.
DROPPED_AT_ONCE = 4096
# How long identifiers wait for PUBCOMP after a power loss. Some clients, such as paho-mqtt with manual_ack,
# never answer a PUBREL for a message that they do not know.
RELEASE_MS = 10_000
# Retained messages that a sink takes at a time.
REPLAYED_AT_ONCE = 64


class SessionConsumer(consumers.Consumer):
    """Consumes a session's queue for its client. Delivers nothing before begin().

        sink              the Sink, whose gathered packets are sent before any message of the queue, or None
        ended(reason)     called when the queue drops this consumer
        dropped           count of drops: message too large, without MQTT topic, or forbidden to the client
        trace(message)    if not None, gets each message sent
        is_exact          QoS 2 messages are among the packets written and not yet sent
        unsafe            if not None, nothing is delivered. Has the packets, as bytes, that wait until
                          followers have their QoS 2 messages. Empty while a QoS 2 message waits for a new
                          store of identifiers
    """

    __slots__ = (
        "output", "source", "sent", "publication", "sink", "message", "started", "waiting", "held", "is_full",
        "large", "ended", "give_up", "dropped", "now_ms", "identifier", "to_drop", "trace", "is_exact",
        "unsafe", "release_timer",
    )

    def __init__(self, output, queue, sent, publication, sink, large, ended, give_up):
        consumers.Consumer.__init__(self, "")
        self.output = output
        self.source = queue
        self.sent = sent
        self.publication = publication
        self.sink = sink
        self.large = large
        self.ended = ended
        self.give_up = give_up
        self.message = Message()
        self.dropped = self.now_ms = self.identifier = self.to_drop = 0
        self.started = self.waiting = self.held = self.is_full = self.is_exact = False
        self.unsafe = self.trace = self.release_timer = None

    def begin(self):
        self.started = True
        if self.queue is not None:
            self.queue.offer(self)

    def stop(self):
        """Leave the queue. The session keeps its messages in flight."""
        self.started = False
        self.unsafe = None
        self._stop_release_timer()
        self._wait_no_more()
        self.source.remove_consumer(self)
        self.ended = None  # breaks a reference cycle

    def cancel(self, reason):
        self.started = False
        self._wait_no_more()
        if self.ended is not None:
            self.ended(reason)

    def capacity(self):
        if not self.started or self.output.broken or self.held or self.unsafe is not None:
            return 0
        if self.output.blocked:
            if not self.waiting:
                self.waiting = True
                self.output.call_when_drained(self._drained)
            return 0
        room = self.sent.room()
        if room == 0:
            self.is_full = True
        return room

    def room_again(self):
        """Resume delivery, because a message in flight has been settled."""
        if self.is_full:
            self.is_full = False
            if self.queue is not None:
                self.queue.offer(self)

    def deliver(self, limit):
        self.now_ms = self.source.scheduler.now_ms
        self.to_drop = DROPPED_AT_ONCE
        try:
            return self._deliver(limit) if self.trace is None else self._deliver_traced(limit)
        finally:
            if self.sent.to_release:
                self._release()

    def _deliver_traced(self, limit):
        """Trace and deliver one message after the other, while there is time."""
        # Tracing large headers may take 1 ms each.
        at = 0
        clock = SliceClock()
        while limit > 0 and self.capacity() > 0 and self._look() > 0:
            self.trace(self.message)
            at += self._deliver(1)
            limit -= 1
            if at and clock.is_over():
                return max(at, broker_queue.TURN_OCTETS)  # the turn is over, however little was written
        return at if self.to_drop else max(at, broker_queue.TURN_OCTETS)

    def _deliver(self, limit):
        queue = self.source
        message = self.message
        out = self.output.buffers.output_at
        room = self.output.buffers.output_octets
        at = taken = 0
        if self.sink is not None and self.sink.gathered:
            self.sink.send()
        if limit > self.capacity():
            limit = self.capacity()
        try:
            while limit > 0:
                size = self._look()
                if size == 0:
                    break
                if at + size > room:
                    if at == 0:
                        return self._deliver_large(size)
                    break
                behind = self._take(out, at, message)
                if behind == at:
                    break
                taken = at = behind
                limit -= 1
        finally:  # if the store fails on the next message, messages taken before it must still go out
            # Mark deliveries before the client can answer them.
            queue.write_out()
            if taken and self.is_exact and self._is_kept_elsewhere():
                self._send_when_safe(bytes(out[:taken]))
            elif taken:
                self.output.send_filled(taken)
        return taken if self.to_drop else max(taken, broker_queue.TURN_OCTETS)

    def _look(self):
        """Find and measure the client's next message. Returns its packet's size in bytes. Returns 0 if there
        is none, if it must wait for a PUBCOMP, or after many dropped messages in this turn.
        """
        queue = self.source
        sent = self.sent
        message = self.message
        publication = self.publication
        while queue.peek(message):
            self.identifier = 0
            qos = -1
            if sent.before is not None:
                self.identifier = sent.known(message.location, message.timestamp_ms)
                if self.identifier:
                    qos = sent.qos_of(self.identifier)
            size = publication.measure(message, publication.find(message), self.now_ms, qos)
            if size <= publication.packet_max:
                if sent.doubts and publication.qos == 2 and not self.identifier and sent.must_release():
                    self.is_full = True
                    self._stop_release_timer()
                    self.release_timer = sent.records.vhost.timers.start(RELEASE_MS, self._is_not_released)
                    return 0
                return size
            self._drop(message)
            self.to_drop -= 1
            if self.to_drop == 0:
                return 0
        if sent.before is not None and queue.ready_count == 0:
            sent.nothing_left()
        return 0

    def _take(self, out, at, message):
        """Take the measured message, and write its packet at ``out[at]``. Returns the offset after the
        packet, or ``at`` if the message must wait.
        """
        qos = self.publication.qos
        if qos == 0:
            at = self.publication.write(out, at, message, 0, False)
            self.source.take(message, True)
            return at
        identifier = self.identifier
        if identifier:
            self.sent.again(identifier)
        else:
            identifier = self.sent.add(message.location, message.timestamp_ms, qos)
            if identifier == 0:
                self._send_when_replaced()
                return at
        if qos == 2:
            self.is_exact = True
        # After a power loss the identifier may be on disk without the queue's mark.
        at = self.publication.write(out, at, message, identifier, message.redelivered or self.identifier > 0)
        self.source.take(message, False)
        return at

    def _drop(self, message):
        """Acknowledge a message that must not be sent [MQTT-3.1.2-25]; set an unreadable message aside."""
        if self.publication.size == mqtt_publication.UNREADABLE:
            self.source.shift_head()
            self.source.set_aside(message.location, forms.malformed(message.kind), "delivering it")
        else:
            self.dropped += 1
            self.source.take(message, True)
            self.source.delivered -= 1
            self.source.auto_delivered -= 1
        if self.identifier:
            self.sent.drop(self.identifier)

    def _deliver_large(self, size):
        if self.large is not None and not self.large.admit(self, size):
            self.held = True
            return 0
        data = bytearray(size)
        if self._take(octets.pointer(data), 0, self.message) == 0:
            return 0
        self.source.write_out()
        if self.is_exact and self._is_kept_elsewhere():
            self._send_when_safe(data)
        else:
            self._write(data)
        return size

    def _write(self, data):
        self.output.write_large(data)
        if self.large is not None and self.output.blocked and len(data) > self.output.buffers.output_octets:
            self.large.written(self, len(data))

    def _is_kept_elsewhere(self):
        self.is_exact = False
        return self.sent.records is not None and self.sent.records.is_kept_elsewhere()

    def _send_when_safe(self, data):
        """Send the packets ``data`` once their QoS 2 messages and records are on disk and on every follower.
        Nothing is delivered until then. A failure ends the connection.
        """
        self.unsafe = data
        self.sent.records.when_safe(partial(self._is_safe, data))

    def _send_when_replaced(self):
        """Deliver nothing until a new store of identifiers has replaced the failed one."""
        # A kill before that could leave two messages with one identifier.
        self.unsafe = nothing = bytearray()
        self.sent.records.when_replaced(partial(self._is_safe, nothing, None))

    def _is_safe(self, data, error):
        if self.unsafe is not data:
            return
        self.unsafe = None
        if error is not None:
            self.give_up(f"what it is sent at QoS 2 is not safe: {error}")
            return
        if data:
            self._write(data)
        if self.queue is not None:
            self.queue.offer(self)

    def _wait_no_more(self):
        if self.held and self.large is not None:
            self.large.forget(self)

    def resume_held(self):
        """Resume delivery, because memory for large messages has become free."""
        self.held = False
        if self.queue is not None:
            self.queue.offer(self)

    def _release(self):
        """Send PUBREL for deleted messages, once all followers know of the deletion."""
        answers = Acknowledgements(self.publication.version)
        for identifier in self.sent.take_to_release():
            answers.add(PUBREL, identifier, 0)
        released = answers.take()
        if self.sent.records is not None and self.sent.records.is_kept_elsewhere():
            self.sent.records.when_safe(partial(self._released, released))
        else:
            self.output.write(released)

    def _released(self, data, error):
        if not self.started:
            return
        if error is None:
            self.output.write(data)
        else:
            self.give_up(f"what it has received at QoS 2 is not safe: {error}")

    def _is_not_released(self):
        """Stop waiting for long overdue PUBCOMPs, now and for the rest of this run, and resume delivery."""
        self.release_timer = None
        if self.sent.awaits_one and self.sent.room() == 0:
            self.sent.doubts = False
            self.room_again()

    def _stop_release_timer(self):
        if self.release_timer is not None:
            self.release_timer.stop()
            self.release_timer = None

    def emptied(self):
        """Forget unsettled deliveries of an earlier connection, because the queue is empty."""
        if self.started:
            self.sent.nothing_left()
            if self.sent.to_release:
                self._release()

    def _drained(self):
        self.waiting = False
        if self.queue is not None:
            self.queue.offer(self)


class Sink(routes.Destination):
    """Sends QoS 0 messages to one client. ``limit``: bytes that may wait for the socket, besides one large
    message. ``sent``, ``dropped``: numbers of messages. ``blocked_ms``: since when the socket has not taken
    all bytes, in Unix milliseconds; 0 if it has. ``trace(message)``, if not None, gets each message sent.
    """

    __slots__ = (
        "session", "output", "publication", "scheduler", "timers", "buffers", "large", "limit", "spare", "at",
        "capacity", "gathered", "sent", "dropped", "is_open", "blocked_ms", "was_late", "give_up", "trace",
    )

    def __init__(self, session, output, publication, hub, limit, give_up):
        routes.Destination.__init__(self, f"mqtt sink of {session.client_id!r}")
        self.session = session
        self.output = output
        self.publication = publication
        self.scheduler = hub.scheduler
        self.timers = hub.timers
        self.buffers = output.buffers
        self.large = hub.large_output
        self.limit = limit
        self.give_up = give_up
        self.spare = None
        self.at = octets.pointer(b"\0")
        self.capacity = self.gathered = self.sent = self.dropped = self.blocked_ms = 0
        self.is_open = self.was_late = False
        self.trace = None

    def begin(self):
        self.is_open = True

    def stop(self):
        self.is_open = False
        if self.large is not None:
            self.large.forget(self)
        self._give_spare()

    def publish(self, message):
        """Send or drop a message, and return 1. Returns LATER if the publisher must wait for the client."""
        publication = self.publication
        interest = publication.find(message)
        if message.publisher is not None and message.publisher is self.session:
            interest = interest.in_own()
        if not interest.is_wanted:  # No Local, or it waited, and the client has unsubscribed meanwhile
            return 1
        if interest.is_kept and not message.flags & crossing.REPLAYED:  # delivered from the queue
            return 1
        if not self.is_open or self.output.broken:
            return 1
        size = publication.measure(message, interest, self.scheduler.now_ms, 0)
        if size > publication.packet_max:
            self.dropped += 1
            return 1
        if self.scheduler.is_shut and self.gathered + size > buffers.SPARE_OCTETS:
            self.dropped += 1
            return 1
        if self.gathered + size > self.capacity and not self._make_room(size):
            return self._publish_large(message, size)
        if self.output.blocked and self.output.pending_octets() + self.gathered + size > self.limit:
            return self._put_off(message)
        self.gathered = publication.write(self.at, self.gathered, message, 0, False)
        self.sent += 1
        if not self.touched:
            self.scheduler.touch(self)
        if self.trace is not None:
            self.trace(message)
        return 1

    def room(self):
        """Return how many retained messages the sink accepts now. If it returns 0, other members of a shared
        subscription are preferred.
        """
        if self.output.blocked or self.gathered > buffers.SPARE_OCTETS // 2 or not self.is_open:
            return 0
        return REPLAYED_AT_ONCE

    def turn(self):
        """Send the packets gathered during a read. Returns their size in bytes."""
        count = self.gathered
        if count:
            self.send()
        self._give_spare()
        return count

    def send(self):
        """Send the gathered packets now, so that they precede later messages."""
        count = self.gathered
        self.gathered = 0
        if count:
            # A copy of a few packets costs a tenth of what two views do.
            few = count <= buffers.SMALL_SPARE_OCTETS
            self.output.write(self.at[:count] if few else memoryview(self.spare)[:count])
            self._look_blocked()

    def resume_held(self):
        """Do nothing, because a sink's messages do not wait for memory."""

    def _make_room(self, size):
        """Make room for ``size`` more bytes. Returns False if no buffer is large enough."""
        if self.gathered + size > buffers.SPARE_OCTETS:
            self.send()
            if size > buffers.SPARE_OCTETS:
                return False
        if self.gathered + size > self.capacity:
            spare = self.buffers.take_spare(
                self.spare is None and self.gathered + size <= buffers.SMALL_SPARE_OCTETS)
            at = octets.pointer(spare)
            octets.copy(at, 0, self.at, 0, self.gathered)
            if self.spare is not None:
                self.buffers.give_spare(self.spare)
            self.spare = spare
            self.at = at
            self.capacity = len(spare)
        return True

    def _publish_large(self, message, size):
        if self.output.blocked:
            return self._put_off(message)
        if self.large is not None and not self.large.admit(self, size):
            self.dropped += 1
            return 1
        data = bytearray(size)
        self.publication.write(octets.pointer(data), 0, message, 0, False)
        self.output.write_large(data)
        self._look_blocked()
        self.sent += 1
        if self.large is not None and self.output.blocked:
            self.large.written(self, size)
        if self.trace is not None:
            self.trace(message)
        return 1

    def _put_off(self, message):
        """Return LATER if the publisher may wait; otherwise drop the message, and return 1."""
        self._look_blocked()
        if message.may_wait and not self.is_late():
            left_ms = self.blocked_ms + backpressure.FULL_MS - self.scheduler.now_ms
            message.lacking = backpressure.Turn(self.output, self.timers, left_ms)
            return routes.LATER
        self.dropped += 1
        return 1

    def is_late(self):
        """Return True if publishers need not wait, because the client reads too slowly or did so before."""
        return self.blocked_ms > 0 and (self.was_late or self._is_too_long(self.scheduler.now_ms))

    def _is_too_long(self, now_ms):
        return not 0 <= now_ms - self.blocked_ms < backpressure.FULL_MS

    def _look_blocked(self):
        # Not from when the limit is reached: of many clients that hang, each would hold publishers once.
        if self.output.blocked and not self.blocked_ms:
            self.blocked_ms = self.scheduler.now_ms
            self.output.call_when_drained(self._drained)

    def _drained(self):
        # Remembered, because a client that always reads slowly would hold publishers again and again.
        self.was_late = self._is_too_long(self.timers.now_ms())
        self.blocked_ms = 0

    def _give_spare(self):
        spare, self.spare = self.spare, None
        self.capacity = self.gathered = 0
        if spare is not None:
            self.buffers.give_spare(spare)
