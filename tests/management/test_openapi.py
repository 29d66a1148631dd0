"""The OpenAPI description: valid, whole, and true of what a busy broker answers (every other test here checks
its answers against it as well).
"""
import html
import json
import re
import shlex
from urllib.parse import urlsplit

import openapi_spec_validator
import pytest
import requests
from jsonschema import Draft202012Validator

from gomq_py.broker.features import table
from gomq_py.http.openapi.examples import command
from gomq_py.http.openapi.operations import OPERATIONS
from gomq_py.http.openapi.schemas import BODIES
from tests.management.busy import VHOST
from tests.management.description import app, described, validator
from tests.support.waiting import in_time

# What stands for the names in paths; the first that fits the path's beginning.
NAMES = {
    "/api/connections/{name}": {"name": "{connection}"}, "/api/connections/username": {"user": "guest"},
    "/api/channels": {"name": "{channel}"},
    "/api/nodes": {"name": "{node}"}, "/api/healthchecks": {"name": "{node}"},
    "/api/auth/attempts": {"name": "{node}"},
    "/api/exchanges/{vhost}/{name}/bindings/destination": {"name": "hox2"}, "/api/exchanges": {"name": "hox"},
    "/api/streams": {"name": "log", "number": "{segment}"},
    "/api/schedules": {"exchange": "later", "name": "hourly"},
    "/api/delayed": {"name": "later"}, "/api/unacked": {"name": "busy"},
    "/api/queues/quorum": {"name": "members"}, "/api/queues": {"name": "busy"},
    "/api/users/{name}/queues": {"name": "guest"}, "/api/users": {"name": "houser"},
    "/api/vhosts": {"name": VHOST},
    "/api/policies": {"name": "hopol"}, "/api/operator-policies": {"name": "hoop"},
    "/api/parameters": {"component": "component", "name": "one"},
    "/api/global-parameters": {"name": "cluster_name"},
    "/api/health/checks/port-listener": {"port": "{port}"},
    "/api/health/checks/certificate-expiration": {"within": "1", "unit": "days"},
    "/api/health/checks/protocol-listener": {"protocol": "amqp"},
    "/api/auth/hash_password": {"password": "secret"}, "/api/shovels": {"name": "shovel"}, "/": {},
}
COMMON = {
    "vhost": VHOST, "user": "houser", "source": "hox", "kind": "q", "destination": "busy", "key": "{key}",
}
QUERIES = {"/api/streams/{vhost}/{name}/offset": {"timestamp": "1"}}
# Where there is nothing to see without a session: test_session holds it against its description.
SESSION = "/api/session"
# Of MQTT there is nothing without clients: test_mqtt does.
MQTT = "/api/mqtt"
GETS = sorted(
    path for path, methods in described()["paths"].items()
    if "get" in methods and path != SESSION and not path.startswith(MQTT)
)


def test_the_description_is_valid():
    openapi_spec_validator.validate(described())


def test_every_operation_has_a_route():
    """The other way round is given: the document is made of the routes."""
    routes = {(rule.endpoint, method) for rule in app().url_map.iter_rules() for method in rule.methods}

    assert set(OPERATIONS) - routes == set()


@pytest.mark.parametrize("path", GETS)
def test_what_a_busy_broker_shows_is_as_described(busy, path):
    special = next(names for beginning, names in NAMES.items() if path.startswith(beginning))
    key = busy.api.get(f"bindings/{VHOST}/e/hox/q/busy").json()[0]["properties_key"]
    url = path.format(**{**COMMON, **special}).format(**busy.names, key=key)

    answer = requests.get(
        busy.api.base + url, params=QUERIES.get(path), auth=("guest", "guest"), timeout=in_time(60)
    )

    assert answer.status_code == 200, answer.text
    expected = validator(path, "GET", 200)
    if expected is not None:
        assert [error.message for error in expected.iter_errors(answer.json())] == []
        # Something to look at: an empty list would be as described whatever the description says.
        assert answer.json() or path in EMPTY
    else:
        assert answer.headers["Content-Type"].startswith(("text/plain", "application/octet-stream"))


EMPTY = {
    "/api/extensions", "/api/feature-flags", "/api/deprecated-features", "/api/deprecated-features/used",
    "/api/auth/attempts/{name}/source",
}


def test_page_describes_the_api_without_a_login(api):
    home = requests.get(f"{api.base}/api", timeout=in_time(60))
    description = requests.get(f"{api.base}/docs/openapi.json", timeout=in_time(60)).json()

    assert (home.url, home.status_code) == (f"{api.base}/docs", 200)
    assert "script-src 'self'" in home.headers["Content-Security-Policy"]
    assert " style=" not in home.text and re.findall(r"<script[^>]*>", home.text) == [
        "<script type=module src=/ui/js/docs.js>"]
    session = description["components"]["securitySchemes"]["session"]
    assert session["name"] == f"gomq_session_{urlsplit(api.base).port}"
    session["name"] = "gomq_session_15672"
    assert description == described()


