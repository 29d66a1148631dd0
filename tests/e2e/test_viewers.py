"""Every event of every door reaches those who follow the broker: /api/changes and the exchange of events."""
import ast
import re
from pathlib import Path

import pika
import pytest
import requests

import gomq_py
from gomq_py import Broker
from gomq_py.client.mqtt import MQTTClient
from tests.support.waiting import in_time, wait_until

EVENT_KEY = re.compile(
    r"([a-z]+\.)+(created|updated|changed|set|status|cleared|closed|deleted|removed|success|failure)")
# Changes nothing that a list shows: the feed leaves them out.
ONLY_IN_THE_EXCHANGE = {
    "user.authentication.success", "user.authentication.failure", "shovel.worker.status",
    "shovel.worker.removed", "federation.link.status", "federation.link.removed",
}
IN_BOTH = {
    "alarm.set", "alarm.cleared", "binding.created", "binding.deleted", "channel.created",
    "channel.closed", "connection.created",
    "connection.closed", "consumer.created", "consumer.deleted", "exchange.created", "exchange.deleted",
    "parameter.set", "parameter.cleared", "permission.created", "permission.deleted", "policy.set",
    "policy.cleared", "queue.created", "queue.deleted", "topic.permission.created",
    "topic.permission.deleted", "user.created", "user.deleted", "user.limits.set", "user.limits.cleared",
    "user.password.changed", "user.password.cleared", "user.tags.set", "vhost.created", "vhost.updated",
    "vhost.deleted", "vhost.limits.set", "vhost.limits.cleared",
}


def emitted_keys():
    """What looks like an event's key in the broker's sources."""
    keys = set()
    for path in Path(gomq_py.__file__).parent.rglob("*.py"):
        for node in ast.walk(ast.parse(path.read_text())):
            if isinstance(node, ast.Constant) and EVENT_KEY.fullmatch(str(node.value)):
                keys.add(node.value)
            elif isinstance(node, ast.JoinedStr) and len(node.values) == 2 and isinstance(
                    node.values[0], ast.Constant) and getattr(node.values[1], "value", None) is not None:
                first = node.values[0].value  # f"policy.{done}"
                if first in ("policy.", "parameter.", "vhost.limits."):
                    keys.update((f"{first}set", f"{first}cleared"))
    return keys


def test_every_event_that_the_sources_tell_is_followed_here():
    assert emitted_keys() == IN_BOTH | ONLY_IN_THE_EXCHANGE


@pytest.fixture
def broker():
    with Broker(mqtt_port=0, http_port=0, event_exchange=True) as broker:
        yield broker


class Operator:
    """Asks the management API, and knows what changed since it first asked."""

    def __init__(self, broker):
        self._base = broker.http_url
        self._since = self.ask("GET", "changes")["last"]

    def ask(self, method, path, body=None):
        response = requests.request(
            method, f"{self._base}/api/{path}", json=body, auth=("guest", "guest"), timeout=in_time(60))
        assert response.status_code < 300, (method, path, response.text)
        return response.json() if response.content else None

    def changes(self):
        return self.ask("GET", f"changes?since={self._since}")["changes"]


def bring_about_over_http(operator):
    for method, path, body in (
            ("PUT", "vhosts/v", {}), ("PUT", "vhosts/v", {"description": "changed"}),
            ("PUT", "users/ann", {"password": "a", "tags": "management"}),
            ("PUT", "users/ann", {"password": "b", "tags": ""}),
            ("PUT", "users/ann", {"password_hash": "", "tags": ""}),
            ("PUT", "user-limits/ann/max-channels", {"value": 7}),
            ("DELETE", "user-limits/ann/max-channels", None),
            ("PUT", "permissions/v/ann", {"configure": "", "write": "", "read": ""}),
            ("PUT", "topic-permissions/v/ann", {"exchange": "amq.topic", "write": "a", "read": "a"}),
            ("DELETE", "topic-permissions/v/ann", None), ("DELETE", "permissions/v/ann", None),
            ("PUT", "policies/v/p", {"pattern": ".*", "definition": {"max-length": 1}}),
            ("DELETE", "policies/v/p", None),
            ("PUT", "vhost-limits/v/max-queues", {"value": 7}),
            ("DELETE", "parameters/vhost-limits/v/limits", None),
            ("PUT", "exchanges/v/x", {"type": "topic"}), ("PUT", "queues/v/q", {}),
            ("POST", "bindings/v/e/x/q/q", {"routing_key": "a"}), ("DELETE", "bindings/v/e/x/q/q/a", None),
            ("DELETE", "queues/v/q", None), ("DELETE", "exchanges/v/x", None),
            ("DELETE", "users/ann", None), ("DELETE", "vhosts/v", None)):
        operator.ask(method, path, body)


def bring_about_over_amqp(broker):
    connection = pika.BlockingConnection(pika.URLParameters(broker.amqp_url))
    channel = connection.channel()
    channel.queue_declare("amqp", auto_delete=True)
    channel.queue_bind("amqp", "amq.topic", "a")
    channel.queue_unbind("amqp", "amq.topic", "a")
    channel.basic_cancel(channel.basic_consume("amqp", print))
    connection.close()


def bring_about_over_mqtt(broker, version):
    with MQTTClient(broker.mqtt_url, client_identifier=f"mqtt{version}", version=version) as client:
        client.subscribe("a/b", qos=1)
        client.unsubscribe("a/b")


def set_and_clear_an_alarm(launcher):
    alarms = launcher._node.broker.alarms
    alarms.set("a test", "disk")
    alarms.clear("a test")


def test_every_event_reaches_the_feed_and_the_exchange(broker, caplog):
    operator = Operator(broker)
    viewer = pika.BlockingConnection(pika.URLParameters(broker.amqp_url))
    channel = viewer.channel()
    queue = channel.queue_declare("", exclusive=True).method.queue
    channel.queue_bind(queue, "amq.rabbitmq.event", "#")

    bring_about_over_http(operator)
    bring_about_over_amqp(broker)
    for version in (3, 4, 5):
        bring_about_over_mqtt(broker, version)
    broker.call(set_and_clear_an_alarm)

    def is_told():
        ends = [one for one in operator.changes() if one["what"] == "connection.closed"]
        return len(ends) >= 4
    wait_until(is_told)
    changes = operator.changes()
    assert {change["what"] for change in changes} == IN_BOTH
    for kind in ("connection.created", "connection.closed"):
        told = [change for change in changes if change["what"] == kind]
        assert all((change["user"], change["vhost"]) == ("guest", "/") for change in told), told
        assert len({change["name"] for change in told}) == len(told) >= 4, told
    seen = set()
    wait_until(lambda: seen.update(iter(lambda: next_key(channel, queue), None)) or IN_BOTH - seen == set())
    viewer.close()
    assert "cannot be told" not in caplog.text


def next_key(channel, queue):
    method, _, _ = channel.basic_get(queue, auto_ack=True)
    return None if method is None else method.routing_key
