"""What an operator looks into over HTTP, seen by an AMQP client: where a message would go, who holds what,
what waits for its time, and searching.
"""
import time
from datetime import datetime, timezone
from urllib.parse import quote

import pika
import pytest
import requests

from tests.support.waiting import in_time, wait_until


def route(api, exchange, key, **more):
    answer = api.post(f"exchanges/%2F/{exchange}/route", {"routing_key": key, **more})
    assert answer.status_code == 200, answer.text
    return answer.json()


def ways(trial):
    return {(one["destination"], tuple(one["via"])) for one in trial["matches"]}


# where a message would go

def test_a_trial_tells_each_binding_that_leads_on(api, name):
    api.put(f"queues/%2F/{name}")
    api.put(f"exchanges/%2F/{name}", {"type": "topic"})
    api.put(f"exchanges/%2F/{name}-2", {"type": "fanout"})
    api.post(f"bindings/%2F/e/{name}/e/{name}-2", {"routing_key": "a.#"})
    api.post(f"bindings/%2F/e/{name}/q/{name}", {"routing_key": "b.*"})
    api.post(f"bindings/%2F/e/{name}-2/q/{name}")

    trial = route(api, name, "a.b.c")

    assert ways(trial) == {(name, (name, f"{name}-2"))}
    assert [(one["source"], one["destination"], one["routing_key"]) for one in trial["steps"]] == [
        (name, f"{name}-2", "a.#"), (f"{name}-2", name, "")
    ]
    assert trial["steps"][0]["why"] == "the pattern 'a.#' matches 'a.b.c'"
    assert (trial["matches"][0]["state"], trial["matches"][0]["consumers"], trial["unroutable"]) == (
        "running", 0, False
    )
    assert route(api, name, "c")["unroutable"]
    assert api.get(f"queues/%2F/{name}").json()["messages"] == 0


def test_a_trial_asks_the_alternate_exchange(api, name):
    api.put(f"queues/%2F/{name}")
    api.put(f"exchanges/%2F/{name}-2", {"type": "fanout"})
    api.put(f"exchanges/%2F/{name}", {"type": "direct", "arguments": {"alternate-exchange": f"{name}-2"}})
    api.post(f"bindings/%2F/e/{name}-2/q/{name}")

    trial = route(api, name, "nobody")

    assert ways(trial) == {(name, (name, f"{name}-2"))}
    assert "alternate" in trial["steps"][0]["why"]


@pytest.mark.parametrize("headers, routed", [({"kind": "x", "n": 1}, True), ({"kind": "y"}, False)])
def test_a_trial_compares_headers(api, name, headers, routed):
    exchange = quote(name, safe="")
    api.put(f"queues/%2F/{exchange}")
    api.put(f"exchanges/%2F/{exchange}", {"type": "headers"})
    api.post(f"bindings/%2F/e/{exchange}/q/{exchange}", {"arguments": {"x-match": "all", "kind": "x"}})

    assert bool(route(api, exchange, "", headers=headers)["matches"]) is routed


def test_a_trial_of_the_default_exchange_and_of_cc(api, name):
    api.put(f"queues/%2F/{name}")
    api.put(f"queues/%2F/{name}-2")

    trial = route(api, "amq.default", name, headers={"CC": [f"{name}-2"]})

    assert ways(trial) == {(name, ("",)), (f"{name}-2", ("",))}


def test_a_trial_says_that_a_message_would_wait(api, name):
    api.put(f"queues/%2F/{name}")
    api.put(f"exchanges/%2F/{name}", {
        "type": "x-delayed-message", "arguments": {"x-delayed-type": "direct"}})
    api.post(f"bindings/%2F/e/{name}/q/{name}", {"routing_key": "k"})

    trial = route(api, name, "k", headers={"x-delay": 60_000})

    assert 0 < trial["matches"][0]["due"] / 1000 - time.time() < 61
    assert trial["delayed"][0]["exchange"] == name


