"""Who may ask for what: every route and every tag, with RabbitMQ's answers;
and what a vhost without permission shows.
"""
import re

import pytest
import requests

from tests.management.description import described
from tests.support.waiting import in_time

TAGS = ("", "impersonator", "management", "policymaker", "monitoring", "administrator")
# Which tags a tag lets in besides itself.
REACHES = {
    "management": {"management", "policymaker", "monitoring", "administrator"},
    "policymaker": {"policymaker", "administrator"},
    "monitoring": {"monitoring", "administrator"}, "administrator": {"administrator"},
    "either": {"policymaker", "monitoring", "administrator"},
}
# (methods, beginning of the path, tag that is needed); the first that fits.
NEEDS = (
    ("GET", "/api/auth$", None),
    ("GET", "/api/streams/", ""),  # no tag, but the read permission, which all have here
    ("*", "/api/auth/hash_password", "management"), ("GET", "/api/auth/attempts", "monitoring"),
    ("DELETE", "/api/auth/attempts", "administrator"),
    ("PUT", "/api/cluster-name", "administrator"),
    ("*", "/api/backup", "administrator"),
    ("GET", "/api/cluster$", "monitoring"), ("POST", "/api/cluster/", "administrator"),
    ("DELETE", "/api/cluster/", "administrator"),
    ("*", "/api/(feature-flags|deprecated-features)", "administrator"),
    ("*", "/api/(reset|rebalance|settings|listeners)", "administrator"),
    ("*", "/api/nodes/(gc_stats|gc_collect|{name}/gc_collect)", "administrator"),
    ("GET", "/api/nodes", "monitoring"), ("GET", "/metrics", "monitoring"),
    ("GET", "/api/user-limits", "management"),
    ("GET", "/api/users/{name}/queues", "management"),
    ("*", "/api/(users|user-limits|permissions|topic-permissions|definitions)", "administrator"),
    ("*", "/api/vhosts/{name}/(permissions|topic-permissions|start|deletion)", "administrator"),
    ("PUT DELETE", "/api/vhosts/{name}$", "administrator"),
    ("PUT DELETE", "/api/vhost-limits", "administrator"),
    ("PUT DELETE POST", "/api/operator-policies", "administrator"), ("GET", "/api/log$", "administrator"),
    ("GET", "/api/(policies|operator-policies)", "management"),
    ("PUT DELETE", "/api/global-parameters", "administrator"),
    ("*", "/api/(policies|operator-policies|parameters|global-parameters)", "policymaker"),
    ("GET", "/api/(shovels|federation-links)", "either"),
    ("*", "/api/(shovels|federation-links)", "policymaker"),
    ("POST", ".*/actions$", "administrator"),
    ("*", "/api/", "management"),
)
ROUTES = sorted(
    (path, method.upper()) for path, methods in described()["paths"].items() for method in methods
)


@pytest.fixture(scope="module")
def sessions(managed):
    """(base URL, {tag: session of a user with this tag and all rights in /})."""
    base = f"http://127.0.0.1:{managed.ports['http']}"
    everything = {"configure": ".*", "write": ".*", "read": ".*"}
    with requests.Session() as guest:
        guest.auth = ("guest", "guest")
        sessions = {}
        for tag in TAGS:
            user = f"matrix-{tag or 'nothing'}"
            guest.put(f"{base}/api/users/{user}", json={"password": user, "tags": tag}, timeout=in_time(60))
            guest.put(f"{base}/api/permissions/%2F/{user}", json=everything, timeout=in_time(60))
            sessions[tag] = requests.Session()
            sessions[tag].auth = (user, user)
        yield base, sessions
        for session in sessions.values():
            session.close()


def needed(path, method):
    """The tag that a route needs."""
    return next(
        tag
        for methods, pattern, tag in NEEDS
        if method in methods.split() + [method] * (methods == "*") and re.match(pattern, path)
    )


