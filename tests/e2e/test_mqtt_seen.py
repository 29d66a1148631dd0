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
from gomq_py.http.api import mqtt
from gomq_py.http.kinds import MQTT_SESSIONS, MQTT_SUBSCRIPTIONS
from gomq_py.hub import turns
from gomq_py.hub.scheduler import SliceClock
from tests.ctl.running import in_process
from tests.support.crossing import stored
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


def vhost_stats(broker, name="%2F"):
    return get(broker, f"api/vhosts/{name}").json()["message_stats"]


def get(broker, path):
    answer = requests.get(f"{broker.http_url}/{path}", auth=("guest", "guest"), timeout=in_time(60))
    answer.raise_for_status()
    return answer


def metrics(broker):
    return {
        name: float(value) for name, value in (
            line.rsplit(" ", 1) for line in get(broker, "metrics").text.splitlines() if line[0] != "#")}


def difference(after, before):
    return {key: after[key] - before[key] for key in after if after[key] != before[key] and "_det" not in key}


@pytest.mark.parametrize("qos", [0, 1, 2])
def test_publishes_and_deliveries_count_in_the_virtual_host(broker, qos):
    """While the clients are there, and when they are gone."""
    before, metrics_before = vhost_stats(broker), metrics(broker)
    url = broker.mqtt_url
    with MQTTClient(url, client_identifier="out") as out, MQTTClient(url, client_identifier="in") as in_:
        in_.subscribe(f"counted/{qos}", qos=qos)
        for _ in range(7):
            out.publish(f"counted/{qos}", b"x", qos=qos)
        for _ in range(7):
            in_.next_message()
        in_.ping()
        connected = difference(vhost_stats(broker), before)
        counted = difference(metrics(broker), metrics_before)

    wait_until(lambda: not get(broker, "api/mqtt/connections").json())
    kinds = {"deliver_no_ack": 7} if not qos else {"deliver": 7, "ack": 7}
    expected = {"publish": 7, "deliver_get": 7, **kinds, **({"confirm": 7} if qos else {})}
    assert connected == expected
    assert difference(vhost_stats(broker), before) == expected
    assert counted['rabbitmq_global_messages_received_total{protocol="amqp091"}'] == 7


@pytest.mark.parametrize("qos", [0, 1])
def test_messages_that_a_client_does_not_take_count_as_dropped(broker, qos):
    before, stats = metrics(broker)["gomq_mqtt_messages_dropped_total"], vhost_stats(broker)

    with MQTTClient(
        broker.mqtt_url, client_identifier="small", version=5, properties={"maximum_packet_size": 50},
    ) as client:
        client.subscribe("large", "small", qos=qos)
        client.publish("large", bytes(100), qos=qos)
        client.publish("small", b"x", qos=qos)

        assert client.next_message().payload == b"x"
        assert metrics(broker)["gomq_mqtt_messages_dropped_total"] - before == 1

    wait_until(lambda: not get(broker, "api/mqtt/connections").json())
    assert metrics(broker)["gomq_mqtt_messages_dropped_total"] - before == 1
    assert difference(vhost_stats(broker), stats)["deliver_get"] == 1


def test_firehose_tells_what_mqtt_clients_are_sent(broker):
    connection = pika.BlockingConnection(pika.URLParameters(broker.amqp_url))
    channel = connection.channel()
    queue = channel.queue_declare("", exclusive=True).method.queue
    channel.queue_bind(queue, "amq.rabbitmq.trace", "#")

    with MQTTClient(broker.mqtt_url, client_identifier="traced", version=5) as client:
        client.subscribe("t/0")
        client.subscribe("t/1", qos=1)
        requests.put(
            f"{broker.http_url}/api/vhosts/%2F", json={"tracing": True}, auth=("guest", "guest"),
            timeout=in_time(60)).raise_for_status()
        for topic, qos in (("t/0", 0), ("t/1", 1)):
            for payload in (b"1", b"2"):
                client.publish(topic, payload, qos=qos)
        for _ in range(4):
            client.next_message()
        requests.put(
            f"{broker.http_url}/api/vhosts/%2F", json={"tracing": False}, auth=("guest", "guest"),
            timeout=in_time(60)).raise_for_status()
        client.publish("t/0", b"3")
        client.publish("t/1", b"3", qos=1)
        assert {client.next_message().payload for _ in range(2)} == {b"3"}

    told = []
    while len(told) < 8:
        method, properties, body = next(
            channel.consume(queue, auto_ack=True, inactivity_timeout=in_time(30)))
        told.append((
            method.routing_key, body, properties.headers["routing_keys"], properties.headers["user"],
            properties.headers["properties"]["headers"]["mqtt.topic"]))
    assert channel.queue_delete(queue).method.message_count == 0
    connection.close()
    delivered = [(key, body, keys, topic) for key, body, keys, _, topic in told if key[0] == "d"]
    assert sorted(delivered) == sorted(
        ("deliver.mqtt.traced", body, [f"t.{qos}"], f"t/{qos}") for qos in (0, 1) for body in (b"1", b"2"))
    assert {(key, user) for key, _, _, user, _ in told} == {
        ("deliver.mqtt.traced", "guest"), ("publish.amq.topic", "guest")}


