"""Broker: what a restart brings back, and what the first boot makes."""
import errno
import gc
import logging
import os
import threading
import weakref
from pathlib import Path

import bcrypt
import gevent
import pytest

from gomq_py.auth.users import SHAPES
from gomq_py.broker import broker as broker_module
from gomq_py.broker.topology import queue_factory
from gomq_py.broker.topology import steps as steps_module
from gomq_py.broker.topology.definitions import Importer
from gomq_py.broker.topology_log import records
from gomq_py.config.settings import Settings
from gomq_py.global_names import IMPORTED
from gomq_py.hub.scheduler import SliceClock
from gomq_py.observability.quiet_log import QuietLog
from gomq_py.storage.disk import removal
from gomq_py.storage.disk.files import Files
from gomq_py.storage.disk.removal import FolderRemovals
from gomq_py.storage.errors import StoreError
from gomq_py.storage.logs.framed_log import LogError, LogScan
from gomq_py.storage.logs.log_records import read_record
from gomq_py.storage.message import Message
from gomq_py.storage.stores.recovery import open_store
from tests.support.clocks import StepClock
from tests.support.no_switch import no_switch
from tests.support.node import Node
from tests.support.passwords import has_password
from tests.support.waiting import wait_until


@pytest.fixture
def start(tmp_path):
    nodes = []

    def start_node(**settings):
        nodes.append(Node(tmp_path / "data", **settings))
        return nodes[-1]

    yield start_node
    for node in nodes:
        if node.data_dir.locked:
            node.stop()


@pytest.fixture(params=["stop", "kill"])
def restart(request, start):
    """End the node in order or not, and start another over the same folder."""
    def restart_node(node, **settings):
        getattr(node, request.param)()
        return start(**settings)
    return restart_node


def routed(vhost, exchange, routing_key):
    return [queue.name for queue in vhost.route(vhost.exchange(exchange), routing_key)]


def test_first_boot_makes_the_vhost_and_the_default_user(start):
    broker = start().broker

    assert list(broker.vhosts) == ["/"]
    assert has_password(broker.users, "guest", "guest")
    assert broker.users.get("guest").has_tag("administrator")
    assert broker.users.get("guest").permission("/").allows("configure", "anything")
    assert not broker.users.may_come_from("guest", "192.0.2.1")


def test_default_user_is_as_the_settings_say(start):
    broker = start(default_user="admin", default_user_only_loopback=False).broker

    assert broker.users.get("guest") is None
    assert broker.users.may_come_from("admin", "192.0.2.1")


def test_first_users_are_all_there_after_a_kill_in_the_first_boot(start, monkeypatch):
    """Those of a configuration that names some; no later boot makes them."""
    def settings_with_users(**settings):
        made = Settings(**settings)
        made.first_users = dict.fromkeys(("ann", "bob"), bcrypt.hashpw(b"secret", bcrypt.gensalt(4)).decode())
        return made

    monkeypatch.setattr("tests.support.node.Settings", settings_with_users)

    start().kill(are_answered=False)
    broker = start().broker

    assert sorted(user.name for user in broker.users) == ["ann", "bob"]
    assert broker.users.matching_hash("ann", "secret") and broker.users.get("bob").has_tag("administrator")
    assert broker.users.get("bob").permission("/").allows("write", "anything")


def test_deleted_default_user_does_not_come_back(start, restart):
    node = start()
    node.broker.users.set_user("admin", password="secret")
    node.broker.users.delete_user("guest")

    node = restart(node)

    assert [user.name for user in node.broker.users] == ["admin"]


def test_default_user_does_not_come_back_when_its_file_is_damaged(start, tmp_path):
    node = start()
    node.broker.users.set_user("guest", password="changed")
    node.stop()
    path, = tmp_path.rglob("users")
    path.write_bytes(bytes(path.stat().st_size))

    with pytest.raises(LogError, match="users: the file is damaged"):
        start()


