"""A broker with one of everything, for tests that only look at pages."""
import contextlib
from urllib.parse import quote

import pika

from tests.support.page import API
from tests.support.waiting import wait_until

# Everything that a name may have in it and a page may stumble over, within 255 octets.
HOSTILE = (
    "<script>alert(1)</script>", "'\"`><img src=x onerror=alert(1)>", "../..%2F%00?#&=;:",
    "\u202eabc\u2066def", "\u05e9\u05dc\u05d5\u05dd \u0645\u0631\u062d\u0628\u0627",
    "tab\tescape\x1b[31m\x00end", " spaces ", "javascript:alert(1)", "{{7*7}}${7*7}",
    "\U0001f407" * 60 + "long", "a" * 255,
)
QUEUE, STREAM, EXCHANGE, DELAYED = "orders", "events", "shop", "reminders"
VHOST, USER, POLICY = "staging", "ann", "limits"


class Furnished:
    """What is there, and what keeps it there: a connection with a consumer."""

    def __init__(self, process):
        self.base = f"http://127.0.0.1:{process.ports['http']}"
        self.api = api = API(self.base)
        api.put(f"vhosts/{VHOST}", {"description": "for trying things", "tags": "test"})
        api.put(f"users/{USER}", {"password": USER, "tags": "management"})
        api.put(f"permissions/%2F/{USER}", {"configure": "^ann", "write": ".*", "read": ".*"})
        api.put(f"topic-permissions/%2F/{USER}", {"exchange": "amq.topic", "write": "^ann", "read": ".*"})
        api.put(f"vhost-limits/{VHOST}/max-queues", {"value": 100})
        api.put(f"policies/%2F/{POLICY}", {"pattern": "^orders", "definition": {"max-length": 1000}})
        api.put(f"operator-policies/%2F/{POLICY}", {"pattern": "^orders", "definition": {"max-length": 500}})
        # Nobody serves it meanwhile: heartbeats would end it.
        self._connection = pika.BlockingConnection(pika.URLParameters(f"{process.amqp_url}?heartbeat=0"))
        channel = self._connection.channel()
        channel.confirm_delivery()
        channel.exchange_declare(EXCHANGE, "topic", durable=True)
        channel.exchange_declare(DELAYED, "x-delayed-message", arguments={"x-delayed-type": "topic"})
        channel.queue_declare(QUEUE, durable=True, arguments={"x-message-ttl": 3600000})
        channel.queue_declare(STREAM, durable=True, arguments={"x-queue-type": "stream"})
        channel.queue_bind(QUEUE, EXCHANGE, "order.#")
        for number in range(3):
            channel.basic_publish(EXCHANGE, f"order.{number}", b'{"number": %d}' % number)
            channel.basic_publish("", STREAM, b"event")
        channel.basic_qos(prefetch_count=1)
        channel.basic_consume(QUEUE, lambda *_: None, consumer_tag="worker-1")
        self.connection = wait_until(lambda: [one["name"] for one in api.get("connections")])[0]
        self.channel = wait_until(lambda: [one["name"] for one in api.get("channels")])[0]

    def params(self):
        """Values for the params of pages, by the first part of their path."""
        return {
            "queues": ("/", QUEUE), "dead-letters": ("/", QUEUE), "unacked": ("/", QUEUE),
            "streams": ("/", STREAM), "delayed": ("/", DELAYED),
            "exchanges": ("/", EXCHANGE), "connections": (self.connection,), "channels": (self.channel,),
            "vhosts": (VHOST,), "users": (USER,),
        }

    def address(self, path):
        """The address of a page of the table."""
        values = iter(self.params()[path.split("/")[1]] if ":" in path else ())
        return "#" + "/".join(
            quote(next(values), safe="") if part.startswith(":") else part for part in path.split("/"))

    def close(self):
        with contextlib.suppress(pika.exceptions.AMQPError):
            self._connection.close()
