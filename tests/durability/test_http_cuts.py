"""What the management API answered outlives a power cut:
each kind of change, cut with nothing on the disk but what was flushed.

The app runs in this process over a modelled disk. After each answer the least that a disk may keep is booted,
and looked at through the API again.
"""

import base64
import re
import shutil
from random import Random

import gevent
import gevent.event
import pytest

from gomq_py.broker.broker import Broker
from gomq_py.config.settings import Settings
from gomq_py.http.app import create_app
from gomq_py.http.feed import Feed
from gomq_py.http.index import Index
from gomq_py.http.door import Node
from gomq_py.http.rates import Rates
from gomq_py.hub.context import Hub
from gomq_py.hub.timers import HubTimers
from gomq_py.mqtt.model.kinds import all_kinds
from gomq_py.mqtt.model.session import Subscription
from gomq_py.mqtt.model.session_kind import EXTRA
from gomq_py.mqtt.model.sessions import NEVER
from gomq_py.mqtt.wire.crossing import KIND, record_flags
from gomq_py.storage.disk.data_dir import DataDir
from gomq_py.storage.flush import group_commit
from gomq_py.storage.flush.durability import Durability
from gomq_py.storage.flush.group_commit import GroupCommit
from gomq_py.storage.message import Message
from tests.durability import flush_pool
from tests.management.description import described
from tests.support.power_cut import Disk, PowerCutFiles
from tests.support.unflushed import Unflushed
from tests.support.waiting import wait_until

LOGIN = {"Authorization": "Basic " + base64.b64encode(b"guest:guest").decode()}
LIMIT = {"pattern": "^q$", "definition": {"max-length": 5}, "apply-to": "queues"}
RIGHTS = {"configure": "a", "write": "b", "read": "c"}
MESSAGE = {
    "properties": {"delivery_mode": 2},
    "routing_key": "q",
    "payload": "x",
    "payload_encoding": "string",
}
QUEUE, EXCHANGE = {"durable": True}, {"type": "topic", "durable": True}
DELAYED = {"type": "x-delayed-message", "durable": True, "arguments": {"x-delayed-type": "topic"}}
REPEATED = {**MESSAGE, "properties": {"headers": {"x-schedule": {"name": "n", "every": 3_600_000}}}}
STREAM = {"durable": True, "arguments": {"x-queue-type": "stream"}}
GONE = None


class Life:
    """A broker over a folder with its management app, without sockets."""

    def __init__(self, folder, files):
        settings = Settings(segment_size=65536, data_dir=str(folder))
        self._data_dir = DataDir(str(folder), files).open()
        self.committer = GroupCommit(files)
        self.hub = Hub(settings)
        self.broker = Broker(
            self._data_dir, files, Durability(self.committer), settings, self.hub, all_kinds())
        self.broker.recover()
        self._rates = Rates(1000, 1)
        self._feed, self._index = Feed(self.broker.events), Index(HubTimers())
        node = Node(
            self.broker, self.hub.clients, settings, list, "gomq@here", self._rates, self._index, self._feed
        )
        self._client = create_app(node).test_client()

    def ask(self, method, path, body=None):
        """The response."""
        return self._client.open(f"/api/{path}", method=method, json=body, headers=LOGIN)

    def have_mqtt(self):
        """A session that is kept, its subscription, and a retained message."""
        mqtt = self.broker.create_vhost("m", creator="guest").extras[EXTRA]
        session = mqtt.connect(Away(), "c", "guest", False, NEVER, 5).session
        session.subscribe(Subscription("t", 1))
        mqtt.disconnect(session, session.connection)
        message = Message()
        message.assign(b"amq.topic", b"r", b"", b"x", 1, persistent=True)
        message.set_kind(KIND, record_flags(1, True))
        assert mqtt.retained.store("r", message) == 1
        self.committer.wait()

    def look(self, path, *keys):
        """What a GET shows, or the value below these keys; GONE for 404."""
        response = self.ask("GET", path)
        if response.status_code == 404:
            return GONE
        assert response.status_code == 200, response.text
        found = response.get_json()
        for key in keys:
            found = found[key] if isinstance(found, list) else found.get(key)
        return found

    def stop(self):
        self._feed.close()
        self._index.close()
        self._rates.close()
        self.broker.close()
        self.committer.stop()
        self.hub.close()
        self._data_dir.close()


class Away:
    """Stands for the connection of a client."""

    wants_will = False


