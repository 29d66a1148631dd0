"""Policies, parameters, limits and definitions over HTTP, and what they do to AMQP clients."""
import re

import pika
import pytest

import gomq_py
from gomq_py.patterns import Pattern
from tests.management.conftest import API
from tests.support.broker_process import BrokerProcess
from tests.support.waiting import TIMEOUT_S, wait_until


@pytest.fixture
def vhost(api, name):
    """A vhost of this test's own, which guest may use."""
    api.put(f"vhosts/{name}")
    yield name
    api.delete(f"vhosts/{name}")


@pytest.fixture
def inside(managed, vhost):
    """A pika channel in that vhost."""
    connection = pika.BlockingConnection(pika.URLParameters(managed.url(vhost=vhost)))
    yield connection.channel()
    connection.close()


def test_a_tee_gives_a_stream_what_a_queue_gets_and_takes_nothing_from_it(api, inside, vhost):
    inside.queue_declare("work", durable=True)
    inside.queue_declare("log", durable=True, arguments={"x-queue-type": "stream"})
    inside.confirm_delivery()
    inside.basic_publish("", "work", b"before")  # the route is remembered without the tee

    made = api.put(f"policies/{vhost}/tee", {
        "pattern": "^work$", "definition": {"tee-to-stream": "log"}, "apply-to": "queues"
    })
    inside.basic_publish("", "work", b"1", mandatory=True)
    inside.basic_publish("amq.direct", "work", b"to nobody")
    inside.queue_bind("work", "amq.direct", "work")
    inside.basic_publish("amq.direct", "work", b"2")
    api.delete(f"policies/{vhost}/tee")
    inside.basic_publish("", "work", b"after")

    assert made.status_code == 201
    assert [inside.basic_get("work", auto_ack=True)[2] for _ in range(4)] == [b"before", b"1", b"2", b"after"]
    inside.basic_qos(prefetch_count=10)
    found = inside.consume("log", arguments={"x-stream-offset": "first"}, inactivity_timeout=TIMEOUT_S)
    copies = [next(found) for _ in range(2)]
    assert [(method.exchange, method.routing_key, body) for method, _, body in copies] == [
        ("", "work", b"1"), ("amq.direct", "work", b"2")
    ]
    assert api.get(f"streams/{vhost}/log").json()["next_offset"] == 2


def test_a_policy_hands_on_no_messages_that_its_setter_may_not_read(api, inside, vhost):
    """On the commit before af5a1c57 the dead letter of the queue that bob may not read came, too."""
    inside.exchange_declare("mine-x", "fanout")
    for queue in ("mine", "mine-work", "secret"):
        inside.queue_declare(queue)
    inside.queue_bind("mine", "mine-x")
    api.put("users/bob", {"password": "bob", "tags": "policymaker"})
    api.put(f"permissions/{vhost}/bob", {"configure": "^mine", "write": "^mine", "read": "^mine"})
    api.as_user("bob", "bob").put(f"policies/{vhost}/p", {
        "pattern": "^(secret|mine-work)$", "definition": {"dead-letter-exchange": "mine-x"}
    }).raise_for_status()

    for queue in ("secret", "mine-work"):
        inside.basic_publish("", queue, queue.encode())
        method = next(inside.consume(queue, inactivity_timeout=TIMEOUT_S))[0]
        inside.basic_reject(method.delivery_tag, requeue=False)
        inside.cancel()

    letters = inside.consume("mine", auto_ack=True, inactivity_timeout=TIMEOUT_S)
    assert next(letters)[2] == b"mine-work"
    api.delete("users/bob")


def test_a_mandatory_message_that_only_a_tee_could_take_comes_back(api, inside, vhost):
    inside.queue_declare("log", durable=True, arguments={"x-queue-type": "stream"})
    inside.confirm_delivery()
    api.put(f"policies/{vhost}/tee", {"pattern": "^amq.fanout$", "definition": {"tee-to-stream": "log"}})

    with pytest.raises(pika.exceptions.UnroutableError):
        inside.basic_publish("amq.fanout", "", b"x", mandatory=True)


