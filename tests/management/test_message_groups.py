"""A queue's message groups as operators see them: in its API object, in metrics, by a policy."""
import pika
import pytest
import requests

from tests.support.waiting import in_time


def publish(channel, queue, *groups):
    for number, group in enumerate(groups):
        channel.basic_publish("", queue, b"%d" % number, pika.BasicProperties(headers={"customer": group}))


def declare(channel, name, **arguments):
    channel.confirm_delivery()
    channel.queue_declare(name, durable=True, arguments={
        "x-message-group": "header:customer", "x-message-group-limit": 1, **arguments})


def test_a_queue_shows_its_groups(api, channel, name):
    declare(channel, name)
    publish(channel, name, "acme", "acme", "other", 7, "acme", 7)
    for _ in range(4):
        channel.basic_get(name)

    groups = api.get(f"queues/%2F/{name}").json()["message_groups"]

    assert groups.pop("longest_wait_s") >= 0
    assert groups == {
        "groups_out": 3, "messages_out": 3, "groups_waiting": 2, "messages_waiting": 3,
        "deepest_group": "acme", "deepest_group_messages": 2, "is_full": False,
    }


def test_a_plain_queue_shows_none(api, channel, name):
    channel.queue_declare(name)

    assert "message_groups" not in api.get(f"queues/%2F/{name}").json()


@pytest.mark.parametrize("group", [b"\xff\xfe", "k" * 300])
def test_keys_that_are_no_short_text_are_shown_in_digits(api, channel, name, group):
    declare(channel, name)
    publish(channel, name, group, group)
    channel.basic_get(name)
    channel.basic_get(name)

    deepest = api.get(f"queues/%2F/{name}").json()["message_groups"]["deepest_group"]

    assert bytes.fromhex(deepest)


def test_metrics_tell_of_groups(api, channel, name, managed):
    declare(channel, name)
    publish(channel, name, "a", "a", "b", "a")
    for _ in range(3):
        channel.basic_get(name)

    text = requests.get(
        f"{api.base}/metrics/detailed?family=gomq_message_groups", auth=("guest", "guest"),
        timeout=in_time(60)).text

    shown = {
        line.partition("{")[0]: float(line.rpartition(" ")[2])
        for line in text.splitlines() if f'queue="{name}"' in line
    }
    assert shown.pop("gomq_queue_message_groups_longest_wait_seconds") >= 0
    assert shown == {
        "gomq_queue_message_groups_out": 2, "gomq_queue_message_groups_messages_out": 2,
        "gomq_queue_message_groups_waiting": 1,
        "gomq_queue_message_groups_messages": 2, "gomq_queue_message_groups_deepest": 2,
    }


def test_a_request_gets_several_messages_of_a_group(api, channel, name):
    declare(channel, name, **{"x-message-group-limit": 9})
    publish(channel, name, "a", "a", "b")

    taken = api.post(f"queues/%2F/{name}/get", {
        "count": 5, "ackmode": "ack_requeue_true", "encoding": "auto"}).json()

    assert [message["payload"] for message in taken] == ["0", "1", "2"]
    assert api.get(f"queues/%2F/{name}").json()["message_groups"]["messages_out"] == 0


def test_a_policy_gives_groups_to_queues_declared_under_it(api, channel, name):
    channel.queue_declare(f"{name}.before")
    policy = {"pattern": f"^{name}", "apply-to": "queues", "definition": {
        "message-group": "routing-key", "message-group-limit": 2}}
    assert api.put(f"policies/%2F/{name}", policy).status_code == 201

    channel.queue_declare(f"{name}.after")
    channel.queue_declare(f"{name}.after")  # the same declare again

    assert api.get(f"queues/%2F/{name}.after").json()["arguments"] == {
        "x-message-group": "routing-key", "x-message-group-limit": 2}
    assert api.get(f"queues/%2F/{name}.before").json()["arguments"] == {}
    api.delete(f"policies/%2F/{name}")
    assert "message_groups" in api.get(f"queues/%2F/{name}.after").json()


def test_a_policy_with_another_value_is_refused(api, name):
    policy = {"pattern": f"^{name}", "definition": {"message-group": "customer"}}

    answer = api.put(f"policies/%2F/{name}", policy)

    assert answer.status_code == 400
    assert "message group" in answer.json()["reason"]


def test_the_same_queue_with_another_group_is_inequivalent(channel, name):
    declare(channel, name)

    with pytest.raises(pika.exceptions.ChannelClosedByBroker) as refused:
        channel.queue_declare(name, durable=True, arguments={"x-message-group": "routing-key"})

    assert refused.value.reply_code == 406
    assert "inequivalent arg 'x-message-group'" in refused.value.reply_text
