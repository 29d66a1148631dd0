"""Who may do what over HTTP: logins, tags, vhosts."""
import time

import pytest

WITHOUT_SLASH = "elsewhere"


@pytest.fixture
def people(api):
    """One user per tag, password as the name; all but ``nobody`` may do everything in /."""
    for tag in ("management", "monitoring", "policymaker", "administrator", ""):
        user = tag or "nobody"
        api.put(f"users/{user}", {"password": user, "tags": tag})
        if tag:
            api.put(f"permissions/%2F/{user}", {"configure": ".*", "write": ".*", "read": ".*"})
    return {
        user: api.as_user(user, user)
        for user in ("management", "monitoring", "policymaker", "administrator", "nobody")
    }


def test_without_a_login_nothing_is_shown(api):
    refused = api.as_user("guest", "wrong").get("overview")

    assert (refused.status_code, refused.reason) == (401, "Unauthorized")
    assert refused.json() == {"error": "not_authorized", "reason": "Login failed"}
    assert "Basic" in refused.headers["WWW-Authenticate"]


@pytest.mark.parametrize("path, allowed", [
    ("whoami", {"management", "monitoring", "policymaker", "administrator"}),
    ("overview", {"management", "monitoring", "policymaker", "administrator"}),
    ("queues", {"management", "monitoring", "policymaker", "administrator"}),
    ("nodes", {"monitoring", "administrator"}),
    ("users", {"administrator"}),
    ("permissions", {"administrator"}),
])
def test_a_route_is_for_the_tags_it_is_for(people, path, allowed):
    answers = {user: one.get(path).status_code for user, one in people.items()}

    assert {user for user, status in answers.items() if status == 200} == allowed
    assert {status for user, status in answers.items() if user not in allowed} <= {401}


def test_a_vhost_without_permission_is_not_seen(api, people):
    api.put(f"vhosts/{WITHOUT_SLASH}")

    assert people["management"].get(f"queues/{WITHOUT_SLASH}").status_code == 401
    assert people["monitoring"].get(f"queues/{WITHOUT_SLASH}").status_code == 200
    assert [vhost["name"] for vhost in people["management"].get("vhosts").json()] == ["/"]


def test_declaring_needs_the_configure_permission(api, people):
    api.put("permissions/%2F/management", {"configure": "^mine-", "write": ".*", "read": ".*"})

    assert people["management"].put("queues/%2F/mine-1").status_code == 201
    assert people["management"].put("queues/%2F/yours-1").status_code == 401


def test_a_password_never_comes_back(api):
    api.put("users/secretive", {"password": "open sesame", "tags": ["management"]})

    shown = api.get("users/secretive")

    assert "open sesame" not in shown.text
    assert shown.json()["tags"] == ["management"]


def test_a_hash_from_another_broker_lets_its_user_in(api):
    # The salt and SHA-256 of "guest", as RabbitMQ's own definitions carry them.
    api.put("users/imported", {
        "password_hash": "+pHuxkR9fCyrrwXjOD4BP4XbzO3l8LJr8YkThMgJ0yVHFRE+", "tags": "management"
    })

    assert api.as_user("imported", "guest").get("whoami").json()["name"] == "imported"


def test_a_user_without_tags_key_is_refused(api):
    refused = api.put("users/untagged", {"password": "x"})

    assert refused.status_code == 400
    assert refused.json()["reason"] == "tags_not_present"


def test_a_permission_that_is_no_expression_is_refused(api, people):
    refused = api.put("permissions/%2F/nobody", {"configure": "(", "write": "", "read": ""})

    assert refused.status_code == 400


def test_closing_anothers_connection_takes_an_administrator(api, people, channel):
    connections = api.get("connections").json()
    name = connections[0]["name"].replace(" ", "%20").replace(">", "%3E")

    assert people["monitoring"].delete(f"connections/{name}").status_code == 401
    assert api.delete(f"connections/{name}").status_code == 204


def test_answers_forbid_foreign_content(api):
    headers = api.get("overview").headers

    assert "default-src 'none'" in headers["Content-Security-Policy"]
    assert headers["X-Content-Type-Options"] == "nosniff"
    assert "Access-Control-Allow-Origin" not in headers