def test_a_policy_is_in_force_at_once_and_gone_when_it_is_deleted(api, inside, vhost):
    inside.queue_declare("short")
    inside.confirm_delivery()

    made = api.put(f"policies/{vhost}/limit", {
        "pattern": "^short$", "definition": {"max-length": 2}, "apply-to": "queues", "priority": 1
    })
    for number in range(5):
        inside.basic_publish("", "short", b"%d" % number)
    limited = api.get(f"queues/{vhost}/short").json()
    deleted = api.delete(f"policies/{vhost}/limit")

    assert (made.status_code, deleted.status_code) == (201, 204)
    assert (limited["messages_ready"], limited["policy"], limited["effective_policy_definition"]) == (
        2, "limit", {"max-length": 2}
    )
    assert api.get(f"queues/{vhost}/short").json()["policy"] is None


def test_a_list_matches_no_policy_again(monkeypatch):
    """What a queue or exchange stands under is kept on it: with thousands of queues and tens of policies a
    list was a million matches.
    """
    found_in, matches = Pattern.found_in, []

    def counted(pattern, name):
        if pattern.text.startswith("^p"):  # and not a permission
            matches.append(name)
        return found_in(pattern, name)

    def fill(launcher):
        vhost = launcher.broker.vhosts["/"]
        for number in range(10):
            vhost.declare_queue(f"policed.{number}")
        for number in range(3):
            value = {"pattern": "^policed", "definition": {"max-length": 5 + number}, "priority": number}
            launcher.broker.parameters.set(vhost, "policy", f"p{number}", value)
        vhost.declare_exchange("policed", "direct")

    with gomq_py.Broker(http_port=0, sync=False) as broker:
        api = API(broker.http_url)
        broker.call(fill)
        monkeypatch.setattr(Pattern, "found_in", counted)
        listed = api.get("queues/%2F").json() + api.get(
            "queues/%2F?page=1&page_size=5&sort=policy"
        ).json()["items"]
        exchanges = api.get("exchanges/%2F").json()

    assert matches == []
    assert {(queue["policy"], queue["effective_policy_definition"]["max-length"]) for queue in listed} == {
        ("p2", 7)
    }
    assert {exchange["name"] for exchange in exchanges if exchange["policy"] == "p2"} == {"policed"}


def test_an_operator_policy_lowers_what_a_policy_allows(api, inside, vhost):
    inside.queue_declare("q")
    api.put(f"policies/{vhost}/p", {"pattern": ".*", "definition": {"max-length": 10}})

    made = api.put(f"operator-policies/{vhost}/op", {"pattern": ".*", "definition": {"max-length": 3}})

    assert made.status_code == 201
    assert api.get(f"queues/{vhost}/q").json()["effective_policy_definition"] == {"max-length": 3}
    assert [policy["name"] for policy in api.get(f"operator-policies/{vhost}").json()] == ["op"]


@pytest.mark.parametrize("body, reason", [
    ({"pattern": ".*"}, "[{key_missing,definition}]"),
    ({"pattern": "(", "definition": {"max-length": 1}}, "should be regular expression"),
    ({"pattern": ".*", "definition": {"max-length": "many"}}, "max-length"),
    ({"pattern": ".*", "definition": {"no-such-key": 1}}, "no-such-key"),
])
def test_a_policy_that_makes_no_sense_is_refused_with_the_reason(api, body, reason):
    refused = api.put("policies/%2F/nonsense", body)

    assert refused.status_code == 400
    assert reason in refused.json()["reason"]


@pytest.mark.parametrize("family", ["policies", "operator-policies"])
def test_a_policy_with_a_number_of_more_than_64_bits_is_refused_and_leaves_nothing_behind(
    api, inside, vhost, family
):
    inside.queue_declare("q")
    for key in ("max-length", "max-length-bytes", "message-ttl", "expires", "delivery-limit"):
        refused = api.put(f"{family}/{vhost}/big", {"pattern": ".*", "definition": {key: 1 << 63}})

        assert (refused.status_code, f"{1 << 63} is not a valid" in refused.json()["reason"]) == (400, True)
    assert api.get(f"{family}/{vhost}").json() == []
    inside.queue_declare("another")


def test_an_import_leaves_out_a_policy_with_a_number_of_more_than_64_bits(api, vhost):
    value = {"pattern": ".*", "definition": {"max-length": 1 << 63}}

    report = api.post(
        "definitions",
        {
            "policies": [{"vhost": vhost, "name": "big", **value}],
            "parameters": [{"vhost": vhost, "component": "operator_policy", "name": "big", "value": value}]},
    ).json()

    assert (
        len(report["refused"]) == 2
        and all("is not a valid maximum length" in line for line in report["refused"])
    )
    assert api.get(f"policies/{vhost}").json() == api.get(f"operator-policies/{vhost}").json() == []


