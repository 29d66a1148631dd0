"""AMQP clients: a connection with channels, of which each publishes to a queue, consumes from one, or both.

``login`` is a generator that sends and is given the methods that come, up to connection.open-ok. What comes
later is its channel's: see amqp_channel. Built on the shared codec: conformance is checked elsewhere.
"""
from gomq_py.amqp.wire import methods
from gomq_py.amqp.wire.frames import (
    FRAME_BODY, FRAME_HEADER, FRAME_HEARTBEAT, FRAME_METHOD, PROTOCOL_HEADER, FrameReader, decode_header,
    method_frame,
)
from gomq_py.amqp.wire.methods import decode_method
from tests.simulation.client import Client
from tests.simulation.network import AMQP_PORT
from tests.simulation.world import without_places

FRAME_SIZES = (4096, 131072)
WITH_CONTENT = (methods.BasicDeliver, methods.BasicGetOk, methods.BasicReturn)

# Beginnings of the names of answers that promise something.
PROMISES = ("queue.", "exchange.", "tx.commit")
# Why the broker ends a connection or channel: an orderly stop, a disk that fails, a queue that is full.
EXPECTED = (
    " 320 ", " 541 ", "No space left", "Input/output error", "is closed after a fault of its store",
    "partial tx completion")


def awaited(asked, unconfirmed):
    """What ``awaits`` returns, of a channel: the first that it has ``asked``, and confirms."""
    answers = asked[0][0] if asked else ()
    name = getattr(answers, "NAME", "")  # of basic.get it has several
    return ["confirm"] * bool(unconfirmed) + [name] * name.startswith(PROMISES)


class AMQPClient(Client):
    """``roles``: of each channel its class and what that takes. ``frame_max``: of its connection.
    ``expects``: parts of texts with which the broker may end this connection or a channel of it.
    """

    properties = {}
    heartbeat_s = 0

    def __init__(self, world, network, name, book, roles, port=AMQP_PORT):
        super().__init__(world, network, name, port)
        self.book = book
        self.frame_max = 0
        self.is_closing = False
        self.expects = set()
        self._channels = [kind(self, number, *role) for number, (kind, *role) in enumerate(roles, 1)]

    def begin(self):
        self.frame_max = self.random.choice(FRAME_SIZES)
        self.is_closing = False
        self.expects.clear()
        self._reader = FrameReader(0)
        self._contents = {}  # channel -> [method, octets missing, properties, parts]
        self._login = self.login()
        self.send(PROTOCOL_HEADER)
        next(self._login)

    def login(self):
        """From the protocol's header to a connection with channels; yields for each method to come."""
        yield from self._awaited(methods.ConnectionStart)
        self.tell(0, methods.ConnectionStartOk(
            mechanism="PLAIN", response=b"\0guest\0guest", locale="en_US",
            client_properties=self.properties))
        yield from self._awaited(methods.ConnectionTune)
        self.tell(0, methods.ConnectionTuneOk(
            channel_max=2047, frame_max=self.frame_max, heartbeat=self.heartbeat_s))
        self.tell(0, methods.ConnectionOpen(virtual_host="/"))
        yield from self._awaited(methods.ConnectionOpenOk)
        self.opened()
        for channel in self._channels:
            channel.open(self._end)
        yield from self._awaited(methods.ConnectionCloseOk)
        for channel in self._channels:
            channel.check_confirmed()
        self.leave("has closed")
        yield

    def tell(self, channel, method):
        """Send a method."""
        self.send(method_frame(channel, method))

    def _awaited(self, kind):
        method = yield
        if not isinstance(method, kind):
            self.world.find(f"{self.name} was told {method} in place of {kind.NAME}")

    def awaits(self):
        if not self.is_open:
            return ()
        return [kind for channel in self._channels for kind in channel.awaits()]

    def heard(self):
        """Something that was asked for has come."""
        self.is_answered(not self.is_closing and all(channel.is_idle() for channel in self._channels))

    def take(self, octets):
        self._reader.feed(octets)
        while self._end is not None and (frame := self._reader.next_frame()) is not None:
            self._take_frame(*frame)

    def _take_frame(self, kind, channel, payload):
        if kind == FRAME_HEARTBEAT:
            return
        if kind == FRAME_METHOD:
            method = decode_method(payload)
            if isinstance(method, WITH_CONTENT):
                self._contents[channel] = [method, 0, b"", []]
            else:
                self._take_method(channel, method)
            return
        content = self._contents[channel]
        if kind == FRAME_HEADER:
            _, content[1], content[2] = decode_header(payload)
        elif kind == FRAME_BODY:
            content[1] -= len(payload)
            content[3].append(payload)
            if len(payload) > self.frame_max - 8:
                self.world.find(f"{self.name} has a frame of {len(payload)} octets")
        if not content[1]:
            del self._contents[channel]
            method, _, properties, parts = content
            self._channels[channel - 1].take(method, properties, b"".join(parts))

    def _take_method(self, channel, method):
        if isinstance(method, (methods.ConnectionClose, methods.ChannelClose)):
            text = f"is told {method.reply_code} {without_places(method.reply_text)}"
            if not any(expected in text for expected in (*EXPECTED, *self.expects)):
                self.world.find(f"{self.name} {text}")
            self.leave(text)
        elif channel:
            self._channels[channel - 1].take(method)
        else:
            self._login.send(method)
            self.heard()

    def act(self):
        for channel in self._channels if self.is_calm else [self.random.choice(self._channels)]:
            if not self.is_closing:
                channel.act(self.is_calm)

    def close(self):
        """Say that it goes, and go."""
        self.say("closes")
        self.is_closing = True
        for channel in self._channels:
            channel.shut()
        self.waits()
        self.tell(0, methods.ConnectionClose(reply_code=200, reply_text=""))

    def reopened_at_s(self, queue):
        """When an operator has restarted this queue, which a fault of the disk had closed."""
        listening = self._network.listening.get(self._port)
        return -1.0 if listening is None else listening.process.reopened_at_s.get(queue, -1.0)

    def say_goodbye(self):
        if self.is_open and not self.is_closing:
            self.close()

    def gone(self):
        for channel in self._channels:
            channel.lose()