def test_durable_topology_survives(start, restart):
    node = start()
    vhost = node.broker.vhosts["/"]
    with no_switch():
        vhost.declare_exchange(
            "x", "topic", durable=True, auto_delete=True, internal=True,
            arguments={"alternate-exchange": "amq.fanout"},
        )
        vhost.declare_queue(
            "q", durable=True, auto_delete=True, arguments={"x-max-length": 5, "x-list": ["a", {"b": None}]}
        )
        vhost.bindings.bind_queue("q", "x", "a.#", {"k": b"\xff"})
        vhost.bindings.bind_exchange("x", "amq.headers", "", {"x-match": "any", "n": 1})

    vhost = restart(node).broker.vhosts["/"]

    exchange, queue = vhost.exchange("x"), vhost.queue("q")
    assert (exchange.type, exchange.durable, exchange.auto_delete, exchange.internal) == (
        "topic", True, True, True
    )
    assert exchange.arguments == {"alternate-exchange": "amq.fanout"} and exchange.alternate == "amq.fanout"
    assert (queue.durable, queue.auto_delete, queue.arguments) == (
        True, True, {"x-max-length": 5, "x-list": ["a", {"b": None}]}
    )
    assert [binding.arguments for binding in vhost.bindings.to(queue)] == [{"k": b"\xff"}]
    assert routed(vhost, "x", "a.b") == ["q"]
    assert routed(vhost, "amq.headers", "a.b") == []
    assert [binding.arguments for binding in vhost.bindings.to(exchange)] == [{"x-match": "any", "n": 1}]


def with_half_a_deletion(node):
    """A crash came when the word that a vhost is gone was on disk,
    and not yet what became of the rights in it.
    """
    broker = node.broker
    broker.create_vhost("gone", creator="guest")
    broker.create_vhost("there", creator="guest")
    broker.users.set_topic_permission("guest", "gone", "amq.topic", "a", "b")
    broker._log.append(records.vhost_deleted("gone"))
    node.kill()
    return Path(broker.users._log.path)


def rights(broker):
    guest = broker.users.get("guest")
    return sorted(guest.permissions), sorted(guest.topic_permissions)


def test_rights_in_a_vhost_whose_deletion_a_crash_cut_short_are_dropped_and_kept_beside(start, caplog):
    path = with_half_a_deletion(start())

    first = start()
    found = rights(first.broker)
    first.kill()

    assert found == rights(start().broker) == (["/", "there"], [])
    assert (
        caplog.text.count("rights of 'guest' in vhost 'gone' are left out, for there is no such vhost") == 1
    )
    kept = path.with_name("users.left-out")
    assert [read_record(payload, SHAPES)["op"] for payload in LogScan(kept, kept.read_bytes())] == [
        "permission", "topic-permission"
    ]


@pytest.mark.parametrize("harm", ["a record", "its end"])
def test_no_rights_are_dropped_where_it_may_be_the_vhost_that_is_lost(start, harm):
    path = with_half_a_deletion(start()).with_name("definitions")
    octets = bytearray(path.read_bytes())
    if harm == "a record":
        octets[octets.index(b"there") + 1] ^= 1
    path.write_bytes(octets[:-3] if harm == "its end" else octets)

    for _ in range(2):
        node = start()
        assert rights(node.broker) == (["/", "gone", "there"], [("gone", "amq.topic")])
        node.stop()


def test_transient_topology_does_not_survive(start, restart):
    node = start()
    vhost = node.broker.vhosts["/"]
    vhost.declare_queue("q")
    vhost.declare_queue("mine", durable=True, exclusive=True, owner=object())
    vhost.declare_exchange("x", "fanout")
    vhost.bindings.bind_queue("q", "amq.topic", "k")

    vhost = restart(node).broker.vhosts["/"]

    assert not vhost.queues
    assert "x" not in vhost.exchanges
    assert vhost.exchange("amq.topic").binding_count == 0


def test_deletions_survive(start, restart):
    node = start()
    vhost = node.broker.vhosts["/"]
    for name in ("q", "r"):
        vhost.declare_queue(name, durable=True)
        vhost.bindings.bind_queue(name, "amq.topic", "k")
    vhost.declare_exchange("x", "fanout", durable=True)
    vhost.bindings.bind_queue("r", "x", "")
    vhost.delete_queue("q")
    vhost.bindings.unbind_queue("r", "amq.topic", "k")
    vhost.delete_exchange("x")

    vhost = restart(node).broker.vhosts["/"]

    assert list(vhost.queues) == ["r"]
    assert vhost.bindings.to(vhost.queues["r"]) == []
    assert "x" not in vhost.exchanges


def test_names_that_are_not_utf8_survive(start, restart):
    node = start()
    name = b"\xff/\x00..".decode("utf-8", "surrogateescape")
    node.broker.vhosts["/"].declare_queue(name, durable=True)
    node.broker.vhosts["/"].bindings.bind_queue(name, "amq.direct", name)

    vhost = restart(node).broker.vhosts["/"]

    assert list(vhost.queues) == [name]
    assert routed(vhost, "amq.direct", name) == [name]


