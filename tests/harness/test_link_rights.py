"""Every key of shovels, upstreams, sets and policies that makes the broker act, set by a user without the
right to do that by hand: it is refused when it is set, or has no effect and says why.
"""
from urllib.parse import quote

import pytest
import requests

from gomq_py import Broker
from tests.support.waiting import in_time, wait_until

USER, MINE = "limited", "^mine"
SHOVEL = {"src-uri": "amqp://", "src-queue": "mine", "dest-uri": "amqp://", "dest-exchange": "mine.x"}
HERE = "amqp://guest:guest@127.0.0.1:{port}"
# what it is, changes of SHOVEL, part of the refusal
SHOVELS = (
    ("source queue", {"src-queue": "secret"}, "access to queue 'secret'"),
    ("source exchange", {"src-queue": None, "src-exchange": "secret.x"}, "access to exchange 'secret.x'"),
    ("exchange", {"dest-exchange": "secret.x"}, "access to exchange 'secret.x'"),
    ("queue", {"dest-exchange": None, "dest-queue": "secret"}, "access to exchange 'amq.default'"),
    ("exchanges of the messages", {"dest-exchange": ""}, "access to exchange 'amq.default'"),
    ("vhost of the source", {"src-uri": "amqp:///other"}, "access to vhost 'other'"),
    ("vhost of the destination", {"dest-uri": "amqp:///other"}, "access to vhost 'other'"),
    ("one URI of several", {"src-uri": ["amqp://", "amqp:///other"]}, "access to vhost 'other'"),
    ("login from this machine", {"src-uri": HERE}, "http_hosts_denied"),
    ("the same at the destination", {"dest-uri": HERE}, "http_hosts_denied"),
    ("web server here", {"dest-exchange": None, "dest-uri": "http://127.0.0.1/"}, "http_hosts_denied"),
    ("file of this machine", {"dest-uri": "amqps://h.invalid?cacertfile=/etc/passwd"}, "cacertfile"),
)
# what it is, kind, upstream of an administrator, set of the limited user or None, part of the refusal,
# whether the set is refused at once
QUEUE, EXCHANGE = "access to queue 'secret'", "access to exchange 'secret.x'"
FEDERATED = (
    ("queue of a set, here", "queue", {"uri": "amqp://"}, {"queue": "secret"}, QUEUE, True),
    ("queue of a set, elsewhere", "queue", {"uri": HERE}, {"queue": "secret"}, QUEUE, True),
    ("exchange of a set, here", "exchange", {"uri": "amqp://"}, {"exchange": "secret.x"}, EXCHANGE, True),
    ("exchange of a set, elsewhere", "exchange", {"uri": HERE}, {"exchange": "secret.x"}, EXCHANGE, True),
    ("queue of an upstream, here", "queue", {"uri": "amqp://", "queue": "secret"}, None, QUEUE, False),
    ("queue of an upstream, elsewhere", "queue", {"uri": HERE, "queue": "secret"}, None, QUEUE, False),
    ("the same through a set", "queue", {"uri": HERE, "queue": "secret"}, {}, QUEUE, False),
    ("exchange of an upstream", "exchange", {"uri": HERE, "exchange": "secret.x"}, None, EXCHANGE, False),
    ("vhost of an upstream", "queue", {"uri": "amqp:///other"}, None, "access to vhost 'other'", False),
)


class API:
    """``ask`` as guest, ``theirs`` as the limited user."""

    def __init__(self, broker):
        self._base, self.port = broker.http_url, broker.amqp_url.rpartition(":")[2].split("/")[0]

    def ask(self, verb, *path, auth=("guest", "guest"), **body):
        url = "/".join([self._base, "api", *(quote(part, safe="") for part in path)])
        return requests.request(verb, url, json=body or None, auth=auth, timeout=in_time(30))

    def theirs(self, verb, *path, **body):
        return self.ask(verb, *path, auth=(USER, USER), **body)

    def filled(self, value):
        """With the broker's port."""
        return {
            key: item.format(port=self.port) if isinstance(item, str) else item
            for key, item in value.items() if item is not None}

    def allow(self, read):
        assert self.ask(
            "PUT", "permissions", "/", USER, configure=MINE, write=MINE, read=read).ok


@pytest.fixture(scope="module")
def api():
    with Broker(http_port=0, sync=False) as broker:
        api = API(broker)
        api.ask("PUT", "users", USER, password=USER, tags="policymaker")
        api.ask("PUT", "vhosts", "other")
        api.allow(MINE)
        for queue in ("secret", "mine"):
            api.ask("PUT", "queues", "/", queue, durable=True)
        for exchange in ("secret.x", "mine.x"):
            api.ask("PUT", "exchanges", "/", exchange, type="fanout")
        yield api


@pytest.mark.parametrize("changes, text", [row[1:] for row in SHOVELS], ids=[row[0] for row in SHOVELS])
def test_shovel_does_not_do_what_its_setter_may_not(api, changes, text):
    value = api.filled({**SHOVEL, **changes})

    refused = api.theirs("PUT", "parameters", "shovel", "/", "s", value=value)

    assert refused.status_code == 400 and text in refused.json()["reason"]
    assert api.ask("GET", "shovels", "/").json() == []


def test_shovel_does_what_its_setter_may(api):
    assert api.theirs("PUT", "parameters", "shovel", "/", "s", value=SHOVEL).status_code == 201

    wait_until(lambda: api.ask("GET", "shovels", "/", "s").json()["state"] == "running")
    api.theirs("DELETE", "parameters", "shovel", "/", "s")


