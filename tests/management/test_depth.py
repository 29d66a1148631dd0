"""What is nested over HTTP deeper, longer or larger than AMQP allows:
refused before anything is stored, and no list fails for it.
"""
import contextlib
import json

import pytest
import requests

from gomq_py.client.connection import Connection
from tests.support.waiting import in_time

DEEPEST = 32
LISTS = (
    "queues", "exchanges", "bindings", "parameters", "global-parameters", "policies", "operator-policies",
    "definitions", "vhosts", "users",
)


@pytest.fixture
def inside(api, name):
    """A vhost of this test's own, with a queue ``q``."""
    api.put(f"vhosts/{name}")
    api.put(f"queues/{name}/q")
    yield name
    api.delete(f"vhosts/{name}")


def nested(depth):
    """JSON text: an object with so many objects within each other."""
    return '{"a":' * depth + "{}" + "}" * depth


def requests_for(vhost, value):
    """(verb, path, body) of every request that takes nested values."""
    return (
        ("PUT", f"queues/{vhost}/new", f'{{"arguments":{value}}}'),
        ("PUT", f"queues/{vhost}/lasting", f'{{"durable":true,"arguments":{value}}}'),
        ("PUT", f"exchanges/{vhost}/new", f'{{"type":"topic","arguments":{value}}}'),
        ("POST", f"bindings/{vhost}/e/amq.topic/q/q", f'{{"routing_key":"a","arguments":{value}}}'),
        ("POST", f"bindings/{vhost}/e/amq.topic/e/amq.fanout", f'{{"routing_key":"a","arguments":{value}}}'),
        ("PUT", f"policies/{vhost}/new", f'{{"pattern":"x","definition":{{"ha-params":{value}}}}}'),
        ("PUT", f"operator-policies/{vhost}/new", f'{{"pattern":"x","definition":{{"ha-params":{value}}}}}'),
        ("PUT", f"vhost-limits/{vhost}/max-queues", f'{{"value":{value}}}'),
        ("PUT", f"global-parameters/{vhost}", f'{{"value":{value}}}'),
        ("POST", f"exchanges/{vhost}/amq.default/publish",
         f'{{"properties":{{"headers":{value}}},"routing_key":"q","payload":"x","payload_encoding":"string"}}'),
    )


def send(api, verb, path, body):
    headers = {"Content-Type": "application/json"}
    return requests.request(
        verb, f"{api.base}/api/{path}", data=body, auth=("guest", "guest"), headers=headers,
        timeout=in_time(60),
    )


@pytest.mark.parametrize("number", ["1e400", "-1e999"])
def test_number_that_is_too_large_is_refused_wherever_it_stands(api, inside, number):
    for verb, path, body in requests_for(inside, f'{{"x":{number}}}'):
        refused = send(api, verb, path, body)
        assert (
            refused.status_code, "not_json" in refused.text or "a number that no JSON holds" in refused.text
        ) == (400, True), path


@pytest.mark.parametrize("depth", [DEEPEST + 1, 40, 300, 1000, 5000])
def test_what_is_nested_too_deep_is_refused_and_every_list_goes_on(api, inside, depth):
    for verb, path, body in requests_for(inside, nested(depth)):
        refused = send(api, verb, path, body)
        assert (
            refused.status_code,
            "deep" in refused.text or "not_json" in refused.text or "number" in refused.text,
        ) == (400, True), path

    for path in LISTS:
        assert api.get(path).status_code == 200
    assert [queue["name"] for queue in api.get(f"queues/{inside}").json()] == ["q"]
    assert api.get(f"policies/{inside}").json() == api.get(f"operator-policies/{inside}").json() == []
    assert api.get(f"queues/{inside}/q").json()["messages"] == 0


