"""Access: what a user without the permission gets, for every method that needs one.

The users are made over the management API; on a foreign broker they must be there: `limited` (configure
^mine, write ^(mine|amq\\.default), read ^(mine|amq\\.topic), password as the name), `outsider`, without
permissions, and `topical`, with all of them but topic permissions at amq.topic (write ^{username}\\., read
^(public|{username})\\.).
"""
import base64
import http.client
import json

import pytest

from tests.support.broker_process import BrokerProcess
from tests.support.broker_under_test import KIND, RABBITMQ
from tests.support.cases import cases
from tests.support.rabbitmq_process import RabbitMQProcess
from tests.support.waiting import in_time
from tests.support.wire_script import Wire

TOPIC_PERMISSIONS = {"write": r"^{username}\.", "read": r"^(public|{username})\."}
PERMISSIONS = {"configure": "^mine", "write": r"^(mine|amq\.default)", "read": r"^(mine|amq\.topic)"}


def put(port, path, value):
    """One request to the management API."""
    connection = http.client.HTTPConnection("127.0.0.1", port, timeout=in_time(60))
    headers = {
        "Authorization": "Basic " + base64.b64encode(b"guest:guest").decode(),
        "Content-Type": "application/json",
    }
    connection.request("PUT", path, json.dumps(value), headers)
    assert connection.getresponse().status in (201, 204)
    connection.close()


@pytest.fixture(scope="module")
def users(request, tmp_path_factory):
    """The address of a broker that has the users."""
    folder = tmp_path_factory.mktemp("access")
    if KIND == "gomq-py":
        with BrokerProcess(folder / "data", http_port=0) as broker:
            yield with_users(broker.port, broker.ports["http"])
    elif KIND in RABBITMQ:
        plugins = ("rabbitmq_management_agent",)
        with RabbitMQProcess(folder, plugins=plugins, **RABBITMQ[KIND]) as broker:
            yield with_users(broker.port, broker.http_port)
    else:
        yield request.getfixturevalue("broker_address")


def with_users(port, http_port):
    """The address of a broker on this machine, to which the users have come over its management API."""
    for user in ("limited", "outsider", "topical"):
        put(http_port, f"/api/users/{user}", {"password": user, "tags": ""})
    put(http_port, "/api/permissions/%2F/limited", PERMISSIONS)
    put(http_port, "/api/permissions/%2F/topical", {"configure": ".*", "write": ".*", "read": ".*"})
    put(http_port, "/api/topic-permissions/%2F/topical", {"exchange": "amq.topic", **TOPIC_PERMISSIONS})
    managed_ports["http"] = http_port
    return "127.0.0.1", port


managed_ports = {}


@pytest.fixture
def managed_port(users):
    """The management port of our own broker."""
    if "http" not in managed_ports:
        pytest.skip("the management API of a foreign broker is not known")
    return managed_ports["http"]


@pytest.fixture
def limited(users):
    """A channel of the limited user."""
    wire = Wire.open(users, user="limited", password="limited")
    yield wire.channel(1)
    wire.close()


def access(verb):
    """How a refusal begins: RabbitMQ tells the missing right from 4.3 on."""
    return "ACCESS_REFUSED - access" if KIND == "rabbitmq" else f"ACCESS_REFUSED - {verb} access"


def refused(verb, kind, name):
    """RabbitMQ's text."""
    return f"{access(verb)} to {kind} '{name}' in vhost '/' refused for user 'limited'"