def test_a_vhost_limit_holds_for_clients(api, inside, vhost):
    assert api.put(f"vhost-limits/{vhost}/max-queues", {"value": 1}).status_code == 204
    inside.queue_declare("first")

    with pytest.raises(pika.exceptions.AMQPError):
        inside.queue_declare("second")

    assert api.get(f"vhost-limits/{vhost}").json() == [{"vhost": vhost, "value": {"max-queues": 1}}]
    assert api.delete(f"vhost-limits/{vhost}/max-queues").status_code == 204
    assert api.get(f"vhost-limits/{vhost}").json() == []


def test_parameters_are_kept_by_component_vhost_and_name(api, vhost):
    assert api.put(f"parameters/vhost-limits/{vhost}/limits", {"value": {"max-queues": 1}}).status_code == 201
    assert api.put(f"parameters/vhost-limits/{vhost}/limits", {"value": {"max-queues": 2}}).status_code == 204

    assert api.get(f"parameters/vhost-limits/{vhost}/limits").json()["value"] == {"max-queues": 2}
    assert api.delete(f"parameters/vhost-limits/{vhost}/limits").status_code == 204
    assert api.get(f"parameters/vhost-limits/{vhost}/limits").status_code == 404


@pytest.mark.parametrize("component, why", [
    ("sharding", "this broker has no sharding"), ("my-component", "nothing in this broker acts on it"),
])
def test_a_parameter_that_nobody_acts_on_is_refused_and_an_import_keeps_it_without_effect(
    api, vhost, component, why
):
    refused = api.put(f"parameters/{component}/{vhost}/one", {"value": {"uri": "amqp://"}})

    assert refused.status_code == 400
    assert refused.json()["reason"] == f"Validation failed\n\ncomponent {component} not found: {why}\n"
    assert api.get(f"parameters/{component}/{vhost}/one").status_code == 404

    entry = {"component": component, "vhost": vhost, "name": "one", "value": {"uri": "amqp://"}}
    report = api.request("POST", "definitions?report=true", json={"parameters": [entry]}).json()
    assert report["changed"] == [
        f"parameters: 'one' in vhost '{vhost}': {component}: kept without effect: {why}"
    ]
    assert entry in api.get("definitions").json()["parameters"]
    assert api.put(f"parameters/{component}/{vhost}/one", {"value": {}}).status_code == 400
    assert api.delete(f"parameters/{component}/{vhost}/one").status_code == 204


@pytest.mark.parametrize("key, value", [
    ("shards-per-node", 2), ("routing-key", "k"), ("delayed-message", True),
])
def test_a_policy_with_a_key_that_nobody_acts_on_is_refused_and_an_import_keeps_it_without_effect(
    api, vhost, key, value
):
    policy = {"pattern": "^x", "definition": {"max-length": 5, key: value}}
    refused = api.put(f"policies/{vhost}/p", policy)

    assert refused.status_code == 400 and refused.json()["reason"].startswith(
        f"Validation failed\n\n{key} is not a recognised policy setting: this"
    )
    assert api.get(f"policies/{vhost}/p").status_code == 404

    report = api.request(
        "POST", "definitions?report=true", json={"policies": [{"vhost": vhost, "name": "p", **policy}]}
    ).json()
    assert report["changed"] == [f"policies: 'p' in vhost '{vhost}': kept without effect: {key}"]
    assert api.get(f"policies/{vhost}/p").json()["definition"] == policy["definition"]


@pytest.mark.parametrize("component, value, reason", [
    ("federation-upstream", {"uri": "ftp://there"}, "uri: "),
    ("federation-upstream", {}, 'Key "uri" not found in one'),
    ("federation-upstream", {"uri": "amqp://", "max-hops": -1}, "max-hops should be a number from 0"),
    ("federation-upstream-set", [{"upstream": "u", "uri": "amqp://"}], "Unrecognised terms ['uri'] in one"),
])
def test_an_upstream_or_set_that_makes_no_sense_is_refused_with_the_reason(
    api, vhost, component, value, reason
):
    refused = api.put(f"parameters/{component}/{vhost}/one", {"value": value})

    assert refused.status_code == 400 and reason in refused.json()["reason"]
    assert api.get(f"parameters/{component}/{vhost}/one").status_code == 404