def test_firehose_that_leads_back_to_its_client_ends(broker):
    """A client that gets the copies of what it was sent: of these there are no copies."""
    vhost = "api/vhosts/%2F"
    requests.post(
        f"{broker.http_url}/api/bindings/%2F/e/amq.rabbitmq.trace/e/amq.topic", json={"routing_key": "#"},
        auth=("guest", "guest"), timeout=in_time(60)).raise_for_status()
    with MQTTClient(broker.mqtt_url, client_identifier="loop", version=5) as client:
        client.subscribe("deliver/#", "t")
        client.subscribe("kept", qos=1)
        requests.put(
            f"{broker.http_url}/{vhost}", json={"tracing": True}, auth=("guest", "guest"),
            timeout=in_time(60)).raise_for_status()
        client.publish("t", b"1")
        client.publish("kept", b"2", qos=1)

        found = sorted((one.topic_name, one.payload) for one in (client.next_message() for _ in range(4)))
        client.ping()
    requests.put(
        f"{broker.http_url}/{vhost}", json={"tracing": False}, auth=("guest", "guest"), timeout=in_time(60))
    requests.delete(
        f"{broker.http_url}/api/bindings/%2F/e/amq.rabbitmq.trace/e/amq.topic/%23", auth=("guest", "guest"),
        timeout=in_time(60)).raise_for_status()
    assert found == [("deliver/mqtt/loop", b"1"), ("deliver/mqtt/loop", b"2"), ("kept", b"2"), ("t", b"1")]


def test_connections_show_the_client_id_and_how_it_logged_in(broker):
    with MQTTClient(broker.mqtt_url, client_identifier="shown"):
        (one,) = get(broker, "api/connections").json()
    assert (one["client_id"], one["auth_mechanism"]) == ("shown", "PLAIN")


def test_client_without_a_user_is_shown_as_anonymous():
    with Broker(mqtt_port=0, http_port=0, mqtt_anonymous_user="guest") as broker:
        with MQTTClient(broker.mqtt_url.replace("guest:guest@", "")):
            (one,) = get(broker, "api/connections").json()
    assert (one["user"], one["auth_mechanism"]) == ("guest", "ANONYMOUS")


def test_topics_of_the_broker_count_what_was_sent_and_its_load(broker):
    with MQTTClient(broker.mqtt_url, client_identifier="busy", version=5) as client:
        def values():
            return broker.call(lambda launcher: launcher._node.mqtt.broker_topics.values())

        before = values()
        client.subscribe("busy/0")
        client.subscribe("busy/1", qos=1)
        for qos in (0, 1):
            client.publish(f"busy/{qos}", b"x", qos=qos)
            client.next_message()
        after = values()
        broker.call(lambda launcher: setattr(launcher._node.mqtt.broker_topics._loads, "_last_s", 0.0))
        later = values()

    for name, count in (("sent", 2), ("received", 2), ("dropped", 0)):
        topic = f"$SYS/broker/publish/messages/{name}"
        assert int(after[topic]) - int(before[topic]) == count
    assert "$SYS/broker/load/publish/sent/1min" not in before
    assert {topic for topic in later if "/load/" in topic} == {
        f"$SYS/broker/load/{name}/{minutes}min" for minutes in (1, 5, 15) for name in (
            "publish/received", "publish/sent", "publish/dropped", "bytes/received", "bytes/sent")}
    assert float(later["$SYS/broker/load/bytes/sent/1min"]) > 0


