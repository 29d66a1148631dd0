"""Prometheus metrics, read by Prometheus' own parser."""
import contextlib

import pytest
import requests
from prometheus_client.parser import text_string_to_metric_families

from tests.support.broker_process import BrokerProcess
from tests.support.waiting import in_time, wait_until


@pytest.fixture(scope="module")
def metrics(tmp_path_factory):
    """(broker, a function from a path to {(sample name, labels): value})"""
    with BrokerProcess(tmp_path_factory.mktemp("metrics") / "data", metrics_http_port=0) as process:
        def read(path):
            answer = requests.get(f"http://127.0.0.1:{process.ports['metrics']}/{path}", timeout=in_time(60))
            assert answer.status_code == 200, answer.text
            return {
                (sample.name, tuple(sorted(sample.labels.items()))): sample.value
                for family in text_string_to_metric_families(answer.text) for sample in family.samples
            }

        yield process, read


@pytest.fixture
def filled(metrics):
    """A queue with three messages, one of them unacknowledged."""
    import pika
    connection = pika.BlockingConnection(pika.URLParameters(metrics[0].amqp_url))
    channel = connection.channel()
    channel.queue_declare('q"uote\\d')
    channel.confirm_delivery()
    for _ in range(3):
        channel.basic_publish("", 'q"uote\\d', b"12345")
    channel.basic_get('q"uote\\d')
    yield metrics[1]
    channel.queue_delete('q"uote\\d')
    connection.close()


def test_totals_carry_rabbitmqs_names(filled):
    samples = filled("metrics")

    assert samples["rabbitmq_queue_messages_ready", ()] == 2
    assert samples["rabbitmq_queue_messages_unacked", ()] == 1
    assert samples["rabbitmq_queues", ()] == 1
    assert samples["rabbitmq_connections", ()] == 1
    assert samples["rabbitmq_global_messages_received_total", (("protocol", "amqp091"),)] >= 3
    assert samples["rabbitmq_process_resident_memory_bytes", ()] > 1e6
    assert any(name == "rabbitmq_identity_info" for name, _ in samples)


def test_objects_are_labelled_and_their_names_escaped(filled):
    samples = filled("metrics/per-object")

    assert samples["rabbitmq_queue_messages_ready", (("queue", 'q"uote\\d'), ("vhost", "/"))] == 2
    assert samples["rabbitmq_queue_messages_ready_bytes", (("queue", 'q"uote\\d'), ("vhost", "/"))] == 10


def test_detailed_gives_the_families_asked_for(filled):
    samples = filled("metrics/detailed?family=queue_coarse_metrics&vhost=%2F")

    assert samples["rabbitmq_detailed_queue_messages", (("queue", 'q"uote\\d'), ("vhost", "/"))] == 3
    assert not any("exchange" in name for name, _ in samples)
    assert not any(
        "queue" in name for name, _ in filled("metrics/detailed?family=queue_coarse_metrics&vhost=elsewhere")
    )


def test_a_prefix_replaces_rabbitmqs(filled):
    assert ("lavinmq_queues", ()) in filled("metrics?prefix=lavinmq")


def test_every_family_is_declared_once_however_many_queues_there_are(metrics):
    import pika
    connection = pika.BlockingConnection(pika.URLParameters(metrics[0].amqp_url))
    channel = connection.channel()
    for number in range(450):
        channel.queue_declare(f"many-{number}", auto_delete=True, exclusive=True)

    text = requests.get(
        f"http://127.0.0.1:{metrics[0].ports['metrics']}/metrics/per-object", timeout=in_time(60)
    ).text
    connection.close()

    assert text.count("# TYPE rabbitmq_queue_messages_ready gauge") == 1
    assert text.count('rabbitmq_queue_messages_ready{') == 450


