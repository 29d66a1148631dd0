"""Broker: what a restart brings back, and what the first boot makes."""
import os

import pytest

from gomq_py.broker.broker import Broker
from gomq_py.config.settings import Settings
from gomq_py.storage.data_dir import DataDir
from gomq_py.storage.files import Files
from gomq_py.storage.sync import GroupCommit
from tests.support.no_switch import no_switch


class Node:
    """A broker without doors over a data folder; ``stop`` ends it in order, ``kill`` leaves everything as it is."""

    def __init__(self, path, **settings):
        files = Files()
        self.data_dir = DataDir(path, files).open()
        self.committer = GroupCommit(files)
        self.broker = Broker(self.data_dir, files, self.committer, Settings(**settings))

    def stop(self):
        self.broker.close()
        self.committer.stop()
        self.data_dir.close()

    def kill(self):
        """What SIGKILL leaves: files as written, nothing closed, nothing flushed by us."""
        self.data_dir.close()


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
    assert broker.users.verify("guest", "guest")
    assert broker.users.get("guest").has_tag("administrator")
    assert broker.users.get("guest").permission("/").allows("configure", "anything")
    assert not broker.users.may_come_from("guest", "192.0.2.1")


def test_default_user_is_as_the_settings_say(start):
    broker = start(default_user="admin", default_user_only_loopback=False).broker

    assert broker.users.get("guest") is None
    assert broker.users.may_come_from("admin", "192.0.2.1")


def test_deleted_default_user_does_not_come_back(start, restart):
    node = start()
    node.broker.users.set_user("admin", password="secret")
    node.broker.users.delete_user("guest")

    node = restart(node)

    assert [user.name for user in node.broker.users] == ["admin"]


def test_durable_topology_survives(start, restart):
    node = start()
    vhost = node.broker.vhosts["/"]
    with no_switch():
        vhost.declare_exchange("x", "topic", durable=True, auto_delete=True, internal=True, arguments={"alternate-exchange": "amq.fanout"})
        vhost.declare_queue("q", durable=True, auto_delete=True, arguments={"x-max-length": 5, "x-list": ["a", {"b": None}]})
        vhost.bind_queue("q", "x", "a.#", {"k": b"\xff"})
        vhost.bind_exchange("x", "amq.headers", "", {"x-match": "any", "n": 1})

    vhost = restart(node).broker.vhosts["/"]

    exchange, queue = vhost.exchange("x"), vhost.queue("q")
    assert (exchange.type, exchange.durable, exchange.auto_delete, exchange.internal) == ("topic", True, True, True)
    assert exchange.arguments == {"alternate-exchange": "amq.fanout"} and exchange.alternate == "amq.fanout"
    assert (queue.durable, queue.auto_delete, queue.arguments) == (True, True, {"x-max-length": 5, "x-list": ["a", {"b": None}]})
    assert [binding.arguments for binding in vhost.bindings_to(queue)] == [{"k": b"\xff"}]
    assert routed(vhost, "x", "a.b") == ["q"]
    assert routed(vhost, "amq.headers", "a.b") == []
    assert [binding.arguments for binding in vhost.bindings_to(exchange)] == [{"x-match": "any", "n": 1}]


def test_transient_topology_does_not_survive(start, restart):
    node = start()
    vhost = node.broker.vhosts["/"]
    vhost.declare_queue("q")
    vhost.declare_queue("mine", durable=True, exclusive=True, owner=object())
    vhost.declare_exchange("x", "fanout")
    vhost.bind_queue("q", "amq.topic", "k")

    vhost = restart(node).broker.vhosts["/"]

    assert not vhost.queues
    assert "x" not in vhost.exchanges
    assert vhost.exchange("amq.topic").binding_count == 0


def test_deletions_survive(start, restart):
    node = start()
    vhost = node.broker.vhosts["/"]
    for name in ("q", "r"):
        vhost.declare_queue(name, durable=True)
        vhost.bind_queue(name, "amq.topic", "k")
    vhost.declare_exchange("x", "fanout", durable=True)
    vhost.bind_queue("r", "x", "")
    vhost.delete_queue("q")
    vhost.unbind_queue("r", "amq.topic", "k")
    vhost.delete_exchange("x")

    vhost = restart(node).broker.vhosts["/"]

    assert list(vhost.queues) == ["r"]
    assert vhost.bindings_to(vhost.queues["r"]) == []
    assert "x" not in vhost.exchanges


def test_names_that_are_not_utf8_survive(start, restart):
    node = start()
    name = b"\xff/\x00..".decode("utf-8", "surrogateescape")
    node.broker.vhosts["/"].declare_queue(name, durable=True)
    node.broker.vhosts["/"].bind_queue(name, "amq.direct", name)

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
    assert broker.users.verify("ann", "secret") and broker.users.get("ann").tags == ("monitoring",)
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


def test_folder_of_a_deleted_queue_goes_when_the_log_is_on_disk(start):
    node = start()
    vhost = node.broker.vhosts["/"]
    vhost.declare_queue("q", durable=True)
    node.committer.wait()
    assert len(os.listdir(node.data_dir.queues_folder)) <= 1

    vhost.delete_queue("q")
    node.committer.wait()

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
