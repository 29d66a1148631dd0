"""What HTTP clients that know RabbitMQ take for granted: refusals word for word, headers, and what is no
error. As RabbitMQ 3.10 answered.
"""
from urllib.parse import urljoin

import pytest
import requests

from tests.support.waiting import in_time

DOUBLY = "invalid payload: the request body JSON-decoded to a string. Is the input doubly-JSON-encoded?"


@pytest.mark.parametrize("body, reason", [
    ("{", "not_json"), ("[]", "not_json"), ("1", "not_json"), ('"x"', DOUBLY)
])
@pytest.mark.parametrize("path", [
    "queues/%2F/odd", "exchanges/%2F/odd", "users/odd", "vhosts/odd", "policies/%2F/odd",
    "permissions/%2F/guest",
])
def test_a_body_that_is_no_object_is_refused_in_rabbitmqs_words(api, path, body, reason):
    refused = api.request("PUT", path, data=body, headers={"Content-Type": "application/json"})

    assert (refused.status_code, refused.json()) == (400, {"error": "bad_request", "reason": reason})


@pytest.mark.parametrize("body", ["[]", "{", '"x"'])
def test_definitions_that_are_no_object_are_refused_in_rabbitmqs_words(api, body):
    refused = api.request("POST", "definitions", data=body, headers={"Content-Type": "application/json"})

    assert (refused.status_code, refused.json()) == (
        400, {"error": "bad_request", "reason": "failed_to_parse_json"}
    )


@pytest.mark.parametrize("body", ["", "null", "{}"])
@pytest.mark.parametrize("kind", ["queues", "exchanges"])
def test_what_may_be_left_out_may_be_left_out_altogether(api, name, kind, body):
    place = f"{kind}/%2F/{name[:60]}-{len(body)}"

    made = api.request("PUT", place, data=body, headers={"Content-Type": "application/json"})

    assert made.status_code == 201
    assert api.get(place).json()["durable"] is False
    assert api.delete(place).status_code == 204


def test_an_exchange_without_a_type_is_a_direct_one(api, name):
    api.put(f"exchanges/%2F/{name}")

    assert api.get(f"exchanges/%2F/{name}").json()["type"] == "direct"


@pytest.mark.parametrize("path, body, missing", [
    ("queues/%2F/manners/get", {}, ["ackmode", "count", "encoding"]),
    ("exchanges/%2F/amq.direct/publish", {}, ["routing_key", "properties", "payload", "payload_encoding"]),
])
def test_missing_keys_are_named_in_rabbitmqs_order(api, path, body, missing):
    api.put("queues/%2F/manners")

    refused = api.post(path, body)

    assert refused.json()["reason"] == "[" + ",".join(f"{{key_missing,{key}}}" for key in missing) + "]"


def test_an_answer_without_a_body_has_no_type(api, name):
    place = f"queues/%2F/{name}"
    options = requests.options(f"{api.base}/api/queues", auth=("guest", "guest"), timeout=in_time(60))
    answers = [api.put(place), api.put(place), options, api.delete(place)]

    assert (
        [(answer.status_code, answer.content, answer.headers.get("Content-Type")) for answer in answers] == [
            (201, b"", None), (204, b"", None), (200, b"", None), (204, b"", None)]
    )


@pytest.mark.parametrize("verb, path, allowed", [
    ("GET", "queues/%2F/q/get", "OPTIONS, POST"),
    ("PATCH", "queues/%2F/q", "DELETE, GET, HEAD, OPTIONS, PUT"),
    ("PUT", "overview", "GET, HEAD, OPTIONS"),
])
def test_a_method_that_is_not_allowed_is_told_which_are(managed, verb, path, allowed):
    refused = requests.request(
        verb, f"http://127.0.0.1:{managed.ports['http']}/api/{path}", auth=("guest", "guest"),
        timeout=in_time(60),
    )

    assert (refused.status_code, refused.headers["Allow"]) == (405, allowed)


def test_place_of_a_binding_is_relative_to_where_it_was_asked_for(api, channel, name):
    channel.queue_declare(f"{name} /ä")
    api.put(f"exchanges/%2F/{name}", {"type": "topic"})

    made = api.post(f"bindings/%2F/e/{name}/q/{name}%20%2F%C3%A4", {"routing_key": "a b/#"})

    destination, key = made.headers["Location"].split("/")
    assert destination == f"{name}%20%2F%C3%A4"
    assert requests.get(
        urljoin(made.url, made.headers["Location"]), auth=("guest", "guest"), timeout=in_time(60)
    ).json()["routing_key"] == "a b/#"


@pytest.mark.parametrize("path", [
    "queues/%2F/nobody/bindings", "exchanges/%2F/nobody/bindings/source",
    "exchanges/%2F/nobody/bindings/destination", "bindings/%2F/e/nobody/q/nobody",
    "bindings/%2F/e/amq.direct/q/nobody", "bindings/%2F/e/nobody/e/amq.direct",
])
def test_what_is_not_there_has_no_bindings(api, path):
    answer = api.get(path)

    assert (answer.status_code, answer.json()) == (200, [])


