"""AMQP clients: a publisher with confirms and a consumer that acks, for one durable queue.

``login`` is a generator that sends and is given the methods that come, up to the -ok of its queue. What comes
later is dispatched by a table. Built on the shared codec: conformance is checked elsewhere.
"""
from gomq_py.amqp.wire import methods
from gomq_py.amqp.wire.constants import FRAME_BODY, FRAME_HEADER, FRAME_METHOD, PROTOCOL_HEADER
from gomq_py.amqp.wire.frames import FrameReader, content_frames, decode_header, method_frame
from gomq_py.amqp.wire.methods import decode_method
from gomq_py.content.properties import Properties
from tests.simulation.client import Client
from tests.simulation.network import AMQP_PORT
from tests.simulation.world import without_places

PERSISTENT = Properties(delivery_mode=2).encode()
FRAME_MAX = 131072
MOST_UNCONFIRMED = 50
PREFETCHES = (1, 3, 20, 200)


class AMQPClient(Client):
    """``queue``: the name, and ``ledger`` what is known of it."""

    HANDLERS = {}

    def __init__(self, world, network, name, ledger):
        super().__init__(world, network, name, AMQP_PORT)
        self.queue = ledger.name
        self.ledger = ledger

    def begin(self):
        self._reader = FrameReader(0)
        self._content = None  # [method, octets missing, parts]
        self._login = self.login()
        self.send(PROTOCOL_HEADER)
        next(self._login)

    def login(self):
        """From the protocol's header to a declared queue; yields for each method that is to come."""
        yield from self._awaited(methods.ConnectionStart)
        self.send(method_frame(0, methods.ConnectionStartOk(
            mechanism="PLAIN", response=b"\0guest\0guest", locale="en_US")))
        yield from self._awaited(methods.ConnectionTune)
        self.send(method_frame(0, methods.ConnectionTuneOk(
            channel_max=2047, frame_max=FRAME_MAX, heartbeat=0)))
        yield from self.call(methods.ConnectionOpen(virtual_host="/"), methods.ConnectionOpenOk, 0)
        yield from self.call(methods.ChannelOpen(), methods.ChannelOpenOk)
        yield from self.call(methods.QueueDeclare(queue=self.queue, durable=True), methods.QueueDeclareOk)

    def call(self, method, answer, channel=1):
        """Send, and wait for this answer."""
        self.send(method_frame(channel, method))
        return (yield from self._awaited(answer))

    def _awaited(self, kind):
        method, _ = yield
        if not isinstance(method, kind):
            self.ledger.find(f"{self.name} was told {method} in place of {kind.NAME}")
        self.is_answered(False)

    def take(self, octets):
        self._reader.feed(octets)
        while self._end is not None and (frame := self._reader.next_frame()) is not None:
            self._take_frame(*frame)

    def _take_frame(self, kind, _channel, payload):
        if kind == FRAME_METHOD:
            method = decode_method(payload)
            if isinstance(method, methods.BasicDeliver):
                self._content = [method, 0, []]
            else:
                self._take_method(method)
        elif kind == FRAME_HEADER:
            self._content[1] = decode_header(payload)[1]
        elif kind == FRAME_BODY:
            self._content[1] -= len(payload)
            self._content[2].append(payload)
        if kind in (FRAME_HEADER, FRAME_BODY) and not self._content[1]:
            method, _, parts = self._content
            self._take_method(method, b"".join(parts))

    def _take_method(self, method, body=None):
        if isinstance(method, (methods.ConnectionClose, methods.ChannelClose)):
            self.closed(method)
        elif self._login is not None:
            try:
                self._login.send((method, body))
            except StopIteration:
                self._login = None
                self.is_answered(True)
                self.opened()
        else:
            self.HANDLERS[type(method)](self, method, body)

    def closed(self, method):
        """The broker ends it: an orderly stop, or a disk that fails."""
        self.leave(f"is told {method.reply_code} {without_places(method.reply_text)}")


