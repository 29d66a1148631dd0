"""/api/mqtt: what MQTT clients have, looked at and ended over HTTP, and with gomq-py-ctl."""
from urllib.parse import quote

import pytest
import requests

from gomq_py.client.errors import ConnectionClosed
from gomq_py.client.mqtt import MQTTClient
from tests.management.conftest import API
from tests.support.broker_process import BrokerProcess
from tests.support.waiting import in_time, wait_until


@pytest.fixture(scope="module")
def broker(tmp_path_factory):
    with BrokerProcess(tmp_path_factory.mktemp("mqtt") / "data", http_port=0, mqtt_port=0) as process:
        yield process


@pytest.fixture
def api(broker):
    return API(f"http://127.0.0.1:{broker.ports['http']}")


@pytest.fixture
def connect(broker, name):
    """A function to a client of this test's own; all leave with it."""
    made = []

    def connect_(client_id=name, user="guest", expiry=3600, **options):
        made.append(MQTTClient(
            f"mqtt://{user}:{user}@127.0.0.1:{broker.ports['mqtt']}", version=5,
            client_identifier=client_id, properties={"session_expiry_interval": expiry}, **options))
        return made[-1]

    yield connect_
    for client in made:
        client.close()


@pytest.fixture
def jane(api):
    """Somebody who may do everything in the default vhost and see nothing of others'."""
    api.put("users/jane", {"password": "jane", "tags": "management"})
    api.put("permissions/%2F/jane", {"configure": ".*", "write": ".*", "read": ".*"})
    yield api.as_user("jane", "jane")
    api.delete("users/jane")


def of(name, rows):
    return [row for row in rows if row["client_id"] == name]


def test_connections_are_listed_with_client_id_and_protocol(api, connect, name):
    connect(keep_alive_s=60)

    (shown,) = of(name, api.get("mqtt/connections").json())
    assert of(name, api.get("mqtt/connections/%2F").json()) == [shown]
    assert (shown["protocol"], shown["user"], shown["keep_alive"], shown["websocket"], shown["ssl"]) == (
        "MQTT 5.0", "guest", 60, False, False
    )
    (among_all,) = [one for one in api.get("connections").json() if one["name"] == shown["name"]]
    assert (among_all["protocol"], among_all["client_properties"]) == ("MQTT 5.0", {"client_id": name})


def test_session_is_there_while_its_client_is_and_afterwards(api, connect, name):
    client = connect()
    client.subscribe("a/+", qos=1)
    path = f"mqtt/sessions/%2F/{name}"

    there = api.get(path).json()
    client.close()
    wait_until(lambda: not api.get(path).json()["connected"])
    afterwards = api.get(path).json()

    assert of(name, api.get("mqtt/sessions").json()) == of(name, api.get("mqtt/sessions/%2F").json()) == [
        afterwards]
    shown = [there[key] for key in ("connected", "durable", "subscriptions", "queue", "expiry")]
    assert shown == [True, True, 1, f"mqtt.{name}", 3600]
    assert there["connection"] and afterwards["connection"] is None
    assert {**there, "connected": False, "connection": None} == afterwards


def test_subscriptions_are_listed_and_taken_away(api, connect, name):
    client = connect()
    client.subscribe("a/+/b", qos=1)
    client.subscribe("c/#")
    path = f"mqtt/sessions/%2F/{name}/subscriptions"

    shown = {row["topic_filter"]: row for row in api.get(path).json()}
    assert {key: row["qos"] for key, row in shown.items()} == {"a/+/b": 1, "c/#": 0}
    for longer in ("mqtt/subscriptions", "mqtt/subscriptions/%2F"):
        assert len(of(name, api.get(longer).json())) == 2
    assert api.delete(f"{path}/{quote('a/+/b', safe='')}").status_code == 204
    assert api.delete(f"{path}/{quote('a/+/b', safe='')}").status_code == 404

    assert [row["topic_filter"] for row in api.get(path).json()] == ["c/#"]


