"""Publishers and consumers that reconnect to any node, each in a thread of its own, and keep the account.

A client takes the nodes in turn until one serves it, and gives up a connection on which nothing comes of what
it waits for. It never publishes a number twice by itself: MQTT's sessions do.
"""
import threading
import time

from gomq_py.client.connection import Connection
from gomq_py.client.errors import ClientError
from gomq_py.client.mqtt import MQTTClient
from tests.cluster_rounds.accounts import Reading
from tests.durability import test_mqtt_kill
from tests.durability.account import body_of, number_in
from tests.support.waiting import in_time

GONE = (ClientError, OSError)
ANSWER_S = in_time(2)
HEARTBEAT_S = 2
# A publisher without a confirm for so long tries another node. Longer than the lease of a cluster: a leader
# that is fenced for a moment keeps its clients.
IMPATIENCE_S = in_time(3)
WINDOW = 20
# Rates are low: what is tested are faults, on a machine that runs eight processes.
TURN_S = 0.05
PER_TURN = 5
PREFETCH = 30
# Of bodies: segments are full soon, and a disk without room is noticed.
SIZES = (16, 40, 300, 1500, 4000)


class Client:
    """``doors(protocol)``: the ports of all nodes. A thread runs ``serve`` on one connection after another.
    """

    def __init__(self, name, doors):
        self.name = name
        self._doors = doors
        self._turn = 0
        self._stopping = threading.Event()
        self._pausing = threading.Event()
        self._has_paused = False
        self.connections = 0
        self.faults = []  # unexpected errors
        self.last_loss = None
        self.thread = threading.Thread(target=self._run, name=name, daemon=True)

    protocol = "amqp"

    def pause(self):
        """Publish nothing new; take nothing."""
        self._pausing.set()

    def resume(self):
        """Go on."""
        self._pausing.clear()
        self._has_paused = False

    def may_work(self):
        """Whether it does not pause. Once a paused publisher has asked, nothing new is on its way."""
        self._has_paused = self._pausing.is_set()
        return not self._has_paused

    def stop(self):
        """End soon; ``thread`` is to be joined."""
        self._stopping.set()

    def _run(self):
        while not self._stopping.is_set():
            ports = self._doors(self.protocol)
            self.may_work()
            self._turn += 1
            try:
                self.serve(ports[self._turn % len(ports)])
            except GONE as error:
                self.last_loss = error
                self._stopping.wait(TURN_S)
            except Exception as error:  # the test fails with it
                self.faults.append(f"{self.name}: {type(error).__name__}: {error}")
                self._stopping.wait(TURN_S)

    def serve(self, port):
        """Connect and go on until the connection is gone. Raises one of GONE."""
        raise NotImplementedError


class AMQPClient(Client):
    """An AMQP client with one channel."""

    def serve(self, port):
        connection = Connection(
            f"amqp://guest:guest@127.0.0.1:{port}", timeout_s=ANSWER_S, heartbeat_s=HEARTBEAT_S,
            name=self.name)
        try:
            self.run(connection, connection.channel())
        finally:
            connection.abort()

    def run(self, connection, channel):
        """Work until the connection is gone, or this client is to stop."""
        raise NotImplementedError


class Publisher(AMQPClient):
    """Publishes numbers to a queue, with confirms."""

    def __init__(self, account, doors):
        super().__init__(f"publisher of {account.name}", doors)
        self.account = account
        self._numbers = {}  # delivery tag -> number

    @property
    def is_quiet(self):
        """Whether it pauses, and waits for no confirm of a connection that lives."""
        return self._has_paused and not self._numbers

    def run(self, connection, channel):
        account, self._numbers = self.account, {}
        account.generation += 1
        channel.confirm_select()
        channel.confirm_listener = self._confirmed
        self.connections += 1
        heard = time.monotonic()
        try:
            while not self._stopping.is_set():
                if self.may_work():
                    self._publish(channel)
                before = len(account.confirmed)
                _drain_for(connection, TURN_S)
                if len(account.confirmed) > before or not self._numbers:
                    heard = time.monotonic()
                if time.monotonic() > heard + IMPATIENCE_S:
                    raise TimeoutError("no confirm")
        finally:
            self._numbers = {}

    def _publish(self, channel):
        account = self.account
        for _ in range(min(PER_TURN, WINDOW - len(self._numbers))):
            number = len(account.sent)
            account.sent[number] = account.generation
            self._numbers[channel.published + 1] = number
            channel.publish("", account.name, body_of(number, SIZES[number % len(SIZES)]), PERSISTENT)

    def _confirmed(self, tags, is_refused):
        for tag in tags:
            number = self._numbers.pop(tag)
            if not is_refused:
                self.account.confirmed.add(number)


# The properties' flags with delivery-mode alone, and 2.
PERSISTENT = b"\x10\x00\x02"


