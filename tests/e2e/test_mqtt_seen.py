"""What shows MQTT: $SYS topics, events, metrics, the state dump and gomq-py-ctl, with paho and our client."""
import json
import signal
import threading

import paho.mqtt.client as paho
import pika
import pytest
import requests

from gomq_py import Broker
from gomq_py.client.errors import ConnectionClosed
from gomq_py.client.mqtt import MQTTClient
from tests.ctl.running import in_process
from tests.support.waiting import in_time, wait_until


@pytest.fixture(scope="module")
def broker():
    with Broker(mqtt_port=0, http_port=0, event_exchange=True) as broker:
        yield broker


def test_paho_reads_the_topics_of_the_broker_soon_and_again(broker):
    """Nothing is computed for nobody: the timer runs while a connected client has such a filter."""
    told, seen = {}, threading.Event()

    def on_message(_client, _data, message):
        told[message.topic] = message.payload.decode()
        seen.set()

    client = paho.Client(paho.CallbackAPIVersion.VERSION2, client_id="watcher", protocol=paho.MQTTv5)
    client.username_pw_set("guest", "guest")
    client.on_connect = lambda *_: client.subscribe("$SYS/#")
    client.on_message = on_message
    client.connect("127.0.0.1", broker.addresses["mqtt"][1])
    client.loop_start()

    assert seen.wait(in_time(30))
    wait_until(lambda: "$SYS/broker/heap/current" in told)
    assert told["$SYS/broker/version"].startswith("gomq-py ")
    assert told["$SYS/broker/clients/connected"] == "1" == told["$SYS/broker/subscriptions/count"]
    assert told["$SYS/broker/uptime"].endswith(" seconds") and int(told["$SYS/broker/bytes/received"]) > 0
    assert broker.call(lambda launcher: launcher._node.mqtt.broker_topics._timer) is not None
    client.unsubscribe("$SYS/#")
    wait_until(lambda: not broker.call(
        lambda launcher: launcher._node.broker.vhosts["/"].extras["mqtt"].by_client["watcher"].subscriptions))
    broker.call(lambda launcher: launcher._node.mqtt.broker_topics._publish())
    assert broker.call(lambda launcher: launcher._node.mqtt.broker_topics._timer) is None
    client.disconnect()
    client.loop_stop()


def test_wildcards_do_not_match_the_topics_of_the_broker(broker):
    """[MQTT-4.7.2-1]"""
    with MQTTClient(broker.mqtt_url, client_identifier="wide") as client:
        client.subscribe("#", "+/broker/version")

        assert broker.call(lambda launcher: launcher._node.mqtt.broker_topics._sessions) == {}
        broker.call(lambda launcher: launcher._node.mqtt.broker_topics._publish())
        client.ping()


def test_logins_and_connections_are_events(broker):
    connection = pika.BlockingConnection(pika.URLParameters(broker.amqp_url))
    channel = connection.channel()
    queue = channel.queue_declare("", exclusive=True).method.queue
    for key in ("user.authentication.*", "connection.*"):
        channel.queue_bind(queue, "amq.rabbitmq.event", key)

    MQTTClient(broker.mqtt_url, client_identifier="told", version=5).close()
    with pytest.raises(ConnectionClosed):
        MQTTClient(broker.mqtt_url.replace(":guest@", ":wrong@"), client_identifier="told", version=5)

    told = []
    for method, properties, _ in channel.consume(queue, auto_ack=True, inactivity_timeout=in_time(30)):
        assert method is not None, told
        told.append((method.routing_key, properties.headers))
        if {"user.authentication.failure", "connection.closed"} <= {key for key, _ in told}:
            break
    connection.close()
    told = dict(told)
    assert told["connection.created"]["client_properties"] == {"client_id": "told"}
    assert told["connection.created"]["protocol"] == "MQTT 5.0"
    assert told["user.authentication.success"]["name"] == "guest"
    assert "error" in told["user.authentication.failure"]


def test_metrics_count_what_mqtt_has(broker):
    with MQTTClient(broker.mqtt_url, client_identifier="counted", version=5) as client:
        client.subscribe("a", "b")
        client.publish("kept", b"12345", qos=1, retain=True)
        text = requests.get(
            f"{broker.http_url}/metrics", auth=("guest", "guest"), timeout=in_time(60)).text
        client.publish("kept", b"", qos=1, retain=True)

    found = dict(line.rsplit(" ", 1) for line in text.splitlines() if "gomq_mqtt_" in line and line[0] != "#")
    assert float(found['gomq_mqtt_connections{protocol="MQTT 5.0"}']) == 1
    assert float(found["gomq_mqtt_subscriptions"]) == 2
    assert float(found["gomq_mqtt_retained_messages"]) == 1 and float(found["gomq_mqtt_retained_bytes"]) == 5


def test_state_dump_names_the_client(broker_process):
    broker = broker_process(mqtt_port=0).start()
    with MQTTClient(f"mqtt://guest:guest@127.0.0.1:{broker.ports['mqtt']}", client_identifier="dumped"):
        broker.signal(signal.SIGUSR1)

        broker.wait_for_log("guest@/, open, MQTT 3.1.1 client 'dumped', waits for the client")
        broker.wait_for_log("end of the dump")


def test_ctl_lists_kicks_and_deletes(broker):
    def ctl(*arguments):
        return in_process(broker.http_url, *arguments)

    with MQTTClient(
        broker.mqtt_url, client_identifier="ctl", version=5, properties={"session_expiry_interval": 100},
    ) as client:
        client.subscribe("a/+", qos=1)
        client.publish("kept/1", b"text", qos=1, retain=True)
        rows = json.loads(ctl("-f", "json", "list_mqtt_subscriptions").stdout)
        assert {"client_id": "ctl", "topic_filter": "a/+", "qos": 1} in rows
        retained = json.loads(ctl("-f", "json", "list_mqtt_retained").stdout)
        assert {"topic": "kept/1", "payload_bytes": 4} in retained
        shown = json.loads(ctl("-f", "json", "get_mqtt_retained", "kept/1").stdout)
        assert shown[0]["payload"] == "text"
        assert ctl("delete_mqtt_retained", "kept/1").exit_code == 0
        assert ctl("delete_mqtt_retained", "kept/1").exit_code == 1
        assert ctl("close_mqtt_client", "ctl", "enough").exit_code == 0
        with pytest.raises(ConnectionClosed):
            client.next_packet()
    wait_until(lambda: {"client_id": "ctl", "connected": False} in json.loads(
        ctl("-f", "json", "list_mqtt_sessions", "client_id", "connected").stdout))
    assert ctl("delete_mqtt_session", "ctl").exit_code == 0
    assert ctl("delete_mqtt_session", "ctl").exit_code == 1