def test_vhosts_and_permissions_survive(start, restart):
    node = start()
    node.broker.create_vhost("shop", "of things", ["a", "b"], creator="guest")
    node.broker.vhosts["shop"].declare_queue("q", durable=True)
    node.broker.users.set_user("ann", password="secret", tags=("monitoring",))
    node.broker.users.set_permission("ann", "shop", "^a", "^b", "")
    node.broker.create_vhost("gone")
    node.broker.users.set_permission("ann", "gone", ".*", ".*", ".*")
    node.broker.delete_vhost("gone")

    broker = restart(node).broker

    assert sorted(broker.vhosts) == ["/", "shop"]
    assert (broker.vhosts["shop"].description, broker.vhosts["shop"].tags) == ("of things", ["a", "b"])
    assert list(broker.vhosts["shop"].queues) == ["q"]
    assert has_password(broker.users, "ann", "secret") and broker.users.get("ann").tags == ("monitoring",)
    assert list(broker.users.get("ann").permissions) == ["shop"]
    assert broker.users.get("ann").permission("shop").allows("write", "bee")
    assert not broker.users.get("ann").permission("shop").allows("read", "bee")


def test_vhost_made_again_is_empty(start, restart):
    node = start()
    node.broker.create_vhost("v")
    node.broker.vhosts["v"].declare_queue("q", durable=True)
    node.broker.delete_vhost("v")
    node.broker.create_vhost("v")

    broker = restart(node).broker

    assert not broker.vhosts["v"].queues


class Connection:
    """Stands for one in a vhost: ``closed`` notes why it was, and what was left then."""

    def __init__(self, vhost):
        self.vhost = vhost
        self.closed = []

    def force_close(self, reason):
        self.closed.append((reason, len(self.vhost.queues)))


def fill(vhost, count):
    """Durable queues with a message, a binding and an exchange each."""
    for number in range(count):
        queue, _ = vhost.declare_queue(f"q{number}", durable=True)
        vhost.declare_exchange(f"x{number}", "fanout", durable=True)
        vhost.bindings.bind_queue(f"q{number}", f"x{number}", "k")
        message = Message()
        message.assign(b"", b"q", b"\0\0", b"x", 1, persistent=True)
        queue.publish(message)


def cut_deletions_after(monkeypatch, steps):
    """Let a slice of a vhost's deletion end after so many steps."""
    monkeypatch.setattr(steps_module, "SliceClock", lambda clock: SliceClock(steps, clock=StepClock(1)))


def test_vhost_is_deleted_in_slices_and_gone_for_everybody_at_once(start, restart, monkeypatch):
    cut_deletions_after(monkeypatch, 5)
    node = start()
    vhost = node.broker.create_vhost("big", creator="guest")
    fill(vhost, 30)
    node.committer.wait()
    connection = Connection(vhost)

    node.broker.delete_vhost("big", [connection])
    left, still_there = len(vhost.queues), "big" in node.broker.vhosts
    rights = dict(node.broker.users.get("guest").permissions)
    node.broker.wait_until_gone("big")

    assert (left, still_there) == (26, False), "four queues after the connection"
    assert connection.closed == [("vhost 'big' is down", 30)]
    assert "big" in rights and "big" not in node.broker.users.get("guest").permissions
    assert not vhost.queues and not vhost.exchanges and node.broker.totals.queue_deleted == 30
    wait_until(lambda: os.listdir(node.data_dir.queues_folder) == [], sleep=gevent.sleep)
    assert list(restart(node).broker.vhosts) == ["/"]


def test_what_is_done_in_a_vhost_that_is_being_deleted_is_not_kept(start, restart, monkeypatch, caplog):
    cut_deletions_after(monkeypatch, 1)
    node = start()
    vhost = node.broker.create_vhost("big")
    fill(vhost, 10)

    node.broker.delete_vhost("big")
    vhost.declare_queue("late", durable=True)
    vhost.delete_queue("q1")
    node.broker.wait_until_gone("big")
    node = restart(node)

    assert list(node.broker.vhosts) == ["/"] and os.listdir(node.data_dir.queues_folder) == []
    assert "never declared" not in caplog.text


