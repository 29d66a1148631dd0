"""Every key of shovels and upstreams over HTTP and ctl, with what no such key may be: each is refused with
400 and the key's name, nothing of it is kept, and whoever uses the broker meanwhile does not notice.
"""
import threading
import time
from urllib.parse import quote

import orjson
import pytest
import requests

from gomq_py.federation import parameters
from gomq_py.shovel.definition import KEYS
from tests.ctl.running import in_process
from tests.support.held_up import Standstill
from tests.support.waiting import in_time

# As large as a body may be, with what is around it.
MIB = 1024 * 1024 - 1024
# Longest that another client may wait for its answer, on a machine that has other things to do: a body of
# 1 MiB is read, parsed and checked meanwhile.
WAIT_S = 2.0
SHOVEL = {"src-uri": "amqp://", "src-queue": "a", "dest-uri": "amqp://127.0.0.1:1", "dest-queue": "b"}
# Its source is never there, so that nothing is ever posted.
WEBHOOK = {"src-uri": "amqp://127.0.0.1:1", "src-queue": "a", "dest-uri": "https://192.0.2.1"}
UPSTREAM = {"uri": "amqp://127.0.0.1:1"}


def nested(depth):
    value = {}
    for _ in range(depth):
        value = {"a": value}
    return value


POISON = {
    "-1": -1, "2**63": 1 << 63, "-2**63": -(1 << 63), "2**64": 1 << 64, "2**70": 1 << 70, "1.5": 1.5,
    "1e308": 1e308, "true": True, "empty": "", "text": "text", "1 MiB": "x" * MIB, "NUL": "a\0b",
    "octets": "\u20ac" * 100, "list": [], "nest": [[[]]], "object": {}, "deep": nested(20),
    "deeper": nested(31), "10 000": ["amqp://h"] * 10_000, "101": ["amqp://h"] * 101, "5": 5,
}
# What is taken, by what of the table takes it; all else is refused.
SHORT = {"empty", "text", "NUL"}
OBJECTS = {"list", "object", "deep", "deeper"}
TAKEN = {
    **dict.fromkeys(("src-queue", "src-exchange", "dest-queue"), {"text", "NUL"}),
    **dict.fromkeys(("src-exchange-key", "dest-exchange", "dest-exchange-key"), SHORT),
    **dict.fromkeys(("src-queue-args", "src-consumer-args", "dest-queue-args"), OBJECTS),
    "src-prefetch-count": {"5"}, "src-delete-after": {"5"}, "dest-refusal-limit": {"5"},
    "reconnect-delay": {"5", "1.5"}, "dest-timeout": {"5", "1.5"}, "dest-depth": {"5"},
    **dict.fromkeys(("src-predeclared", "dest-predeclared", "dest-add-forward-headers",
                     "dest-add-timestamp-header", "trust-user-id", "bind-nowait"), {"true"}),
    "dest-publish-properties": {"list", "object"}, "dest-secret": {"text", "NUL", "octets"},
    "dest-server-name-indication": {"text", "NUL"},
    "exchange": SHORT, "queue": SHORT, "consumer-tag": SHORT,
    "ha-policy": {"empty", "text", "NUL", "octets", "1 MiB"},
    **dict.fromkeys(("prefetch-count", "max-hops", "expires", "message-ttl", "refusal-limit"), {"5"}),
}


@pytest.fixture(scope="module")
def there(managed):
    """(base of the API, a session of guest's, a vhost); other clients are watched by ``clock``."""
    base = f"http://127.0.0.1:{managed.ports['http']}"
    with requests.Session() as session:
        session.auth = ("guest", "guest")
        session.put(f"{base}/api/vhosts/poison", json={}, timeout=in_time(60))
        yield base, session
        session.delete(f"{base}/api/vhosts/poison", timeout=in_time(60))


