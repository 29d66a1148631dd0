"""Bodies that come late: what a request names is looked for when the body is there, for it may be deleted while that comes."""
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
    api.delete("users/late")


def begin(managed, verb, path, wanted, who=f"Authorization: {BASIC}"):
    """Send a request but for its body, and wait until the broker asks for that. Returns (socket, body)."""
    octets = json.dumps(wanted).encode()
    client = socket.create_connection(("127.0.0.1", managed.ports["http"]), timeout=in_time(60))
    client.sendall((f"{verb} /api/{path} HTTP/1.1\r\nHost: x\r\n{who}\r\nContent-Type: application/json\r\n"
                    f"Expect: 100-continue\r\nConnection: close\r\nContent-Length: {len(octets)}\r\n\r\n").encode())
    assert client.recv(100).startswith(b"HTTP/1.1 100 ")
    return client, octets


def end(client, octets):
    """Send the body. Returns the status of the answer."""
    with contextlib.closing(client):
        client.sendall(octets)
        with client.makefile("rb") as answer:
            return int(answer.read().split(b" ")[1])


@pytest.mark.parametrize("verb, path, wanted, deleted, status", LATE, ids=[f"{verb} {path} without {deleted}" for verb, path, _, deleted, _ in LATE])
def test_what_is_deleted_while_the_body_comes_is_not_there(managed, api, late, verb, path, wanted, deleted, status):
    client, octets = begin(managed, verb, path, wanted)

    api.delete(deleted).raise_for_status()

    assert end(client, octets) == status
    if deleted != "queues/late/q":
        assert "late" not in [right["vhost"] for right in api.get("permissions").json() if right["user"] == "late"]


@pytest.mark.parametrize("change", ["delete", "put"])
def test_user_who_is_deleted_or_loses_the_tag_while_the_body_comes_changes_nothing(managed, api, late, change):
    client, octets = begin(managed, "PUT", "vhosts/late2", {}, "Authorization: Basic bGF0ZTpsYXRl")

    if change == "delete":
        api.delete("users/late").raise_for_status()
    else:
        api.put("users/late", {"password": "late", "tags": ""}).raise_for_status()

    assert end(client, octets) == 401
    assert api.get("vhosts/late2").status_code == 404


@pytest.mark.parametrize("change", [{"password": "another", "tags": "administrator"}, {"password": "late", "tags": "monitoring"}, None])
def test_session_that_ends_while_the_body_comes_changes_nothing(managed, api, late, change):
    begun = requests.post(f"{api.base}/api/session", json={"username": "late", "password": "late"}, timeout=in_time(60))
    who = f"Cookie: gomq_session={begun.cookies['gomq_session']}\r\nX-CSRF-Token: {begun.json()['csrf_token']}"
    client, octets = begin(managed, "PUT", "vhosts/late2", {}, who)

    if change is None:
        requests.delete(f"{api.base}/api/session", cookies=begun.cookies, timeout=in_time(60),
                        headers={"X-CSRF-Token": begun.json()["csrf_token"]}).raise_for_status()
    else:
        api.put("users/late", change).raise_for_status()

    assert end(client, octets) == 401
    assert api.get("vhosts/late2").status_code == 404
