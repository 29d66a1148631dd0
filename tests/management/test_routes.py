"""Routes beyond the entities: who is asked, limits of users, login attempts, what one node answers for a
cluster's sake, LavinMQ's own.
"""
import contextlib

import pika
import pytest

from tests.support.waiting import wait_until


@pytest.fixture
def user(api, name):
    """A user of this test's own, with all rights in / and without tags."""
    user = name[:60]
    api.put(f"users/{user}", {"password": user, "tags": ""})
    api.put(f"permissions/%2F/{user}", {"configure": ".*", "write": ".*", "read": ".*"})
    yield user
    api.delete(f"users/{user}")


def test_the_cluster_gets_another_name_that_clients_are_told(api, managed):
    assert api.put("cluster-name", {"name": "renamed"}).status_code == 204

    with contextlib.closing(pika.BlockingConnection(pika.URLParameters(managed.amqp_url))) as connection:
        told = connection._impl.server_properties["cluster_name"]

    assert (told, api.get("cluster-name").json(), api.get("overview").json()["cluster_name"]) == (
        "renamed", {"name": "renamed"}, "renamed"
    )
    assert {"name": "cluster_name", "value": "renamed"} in api.get("global-parameters").json()
    api.delete("global-parameters/cluster_name")
    assert api.get("cluster-name").json()["name"].startswith("gomq-")


@pytest.mark.parametrize("body", [{}, {"name": 7}, {"name": ""}, {"name": "x" * 300}])
def test_a_cluster_name_that_is_none_is_refused(api, body):
    assert api.put("cluster-name", body).status_code == 400


def test_limits_of_a_user_hold_and_are_shown(api, managed, user):
    assert api.put(f"user-limits/{user}/max-connections", {"value": 1}).status_code == 204
    parameters = pika.URLParameters(managed.url(user=user, password=user))

    with contextlib.closing(pika.BlockingConnection(parameters)):
        with pytest.raises(pika.exceptions.AMQPError):
            pika.BlockingConnection(parameters)

    shown = {"user": user, "value": {"max-connections": 1}}
    assert api.get(f"user-limits/{user}").json() == [shown]
    assert shown in api.get("user-limits").json()
    assert api.get(f"users/{user}").json()["limits"] == {"max-connections": 1}
    assert api.delete(f"user-limits/{user}/max-connections").status_code == 204
    assert api.get(f"user-limits/{user}").json() == []


@pytest.mark.parametrize("kind, value", [
    ("max-queues", 1), ("max-connections", "one"), ("max-channels", None)
])
def test_a_limit_that_makes_no_sense_is_refused(api, user, kind, value):
    assert api.put(f"user-limits/{user}/{kind}", {"value": value}).status_code == 400


def test_limits_of_nobody_are_not_found(api):
    assert api.put("user-limits/nobody-at-all/max-channels", {"value": 1}).status_code == 404
    assert api.get("user-limits/nobody-at-all").status_code == 404


def test_logins_are_counted_by_protocol(api, managed, channel):
    node = api.get("nodes").json()[0]["name"]
    assert api.delete(f"auth/attempts/{node}").status_code == 204
    with pytest.raises(pika.exceptions.AMQPError):
        pika.BlockingConnection(pika.URLParameters(managed.url(password="wrong")))

    attempts = {entry["protocol"]: entry for entry in api.get(f"auth/attempts/{node}").json()}

    assert (attempts["amqp091"]["auth_attempts_failed"], attempts["amqp091"]["auth_attempts_succeeded"]) == (
        1, 0
    )
    assert attempts["http"]["auth_attempts_succeeded"] == attempts["http"]["auth_attempts"] == 1
    assert api.get(f"auth/attempts/{node}/source").json() == []
    assert api.get("auth/attempts/nosuch").status_code == 404


