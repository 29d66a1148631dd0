"""Clients of the queue: publishers of durable messages with confirms, each message once, and consumers that
acknowledge some; through whichever node leads.
"""
import re

from gomq_py.amqp.wire import methods
from gomq_py.amqp.wire.frames import content_frames, method_frame
from gomq_py.content.properties import Properties
from tests.simulation.amqp_clients import AMQPClient

QUEUE = "jobs"
MOST_UNCONFIRMED = 20
SIZES = (0, 0, 100, 1000, 20000)
PERSISTENT = 2
PREFETCHES = (1, 10, 100)
MARK = re.compile(rb"<(\d+)>")  # in front of each body: the number of the message


class QueueClient(AMQPClient):
    """With a channel of the class ``kind``. ``judge`` hears of what is published, confirmed, delivered and
    acknowledged. ``share``: of acts in which it does something.
    """

    def __init__(self, world, network, name, kind, judge, ports):
        super().__init__(world, network, name, None, [(kind, judge)], ports[0])
        self._ports = ports
        self.share = 1.0

    def _connect(self):
        there = [port for port in self._ports if port in self._network.listening]
        if there:
            self._port = self.random.choice(there)
        super()._connect()


class PublishingChannel:
    """A channel of it."""

    def __init__(self, client, number, judge):
        self._client, self._number, self._judge = client, number, judge
        self._connections = 0
        self.lose()

    def open(self, end):
        """There is a connection."""
        self._connections += 1
        self._tell(methods.ChannelOpen())
        self._tell(methods.QueueDeclare(queue=QUEUE, durable=True))
        self._tell(methods.ConfirmSelect())

    def lose(self):
        """The connection is lost."""
        self._is_open = False
        self._tag = 0
        self._unconfirmed = {}  # delivery tag -> number of the message

    shut = lose

    def awaits(self):
        """As a client's."""
        return ["confirm"] * bool(self._unconfirmed)

    def is_idle(self):
        """Whether it waits for nothing."""
        return self._is_open and not self._unconfirmed

    def check_confirmed(self):
        """It never closes."""

    def act(self, is_calm):
        """Publish something, unless it is calm."""
        may_publish = self._is_open and not is_calm and len(self._unconfirmed) < MOST_UNCONFIRMED
        if may_publish and self._client.random.random() < self._client.share:
            number = self._judge.publishes(f"{self._client.name} {self._connections}")
            self._tag += 1
            self._unconfirmed[self._tag] = number
            self._client.say(f"publishes {number}")
            self._client.waits()
            body = b"<%d>" % number + b"." * self._client.random.choice(SIZES)
            self._client.send(
                method_frame(self._number, methods.BasicPublish(exchange="", routing_key=QUEUE))
                + content_frames(
                    self._number, Properties(delivery_mode=PERSISTENT).encode(), body,
                    self._client.frame_max))

    def take(self, method, *content):
        """A method has come."""
        if isinstance(method, methods.ConfirmSelectOk):
            self._is_open = True
        elif isinstance(method, (methods.BasicAck, methods.BasicNack)):
            tags = [tag for tag in self._unconfirmed
                    if tag == method.delivery_tag or method.multiple and tag <= method.delivery_tag]
            numbers = [self._unconfirmed.pop(tag) for tag in tags]
            if isinstance(method, methods.BasicAck):
                self._client.say(f"has {numbers} confirmed")
                self._judge.confirmed(numbers)
        self._client.heard()

    def _tell(self, method):
        self._client.waits()
        self._client.tell(self._number, method)


class ConsumingChannel:
    """A channel of a client that consumes."""

    def __init__(self, client, number, judge):
        self._client, self._number, self._judge = client, number, judge
        self.lose()

    def open(self, end):
        """There is a connection."""
        prefetch = self._client.random.choice(PREFETCHES)
        for method in (
                methods.ChannelOpen(), methods.QueueDeclare(queue=QUEUE, durable=True),
                methods.BasicQos(prefetch_count=prefetch), methods.BasicConsume(queue=QUEUE)):
            self._client.tell(self._number, method)

    def lose(self):
        """The connection is lost."""
        self._held = {}  # delivery tag -> number of the message

    shut = lose

    def awaits(self):
        """It waits for nothing that is promised."""
        return ()

    @staticmethod
    def is_idle():
        """Whether it waits for nothing."""
        return True

    def check_confirmed(self):
        """It never closes."""

    def act(self, is_calm):
        """Acknowledge something, or everything, unless it is calm."""
        if self._held and not is_calm and self._client.random.random() < self._client.share:
            tag, multiple = self._client.random.choice(list(self._held)), self._client.random.random() < 0.5
            tags = [other for other in self._held if other == tag or multiple and other < tag]
            numbers = [self._held.pop(other) for other in tags]
            self._client.say(f"acks {numbers}")
            self._judge.acked(numbers)
            self._client.tell(self._number, methods.BasicAck(delivery_tag=tag, multiple=multiple))

    def take(self, method, *content):
        """A method has come."""
        if isinstance(method, methods.BasicDeliver):
            self._held[method.delivery_tag] = int(MARK.match(content[1])[1])
        self._client.heard()