def test_what_is_done_in_a_deleted_vhost_while_its_connections_are_closed_is_not_kept(start, monkeypatch):
    cut_deletions_after(monkeypatch, 1)
    node = start()
    vhost = node.broker.create_vhost("big")

    node.broker.delete_vhost("big", [Connection(vhost) for _ in range(5)])
    before = node.broker._log.record_count
    vhost.declare_queue("late", durable=True)

    assert node.broker._log.record_count == before and vhost.is_gone


def test_parameters_and_imports_into_a_deleted_vhost_are_refused_and_not_those_of_its_successor(
    start, restart
):
    node = start()
    vhost = node.broker.create_vhost("v")
    node.broker.parameters.set(vhost, "vhost-limits", "limits", {"max-queues": 5})
    node.broker.delete_vhost("v")
    node.broker.create_vhost("v")

    with pytest.raises(ValueError, match="'v' was deleted"):
        node.broker.parameters.set(vhost, "policy", "p", {"pattern": ".*", "definition": {"max-length": 5}})
    cleared = node.broker.parameters.clear(vhost, "vhost-limits", "limits")
    report = Importer(node.broker, vhost).run({"queues": [{"name": "q"}]})

    assert (
        not cleared
        and (report.imported, report.refused) == ({}, ["queues: 'q': vhost 'v' was deleted meanwhile"])
    )
    assert restart(node).broker.vhosts["v"].parameters == {}


def test_vhost_of_the_name_of_one_that_is_being_deleted_begins_empty(start, restart, monkeypatch):
    cut_deletions_after(monkeypatch, 1)
    node = start()
    fill(node.broker.create_vhost("v", creator="guest"), 10)

    node.broker.delete_vhost("v")
    again = node.broker.create_vhost("v")
    again.declare_queue("new", durable=True)

    assert list(again.queues) == ["new"] and not node.broker.leaving
    assert list(restart(node).broker.vhosts["v"].queues) == ["new"]


@pytest.mark.parametrize("end", ["stop", "kill"])
def test_broker_that_ends_while_a_vhost_is_being_deleted_has_deleted_it(start, monkeypatch, end):
    cut_deletions_after(monkeypatch, 2)
    node = start()
    fill(node.broker.create_vhost("big", creator="guest"), 10)
    node.committer.wait()
    node.broker.delete_vhost("big")
    node.committer.wait()

    getattr(node, end)()
    node = start()
    anew = node.broker.create_vhost("big")

    assert os.listdir(node.data_dir.queues_folder) == [] and not anew.queues
    assert "big" not in node.broker.users.get("guest").permissions, "nobody has rights in a vhost that is new"


def test_one_thing_that_fails_does_not_keep_a_deleted_vhost(start, monkeypatch, caplog):
    node = start()
    vhost = node.broker.create_vhost("v")
    fill(vhost, 3)
    ill = Connection(vhost)
    ill.force_close = lambda reason: 1 / 0

    node.broker.delete_vhost("v", [ill])
    node.broker.wait_until_gone("v")

    assert not vhost.queues and "deleting vhost 'v': one step failed, the others go on" in caplog.text


def test_files_of_many_deleted_queues_are_removed_by_one_job_and_not_flushed_before(start, monkeypatch):
    """A job each held others up for as many milliseconds as there were queues; flushes of what is to be
    removed held up their confirms.
    """
    node = start()
    vhost = node.broker.create_vhost("v")
    for number in range(20):
        queue, _ = vhost.declare_queue(f"q{number}", durable=True)
        message = Message()
        message.assign(b"", b"q", b"\0\0", b"x", 1, persistent=True)
        queue.publish(message)
    node.committer.wait()
    jobs, synced = [], []
    long, sync = node.committer.background.long, Files.sync
    add = long.add

    def one_more(*job, done):
        jobs.append(len(long))
        add(*job, done=done)

    monkeypatch.setattr(long, "add", one_more)
    monkeypatch.setattr(Files, "sync", lambda files, file: synced.append(file.path) or sync(files, file))

    node.broker.delete_vhost("v")
    node.broker.wait_until_gone("v")
    wait_until(lambda: os.listdir(node.data_dir.queues_folder) == [], sleep=gevent.sleep)

    assert len(jobs) >= 20 and not any(jobs), "one begins when the one before is over"
    assert not [path for path in synced if "msgs." in path]


