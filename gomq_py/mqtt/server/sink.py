"""Sink: the destination of QoS 0 messages for a connected client that no queue keeps.

A Destination without a store, bound like a queue; above publication, made by outbound. Packets are gathered
in a spare buffer of the hub while a read is walked, and sent in the sink's turn. A client that does not read
loses messages beyond its share of memory. Never yields.
"""
from gomq_py import octets
from gomq_py.broker.routing import route as routes
from gomq_py.hub import buffers
from gomq_py.hub import scheduler as _scheduler  # noqa: F401  (its .pxd types the scheduler)
from gomq_py.mqtt.model import interests as _interests  # noqa: F401
from gomq_py.mqtt.server import publication as _publication  # noqa: F401
from gomq_py.mqtt.wire import crossing
from gomq_py.net import output as _output  # noqa: F401

# Retained messages taken at a time.
REPLAYED_AT_ONCE = 64


class Sink(routes.Destination):
    """``session`` is the model's; ``limit``: octets that may wait for the socket, besides one large message.
    ``sent`` and ``dropped`` count messages. ``trace(message)``, if not None, sees each message sent.
    """

    __slots__ = (
        "session", "output", "publication", "scheduler", "buffers", "large", "limit", "spare", "at",
        "capacity", "gathered", "sent", "dropped", "is_open", "give_up", "trace",
    )

    def __init__(self, session, output, publication, scheduler, large, limit, give_up):
        routes.Destination.__init__(self, f"mqtt sink of {session.client_id!r}")
        self.session = session
        self.output = output
        self.publication = publication
        self.scheduler = scheduler
        self.buffers = output.buffers
        self.large = large
        self.limit = limit
        self.give_up = give_up
        self.spare = None
        self.at = octets.pointer(b"\0")
        self.capacity = self.gathered = self.sent = self.dropped = 0
        self.is_open = False
        self.trace = None

    def begin(self):
        """Accept messages; the client is ready."""
        self.is_open = True

    def stop(self):
        """Accept no more messages."""
        self.is_open = False
        if self.large is not None:
            self.large.forget(self)
        self._give_spare()

    def publish(self, message):
        """Send a message. Returns 1 always: the publisher is not told of messages dropped because the client
        does not read.
        """
        publication = self.publication
        interest = publication.find(message)
        if message.publisher is not None and message.publisher is self.session:
            interest = interest.in_own()
            if not interest.is_wanted:
                return 1
        if interest.is_kept and not message.flags & crossing.REPLAYED:  # delivered from the queue
            return 1
        if not self.is_open or self.output.broken:
            return 1
        size = publication.measure(message, interest, self.scheduler.now_ms, 0)
        if size > publication.packet_max:
            self.dropped += 1
            return 1
        if self.gathered + size > self.capacity and not self._make_room(size):
            return self._publish_large(message, size)
        if self.output.blocked and self.output.pending_octets() + self.gathered + size > self.limit:
            self.dropped += 1
            return 1
        self.gathered = publication.write(self.at, self.gathered, message, 0, False)
        self.sent += 1
        if not self.touched:
            self.scheduler.touch(self)
        if self.trace is not None:
            self.trace(message)
        return 1

    def room(self):
        """How many retained messages may come now."""
        if self.output.blocked or self.gathered > buffers.SPARE_OCTETS // 2 or not self.is_open:
            return 0
        return REPLAYED_AT_ONCE

    def turn(self):
        """Send the gathered packets. Returns their octets."""
        count = self.gathered
        if count:
            self.send()
        self._give_spare()
        return count

    def send(self):
        """Send the gathered packets now, because other messages follow."""
        count = self.gathered
        self.gathered = 0
        if count:
            # A copy of a few packets costs a tenth of what two views do.
            few = count <= buffers.SMALL_SPARE_OCTETS
            self.output.write(b"" + self.at[:count] if few else memoryview(self.spare)[:count])

    def resume_held(self):
        """Nothing to do: a sink's messages do not wait for memory."""

    def _make_room(self, size):
        """Make room for ``size`` more octets; False if no spare buffer is that large."""
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
        """Send a message larger than any spare buffer; the gathered packets have been sent."""
        if self.output.blocked or self.large is not None and not self.large.admit(self, size):
            self.dropped += 1
            return 1
        data = bytearray(size)
        self.publication.write(octets.pointer(data), 0, message, 0, False)
        self.output.write_large(data)
        self.sent += 1
        if self.large is not None and self.output.blocked:
            self.large.written(self, size)
        if self.trace is not None:
            self.trace(message)
        return 1

    def _give_spare(self):
        spare, self.spare = self.spare, None
        self.capacity = self.gathered = 0
        if spare is not None:
            self.buffers.give_spare(spare)
