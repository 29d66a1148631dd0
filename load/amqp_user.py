"""Locust users that speak AMQP, to derive scenarios from.

On gomq_py.client with gevent's sockets: Locust is built on gevent.

Each user has a connection of its own, used by its own greenlet. What it does is told to Locust's statistics
under the type AMQP: how long a confirm took, an answer, and from a publish to its delivery.
"""

import itertools
import os
import time
import uuid
from collections import defaultdict
from urllib.parse import urlsplit

import gevent
import gevent.socket
from locust import User, events

from gomq_py.client.connection import Connection
from gomq_py.client.errors import ClientError
from gomq_py.content.properties import Properties

_CONFIRMED, _DELIVERED = 1, 2
# Before a user whose connection is gone, and who got no other, goes on.
_AGAIN_S = 1.0


class Account:
    """What publishers were promised, and what consumers got:
    of each publisher the messages are numbered from 0.
    """

    def __init__(self):
        self._marks = defaultdict(bytearray)
        self.confirmed_count = self.delivered_count = self.again_count = 0

    def confirmed(self, publisher, numbers):
        """The broker has confirmed them."""
        for number in numbers:
            self._mark(publisher, number, _CONFIRMED)
            self.confirmed_count += 1

    def delivered(self, publisher, number):
        """A consumer has it."""
        if self._mark(publisher, number, _DELIVERED) & _DELIVERED:
            self.again_count += 1
        else:
            self.delivered_count += 1

    def missing(self):
        """How many were confirmed and not delivered."""
        return sum(marks.count(_CONFIRMED) for marks in self._marks.values())

    def _mark(self, publisher, number, mark):
        marks = self._marks[publisher]
        if number >= len(marks):
            marks.extend(bytes(number + 1 - len(marks)))
        before = marks[number]
        marks[number] = before | mark
        return before


# One for each process: with several (locust --worker) each has queues of its own,
# so that each account balances alone.
ACCOUNT = Account()
PREFIX = f"load.{os.getpid()}.{uuid.uuid4().hex[:6]}"
_publishers = itertools.count()


def amqp_url(host):
    """The URL of a broker: LOAD_AMQP_URL, or the machine of Locust's --host with guest's login."""
    if os.environ.get("LOAD_AMQP_URL"):
        return os.environ["LOAD_AMQP_URL"]
    return f"amqp://guest:guest@{urlsplit(host).hostname}:5672/%2f"


def next_publisher():
    """A number for whoever publishes what is in the account."""
    return next(_publishers)


class TellingUser(User):
    """Tells Locust's statistics what it does, under the type ``protocol``."""

    abstract = True
    protocol = ""

    def timed(self, line, function, /, *args, octets=0, **options):
        """``function(*args)``, told as a line; an error is told and raised."""
        began = time.perf_counter()
        try:
            result = function(*args, **options)
        except (ClientError, OSError) as error:
            self.tell(line, (time.perf_counter() - began) * 1000, octets, error)
            raise
        self.tell(line, (time.perf_counter() - began) * 1000, octets)
        return result

    def tell(self, name, milliseconds, octets=0, error=None):
        """A line of the statistics."""
        self.environment.events.request.fire(
            request_type=self.protocol,
            name=name,
            response_time=milliseconds,
            response_length=octets,
            exception=error,
            context={},
        )


class AmqpUser(TellingUser):
    """Connects when it starts.

    Derive from it, declare in ``prepare`` and give it tasks; ``timed`` tells Locust.
    """

    abstract = True
    protocol = "AMQP"

    def on_start(self):
        """Locust starts the user."""
        self.connection = self.connect()
        self.channel = self.connection.channel()
        self.prepare()

    def on_stop(self):
        """Locust ends it."""
        if not self.connection.closed:
            self.connection.close()

    def connect(self):
        """One more connection, timed."""
        return self.timed(
            "connect",
            Connection,
            amqp_url(self.host),
            socket_module=gevent.socket,
            name=type(self).__name__,
            heartbeat_s=30,
        )

    def prepare(self):
        """Declare what the scenario needs."""


@events.user_error.add_listener
def come_back(user_instance, **_):
    """A user whose connection is gone makes another one, as a program does: a broker that was away has its
    load again, and its queues their consumers.
    """
    user = getattr(user_instance, "user", None)  # a set of tasks; a user itself has not even started
    if not isinstance(user, AmqpUser) or not user.connection.closed:
        return
    try:
        user.on_start()
    except (ClientError, OSError):  # told as a line of the statistics
        gevent.sleep(_AGAIN_S)


class PublishingUser(AmqpUser):
    """``publish`` sends messages that are accounted for, and waits for their confirms."""

    abstract = True
    size = 256

    def on_start(self):
        self.number = next_publisher()
        self._sent = 0
        super().on_start()
        self.channel.confirm_select()

    def publish(self, exchange, routing_key, count=1, name="publish confirmed"):
        """``count`` persistent messages in one write."""
        first, self._sent = self._sent, self._sent + count
        numbers = range(first, self._sent)
        properties = Properties(delivery_mode=2).encode()
        messages = [(exchange, routing_key, self._body(number), properties) for number in numbers]

        def send():
            self.channel.publish_many(messages)
            if not self.channel.wait_for_confirms():
                raise ClientError("the broker refused a message")

        began = time.perf_counter()
        try:
            send()
        except (ClientError, OSError) as error:
            self.tell(name, (time.perf_counter() - began) * 1000, self.size, error)
            raise
        ACCOUNT.confirmed(self.number, numbers)
        for _ in numbers:
            self.tell(name, (time.perf_counter() - began) * 1000, self.size)

    def _body(self, number):
        return b"%d %d %d " % (self.number, number, time.time_ns()) + b"x" * self.size


class ConsumingUser(AmqpUser):
    """Consumes its ``queue`` with manual acks, and accounts for what comes.

    What it does not want is rejected.
    """

    abstract = True
    prefetch = 50
    queue = ""
    latency_name = "publish to delivery"

    def consume(self, **options):
        """From ``prepare``."""
        self.channel.qos(self.prefetch)
        self.channel.consume(self.queue, self._delivered, **options)

    def work(self, seconds=1.0):
        """Take what comes for so long."""
        deadline = time.monotonic() + seconds
        while (left_s := deadline - time.monotonic()) > 0:
            self.connection.drain(left_s)

    def wants(self, delivery):
        """Whether to take it."""
        return True

    def latency_name_of(self, delivery):
        """The line of the statistics for it."""
        is_retried = b"x-death" in delivery.raw_properties
        return f"{self.latency_name}, retried" if is_retried else self.latency_name

    def _delivered(self, delivery):
        publisher, number, sent_ns, _ = delivery.body.split(b" ", 3)
        if not delivery.redelivered:
            # What was refused once has waited in the retry queue, and has a line of its own.
            passed_ms = (time.time_ns() - int(sent_ns)) / 1e6
            self.tell(self.latency_name_of(delivery), passed_ms, len(delivery.body))
        if self.wants(delivery):
            # Noted before the ack: Locust may end this greenlet while it is sent.
            ACCOUNT.delivered(int(publisher), int(number))
            delivery.ack()
        else:
            delivery.reject(requeue=False)
