"""A fast lane on its own: frames in, what it stored and what it handed to the slow lane out."""
import struct
from types import SimpleNamespace

from gomq_py.amqp.server.fast_lane import FastLane, HotChannel
from gomq_py.broker.routing.route import Destination, ExchangeState, Route
from gomq_py.hub.buffers import HubBuffers
from tests.support.clocks import patient_scheduler
from tests.support.queues import HandLoop

NOW_MS = 1_700_000_000_000


def frame(kind, channel, payload, end=b"\xce"):
    """One frame."""
    return struct.pack(">BHI", kind, channel, len(payload)) + payload + end


def framed(body, frame_max, channel=7):
    """The body frames of a body, as they are sent."""
    room = frame_max - 8
    return b"".join(frame(3, channel, body[at:at + room]) for at in range(0, len(body), room))


def short(text):
    """A short string."""
    return bytes((len(text),)) + text


def publish_method(exchange=b"", routing_key=b"q", bits=0, channel=1):
    """The method frame of basic.publish."""
    return frame(
        1, channel, b"\x00\x3c\x00\x28\x00\x00" + short(exchange) + short(routing_key) + bytes((bits,))
    )


def content_header(size, properties=b"\0\0", channel=1, class_id=60, weight=0):
    """The header frame of a body of ``size`` octets."""
    return frame(2, channel, struct.pack(">HHQ", class_id, weight, size) + properties)


def publish(body=b"hello", exchange=b"", routing_key=b"q", properties=b"\0\0", bits=0, channel=1):
    """Method, header and, if there is a body, one body frame."""
    frames = (
        publish_method(exchange, routing_key, bits, channel) + content_header(len(body), properties, channel)
    )
    return frames + (frame(3, channel, body) if body else b"")


def ack(tag, multiple=False, channel=1):
    """basic.ack."""
    return frame(1, channel, struct.pack(">HHQB", 60, 80, tag, multiple))


class NotingQueue(Destination):
    """Notes what is published to it."""

    def __init__(self, name, log, refuses=False, durable=True):
        super().__init__(name, durable)
        self.log = log
        self.refuses = refuses
        self.outrun = False

    def publish(self, message):
        about = message.describe()
        self.log.append((
            "publish", self.name, message.get_exchange(), message.get_routing_key(), message.get_properties(),
            message.get_body(),
            about["persistent"], about["priority"]))
        return 0 if self.refuses else 1

    def is_outrun(self):
        return self.outrun


class LaneBench:
    """A connection's lane with channels 1 and 2. ``log`` holds ("publish", ...) and ("slow", kind, channel,
    payload) in the order they happened.

    ``routes`` maps (exchange, routing key) to lists of queues; the queue "q" is there from the start.
    ``outrun``: names of the queues, each time that the lane said that it outruns them. ``confirmed``: what
    Confirms.published() was told, of both channels.
    ``watched``: name of a header, as octets; then ``routes`` may also have (exchange, routing key, entry).
    ``delayed``: the queues of messages that an exchange delays, or None. ``now_ms``: when reads come.
    """

    now_ms = NOW_MS
    watched = b""
    delayed = None

    def __init__(self, frame_max=4096, **options):
        self.log = []
        self.exchange = ExchangeState()
        self.permission = ExchangeState()
        self.routes = {(b"", b"q"): [NotingQueue("q", self.log)]}
        self.route_calls = 0
        self.outrun = []
        self.stops_at = None
        self.has_time = lambda: True
        self.buffers = HubBuffers(frame_max)
        self.channels = {1: HotChannel(1), 2: HotChannel(2)}
        self.confirmed = []
        for channel in self.channels.values():
            channel.confirms = SimpleNamespace(
                published=lambda *arguments: self.confirmed.append(arguments))
        self.scheduler = patient_scheduler(HandLoop())
        self.lane = FastLane(self, self.buffers, self.channels, frame_max, self.scheduler, **options)
        self.tail = b""

    def slow_frame(self, kind, channel, payload):
        self.log.append(("slow", kind, channel, payload))
        return self.stops_at is None or (kind, channel, payload) != self.stops_at

    def route(self, exchange, routing_key, entry):
        self.route_calls += 1
        queues = self.routes.get((exchange, routing_key, entry) if entry else (exchange, routing_key))
        watched = short(self.watched) if self.watched else b""
        if queues is None:
            return None
        delayed = None if self.delayed is None else Route(self.delayed, self.exchange, self.permission)
        return Route(queues, self.exchange, self.permission, watched, delayed)

    def outruns(self, queues):
        self.outrun.append([queue.name for queue in queues])

    def read(self, octets):
        """One read of the connection, as net.stream does it. Returns the log."""
        start = self.buffers.reserve - len(self.tail)
        assert start >= 0
        end = self.buffers.reserve + len(octets)
        self.buffers.input[start:end] = self.tail + octets
        # What lies behind the read must never be looked at.
        self.buffers.input[end:end + 64] = b"\xce" * len(self.buffers.input[end:end + 64])
        try:
            position = self.lane.process(start, end, self.now_ms)
        finally:
            self.lane.finish()
        self.tail = bytes(self.buffers.input[position:end])
        return self.log

    def feed(self, octets, size=None):
        """Any number of octets in reads of ``size`` (at most what a read can take)."""
        size = min(size or self.buffers.input_octets, self.buffers.input_octets)
        for at in range(0, len(octets), size):
            self.read(octets[at:at + size])
        return self.log