class Publisher(AMQPClient):
    """Publishes persistent messages with confirms, each once. One that is not confirmed when its connection
    ends is nobody's any more.
    """

    def login(self):
        self.ledger.publisher_connects()
        self._unconfirmed = {}  # delivery tag -> number
        self._tag = 0
        yield from super().login()
        yield from self.call(methods.ConfirmSelect(), methods.ConfirmSelectOk)

    def act(self):
        if self.is_calm:
            return
        for _ in range(min(self.random.choice((1, 1, 5, 20)), MOST_UNCONFIRMED - len(self._unconfirmed))):
            number, body = self.ledger.publish()
            self._tag += 1
            self._unconfirmed[self._tag] = number
            self.say(f"publishes {number}")
            self.waits()
            self.send(
                method_frame(1, methods.BasicPublish(exchange="", routing_key=self.queue))
                + content_frames(1, PERSISTENT, body, FRAME_MAX))

    def _acked(self, method, _body):
        numbers = self._take_tags(method)
        self.say(f"is confirmed {numbers}")
        for number in numbers:
            self.ledger.accept(number)

    def _nacked(self, method, _body):
        self.say(f"is refused {self._take_tags(method)}")

    def _take_tags(self, method):
        tags = [tag for tag in self._unconfirmed if tag <= method.delivery_tag] if method.multiple else [
            method.delivery_tag]
        numbers = [self._unconfirmed.pop(tag) for tag in tags]
        self.is_answered(not self._unconfirmed)
        return numbers

    HANDLERS = {methods.BasicAck: _acked, methods.BasicNack: _nacked}


class Consumer(AMQPClient):
    """Takes, acks and gives back. It asks for a basic.qos-ok now and then, which shows that the broker has
    seen everything before that.
    """

    def login(self):
        self._hand = self.ledger.consumer_connects()
        self._unseen = []  # what to call when the next qos-ok has come
        self._asked = []  # the same, of those that were asked for, in order
        yield from super().login()
        yield from self.call(
            methods.BasicQos(prefetch_count=self.random.choice(PREFETCHES)), methods.BasicQosOk)
        yield from self.call(methods.BasicConsume(queue=self.queue), methods.BasicConsumeOk)

    def act(self):
        numbers = list(self._hand.numbers)
        if numbers:
            self._settle(numbers)
        if self._unseen and (self.is_calm or self.random.random() < 0.3):
            self._asked.append(self._unseen)
            self._unseen = []
            self.waits()
            self.send(method_frame(1, methods.BasicQos(prefetch_count=self.random.choice(PREFETCHES))))

    def _settle(self, numbers):
        chance = 0.0 if self.is_calm else self.random.random()
        if chance < 0.4:
            self._ack(numbers[:1 + self.random.randrange(len(numbers))], True)
        elif chance < 0.8:
            self._ack([self.random.choice(numbers)], False)
        else:
            self._give_back(numbers[:self.random.choice((1, 3))])

    def _ack(self, numbers, multiple):
        tag = self._hand.numbers[numbers[-1]]
        self.say(f"acks {numbers}")
        self._unseen.append(self._hand.ack(numbers))
        self.send(method_frame(1, methods.BasicAck(delivery_tag=tag, multiple=multiple)))

    def _give_back(self, numbers):
        tag = self._hand.numbers[numbers[-1]]
        self.say(f"gives back {numbers}")
        self._unseen.append(self._hand.give_back(numbers))
        self.send(method_frame(1, methods.BasicNack(delivery_tag=tag, multiple=True, requeue=True)))

    def _delivered(self, method, body):
        number = self.ledger.number_of(body)
        self.say(f"takes {number}{' again' if method.redelivered else ''}")
        if number is not None:
            self._hand.take(number, method.delivery_tag, method.redelivered)

    def _seen(self, _method, _body):
        for see in self._asked.pop(0):
            see()
        self.is_answered(not self._asked)

    HANDLERS = {methods.BasicDeliver: _delivered, methods.BasicQosOk: _seen}
