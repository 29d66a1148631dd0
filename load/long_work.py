"""Long work: what one client may ask of the broker at many times its usual size.

Run by load.hostile, which measures how long a piece of it is.

Every kind of work prepares ``size`` of something and then does the one thing that is measured. They speak to
a broker of their own, over AMQP with plain frames, because a client that waits for each answer takes minutes,
and over the management API.
"""
import base64
import contextlib
import json
import select
import time
import urllib.error
import urllib.parse
import urllib.request

from gomq_py.amqp.wire.frames import content_frames, method_frame
from gomq_py.amqp.wire.methods import (
    BasicAck, BasicConsume, BasicPublish, ChannelOpen, ExchangeDeclare, QueueBind, QueueDeclare,
)
from gomq_py.client.connection import Connection

NO_PROPERTIES = b"\x00\x00"
PATIENCE_S = 300
# The work is over when the hub used no more than this in so long.
QUIET_MS, LOOK_S = 20, 1.0


class Client:
    """A connection and a channel, and the management API, of one broker."""

    def __init__(self, broker):
        self._uri, self.pid = broker.uri, broker.pid
        self.http_port, self.mqtt_port, self.amqps_port = (
            broker.http_port, broker.mqtt_port, broker.amqps_port)
        self._http = f"http://127.0.0.1:{broker.http_port}/api/"
        self.connection = self.channel = None
        self.connect()

    def connect(self):
        """Another connection."""
        self.connection = Connection(self._uri, heartbeat_s=0, timeout_s=PATIENCE_S)
        self.channel = self.connection.channel(1)
        return self.connection

    def send(self, methods, number=1):
        """Methods that are not answered, and then one that is, so that all are done."""
        part = []
        for method in methods:
            part.append(method if isinstance(method, bytes) else method_frame(number, method))
            if len(part) == 1000:
                self.write(b"".join(part))
                part = []
        self.write(b"".join(part))
        self.channel.queue_declare("last")

    def write(self, octets):
        """All of the octets, however long the broker takes them."""
        left = memoryview(octets)
        while left:
            _, writable, _ = select.select((), (self.connection.socket,), (), PATIENCE_S)
            if not writable:
                raise TimeoutError("the broker does not read")
            left = left[self.connection.socket.send(left):]

    def declare(self, size, prefix="q", **options):
        """So many queues."""
        self.send(QueueDeclare(queue=f"{prefix}{number}", no_wait=True, **options) for number in range(size))

    def request(self, verb, path, value=None):
        """A request to the management API; the octets of its answer."""
        data = value if value is None or isinstance(value, bytes) else json.dumps(value).encode()
        headers = {
            "Authorization": "Basic " + base64.b64encode(b"guest:guest").decode(),
            "Content-Type": "application/json",
        }
        with contextlib.suppress(urllib.error.HTTPError):  # what is refused was looked at, too
            url = urllib.parse.urljoin(self._http, path)  # of ../metrics, too
            with urllib.request.urlopen(
                urllib.request.Request(url, data, headers, method=verb), timeout=PATIENCE_S
            ) as answer:
                return answer.read()
        return b""


def costly_policy(client, size):
    """a policy whose pattern would need exponential time for the names of N queues"""
    client.declare(size, "a" * 74 + "!")
    yield
    client.request("PUT", "policies/%2F/p", {"pattern": "^(a|aa)+$", "definition": {"max-length": 7}})


def policy(client, size):
    """a policy over N queues, put and deleted"""
    client.declare(size)
    yield
    client.request("PUT", "policies/%2F/p", {"pattern": "^q", "definition": {"max-length": 7}})
    client.request("DELETE", "policies/%2F/p")


def vhost(client, size):
    """a vhost of N durable queues and bindings, deleted"""
    client.request("PUT", "vhosts/big")
    client.request("POST", "definitions/big", {
        "queues": [{"name": f"q{number}", "durable": True} for number in range(size)],
        "bindings": [
            {
                "source": "amq.topic", "destination": f"q{number}", "destination_type": "queue",
                "routing_key": f"k.{number}",
            }
            for number in range(size)
        ]})
    yield
    client.request("DELETE", "vhosts/big")


def channels(client, size):
    """N channels, 2047 to a connection, dropped with their connections"""
    connections = []
    for first in range(0, size, 2000):
        connections.append(client.connect())
        client.write(
            b"".join(method_frame(2 + number, ChannelOpen()) for number in range(min(2000, size - first)))
        )
        client.channel.queue_declare("last")
    yield
    for connection in connections:
        connection.socket.close()


def exclusive_queues(client, size):
    """N exclusive queues of a connection that is dropped"""
    client.declare(size, exclusive=True)
    yield
    client.connection.socket.close()


def consumers(client, size):
    """N consumers of N auto-delete queues, on one channel whose connection is dropped"""
    client.declare(size, auto_delete=True)
    client.send(
        BasicConsume(queue=f"q{number}", consumer_tag=f"c{number}", no_wait=True) for number in range(size)
    )
    yield
    client.connection.socket.close()


def queue_consumers(client, size):
    """a queue of N consumers, deleted"""
    client.declare(1)
    client.send(BasicConsume(queue="q0", consumer_tag=f"c{number}", no_wait=True) for number in range(size))
    yield
    client.request("DELETE", "queues/%2F/q0")


