"""Definitions and users that are sound on the disk and of no use to this version: each costs itself, is
reported, and takes no message with it.

They come from a later version, or from a fault that the checksums did not see.
"""
import json
import logging
import os

import pytest

from gomq_py.auth.users import Users
from gomq_py.broker.policies.parameters import Parameters
from gomq_py.broker.policies.limits import LimitsComponent
from gomq_py.broker.policies.vhost_policies import PolicyComponent
from gomq_py.broker.topology import recovery
from gomq_py.broker.topology.bindings import Bindings
from gomq_py.broker.topology.definitions import exported
from gomq_py.broker.topology.queue_factory import QueueFactory
from gomq_py.broker.topology.vhost import VHost
from gomq_py.content.fields import decode_table, encode_table
from gomq_py.errors import PreconditionFailed
from gomq_py.storage.disk.files import Files
from gomq_py.storage.logs.framed_log import FramedLog, LogScan
from tests.support.node import Node

MAX_DEPTH = 32  # how deep a client may nest tables
QUEUE = {
    "op": "queue", "vhost": "/", "name": "q", "auto_delete": False, "arguments": {},
    "incarnation": b"0123456789abcdef",
}
EXCHANGE = {
    "op": "exchange", "vhost": "/", "name": "x", "type": "topic", "auto_delete": False, "internal": False,
    "arguments": {},
}
UNUSABLE = [
    b"no table", encode_table({}), encode_table({"op": 5}), encode_table({"op": "queue"}),
    encode_table({"op": "bind", "vhost": "/"}),
    encode_table({**QUEUE, "incarnation": b"short"}),
    encode_table({**QUEUE, "arguments": {"x-max-priority": "many"}}),
    encode_table({**EXCHANGE, "type": "of a later version"}),
    encode_table({"op": "parameter", "vhost": "/", "component": "policy", "name": "p", "value": "no JSON"}),
    encode_table({"op": "global-parameter", "name": "g", "value": "{"}),
    encode_table({
        "op": "parameter", "vhost": "/", "component": "c", "name": "deep",
        "value": "[" * 100_000 + "]" * 100_000,
    }),
    encode_table({
        "op": "parameter", "vhost": "/", "component": "c", "name": "deep",
        "value": '{"a":' * 300 + "1" + "}" * 300,
    }),
    encode_table({"op": "global-parameter", "name": "deep", "value": "[" * 300 + "]" * 300}),
    encode_table({"op": "parameter", "vhost": "/", "component": "c", "name": "nan", "value": "NaN"}),
    encode_table({"op": "parameter", "vhost": "/", "component": "c", "name": "long", "value": "1" * 5000}),
    encode_table({"op": "of a later version", "name": "n"}),
    encode_table({
        "op": "bind", "vhost": "/", "source": "amq.topic", "destination": "nobody", "to": "queue", "key": "k",
        "arguments": {},
    }),
    encode_table({
        "op": "bind", "vhost": "/", "source": "gone", "destination": "jobs", "to": "queue", "key": "k",
        "arguments": {},
    }),
]


@pytest.fixture
def root(tmp_path):
    """A data folder with a message in a durable queue."""
    node = Node(tmp_path / "data")
    node.vhost.declare_queue("jobs", durable=True)
    node.publish("", "jobs", b"kept", persistent=True)
    node.stop()
    return tmp_path / "data"


def append(path, *payloads):
    log = FramedLog(Files(), path)
    for _ in log.replay():
        pass
    log.append_all(payloads)
    log.close()


@pytest.mark.parametrize("payload", UNUSABLE)
def test_a_definition_that_cannot_be_used_is_left_out_and_reported(root, payload, caplog):
    append(root / "definitions", payload)

    with caplog.at_level(logging.ERROR, "gomq_py"):
        node = Node(root)

    assert set(node.vhost.queues) == {"jobs"}
    assert node.take("jobs")[0] == b"kept"
    assert "left out" in caplog.text
    node.stop()
    assert list(LogScan("kept", (root / "definitions.left-out").read_bytes())) == [payload]


def test_what_was_left_out_is_kept_once_and_beside_what_was_left_out_before(root):
    first, second = encode_table({"op": "first"}), encode_table({"op": "second"})
    append(root / "definitions", first)
    Node(root).stop()
    append(root / "definitions", first, second)

    Node(root).stop()

    assert list(LogScan("kept", (root / "definitions.left-out").read_bytes())) == [first, second]


class ItemFault(Exception):
    """What nobody has thought of."""


@pytest.mark.parametrize("owner, name", [
    (Parameters, "restore"), (VHost, "add_exchange"), (QueueFactory, "create"), (VHost, "recover_queue"),
    (Bindings, "add"),
    (QueueFactory, "configure"), (VHost, "set_alternate"), (VHost, "set_tee"), (PolicyComponent, "check"),
    (PolicyComponent, "changed"),
    (LimitsComponent, "changed"), (recovery, "decoded"), (recovery, "_binding_key"),
])
def test_whatever_one_definition_brings_about_the_others_are_there(root, owner, name, caplog, monkeypatch):
    """A fault at each step of the recovery of each kind of record;
    some kinds it costs all that is of them, and no more.
    """
    node = Node(root)
    node.vhost.declare_exchange("x", "topic", durable=True)
    node.vhost.declare_queue("last", durable=True, arguments={"x-max-length": 5}, by="guest")
    node.vhost.bindings.bind_queue("last", "x", "k")
    node.broker.parameters.set(node.vhost, "policy", "p", {"pattern": ".*", "definition": {
        "alternate-exchange": "amq.topic", "max-length": 7, "tee-to-stream": "log"}})
    node.broker.parameters.set(node.vhost, "vhost-limits", "limits", {"max-queues": 100})
    node.stop()
    real = getattr(owner, name)

    def faulty(*arguments):
        # of a parameter it is who set it, and nobody here
        if name != "restore" and (
            arguments[-1] is None or getattr(arguments[-1], "name", "").startswith("amq.")
        ):
            return real(*arguments)  # of what every vhost has
        raise ItemFault("of one")

    with monkeypatch.context() as patch, caplog.at_level(logging.ERROR, "gomq_py"):
        patch.setattr(owner, name, faulty)
        node = Node(root)

    assert "ItemFault: of one" in caplog.text
    node.vhost.declare_queue("new", durable=True)
    node.stop()
    node = Node(root)
    assert "new" in node.vhost.queues
    node.stop()