# (method, path, body, where to look, keys, what is there):
# one after the other, for each change builds on those before.
CHANGES = (
    ("DELETE", "mqtt/sessions/m/c/subscriptions/t", None, "mqtt/sessions/m/c/subscriptions", [], []),
    ("DELETE", "mqtt/sessions/m/c", None, "mqtt/sessions/m/c", [], GONE),
    ("DELETE", "mqtt/retained/m/r", None, "mqtt/retained/m/r", [], GONE),
    ("PUT", "vhosts/v", {"description": "new"}, "vhosts/v", ["description"], "new"),
    ("PUT", "vhosts/v", {"description": "newer"}, "vhosts/v", ["description"], "newer"),
    ("PUT", "users/u", {"password": "p", "tags": "monitoring"}, "users/u", ["tags"], ["monitoring"]),
    ("PUT", "users/u", {"password": "p", "tags": "management"}, "users/u", ["tags"], ["management"]),
    ("PUT", "permissions/v/u", RIGHTS, "permissions/v/u", ["read"], "c"),
    (
        "PUT",
        "topic-permissions/v/u",
        {"exchange": "amq.topic", "write": "a", "read": "b"},
        "topic-permissions/v/u",
        [0, "read"],
        "b",
    ),
    ("PUT", "user-limits/u/max-channels", {"value": 7}, "user-limits/u", [0, "value", "max-channels"], 7),
    ("DELETE", "user-limits/u/max-channels", None, "user-limits/u", [], []),
    ("PUT", "vhost-limits/v/max-queues", {"value": 9}, "vhost-limits/v", [0, "value", "max-queues"], 9),
    ("DELETE", "vhost-limits/v/max-queues", None, "vhost-limits/v", [], []),
    (
        "PUT",
        "parameters/vhost-limits/v/limits",
        {"value": {"max-queues": 9}},
        "vhost-limits/v",
        [0, "value", "max-queues"],
        9,
    ),
    ("DELETE", "parameters/vhost-limits/v/limits", None, "vhost-limits/v", [], []),
    ("POST", "vhosts/v/deletion/protection", None, "vhosts/v", ["protected_from_deletion"], True),
    ("DELETE", "vhosts/v/deletion/protection", None, "vhosts/v", ["protected_from_deletion"], False),
    ("PUT", "policies/v/p", LIMIT, "policies/v/p", ["pattern"], "^q$"),
    ("PUT", "operator-policies/v/p", LIMIT, "operator-policies/v/p", ["pattern"], "^q$"),
    ("PUT", "global-parameters/g", {"value": 1}, "global-parameters/g", ["value"], 1),
    ("PUT", "cluster-name", {"name": "here"}, "cluster-name", ["name"], "here"),
    ("PUT", "queues/v/q", QUEUE, "queues/v/q", ["durable"], True),
    ("PUT", "queues/v/other", QUEUE, "queues/v/other", ["durable"], True),
    ("PUT", "queues/v/s", STREAM, "queues/v/s", ["type"], "stream"),
    ("PUT", "queues/v/q/pause", None, "queues/v/q", ["state"], "paused"),
    ("PUT", "queues/v/q/resume", None, "queues/v/q", ["state"], "running"),
    ("PUT", "exchanges/v/x", EXCHANGE, "exchanges/v/x", ["type"], "topic"),
    ("PUT", "exchanges/v/y", EXCHANGE, "exchanges/v/y", ["type"], "topic"),
    ("PUT", "exchanges/v/d", DELAYED, "exchanges/v/d", ["type"], "x-delayed-message"),
    ("POST", "exchanges/v/d/publish", REPEATED, "schedules/v/d/n", ["name"], "n"),
    ("DELETE", "schedules/v/d/n", None, "schedules/v/d/n", [], GONE),
    ("POST", "bindings/v/e/x/q/q", {"routing_key": "k"}, "bindings/v/e/x/q/q/k", ["routing_key"], "k"),
    ("POST", "bindings/v/e/x/e/y", {"routing_key": "k"}, "bindings/v/e/x/e/y/k", ["routing_key"], "k"),
    ("POST", "exchanges/v/amq.default/publish", MESSAGE, "queues/v/q", ["messages"], 1),
    ("POST", "queues/v/q/copy", {"destination": "other"}, "queues/v/other", ["messages"], 1),
    ("DELETE", "queues/v/other/contents", None, "queues/v/other", ["messages"], 0),
    ("POST", "queues/v/q/move", {"destination": "other"}, "queues/v/other", ["messages"], 1),
    ("DELETE", "queues/v/other/contents?count=1", None, "queues/v/other", ["messages"], 0),
    (
        "POST",
        "definitions",
        {"vhosts": [{"name": "w"}], "users": [], "queues": [{"vhost": "w", "name": "q", "durable": True}]},
        "queues/w/q",
        ["durable"],
        True,
    ),
    (
        "POST",
        "definitions/w",
        {"exchanges": [{"name": "x", "type": "fanout", "durable": True}]},
        "exchanges/w/x",
        ["type"],
        "fanout",
    ),
    ("DELETE", "bindings/v/e/x/q/q/k", None, "bindings/v/e/x/q/q/k", [], GONE),
    ("DELETE", "bindings/v/e/x/e/y/k", None, "bindings/v/e/x/e/y/k", [], GONE),
    ("DELETE", "exchanges/v/x", None, "exchanges/v/x", [], GONE),
    ("DELETE", "queues/v/q", None, "queues/v/q", [], GONE),
    (
        "POST",
        "exchanges/v/amq.default/publish",
        {**MESSAGE, "routing_key": "s"},
        "queues/v/s",
        ["messages"],
        1,
    ),
    ("DELETE", "queues/v/s/contents", None, "queues/v/s", ["messages"], 0),
    ("DELETE", "queues/v/s", None, "queues/v/s", [], GONE),
    ("DELETE", "global-parameters/g", None, "global-parameters/g", [], GONE),
    ("DELETE", "policies/v/p", None, "policies/v/p", [], GONE),
    ("DELETE", "operator-policies/v/p", None, "operator-policies/v/p", [], GONE),
    ("DELETE", "topic-permissions/v/u", None, "topic-permissions/v/u", [], GONE),
    ("DELETE", "permissions/v/u", None, "permissions/v/u", [], GONE),
    ("DELETE", "vhosts/w", None, "vhosts/w", [], GONE),
    ("DELETE", "users/u", None, "users/u", [], GONE),
    ("PUT", "users/u2", {"password": "p", "tags": ""}, "users/u2", ["name"], "u2"),
    ("POST", "users/bulk-delete", {"users": ["u2"]}, "users/u2", [], GONE),
)