@pytest.mark.parametrize("durable", [True, False])
@pytest.mark.parametrize("arguments", [
    {}, {"x-max-length": 5, "x-expires": 100_000, "x-dead-letter-exchange": ""}, {"x-max-priority": 3}
])
def test_memory_of_a_deleted_queue_needs_no_garbage_collection(start, durable, arguments):
    """A hundred thousand of them, frozen or not, would keep 300 MB until a collection that holds
    everybody up for a second.
    """
    node = start()
    queue, _ = node.vhost.declare_queue("q", durable=durable, arguments=arguments)
    node.vhost.bindings.bind_queue("q", "amq.topic", "k")
    node.publish("", "q")
    message = Message()
    queue.get(message, True)
    node.committer.wait()
    watched = weakref.ref(queue)
    del queue
    gc.collect()
    gc.disable()
    try:
        node.vhost.delete_queue("q")
        node.broker._pool.resting.stop()  # it watches queues that are empty for ten seconds
        wait_until(lambda: watched() is None, sleep=gevent.sleep)
    finally:
        gc.enable()


def test_folder_of_a_deleted_queue_goes_when_the_log_is_on_disk(start):
    node = start()
    vhost = node.broker.vhosts["/"]
    vhost.declare_queue("q", durable=True)
    node.committer.wait()
    assert len(os.listdir(node.data_dir.queues_folder)) <= 1

    vhost.delete_queue("q")
    node.committer.wait()

    wait_until(lambda: os.listdir(node.data_dir.queues_folder) == [], sleep=gevent.sleep)


@pytest.mark.parametrize("arguments", [{}, {"x-max-priority": 3}, {"x-queue-type": "stream"}])
def test_files_of_a_deleted_queue_go_in_slices(start, monkeypatch, arguments):
    """Hundreds of segments take a second to remove; others get their turn in between."""
    node = start()
    vhost = node.broker.vhosts["/"]
    queue, _ = vhost.declare_queue("q", durable=True, arguments=arguments)
    message = Message()
    for _ in range(40):
        message.assign(b"", b"q", b"\0\0", bytes(60000), 1, persistent=True)
        assert queue.publish(message)
    node.committer.wait()
    folder, = os.listdir(node.data_dir.queues_folder)
    path = os.path.join(node.data_dir.queues_folder, folder)
    slices, remove_some = [], FolderRemovals._remove_some
    monkeypatch.setattr(
        FolderRemovals, "_remove_some",
        lambda *arguments: slices.append(threading.get_native_id()) or remove_some(*arguments))
    monkeypatch.setattr(removal, "REMOVING_S", 0)  # one file at a time
    count = sum(len(names) for _, _, names in os.walk(path))

    vhost.delete_queue("q")
    node.committer.wait()
    wait_until(lambda: not os.path.isdir(path), sleep=gevent.sleep)

    assert count >= 2 and len(slices) > count
    assert threading.get_native_id() not in slices


def test_files_of_a_deleted_queue_that_cannot_be_removed_are_said_and_go_at_the_boot(
    start, monkeypatch, caplog
):
    node = start()
    vhost = node.broker.vhosts["/"]
    queue, _ = vhost.declare_queue("q", durable=True)
    message = Message()
    message.assign(b"", b"q", b"\0\0", b"x", 1, persistent=True)
    queue.publish(message)
    node.committer.wait()

    with monkeypatch.context() as patch:
        patch.setattr(
            Files, "_unlink", lambda *_: (_ for _ in ()).throw(OSError(errno.EIO, "Input/output error"))
        )
        vhost.delete_queue("q")
        node.committer.wait()
        wait_until(
            lambda: "the files of deleted queue 'q' in vhost '/' stay until the next boot" in caplog.text,
            sleep=gevent.sleep,
        )
    node.kill()
    node = start()

    assert os.listdir(node.data_dir.queues_folder) == []


def test_folders_of_unknown_queues_go_at_boot(start, restart):
    node = start()
    node.broker.vhosts["/"].declare_queue("q", durable=True)
    stray = os.path.join(node.data_dir.queues_folder, "0" * 40 + ".feed")
    os.makedirs(stray)
    with open(os.path.join(stray, "msgs.0000000001"), "wb") as file:
        file.write(b"left behind")

    node = restart(node)

    assert not os.path.exists(stray)
    assert list(node.broker.vhosts["/"].queues) == ["q"]


def test_queue_declared_again_after_deletion_is_another(start, restart):
    node = start()
    vhost = node.broker.vhosts["/"]
    vhost.declare_queue("q", durable=True)
    first = vhost.incarnation_of(vhost.queues["q"])
    vhost.delete_queue("q")
    vhost.declare_queue("q", durable=True)
    second = vhost.incarnation_of(vhost.queues["q"])

    vhost = restart(node).broker.vhosts["/"]

    assert first != second
    assert vhost.incarnation_of(vhost.queues["q"]) == second


