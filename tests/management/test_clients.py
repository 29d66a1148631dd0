"""Client libraries for RabbitMQ's HTTP API, unchanged."""
import asyncio

import pytest

from tests.support.waiting import in_time, wait_until


@pytest.fixture
def client(managed):
    pyrabbit2 = pytest.importorskip("pyrabbit2")
    return pyrabbit2.Client(f"127.0.0.1:{managed.ports['http']}", "guest", "guest", timeout=in_time(60))


def test_pyrabbit2_manages_a_vhost_from_its_making_to_its_end(client):
    """Every verb of the library that a node without plug-ins has: vhosts, users, permissions, exchanges,
    queues, bindings, messages, lists.
    """
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
    assert (
        [binding["routing_key"] for binding in client.get_queue_bindings(vhost, "jobs")] == ["jobs", "job.*"]
    )
    assert (depth, first["payload"], client.get_queue_depth(vhost, "jobs")) == (3, "payload 0", 0)
    assert client.get_overview()["node"] == client.get_nodes()[0]["name"]
    wait_until(
        lambda: client.get_connections() == [] and client.get_channels() == [],
        what="those of other tests to be gone",
    )

    client.delete_binding(vhost, "events", "jobs", "job.*")
    client.delete_queue(vhost, "jobs")
    client.delete_exchange(vhost, "events")
    client.delete_user("pyrabbit")
    client.delete_vhost(vhost)
    assert vhost not in client.get_vhost_names()


def test_amqpstorm_manages_a_vhost_from_its_making_to_its_end(managed, channel):
    """Every verb of its management client but ``top``, which needs a plug-in of RabbitMQ's."""
    management = pytest.importorskip("amqpstorm.management")
    vhost = "storm"
    with management.ManagementApi(
        f"http://127.0.0.1:{managed.ports['http']}", "guest", "guest", timeout=in_time(60)
    ) as client:
        node = client.overview()["contexts"][0]["node"]
        assert client.aliveness_test() == client.healthchecks.get() == client.healthchecks.get(node) == {
            "status": "ok"
        }
        assert (
            client.whoami()["name"] == "guest" and client.cluster_name()["name"]
            and client.node(node)["name"] == client.nodes()[0]["name"] == node
        )

        client.virtual_host.create(vhost)
        client.user.create("storm", "secret", tags="monitoring")
        for user in ("guest", "storm"):
            client.user.set_permission(user, vhost, ".*", ".*", ".*")
        client.exchange.declare("events", "topic", virtual_host=vhost, durable=True)
        client.exchange.declare("all", "fanout", virtual_host=vhost)
        client.queue.declare("jobs", virtual_host=vhost, durable=True, arguments={"x-max-length": 10})
        client.queue.bind("jobs", "events", "job.#", virtual_host=vhost, arguments={})
        client.exchange.bind("events", "all", "#", virtual_host=vhost, arguments={})
        for number in range(3):
            assert client.basic.publish(f"payload {number}", "job.new", "events", vhost)["routed"]
        taken = client.basic.get("jobs", vhost, requeue=False)
        depth = client.queue.get("jobs", vhost)["messages"]
        client.queue.purge("jobs", vhost)

        assert (taken[0].body, depth) == ("payload 0", 2)
        assert [queue["name"] for queue in client.queue.list(vhost)] == ["jobs"]
        assert client.queue.get("jobs", vhost)["messages"] == 0
        assert {one["routing_key"] for one in client.queue.bindings("jobs", vhost)} == {"jobs", "job.#"}
        assert client.exchange.get("events", vhost)["type"] == "topic"
        assert [one["destination"] for one in client.exchange.bindings("all", vhost)] == ["events"]
        assert {"events", "all"} <= {one["name"] for one in client.exchange.list(vhost)}
        assert (
            client.user.get("storm")["name"] == "storm"
            and client.user.get_permissions("storm")[0]["vhost"] == vhost
        )
        assert client.user.get_permission("storm", vhost)["write"] == ".*"
        assert (
            vhost in [one["name"] for one in client.virtual_host.list()]
            and client.virtual_host.get(vhost)["name"] == vhost
        )
        assert {one["user"] for one in client.virtual_host.get_permissions(vhost)} == {"guest", "storm"}
        connections = client.connection.list()
        assert connections and client.connection.get(connections[0]["name"])["name"] == connections[0]["name"]
        assert client.channel.get(client.channel.list()[0]["name"])["number"] == 1
        with pytest.raises(management.ApiError):
            client.queue.get("nowhere", vhost)

        client.queue.unbind("jobs", "events", "job.#", virtual_host=vhost, properties_key="job.%23")
        client.exchange.unbind("events", "all", "#", virtual_host=vhost, properties_key="%23")
        client.queue.delete("jobs", vhost)
        client.exchange.delete("events", vhost)
        client.user.delete_permission("storm", vhost)
        client.user.delete(["storm"])
        client.virtual_host.delete(vhost)
        client.connection.close(next(one["name"] for one in connections))
        assert vhost not in [one["name"] for one in client.virtual_host.list()]


@pytest.mark.parametrize("vhost", ["", "flower"])
def test_flower_shows_the_queues_of_its_broker(managed, api, vhost):
    """Flower's broker page: for the default vhost it asks for ``/api/queues//``."""
    broker = pytest.importorskip("flower.utils.broker")
    if vhost:
        api.put(f"vhosts/{vhost}")
    api.put(f"queues/{vhost or '%2F'}/celery")
    shown = broker.Broker(
        managed.url(vhost=vhost), http_api=f"http://guest:guest@127.0.0.1:{managed.ports['http']}/api/"
    )

    queues = asyncio.run(shown.queues(["celery"]))

    assert [
        (one["name"], one["messages"], one["messages_unacknowledged"], one["consumers"]) for one in queues
    ] == [("celery", 0, 0, 0)]
    api.delete(f"queues/{vhost or '%2F'}/celery")
