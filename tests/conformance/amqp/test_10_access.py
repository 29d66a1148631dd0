"""Access: what a user without the permission gets, for every method that needs one.

The users are made over the management API; on a foreign broker they must be there: `limited` (configure ^mine, write ^(mine|amq\\.default), read
^(mine|amq\\.topic), password as the name) and `outsider`, without permissions.
"""
import base64
import http.client
import json

import pytest

from tests.support.broker_process import BrokerProcess
from tests.support.broker_under_test import KIND
from tests.support.cases import cases
from tests.support.wire_script import Wire

PERMISSIONS = {"configure": "^mine", "write": r"^(mine|amq\.default)", "read": r"^(mine|amq\.topic)"}


def put(port, path, value):
    """One request to the management API."""
    connection = http.client.HTTPConnection("127.0.0.1", port, timeout=10)
    headers = {"Authorization": "Basic " + base64.b64encode(b"guest:guest").decode(), "Content-Type": "application/json"}
    connection.request("PUT", path, json.dumps(value), headers)
    assert connection.getresponse().status in (201, 204)
    connection.close()


@pytest.fixture(scope="module")
def users(request, tmp_path_factory):
    """The address of a broker that has the users."""
    if KIND != "gomq-py":
        yield request.getfixturevalue("broker_address")
        return
    with BrokerProcess(tmp_path_factory.mktemp("access") / "data", http_port=0) as broker:
        for user in ("limited", "outsider"):
            put(broker.ports["http"], f"/api/users/{user}", {"password": user, "tags": ""})
        put(broker.ports["http"], "/api/permissions/%2F/limited", PERMISSIONS)
        yield "127.0.0.1", broker.port


@pytest.fixture
def limited(users):
    """A channel of the limited user."""
    wire = Wire.open(users, user="limited", password="limited")
    yield wire.channel(1)
    wire.close()


def refused(kind, name):
    """RabbitMQ's text."""
    return f"ACCESS_REFUSED - access to {kind} '{name}' in vhost '/' refused for user 'limited'"


@cases("method, values, kind, name", {
    "exchange.declare": ("exchange.declare", {"exchange": "theirs", "type": "direct"}, "exchange", "theirs"),
    "exchange.delete": ("exchange.delete", {"exchange": "theirs"}, "exchange", "theirs"),
    "exchange.bind-destination": ("exchange.bind", {"source": "amq.topic", "destination": "amq.direct"}, "exchange", "amq.direct"),
    "exchange.unbind-destination": ("exchange.unbind", {"source": "amq.topic", "destination": "amq.direct"}, "exchange", "amq.direct"),
    "queue.declare": ("queue.declare", {"queue": "theirs", "exclusive": True}, "queue", "theirs"),
    "queue.delete": ("queue.delete", {"queue": "theirs"}, "queue", "theirs"),
    "queue.purge": ("queue.purge", {"queue": "theirs"}, "queue", "theirs"),
    "queue.bind-queue": ("queue.bind", {"queue": "theirs", "exchange": "amq.topic"}, "queue", "theirs"),
    "queue.unbind-queue": ("queue.unbind", {"queue": "theirs", "exchange": "amq.topic"}, "queue", "theirs"),
    "basic.consume": ("basic.consume", {"queue": "theirs"}, "queue", "theirs"),
    "basic.get": ("basic.get", {"queue": "theirs"}, "queue", "theirs"),
    "alternate-exchange": (
        "exchange.declare", {"exchange": "mine", "type": "direct", "arguments": {"alternate-exchange": "theirs"}}, "exchange", "theirs"),
    "dead-letter-exchange": (
        "queue.declare", {"queue": "mine", "exclusive": True, "arguments": {"x-dead-letter-exchange": "theirs"}}, "exchange", "theirs"),
})
def test_method_without_the_permission_is_403(limited, method, values, kind, name):
    limited.send(method, **values)

    limited.expect_close(403, refused(kind, name), method)


@pytest.mark.parametrize("exchange", ["amq.direct", "no.such.exchange"])
def test_publish_without_write_permission_is_403(limited, exchange):
    limited.publish(exchange, "key", b"x")

    limited.expect_close(403, refused("exchange", exchange), "basic.publish")


def test_publish_to_the_default_exchange_needs_permission_for_amq_default(limited):
    queue = limited.declare("mine.queue")

    limited.publish("", queue, b"x")

    assert limited.get(queue).body == b"x"


def test_bind_needs_read_permission_on_its_source(limited):
    limited.call("exchange.declare", exchange="mine.exchange", type="direct", auto_delete=True)
    limited.send("exchange.bind", source="amq.direct", destination="mine.exchange")
    limited.expect_close(403, refused("exchange", "amq.direct"), "exchange.bind")

    limited.declare("mine.queue")
    limited.send("queue.bind", queue="mine.queue", exchange="amq.direct")
    limited.expect_close(403, refused("exchange", "amq.direct"), "queue.bind")


def test_name_chosen_by_the_broker_needs_permission_too(limited):
    limited.send("queue.declare", exclusive=True)

    close = limited.expect("channel.close", reply_code=403)
    assert close.reply_text.startswith("ACCESS_REFUSED - access to queue 'amq.gen-")


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

    wire.expect_connection_close(530, "NOT_ALLOWED - access to vhost '/' refused for user 'outsider'", "connection.open")


@pytest.mark.deviates("needs to change a permission while the user is connected; RabbitMQ keeps the old one in its caches for a while")
def test_permission_taken_away_counts_for_the_next_publish(tmp_path):
    """Whatever remembers routes or permissions must forget them: the same key is published before and after."""
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

        channel.expect_close(403, refused("exchange", "amq.default"), "basic.publish")
        wire.close()
