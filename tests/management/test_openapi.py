"""The OpenAPI description: valid, whole, and true of what a busy broker answers (every other test here checks
its answers against it as well).
"""
from urllib.parse import urlsplit

import openapi_spec_validator
import pytest
import requests

from gomq_py.http.openapi.operations import OPERATIONS
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


def test_pages_say_what_there_is_without_a_script_or_a_login(api):
    home = requests.get(f"{api.base}/api", timeout=in_time(60))
    description = requests.get(f"{api.base}/docs/openapi.json", timeout=in_time(60)).json()

    assert (home.url, home.status_code) == (f"{api.base}/docs", 200)
    assert (
        "/api/queues/{vhost}/{name}" in home.text and "<script" not in home.text
        and " style=" not in home.text
    )
    assert "script-src 'self'" in home.headers["Content-Security-Policy"]
    assert requests.get(
        f"{api.base}/docs/style.css", timeout=in_time(60)
    ).headers["Content-Type"].startswith("text/css")
    session = description["components"]["securitySchemes"]["session"]
    assert session["name"] == f"gomq_session_{urlsplit(api.base).port}"
    session["name"] = "gomq_session_15672"
    assert description == described()


def test_a_closed_schema_notices_an_unknown_field():
    errors = list(validator("/api/whoami", "GET", 200).iter_errors(
        {"name": "x", "tags": [], "is_internal_user": True, "password": "x"}
    ))

    assert len(errors) == 1