@pytest.mark.parametrize("password", ["plain", "with/slash", "per%cent", "späti"])
def test_a_password_is_hashed_for_definitions(api, password):
    from urllib.parse import quote
    hashes = [api.get(f"auth/hash_password/{quote(password, safe='')}").json()["ok"],
              api.put("auth/hash_password", {"password": password}).json()["password_hash"]]

    for number, password_hash in enumerate(hashes):
        api.put(f"users/hashed-{number}", {"password_hash": password_hash, "tags": "management"})
        assert api.as_user(f"hashed-{number}", password.encode()).get("whoami").status_code == 200


@pytest.mark.parametrize("path", [
    "extensions", "feature-flags", "deprecated-features", "deprecated-features/used"
])
def test_what_this_broker_has_none_of_is_an_empty_list(api, path):
    assert (api.get(path).status_code, api.get(path).json()) == (200, [])


def test_what_one_node_need_not_do_is_done(api, name):
    api.put(f"queues/%2F/{name}")
    node = api.get("nodes").json()[0]["name"]

    assert api.post("rebalance/queues").status_code == 204
    assert [
        api.post(f"queues/%2F/{name}/actions", {"action": action}).status_code
        for action in ("sync", "cancel_sync", "dance")
    ] == [204, 204, 400]
    assert [api.post(f"vhosts/%2F/start/{where}").status_code for where in (node, "nosuch")] == [204, 404]
    assert api.put("feature-flags/anything/enable").status_code == 404


def test_unacked_messages_name_their_holder(api, channel, name):
    channel.queue_declare(name)
    channel.confirm_delivery()
    channel.basic_publish("", name, b"a")
    channel.basic_publish("", name, b"b")
    channel.basic_get(name)
    channel.basic_consume(name, lambda *_: None, consumer_tag="holder")

    def unacked():
        return [
            (one["delivery_tag"], one["consumer_tag"]) for one in api.get(f"queues/%2F/{name}/unacked").json()
        ]

    wait_until(lambda: len(unacked()) == 2, what="two unacked messages")
    assert unacked() == [(1, "Basic get"), (2, "holder")]


def test_a_consumer_is_cancelled_and_told_so(api, channel, name):
    channel.queue_declare(name)
    cancelled = []
    channel.add_on_cancel_callback(lambda method: cancelled.append(method.method.consumer_tag))
    channel.basic_consume(name, lambda *_: None, consumer_tag="away")
    details = [
        one for one in api.get("consumers/%2F").json() if one["consumer_tag"] == "away"
    ][0]["channel_details"]

    from urllib.parse import quote
    path = f"consumers/%2F/{quote(details['connection_name'], safe='')}/{details['number']}/away"
    deleted = api.delete(path)
    channel.connection.process_data_events(0)
    wait_until(lambda: channel.connection.process_data_events(0.05) or cancelled, what="basic.cancel")

    assert (deleted.status_code, api.delete(path).status_code, cancelled) == (204, 404, ["away"])
    assert api.get(f"queues/%2F/{name}").json()["consumers"] == 0


def test_the_prefetch_of_a_channel_is_changed(api, channel, name):
    channel.queue_declare(name)
    channel.confirm_delivery()
    for _ in range(3):
        channel.basic_publish("", name, b"x")
    from urllib.parse import quote
    mine = [one["name"] for one in api.get("channels").json() if one["confirm"]]

    assert [
        api.put(f"channels/{quote(one, safe='')}", {"prefetch": 1}).status_code for one in mine
    ] == [204] * len(mine)
    assert api.put(f"channels/{quote(mine[0], safe='')}", {"prefetch": 70000}).status_code == 400
    channel.basic_consume(name, lambda *_: None)

    wait_until(
        lambda: api.get(f"queues/%2F/{name}").json()["messages_unacknowledged"] == 1,
        what="one message under way",
    )
    assert api.get(f"queues/%2F/{name}").json()["messages_ready"] == 2