@cases("method, values, verb, kind, name", {
    "exchange.declare": (
        "exchange.declare", {"exchange": "theirs", "type": "direct"}, "configure", "exchange", "theirs"),
    "exchange.delete": ("exchange.delete", {"exchange": "theirs"}, "configure", "exchange", "theirs"),
    "exchange.bind-destination": (
        "exchange.bind", {"source": "amq.topic", "destination": "amq.direct"},
        "write", "exchange", "amq.direct"),
    "exchange.unbind-destination": (
        "exchange.unbind", {"source": "amq.topic", "destination": "amq.direct"},
        "write", "exchange", "amq.direct"),
    "queue.declare": (
        "queue.declare", {"queue": "theirs", "exclusive": True}, "configure", "queue", "theirs"),
    "queue.delete": ("queue.delete", {"queue": "theirs"}, "configure", "queue", "theirs"),
    "queue.purge": ("queue.purge", {"queue": "theirs"}, "read", "queue", "theirs"),
    "queue.bind-queue": (
        "queue.bind", {"queue": "theirs", "exchange": "amq.topic"}, "write", "queue", "theirs"),
    "queue.unbind-queue": (
        "queue.unbind", {"queue": "theirs", "exchange": "amq.topic"}, "write", "queue", "theirs"),
    "basic.consume": ("basic.consume", {"queue": "theirs"}, "read", "queue", "theirs"),
    "basic.get": ("basic.get", {"queue": "theirs"}, "read", "queue", "theirs"),
    "alternate-exchange": (
        "exchange.declare",
        {"exchange": "mine", "type": "direct", "arguments": {"alternate-exchange": "theirs"}},
        "write", "exchange", "theirs"),
    "dead-letter-exchange": (
        "queue.declare",
        {"queue": "mine", "exclusive": True, "arguments": {"x-dead-letter-exchange": "theirs"}},
        "write", "exchange", "theirs"),
})
def test_method_without_the_permission_is_403(limited, method, values, verb, kind, name):
    limited.send(method, **values)

    limited.expect_close(403, refused(verb, kind, name), method)


@pytest.mark.parametrize("exchange", ["amq.direct", "no.such.exchange"])
def test_publish_without_write_permission_is_403(limited, exchange):
    limited.publish(exchange, "key", b"x")

    limited.expect_close(403, refused("write", "exchange", exchange), "basic.publish")


def test_publish_to_the_default_exchange_needs_permission_for_amq_default(limited):
    queue = limited.declare("mine.queue")

    limited.publish("", queue, b"x")

    assert limited.get(queue).body == b"x"


def test_bind_needs_read_permission_on_its_source(limited):
    limited.call("exchange.declare", exchange="mine.exchange", type="direct", auto_delete=True)
    limited.send("exchange.bind", source="amq.direct", destination="mine.exchange")
    limited.expect_close(403, refused("read", "exchange", "amq.direct"), "exchange.bind")

    limited.declare("mine.queue")
    limited.send("queue.bind", queue="mine.queue", exchange="amq.direct")
    limited.expect_close(403, refused("read", "exchange", "amq.direct"), "queue.bind")


def test_name_chosen_by_the_broker_needs_permission_too(limited):
    limited.send("queue.declare", exclusive=True)

    close = limited.expect("channel.close", reply_code=403)
    assert close.reply_text.startswith(f"{access('configure')} to queue 'amq.gen-")


def test_everything_permitted_works(limited):
    limited.call("exchange.declare", exchange="mine.exchange", type="direct", auto_delete=True)
    limited.declare("mine.queue")
    limited.call("exchange.bind", source="amq.topic", destination="mine.exchange", routing_key="mine.key")
    limited.call("queue.bind", queue="mine.queue", exchange="mine.exchange", routing_key="mine.key")

    limited.publish("mine.exchange", "mine.key", b"x")

    limited.consume("mine.queue", no_ack=True)
    limited.expect_content("basic.deliver", b"x")


def test_vhost_without_any_permission_is_530(users):
    wire = Wire.connect(users)
    wire.login(user="outsider", password="outsider")

    wire.send_method(0, "connection.open", virtual_host="/")

    wire.expect_connection_close(
        530, "NOT_ALLOWED - access to vhost '/' refused for user 'outsider'", "connection.open"
    )


@pytest.mark.deviates(
    "needs to change a permission while the user is connected; "
    "RabbitMQ keeps the old one in its caches for a while"
)
def test_permission_taken_away_counts_for_the_next_publish(tmp_path):
    """Whatever remembers routes or permissions must forget them:
    the same key is published before and after.
    """
    with BrokerProcess(tmp_path / "data", http_port=0) as broker:
        put(broker.ports["http"], "/api/users/limited", {"password": "limited", "tags": ""})
        put(broker.ports["http"], "/api/permissions/%2F/limited", PERMISSIONS)
        wire = Wire.open(("127.0.0.1", broker.port), user="limited", password="limited")
        channel = wire.channel()
        queue = channel.declare("mine.queue")
        for _ in range(3):
            channel.publish("", queue, b"x")
        channel.expect_count(queue, 3)

        put(broker.ports["http"], "/api/permissions/%2F/limited", {**PERMISSIONS, "write": "^$"})
        channel.publish("", queue, b"x")

        channel.expect_close(403, refused("write", "exchange", "amq.default"), "basic.publish")
        wire.close()


