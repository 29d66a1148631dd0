"""Publisher: an AMQP client that publishes durable messages with confirms to one queue, through whichever
node leads, each message once.
"""
from gomq_py.amqp.wire import methods
from gomq_py.amqp.wire.frames import content_frames, method_frame
from gomq_py.content.properties import Properties
from tests.simulation.amqp_clients import AMQPClient

QUEUE = "jobs"
MOST_UNCONFIRMED = 20
SIZES = (0, 0, 100, 1000, 20000)
PERSISTENT = 2


class Publisher(AMQPClient):
    """``judge`` hears of what is published and confirmed. ``share``: of acts in which it publishes."""

    def __init__(self, world, network, name, judge, ports):
        super().__init__(world, network, name, None, [(PublishingChannel, judge)], ports[0])
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