def test_client_is_kicked_and_its_session_stays(api, connect, name):
    client = connect()
    path = f"mqtt/sessions/%2F/{name}"

    assert api.delete(f"{path}/connection", headers={"X-Reason": "maintenance"}).status_code == 204

    with pytest.raises(ConnectionClosed):
        client.next_packet()
        client.next_packet()
    wait_until(lambda: not api.get(path).json()["connected"])
    assert api.delete(f"{path}/connection").status_code == 404


def test_session_is_ended_with_all_that_it_has(api, connect, name):
    client = connect()
    client.subscribe("a", qos=1)

    assert api.delete(f"mqtt/sessions/%2F/{name}").status_code == 204

    assert api.get(f"mqtt/sessions/%2F/{name}").status_code == 404
    assert api.get(f"queues/%2F/mqtt.{name}").status_code == 404
    with pytest.raises(ConnectionClosed):
        client.next_packet()
        client.next_packet()


def test_user_sees_its_own_and_not_others(api, connect, jane, name):
    connect()
    connect(f"{name}-jane", "jane")

    assert of(name, jane.get("mqtt/sessions").json()) == of(name, jane.get("mqtt/connections").json()) == []
    assert len(of(f"{name}-jane", jane.get("mqtt/sessions").json())) == 1
    for verb, path in (("GET", ""), ("DELETE", ""), ("DELETE", "/connection"), ("GET", "/subscriptions")):
        assert jane.request(verb, f"mqtt/sessions/%2F/{name}{path}").status_code == 404
    assert jane.delete(f"mqtt/sessions/%2F/{name}-jane").status_code == 204


def test_session_is_not_ended_without_the_right_to_its_queue(api, connect, jane, name):
    connect(user="jane")
    api.put("permissions/%2F/jane", {"configure": "^$", "write": ".*", "read": ".*"})

    assert jane.delete(f"mqtt/sessions/%2F/{name}").status_code in (401, 403)
    assert api.get(f"mqtt/sessions/%2F/{name}").status_code == 200


def test_retained_messages_are_paged_looked_at_and_deleted(api, connect, name):
    client = connect()
    for number in range(5):
        client.publish(f"{name}/{number}", b"x" * number + b"!", qos=1, retain=True)
    client.publish(f"{name}/raw", b"\xff\xfe", qos=1, retain=True)

    topics, after = [], name
    while after is not None:
        page = api.get("mqtt/retained/%2F", params={"after": after, "limit": 2}).json()
        assert len(page["topics"]) <= 2
        topics += [(row["topic"], row["payload_bytes"]) for row in page["topics"]]
        after = page["next"]
    assert topics[:6] == [*[(f"{name}/{number}", number + 1) for number in range(5)], (f"{name}/raw", 2)]

    one = f"mqtt/retained/%2F/{quote(f'{name}/3', safe='')}"
    shown = api.get(one).json()
    assert (shown["payload"], shown["payload_encoding"], shown["payload_bytes"]) == ("xxx!", "string", 4)
    assert api.get(one, params={"truncate": 2}).json()["payload"] == "xx"
    raw = api.get(f"mqtt/retained/%2F/{quote(f'{name}/raw', safe='')}").json()
    assert (raw["payload"], raw["payload_encoding"]) == ("//4=", "base64")
    assert api.delete(one).status_code == 204
    assert api.get(one).status_code == 404 == api.delete(one).status_code


def test_retained_messages_are_those_that_the_user_may_read(api, connect, jane, name):
    client = connect()
    for topic in ("open", "closed"):
        client.publish(f"{name}/{topic}", b"x", qos=1, retain=True)
    api.put("topic-permissions/%2F/jane", {
        "exchange": "amq.topic", "write": "^$", "read": rf"^{name}\.open$"})

    def path(topic):
        return f"mqtt/retained/%2F/{quote(f'{name}/{topic}', safe='')}"

    shown = jane.get("mqtt/retained/%2F", params={"after": name}).json()["topics"]

    assert [row["topic"] for row in shown] == [f"{name}/open"]
    assert jane.get(path("open")).status_code == 200
    assert jane.get(path("closed")).status_code in (401, 403)
    assert jane.delete(path("open")).status_code in (401, 403)
    api.delete("topic-permissions/%2F/jane")