@pytest.fixture
def topical(users):
    """A channel of the user whose routing keys are limited."""
    wire = Wire.open(users, user="topical", password="topical")
    yield wire.channel(1)
    wire.close()


def refused_topic(verb, routing_key):
    topic = f"topic '{routing_key}' in exchange 'amq.topic' in vhost '/'"
    return f"{access(verb)} to {topic} refused for user 'topical'"


@cases("properties", {
    "plain": b"\0\0",
    "looked-at": b"\x01\x00\x0560000",  # an expiration: not for the fast lane
})
def test_publish_with_a_topic_that_is_not_granted_is_403(topical, properties):
    topical.publish("amq.topic", "topical.fine", b"x", properties)
    topical.publish("amq.topic", "somebody.else", b"x", properties)

    topical.expect_close(403, refused_topic("write", "somebody.else"), "basic.publish")


@pytest.mark.deviates(
    "RabbitMQ 3.10 looks at the routing key alone, so that a copy goes where its key may not", of="3.10")
def test_carbon_copies_need_their_topics_too(topical):
    headers = b"\x02CCA\x00\x00\x00\x12S\x00\x00\x00\x0dsomebody.else"

    topical.publish(
        "amq.topic", "topical.fine", b"x", b"\x20\x00" + len(headers).to_bytes(4, "big") + headers
    )

    topical.expect_close(403, refused_topic("write", "somebody.else"), "basic.publish")


@cases("method, values", {
    "queue.bind": ("queue.bind", {"queue": "topics", "exchange": "amq.topic", "routing_key": "private.#"}),
    "queue.unbind": (
        "queue.unbind", {"queue": "topics", "exchange": "amq.topic", "routing_key": "private.#"}
    ),
    "exchange.bind": (
        "exchange.bind", {"source": "amq.topic", "destination": "amq.fanout", "routing_key": "private.#"}
    ),
    "exchange.unbind": (
        "exchange.unbind", {"source": "amq.topic", "destination": "amq.fanout", "routing_key": "private.#"}
    ),
})
def test_binding_with_a_topic_that_is_not_granted_is_403(topical, method, values):
    topical.call("queue.declare", queue="topics", exclusive=True)

    topical.send(method, **values)

    topical.expect_close(403, refused_topic("read", "private.#"), method)


def test_topics_are_limited_at_their_exchange_only(topical):
    topical.call("queue.declare", queue="topics", exclusive=True)

    topical.call("queue.bind", queue="topics", exchange="amq.topic", routing_key="public.#")
    topical.call("queue.bind", queue="topics", exchange="amq.direct", routing_key="private.#")
    topical.publish("amq.direct", "private.#", b"through")

    assert topical.get("topics").body == b"through"


@pytest.mark.deviates(
    "needs to change a permission while the user is connected; "
    "RabbitMQ keeps the old one in its caches for a while"
)
def test_limiting_topics_holds_for_routes_in_use(users, topical, managed_port):
    """A publisher's route is remembered; the change must be noticed at the very next message."""
    topical.call("queue.declare", queue="topics", exclusive=True)
    topical.call("queue.bind", queue="topics", exchange="amq.topic", routing_key="topical.#")
    topical.publish("amq.topic", "topical.a", b"before")
    assert topical.get("topics").body == b"before"

    put(managed_port, "/api/topic-permissions/%2F/topical", {
        **TOPIC_PERMISSIONS, "exchange": "amq.topic", "write": "^nothing$"
    })
    topical.publish("amq.topic", "topical.a", b"after")

    topical.expect_close(403, refused_topic("write", "topical.a"), "basic.publish")
    put(managed_port, "/api/topic-permissions/%2F/topical", {**TOPIC_PERMISSIONS, "exchange": "amq.topic"})
