"""The loads of the soak: each makes something, uses it in an unusual order and leaves nothing behind."""
import base64
import http.client
import socket
from urllib.parse import urlsplit

from gomq_py.client.connection import Connection
from gomq_py.client.errors import ChannelClosed, ClosedError
from gomq_py.client.mqtt import MQTTClient, Session
from gomq_py.content.properties import Properties
from gomq_py.mqtt.wire.packets import Will

PERSISTENT = Properties(delivery_mode=2)
SIZES = (0, 16, 16, 200, 200, 1000, 5000, 30_000, 300_000)


class Load:
    """One kind of churn; ``random`` is its own. ``count`` is how many turns it has taken."""

    def __init__(self, uri, management, random, mqtt_uri=""):
        self.uri = uri
        self.mqtt_uri = mqtt_uri
        self.management = management
        self.random = random
        self.count = 0

    def turn(self):
        """One round; nothing of it is left in the broker afterwards."""
        raise NotImplementedError

    def body(self):
        """A body of some size."""
        return b"x" * self.random.choice(SIZES)


class Connections(Load):
    """Log in and close, drop the socket at once, after half a handshake, with a wrong password,
    with channels open.
    """

    def turn(self):
        how = self.random.randrange(5)
        host, port = urlsplit(self.uri).hostname, urlsplit(self.uri).port
        if how == 0:
            with Connection(self.uri) as connection:
                connection.channel()
        elif how == 1:
            connection = Connection(self.uri)
            connection.channel().queue_declare(exclusive=True)
            connection.abort()
        elif how == 2:
            with socket.create_connection((host, port)) as raw:
                raw.sendall(b"AMQP\x00\x00\x09\x01"[:self.random.randrange(9)])
        elif how == 3:
            with socket.create_connection((host, port)) as raw:
                raw.sendall(b"GET / HTTP/1.0\r\n\r\n")
                raw.recv(100)
        else:
            try:
                # Never guest, whose right logins would wait for the wrong ones to be forgotten,
                # nor twice the same.
                Connection(self.uri.replace("guest:guest", f"stranger{self.random.randrange(1 << 20)}:wrong"))
            except ClosedError:
                pass


class Channels(Load):
    """Open and close channels, some by an error."""

    def turn(self):
        with Connection(self.uri) as connection:
            for _ in range(20):
                channel = connection.channel()
                if self.random.random() < 0.3:
                    try:
                        channel.queue_declare("there is no such queue", passive=True)
                    except ChannelClosed:
                        continue
                channel.close()


class Queues(Load):
    """Declare queues of every kind with bindings, put messages in, delete them full or empty."""

    KINDS = (
        {}, {"x-max-length": 3}, {"x-message-ttl": 50}, {"x-max-priority": 5},
        {"x-max-length": 2, "x-overflow": "reject-publish"},
        {"x-expires": 100},
        {"x-dead-letter-exchange": "", "x-dead-letter-routing-key": "soak.dead", "x-max-length": 1},
    )

    def turn(self):
        arguments = self.random.choice(self.KINDS)
        name = f"soak.{self.random.randrange(1 << 40)}"
        try:
            self._use(name, arguments)
        except ChannelClosed:
            if "x-expires" not in arguments:  # those may go in the middle of it
                raise
            with Connection(self.uri) as connection:  # or some hundred exchanges an hour would stay
                connection.channel().exchange_delete(f"{name}.x")

    def _use(self, name, arguments):
        with Connection(self.uri) as connection:
            channel = connection.channel()
            durable = self.random.random() < 0.7
            channel.queue_declare(name, durable=durable, arguments=arguments)
            channel.exchange_declare(
                f"{name}.x", type=self.random.choice(("topic", "headers", "fanout", "x-consistent-hash")),
                durable=durable,
            )
            channel.queue_bind(name, f"{name}.x", "1", {"a": 1})
            for number in range(self.random.randrange(20)):
                properties = Properties(delivery_mode=1 + number % 2, priority=number % 7, headers={"a": 1})
                channel.publish(self.random.choice(("", f"{name}.x")), name, self.body(), properties)
            channel.exchange_delete(f"{name}.x")
            if self.random.random() < 0.5:
                channel.queue_purge(name)
            channel.queue_delete(name)


