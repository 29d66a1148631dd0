"""What came over MQTT where the broker and its operator handle it: tees, the log exchange, the commands of
gomq-py-ctl.
"""
import json

import pytest

from gomq_py import Broker
from gomq_py.client.errors import ConnectionClosed
from gomq_py.client.mqtt import MQTTClient
from tests.ctl.running import in_process
from tests.support.waiting import in_time

HEADERS = {"mqtt.topic": "a/b", "x-mqtt-publish-qos": 1, "unit": "°C"}
VALUES = {"content_type": "text/plain", "user_property": [("unit", "°C")]}


@pytest.fixture(scope="module")
def broker():
    with Broker(http_port=0, mqtt_port=0, log_exchange=True) as broker:
        yield broker


@pytest.fixture
def ctl(broker):
    """A function that runs a command and returns what it printed, as JSON."""
    def run(*arguments):
        url = f"http://guest:guest@127.0.0.1:{broker.addresses['http'][1]}"
        done = in_process(url, "-f", "json", *arguments)
        assert done.exit_code == 0, done.output
        return json.loads(done.stdout) if done.stdout.strip() else None

    return run


def publish(broker, *payloads):
    """As an MQTT client does."""
    with MQTTClient(broker.mqtt_url, version=5) as client:
        for payload in payloads:
            client.publish("a/b", payload, qos=1, properties=VALUES)


def first_of(channel, queue, **arguments):
    """(properties, payload) of its first message."""
    channel.basic_qos(prefetch_count=1)
    for method, properties, payload in channel.consume(
        queue, arguments=arguments, inactivity_timeout=in_time(10)
    ):
        assert method is not None, "nothing came"
        channel.basic_ack(method.delivery_tag)
        break
    channel.cancel()
    return properties, payload


def test_tee_has_it_as_the_queue_has(broker, channel, ctl):
    channel.queue_declare("source", durable=True)
    channel.queue_bind("source", "amq.topic", "a.#")
    channel.queue_declare("copies", durable=True, arguments={"x-queue-type": "stream"})
    ctl("set_policy", "tee", "^source$", json.dumps({"tee-to-stream": "copies"}), "--apply-to", "queues")

    publish(broker, b"x")

    for queue, extra, asked in (
        ("source", {}, {}), ("copies", {"x-stream-offset": 0}, {"x-stream-offset": "first"}),
    ):
        properties, payload = first_of(channel, queue, **asked)
        assert (payload, properties.headers) == (b"x", {**HEADERS, **extra})
        assert properties.content_type == "text/plain"
    ctl("clear_policy", "tee")
    channel.queue_delete("source")


def test_lines_of_the_log_reach_subscribers(broker, channel):
    channel.exchange_bind("amq.topic", "amq.rabbitmq.log", "#")
    with MQTTClient(broker.mqtt_url, version=5, client_identifier="reader") as client:
        client.subscribe("warning")

        with pytest.raises(ConnectionClosed):
            MQTTClient(broker.mqtt_url.replace("guest:guest", "guest:wrong"))

        message = client.next_message()
        assert message.topic_name == "warning" and message.payload.startswith(b"mqtt: connection ")
        assert message.properties["content_type"] == "text/plain"
    channel.exchange_unbind("amq.topic", "amq.rabbitmq.log", "#")


def test_commands_about_messages_show_and_move_it(broker, channel, ctl):
    for queue in ("jobs", "others", "copied"):
        channel.queue_declare(queue, durable=True)
    channel.queue_bind("jobs", "amq.topic", "a.#")
    publish(broker, b"1", b"2", b"3")

    rows = ctl("peek", "jobs")
    assert [row["payload"] for row in rows] == ["1", "2", "3"]
    assert all(row["properties"]["headers"] == HEADERS and row["routing_key"] == "a.b" for row in rows)
    assert ctl("copy", "jobs", "copied", "--count", "2")["copied"] == 2
    assert ctl("move", "jobs", "others", "--headers", json.dumps({"mqtt.topic": "none"}))["moved"] == 0
    assert ctl("move", "jobs", "others", "--headers", json.dumps({"unit": "°C"}))["moved"] == 3

    assert [first_of(channel, queue)[1] for queue in ("copied", "others", "others")] == [b"1", b"1", b"2"]
    properties, payload = first_of(channel, "others")
    assert (payload, properties.headers, properties.content_type) == (b"3", HEADERS, "text/plain")


def test_moved_messages_are_theirs_who_subscribe(broker, channel, ctl):
    """Form and properties stay what they were: a copy that reaches a session goes out as it came."""
    channel.queue_declare("held", durable=True)
    channel.queue_bind("held", "amq.topic", "a.#")
    publish(broker, b"x")
    channel.queue_unbind("held", "amq.topic", "a.#")
    channel.queue_declare("dead", durable=True, arguments={
        "x-dead-letter-exchange": "amq.topic", "x-message-ttl": 0})

    with MQTTClient(broker.mqtt_url, version=5) as client:
        client.subscribe("a/b", qos=1)
        assert ctl("move", "held", "dead")["moved"] == 1

        message = client.next_message()
        assert (message.payload, message.qos, message.properties["content_type"]) == (b"x", 1, "text/plain")
        assert ("unit", "°C") in message.properties["user_property"]