def test_a_trial_says_when_a_message_that_repeats_is_sent(api, name):
    api.put(f"queues/%2F/{name}")
    api.put(f"exchanges/%2F/{name}", {
        "type": "x-delayed-message", "arguments": {"x-delayed-type": "direct"}})
    api.post(f"bindings/%2F/e/{name}/q/{name}", {"routing_key": "k"})

    trial = route(api, name, "k", headers={"x-schedule": {"name": "a", "every": 60_000}})
    refused = api.post(f"exchanges/%2F/{name}/route", {
        "routing_key": "k", "headers": {"x-schedule": {"name": "a", "every": 5}}})

    assert 0 < trial["matches"][0]["due"] / 1000 - time.time() < 61
    assert (refused.status_code, "field 'every'" in refused.json()["reason"]) == (400, True)


@pytest.mark.parametrize("body", [
    {}, {"routing_key": 7}, {"routing_key": "x" * 256}, {"routing_key": "", "headers": [1]},
    {"routing_key": "", "properties": 7}, {"routing_key": "", "headers": {"CC": "text"}},
])
def test_a_trial_of_nonsense_is_refused(api, body):
    assert api.post("exchanges/%2F/amq.topic/route", body).status_code == 400


# unacknowledged messages

@pytest.fixture
def held(api, channel, name):
    """Three messages: one with a consumer, one of basic.get, one ready; the name of their channel."""
    channel.queue_declare(name)
    channel.confirm_delivery()
    for body in (b"a", b"b", b"c"):
        channel.basic_publish("", name, body)
    channel.basic_get(name)
    channel.basic_qos(prefetch_count=1)
    channel.basic_consume(name, lambda *_: None, consumer_tag="holder")
    wait_until(lambda: api.get(f"queues/%2F/{name}").json()["messages_ready"] == 1, what="two deliveries")
    return api.get(f"unacked/%2F/{name}").json()[0]["channel"]


def test_nobody_sees_consumers_of_connections_that_are_hidden(api, held, name):
    """Who has the tag management alone sees its own connections, in whatever list."""
    api.put("users/looker", {"password": "looker", "tags": "management"})
    api.put("permissions/%2F/looker", {"configure": "^$", "write": "^$", "read": "^$"})
    looker, since = api.as_user("looker", "looker"), api.get("changes").json()["last"]
    lists = (
        "connections", "channels", "consumers", "consumers/%2F", "unacked", "unacked/%2F",
        f"unacked/%2F/{name}", f"queues/%2F/{name}/unacked")
    held_connection = quote(held.rpartition(" (")[0], safe="")

    assert [looker.get(path).json() for path in lists] == [[]] * len(lists)
    assert looker.get(f"queues/%2F/{name}").json()["consumer_details"] == []
    assert api.delete(f"consumers/%2F/{held_connection}/1/holder").status_code == 204
    wait_until(lambda: "consumer.deleted" in changes_seen(api, since))
    assert "consumer.deleted" not in changes_seen(looker, since)


def changes_seen(api, since):
    return [one["what"] for one in api.get(f"changes?since={since}").json()["changes"]]


def test_unacked_messages_are_told_by_consumer(api, held, name):
    def without_ages(path):
        rows = [one for one in api.get(path).json() if one["queue"] == name]
        assert all(0 <= one.pop("oldest_seconds") < in_time(60) for one in rows)
        return rows

    rows = without_ages(f"unacked/%2F/{name}")

    assert [(one["consumer_tag"], one["count"], one["oldest_delivery_tag"]) for one in rows] == [
        (None, 1, 1), ("holder", 1, 2)
    ]
    assert len(api.get(f"unacked/%2F/{name}").json()) == len(rows)
    for path in ("unacked", "unacked/%2F"):
        assert without_ages(path) == rows
    assert api.get("unacked/nosuch").status_code == api.get("unacked/%2F/nosuch").status_code == 404


def test_a_message_is_given_back_and_its_client_may_still_ack_it(api, channel, held, name):
    answer = api.post(f"unacked/%2F/{name}/return", {"channel": held, "delivery_tag": 1})

    assert answer.status_code == 204
    wait_until(lambda: api.get(f"queues/%2F/{name}").json()["messages_ready"] == 2, what="one more is ready")
    channel.basic_ack(1)
    channel.basic_ack(2)
    wait_until(
        lambda: [one["count"] for one in api.get(f"unacked/%2F/{name}").json()] == [1],
        what="the consumer to get the next one")
    assert channel.is_open
    assert api.get(f"queues/%2F/{name}").json()["messages"] == 2
    assert api.get(f"queues/%2F/{name}/messages").json()[0]["payload"] in ("a", "c")