@pytest.fixture
def clock(managed):
    """Somebody who asks the broker all the time; at the end nobody has waited long for an answer."""
    waited, is_over = [0.0], threading.Event()

    def ask():
        with requests.Session() as session:
            session.auth = ("guest", "guest")
            while not is_over.wait(0.01) or len(waited) == 1:
                began = time.monotonic()
                session.get(f"http://127.0.0.1:{managed.ports['http']}/api/whoami", timeout=in_time(60))
                waited.append(time.monotonic() - began)

    asking = threading.Thread(target=ask, daemon=True)
    with Standstill() as standstill:
        asking.start()
        yield
        is_over.set()
        asking.join(in_time(60))
    assert len(waited) > 1
    # a machine that stood still made this process wait as well
    assert max(waited) < in_time(WAIT_S) + standstill.longest_s, (max(waited), standstill.longest_s)


def put(there, component, name, value):
    base, session = there
    return session.put(
        f"{base}/api/parameters/{component}/poison/{quote(name, safe='')}",
        data=value if isinstance(value, bytes) else dumps({"value": value}),
        headers={"Content-Type": "application/json"}, timeout=in_time(60))


def dumps(value):
    """As JSON; integers of more than 64 bits too."""
    try:
        return orjson.dumps(value)
    except TypeError:
        import json
        return json.dumps(value).encode()


def kept(there, component):
    base, session = there
    return session.get(f"{base}/api/parameters/{component}/poison", timeout=in_time(60)).json()


def poison(there, component, key, sound):
    """Put the poison of a key, over what is there: labels of what was taken."""
    base, session = there
    assert put(there, component, "s", sound).status_code in (201, 204)
    before, taken = kept(there, component), set()
    for label, value in POISON.items():
        answer = put(there, component, "s", {**sound, key: value})
        if answer.status_code == 204:
            taken.add(label)
            assert put(there, component, "s", sound).status_code == 204
            continue
        assert answer.status_code == 400, (label, answer.text[:500])
        reason = answer.json()["reason"]
        # of files no setting allows any here, which is said of the other name that they have in URIs
        named = key.removeprefix("dest-") if key.endswith("file") else key
        assert named in reason and len(reason) < 2000, (label, reason[:500])
        refused = value
    assert put(there, component, "new", {**sound, key: refused}).status_code == 400
    assert kept(there, component) == before
    session.delete(f"{base}/api/parameters/{component}/poison/s", timeout=in_time(60))
    assert kept(there, component) == []
    return taken


def sound_for(key):
    """A shovel that may have this key."""
    if key in ("src-exchange", "src-exchange-key"):
        return {**{k: v for k, v in SHOVEL.items() if k != "src-queue"}, "src-exchange": "x"}
    if key in ("dest-exchange", "dest-exchange-key"):
        return {k: v for k, v in SHOVEL.items() if k != "dest-queue"}
    webhooks = ("dest-secret", "dest-timeout", "dest-verify", "dest-server-name-indication", "dest-depth")
    return WEBHOOK if key in webhooks or key.endswith("file") else SHOVEL


@pytest.mark.parametrize("key", list(KEYS))
def test_key_of_a_shovel_takes_what_it_may_be_and_nothing_else(there, clock, key):
    assert poison(there, "shovel", key, sound_for(key)) == TAKEN.get(key, set())


@pytest.mark.parametrize("key", ["uri", *parameters._SHARED])
def test_key_of_an_upstream_takes_what_it_may_be_and_nothing_else(there, clock, key):
    assert poison(there, "federation-upstream", key, UPSTREAM) == TAKEN.get(key, set())


@pytest.mark.parametrize("component, sound", [
    ("shovel", SHOVEL), ("federation-upstream", UPSTREAM), ("federation-upstream-set", [{"upstream": "u"}])])