@pytest.mark.parametrize("query, error, reason", [
    (
        "page=0", "invalid_pagination_parameters",
        "Invalid pagination parameters: page number 0, page size undefined",
    ),
    (
        "page=1&page_size=501", "invalid_pagination_parameters",
        "Invalid pagination parameters: page number 1, page size 501",
    ),
    (
        "page=2&page_size=0", "invalid_pagination_parameters",
        "Invalid pagination parameters: page number 2, page size 0",
    ),
    ("page=x", "bad_request", "Pagination parameters are invalid"),
    ("page=1&page_size=x", "bad_request", "Pagination parameters are invalid"),
    (
        "page=9&name=nobody-is-called-so", "page_out_of_range",
        "Page out of range, page: 9 page size: 100, len: 0",
    ),
])
def test_pages_that_cannot_be_are_refused_in_rabbitmqs_words(api, query, error, reason):
    refused = api.get(f"queues?{query}")

    assert (refused.status_code, refused.json()) == (400, {"error": error, "reason": reason})


@pytest.mark.parametrize("path, status", [
    ("health/checks/alarms", 200), ("health/checks/local-alarms", 200), ("healthchecks/node", 200),
    ("health/checks/protocol-listener/amqp", 200), ("health/checks/protocol-listener/amqp0-9-1", 200),
])
def test_checks_of_health_answer_where_they_are_asked(api, path, status):
    answer = api.get(path, allow_redirects=False)

    assert (answer.status_code, answer.json()["status"]) == (status, "ok")


@pytest.mark.parametrize("path, reason", [
    (
        "certificate-expiration/1/moons",
        "Time unit not recognised. Supported units: days, weeks, months, years.",
    ),
    ("certificate-expiration/x/weeks", "Invalid expiration value."), ("port-listener/x", "Invalid port"),
])
def test_checks_of_health_that_make_no_sense_are_refused_in_rabbitmqs_words(api, path, reason):
    refused = api.get(f"health/checks/{path}")

    assert (refused.status_code, refused.json()) == (400, {"error": "bad_request", "reason": reason})


@pytest.mark.parametrize("verb, path", [
    ("PUT", "queues/%2F/amq.mine"), ("PUT", "exchanges/%2F/amq.mine"), ("DELETE", "exchanges/%2F/amq.direct"),
    ("DELETE", "exchanges/%2F/amq.default"),
])
def test_what_nobody_may_do_is_401(api, verb, path):
    refused = api.request(verb, path, json={})

    assert (refused.status_code, refused.json()["error"]) == (401, "not_authorised")


@pytest.mark.parametrize("path", [
    "vhost-limits/%2F/max-queues", "vhost-limits/%2F/nonsense", "user-limits/guest/max-channels"
])
def test_taking_away_a_limit_that_is_not_there_is_no_error(api, path):
    assert api.delete(path).status_code == 204


def test_a_password_and_a_hash_together_are_refused(api):
    refused = api.put("users/twofold", {"password": "x", "password_hash": "AAAA", "tags": ""})

    assert (refused.status_code, refused.json()["reason"]) == (
        400, "both_password_and_password_hash_are_provided"
    )
    assert api.get("users/twofold").status_code == 404


@pytest.mark.parametrize("tags, path, reason", [
    ("", "overview", "Not management user"), ("", "users", "Not management user"),
    ("management", "users", "Not administrator user"),
    ("management", "nodes", "Not monitor user"),
    ("monitoring", "global-parameters", "User not authorised to access object"),
])
def test_missing_tags_are_told_in_rabbitmqs_words(api, tags, path, reason):
    user = f"tagged-{tags}"
    api.put(f"users/{user}", {"password": "x", "tags": tags})

    refused = api.as_user(user, "x").get(path)

    assert (refused.status_code, refused.json()) == (401, {"error": "not_authorised", "reason": reason})
    assert "WWW-Authenticate" in refused.headers


def test_policies_of_a_vhost_are_for_everybody_who_sees_it(api):
    """Who collects metrics looks at policies too; changing them takes the policymaker's tag."""
    api.put("users/looker", {"password": "x", "tags": "monitoring"})
    api.put("policies/%2F/looked-at", {"pattern": "^zz", "definition": {"max-length": 1}})
    looker = api.as_user("looker", "x")

    seen = [one["name"] for one in looker.get("policies/%2F").json()]
    refused = looker.delete("policies/%2F/looked-at")

    assert ("looked-at" in seen, refused.status_code) == (True, 401)
    assert api.delete("policies/%2F/looked-at").status_code == 204


@pytest.mark.parametrize("path", ["queues/%2F//bindings", "/overview", "queues//%2F", "exchanges/%2F//x"])
def test_doubled_slashes_lead_to_no_other_path(api, path):
    """The redirect of a request to vhost / named the vhost %2F."""
    answer = requests.get(f"{api.base}/api/{path}", auth=("guest", "guest"), allow_redirects=False,
                          timeout=in_time(60))

    assert answer.status_code == 404 and "Location" not in answer.headers
