"""RabbitMQ's own ``rabbitmqadmin``, unchanged, against our management API."""
import json
import subprocess
import sys

import pika
import pika.exceptions
import pytest

from tests.support.broker_process import BrokerProcess
from tests.support.programs import find
from tests.support.waiting import in_time

pytestmark = pytest.mark.needs_program("rabbitmqadmin")


@pytest.fixture(scope="module")
def admin(tmp_path_factory):
    """Runs one command and returns what it printed."""
    folder = tmp_path_factory.mktemp("rabbitmqadmin")
    with BrokerProcess(folder / "data", http_port=0) as broker:
        def run(*arguments):
            finished = subprocess.run(
                [
                    sys.executable, find("rabbitmqadmin"), "-H", "127.0.0.1", "-P", str(broker.ports["http"]),
                    *arguments,
                ],
                cwd=folder, capture_output=True, text=True, timeout=in_time(100), check=False)
            assert finished.returncode == 0, finished.stdout + finished.stderr
            return finished.stdout

        run.broker = broker
        yield run


def listed(admin, kind, *columns):
    return json.loads(admin("-f", "raw_json", "list", kind, *columns))


def test_topology_is_declared_listed_and_deleted(admin):
    admin("declare", "queue", "name=q", "durable=true", 'arguments={"x-max-length": 9}')
    admin("declare", "exchange", "name=x", "type=topic")
    admin("declare", "binding", "source=x", "destination=q", "routing_key=a.#")

    assert listed(admin, "queues", "name", "messages") == [{"name": "q", "messages": 0}]
    assert {"source": "x", "destination": "q", "routing_key": "a.#"} in listed(
        admin, "bindings", "source", "destination", "routing_key"
    )
    assert "x" in [one["name"] for one in listed(admin, "exchanges", "name")]
    admin("delete", "binding", "source=x", "destination_type=queue", "destination=q", "properties_key=a.%23")
    admin("delete", "exchange", "name=x")
    admin("delete", "queue", "name=q")
    assert listed(admin, "queues", "name") == []


def test_messages_are_published_got_and_purged(admin):
    admin("declare", "queue", "name=letters")

    assert "Message published" in admin("publish", "routing_key=letters", "payload=hello")
    got = json.loads(admin("-f", "raw_json", "get", "queue=letters", "ackmode=ack_requeue_false"))
    admin("publish", "routing_key=letters", "payload=again")
    admin("purge", "queue", "name=letters")

    assert [one["payload"] for one in got] == ["hello"]
    assert json.loads(admin("-f", "raw_json", "get", "queue=letters")) == []
    admin("delete", "queue", "name=letters")


def test_users_vhosts_permissions_and_policies(admin):
    admin("declare", "vhost", "name=v")
    admin("declare", "user", "name=joe", "password=secret", "tags=monitoring")
    admin("declare", "permission", "vhost=v", "user=joe", "configure=.*", "write=.*", "read=.*")
    admin("declare", "policy", "name=p", "pattern=^q", 'definition={"max-length": 3}', "priority=1")

    assert {"name": "v"} in listed(admin, "vhosts", "name")
    assert [
        one["vhost"] for one in listed(admin, "permissions", "user", "vhost") if one["user"] == "joe"
    ] == ["v"]
    assert listed(admin, "policies", "name")[0]["name"] == "p"
    assert "rabbitmq_version" in admin("-f", "raw_json", "show", "overview")
    assert listed(admin, "nodes", "name")
    admin("delete", "policy", "name=p")
    admin("delete", "permission", "vhost=v", "user=joe")
    admin("delete", "user", "name=joe")
    admin("delete", "vhost", "name=v")


def test_definitions_are_exported_and_imported(admin):
    admin("declare", "queue", "name=kept")
    admin("export", "definitions.json")
    admin("delete", "queue", "name=kept")

    admin("import", "definitions.json")

    assert listed(admin, "queues", "name") == [{"name": "kept"}]


@pytest.mark.parametrize("kind, declared, deleted, listing, shown", [
    (
        "operator_policy", ("name=op", "pattern=^q", 'definition={"max-length": 2}'), ("name=op",),
        "operator_policies", {"name": "op"},
    ),
    (
        "parameter", ("component=vhost-limits", "name=limits", 'value={"max-queues": 7}'),
        ("component=vhost-limits", "name=limits"), "parameters", {"name": "limits"},
    ),
    ("vhost_limit", ("vhost=/", "name=max-queues", "value=7"), ("vhost=/", "name=max-queues"),
     "vhost_limits", {"vhost": "/", "value": {"max-queues": 7}}),
    (
        "vhost", ("name=traced", "tracing=true"), ("name=traced",), "vhosts",
        {"name": "traced", "tracing": True},
    ),
])
def test_limits_parameters_and_tracing(admin, kind, declared, deleted, listing, shown):
    admin("declare", kind, *declared)
    assert shown in listed(admin, listing, *shown)
    admin("delete", kind, *deleted)
    assert shown not in listed(admin, listing, *shown)


def test_connections_are_listed_and_closed(admin):
    connection = pika.BlockingConnection(pika.URLParameters(admin.broker.amqp_url))
    consumer = connection.channel()
    consumer.basic_consume(consumer.queue_declare("", exclusive=True).method.queue, lambda *_: None)

    assert [len(listed(admin, kind)) for kind in ("connections", "channels", "consumers")] == [1, 1, 1]
    admin("close", "connection", f"name={listed(admin, 'connections', 'name')[0]['name']}")
    with pytest.raises(pika.exceptions.ConnectionClosedByBroker):
        connection.process_data_events(30)