def test_whole_values_keys_and_texts_that_are_none_are_refused(there, clock, component, sound):
    for label, value in POISON.items():
        if component.endswith("-set") and label == "list":
            continue  # a set of nothing
        answer = put(there, component, "s", value)
        assert answer.status_code == 400, (label, answer.text[:500])
        assert len(answer.text) < 3000
    entry = sound[0] if isinstance(sound, list) else sound
    for bad in (
        {**entry, "x" * MIB: 1}, {**entry, **{f"k{number}": 1 for number in range(9000)}}, {**entry, "\0": 1},
    ):
        answer = put(there, component, "s", [bad] if isinstance(sound, list) else bad)
        assert answer.status_code == 400 and len(answer.text) < 3000, answer.text[:500]
    for octets in (
        b'{"value": {"src-queue": "\\ud800"}}', b'{"value": {"uri": "\xff"}}', b"{", b'{"value": 1e999}',
        b'{"value":' + b"[" * 5000 + b"]" * 5000 + b"}",
    ):
        assert put(there, component, "s", octets).status_code == 400
    assert kept(there, component) == []


@pytest.mark.parametrize("name", [".", "..", "a/b", "%2F", "\u20ac", " ", "a\nb", "a\0b", "n" * 255])
def test_names_are_as_good_as_others_in_every_route(there, name):
    base, session = there
    # a client that makes paths shorter asks for another one: . and .. are octets of a name here
    escaped = quote(name, safe="").replace(".", "%2E")
    for component, value, shown in (
        ("shovel", SHOVEL, f"{base}/api/shovels/poison/{escaped}"), ("federation-upstream", UPSTREAM, None),
    ):
        url = f"{base}/api/parameters/{component}/poison/{escaped}"
        answer = raw(session, "PUT", url, {"value": value})
        assert answer.status_code in (201, 400, 404), answer.text
        if answer.status_code != 201:
            assert kept(there, component) == []
            continue
        assert [one["name"] for one in kept(there, component)] == [name]
        if shown is not None:
            assert raw(session, "GET", shown).json()["name"] == name
        assert raw(session, "DELETE", url).status_code == 204
        assert kept(there, component) == []


@pytest.mark.parametrize("octets", [256, 4096, 20_000])
def test_names_that_are_too_long_are_refused(there, octets):
    for component, value in (("shovel", SHOVEL), ("federation-upstream", UPSTREAM)):
        answer = put(there, component, "n" * octets, value)
        assert answer.status_code in (400, 414), answer.text[:300]
        assert kept(there, component) == []


def raw(session, verb, url, value=None):
    """The path as it is: requests makes ``%2E%2E`` shorter."""
    request = requests.Request(verb, "http://h/", json=value, auth=("guest", "guest")).prepare()
    request.url = url
    return session.send(request, timeout=in_time(60))


@pytest.mark.parametrize("command", [
    ("add_shovel", "s", "--src-uri", "amqp://", "--src-queue", "q" * 256, "--dest-uri", "amqp://127.0.0.1:1"),
    ("add_shovel", "s", "--src-uri", "amqp://u:hush@[h", "--src-queue", "q", "--dest-uri", "amqp://"),
    ("add_shovel", "s", "--src-uri", "amqp://", "--src-queue", "q", "--dest-uri", "amqp://127.0.0.1:1",
     "--src-prefetch-count", "-1"),
    ("add_federation", "u", "--uri", "amqp://127.0.0.1:1", "--max-hops", str(1 << 63)),
    ("add_federation", "u", "--uri", "amqp://u:hush@h:port"),
    ("add_federation", "n" * 256, "--uri", "amqp://127.0.0.1:1"),
    ("set_parameter", "federation-upstream", "u", '{"uri": [], "expires": 0}'),
    ("set_parameter", "federation-upstream-set", "u", '[{"upstream": "u", "uri": "amqp://u:hush@h"}]'),
    ("set_parameter", "shovel", "s", "[" * 5000), ("set_parameter", "nothing", "s", "{}"),
])
def test_commands_say_in_a_line_what_is_wrong_and_set_nothing(there, command):
    base, _ = there
    finished = in_process(base, "-p", "poison", *command)

    assert finished.exit_code in (1, 2) and "Traceback" not in finished.output, finished.output
    assert "hush" not in finished.output and len(finished.output) < 3000
    assert not any(kept(there, component) for component in ("shovel", "federation-upstream"))