@pytest.mark.parametrize("path, method", ROUTES)
def test_a_route_is_for_whose_tag_reaches_it(sessions, path, method):
    """Names are of nothing that matters, but for the vhost, so that what is let in breaks nothing: whatever
    it is told, it is no 401.
    """
    base, by_tag = sessions
    url = base + path.replace("{vhost}", "%2F").replace("{number}", "1")
    if method == "GET":
        url = url.replace("/api/vhosts/{name}", "/api/vhosts/%2F")
    url = re.sub(r"{\w+}", "nosuchthing", url)

    body = {} if method in ("PUT", "POST") else None
    answers = {
        tag: session.request(method, url, json=body, timeout=in_time(60)) for tag, session in by_tag.items()
    }

    tag = needed(path, method)
    assert {tag for tag, answer in answers.items() if answer.status_code != 401} == (
        REACHES[tag] if tag else set(TAGS)
    )
    assert {answer.status_code for answer in answers.values()} <= {200, 201, 204, 400, 401, 404, 503}
    assert all(
        answer.json()["error"] == "not_authorised" for answer in answers.values() if answer.status_code == 401
    )


@pytest.mark.parametrize("path", sorted(
    path for path, method in ROUTES if "{vhost}" in path and method == "GET" and "aliveness" not in path))
def test_a_vhost_shows_nothing_without_permission(sessions, path):
    """Monitoring sees every vhost, but publishing, declaring, binding and what messages say take permissions
    whatever the tag.
    """
    base, by_tag = sessions
    requests.put(f"{base}/api/vhosts/closed", json={}, auth=("guest", "guest"), timeout=in_time(60))
    requests.delete(f"{base}/api/permissions/closed/guest", auth=("guest", "guest"), timeout=in_time(60))
    url = re.sub(r"{\w+}", "nosuchthing", base + path.replace("{vhost}", "closed").replace("{number}", "1"))

    answers = {
        tag: by_tag[tag].get(url, timeout=in_time(60)).status_code
        for tag in ("management", "policymaker", "monitoring", "administrator")
    }

    if path.startswith("/api/mqtt/retained/"):
        assert set(answers.values()) == {401}
        return
    assert answers["administrator"] in (200, 404)
    assert answers["management"] == answers["policymaker"] == 401
    assert answers["monitoring"] in (200, 404) or needed(path, "GET") in ("policymaker", "administrator")


@pytest.mark.parametrize(("component", "name", "value"), [
    (
        "operator_policy", "cap",
        {"pattern": "^nosuch$", "definition": {"max-length": 1}, "apply-to": "queues"},
    ),
    ("vhost-limits", "limits", {"max-connections": 1000}),
    ("mqtt", "exchange", "amq.topic"),
])
def test_what_is_for_administrators_no_other_tag_changes_as_a_parameter(sessions, component, name, value):
    base, by_tag = sessions
    url = f"{base}/api/parameters/{component}/%2F/{name}"

    refused = [
        by_tag["policymaker"].request(method, url, json={"value": value}, timeout=in_time(60))
        for method in ("PUT", "DELETE")
    ]
    done = [
        by_tag["administrator"].request(method, url, json={"value": value}, timeout=in_time(60))
        for method in ("PUT", "DELETE")
    ]

    assert [(answer.status_code, answer.json()["reason"]) for answer in refused] == [
        (401, "Not administrator user")
    ] * 2
    assert [answer.status_code for answer in done] == [201, 204]


@pytest.mark.parametrize("method, path, body", [
    ("PUT", "queues/closed/q", {}), ("PUT", "exchanges/closed/x", {"type": "topic"}),
    ("DELETE", "exchanges/closed/amq.topic", None),
    (
        "POST", "exchanges/closed/amq.topic/publish",
        {"properties": {}, "routing_key": "", "payload": "", "payload_encoding": "string"},
    ),
    ("POST", "bindings/closed/e/amq.topic/e/amq.fanout", {"routing_key": ""}),
    ("GET", "aliveness-test/closed", None),
])
def test_changing_a_vhost_takes_permissions_whatever_the_tags(sessions, method, path, body):
    base, by_tag = sessions
    requests.put(f"{base}/api/vhosts/closed", json={}, auth=("guest", "guest"), timeout=in_time(60))
    requests.delete(f"{base}/api/permissions/closed/guest", auth=("guest", "guest"), timeout=in_time(60))

    tags = ("management", "monitoring", "administrator")
    answers = [
        by_tag[tag].request(method, f"{base}/api/{path}", json=body, timeout=in_time(60)) for tag in tags
    ]

    assert [answer.status_code for answer in answers] == [401] * 3
