"""A client library for RabbitMQ's HTTP API, unchanged."""
import pytest

pyrabbit2 = pytest.importorskip("pyrabbit2")


@pytest.fixture
def client(managed):
    return pyrabbit2.Client(f"127.0.0.1:{managed.ports['http']}", "guest", "guest", timeout=10)


def test_pyrabbit2_manages_a_vhost_from_its_making_to_its_end(client):
    """Every verb of the library that a node without plug-ins has: vhosts, users, permissions, exchanges, queues, bindings, messages, lists."""
    vhost = "pyrabbit"
    assert client.is_alive() and client.get_whoami()["name"] == "guest"
    client.create_vhost(vhost)
    client.create_user("pyrabbit", "secret", tags="monitoring")
    client.set_vhost_permissions(vhost, "guest", ".*", ".*", ".*")
    client.set_vhost_permissions(vhost, "pyrabbit", ".*", "", ".*")
    client.create_exchange(vhost, "events", "topic")
    client.create_queue(vhost, "jobs", durable=True, arguments={"x-max-length": 10})
    client.create_binding(vhost, "events", "jobs", "job.*")

    for number in range(3):
        assert client.publish(vhost, "events", "job.new", f"payload {number}")
    depth = client.get_queue_depth(vhost, "jobs")
    first = client.get_messages(vhost, "jobs", count=1, requeue=False)[0]
    client.purge_queue(vhost, "jobs")

    assert vhost in client.get_vhost_names() and client.get_vhost(vhost)["name"] == vhost
    assert client.get_vhost_permissions(vhost)[-1]["user"] == "pyrabbit"
    assert client.get_user_permissions("pyrabbit")[0]["configure"] == ".*"
    assert client.get_exchange(vhost, "events")["type"] == "topic"
    assert [binding["routing_key"] for binding in client.get_queue_bindings(vhost, "jobs")] == ["jobs", "job.*"]
    assert (depth, first["payload"], client.get_queue_depth(vhost, "jobs")) == (3, "payload 0", 0)
    assert client.get_overview()["node"] == client.get_nodes()[0]["name"]
    assert client.get_connections() == [] and client.get_channels() == []

    client.delete_binding(vhost, "events", "jobs", "job.*")
    client.delete_queue(vhost, "jobs")
    client.delete_exchange(vhost, "events")
    client.delete_user("pyrabbit")
    client.delete_vhost(vhost)
    assert vhost not in client.get_vhost_names()