def test_an_ack_of_all_up_to_one_that_was_given_back_acks_the_others(api, channel, held, name):
    api.post(f"unacked/%2F/{name}/return", {"channel": held, "delivery_tag": 2})

    channel.basic_ack(2, multiple=True)
    channel.basic_get(name)

    assert channel.is_open
    wait_until(
        lambda: 1 not in [one["oldest_delivery_tag"] for one in api.get(f"unacked/%2F/{name}").json()],
        what="the first to be acknowledged")


def test_a_tag_that_was_never_given_back_still_closes_the_channel(api, channel, held, name):
    api.post(f"unacked/%2F/{name}/return", {"channel": held, "delivery_tag": 1})

    with pytest.raises(pika.exceptions.ChannelClosedByBroker):
        channel.basic_ack(99)  # which may read the answer already
        channel.queue_declare(name, passive=True)


@pytest.mark.parametrize("change, status", [
    ({"delivery_tag": 77}, 404), ({"channel": "nosuch"}, 404), ({"delivery_tag": 0}, 400),
    ({"delivery_tag": "x"}, 400), ({"channel": 7}, 400), ({"delivery_tag": 1 << 64}, 400),
])
def test_what_is_not_held_is_not_given_back(api, held, name, change, status):
    wanted = {"channel": held, "delivery_tag": 1, **change}

    assert api.post(f"unacked/%2F/{quote(name, safe='')}/return", wanted).status_code == status


def test_somebody_elses_message_is_given_back_by_administrators_alone(api, held, name):
    api.put("users/watcher", {"password": "watcher", "tags": "monitoring"})
    api.put("permissions/%2F/watcher", {"configure": ".*", "write": ".*", "read": ".*"})

    answer = api.as_user("watcher", "watcher").post(
        f"unacked/%2F/{name}/return", {"channel": held, "delivery_tag": 1})

    assert answer.status_code == 401


# delayed messages

def test_delayed_messages_are_told_in_the_order_of_their_time(api, channel, name):
    channel.exchange_declare(name, "x-delayed-message", arguments={"x-delayed-type": "direct"})
    channel.confirm_delivery()
    for number in (3, 1, 2):
        channel.basic_publish(name, f"k{number}", b"%d" % number * 2000, pika.BasicProperties(
            headers={"x-delay": number * 1_000_000}))

    row = [one for one in api.get("delayed").json() if one["exchange"] == name][0]
    some = api.get(f"delayed/%2F/{name}?count=2&truncate=3").json()

    assert (row["messages"], row["next_due"]) == (3, some[0]["due"])
    assert [(one["routing_key"], one["payload"], one["payload_bytes"]) for one in some] == [
        ("k1", "111", 2000), ("k2", "222", 2000)
    ]
    assert 900 < some[0]["due"] / 1000 - time.time() < 1001
    assert api.get(f"delayed/%2F/{name}?count=1001").status_code == 400
    assert api.get("delayed/%2F/amq.topic").status_code == 404


def test_what_a_delayed_exchange_holds_takes_the_right_to_read_it(api, name):
    api.put(f"exchanges/%2F/{name}", {
        "type": "x-delayed-message", "arguments": {"x-delayed-type": "direct"}})
    api.put("users/blind", {"password": "blind", "tags": "management"})
    api.put("permissions/%2F/blind", {"configure": ".*", "write": ".*", "read": ""})

    assert api.as_user("blind", "blind").get(f"delayed/%2F/{name}").status_code == 401


# schedules

def scheduled(channel, exchange, name, **fields):
    channel.exchange_declare(exchange, "x-delayed-message", arguments={"x-delayed-type": "direct"})
    channel.confirm_delivery()
    channel.basic_publish(exchange, "k", b"body", pika.BasicProperties(
        headers={"x-schedule": {"name": name, **fields}}))
    return f"schedules/%2F/{exchange}/{quote(name, safe='')}"


