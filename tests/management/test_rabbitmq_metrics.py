"""Metrics beside RabbitMQ's: names, labels and types that a live 3.10 with traffic exposed
(rabbitmq_metrics.json), and what its dashboard asks for.

MISSING lists what is left out, and docs/compatibility.md says why.
"""
import json
import re
from pathlib import Path

import pytest
import requests
from prometheus_client.parser import text_string_to_metric_families

from tests.support.waiting import in_time, wait_until

THEIRS = json.loads((Path(__file__).parent / "rabbitmq_metrics.json").read_text(encoding="utf-8"))
_DETAILED = "rabbitmq_(detailed_)?"
# (names, why): patterns.
MISSING = (
    (
        _DETAILED + r"(erlang_(?!uptime)|raft_|schema_db_|msg_store_|queue_index_|io_)\w+",
        "the inside of Erlang and of RabbitMQ's store",
    ),
    (_DETAILED + r"\w+_process_(reductions_total|memory_bytes)", "there is no process behind a thing"),
    (_DETAILED + r"queue_messages_(\w*ram|paged_out)(_bytes)?", "messages are in mapped files"),
    (_DETAILED + r"queue_(disk_(reads|writes)_total|head_message_timestamp)", "as in the API"),
    (
        _DETAILED + r"connection_(incoming_packets_total|outgoing_packets_total|pending_packets)",
        "packets are not counted",
    ),
    (_DETAILED + r"channel_(messages|acks)_uncommitted", "not told apart from what is unacknowledged"),
    (_DETAILED + r"auth_attempts_detailed_\w+", "addresses are not counted for ever"),
    ("rabbitmq_queue_consumer_utilisation", "a sum of shares over all queues"),
    ("rabbitmq_global_messages_dead_lettered_confirmed_total", "dead letters are not confirmed but flushed"),
)
# (names, labels left out, why).
UNLABELLED = (
    (_DETAILED + r"channel_(get\w*|messages_(acked|delivered|delivered_ack|redelivered|published|unroutable_\w+))_total", {"channel"},
     "counted by queue and by exchange, not by channel as well"),
    (_DETAILED + r"channel_messages_confirmed_total", {"exchange"}, "counted by channel"),
    (_DETAILED + r"queue_messages_published_total", {"channel", "exchange", "exchange_vhost"}, "counted by queue"),
    (_DETAILED + r"connection_\w+", {"channel"}, "which is where RabbitMQ puts the connection: its label is connection"),
)
# What the two generations of the Overview dashboard ask for.
DASHBOARD = """
rabbitmq_build_info rabbitmq_identity_info rabbitmq_connections rabbitmq_channels rabbitmq_queues rabbitmq_consumers
rabbitmq_queue_messages_ready rabbitmq_queue_messages_unacked rabbitmq_queue_messages_published_total
rabbitmq_channel_consumers rabbitmq_channel_messages_published_total rabbitmq_channel_messages_confirmed_total rabbitmq_channel_messages_unconfirmed
rabbitmq_channel_messages_unroutable_dropped_total rabbitmq_channel_messages_unroutable_returned_total rabbitmq_channel_messages_delivered_total
rabbitmq_channel_messages_delivered_ack_total rabbitmq_channel_messages_redelivered_total rabbitmq_channel_messages_acked_total
rabbitmq_channel_get_total rabbitmq_channel_get_ack_total rabbitmq_channel_get_empty_total
rabbitmq_global_publishers rabbitmq_global_consumers rabbitmq_global_messages_received_total rabbitmq_global_messages_received_confirm_total
rabbitmq_global_messages_confirmed_total rabbitmq_global_messages_routed_total rabbitmq_global_messages_unroutable_dropped_total
rabbitmq_global_messages_unroutable_returned_total rabbitmq_global_messages_delivered_total rabbitmq_global_messages_redelivered_total
rabbitmq_global_messages_delivered_consume_auto_ack_total rabbitmq_global_messages_delivered_consume_manual_ack_total
rabbitmq_global_messages_delivered_get_auto_ack_total rabbitmq_global_messages_delivered_get_manual_ack_total
rabbitmq_global_messages_get_empty_total rabbitmq_global_messages_acknowledged_total
rabbitmq_resident_memory_limit_bytes rabbitmq_process_resident_memory_bytes rabbitmq_disk_space_available_bytes
rabbitmq_disk_space_available_limit_bytes rabbitmq_process_max_fds rabbitmq_process_open_fds rabbitmq_process_max_tcp_sockets
rabbitmq_process_open_tcp_sockets rabbitmq_connections_opened_total rabbitmq_connections_closed_total rabbitmq_channels_opened_total
rabbitmq_channels_closed_total rabbitmq_queues_declared_total rabbitmq_queues_created_total rabbitmq_queues_deleted_total
""".split()
VERSIONS = {"rabbitmq_version", "prometheus_plugin_version", "prometheus_client_version", "erlang_version"}