class Consumer(AMQPClient):
    """Takes what comes, and acknowledges it; has its prefetch unacknowledged while it pauses."""

    def __init__(self, account, doors):
        super().__init__(f"consumer of {account.name}", doors)
        self.account = account

    def run(self, connection, channel):
        reading = Reading(self.account)
        channel.qos(PREFETCH)
        channel.consume(self.account.name)
        self.connections += 1
        while not self._stopping.is_set():
            if not self.may_work():
                _drain_for(connection, TURN_S)
            elif (delivery := channel.next_delivery(TURN_S)) is not None:
                reading.take(number_in(delivery.body), delivery.redelivered)
                delivery.ack()


class StreamConsumer(AMQPClient):
    """Reads a stream from where it was."""

    def __init__(self, account, doors):
        super().__init__(f"consumer of {account.name}", doors)
        self.account = account

    def run(self, connection, channel):
        account = self.account
        channel.qos(PREFETCH)
        read_stream(channel, account.name, max(account.places, default=-1) + 1)
        self.connections += 1
        while not self._stopping.is_set():
            if (delivery := channel.next_delivery(TURN_S)) is not None:
                account.places.setdefault(offset_of(delivery), number_in(delivery.body))
                delivery.ack()


def read_stream(channel, name, offset):
    """Consume a stream from an offset on."""
    channel.consume(name, arguments={"x-stream-offset": offset})


def offset_of(delivery):
    """The place of a message in its stream."""
    return delivery.properties.headers["x-stream-offset"]


def whole_stream(port, name):
    """(offset, number) of everything in a stream. Raises one of GONE, and AssertionError."""
    with Connection(f"amqp://guest:guest@127.0.0.1:{port}", timeout_s=ANSWER_S) as connection:
        channel = connection.channel()
        count = channel.queue_declare(name, passive=True).message_count
        channel.qos(1000)
        read_stream(channel, name, 0)
        found = []
        while len(found) < count:
            delivery = channel.next_delivery(ANSWER_S)
            assert delivery is not None, f"{len(found)} of {count} messages of the stream {name} came"
            found.append((offset_of(delivery), number_in(delivery.body)))
            delivery.ack()
        return found


class _Party:
    """What both MQTT clients have that is not of a test with one broker."""

    session_seconds = 3600

    def connect(self, port):
        """Begin or go on with the session, which must be there once it was."""
        self.drop()
        self.client = MQTTClient(
            f"mqtt://guest:guest@127.0.0.1:{port}", version=self.version, client_identifier=self.name,
            clean_start=False, session=self.session, timeout_s=ANSWER_S, keep_alive_s=HEARTBEAT_S,
            properties={"session_expiry_interval": self.session_seconds} if self.version == 5 else None)
        assert self.client.connack.session_present == (self.connections > 0), f"the session of {self.name}"
        self.connections += 1


class SessionPublisher(_Party, test_mqtt_kill.Publisher):
    """Publishes at QoS 1 and 2, as that test's."""

    def fill(self):
        """A few of both."""
        for _ in range(min(PER_TURN, WINDOW - len(self.session.outgoing))):
            for qos in (1, 2):
                self._publish(f"k/{qos}", self.published, qos)


class SessionSubscriber(_Party, test_mqtt_kill.Subscriber):
    """Keeps what comes, as that test's."""


class MQTTPublisherThread(Client):
    """Runs a SessionPublisher."""

    protocol = "mqtt"

    def __init__(self, party, doors):
        super().__init__("publisher of mqtt", doors)
        self.party = party

    @property
    def is_quiet(self):
        """Whether it pauses, and everything is acknowledged."""
        return self._has_paused and not self.party.session.outgoing

    def serve(self, port):
        party, heard = self.party, time.monotonic()
        try:
            party.connect(port)
            self.connections += 1
            while not self._stopping.is_set():
                if self.may_work():
                    party.fill()
                before = _steps(party.session)
                _drain_for(party.client, TURN_S)
                if not before or before - _steps(party.session):
                    heard = time.monotonic()
                if time.monotonic() > heard + IMPATIENCE_S:
                    raise TimeoutError("nothing acknowledged")
        finally:
            party.drop()


class MQTTSubscriberThread(Client):
    """Runs a SessionSubscriber, which is not connected while it pauses."""

    protocol = "mqtt"

    def __init__(self, party, doors):
        super().__init__("subscriber of mqtt", doors)
        self.party = party
        self.is_subscribed = False

    def serve(self, port):
        party = self.party
        if not self.may_work():
            self._stopping.wait(TURN_S)
            return
        try:
            party.connect(port)
            self.connections += 1
            if not self.is_subscribed:
                party.subscribe()
                self.is_subscribed = True
            while not self._stopping.is_set() and self.may_work():
                party.step(TURN_S)
        finally:
            party.drop()


def _steps(session):
    """What waits for an answer of which kind."""
    return {(identifier, type(packet)) for identifier, packet in session.outgoing.items()}


def _drain_for(client, seconds):
    """Handle what comes within so many seconds."""
    until = time.monotonic() + seconds
    while time.monotonic() < until:
        client.receive(until)
