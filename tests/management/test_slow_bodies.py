"""Bodies that come late: what a request names is looked for when the body is there, for it may be deleted
while that comes; and who asks may have lost the right to.
"""
import base64
import contextlib
import json
import socket

import pytest
import requests

from tests.support.waiting import in_time

BASIC = "Basic Z3Vlc3Q6Z3Vlc3Q="
RIGHTS = {"configure": ".*", "write": ".*", "read": ".*"}
TAKE = {"count": 5, "ackmode": "ack_requeue_true", "encoding": "auto"}
DEFINITIONS = {"queues": [{"name": "q2"}]}
POLICY = {"pattern": ".*", "definition": {"max-length": 5}}
LATE = [
    ("PUT", "user-limits/late/max-connections", {"value": 5}, "users/late", 404),
    ("PUT", "permissions/late/late", RIGHTS, "users/late", 400),
    ("PUT", "permissions/late/late", RIGHTS, "vhosts/late", 400),
    ("PUT", "topic-permissions/late/late", {**RIGHTS, "exchange": "amq.topic"}, "users/late", 400),
    ("PUT", "topic-permissions/late/late", {**RIGHTS, "exchange": "amq.topic"}, "vhosts/late", 400),
    ("PUT", "policies/late/p", POLICY, "vhosts/late", 404),
    ("PUT", "operator-policies/late/p", POLICY, "vhosts/late", 404),
    ("PUT", "vhost-limits/late/max-queues", {"value": 5}, "vhosts/late", 404),
    ("POST", "queues/late/q/get", TAKE, "vhosts/late", 404),
    ("POST", "queues/late/q/get", TAKE, "queues/late/q", 404),
    ("POST", "definitions/late", DEFINITIONS, "vhosts/late", 404),
]


@pytest.fixture
def late(api):
    """A vhost, a user and a queue of this name."""
    api.put("vhosts/late").raise_for_status()
    api.put("users/late", {"password": "late", "tags": "administrator"}).raise_for_status()
    api.put("permissions/late/late", RIGHTS).raise_for_status()
    api.put("queues/late/q").raise_for_status()
    yield
    api.delete("vhosts/late")
    api.delete("vhosts/late2")
    api.delete("users/late")


def begin(managed, verb, path, wanted, who=f"Authorization: {BASIC}"):
    """Send a request but for its body, and wait until the broker asks for that. Returns (socket, body)."""
    octets = json.dumps(wanted).encode()
    client = socket.create_connection(("127.0.0.1", managed.ports["http"]), timeout=in_time(60))
    client.sendall(
        (
            f"{verb} /api/{path} HTTP/1.1\r\nHost: 127.0.0.1:{managed.ports['http']}\r\n{who}\r\n"
            "Content-Type: application/json\r\nExpect: 100-continue\r\nConnection: "
            f"close\r\nContent-Length: {len(octets)}\r\n\r\n"
        ).encode()
    )
    assert client.recv(100).startswith(b"HTTP/1.1 100 ")
    return client, octets


def end(client, octets):
    """Send the body. Returns the status of the answer."""
    with contextlib.closing(client):
        client.sendall(octets)
        with client.makefile("rb") as answer:
            return int(answer.read().split(b" ")[1])


@pytest.mark.parametrize(
    "verb, path, wanted, deleted, status", LATE,
    ids=[f"{verb} {path} without {deleted}" for verb, path, _, deleted, _ in LATE],
)
def test_what_is_deleted_while_the_body_comes_is_not_there(
    managed, api, late, verb, path, wanted, deleted, status
):
    client, octets = begin(managed, verb, path, wanted)

    api.delete(deleted).raise_for_status()

    assert end(client, octets) == status
    if deleted != "queues/late/q":
        assert "late" not in [
            right["vhost"] for right in api.get("permissions").json() if right["user"] == "late"
        ]


def lose_password(api):
    api.put("users/late", {"password": "another", "tags": "administrator"}).raise_for_status()


def lose_tag(api):
    user = api.get("users/late").json()
    api.put("users/late", {**user, "tags": "management"}).raise_for_status()


def be_deleted(api):
    api.delete("users/late").raise_for_status()


def be_made_anew(api):
    be_deleted(api)
    api.put("users/late", {"password": "late", "tags": "administrator"}).raise_for_status()
    api.put("permissions/late/late", RIGHTS).raise_for_status()


def log_in_basic(api):
    return f"Authorization: Basic {base64.b64encode(b'late:late').decode()}"


def log_in_with_session(api):
    begun = requests.post(
        f"{api.base}/api/session", json={"username": "late", "password": "late"}, timeout=in_time(60)
    )
    return in_session(begun)


def in_session(begun):
    (name, number), = begun.cookies.items()
    return f"Cookie: {name}={number}\r\nX-CSRF-Token: {begun.json()['csrf_token']}"


LOGINS = [log_in_basic, log_in_with_session]


@pytest.mark.parametrize("lose", [lose_password, lose_tag, be_deleted, be_made_anew])
@pytest.mark.parametrize("log_in", LOGINS)
def test_user_whose_login_ends_while_the_body_comes_changes_nothing(managed, api, late, log_in, lose):
    client, octets = begin(managed, "PUT", "vhosts/late2", {}, log_in(api))

    lose(api)

    assert end(client, octets) == 401
    assert api.get("vhosts/late2").status_code == 404


@pytest.mark.parametrize("log_in", LOGINS)
def test_user_who_loses_the_permission_while_the_body_comes_changes_nothing(managed, api, late, log_in):
    client, octets = begin(managed, "PUT", "queues/late/q2", {}, log_in(api))

    api.delete("permissions/late/late").raise_for_status()

    assert end(client, octets) == 401
    assert api.get("queues/late/q2").status_code == 404


@pytest.mark.parametrize("log_in", LOGINS)
def test_user_who_gets_other_rights_while_the_body_comes_is_served(managed, api, late, log_in):
    client, octets = begin(managed, "PUT", "queues/late/q2", {}, log_in(api))

    api.put("permissions/late/late", RIGHTS).raise_for_status()
    user = api.get("users/late").json()
    api.put("users/late", user).raise_for_status()

    assert end(client, octets) == 201


@pytest.mark.parametrize("change", [lose_password, be_deleted])
@pytest.mark.parametrize("with_header", [True, False])
def test_no_session_begins_with_a_password_that_ends_while_the_body_comes(
    managed, api, late, change, with_header
):
    who = log_in_basic(api) if with_header else "X-None: 0"
    client, octets = begin(
        managed, "POST", "session", {} if with_header else {"username": "late", "password": "late"}, who
    )

    change(api)

    assert end(client, octets) == 401


def test_session_that_is_ended_while_the_body_comes_changes_nothing(managed, api, late):
    begun = requests.post(
        f"{api.base}/api/session", json={"username": "late", "password": "late"}, timeout=in_time(60)
    )
    client, octets = begin(managed, "PUT", "vhosts/late2", {}, in_session(begun))

    requests.delete(f"{api.base}/api/session", cookies=begun.cookies, timeout=in_time(60),
                    headers={"X-CSRF-Token": begun.json()["csrf_token"]}).raise_for_status()

    assert end(client, octets) == 401
    assert api.get("vhosts/late2").status_code == 404