def test_on_the_management_port_metrics_take_a_login(api):
    base = api.base

    assert requests.get(f"{base}/metrics", timeout=in_time(60)).status_code == 401
    assert requests.get(f"{base}/metrics", auth=("guest", "guest"), timeout=in_time(60)).status_code == 200


def is_bound(listening, address):
    """Try to listen there; whoever has it now, as the same test of another run,
    may give it back at any moment.
    """
    try:
        listening.bind(address)
        listening.listen()
    except OSError:
        return False
    return True


def test_a_second_broker_goes_on_without_a_default_port_that_is_taken(tmp_path):
    import socket

    with socket.socket() as taken:
        taken.setsockopt(socket.SOL_SOCKET, socket.SO_REUSEADDR, 1)
        with contextlib.suppress(AssertionError):  # somebody else has it for good, which serves as well
            wait_until(lambda: is_bound(taken, ("127.0.0.1", 15692)))
        process = BrokerProcess(tmp_path / "data", http_port=-1)
        del process._options["metrics_http_port"]
        with process:
            process.wait_for_log("going on without metrics http port: port 15692")


def test_ages_and_returns_of_messages_are_told(metrics):
    import pika
    connection = pika.BlockingConnection(pika.URLParameters(metrics[0].amqp_url))
    channel = connection.channel()
    channel.queue_declare("aging", durable=True)
    channel.confirm_delivery()
    for _ in range(3):
        channel.basic_publish("", "aging", b"x", pika.BasicProperties(delivery_mode=2))
    method, _, _ = channel.basic_get("aging")
    channel.basic_nack(method.delivery_tag)
    channel.basic_get("aging")
    labels = (("queue", "aging"), ("vhost", "/"))

    samples = metrics[1]("metrics/per-object")
    totals = metrics[1]("metrics")

    assert 0 < samples["gomq_queue_oldest_ready_age_seconds", labels] < 60
    assert 0 <= samples["gomq_queue_oldest_unacked_age_seconds", labels] < 60
    assert (
        samples["gomq_queue_messages_returned", (("le", "1"), *labels)]
        == samples["gomq_queue_messages_returned", (("le", "+Inf"), *labels)] == 1
    )
    assert totals["gomq_sync_duration_seconds_count", ()] >= 1
    assert totals["gomq_oldest_ready_age_seconds", ()] > 0
    assert totals["gomq_event_loop_lag_seconds", ()] > 0
    detailed = metrics[1]("metrics/detailed?family=gomq_queue_ages&vhost=%2F")
    own = {name for name, _ in detailed if name.startswith("gomq_")}
    assert own == {"gomq_queue_oldest_ready_age_seconds", "gomq_queue_oldest_unacked_age_seconds"}
    channel.queue_delete("aging")
    connection.close()


def test_every_metric_of_the_dashboard_is_exposed(metrics):
    """The dashboard in etc shows nothing that a broker does not tell."""
    import json
    import re
    from pathlib import Path

    from gomq_py.http.cluster_metrics import cluster_families
    from gomq_py.http.exposition import rendered

    dashboard = json.loads(
        Path(__file__).parents[2].joinpath("etc", "grafana-gomq.json").read_text(encoding="utf-8")
    )
    wanted = {
        name
        for panel in dashboard["panels"] for target in panel["targets"]
        for name in re.findall(r"(?:gomq|rabbitmq)_\w+", target["expr"])
    }
    port = metrics[0].ports["metrics"]
    told = "".join(
        requests.get(f"http://127.0.0.1:{port}/{path}", timeout=in_time(60)).text
        for path in ("metrics", "metrics/per-object")
    )
    of_clusters = rendered(cluster_families({"elects": True, "min_isr": 1}))
    told += b"".join(of_clusters).decode()
    declared = set(re.findall(r"^# TYPE (\w+) ", told, re.MULTILINE))

    assert len(wanted) > 15
    assert {
        name
        for name in wanted
        if re.sub(r"_(bucket|count|sum)$", "", name) not in declared and name not in declared
    } == set()