def exposed(api, path):
    """({sample's name: its labels}, {family's name: type}) of an exposition; no series may come twice."""
    answer = requests.get(f"{api.base}/{path}", auth=("guest", "guest"), timeout=in_time(60))
    assert answer.status_code == 200, answer.text
    labels, types, seen = {}, {}, set()
    for family in text_string_to_metric_families(answer.text):
        types[family.name] = types[f"{family.name}_total"] = family.type
        for sample in family.samples:
            series = (sample.name, tuple(sorted(sample.labels.items())))
            assert series not in seen
            seen.add(series)
            labels.setdefault(sample.name, set()).update(sample.labels)
    return labels, types


def unlabelled(name):
    return set().union(*(left_out for pattern, left_out, _ in UNLABELLED if re.fullmatch(pattern, name)))


@pytest.mark.parametrize("path", THEIRS)
def test_names_labels_and_types_are_rabbitmqs(busy, path):
    labels, types = exposed(busy.api, path)
    theirs = {name: facts for name, facts in THEIRS[path].items() if facts["labels"] is not None
              and not any(re.fullmatch(pattern, name) for pattern, _ in MISSING)}

    missing = [name for name in theirs if name not in labels]
    # Whether there are several channels or queues in the sums is no matter of their names.
    unlike = {name: facts["labels"] for name, facts in theirs.items()
              if name in labels and not set(facts["labels"]) - unlabelled(name) <= labels[name]}
    typed = {name: facts["type"] for name, facts in theirs.items() if facts["type"] in ("counter", "gauge")}
    untypical = {name: types.get(name) for name, type_ in typed.items() if types.get(name) != type_}

    assert missing == []
    assert unlike == {}
    assert untypical == {}


@pytest.mark.parametrize("path, endpoint", [("metrics", "aggregated"), ("metrics/per-object", "per-object")])
def test_whatever_the_overview_dashboard_asks_for_is_there(busy, path, endpoint):
    """It joins everything with rabbitmq_identity_info by instance, so there must be one series of that."""
    text = requests.get(f"{busy.api.base}/{path}", auth=("guest", "guest"), timeout=in_time(60)).text
    samples = [sample for family in text_string_to_metric_families(text) for sample in family.samples]
    identities = [sample.labels for sample in samples if sample.name == "rabbitmq_identity_info"]
    builds = [sample.labels for sample in samples if sample.name == "rabbitmq_build_info"]

    assert set(DASHBOARD) - {sample.name for sample in samples} == set()
    assert [set(identity) for identity in identities] == [
        {"rabbitmq_node", "rabbitmq_cluster", "rabbitmq_cluster_permanent_id", "rabbitmq_endpoint"}
    ]
    assert (
        identities[0]["rabbitmq_endpoint"] == endpoint and identities[0]["rabbitmq_cluster"] == "busy-cluster"
    )
    assert len(builds) == 1 and set(builds[0]) >= VERSIONS


def values(api, path="metrics"):
    text = requests.get(f"{api.base}/{path}", auth=("guest", "guest"), timeout=in_time(60)).text
    return {
        (sample.name, tuple(sorted(sample.labels.items()))): sample.value
        for family in text_string_to_metric_families(text) for sample in family.samples
    }


