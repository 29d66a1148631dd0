"""What another site's page can have a logged-in browser send changes nothing:
routes times what browsers would send.
"""
import re
import socket

import pytest
import requests

from tests.management.description import described
from tests.support.waiting import in_time

CHANGING = sorted(
    (path, method.upper())
    for path, methods in described()["paths"].items()
    for method in methods
    if method.upper() not in ("GET", "HEAD", "OPTIONS")
)
FORMS = (
    "application/x-www-form-urlencoded",
    "application/x-www-form-urlencoded; charset=utf-8",
    "multipart/form-data; boundary=b",
    "text/plain",
    "Text/Plain;a=application/json",
)
FOREIGN = {
    "a fetch to a safe address": {"Sec-Fetch-Site": "cross-site", "Origin": "https://evil.example"},
    "a fetch without an origin": {"Sec-Fetch-Site": "cross-site"},
    "a neighbour's page": {"Sec-Fetch-Site": "same-site", "Origin": "http://evil.{here}"},
    "an old browser, or an unsafe address": {"Origin": "http://evil.example"},
    "a sandboxed frame or a file": {"Origin": "null"},
    "another port": {"Origin": "http://127.0.0.1:80"},
    "the same letters elsewhere": {"Origin": "http://{here}.evil.example"},
    "no origin at all": {"Origin": "http://["},
}
OWN = {
    "a program": {},
    "a page of ours": {"Sec-Fetch-Site": "same-origin", "Origin": "http://{here}"},
    "a page of ours in an old browser": {"Origin": "http://{here}"},
    "a page of ours behind a proxy that ends TLS": {"Origin": "https://{here}"},
    "a page of ours behind a proxy that changes Host": {
        "Sec-Fetch-Site": "same-origin", "Origin": "https://mq.example"
    },
    "an address that was typed": {"Sec-Fetch-Site": "none"},
}


@pytest.fixture(scope="module")
def ask(managed):
    """A function that sends a request as guest's browser or program does."""
    here = f"127.0.0.1:{managed.ports['http']}"
    with requests.Session() as session:
        session.auth = ("guest", "guest")

        def ask(method, path, headers, data=b"{}"):
            headers = {name: value.format(here=here) for name, value in headers.items()}
            return session.request(
                method, f"http://{here}{path}", headers=headers, data=data, timeout=in_time(60)
            )

        yield ask


@pytest.mark.parametrize(("path", "method"), CHANGING)
def test_no_route_that_changes_something_is_for_a_foreign_page_or_a_form(ask, path, method):
    path = re.sub(r"{\w+}", "nosuchthing", path.replace("{vhost}", "%2F"))

    foreign = ask(method, path, {"Content-Type": "application/json", "Origin": "https://evil.example"})
    form = ask(method, path, {"Content-Type": "application/x-www-form-urlencoded"}, data=b"a=b")
    empty_form = ask(method, path, {"Content-Type": "application/x-www-form-urlencoded"}, data=b"")

    assert (foreign.status_code, foreign.json()["error"]) == (403, "forbidden")
    assert [answer.status_code for answer in (form, empty_form)] == [415, 415]


@pytest.mark.parametrize("content_type", [None, "application/json", *FORMS])
@pytest.mark.parametrize("who", FOREIGN)
def test_a_foreign_page_makes_no_administrator(ask, who, content_type):
    headers = FOREIGN[who] | ({} if content_type is None else {"Content-Type": content_type})
    users = b'{"users": [{"name": "mallory", "password": "x", "tags": ["administrator"]}]}'

    answer = ask("POST", "/api/definitions", headers, users)

    assert answer.status_code == 403 and "may change nothing" in answer.json()["reason"]
    assert ask("GET", "/api/users/mallory", {}, None).status_code == 404


