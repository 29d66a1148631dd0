"""The broker as a whole: overview, nodes, connections, channels, health."""
import pytest


def test_the_overview_counts_what_there_is(api, channel):
    channel.queue_declare("counted")

    shape = api.get("overview").json()

    assert shape["object_totals"]["queues"] >= 1
    assert shape["object_totals"]["connections"] >= 1
    assert {listener["protocol"] for listener in shape["listeners"]} >= {"amqp", "http"}
    # What rabbitmqadmin, Flower and exporters read first.
    for key in ("management_version", "rabbitmq_version", "cluster_name", "node", "exchange_types", "queue_totals", "message_stats"):
        assert key in shape


def test_a_connection_and_its_channels_are_shown(api, channel):
    mine = [one for one in api.get("connections").json() if one["client_properties"].get("product", "").startswith("Pika")]
    name = mine[-1]["name"].replace(" ", "%20").replace(">", "%3E")

    one = api.get(f"connections/{name}").json()
    channels = api.get(f"connections/{name}/channels").json()

    assert (one["user"], one["vhost"], one["protocol"], one["state"]) == ("guest", "/", "AMQP 0-9-1", "running")
    assert one["recv_oct"] > 0 and one["send_oct"] > 0
    assert [channel["number"] for channel in channels] == [1]


def test_the_node_says_how_it_is(api):
    node = api.get("nodes").json()[0]

    assert node["running"] is True
    assert node["mem_used"] > 0 and node["fd_used"] > 0 and node["disk_free"] > 0


@pytest.mark.parametrize("check", [
    "alarms", "local-alarms", "virtual-hosts", "protocol-listener/amqp", "is-in-service", "ready-to-serve-clients", "node-is-quorum-critical",
])
def test_a_sound_broker_passes_the_health_checks(api, check):
    answer = api.get(f"health/checks/{check}")

    assert (answer.status_code, answer.json()["status"]) == (200, "ok")


def test_a_port_nobody_listens_on_fails_its_health_check(api):
    answer = api.get("health/checks/port-listener/1")

    assert answer.status_code == 503
    assert answer.json()["status"] == "failed"


def test_the_aliveness_test_passes(api):
    assert api.get("aliveness-test/%2F").json() == {"status": "ok"}


def test_lists_are_paged_sorted_filtered_and_cut(api):
    for number in range(5):
        api.put(f"queues/%2F/paged-{number}")

    page = api.get("queues/%2F?page=2&page_size=2&name=paged-&sort=name&sort_reverse=true&columns=name,durable").json()

    assert page["items"] == [{"name": "paged-2", "durable": True}, {"name": "paged-1", "durable": True}]
    assert (page["filtered_count"], page["page_count"], page["page"], page["page_size"], page["item_count"]) == (5, 3, 2, 2, 2)


def test_an_unknown_path_is_not_found(api):
    answer = api.get("nosuch")

    assert (answer.status_code, answer.json()["error"]) == (404, "Object Not Found")