@pytest.mark.parametrize("value", [
    {"uri": HERE}, {"uri": "amqp://ann:x@[::1]"}, {"uri": "amqps://h.invalid?cacertfile=/etc/passwd"},
], ids=["login from this machine", "over IPv6", "file of this machine"])
def test_upstream_does_not_lead_where_its_setter_may_not(api, value):
    refused = api.theirs("PUT", "parameters", "federation-upstream", "/", "own", value=api.filled(value))

    assert refused.status_code == 400


@pytest.mark.parametrize(
    "kind, upstream, entry, text, is_refused_at_once", [row[1:] for row in FEDERATED],
    ids=[row[0] for row in FEDERATED])
def test_upstream_of_an_administrator_is_aimed_at_nothing_that_others_may_not_read(
    api, kind, upstream, entry, text, is_refused_at_once,
):
    """Where it has no effect yet the right counts again when it is given and when it is taken."""
    assert api.ask(
        "PUT", "parameters", "federation-upstream", "/", "up", value=api.filled(upstream)).ok
    names = {"federation-upstream": "up"}
    if entry is not None:
        names = {"federation-upstream-set": "set"}
        value = [{"upstream": "up", **entry}]
        said = api.theirs("PUT", "parameters", "federation-upstream-set", "/", "set", value=value)
        assert said.status_code == (400 if is_refused_at_once else 201)
        if is_refused_at_once:
            assert text in said.json()["reason"]
            api.allow(".*")  # set while it may be, and withdrawn
            assert api.theirs("PUT", "parameters", "federation-upstream-set", "/", "set", value=value).ok
            api.allow(MINE)
    pattern = "^mine$" if kind == "queue" else "^mine[.]x$"

    assert api.theirs("PUT", "policies", "/", "p", pattern=pattern, definition=names).ok

    try:
        wait_until(
            lambda: [text in one.get("error", "") for one in links(api)] == [True], what=lambda: links(api))
        assert links(api)[0]["status"] == "error"
        if "other" not in text:
            api.allow(".*")
            wait_until(lambda: "access to" not in links(api)[0].get("error", ""), what=lambda: links(api))
    finally:
        api.allow(MINE)
        api.ask("DELETE", "policies", "/", "p")
        api.ask("DELETE", "parameters", "federation-upstream-set", "/", "set")
        api.ask("DELETE", "parameters", "federation-upstream", "/", "up")
        wait_until(lambda: not links(api))


def test_links_of_who_is_no_administrator_any_more_leave_this_machines_addresses(api):
    """What is connected stays no longer than what may connect."""
    api.ask("PUT", "users", "boss", password="boss", tags="administrator")
    api.ask("PUT", "permissions", "/", "boss", configure=".*", write=".*", read=".*")
    boss, here = ("boss", "boss"), api.filled({"uri": HERE})["uri"]
    value = {**SHOVEL, "src-uri": here, "dest-uri": here}
    assert api.ask("PUT", "parameters", "shovel", "/", "s", auth=boss, value=value).ok
    upstream = {"uri": here, "queue": "secret", "reconnect-delay": 0.2}
    assert api.ask("PUT", "parameters", "federation-upstream", "/", "up", auth=boss, value=upstream).ok
    assert api.ask(
        "PUT", "policies", "/", "p", pattern="^mine$", definition={"federation-upstream": "up"}).ok

    def states():
        return [one["state"] for one in api.ask("GET", "shovels", "/").json()] + [
            one["status"] for one in links(api)]

    def errors():
        return [one.get("error", "") for one in api.ask("GET", "shovels", "/").json() + links(api)]

    try:
        wait_until(lambda: states() == ["running", "running"], what=lambda: (states(), errors()))
        api.ask("PUT", "users", "boss", password="boss", tags="policymaker")
        wait_until(lambda: len([one for one in errors() if "http_hosts_denied" in one]) == 2, what=errors)
    finally:
        api.ask("DELETE", "policies", "/", "p")
        api.ask("DELETE", "parameters", "shovel", "/", "s")
        api.ask("DELETE", "parameters", "federation-upstream", "/", "up")
        wait_until(lambda: not links(api))


def links(api):
    return api.ask("GET", "federation-links").json()


def test_hidden_password_is_of_use_to_nobody_but_who_set_it_and_administrators(api):
    value = api.filled({**SHOVEL, "src-uri": "amqp://ann:hush@h.invalid:1"})
    place = "parameters", "shovel", "/", "hidden"
    assert api.ask("PUT", *place, value=value).status_code == 201
    shown = api.theirs("GET", *place).json()["value"]
    assert shown["src-uri"] == "amqp://ann:***@h.invalid:1"

    for changes in ({}, {"src-queue": "secret"}, {"dest-exchange": "mine.x"}):
        refused = api.theirs("PUT", *place, value={**shown, **changes})
        assert refused.status_code == 400 and "only administrators and the user who set it" in refused.text

    assert api.ask("PUT", *place, value={**shown, "src-prefetch-count": 5}).status_code == 204
    value["src-uri"] = "amqp://ann:mine@h.invalid:1"
    assert api.theirs("PUT", *place, value=value).status_code == 204
    assert api.theirs("PUT", *place, value={**shown, "src-prefetch-count": 6}).status_code == 204
    api.ask("DELETE", *place)