@pytest.mark.parametrize("content_type", FORMS)
@pytest.mark.parametrize("path", [
    "/api/definitions", "/api/definitions/upload", "/api/definitions/%2F/upload"
])
def test_definitions_come_as_no_form(ask, path, content_type):
    form = b'--b\r\nContent-Disposition: form-data; name="file"; filename="f"\r\n\r\n{}\r\n--b--\r\n'

    answer = ask("POST", path, {"Content-Type": content_type}, form if "multipart" in content_type else b"{}")

    assert (answer.status_code, answer.json()["error"]) == (415, "unsupported_content_type")
    assert "send Content-Type: application/json" in answer.json()["reason"]


@pytest.mark.parametrize("content_type", [None, "application/json", "application/json; charset=utf-8"])
@pytest.mark.parametrize("who", OWN)
def test_programs_and_pages_of_ours_change_what_they_may(ask, who, content_type):
    headers = OWN[who] | ({} if content_type is None else {"Content-Type": content_type})

    answer = ask("PUT", "/api/global-parameters/foreign-pages", headers, b'{"value": 1}')

    assert answer.status_code in (201, 204), answer.text


@pytest.mark.parametrize("host, status", [
    ("evil.example", 401), ("evil.example:15672", 401), ("127.0.0.1.evil.example", 401), ("[", 401),
    ("localhost:15672", 200), ("LOCALHOST.", 200), ("[::1]:1", 200), ("10.0.0.1", 200),
    (socket.gethostname(), 200),
])
def test_user_of_this_machine_alone_comes_by_no_name_of_another(ask, managed, host, status):
    """A site may make its own name lead to this machine; for others a proxy may be asked by any name."""
    url = f"http://127.0.0.1:{managed.ports['http']}/api"
    requests.put(
        f"{url}/users/anybody", json={"password": "x", "tags": "management"}, auth=("guest", "guest"),
        timeout=in_time(60))

    answers = [
        requests.get(f"{url}/whoami", headers={"Host": host}, auth=auth, timeout=in_time(60)).status_code
        for auth in (("guest", "guest"), ("anybody", "x"))]

    assert answers == [status, 200]


def test_session_of_a_user_of_this_machine_alone_is_none_by_the_name_of_another(managed):
    port = managed.ports["http"]
    url = f"http://127.0.0.1:{port}/api"
    session = requests.post(
        f"{url}/session", json={"username": "guest", "password": "guest"}, timeout=in_time(60))
    (cookie,) = session.cookies

    answers = [
        requests.get(
            f"{url}/whoami", headers={"Host": f"{host}:{port}", "Cookie": f"{cookie.name}={cookie.value}"},
            timeout=in_time(60)).status_code
        for host in ("localhost", "evil.example")]

    assert answers == [200, 401]


def test_a_foreign_page_may_be_shown_nothing_but_harms_nothing_by_asking(ask):
    """Reading is guarded by the browser: no answer of ours says that others may see it."""
    answer = ask(
        "GET", "/api/overview", {"Origin": "https://evil.example", "Sec-Fetch-Site": "cross-site"}, None
    )

    assert answer.status_code == 200
    assert not [name for name in answer.headers if name.lower().startswith("access-control-")]


@pytest.mark.parametrize("method, path, body", [
    ("PUT", "/api/queues/%2F/by-curl", b' {"durable": true}'),
    ("POST", "/api/exchanges/%2F/amq.default/publish",
     b'{"routing_key": "by-curl", "payload": "", "payload_encoding": "string", "properties": {}}'),
])
def test_json_that_curl_calls_a_form_is_taken(ask, method, path, body):
    answer = ask(method, path, {"Content-Type": "application/x-www-form-urlencoded"}, body)

    assert answer.status_code in (200, 201, 204), answer.text


def test_form_of_too_many_octets_changes_nothing(ask):
    """The body of this route is not looked at otherwise."""
    answer = ask(
        "POST", "/api/rebalance/queues", {"Content-Type": "application/x-www-form-urlencoded"},
        b"{" * (2 << 20))

    assert answer.status_code == 415
