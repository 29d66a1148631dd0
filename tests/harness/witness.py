"""A bystander: a client with queues of its own, who is asked again and again whether it is served as
if nobody else were there.
"""
import http.client
import json
from base64 import b64encode

from gomq_py.client.connection import Connection
from gomq_py.content.properties import Properties
from tests.support.waiting import in_time, wait_until

LISTS = (
    "overview", "nodes", "queues", "queues?page=1&page_size=100&sort=messages", "exchanges", "bindings",
    "consumers", "channels", "connections", "users", "vhosts", "permissions", "topic-permissions", "policies",
    "operator-policies", "parameters", "global-parameters", "vhost-limits", "user-limits", "definitions",
    "definitions/%2F",
)
GUEST = {"Authorization": "Basic " + b64encode(b"guest:guest").decode(), "Content-Type": "application/json"}
LETTERS, LATER, ONCE = "witness.letters", "witness.later", "witness.once"


class Api:
    """Requests as guest over one connection that is kept: (status, octets of the answer)."""

    def __init__(self, port):
        self._connection = http.client.HTTPConnection("127.0.0.1", port, timeout=in_time(60))

    def __call__(self, verb, path, body=None):
        text = body if body is None or isinstance(body, str) else json.dumps(body)
        self._connection.request(verb, f"/api/{path}", None if text is None else text.encode(), GUEST)
        answer = self._connection.getresponse()
        octets = answer.read()
        if answer.will_close:
            self._connection.close()
        return answer.status, octets

    def close(self):
        self._connection.close()


class Witness:
    """Dead letters, delays, deduplication and confirms of its own.

    ``check`` raises where one of them does not come to its end.
    """

    def __init__(self, process):
        self._process = process
        self._number = 0
        self.begin()
        channel = self._channel
        channel.queue_declare(LETTERS, durable=True)
        channel.queue_declare("witness.dies", durable=True, arguments={
            "x-message-ttl": 0, "x-dead-letter-exchange": "", "x-dead-letter-routing-key": LETTERS})
        channel.queue_declare(LATER, durable=True)
        channel.exchange_declare(
            "witness.delayed", "x-delayed-message", durable=True, arguments={"x-delayed-type": "fanout"}
        )
        channel.queue_bind(LATER, "witness.delayed")
        channel.queue_declare(
            ONCE, durable=True, arguments={"x-message-deduplication": True, "x-cache-size": 5}
        )

    def begin(self):
        """Connect, the first time or after a restart."""
        self.api = Api(self._process.ports["http"])
        self._connection = Connection(self._process.amqp_url)
        self._channel = self._connection.channel()
        self._channel.confirm_select()

    def end(self):
        """Close everything."""
        self.api.close()
        self._connection.close()

    def check(self, lists=("queues", "definitions")):
        """Whether a message dies, waits and is told from another as ever, and lists are answered."""
        self._number += 1
        body = str(self._number).encode()
        self._channel.publish("", "witness.dies", body, Properties(delivery_mode=2))
        self._channel.publish(
            "witness.delayed", "", body, Properties(delivery_mode=2, headers={"x-delay": 1})
        )
        for _ in range(2):
            self._channel.publish(
                "", ONCE, body, Properties(delivery_mode=2, headers={"x-deduplication-header": self._number})
            )
        assert self._channel.wait_for_confirms(60)
        for queue in (LETTERS, LATER, ONCE):
            wait_until(lambda queue=queue: self._takes(queue, body), what=f"{queue} gets what it has to")
        for path in lists:
            status, octets = self.api("GET", path)
            assert status == 200, (path, status, octets[:300])

    def _takes(self, queue, body):
        found = self._channel.get(queue, no_ack=True)
        assert found is None or found.body == body, f"{queue} has {found.body!r}, not {body!r}"
        return found is not None