def test_schedules_are_listed_shown_and_deleted(api, channel, name):
    start = datetime(2030, 1, 1, tzinfo=timezone.utc)
    hourly = scheduled(
        channel, name, "a/b", cron="0 * * * *", timezone="Europe/Berlin", jitter=5, missed="none")
    often = scheduled(channel, name, "often", every=1000, start=start)

    rows = [one for one in api.get("schedules/%2F").json() if one["exchange"] == name]
    shown = api.get(hourly).json()

    start_ms = int(start.timestamp() * 1000)
    assert rows[1] == {
        "vhost": "/", "exchange": name, "name": "often", "cron": None, "timezone": None, "every": 1000,
        "start": start_ms, "end": None, "jitter": 0, "missed": "once", "user": "guest", "time": start_ms,
        "next": start_ms, "routing_key": "k", "payload_bytes": 4}
    assert shown == {
        **rows[0], "payload": "body", "payload_encoding": "string", "properties": shown["properties"]}
    assert (shown["cron"], shown["timezone"], shown["missed"]) == ("0 * * * *", "Europe/Berlin", "none")
    assert shown["time"] % 3_600_000 == 0 and 0 <= shown["next"] - shown["time"] <= 5
    assert rows == [one for one in api.get("schedules").json() if one["exchange"] == name]
    assert api.delete(often).status_code == 204
    assert [api.delete(often).status_code, api.get(often).status_code] == [404, 404]
    assert [api.get(path).status_code for path in (
        "schedules/%2F/amq.topic/a", f"schedules/none/{name}/a", "schedules/%2F/none/a")] == [404, 404, 404]
    assert [one["name"] for one in api.get("schedules/%2F").json() if one["exchange"] == name] == ["a/b"]


def test_metrics_count_schedules(api, channel, name):
    for schedule in ("a", "b"):
        scheduled(channel, name, schedule, every=1000)

    def metrics(path):
        text = requests.get(
            f"{api.base}/metrics{path}", auth=("guest", "guest"), timeout=in_time(60)).text
        return [line for line in text.splitlines() if line.startswith("gomq_")]

    def counted():
        return {
            line.partition("{")[0]: float(line.rpartition(" ")[2])
            for line in metrics("/detailed?family=gomq_schedules") if f'exchange="{name}"' in line}

    wait_until(lambda: counted()["gomq_exchange_schedule_messages_sent_total"] >= 2)
    found = counted()
    assert found.pop("gomq_exchange_schedule_messages_sent_total") >= 2
    assert found.pop("gomq_exchange_schedule_times_missed_total") >= 0
    assert found == {"gomq_exchange_schedules": 2}
    assert [float(line.split()[1]) for line in metrics("") if line.startswith("gomq_schedules ")][0] >= 2


def test_schedule_is_published_by_http_and_refused_by_its_field(api, name):
    api.put(f"exchanges/%2F/{name}", {
        "type": "x-delayed-message", "arguments": {"x-delayed-type": "direct"}})

    def publish(payload="x", **fields):
        return api.post(f"exchanges/%2F/{name}/publish", {
            "routing_key": "k", "payload": payload, "payload_encoding": "string",
            "properties": {"headers": {"x-schedule": fields}}})

    assert publish(name="a", every=1000).status_code == 200
    refused = publish(name="a", every=1)
    assert (refused.status_code, "field 'every'" in refused.json()["reason"]) == (400, True)
    assert publish("", name="a").status_code == 200
    assert api.get(f"schedules/%2F/{name}/a").status_code == 404


def test_schedule_takes_the_right_to_read_or_write(api, channel, name):
    path = scheduled(channel, name, "a", every=1000)
    for user, write, read in (("reader", "", ".*"), ("writer", ".*", "")):
        api.put(f"users/{user}", {"password": user, "tags": "management"})
        api.put(f"permissions/%2F/{user}", {"configure": "", "write": write, "read": read})
    reader, writer = api.as_user("reader", "reader"), api.as_user("writer", "writer")

    assert [reader.get(path).status_code, writer.get(path).status_code] == [200, 401]
    assert [one.get("schedules").json() == [] for one in (reader, writer)] == [False, True]
    assert [reader.delete(path).status_code, writer.delete(path).status_code] == [401, 204]


