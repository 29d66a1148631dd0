"""Recovery: the records of a snapshot say what is when they are asked for (boots
from logs: tests/durability).
"""
import pytest

from gomq_py.broker.topology import steps as steps_module
from gomq_py.broker.topology.recovery import replay, snapshot
from gomq_py.global_names import IMPORTED
from gomq_py.hub.scheduler import SliceClock
from tests.support.node import Node


@pytest.fixture
def node(tmp_path):
    node = Node(tmp_path / "data")
    node.vhost.declare_exchange("x", "fanout", durable=True)
    node.vhost.declare_queue("q", durable=True)
    node.vhost.bindings.bind_queue("q", "x", "k")
    yield node
    node.stop()


def definitions(node):
    return [
        definition
        for definition in snapshot(node.broker.vhosts, node.broker.parameters) if definition is not None
    ]


def test_record_of_an_unknown_kind_brings_no_deleted_vhost_back():
    """Not even where the log is damaged, so that the vhost's own record might be lost."""
    left_out, unknown = [], {"op": "of-a-later-version", "vhost": "a"}
    log = [{"op": "vhost", "name": "a"}, {"op": "vhost-delete", "name": "a"}, unknown]

    assert replay(log, lambda: True, left_out.append) == ({}, {})
    assert left_out == [unknown]


def said(found):
    """Of queues and bindings: (what, name of the queue)."""
    records = [record for record in (definition() for definition in found) if record is not None]
    names = {"queue": "name", "bind": "destination"}
    return [(record["op"], record[names[record["op"]]]) for record in records if record["op"] in names]


def test_what_the_broker_notes_about_its_folder_is_in_the_log_that_takes_its_place(node):
    """Without it the next boot would import the file of load_definitions again."""
    node.broker.parameters.set_internal(IMPORTED, "a.json")
    node.broker.parameters.set_global("motto", "kept")

    records = [record for record in (definition() for definition in definitions(node)) if record is not None]

    assert [record["name"] for record in records if record["op"] == "global-parameter"] == ["motto", IMPORTED]


def test_queue_that_was_restarted_after_it_was_listed_is_written_with_its_bindings(node):
    """A log without them has the next boot remove its folder."""
    queue = node.vhost.queue("q")
    node.publish("", "q")
    found = definitions(node)
    queue.store.fence(OSError(5, "the disk failed"))
    node.vhost.restart_queue(queue)

    assert said(found) == [("queue", "q"), ("bind", "q")]


def test_bindings_of_a_queue_that_is_deleted_after_they_were_listed_are_not_written(node, monkeypatch):
    """They are forgotten in slices.

    Written behind the end of the queue, they would be those of a later one of its name.
    """
    for number in range(3):
        node.vhost.bindings.bind_queue("q", "x", f"{number}")
    found = definitions(node)
    monkeypatch.setattr(steps_module, "SliceClock", lambda clock: SliceClock(0))
    node.vhost.delete_queue("q")
    listed = said(found)
    node.vhost.declare_queue("q", durable=True)

    assert (listed, said(found)) == ([], [("queue", "q")])