def test_page_shows_each_operation_under_its_subject_with_its_text_parameters_and_an_example(api):
    page = requests.get(f"{api.base}/docs", timeout=in_time(60)).text

    text = page.partition("<section id='queues'>")[2].partition("</section>")[0]
    (purge,) = [one for one in text.split("</article>") if "id='delete_queues_vhost_name_contents'" in one]
    assert "Purge the queue: drop all ready messages" in purge and "<code>count</code>" in purge
    assert "curl -u guest:guest -X DELETE http://localhost:15672/api/queues/%2F/jobs/contents" in purge
    assert all(f"<a href='#{name}'>" in page for name in ("queues", "exchanges-and-bindings", "objects"))
    assert "``" not in page and "`" not in re.sub(r"<pre.*?</pre>", "", page)
    assert "<h4><code>x-max-length</code></h4>" in page


def test_every_path_and_example_of_the_description_stands_in_the_page(api):
    page = html.unescape(requests.get(f"{api.base}/docs", timeout=in_time(60)).text)

    assert [path for path in described()["paths"] if f"<code>{path}</code>" not in page] == []


@pytest.mark.parametrize("name", sorted(BODIES))
def test_example_of_a_body_is_as_its_schema_says(name):
    found = [
        operation["requestBody"]["content"]["application/json"]
        for methods in described()["paths"].values() for operation in methods.values()
        if operation.get("requestBody", {}).get("content", {}).get("application/json", {}).get("schema")
        is BODIES[name]
    ]

    assert found
    for content in found:
        Draft202012Validator(content["schema"]).validate(content["example"])


def test_examples_of_the_page_work_as_they_stand(api):
    """Those that make things are run in the order of a reader, each with its words of the command line."""
    for endpoint in (
        "vhosts.put_vhost", "users.put_user", "permissions.put_permission",
        "permissions.put_topic_permission", "exchanges.put_exchange", "queues.put_queue",
        "bindings.post_binding", "exchanges.publish", "queues.get_messages", "messages.peek_messages",
        "search.search_messages", "policies.policies_put", "policies.policies_preview", "queues.purge_queue",
        "limits.put_limit", "limits.put_user_limit", "routes.try_route", "definitions.post_definitions",
        "parameters.put_global_parameter", "settings.put_setting", "queues.list_queues",
        "policies.policies_delete", "users.delete_user", "queues.delete_queue", "exchanges.delete_exchange",
        "parameters.delete_global_parameter", "vhosts.delete_vhost",
    ):
        words = shlex.split(command_of(endpoint))
        options = dict(zip(words[1:], words[2:]))
        method = options.get("-X", "GET")
        url = next(word for word in words if word.startswith("http://localhost:15672"))
        answer = requests.request(
            method, url.replace("http://localhost:15672", api.base), auth=tuple(options["-u"].split(":")),
            data=options.get("-d"), headers={"Content-Type": "application/json"}, timeout=in_time(60))
        assert answer.status_code < 300, (words, answer.text)


def command_of(endpoint):
    """The curl command in the page for an endpoint, at its first path."""
    found = [
        (path, method.upper(), operation) for path, methods in described()["paths"].items()
        for method, operation in methods.items() if operation["x-endpoint"] == endpoint
    ]
    path, method, operation = found[0]
    return command(method, path, operation)


def test_arguments_are_described_for_hints(api):
    found = {(one["of"], one["name"]): one for one in api.get("arguments").json()}

    assert found["queue", "x-message-ttl"] == {
        "of": "queue", "name": "x-message-ttl", "also": [], "example": "60000",
        "values": "ms, 0 to ten years", "default": "Messages do not expire.",
        "effect": table.ARGUMENTS["x-message-ttl"].effect.replace("`", ""), "kinds": ["classic", "quorum"],
        "operator": True,
    }
    assert found["exchange", "x-delayed-type"]["kinds"] == ["x-delayed-message"]
    assert {("policy", "max-length"), ("consumer", "x-priority")} <= found.keys()
    assert ("queue", "x-queue-mode") not in found  # it has no effect
    assert not any(mark in json.dumps(list(found.values())) for mark in ("`", "]("))


def test_a_closed_schema_notices_an_unknown_field():
    errors = list(validator("/api/whoami", "GET", 200).iter_errors(
        {"name": "x", "tags": [], "is_internal_user": True, "password": "x"}
    ))

    assert len(errors) == 1
