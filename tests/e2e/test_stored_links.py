"""Shovels, upstreams and policies that a release before has stored: what waits, and what nothing can be made
of. They stop no boot, are seen over the API and in ctl with state and reason, and are started or deleted
there.
"""
import json

import pytest
import requests

from gomq_py import Broker
from gomq_py.broker.topology.definitions import Importer
from gomq_py.broker.topology_log import records
from tests.ctl.running import in_process
from tests.support.node import Node
from tests.support.waiting import in_time, wait_until

SHOVEL = {"src-uri": "amqp://", "src-queue": "a", "dest-uri": "amqp://", "dest-queue": "b"}
# component, name, value, part of the reason
BAD = (
    ("shovel", "bad", {**SHOVEL, "src-prefetch-count": -1}, "src-prefetch-count is a whole number"),
    ("shovel", "none", 5, "a shovel is an object"),
    ("federation-upstream", "bad", {"uri": "amqp://u:hush@[x"}, "uri: the URI has no host or port"),
    ("federation-upstream", "none", [], "none should be an object"),
    ("federation-upstream-set", "near", [{"upstream": 5}], "upstream should be a string"),
)
# Components that were kept before anything acted on them.
WAITING = (
    ("shovel", "later", SHOVEL), ("federation-upstream", "later", {"uri": "amqp://127.0.0.1:1"}),
)


@pytest.fixture
def broker(tmp_path):
    """One over a folder of such a release; it was the last to know nothing of shovels and federation."""
    before = Node(tmp_path / "data")
    before.vhost.declare_exchange("fed", "fanout", durable=True)
    said = Importer(before.broker, by="guest").run({
        "parameters": [
            {"vhost": "/", "component": component, "name": name, "value": value}
            for component, name, value in WAITING],
        "policies": [{
            "vhost": "/", "name": "later", "pattern": "^fed$",
            "definition": {"federation-upstream": "later"}}],
    })
    assert not said.problems, said.problems
    for component, name, value, _ in BAD:
        before.broker._log.append(
            records.parameter_set("/", component, name, json.dumps(value), False, "guest"))
    before.stop()
    with Broker(str(tmp_path / "data"), http_port=0, sync=False) as broker:
        yield broker


def call(broker, verb, path, value=None):
    return requests.request(
        verb, f"{broker.http_url}/api/{path}", auth=("guest", "guest"), timeout=in_time(60),
        json=None if value is None else value)


def parameters(broker, component):
    """{name: (state, reason)}"""
    return {one["name"]: (one.get("state"), one.get("reason")) for one in call(
        broker, "GET", f"parameters/{component}/%2F").json()}


def ctl(broker, *arguments):
    finished = in_process(broker.http_url, *arguments)
    assert finished.exit_code == 0, finished.output
    return finished.output


def test_bad_ones_are_seen_with_their_reason_and_deleted(broker):
    for component, name, _, reason in BAD:
        state, why = parameters(broker, component)[name]
        assert state == "error" and reason in why and "hush" not in why
    shovels = {one["name"]: one for one in call(broker, "GET", "shovels").json()}
    for component, name, _, reason in BAD[:2]:
        assert (shovels[name]["state"], reason in shovels[name]["error"]) == ("error", True)
        assert reason in ctl(broker, "shovel_status")
    listed = ctl(broker, "list_federations")
    assert "reason" in listed and BAD[2][3] in listed and BAD[3][3] in listed
    assert BAD[4][3] in ctl(broker, "list_parameters")
    refused = in_process(broker.http_url, "restart_shovel", "bad")

    assert refused.exit_code == 0 and call(broker, "GET", "shovels/%2F/bad").json()["state"] == "error"
    for component, name, *_ in BAD:
        if name == "none":
            ctl(broker, "clear_parameter", component, name)
        else:
            assert call(broker, "DELETE", f"parameters/{component}/%2F/{name}").status_code == 204
    for component, name, *_ in BAD:
        assert name not in parameters(broker, component)
    assert [one["name"] for one in call(broker, "GET", "shovels").json()] == ["later"]


def test_a_link_that_cannot_be_is_shown_where_a_policy_asks_for_it_until_its_upstream_is_mended(broker):
    def links():  # {upstream: (status, error)}
        return {one["upstream"]: (one["status"], one.get("error", "")) for one in call(
            broker, "GET", "federation-links/%2F").json()}
    for named in ({"federation-upstream-set": "near"}, {"federation-upstream": "bad"}):
        name, = named.values()
        assert call(broker, "PUT", "policies/%2F/now", {
            "pattern": "^fed$", "priority": 1, "definition": named}).status_code == 201 or name == "bad"
        wait_until(lambda name=name: list(links()) == [name])
        status, error = links()[name]
        assert status == "error" and {"near": BAD[4], "bad": BAD[2]}[name][3] in error
    assert [one["upstream"] for one in call(broker, "GET", "federation-links/state/down").json()] == ["bad"]
    assert BAD[2][3] in ctl(broker, "federation_status")
    assert 'state="error"} 1' in requests.get(
        f"{broker.http_url}/metrics", auth=("guest", "guest"), timeout=in_time(60)).text.partition(
            "gomq_federation_links{")[2].partition("# HELP")[0]

    call(broker, "PUT", "parameters/federation-upstream/%2F/bad", {"value": {"uri": "amqp://127.0.0.1:1"}})

    wait_until(lambda: "Connection refused" in str(links()))
    assert parameters(broker, "federation-upstream")["bad"] == (None, None)


def test_waiting_ones_are_seen_and_start_when_somebody_restarts_them(broker):
    assert parameters(broker, "shovel")["later"][0] == "waiting"
    assert parameters(broker, "federation-upstream")["later"][0] == "waiting"
    wait_until(lambda: call(broker, "GET", "federation-links").json())
    (link,) = call(broker, "GET", "federation-links").json()
    assert (link["status"], link["upstream"]) == ("waiting", "later")
    assert "policy 'later' and federation-upstream 'later': it was set while nothing" in link["error"]
    assert "waiting" in ctl(broker, "federation_status") and "waiting" in ctl(broker, "shovel_status")

    ctl(broker, "restart_shovel", "later")
    ctl(broker, "restart_federation_link", link["id"])

    wait_until(lambda: call(broker, "GET", "shovels/%2F/later").json()["state"] == "running")
    wait_until(lambda: "Connection refused" in call(broker, "GET", "federation-links").text)
    assert parameters(broker, "shovel")["later"] == parameters(broker, "federation-upstream")["later"] == (
        None, None)
