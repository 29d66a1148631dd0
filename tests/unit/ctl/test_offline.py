"""Definitions read from a data folder: as the broker says them, and what is damaged in it is named."""
import json

import pytest

from gomq_py.broker.topology.definitions import Importer, exported
from gomq_py.ctl.offline import Definitions, FolderError, held_folder
from gomq_py.global_names import IMPORTED
from tests.support.node import Node
from tests.unit.broker.topology.test_definitions import RABBITMQ


@pytest.fixture
def node(tmp_path):
    node = Node(tmp_path / "data")
    yield node
    node.stop()


def listed(definitions):
    """Its lists, whose order means nothing."""
    return {kind: sorted(json.dumps(entry, sort_keys=True) for entry in entries)
            for kind, entries in definitions.items() if isinstance(entries, list)}


def test_a_folder_says_what_its_broker_said(node, tmp_path):
    Importer(node.broker).run(RABBITMQ)
    node.broker.parameters.set_global("motto", "kept")
    node.broker.parameters.set_internal(IMPORTED, "a.json")
    users, vhost = node.broker.users, node.broker.vhosts["shop"]
    users.set_user("gone", password="x")
    users.set_permission("gone", "shop", "", "", "")
    users.delete_user("gone")
    node.broker.user_limits.set("ann", "max-channels", 5)
    users.set_permission("ann", "/", "a", "b", "c")
    users.delete_permission("ann", "/")
    vhost.declare_queue("transient")
    node.vhost.declare_queue("stream", durable=True, arguments={"x-queue-type": "stream"})
    node.publish("", "stream", b"which makes its folder", persistent=True)
    vhost.delete_queue("dead")
    running = json.loads(json.dumps(exported(node.broker)))
    running["queues"] = [queue for queue in running["queues"] if queue["durable"]]
    node.stop()

    definitions = Definitions(tmp_path / "data")

    assert definitions.problems == []
    assert listed(definitions.exported()) == listed(running)
    assert [entry["name"] for entry in running["global_parameters"]] == ["motto"]
    assert len(definitions.stream_folders()) == 1
    assert all((tmp_path / "data" / "queues" / name).is_dir() for name in definitions.stream_folders())


def test_what_cannot_be_read_is_named_and_the_rest_is_told(node, tmp_path):
    node.vhost.declare_queue("one", durable=True)
    node.vhost.declare_queue("two", durable=True)
    node.stop()
    path = tmp_path / "data" / "definitions"
    content = bytearray(path.read_bytes())
    content[content.index(b"one")] ^= 0x40
    path.write_bytes(content)

    definitions = Definitions(tmp_path / "data")

    assert [queue["name"] for queue in definitions.exported()["queues"]] == ["two"]
    assert len(definitions.problems) == 1 and str(path) in definitions.problems[0]


def test_a_broker_cannot_take_a_folder_that_is_looked_at(node, tmp_path):
    with pytest.raises(FolderError, match="in use by PID"):
        held_folder(tmp_path / "data").__enter__()
    node.stop()

    with held_folder(tmp_path / "data"), pytest.raises(Exception, match="in use"):
        Node(tmp_path / "data")


@pytest.mark.parametrize("name", ["definitions", "users"])
def test_a_log_that_is_missing_is_one_line(node, tmp_path, name):
    node.stop()
    (tmp_path / "data" / name).unlink()

    with pytest.raises(FolderError, match=f"{name} cannot be read"):
        Definitions(tmp_path / "data")