class Consumers(Load):
    """Publish with confirms, consume, acknowledge, reject and requeue;
    some consumers go without a word, with messages in hand.
    """

    def turn(self):
        random = self.random
        with Connection(self.uri) as connection:
            name = f"soak.work.{random.randrange(1 << 40)}"
            channel = connection.channel()
            channel.queue_declare(name, durable=True)
            channel.confirm_select()
            count = random.randrange(1, 200)
            for _ in range(count):
                channel.publish("", name, self.body(), PERSISTENT)
            channel.wait_for_confirms()
            self._leave_in_hand(name)
            consumer = connection.channel()
            consumer.qos(random.choice((1, 10, 100)))
            consumer.consume(name, consumer_tag="c")
            left = count
            while left:
                delivery = consumer.next_delivery(30)
                if delivery is None:
                    raise AssertionError(f"{left} of {count} messages do not come")
                draw = random.random()
                if draw < 0.2 and not delivery.redelivered:
                    delivery.nack(requeue=True)
                    continue
                left -= 1
                if draw < 0.3:
                    delivery.reject(requeue=False)
                else:
                    delivery.ack()
            consumer.cancel("c")
            channel.queue_delete(name)

    def _leave_in_hand(self, name):
        connection = Connection(self.uri)
        channel = connection.channel()
        channel.qos(self.random.choice((0, 5)))
        channel.consume(name)
        channel.next_delivery(1)
        connection.abort()


class Transactions(Load):
    """Commit and roll back publishes and acknowledgements."""

    def turn(self):
        with Connection(self.uri) as connection:
            channel = connection.channel()
            name = channel.queue_declare(exclusive=True).queue
            channel.tx_select()
            for _ in range(5):
                for _ in range(self.random.randrange(20)):
                    channel.publish("", name, self.body(), PERSISTENT)
                delivery = channel.get(name)
                if delivery is not None:
                    delivery.ack()
                if self.random.random() < 0.5:
                    channel.tx_commit()
                else:
                    channel.tx_rollback()


class Scrapes(Load):
    """What monitoring and the pages ask for."""

    PATHS = (
        "/api/overview", "/api/queues", "/api/connections", "/api/channels", "/api/exchanges", "/metrics",
        "/api/definitions", "/api/nodes", "/nope",
    )
    LOGIN = {"Authorization": "Basic " + base64.b64encode(b"guest:guest").decode()}

    def turn(self):
        if self.management is None:
            return
        connection = http.client.HTTPConnection(*self.management, timeout=30)
        for path in self.random.sample(self.PATHS, 3):
            connection.request("GET", path, headers=self.LOGIN)
            answer = connection.getresponse()
            answer.read()
            if answer.status >= 500:
                raise AssertionError(f"{path}: {answer.status}")
        connection.close()


class Devices(Load):
    """MQTT clients of every version: sessions that last and are taken over, retained messages, wills, shares
    and all steps of QoS 1 and 2, some of them left unfinished.
    """

    def turn(self):
        version = self.random.choice((3, 4, 5))
        kept, topic = self.random.random() < 0.5, f"soak/{self.random.randrange(50)}"
        session = Session()
        will = Will(topic, b"gone", self.random.randrange(3))
        ours = self._client(version, "receiver", not kept, session, will)
        shared = self.random.random() < 0.3
        ours.subscribe(f"$share/soak/{topic}" if shared else "soak/+", qos=self.random.randrange(3))
        sender = self._client(self.random.choice((4, 5)), "sender", True, Session())
        for _ in range(self.random.randrange(1, 30)):
            sender.begin_publish(topic, self.body(), self.random.randrange(3), self.random.random() < 0.2)
        if self.random.random() < 0.7:
            sender.wait_acknowledged()
        while ours.next_message(0.01) is not None:
            pass
        if self.random.random() < 0.5:
            ours.abort()
        if kept:
            ours = self._client(version, "receiver", False, session)  # taken over where it is still there
            ours.ping()
        ours.abort()
        self._client(version, "receiver", True, Session()).close()
        sender.publish(topic, b"", 1, retain=True)
        sender.close()

    def _client(self, version, name, clean, session, will=None):
        return MQTTClient(
            self.mqtt_uri, version=version, client_identifier=f"soak-{name}", clean_start=clean,
            session=session, will=will,
            properties={"session_expiry_interval": 600} if version == 5 and not clean else None)


LOADS = (Connections, Channels, Queues, Consumers, Consumers, Transactions, Scrapes, Devices)