@pytest.mark.parametrize("body, status", [(b"{", 400), (b"[]", 400), (b" " * (1024 * 1024 + 1), 413)])
def test_a_body_that_is_no_json_object_is_refused(api, body, status):
    refused = api.request("PUT", "vhosts/refused", data=body, headers={"Content-Type": "application/json"})

    assert refused.status_code == status


def test_guessing_passwords_is_slowed_down_and_the_right_one_comes_through(tmp_path, broker_process):
    from tests.management.conftest import API
    process = broker_process(http_port=0).start()
    api = API(f"http://127.0.0.1:{process.ports['http']}")

    began_s = time.monotonic()
    answers = [
        api.as_user("guest", password).get("whoami").status_code for password in (*["guess"] * 11, "guest")
    ]

    assert answers == [401] * 11 + [200]
    # One failure is forgotten in two seconds, and nine are the most before a twelfth attempt.
    assert time.monotonic() - began_s > 3.9


def test_a_pattern_that_would_never_end_is_given_up(api):
    """One queue's name of many letters is enough to keep the standard library busy for ages."""
    api.put("queues/%2F/" + "a" * 200 + "!")

    given_up = api.get("queues", params={"name": "(a|aa)+$", "use_regex": "true"})

    assert (given_up.status_code, given_up.json()["error"]) == (400, "bad_request")
    assert api.put(
        "policies/%2F/slow", {"pattern": "^(a|aa)+$", "definition": {"max-length": 1}}
    ).status_code == 201
    assert api.put("queues/%2F/" + "a" * 200 + "?").status_code == 201
    assert api.delete("policies/%2F/slow").status_code == 204


def test_topic_permissions_are_set_shown_and_lifted(api, people):
    limit = {"exchange": "amq.topic", "write": "^w", "read": "^r"}

    created = api.put("topic-permissions/%2F/management", limit)
    again = api.put("topic-permissions/%2F/management", {**limit, "write": "^v"})
    other = api.put("topic-permissions/%2F/management", {**limit, "exchange": "other"})
    shown = {"user": "management", "vhost": "/", **limit, "write": "^v"}

    assert [answer.status_code for answer in (created, again, other)] == [201, 204, 201]
    for path in (
        "topic-permissions", "topic-permissions/%2F/management", "users/management/topic-permissions",
        "vhosts/%2F/topic-permissions",
    ):
        assert shown in api.get(path).json()
    assert shown in api.get("definitions").json()["topic_permissions"]
    assert api.delete("topic-permissions/%2F/management/other").status_code == 204
    assert api.get("topic-permissions/%2F/management").json() == [shown]
    assert api.delete("topic-permissions/%2F/management").status_code == 204
    assert api.get("topic-permissions/%2F/management").status_code == 404
    assert api.delete("topic-permissions/%2F/management").status_code == 404


def test_topic_permissions_hold_for_the_api_too(api, people):
    api.put("queues/%2F/topics")
    api.put("topic-permissions/%2F/management", {"exchange": "amq.topic", "write": "^mine", "read": "^mine"})
    message = {"properties": {}, "payload": "x", "payload_encoding": "string"}
    mine = people["management"]

    publishes = [
        mine.post("exchanges/%2F/amq.topic/publish", {**message, "routing_key": key}).status_code
        for key in ("mine", "yours")
    ]
    bindings = [
        mine.post("bindings/%2F/e/amq.topic/q/topics", {"routing_key": key}).status_code
        for key in ("mine", "yours")
    ]
    api.delete("topic-permissions/%2F/management")

    assert (publishes, bindings) == ([200, 401], [201, 401])


def test_topic_permissions_come_in_with_definitions(api, people):
    entry = {"user": "management", "vhost": "/", "exchange": "amq.topic", "write": "^in", "read": ".*"}

    imported = api.post("definitions", {"topic_permissions": [entry]})

    assert imported.status_code == 204
    assert api.get("topic-permissions").json() == [entry]
    api.delete("topic-permissions/%2F/management")


@pytest.mark.parametrize("body", [
    {"exchange": "x", "write": "("}, {"exchange": "x", "write": "(", "read": ""},
    {"exchange": 1, "write": "", "read": ""},
])
def test_a_topic_permission_that_makes_no_sense_is_refused(api, people, body):
    assert api.put("topic-permissions/%2F/management", body).status_code == 400