def test_counters_do_not_fall_when_what_they_count_goes(api, channel, name):
    """Messages of a queue, an exchange and a channel that are deleted or closed stay in the sums."""
    channel.confirm_delivery()
    channel.exchange_declare(name, "fanout")
    for number in range(3):
        channel.queue_declare(f"{name}-{number}")
        channel.queue_bind(f"{name}-{number}", name)

    def counted():
        read = values(api)
        return {
            key: read[f"rabbitmq_{key}_total", labels]
            for key, labels in (
                ("channel_messages_published", ()), ("channel_messages_confirmed", ()),
                ("queue_messages_published", ()), ("channel_get", ()),
                ("global_messages_received", (("protocol", "amqp091"),)),
                ("global_messages_received_confirm", (("protocol", "amqp091"),)),
                (
                    "global_messages_delivered_get_auto_ack",
                    (("protocol", "amqp091"), ("queue_type", "rabbit_classic_queue")),
                ))
        }
    before = counted()

    for _ in range(5):
        channel.basic_publish(name, "", b"x")
    assert channel.basic_get(f"{name}-0", auto_ack=True)[0] is not None
    between = counted()
    for number in range(3):
        channel.queue_delete(f"{name}-{number}")
    channel.exchange_delete(name)
    channel.close()
    after = counted()

    expected = {"queue_messages_published": 15, "channel_get": 1, "global_messages_delivered_get_auto_ack": 1}
    assert {key: value - before[key] for key, value in between.items()} == {
        key: expected.get(key, 5) for key in before
    }
    assert after == between


def test_a_message_published_once_counts_once_however_many_queues_take_it(api, channel, name):
    """As in RabbitMQ: publish of the overview and of a vhost is what publishers sent,
    of a queue what it took.
    """
    channel.confirm_delivery()
    channel.exchange_declare(name, "fanout")
    for number in range(3):
        channel.queue_declare(f"{name}-{number}", exclusive=True)
        channel.queue_bind(f"{name}-{number}", name)
    before = api.get("vhosts/%2F").json()["message_stats"]["publish"]

    for _ in range(4):
        channel.basic_publish(name, "", b"x")
    channel.basic_publish("", "nobody", b"x")

    assert api.get("vhosts/%2F").json()["message_stats"]["publish"] - before == 5
    assert api.get(f"queues/%2F/{name}-0").json()["message_stats"]["publish"] == 4
    channel.exchange_delete(name)


def test_dead_letters_are_counted_by_reason(api, channel, name):
    channel.queue_declare(name, exclusive=True, arguments={"x-dead-letter-exchange": "amq.fanout"})
    labels = (("dead_letter_strategy", "at_least_once"), ("queue_type", "rabbit_classic_queue"))
    key = ("rabbitmq_global_messages_dead_lettered_rejected_total", labels)
    before = values(api)[key]
    channel.basic_publish("", name, b"x")
    method = channel.basic_get(name)[0]
    channel.basic_reject(method.delivery_tag, requeue=False)
    wait_until(lambda: values(api)[key] > before, what="the dead letter")

    assert values(api)[key] - before == 1


def test_detailed_filters_by_vhost_and_passes_over_what_it_does_not_know(busy):
    named, _ = exposed(
        busy.api,
        "metrics/detailed?family=queue_coarse_metrics&family=vhost_status&vhost=nowhere&family=unheard_of",
    )
    filtered = values(busy.api, "metrics/detailed?family=queue_coarse_metrics&vhost=busy")
    queues = {
        (dict(labels)["vhost"], dict(labels)["queue"])
        for name, labels in filtered if name == "rabbitmq_detailed_queue_messages"
    }

    assert set(named) == {"rabbitmq_identity_info", "rabbitmq_build_info"}
    assert (
        {vhost for vhost, _ in queues} == {"busy"}
        and {queue for _, queue in queues} >= {"busy", "idle", "log"}
    )