# Routes that change something and are not above, each with the reason.
OTHERS = {
    "about what is gone after a restart anyway": (
        "connections/{name}",
        "connections/username/{user}",
        "mqtt/sessions/{vhost}/{client_id}/connection",
        "channels/{name}",
        "consumers/{vhost}/{connection}/{number}/{tag}",
        "auth/attempts",
        "auth/attempts/{name}",
        "auth/attempts/{name}/source",
        "settings/{name}",
        "listeners",
    ),
    "change nothing here": (
        "queues/{vhost}/{name}/actions",
        "rebalance/queues",
        "nodes/gc_collect",
        "nodes/{name}/gc_collect",
        "backup",
        "cluster/accept-damage",
        "cluster/adopt",
        "cluster/transfer-leadership",
        "cluster/nodes/{name}",
        "vhosts/{name}/start/{where}",
        "auth/hash_password",
        "users/{name}/authenticate",
        "feature-flags/{name}/enable",
        "reset",
        "reset/{name}",
        "queues/{vhost}/{name}/restart",
        "queues/{vhost}/{name}/search",
        "policies/{vhost}/{name}/preview",
        "operator-policies/{vhost}/{name}/preview",
        "definitions/difference",
        "definitions/{vhost}/difference",
        "exchanges/{vhost}/{name}/route",
    ),
    "do the same as one above": (
        "definitions/upload",
        "definitions/{vhost}/upload",
        "queues/{vhost}/{name}/replay",
        "topic-permissions/{vhost}/{user}/{exchange}",
    ),
    "acks, which nobody is promised": (
        "queues/{vhost}/{name}/get",
        "unacked/{vhost}/{name}/return",
    ),
    "in memory alone, on purpose": ("session",),
    "parameters and notes of shovels, which are in the log of definitions as those above": (
        "shovels/{vhost}/{name}",
        "shovels/vhost/{vhost}/{name}",
        "shovels/{vhost}/{name}/pause",
        "shovels/{vhost}/{name}/resume",
    ),
    "connect anew, and keep nothing": (
        "shovels/{vhost}/{name}/restart",
        "shovels/vhost/{vhost}/{name}/restart",
        "federation-links/vhost/{vhost}/{link_id}/restart",
        "federation-links/vhost/{vhost}/{link_id}/{node_name}/restart",
    ),
    "the store's own test has it": ("streams/{vhost}/{name}/offsets/{tag}",),
}