def exchange_bindings(client, size):
    """an exchange of N bindings, deleted"""
    _bind(client, "x", size)
    yield
    client.request("DELETE", "exchanges/%2F/x")


def queue_bindings(client, size):
    """a queue of N bindings, deleted"""
    _bind(client, "x", size)
    yield
    client.request("DELETE", "queues/%2F/last")


def _bind(client, exchange, size):
    client.send([
        ExchangeDeclare(exchange=exchange, type="topic", no_wait=True),
        QueueDeclare(queue="last", no_wait=True),
    ])
    client.send(
        QueueBind(queue="last", exchange=exchange, routing_key=f"k.{number}", no_wait=True)
        for number in range(size)
    )


def emptied(client, size):
    """N durable queues of one message, emptied; their segments are given back 10 s later"""
    client.declare(size, durable=True)
    client.send(_published("", f"q{number}", b"x") for number in range(size))
    yield
    client.send(
        BasicConsume(queue=f"q{number}", consumer_tag=f"c{number}", no_ack=True, no_wait=True)
        for number in range(size)
    )
    time.sleep(12)


def many_words(client, size):
    """one publish with a key of 127 words to N patterns with many '#' that differ
    from their second word on
    """
    client.send(
        [ExchangeDeclare(exchange="t", type="topic", no_wait=True), QueueDeclare(queue="last", no_wait=True)]
    )
    client.send(
        QueueBind(queue="last", exchange="t", routing_key=_pattern(number), no_wait=True)
        for number in range(size)
    )
    yield
    client.send([_published("t", ".".join(["a"] * 127), b"x")])


def _pattern(number):
    """One of 4096 that share no long path: which of its words are ``*`` says its number.

    A key of letters a matches all.
    """
    return "#." + ".#.".join("a" if number >> bit & 1 else "*" for bit in range(12))


def transaction(client, size):
    """a transaction of N messages, committed"""
    client.channel.tx_select()
    yield
    client.send(_published("", "last", b"0123456789") for _ in range(size))
    client.channel.tx_commit()


def acks_in_transactions(client, size):
    """200 times basic.ack of everything in a transaction, with N unacknowledged messages,
    and its commit
    """
    client.channel.queue_declare("last")
    client.send(_published("", "last", b"x") for _ in range(size))
    client.channel.tx_select()
    client.send([BasicConsume(queue="last", consumer_tag="c", no_wait=True)])
    time.sleep(1)
    yield
    client.send([BasicAck(delivery_tag=0, multiple=True)] * 200)
    client.channel.tx_commit()


def definitions(client, size):
    """definitions of N queues and bindings, posted"""
    value = json.dumps({
        "queues": [
            {
                "name": f"a.queue.of.an.ordinary.name.{number}", "vhost": "/", "durable": False,
                "arguments": {"x-max-length": 1000},
            }
            for number in range(size)
        ],
        "bindings": [
            {
                "source": "amq.topic", "vhost": "/", "destination": f"a.queue.of.an.ordinary.name.{number}",
                "destination_type": "queue", "routing_key": f"k.{number}", "arguments": {},
            }
            for number in range(size)
        ]}).encode()
    yield
    client.request("POST", "definitions", value)


def large_entry(client, size):
    """definitions of one entry of N KiB, posted"""
    value = json.dumps(
        {"parameters": [{"vhost": "/", "component": "x", "name": "y", "value": ["0123456"] * (size * 100)}]}
    ).encode()
    yield
    client.request("POST", "definitions", value)


def lists(client, size):
    """lists of queues (whole, a sorted page), definitions, overview and metrics, with N queues"""
    client.declare(size)
    yield
    for path in (
        "queues", "queues?page=1&page_size=10&sort=messages", "queues?page=1&name=q.*7&use_regex=true",
        "definitions", "overview", "vhosts",
    ):
        client.request("GET", path)
    client.request("GET", "../metrics/per-object")


def declares(client, size):
    """N queues, declared and bound"""
    yield
    client.declare(size)
    client.send(
        QueueBind(queue=f"q{number}", exchange="amq.topic", routing_key=f"k.{number}", no_wait=True)
        for number in range(size)
    )


def _published(exchange, key, body):
    return method_frame(1, BasicPublish(exchange=exchange, routing_key=key)) + content_frames(
        1, NO_PROPERTIES, body, 131072
    )


# Each with its usual size; it is measured at that, at 10 and at 100 times as much.
WORKS = {
    costly_policy: 30, policy: 1000, vhost: 30, channels: 655, exclusive_queues: 1000, consumers: 160,
    queue_consumers: 160, exchange_bindings: 1000, queue_bindings: 1000, emptied: 30, many_words: 30,
    transaction: 10_000, acks_in_transactions: 500, definitions: 1000, large_entry: 600, lists: 1000,
    declares: 1000,
}


def measure(broker, work, size):
    """(the longest piece of the hub's CPU time in ms, all of the work in ms)."""
    client = Client(broker)
    steps = work(client, size)
    next(steps)
    _wait_until_quiet(broker)
    next(steps, None)
    return _wait_until_quiet(broker)


def _wait_until_quiet(broker):
    longest_ms = total_ms = 0.0
    ends_at = time.monotonic() + PATIENCE_S
    while True:
        time.sleep(LOOK_S)
        longest, total = broker.pieces()
        longest_ms, total_ms = max(longest_ms, longest), total_ms + total
        if total < QUIET_MS or time.monotonic() > ends_at:
            return longest_ms, total_ms
