"""A mix like real life: workers with manual acks, calls over direct reply-to, devices, retry loops,
readers of a stream, watchers.

Run by ``make load`` and ``make load-ui``; load/README.md says how to point it elsewhere. The account of
confirmed messages is closed at the end of the test: a message that was confirmed and never delivered fails
the run.
"""

import itertools
import json
import logging
import os
import time

import gevent
import gevent.socket
from locust import between, constant, constant_throughput, events, task

from gomq_py.client.connection import Connection
from gomq_py.client.errors import ClientError
from gomq_py.content.properties import Properties
from load.amqp_user import ACCOUNT, PREFIX, AmqpUser, ConsumingUser, PublishingUser, amqp_url
from load.http_user import WatchingUser  # noqa: F401 - Locust finds the users of a mix by their names here
from load.mqtt_user import AccountedUser, MqttUser

_LOG = logging.getLogger("load")
WORK_QUEUES = 8
# With the weights below 300 users confirm 3000 messages a second and more.
BURST, BURSTS_PER_S = 10, 2
WORK = [f"{PREFIX}.work.{number}" for number in range(WORK_QUEUES)]
RETRY, STREAM, REPORTS = f"{PREFIX}.retry", f"{PREFIX}.stream", f"{PREFIX}.reports"
RPC = "load.rpc"  # of all processes: there may be one that answers in all
# How long the consumers may take for what is left when the publishers have stopped.
REST_S = 30
_names = itertools.count()


def declare_work(channel):
    """Work queues, whose refused messages wait in a queue of 200 ms and come back; where devices report to.
    """
    channel.queue_declare(RETRY, durable=True, arguments={"x-message-ttl": 200, "x-dead-letter-exchange": ""})
    for queue in WORK:
        channel.queue_declare(queue, durable=True, arguments={"x-dead-letter-exchange": f"{PREFIX}.retries"})
    channel.exchange_declare(f"{PREFIX}.retries", "fanout", durable=True)
    channel.queue_bind(RETRY, f"{PREFIX}.retries")
    channel.queue_declare(
        STREAM, durable=True, arguments={"x-queue-type": "stream", "x-max-length-bytes": 50_000_000}
    )
    channel.queue_bind(STREAM, "amq.topic", f"{PREFIX}.device.*")
    channel.queue_declare(REPORTS, durable=True)
    channel.queue_bind(REPORTS, "amq.topic", f"{PREFIX}.counted.*")


class Producer(PublishingUser):
    """Sends work in small bursts, each confirmed."""

    weight = 60
    wait_time = constant_throughput(BURSTS_PER_S)

    def prepare(self):
        declare_work(self.channel)

    @task
    def send(self):
        """One burst."""
        self.publish("", WORK[self.number % WORK_QUEUES], BURST)


class Worker(ConsumingUser):
    """Takes work from all queues, and refuses one message in a hundred once: that comes back by the retry
    loop. What devices report over MQTT at QoS 1 it takes, too.
    """

    fixed_count = WORK_QUEUES
    wait_time = constant(0)

    def prepare(self):
        declare_work(self.channel)
        for self.queue in (REPORTS, *WORK):  # all: of several processes each may have but one worker
            self.consume()

    @task
    def take(self):
        """A second's work."""
        self.work()

    def wants(self, delivery):
        is_first = delivery.exchange == "" and b"x-death" not in delivery.raw_properties
        return not is_first or delivery.delivery_tag % 100 != 0

    def latency_name_of(self, delivery):
        return "MQTT report to delivery" if delivery.exchange else super().latency_name_of(delivery)


def measurement(device):
    """What it reports."""
    return json.dumps({"device": device, "time": time.time(), "celsius": 21.5}).encode()


class Device(AmqpUser):
    """Reports to amq.topic, as a gateway of devices does: small, transient, unconfirmed.

    Many of them fan in to one stream.
    """

    weight = 10
    wait_time = between(0.5, 1.5)

    def prepare(self):
        declare_work(self.channel)
        self.key = f"{PREFIX}.device.{next(_names)}"

    @task
    def report(self):
        """One measurement."""
        body = measurement(self.key)
        self.timed("report", self.channel.publish, "amq.topic", self.key, body, octets=len(body))


class MqttDevice(AccountedUser):
    """Reports over MQTT, to the same stream at QoS 0; every fourth report is at QoS 1 and in the account."""

    weight = 15
    wait_time = between(0.5, 1.5)

    def prepare(self):
        with Connection(amqp_url(self.host), socket_module=gevent.socket, heartbeat_s=0) as connection:
            declare_work(connection.channel())
        self.name = next(_names)

    @task(3)
    def report(self):
        """One measurement."""
        key = f"{PREFIX}.device.{self.name}"
        self.publish(key.replace(".", "/"), measurement(key), name="report")

    @task
    def report_for_sure(self):
        """One that must not be lost."""
        self.publish_accounted(f"{PREFIX}.counted.{self.name}".replace(".", "/"), "report")