def test_what_is_nested_as_deep_as_amqp_allows_is_taken_shown_and_exported(api, inside):
    value = json.loads(nested(DEEPEST))
    taken = [
        send(api, verb, path, body).status_code
        for verb, path, body in requests_for(inside, nested(DEEPEST))
        if "polic" not in path and "limits" not in path
    ]
    # a policy is a value itself, its definition the second level of it
    taken += [
        send(api, verb, path, body).status_code
        for verb, path, body in requests_for(inside, nested(DEEPEST - 2)) if "polic" in path
    ]

    assert taken == [201, 201, 201, 201, 201, 201, 200, 201, 201]
    for path in LISTS:
        assert api.get(path).status_code == 200
    assert api.get(f"queues/{inside}/new").json()["arguments"] == value
    (got,) = api.post(
        f"queues/{inside}/q/get", {"count": 1, "ackmode": "ack_requeue_false", "encoding": "auto"}
    ).json()
    assert got["properties"]["headers"] == value
    exported = api.get(f"definitions/{inside}").json()
    assert api.post(f"definitions/{inside}", exported).status_code == 204
    api.delete(f"global-parameters/{inside}")


def test_an_import_leaves_out_what_is_nested_too_deep(api, inside):
    value = json.loads(nested(500))

    report = api.post("definitions", {
        "queues": [
            {"vhost": inside, "name": "new", "durable": True, "arguments": value},
            {"vhost": inside, "name": "taken", "arguments": {}},
        ],
        "exchanges": [{"vhost": inside, "name": "new", "type": "topic", "arguments": value}],
        "bindings": [{
            "vhost": inside, "source": "amq.topic", "destination": "q", "destination_type": "queue",
            "routing_key": "", "arguments": value}],
        "policies": [{"vhost": inside, "name": "new", "pattern": "", "definition": {"ha-params": value}}],
        "parameters": [{"vhost": inside, "component": "operator_policy", "name": "new", "value": value}],
        "global_parameters": [{"name": "new", "value": value}],
        "vhosts": [{"name": inside, "metadata": value}],
    }).json()

    assert report["imported"] == {"queues": 1}
    assert len(report["refused"]) == 7 and all("nested deeper than 32" in line for line in report["refused"])
    assert [api.get(path).status_code for path in LISTS] == [200] * len(LISTS)


@pytest.mark.parametrize("arguments, reason", [
    ({"long": "x" * 200_000}, "more than a frame has"),
    ({str(number): number for number in range(8193)}, "more than 8192 entries"),
    ({"list": [True] * 8192}, "more than 8192 entries"), ({"x" * 256: 1}, "255 bytes"),
    ({"\u00e4" * 128: 1}, "255 bytes"),
    ({"number": 1 << 63}, "64 bits"),
])
def test_arguments_and_headers_that_no_frame_of_amqp_holds_are_refused(api, inside, arguments, reason):
    for verb, path, body in requests_for(inside, json.dumps(arguments)):
        if "polic" not in path and "limits" not in path and "global" not in path:
            refused = send(api, verb, path, body)
            assert (refused.status_code, reason in refused.json()["reason"]) == (400, True), path


@pytest.mark.parametrize("value", [1 << 63, -1 << 64, [{"a": 10 ** 400}]])
def test_numbers_of_parameters_have_64_bits(api, inside, value):
    report = api.post("definitions", {"global_parameters": [{"name": "huge", "value": value}]}).json()

    assert "a number of more than 64 bits" in report["refused"][0]
    assert api.get("global-parameters/huge").status_code == 404


def test_half_of_a_surrogate_pair_is_no_name(api, inside):
    body = f'{{"queues":[{{"vhost":"{inside}","name":"\\ud800"}}],"global_parameters":[{{"name":"g","value":["\\udfff"]}}]}}'

    report = send(api, "POST", "definitions", body).json()

    assert report["imported"] == {} and len(report["refused"]) == 2
    assert api.get("queues").status_code == api.get("global-parameters").status_code == 200


def test_names_of_arguments_that_are_no_utf_8_are_shown_as_they_can_be(managed, api, inside):
    """AMQP allows any octets there."""
    with contextlib.closing(Connection(managed.url(vhost=inside))) as connection:
        connection.channel().queue_declare("odd", arguments={"x-\udc80y": 1})

        assert api.get(f"queues/{inside}").status_code == 200
        assert list(api.get(f"queues/{inside}/odd").json()["arguments"].values()) == [1]
        assert api.get("definitions").status_code == 200
