"""The broker as a whole: overview, nodes, connections, channels, health."""
from urllib.parse import quote

import pika
import pytest

from tests.management.conftest import API
from tests.support.broker_process import BrokerProcess
from tests.support.waiting import wait_until


def test_the_overview_counts_what_there_is(api, channel):
    channel.queue_declare("counted")

    shape = api.get("overview").json()

    assert shape["object_totals"]["queues"] >= 1
    assert shape["object_totals"]["connections"] >= 1
    assert {listener["protocol"] for listener in shape["listeners"]} >= {"amqp", "http"}
    # What rabbitmqadmin, Flower and exporters read first.
    for key in (
        "management_version", "rabbitmq_version", "cluster_name", "node", "exchange_types", "queue_totals",
        "message_stats",
    ):
        assert key in shape


def test_curves_begin_at_the_brokers_start(tmp_path):
    """The second sample is that of this very request, the first that anybody makes. Samples are shown a
    second apart.
    """
    with BrokerProcess(tmp_path / "data", http_port=0) as process:
        api = API(f"http://127.0.0.1:{process.ports['http']}")

        wait_until(lambda: api.get("nodes").json()[0]["uptime"] > 1500)

        shape = api.get("vhosts/%2F?lengths_age=600&lengths_incr=1").json()

    assert len(shape["messages_details"]["samples"]) == 2


def test_a_connection_and_its_channels_are_shown(api, channel):
    mine = [
        one
        for one in api.get("connections").json()
        if one["client_properties"].get("product", "").startswith("Pika")
    ]
    name = mine[-1]["name"].replace(" ", "%20").replace(">", "%3E")

    one = api.get(f"connections/{name}").json()
    channels = api.get(f"connections/{name}/channels").json()

    assert (one["user"], one["vhost"], one["protocol"], one["state"]) == (
        "guest", "/", "AMQP 0-9-1", "running"
    )
    assert one["recv_oct"] > 0 and one["send_oct"] > 0
    assert [channel["number"] for channel in channels] == [1]


def test_a_channel_counts_acks_redeliveries_and_what_it_could_not_route(managed, api, name):
    """Acks of several messages at once, basic.get, large bodies and returned messages, too."""
    parameters = pika.URLParameters(managed.amqp_url)
    parameters.client_properties = {"connection_name": name}
    connection = pika.BlockingConnection(parameters)
    channel = connection.channel()
    channel.queue_declare("counting", exclusive=True)
    for _ in range(5):
        channel.basic_publish("", "counting", b"small")
    channel.basic_publish("", "nowhere", b"", mandatory=True)
    channel.basic_publish("", "nowhere", b"")
    gets = [channel.basic_get("counting")[0] for _ in range(2)]
    channel.basic_nack(gets[-1].delivery_tag, multiple=True)
    gets = [channel.basic_get("counting")[0] for _ in range(5)]
    channel.basic_ack(gets[-1].delivery_tag, multiple=True)
    channel.basic_publish("", "counting", b"no ack")
    channel.basic_get("counting", auto_ack=True)
    channel.basic_publish("", "counting", b"rejected")
    channel.basic_reject(channel.basic_get("counting")[0].delivery_tag, requeue=False)
    got = []
    channel.basic_consume("counting", lambda _channel, method, *_: got.append(method))
    for body in (b"small", b"x" * 200_000):
        channel.basic_publish("", "counting", body)
        wait_until(lambda: connection.process_data_events(0.01) or got, what="a message")
        channel.basic_nack(got.pop().delivery_tag)
        wait_until(lambda: connection.process_data_events(0.01) or got, what="the message again")
        channel.basic_ack(got.pop().delivery_tag)

    def counted():
        found = [one for one in api.get("connections").json() if one["user_provided_name"] == name]
        channels = api.get(f"connections/{quote(found[0]['name'], safe='')}/channels").json()
        stats = channels[0]["message_stats"]
        return stats["ack"], stats["redeliver"], stats["return_unroutable"], stats["drop_unroutable"]

    wait_until(lambda: counted() == (7, 4, 1, 1), what="the counters of the channel")
    assert "rate" in api.get("channels").json()[0]["message_stats"]["ack_details"]
    connection.close()


def test_the_node_says_how_it_is(api):
    node = api.get("nodes").json()[0]

    assert node["running"] is True
    assert node["mem_used"] > 0 and node["fd_used"] > 0 and node["disk_free"] > 0
    assert node["failed_jobs"] == {}