def test_lists_and_metrics_are_made_in_slices(broker, monkeypatch):
    """Every slice ends with its first row: what is gone through is all paced."""
    given, give_way = [], turns.give_way
    auth = {"auth": ("guest", "guest"), "timeout": in_time(60)}
    clients = [
        MQTTClient(broker.mqtt_url, client_identifier=f"slice-{each}", version=5) for each in range(3)]
    for client in clients:
        client.subscribe("slices/1", "slices/2")
        client.publish(f"slices/{client.client_identifier}", b"x", qos=1, retain=True)
    monkeypatch.setattr(turns, "SliceClock", lambda every=1: SliceClock(0))
    monkeypatch.setattr(turns, "give_way", lambda: given.append(None) or give_way())

    for path, least in (
        ("api/mqtt/sessions", 3), ("api/mqtt/subscriptions", 3 + 6), ("api/mqtt/retained/%2F", 3),
        ("metrics", 3 + 3),
    ):
        given.clear()
        assert requests.get(f"{broker.http_url}/{path}", **auth).status_code == 200
        assert len(given) >= least, path
    for client in clients:
        client.publish(f"slices/{client.client_identifier}", b"", qos=1, retain=True)
        client.close()


def test_page_of_retained_messages_looks_at_so_many_topics_and_no_more(broker, monkeypatch):
    """Also at those that have expired, and at those that the user may not read."""
    auth = {"auth": ("guest", "guest"), "timeout": in_time(60)}
    url = f"{broker.http_url}/api/mqtt/retained/%2F"
    monkeypatch.setattr(mqtt, "TOPICS_LOOKED_AT", 2)
    with MQTTClient(broker.mqtt_url, client_identifier="pages", version=5) as client:
        for topic in "abc":
            client.publish(f"pages/{topic}", b"x", qos=1, retain=True)
        looked = broker.call(lambda launcher: launcher._node.broker.vhosts["/"].extras["mqtt"].retained)
        monkeypatch.setattr(looked, "show_current", lambda location, message, now_ms: False)

        page = requests.get(url, params={"limit": 1}, **auth).json()

        assert page == {"topics": [], "next": "pages/b"}
        assert requests.get(url, params={"after": "pages/b"}, **auth).json() == {"topics": [], "next": None}
        monkeypatch.undo()
        for topic in "abc":
            client.publish(f"pages/{topic}", b"", qos=1, retain=True)


def test_retained_message_that_is_malformed_is_shown_with_the_reason(broker):
    def keep(launcher):
        retained = launcher._node.broker.vhosts["/"].extras["mqtt"].retained
        retained.put("bad", stored("bad", block=b"\xff", body=b"x"))

    broker.call(keep)
    url = f"{broker.http_url}/api/mqtt/retained/%2F/bad"

    shown = requests.get(url, auth=("guest", "guest"), timeout=in_time(60)).json()

    assert (shown["payload"], shown["unreadable"]) == ("x", "malformed content of kind 2")
    assert requests.delete(url, auth=("guest", "guest"), timeout=in_time(60)).status_code == 204


def test_sessions_and_subscriptions_that_end_meanwhile_are_left_out(broker):
    with MQTTClient(broker.mqtt_url, client_identifier="ending", version=5) as client:
        client.subscribe("a", "b")

        def look(launcher):
            vhost = launcher._node.broker.vhosts["/"]
            session = vhost.extras["mqtt"].by_client["ending"]
            first, second = session.subscriptions.values()
            session.unsubscribe("a")
            found = [
                MQTT_SUBSCRIPTIONS.now((first, session, vhost)),
                MQTT_SUBSCRIPTIONS.now((second, session, vhost)) is not None,
                MQTT_SESSIONS.now((session, vhost)) is not None,
            ]
            vhost.extras["mqtt"].end(session)
            return [
                *found, MQTT_SUBSCRIPTIONS.now((second, session, vhost)), MQTT_SESSIONS.now((session, vhost))]

        assert broker.call(look) == [None, True, True, None, None]