def test_schedule_is_not_sent_without_the_right_of_its_user(api, channel, name):
    api.put(f"queues/%2F/{name}")
    api.put(f"exchanges/%2F/{name}", {
        "type": "x-delayed-message", "arguments": {"x-delayed-type": "fanout"}})
    api.post(f"bindings/%2F/e/{name}/q/{name}")
    api.put("users/leaver", {"password": "leaver", "tags": "management"})
    api.put("permissions/%2F/leaver", {"configure": "", "write": ".*", "read": ".*"})
    answer = api.as_user("leaver", "leaver").post(f"exchanges/%2F/{name}/publish", {
        "routing_key": "k", "payload": "x", "payload_encoding": "string",
        "properties": {"headers": {"x-schedule": {"name": "a", "every": 1000}}}})
    assert answer.status_code == 200
    api.delete("users/leaver")

    path = f"schedules/%2F/{name}/a"
    before = api.get(path).json()["time"]
    wait_until(lambda: api.get(path).json()["time"] > before)

    assert channel.queue_declare(name, passive=True).method.message_count == 0


# searching

@pytest.fixture
def searched(api, channel, name):
    """A queue with some messages: asks for the positions that a search finds."""
    queue = quote(name, safe="")
    channel.queue_declare(name)
    channel.confirm_delivery()
    for number, body in enumerate((
        b'{"order": {"lines": [{"sku": "A-1"}, {"sku": "B-2"}]}}', b"plain Text", b"\xff\xfe",
        b'{"order": 5}',
    )):
        channel.basic_publish("", name, body, pika.BasicProperties(headers={"n": number}))
    return lambda **wanted: api.post(f"queues/%2F/{queue}/search", wanted)


@pytest.mark.parametrize("wanted, positions", [
    ({}, [0, 1, 2, 3]), ({"text": "Text"}, [1]), ({"text": "text"}, []),
    ({"text": "text", "ignore_case": True}, [1]),
    ({"pattern": "^plain.*t$"}, [1]), ({"headers": {"n": 2}}, [2]), ({"headers": {"n": 2, "m": 1}}, []),
    ({"json_path": "$.order"}, [0, 3]), ({"json_path": "order", "json_value": 5}, [3]),
    ({"json_path": "order", "json_value": "5"}, [3]),
    ({"json_path": "$.order.lines[1].sku", "json_value": "B-2"}, [0]), ({"json_path": "order.lines[7]"}, []),
    ({"exchange": "?*"}, []), ({"routing_key": "*"}, [0, 1, 2, 3]),
    ({"text": "order", "headers": {"n": 3}}, [3]),
    ({"offset": 2}, [2, 3]), ({"offset": 9}, []),
])
def test_searching_finds(searched, wanted, positions):
    answer = searched(**wanted).json()

    assert [one["position"] for one in answer["messages"]] == positions
    assert answer["next_offset"] is None


def test_searching_is_bounded_and_goes_on_where_it_stopped(searched):
    first = searched(examined_max=3).json()
    second = searched(count=1).json()
    third = searched(octets_max=1).json()

    assert (first["examined"], first["next_offset"]) == (3, 3)
    assert (len(second["messages"]), second["next_offset"]) == (1, 1)
    assert (third["examined"], third["next_offset"]) == (1, 1)
    assert [one["position"] for one in searched(offset=3).json()["messages"]] == [3]


@pytest.mark.parametrize("wanted", [
    {"text": ""}, {"text": 7}, {"text": "x" * 1025}, {"pattern": "("}, {"pattern": "x{9999}"},
    {"json_path": "a..b"}, {"json_path": "[x]"}, {"json_path": ".a" * 65}, {"json_value": 1}, {"headers": 7},
    {"offset": -1}, {"count": 0}, {"count": 201}, {"examined_max": 100_001}, {"octets_max": 1 << 40},
])
def test_a_search_for_nonsense_is_refused(searched, wanted):
    assert searched(**wanted).status_code == 400