@pytest.mark.parametrize("check", [
    "alarms", "local-alarms", "virtual-hosts", "protocol-listener/amqp", "is-in-service",
    "ready-to-serve-clients", "node-is-quorum-critical",
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
        api.put(f"queues/%2F/paged-{number}", {"durable": True})

    page = api.get(
        "queues/%2F?page=2&page_size=2&name=paged-&sort=name&sort_reverse=true&columns=name,durable"
    ).json()

    assert page["items"] == [{"name": "paged-2", "durable": True}, {"name": "paged-1", "durable": True}]
    assert (
        page["filtered_count"], page["page_count"], page["page"], page["page_size"], page["item_count"]
    ) == (5, 3, 2, 2, 2)


def test_an_unknown_path_is_not_found(api):
    answer = api.get("nosuch")

    assert (answer.status_code, answer.json()["error"]) == (404, "Object Not Found")


def test_curves_are_sampled_while_somebody_looks(tmp_path, broker_process):
    """Samples begin with the first question for them; a list has rates alone."""
    config = tmp_path / "gomq.ini"
    config.write_text("[main]\nstats_interval = 100\nstats_log_size = 5\n")
    process = broker_process(http_port=0, config=config).start()
    api = API(f"http://127.0.0.1:{process.ports['http']}")
    api.put("queues/%2F/curved")
    path = "queues/%2F/curved?lengths_age=60&lengths_incr=1&msg_rates_age=60&msg_rates_incr=1"
    api.get(path.replace("incr=1", "incr=60"))

    api.post("exchanges/%2F/amq.default/publish", {
        "properties": {}, "routing_key": "curved", "payload": "x", "payload_encoding": "string"
    })

    def newest():
        return api.get(path).json()["messages_details"]["samples"][0]
    wait_until(lambda: newest()["sample"] == 1, what="a sample of the message")
    shape = api.get(path).json()
    assert set(shape["message_stats"]["publish_details"]) == {"rate", "samples", "avg", "avg_rate"}
    assert "samples" not in api.get("queues").json()[0]["messages_details"]
    assert "samples" in api.get(
        "overview?lengths_age=60&lengths_incr=1"
    ).json()["queue_totals"]["messages_details"]
    assert "samples" in api.get("nodes?node_stats_age=60&node_stats_incr=1").json()[0]["mem_used_details"]
    assert api.get("overview?lengths_age=never&lengths_incr=1").status_code == 400
    assert api.delete("reset").status_code == 204
    assert len(api.get(path).json()["messages_details"]["samples"]) <= 2


@pytest.mark.parametrize("check, status", [
    ("certificate-expiration/1/days", 200), ("certificate-expiration/many/days", 400),
    ("certificate-expiration/1/fortnights", 400),
    ("port-listener/http", 400), ("protocol-listener/amqp091", 200), ("protocol-listener/mqtt", 503),
    ("protocol-listener/http%2Fprometheus", 503),
    ("metadata-store/initialized", 200), ("below-node-connection-limit", 200),
    ("quorum-queues-without-elected-leaders/vhost/nosuch", 404),
])
def test_health_checks_say_what_they_were_asked(api, check, status):
    assert api.get(f"health/checks/{check}").status_code == status


def test_a_certificate_that_ends_soon_fails_its_check(tmp_path, broker_process):
    import datetime

    import trustme
    issued = trustme.CA().issue_cert(
        "localhost", not_after=datetime.datetime.now(datetime.timezone.utc) + datetime.timedelta(days=10)
    )
    issued.private_key_and_cert_chain_pem.write_to_path(tmp_path / "both.pem")
    process = broker_process(http_port=0, amqps_port=0, tls_cert=tmp_path / "both.pem").start()
    api = API(f"http://127.0.0.1:{process.ports['http']}")

    soon, later = (
        api.get("health/checks/certificate-expiration/1/weeks"),
        api.get("health/checks/certificate-expiration/1/months"),
    )

    assert (soon.status_code, later.status_code) == (200, 503)
    assert "amqps" in [one["protocol"] for one in later.json()["expired"]]


def test_the_node_tells_its_memory(api):
    node = api.get("nodes").json()[0]["name"]

    memory = api.get(f"nodes/{node}/memory").json()["memory"]
    assert memory["total"]["rss"] > 1e6
    # what the program rabbitmqadmin cannot do without
    assert {"connection_readers", "metadata_store_ets", "atom", "reserved_unallocated"} < set(memory)
    assert memory["other_system"] == memory["total"]["allocated"]
    assert api.get("nodes/nosuch/memory").status_code == 404
    assert len(api.get("nodes/gc_stats").json()) == 3
    assert api.post(f"nodes/{node}/gc_collect").status_code == 204


def test_one_release_of_rabbitmq_is_claimed_wherever_one_is(api, channel):
    """Clients and tools decide by it what they may expect."""
    by_amqp = channel.connection._impl.server_properties["version"]
    overview, definitions = api.get("overview").json(), api.get("definitions").json()

    assert {
        by_amqp, overview["rabbitmq_version"], overview["management_version"], definitions["rabbit_version"],
        definitions["rabbitmq_version"],
    } == {"3.13.7"}


CURVES = "&".join(
    f"{kind}_age=600&{kind}_incr=60" for kind in ("lengths", "msg_rates", "data_rates"))


@pytest.mark.parametrize("path, field", [
    ("queues", "messages_details"), ("queues/%2F", "message_stats.publish_details"),
    ("exchanges", "message_stats.publish_in_details"), ("connections", "recv_oct_details"),
    ("channels", "message_stats.publish_details"), ("vhosts", "messages_details"),
    ("vhosts", "message_stats.confirm_details"),
])
def test_lists_have_samples_where_they_are_asked_for(api, channel, path, field):
    """As RabbitMQ's: samples, newest first, beside avg and avg_rate."""
    channel.queue_declare("sampled", durable=True)
    channel.queue_bind("sampled", "amq.topic")
    channel.basic_publish("amq.topic", "sampled", b"x")
    wait_until(lambda: api.get("queues/%2F/sampled").json()["messages"])

    rows = api.get(f"{path}?{CURVES}").json()

    found = [at(row, field) for row in rows if at(row, field) is not None]
    assert found and all(set(one) == {"rate", "samples", "avg", "avg_rate"} for one in found)
    (first, *_) = found[0]["samples"]
    assert set(first) == {"sample", "timestamp"}


def at(row, field):
    for part in field.split("."):
        row = (row or {}).get(part)
    return row


def test_query_of_samples_that_makes_no_sense_is_refused_for_lists_too(api):
    answer = api.get("queues?lengths_age=never&lengths_incr=1")

    assert (answer.status_code, answer.json()["reason"]) == (
        400, "lengths_age must be between 1 and 86400 seconds")