def test_policies_limits_and_parameters_survive(start, restart):
    node = start()
    parameters, vhost = node.broker.parameters, node.vhost
    parameters.set(vhost, "policy", "short", {
        "pattern": "^s", "definition": {"max-length": 2, "alternate-exchange": "amq.fanout"}, "priority": 1
    })
    parameters.set(vhost, "policy", "gone", {"pattern": "^g", "definition": {"max-length": 2}})
    parameters.clear(vhost, "policy", "gone")
    parameters.set(vhost, "operator_policy", "cap", {
        "pattern": ".*", "definition": {"max-length": 1}, "apply-to": "queues"
    })
    parameters.set(vhost, "vhost-limits", "limits", {"max-queues": 3})
    parameters.set(vhost, "shovel", "s", {"src-uri": "amqp://", "n": [1, 2.5, None, True]})
    parameters.set_global("cluster_name", "ours")
    parameters.set_internal(IMPORTED, {"path": "a.json"})
    vhost.declare_queue("short", durable=True)
    vhost.declare_exchange("s", "topic", durable=True)

    node = restart(node)

    vhost = node.vhost
    assert vhost.queue("short").limits.settings.max_length == 1
    assert vhost.exchange("s").alternate == "amq.fanout"
    assert vhost.limits == {"max-queues": 3}
    assert list(vhost.policies.user.by_name) == ["short"]
    assert vhost.parameters["shovel", "s"] == {"src-uri": "amqp://", "n": [1, 2.5, None, True]}
    assert node.broker.parameters.global_ == {"cluster_name": "ours"}
    assert node.broker.parameters.internal == {IMPORTED: {"path": "a.json"}}


def test_queue_expires_and_does_not_come_back(start):
    node = start()
    node.vhost.declare_queue("q", durable=True, arguments={"x-expires": 50})

    node.wait(lambda: "q" not in node.vhost.queues)
    node.kill()

    assert "q" not in start().vhost.queues


def test_lines_about_queues_that_expire_have_a_budget(start, monkeypatch, caplog):
    monkeypatch.setattr(broker_module, "EXPIRED", QuietLog(broker_module.LOG, most=3))
    caplog.set_level(logging.INFO, "gomq_py.broker")
    node = start()
    for number in range(5):
        node.vhost.declare_queue(f"q{number}", arguments={"x-expires": 1})

    node.wait(lambda: not node.vhost.queues)

    assert sum("expired: unused for 1 ms" in line for line in caplog.messages) == 3


def test_messages_and_their_expiry_survive(start, restart):
    node = start()
    node.vhost.declare_queue("q", durable=True)
    node.publish("", "q", b"stays", persistent=True)
    node.publish("", "q", b"short", expires_in_ms=200, persistent=True)
    node.vhost.declare_queue("r", durable=True)
    node.publish("", "r", b"short", expires_in_ms=200, persistent=True)
    for queue in node.vhost.queues.values():
        queue.write_out()

    node = restart(node)

    assert node.vhost.queue("q").ready_count == 2
    node.wait(lambda: node.vhost.queue("r").ready_count == 0)
    assert node.take("q")[0] == b"stays"
    assert node.take("q") is None


def test_queue_that_cannot_be_opened_is_there_and_closed(start, restart, monkeypatch):
    node = start()
    for name in ("good", "bad"):
        node.vhost.declare_queue(name, durable=True)
        node.publish("", name, persistent=True)
        node.vhost.queue(name).write_out()
    bad = node.vhost.queue("bad").store.folder

    def failing_open(folder, *args):
        if folder == bad:
            raise StoreError(folder, 0, "cannot be opened: Input/output error")
        return open_store(folder, *args)

    monkeypatch.setattr(queue_factory, "open_store", failing_open)
    node = restart(node)

    assert node.vhost.queue("good").ready_count == 1
    assert (node.vhost.queues["bad"].closed, node.vhost.queues["bad"].ready_count) == (True, 0)
    assert os.path.isdir(bad)
    assert node.publish("", "bad") == [0]
    node.vhost.delete_queue("bad")
    node.committer.wait()
    wait_until(lambda: not os.path.exists(bad), sleep=gevent.sleep)
