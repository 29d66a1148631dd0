"""A busy broker: one of everything, and traffic, so that every route has something to show.

Used by the tests of shapes and of the description.
"""
import contextlib
from urllib.parse import quote

import pika

from tests.management.conftest import API
from tests.support.waiting import wait_until

VHOST = "busy"


class Busy:
    """``api`` as guest; ``names`` fills placeholders of paths: connection, channel, node..."""

    def __init__(self, process):
        self.process = process
        self.api = API(f"http://127.0.0.1:{process.ports['http']}")
        self._declare()
        self._connect()
        self._publish()
        wait_until(lambda: self.api.get("federation-links/state/down").json(), what="a link that fails")
        node = self.api.get("nodes").json()[0]["name"]
        connection = self.api.get("connections").json()[0]["name"]
        self.names = {
            "node": quote(node, safe=""), "connection": quote(connection, safe=""),
            "channel": quote(f"{connection} (1)", safe=""),
            "port": str(process.ports["amqp"]),
            "segment": str(self.api.get(f"streams/{VHOST}/log/segments").json()["segments"][0]["number"]),
        }

    def close(self):
        with contextlib.suppress(pika.exceptions.AMQPError):
            self.connection.close()

    def _declare(self):
        api = self.api
        api.put(f"vhosts/{VHOST}", {"description": "where things are going on", "tags": ["a"]})
        for name, type_ in (("hox", "topic"), ("hox2", "direct")):
            arguments = {"alternate-exchange": "amq.fanout"} if name == "hox2" else {}
            api.put(f"exchanges/{VHOST}/{name}", {"type": type_, "durable": True, "arguments": arguments})
        api.put(f"exchanges/{VHOST}/later", {
            "type": "x-delayed-message", "arguments": {"x-delayed-type": "fanout"}})
        api.put(f"queues/{VHOST}/busy", {"durable": True, "arguments": {"x-max-priority": 5}})
        api.put(f"queues/{VHOST}/idle", {"durable": True, "arguments": {
            "x-message-ttl": 600000, "x-expires": 6000000, "x-max-length": 10,
            "x-dead-letter-exchange": "hox", "x-dead-letter-routing-key": "dead"}})
        api.put(f"queues/{VHOST}/members", {"durable": True, "arguments": {"x-queue-type": "quorum"}})
        api.put(f"queues/{VHOST}/log", {"durable": True, "arguments": {"x-queue-type": "stream"}})
        api.post(f"bindings/{VHOST}/e/hox/q/busy", {"routing_key": "k", "arguments": {"k": "v"}})
        api.post(f"bindings/{VHOST}/e/hox/e/hox2", {"routing_key": "k"})
        api.put(f"policies/{VHOST}/hopol", {
            "pattern": "^busy$", "definition": {"max-length": 1000}, "apply-to": "queues", "priority": 1
        })
        api.put(f"operator-policies/{VHOST}/hoop", {
            "pattern": "^busy$", "definition": {"message-ttl": 600000}, "apply-to": "queues"
        })
        api.put(f"vhost-limits/{VHOST}/max-queues", {"value": 100})
        api.put("users/houser", {"password": "houser", "tags": "management"})
        api.put(f"permissions/{VHOST}/houser", {"configure": ".*", "write": ".*", "read": ".*"})
        api.put(f"topic-permissions/{VHOST}/houser", {"exchange": "hox", "write": "^a", "read": ".*"})
        api.put("user-limits/houser/max-channels", {"value": 100})
        api.put("users/without", {"password": "without", "tags": ""})
        api.put("global-parameters/cluster_name", {"value": "busy-cluster"})
        api.post("definitions", {
            "parameters": [{"component": "component", "vhost": VHOST, "name": "one", "value": {"a": 1}}]
        })

        # one that runs and moves nothing, and one that cannot be reached
        api.put(f"parameters/shovel/{VHOST}/shovel", {"value": {
            "src-uri": "amqp://", "src-queue": "shovelled", "dest-uri": "amqp://", "dest-queue": "idle"}})
        api.put(f"parameters/federation-upstream/{VHOST}/up", {"value": {"uri": "amqp://127.0.0.1:1"}})
        api.put(f"exchanges/{VHOST}/federated", {"type": "fanout", "durable": True})
        api.put(f"policies/{VHOST}/federating", {
            "pattern": "^federated$", "definition": {"federation-upstream": "up"}, "apply-to": "exchanges"})

    def _connect(self):
        parameters = pika.URLParameters(self.process.url(vhost=VHOST))
        parameters.client_properties = {"connection_name": "busy-one"}
        # nobody reads for minutes, where other tests come between those that look at this
        parameters.heartbeat = 0
        self.connection = pika.BlockingConnection(parameters)
        self.channel = self.connection.channel()
        self.channel.confirm_delivery()
        self.channel.basic_qos(prefetch_count=1)

    def _publish(self):
        channel = self.channel
        for number in range(4):
            properties = pika.BasicProperties(delivery_mode=2, headers={"a": number, "t": [1, "x"]})
            channel.basic_publish("hox", "k", b"%d" % number, properties)
            channel.basic_publish("", "idle", b"%d" % number, properties)
            channel.basic_publish("", "log", b"%d" % number, properties)
        channel.basic_publish("later", "k", b"wait", pika.BasicProperties(headers={"x-delay": 3_600_000}))
        channel.basic_publish("later", "k", b"again", pika.BasicProperties(
            headers={"x-schedule": {"name": "hourly", "every": 3_600_000}}))
        with contextlib.suppress(pika.exceptions.UnroutableError):
            channel.basic_publish("hox", "nowhere", b"", mandatory=True)
        channel.basic_publish("hox", "nowhere", b"")
        with contextlib.suppress(pika.exceptions.ChannelClosedByBroker):
            self.connection.channel().queue_declare("nosuch", passive=True)
        channel.basic_get("idle", auto_ack=True)
        channel.basic_consume("busy", lambda *_: None, consumer_tag="busy-consumer")
        wait_until(
            lambda: self.api.get(f"queues/{VHOST}/busy").json()["messages_unacknowledged"] == 1,
            what="a delivery",
        )