def test_every_route_that_changes_something_is_here():
    routes = {
        (method.upper(), path.removeprefix("/api/"))
        for path, methods in described()["paths"].items()
        for method in methods
        if method not in ("get", "head", "options")
    }
    left_out = {path for paths in OTHERS.values() for path in paths}
    patterns = {
        (method, path): re.compile(re.sub(r"{\w+}", "[^/]+", path).replace(".", r"\."))
        for method, path in routes
        if path not in left_out
    }
    asked = {(change[0], change[1].partition("?")[0]) for change in CHANGES}

    missing = [
        (method, path)
        for (method, path), pattern in patterns.items()
        if not any(verb == method and pattern.fullmatch(where) for verb, where in asked)
    ]

    assert missing == [] and left_out <= {path for _, path in routes}


@pytest.fixture(autouse=True)
def in_process(monkeypatch):
    flush_pool.use(monkeypatch)


@pytest.fixture
def disk(tmp_path):
    """A disk that writes nothing back by itself."""
    (tmp_path / "data").mkdir()
    disk = Disk(tmp_path / "data", Random(1), write_back=0)
    yield disk
    disk.discard()


def test_every_change_that_was_answered_is_there_after_a_power_cut(disk, tmp_path):
    life = Life(disk.root, PowerCutFiles(disk))
    life.committer.wait()
    life.have_mqtt()
    for number, (method, path, body, where, keys, expected) in enumerate(CHANGES):
        answer = life.ask(method, path, body)
        assert answer.status_code in (200, 201, 204), (method, path, answer.text)
        cut = disk.lay_out_flushed(tmp_path / f"cut{number}")
        after = Life(cut, Unflushed())
        try:
            assert after.look(where, *keys) == expected, (method, path)
        finally:
            after.stop()
        shutil.rmtree(cut)
    life.stop()


def test_what_is_only_read_or_refused_waits_for_no_flush(disk, monkeypatch):
    monkeypatch.setattr(group_commit, "UNHURRIED_S", 3600)  # however long it takes
    life = Life(disk.root, PowerCutFiles(disk))
    life.committer.wait()
    syncs = life.committer.syncs
    life.broker.create_vhost("v", creator="guest")  # something is to be flushed
    requests = (
        ("GET", "queues"),
        ("PUT", "queues/v/amq.q", {}),
        ("DELETE", "queues/v/q"),
        ("POST", "exchanges/v/x/publish", MESSAGE),
    )

    statuses = [life.ask(*request).status_code for request in requests]

    assert statuses == [200, 401, 404, 400] and life.committer.syncs == syncs
    life.stop()


def test_changes_that_come_together_share_their_flushes(disk):
    """Twenty at once: those that begin while one flush runs are in the next one."""
    life = Life(disk.root, PowerCutFiles(disk))
    life.committer.wait()
    syncs = life.committer.syncs

    asked = [
        gevent.spawn(life.ask, "PUT", f"users/u{number}", {"password": "p", "tags": ""})
        for number in range(20)
    ]
    gevent.joinall(asked, raise_error=True)

    assert [one.value.status_code for one in asked] == [201] * 20
    assert life.committer.syncs - syncs <= 2
    life.stop()


def test_a_change_whose_flush_fails_is_answered_with_500_and_why(disk, caplog):
    def fail(path):
        raise OSError(5, "Input/output error")

    files = PowerCutFiles(disk)
    life = Life(disk.root, files)
    life.committer.wait()
    files.flush_pause = fail

    answer = life.ask("PUT", "users/u", {"password": "p", "tags": ""})

    assert answer.status_code == 500
    assert answer.get_json()["reason"].startswith("done, but it could not be flushed to the disk")
    assert "PUT /api/users/u was done, but not flushed" in caplog.text
    files.flush_pause = None
    life.stop()


def test_others_are_served_while_an_answer_waits_for_its_flush(disk):
    going, files = gevent.event.Event(), PowerCutFiles(disk)
    life = Life(disk.root, files)
    life.committer.wait()
    files.flush_pause = lambda path: going.wait()
    asked = gevent.spawn(life.ask, "PUT", "users/u", {"password": "p", "tags": ""})
    wait_until(lambda: "u" in life.broker.users, sleep=gevent.sleep)

    assert life.ask("GET", "users/u").status_code == 200 and not asked.ready()
    going.set()
    assert asked.get().status_code == 201
    life.stop()
