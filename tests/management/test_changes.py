"""What changed since a number: told to everybody who may see it, and to nobody else."""
import contextlib

import pytest

from gomq_py import Broker
from tests.management.conftest import API
from tests.support.waiting import wait_until

ALL = {"configure": ".*", "write": ".*", "read": ".*"}


@pytest.fixture
def begun(api):
    """The number to begin with."""
    return api.get("changes").json()["last"]


def changes(api, since):
    answer = api.get("changes", params={"since": since}).json()
    assert not answer["too_old"]
    return answer["changes"]


def told(api, since, *beginnings):
    """[(what, name)] of those changes whose name begins so."""
    return [
        (one["what"], one["name"])
        for one in changes(api, since) if one.get("name", "").startswith(beginnings)
    ]


@pytest.fixture
def viewer(api):
    """A function that makes a user with this tag and all rights in these vhosts, and answers its API."""
    made = []

    def make(name, tag, *vhosts):
        api.put(f"users/{name}", {"password": name, "tags": tag})
        made.append(name)
        for vhost in vhosts:
            api.put(f"permissions/{vhost}/{name}", ALL)
        return api.as_user(name, name)

    yield make
    for name in made:
        api.delete(f"users/{name}")


def test_what_came_and_went_is_told_in_its_order(api, begun):
    api.put("queues/%2F/told-q", {"durable": True})
    api.put("exchanges/%2F/told-x", {"type": "topic"})
    api.post("bindings/%2F/e/told-x/q/told-q", {"routing_key": "k.#"})
    api.put("policies/%2F/told-p", {"pattern": "^none", "definition": {"max-length": 1}})
    api.delete("policies/%2F/told-p")
    api.delete("queues/%2F/told-q")
    api.delete("exchanges/%2F/told-x")

    found = changes(api, begun)

    names = [(one["what"], one.get("name", one.get("source"))) for one in found]
    wanted = [
        ("queue.created", "told-q"), ("exchange.created", "told-x"), ("binding.created", "told-x"),
        ("policy.set", "told-p"), ("policy.cleared", "told-p"), ("queue.deleted", "told-q"),
        ("exchange.deleted", "told-x"),
    ]
    assert [one for one in names if one in wanted] == wanted
    binding = next(one for one in found if one.get("source") == "told-x")
    assert (binding["destination"], binding["destination_type"], binding["routing_key"]) == (
        "told-q", "queue", "k.#"
    )
    assert [one["number"] for one in found] == list(
        range(found[0]["number"], found[0]["number"] + len(found))
    )
    assert {one["vhost"] for one in found if one.get("name", "").startswith("told-")} == {"/"}


def test_an_answer_says_where_to_go_on(api, begun):
    api.put("queues/%2F/on-a")
    first = api.get("changes", params={"since": begun}).json()
    api.put("queues/%2F/on-b")

    assert told(api, begun, "on-") == [("queue.created", "on-a"), ("queue.created", "on-b")]
    assert told(api, first["last"], "on-") == [("queue.created", "on-b")]
    for name in ("on-a", "on-b"):
        api.delete(f"queues/%2F/{name}")


@pytest.mark.parametrize("since", ["0", "1", str((1 << 53) - 1)])
def test_a_number_that_says_nothing_any_more_has_the_viewer_load_anew(api, begun, since):
    answer = api.get("changes", params={"since": since}).json()

    assert (answer["too_old"], answer["changes"]) == (True, [])
    assert answer["last"] >= begun


@pytest.mark.parametrize("since", ["-1", "now", "1.5", "9" * 30])
def test_what_is_no_number_is_refused(api, since):
    assert api.get("changes", params={"since": since}).status_code == 400