class Listening(MqttUser):
    """Hears what all devices report, over MQTT."""

    fixed_count = 1
    wait_time = constant(1)

    def prepare(self):
        self.subscribe(f"{PREFIX}.device.+".replace(".", "/"))

    @task
    def listen(self):
        """Messages come in paho's greenlet."""

    def received(self, message):
        self.tell(
            "report to subscriber", (time.time() - json.loads(message.payload)["time"]) * 1000,
            len(message.payload),
        )


class StreamReader(AmqpUser):
    """Reads the devices' stream from its next message on."""

    fixed_count = 1
    wait_time = constant(0)

    def prepare(self):
        declare_work(self.channel)
        self.channel.qos(100)
        self.channel.consume(STREAM, self._delivered, arguments={"x-stream-offset": "next"})

    @task
    def read(self):
        """What comes in a second."""
        deadline = time.monotonic() + 1
        while (left_s := deadline - time.monotonic()) > 0:
            self.connection.drain(left_s)

    def _delivered(self, delivery):
        self.tell(
            "report to stream reader",
            (time.time() - json.loads(delivery.body)["time"]) * 1000,
            len(delivery.body),
        )
        delivery.ack()


class Answering(AmqpUser):
    """Answers calls."""

    fixed_count = 1
    wait_time = constant(0)

    def prepare(self):
        self.channel.queue_declare(RPC, auto_delete=True)
        self.channel.qos(50)
        self.channel.consume(RPC, self._called)

    @task
    def answer(self):
        """For a second."""
        deadline = time.monotonic() + 1
        while (left_s := deadline - time.monotonic()) > 0:
            self.connection.drain(left_s)

    def _called(self, delivery):
        properties = delivery.properties
        self.channel.publish(
            "", properties.reply_to, delivery.body, Properties(correlation_id=properties.correlation_id)
        )
        delivery.ack()


class Caller(AmqpUser):
    """Calls over direct reply-to and waits for the answer."""

    weight = 8
    wait_time = between(0.3, 1)

    def prepare(self):
        self.channel.queue_declare(RPC, auto_delete=True)
        self.channel.consume("amq.rabbitmq.reply-to", no_ack=True)

    @task
    def call(self):
        """One call."""
        self.timed("call and answer", self._call)

    def _call(self):
        self.channel.publish(
            "", RPC, b"question", Properties(reply_to="amq.rabbitmq.reply-to", correlation_id="1")
        )
        if self.channel.next_delivery(30) is None:
            raise ClientError("no answer within 30 s")


class Visitor(AmqpUser):
    """Comes, has a queue of its own, sends itself a message, and goes."""

    weight = 5
    wait_time = between(1, 3)

    @task
    def visit(self):
        """A short life."""
        self.timed("visit", self._visit)

    def _visit(self):
        with Connection(amqp_url(self.host), socket_module=gevent.socket, heartbeat_s=0) as connection:
            with connection.channel() as channel:
                queue = channel.queue_declare(exclusive=True).queue
                channel.publish("", queue, b"hello")
                channel.get(queue, no_ack=True)


def _take_the_rest(host):
    """What the workers had not got when they were stopped."""
    deadline = time.monotonic() + REST_S
    with Connection(amqp_url(host), socket_module=gevent.socket) as connection:
        channel = connection.channel()
        while ACCOUNT.missing() and time.monotonic() < deadline:
            for queue in (*WORK, REPORTS, RETRY):
                while (delivery := channel.get(queue)) is not None:
                    publisher, number, _ = delivery.body.split(b" ", 2)
                    ACCOUNT.delivered(int(publisher), int(number))
                    delivery.ack()
            gevent.sleep(0.05)


def _leave_nothing(host):
    with Connection(amqp_url(host), socket_module=gevent.socket) as connection:
        channel = connection.channel()
        for queue in (*WORK, REPORTS, RETRY, STREAM):
            channel.queue_delete(queue)
        channel.exchange_delete(f"{PREFIX}.retries")


@events.quitting.add_listener
def close_the_account(environment, **_):
    """Every confirmed message was delivered, or the run has failed."""
    if ACCOUNT.confirmed_count == 0:
        return  # a master, whose workers have accounts of their own
    for step in (_take_the_rest, _leave_nothing):
        try:
            step(environment.host)
        except (ClientError, OSError) as error:  # the broker is away: the account says what that cost
            _LOG.error("%s after the run: %s", step.__name__.strip("_").replace("_", " "), error)
    missing = ACCOUNT.missing()
    account = {
        "confirmed": ACCOUNT.confirmed_count,
        "delivered": ACCOUNT.delivered_count,
        "again": ACCOUNT.again_count,
        "missing": missing,
    }
    print("account:", json.dumps(account), flush=True)
    if os.environ.get("LOAD_ACCOUNT"):
        with open(os.environ["LOAD_ACCOUNT"], "w", encoding="utf-8") as file:
            json.dump(account, file)
    if missing:
        _LOG.error("%d confirmed messages were not delivered", missing)
        environment.process_exit_code = 1