def test_statistics_tell_the_ways_of_taking_apart_and_never_fall(api, channel, name):
    channel.queue_declare(name)
    channel.confirm_delivery()
    for _ in range(4):
        channel.basic_publish("", name, b"x")
    channel.basic_get(name, auto_ack=True)
    channel.basic_get(name, auto_ack=False)
    for _ in channel.consume(name, auto_ack=True, inactivity_timeout=0.01):
        break
    channel.cancel()
    channel.basic_get(name)
    of_channel, = [
        one["message_stats"] for one in api.get("channels").json() if one["message_stats"]["get_empty"]]

    stats = api.get(f"queues/%2F/{name}").json()["message_stats"]
    before = api.get("vhosts/%2F").json()["message_stats"]
    channel.queue_delete(name)
    after = api.get("vhosts/%2F").json()["message_stats"]

    assert (stats["get_no_ack"], stats["get"], stats["deliver"], stats["deliver_get"]) == (
        1, 1, 0, stats["deliver_no_ack"] + 2
    )
    assert stats["get_empty"] >= 1 and stats["deliver_no_ack"] >= 1 and stats["publish"] == 4
    taken = ("get_no_ack", "get", "get_empty", "deliver", "deliver_no_ack", "deliver_get")
    assert [of_channel[key] for key in taken] == [stats[key] for key in taken]
    assert {key: value for key, value in after.items() if not key.endswith("_details")} == {
        key: value for key, value in before.items() if not key.endswith("_details")}
    assert after["confirm"] >= 4


def test_settings_are_shown_with_their_origin_and_without_secrets(api):
    settings = {one["name"]: one for one in api.get("settings").json()}

    assert settings["heartbeat"] == {
        "section": "amqp", "name": "heartbeat", "key": "heartbeat", "value": "60", "origin": "default"}
    assert settings["http_port"]["section"] == "mgmt" and settings["http_port"]["key"] == "port"
    assert settings["default_password_hash"]["value"] in ("", "***")


def test_limits_of_memory_and_disk_are_changed_at_once(api):
    before = api.get("nodes").json()[0]

    for name, value in (("memory_high_watermark", "64GB"), ("free_disk_min", 123456789)):
        assert api.put(f"settings/{name}", {"value": value}).status_code == 204

    def limits():
        now = api.get("nodes").json()[0]
        return now["mem_limit"], now["disk_free_limit"]

    wait_until(lambda: limits() == (64 * 10 ** 9, 123456789), what="both limits")
    shown = {one["name"]: one for one in api.get("settings").json()}
    assert shown["free_disk_min"]["origin"] == "management API"
    api.put("settings/free_disk_min", {"value": 0})
    api.put("settings/memory_high_watermark", {"value": 0.6})
    wait_until(lambda: limits() == (before["mem_limit"], before["disk_free_limit"]), what="both limits")


def test_level_of_the_log_is_changed_at_once(api):
    api.put("settings/log_level", {"value": "error"})
    api.put("settings/memory_high_watermark", {"value": 0.61})
    api.put("settings/log_level", {"value": "info"})
    api.put("settings/memory_high_watermark", {"value": 0.6})

    lines = [one["message"].partition(" by ")[0] for one in api.get("log").json()["lines"]]
    assert [line for line in lines if line.startswith("setting ")][-3:] == [
        "setting log_level: info -> error", "setting log_level: error -> info",
        "setting memory_high_watermark: 0.61 -> 0.6"]


@pytest.mark.parametrize("name, value, status", [
    ("log_level", "loud", 400), ("log_level", None, 400), ("free_disk_min", -1, 400),
    ("memory_high_watermark", True, 400), ("memory_high_watermark", {"a": 1}, 400),
    ("heartbeat", 5, 400), ("nonsense", 5, 404),
])
def test_setting_that_cannot_be_set_is_refused(api, name, value, status):
    assert api.put(f"settings/{name}", {"value": value}).status_code == status


def test_password_of_a_user_is_tried(api, user):
    def tried(name, password):
        return api.post(f"users/{name}/authenticate", {"password": password}).json()

    assert tried(user, user) == {"authenticated": True, "reason": ""}
    assert tried(user, "wrong")["authenticated"] is False
    assert "does not exist" in tried("nobody-at-all", "x")["reason"]