@pytest.mark.parametrize("key", [
    "max-length", "max-length-bytes", "message-ttl", "expires", "delivery-limit"
])
def test_a_stored_policy_with_a_number_of_more_than_64_bits_is_without_effect(root, key, caplog):
    """Releases that did not look at the size of numbers stored such policies, and booted no more."""
    value = json.dumps({"pattern": ".*", "definition": {key: 1 << 63}, "apply-to": "all", "priority": 0})
    append(root / "definitions", *(
        encode_table({"op": "parameter", "vhost": "/", "component": component, "name": "big", "value": value})
        for component in ("policy", "operator_policy")))

    with caplog.at_level(logging.ERROR, "gomq_py"):
        node = Node(root)

    assert node.take("jobs")[0] == b"kept"
    assert "policy 'big' in vhost '/' is without effect" in caplog.text
    assert exported(node.broker)["policies"] == [{"vhost": "/", "name": "big", **json.loads(value)}]
    assert node.broker.parameters.clear(node.vhost, "policy", "big")
    node.stop()


def test_the_messages_of_a_queue_whose_definition_cannot_be_used_are_set_aside(root):
    """Nothing but that definition says whose they are: removed as an orphan's they would be gone."""
    payloads = list(LogScan("definitions", (root / "definitions").read_bytes()))
    os.unlink(root / "definitions")
    append(
        root / "definitions",
        *(
            payload if b"jobs" not in payload else encode_table({"op": "queue", "name": "jobs"})
            for payload in payloads
        ),
    )

    Node(root).stop()

    (folder,) = os.listdir(root / "set-aside")
    assert any(b"kept" in path.read_bytes() for path in (root / "set-aside" / folder).iterdir())


@pytest.mark.parametrize("payload", [
    b"", encode_table({"op": "user", "name": "guest"}), encode_table({"op": "permission", "user": "guest"})
])
def test_a_user_that_cannot_be_used_is_left_out_and_the_default_user_does_not_come_back(
    root, payload, caplog
):
    os.unlink(root / "users")
    append(root / "users", payload)

    with caplog.at_level(logging.ERROR, "gomq_py"):
        node = Node(root)

    assert len(node.broker.users) == 0
    assert "left out" in caplog.text
    node.stop()
    assert list(LogScan("kept", (root / "users.left-out").read_bytes())) == [payload]


def test_limits_of_a_user_that_are_no_numbers_are_left_out(root):
    append(
        root / "users", encode_table({"op": "limits", "user": "guest", "limits": {"max-channels": "many"}})
    )

    node = Node(root)

    assert node.broker.user_limits.limit(node.broker.users.get("guest"), "max-channels") is None
    node.stop()


def test_whatever_one_record_of_users_brings_about_the_others_are_there(root, monkeypatch, caplog):
    node = Node(root)
    node.broker.users.set_user("other", password="p")
    node.broker.users.set_permission("other", "/", ".*", ".*", ".*")
    node.stop()

    def faulty(*_):
        raise ItemFault("of one")

    with monkeypatch.context() as patch, caplog.at_level(logging.ERROR, "gomq_py"):
        patch.setattr(Users, "_apply_right", staticmethod(faulty))
        node = Node(root)

    assert "other" in node.broker.users and "ItemFault: of one" in caplog.text
    node.stop()


@pytest.mark.parametrize("place", ["queues", "pool"])
def test_what_others_leave_in_the_data_folder_does_not_keep_the_broker_from_booting(root, place):
    (root / place / "stray").write_bytes(b"x")
    (root / place / "folder" / "inner").mkdir(parents=True)

    node = Node(root)

    assert node.take("jobs")[0] == b"kept"
    node.stop()


def test_arguments_nested_as_deep_as_a_client_may_survive_a_restart(root):
    deepest = {}
    for _ in range(MAX_DEPTH):
        deepest = {"k": deepest}
    decode_table(encode_table(deepest))
    node = Node(root)
    node.vhost.declare_queue("deep", durable=True, arguments=deepest)
    node.stop()

    node = Node(root)

    assert node.vhost.queue("deep").arguments == deepest
    node.stop()


def test_arguments_nested_deeper_than_can_be_read_again_are_refused(root):
    node = Node(root)
    deepest = {}
    for _ in range(MAX_DEPTH + 1):
        deepest = {"k": deepest}

    with pytest.raises(PreconditionFailed, match="nested deeper than 32"):
        node.vhost.declare_queue("deep", durable=True, arguments=deepest)

    assert "deep" not in node.vhost.queues
    node.stop()