def test_each_viewer_is_told_of_what_that_viewer_may_see(api, viewer, begun):
    api.put("vhosts/apart")
    ann, bob, eve = (
        viewer("ann", "management", "%2F"), viewer("bob", "management", "apart"), viewer("eve", "monitoring")
    )
    api.put("queues/%2F/seen-here")
    api.put("permissions/apart/guest", ALL)
    api.put("queues/apart/seen-apart")

    seen = {
        name: told(one, begun, "seen-", "ann", "bob")
        for name, one in (("guest", api), ("ann", ann), ("bob", bob), ("eve", eve))
    }

    def of(name, *prefixes):
        return [(what, one) for what, one in seen[name] if what.startswith(prefixes)]
    assert of("guest", "queue") == of("eve", "queue") == [
        ("queue.created", "seen-here"), ("queue.created", "seen-apart")
    ]
    assert (of("ann", "queue"), of("bob", "queue")) == (
        [("queue.created", "seen-here")], [("queue.created", "seen-apart")]
    )
    assert {one for _, one in of("guest", "user", "permission")} == {"ann", "bob"}
    assert {one for _, one in of("ann", "user", "permission")} == {"ann"}
    assert of("eve", "user", "permission") == []
    api.delete("vhosts/apart")
    api.delete("queues/%2F/seen-here")


def test_topic_permissions_and_what_is_said_about_a_vhost_are_told_to_whoever_may_see_them(
    api, viewer, begun
):
    api.put("vhosts/apart")
    ann, eve = viewer("ann", "management", "%2F"), viewer("eve", "monitoring")
    api.put("topic-permissions/%2F/ann", {"exchange": "amq.topic", "write": "^a", "read": "^b"})
    api.delete("topic-permissions/%2F/ann/amq.topic")
    api.put("vhosts/apart", {"description": "another"})

    seen = [
        [(one["what"], one["name"], one["vhost"], one.get("exchange")) for one in changes(who, begun)
         if one["what"].startswith("topic") or one["what"] == "vhost.updated"]
        for who in (api, ann, eve)]

    topic = [(f"topic.permission.{done}", "ann", "/", "amq.topic") for done in ("created", "deleted")]
    updated = [("vhost.updated", "apart", "apart", None)]
    assert seen == [topic + updated, topic, updated]
    api.delete("vhosts/apart")


def test_connections_are_told_to_their_user_and_to_monitoring(api, viewer, managed, begun):
    import pika
    ann, bob = viewer("ann", "management", "%2F"), viewer("bob", "management", "%2F")

    with contextlib.closing(
        pika.BlockingConnection(pika.URLParameters(managed.url(user="ann", password="ann")))
    ) as connection:
        connection.channel().basic_consume(
            connection.channel().queue_declare("", exclusive=True).method.queue, lambda *_: None
        )
    wait_until(lambda: "connection.closed" in whats(api, begun), what="the end of the connection")

    expected = [
        "connection.created", "channel.created", "consumer.created", "consumer.deleted", "channel.closed",
        "connection.closed",
    ]
    assert set(expected) <= set(whats(api, begun))
    assert {"connection.created", "channel.created", "connection.closed"} <= set(whats(ann, begun))
    assert {"connection.created", "channel.created", "connection.closed"}.isdisjoint(whats(bob, begun))


def whats(api, since):
    return [one["what"] for one in changes(api, since)]


def test_alarms_are_told(tmp_path):
    with Broker(tmp_path / "data", http_port=0) as broker:
        api = API(broker.http_url.rstrip("/"))
        begun = api.get("changes").json()["last"]

        broker.call(lambda launcher: launcher.broker.alarms.set("a test", "disk"))
        broker.call(lambda launcher: launcher.broker.alarms.clear("a test"))

        assert [(one["what"], one["reason"]) for one in changes(api, begun)] == [
            ("alarm.set", "low on disk"), ("alarm.cleared", "low on disk")
        ]


def test_very_many_changes_come_in_several_answers(api, begun):
    api.post("definitions", {
        "queues": [{"name": f"several-{number}", "vhost": "/", "durable": False} for number in range(1500)]
    })

    first = api.get("changes", params={"since": begun}).json()
    second = api.get("changes", params={"since": first["last"]}).json()

    names = [one["name"] for one in first["changes"] + second["changes"] if one["what"] == "queue.created"]
    assert len(first["changes"]) == 1000
    assert names == [f"several-{number}" for number in range(1500)]
    for number in range(1500):
        api.delete(f"queues/%2F/several-{number}")