@pytest.mark.parametrize("path, status", [
    ("mqtt/sessions/none", 404), ("mqtt/sessions/%2F/none", 404), ("mqtt/connections/none", 404),
    ("mqtt/subscriptions/none", 404), ("mqtt/retained/none", 404), ("mqtt/retained/%2F/none", 404),
    ("mqtt/retained/%2F/%2B", 404), ("mqtt/retained/%2F?limit=0", 400), ("mqtt/retained/%2F?limit=1001", 400),
    ("mqtt/retained/%2F?after=%F0%9F%98%80", 200), ("mqtt/sessions?page=1&sort=client_id&name=x", 200),
    ("mqtt/subscriptions?sort=topic_filter&page=1&page_size=5", 200),
    ("mqtt/connections?sort=client_id&name=x&use_regex=true", 200),
])
def test_what_is_not_there_or_makes_no_sense_is_said(broker, path, status):
    answer = requests.get(
        f"http://127.0.0.1:{broker.ports['http']}/api/{path}", auth=("guest", "guest"), timeout=in_time(60))

    assert answer.status_code == status


def test_operator_copies_and_purges_what_waits_for_a_client_and_moves_nothing_of_it(api, connect, name):
    connect().subscribe(f"{name}/#", qos=1)
    with connect(f"{name}-publisher", expiry=0) as publisher:
        connect(expiry=3600, clean_start=False).close()
        for _ in range(3):
            publisher.publish(f"{name}/t", b"x", qos=1)
    queue, target = f"queues/%2F/mqtt.{name}", f"queues/%2F/to-{name}"
    api.put(target, {})

    for how, answer in (("move", 401), ("replay", 401), ("copy", 200)):
        wanted = {"destination": f"to-{name}"} if how != "replay" else {}
        assert api.post(f"{queue}/{how}", wanted).status_code == answer, how
    assert api.post(f"{queue}/move", {"destination": f"to-{name}", "dry_run": True}).status_code == 401

    wait_until(lambda: api.get(queue).json()["messages"] == api.get(target).json()["messages"] == 3)
    assert api.delete(f"{queue}/contents").status_code == 204
    wait_until(lambda: api.get(queue).json()["messages"] == 0)
    api.delete(target)


def test_nobody_puts_messages_into_the_queue_of_a_session(api, connect, name):
    """A client gets what it has subscribed to; also not by a replay, for publishers write x-death."""
    connect(expiry=3600).close()
    source, session = f"from-{name}", f"mqtt.{name}"
    api.put(f"queues/%2F/{source}", {})
    death = {"queue": session, "exchange": "", "routing-keys": ["k"], "reason": "rejected", "count": 1}
    api.post("exchanges/%2F/amq.default/publish", {
        "properties": {"headers": {"x-death": [death]}}, "routing_key": source, "payload": "x",
        "payload_encoding": "string"})

    refused = [
        api.post(f"queues/%2F/{source}/{how}", {"destination": session, "dry_run": dry_run})
        for how in ("copy", "move") for dry_run in (True, False)]
    replayed = api.post(f"queues/%2F/{source}/replay", {}).json()

    assert [(answer.status_code, answer.json()["reason"]) for answer in refused] == [(
        401, f"cannot put messages into queue '{session}' in vhost '/': its client gets what it has "
        "subscribed to")] * 4
    assert replayed["stayed"] == {f"queue '{session}' takes only what its client has subscribed to": 1}
    wait_until(lambda: api.get(f"queues/%2F/{source}").json()["messages"] == 1)
    assert api.get(f"queues/%2F/{session}").json()["messages"] == 0
    api.delete(f"queues/%2F/{source}")


def test_closing_reason_has_no_control_characters(api, connect, name):
    client = connect()
    reason = {"X-Reason": "a\x85b".encode("latin-1")}

    assert api.delete(f"mqtt/sessions/%2F/{name}/connection", headers=reason).status_code == 204

    with pytest.raises(ConnectionClosed, match=r"\(a\?b\)"):
        client.next_packet()