@pytest.mark.parametrize("key, value", [
    ("federation-upstream", "here"), ("federation-upstream-set", "some"),
    ("federation-upstream-set", "all"), ("federation-upstream-pattern", "^h"),
])
def test_upstreams_and_a_policy_make_a_link_for_as_long_as_both_are_there(api, inside, vhost, key, value):
    inside.exchange_declare("x")
    upstream = api.put(f"parameters/federation-upstream/{vhost}/here", {"value": {"uri": "amqp://"}})
    api.put(f"parameters/federation-upstream-set/{vhost}/some", {"value": [{"upstream": "here"}]})

    policy = api.put(f"policies/{vhost}/p", {"pattern": "^x$", "definition": {key: value}})
    wait_until(lambda: len(api.get(f"federation-links/{vhost}").json()) == 1, TIMEOUT_S)
    link, = api.get(f"federation-links/{vhost}").json()
    api.delete(f"policies/{vhost}/p")
    wait_until(lambda: api.get(f"federation-links/{vhost}").json() == [], TIMEOUT_S)

    assert (upstream.status_code, policy.status_code) == (201, 201)
    assert (link["exchange"], link["upstream"], link["uri"]) == ("x", "here", "amqp://")


def test_global_parameters_are_kept_by_name(api):
    assert api.put("global-parameters/motto", {"value": "nothing lost"}).status_code == 201
    assert {"name": "motto", "value": "nothing lost"} in api.get("global-parameters").json()
    assert api.delete("global-parameters/motto").status_code == 204


def test_the_brokers_own_note_is_no_global_parameter_of_users(api):
    put = api.put("global-parameters/load_definitions", {"value": "a.json"})

    assert put.status_code == 400 and "the broker's own" in put.json()["reason"]
    assert api.get("global-parameters/load_definitions").status_code == 404
    assert api.delete("global-parameters/load_definitions").status_code == 404


def test_clusters_id_is_a_global_parameter_that_another_name_leaves_as_it_is(tmp_path):
    """`rabbitmq-cluster-id-` and what no other cluster has, as RabbitMQ's, also after a restart."""
    def ids(process):
        api = API(f"http://127.0.0.1:{process.ports['http']}")
        api.put("cluster-name", {"name": f"name-{len(found)}"})
        listed = {one["name"]: one["value"] for one in api.get("global-parameters").json()}
        alone = api.get("global-parameters/internal_cluster_id").json()
        assert alone == {"name": "internal_cluster_id", "value": listed["internal_cluster_id"]}
        found.append(listed["internal_cluster_id"])

    found = []
    for folder in ("one", "one", "two"):
        with BrokerProcess(tmp_path / folder, http_port=0) as process:
            ids(process)

    assert found[0] == found[1] != found[2]
    assert all(re.fullmatch(r"rabbitmq-cluster-id-[0-9a-f-]{36}", one) for one in found)


def test_definitions_go_out_and_come_in_again(api, inside, vhost):
    inside.queue_declare("kept", durable=True, arguments={"x-max-length": 7})
    inside.exchange_declare("x", "topic", durable=True)
    inside.queue_bind("kept", "x", "a.*")

    exported = api.get(f"definitions/{vhost}").json()
    inside.queue_delete("kept")
    inside.exchange_delete("x")
    imported = api.post(f"definitions/{vhost}", exported)

    assert imported.status_code == 204
    assert api.get(f"queues/{vhost}/kept").json()["arguments"] == {"x-max-length": 7}
    assert [one["routing_key"] for one in api.get(f"bindings/{vhost}/e/x/q/kept").json()] == ["a.*"]


def test_definitions_of_another_broker_say_what_was_left_out(api):
    report = api.post("definitions", {
        "rabbit_version": "3.13.0", "users": [{"name": "mover", "password_hash": "", "tags": "management"}],
        "vhosts": [{"name": "moved"}],
        "policies": [{"vhost": "moved", "name": "broken", "pattern": "(", "definition": {}}],
        "permissions": [],
    }).json()

    assert report["imported"] == {"users": 1, "vhosts": 1}
    assert len(report["problems"]) == 1 and "broken" in report["problems"][0]


def test_malformed_definitions_change_nothing(api):
    refused = api.post(
        "definitions", {"queues": [{"vhost": "/", "durable": True}], "vhosts": [{"name": "not-made"}]}
    )

    assert refused.status_code == 400
    assert api.get("vhosts/not-made").status_code == 404
