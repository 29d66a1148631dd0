"""What is set with passwords is shown without them; the type of queues that are declared without one."""
import pika
import pytest
import requests

from tests.support.broker_process import BrokerProcess
from tests.support.waiting import in_time

SHOVEL = {
    "src-uri": "amqp://ann:hush@host/v", "src-queue": "q", "dest-uri": ["amqp://bob:hush@h"],
    "dest-queue": "p",
}


def test_passwords_of_parameters_are_nowhere_in_answers_and_stay_when_they_are_written_back(api, managed):
    api.post("definitions", {
        "parameters": [{"component": "shovel", "vhost": "/", "name": "secret", "value": SHOVEL}]
    })
    api.put("global-parameters/secret", {"value": {**SHOVEL, "password": "hush"}})

    one = api.get("parameters/shovel/%2F/secret").json()["value"]
    told = [
        api.get(path).text
        for path in (
            "parameters", "parameters/shovel", "parameters/shovel/%2F", "parameters/shovel/%2F/secret",
            "global-parameters", "global-parameters/secret")
    ]
    api.put("global-parameters/secret", {
        "value": {**api.get("global-parameters/secret").json()["value"], "src-queue": "another"}
    })
    kept = [
        entry["value"]
        for entry in api.get("definitions").json()["global_parameters"] if entry["name"] == "secret"
    ]
    api.delete("parameters/shovel/%2F/secret")
    api.delete("global-parameters/secret")

    assert one["src-uri"] == "amqp://ann:***@host/v"
    assert all("***" in text and "hush" not in text for text in told)
    assert kept == [{**SHOVEL, "password": "hush", "src-queue": "another"}]
    assert "hush" not in managed.log_text


def test_a_refused_import_does_not_repeat_passwords(api, managed):
    answer = api.post("definitions", {"users": [{"name": "ann", "password": "hush", "tags": 5}]})

    assert answer.status_code == 400 and "ann" in answer.json()["reason"] and "hush" not in answer.text
    assert "hush" not in managed.log_text


@pytest.mark.parametrize("kind", ["quorum", "stream"])
def test_queues_without_a_type_get_that_of_their_vhost(api, managed, kind):
    vhost = f"default-{kind}"
    assert api.put(f"vhosts/{vhost}", {"default_queue_type": kind}).status_code == 201
    connection = pika.BlockingConnection(pika.URLParameters(managed.url(vhost=vhost)))
    channel = connection.channel()

    channel.queue_declare("durable", durable=True)
    channel.queue_declare("durable", durable=True)  # the same once more is equal
    channel.queue_declare("named", durable=True, arguments={"x-queue-type": "classic"})
    channel.queue_declare("transient")
    channel.queue_declare("auto", durable=True, auto_delete=True)
    channel.queue_declare("mine", exclusive=True)
    channel.queue_declare("", durable=True)
    api.put(f"queues/{vhost}/over-http", {"durable": True})

    types = {
        queue["name"]: queue["arguments"].get("x-queue-type") for queue in api.get(f"queues/{vhost}").json()
    }
    connection.close()
    shape = api.get(f"vhosts/{vhost}").json()
    exported = next(one for one in api.get("definitions").json()["vhosts"] if one["name"] == vhost)
    api.delete(f"vhosts/{vhost}")
    assert {name: type_ for name, type_ in types.items() if not name.startswith("amq.gen-")} == {
        "durable": kind, "over-http": kind, "named": "classic", "transient": None, "auto": None, "mine": None}
    assert [type_ for name, type_ in types.items() if name.startswith("amq.gen-")] == [None]
    assert shape["default_queue_type"] == shape["metadata"]["default_queue_type"] == kind
    assert exported["default_queue_type"] == exported["metadata"]["default_queue_type"] == kind


def test_queues_that_are_there_stay_what_they_are_when_the_default_changes(api, managed):
    api.put("vhosts/changing", {})
    api.put("queues/changing/old", {"durable": True})
    assert api.put(
        "vhosts/changing", {"default_queue_type": "quorum", "description": "new", "tags": "a,b"}
    ).status_code == 204
    connection = pika.BlockingConnection(pika.URLParameters(managed.url(vhost="changing")))
    channel = connection.channel()

    channel.queue_declare("old", durable=True)
    channel.queue_declare("young", durable=True)
    refused = api.put("vhosts/changing", {"default_queue_type": "quantum"})

    connection.close()
    shape = api.get("vhosts/changing").json()
    types = {queue["name"]: queue["arguments"] for queue in api.get("queues/changing").json()}
    api.delete("vhosts/changing")
    assert types == {"old": {}, "young": {"x-queue-type": "quorum"}}
    assert (shape["description"], shape["tags"], shape["default_queue_type"]) == ("new", ["a", "b"], "quorum")
    assert refused.status_code == 400 and "quorum" in refused.json()["reason"]


def test_the_default_type_outlives_a_restart_and_is_imported(tmp_path):
    with BrokerProcess(tmp_path / "data", http_port=0) as process:
        def ask(verb, path, **options):
            return requests.request(
                verb, f"http://127.0.0.1:{process.ports['http']}/api/{path}",
                auth=("guest", "guest"), timeout=in_time(60), **options)

        ask(
            "POST", "definitions",
            json={"vhosts": [
                {"name": "/", "default_queue_type": "stream"},
                {"name": "v", "metadata": {"default_queue_type": "quorum"}},
                {"name": "w", "default_queue_type": "undefined"}]},
        )
        process.restart()

        assert {one["name"]: one["default_queue_type"] for one in ask("GET", "vhosts").json()} == {
            "/": "stream", "v": "quorum", "w": "classic"
        }
