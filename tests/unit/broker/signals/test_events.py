"""Event exchange: what happens, told to those who are bound, and to nobody else at no cost."""
import time
from collections import Counter
from types import SimpleNamespace

import pytest

from gomq_py.broker.policies.policy import OPERATOR_POLICY, POLICY
from gomq_py.broker.signals import events
from gomq_py.broker.topology import steps as steps_module
from gomq_py.content.properties import Properties
from gomq_py.hub.scheduler import SliceClock
from gomq_py.storage.message import Message
from tests.support.clocks import StepClock
from tests.support.no_switch import no_switch
from tests.support.node import Node


@pytest.fixture
def node(tmp_path):
    node = Node(tmp_path / "data", event_exchange=True)
    node.vhost.declare_queue("told", durable=True)
    node.vhost.bindings.bind_queue("told", events.NAME, "#")
    node.wait(lambda: node.vhost.queue("told").ready_count == 1)  # of its own binding
    node.vhost.queue("told").purge()
    yield node
    node.stop()


def actor(name):
    """A user who acts by no protocol."""
    return events.Actor(SimpleNamespace(name=name))


def told(node, count=1):
    """The next events as (key, headers), headers without those that every event has."""
    found = told_in_full(node, count)
    for _, headers in found:
        for name in ("timestamp_in_ms", "node", "user_who_performed_action"):
            del headers[name]
    return found


def actors(node, count):
    """The next events as (user, key)."""
    return [(headers["user_who_performed_action"], key) for key, headers in told_in_full(node, count)]


def told_in_full(node, count):
    """The next events as (key, headers)."""
    queue = node.vhost.queue("told")
    node.wait(lambda: queue.ready_count >= count, what=lambda: f"{queue.ready_count} events")
    found = []
    for _ in range(count):
        message = Message()
        assert queue.get(message, True)
        found.append(
            (message.get_routing_key().decode(), Properties.decode(message.get_properties()).headers)
        )
    return found


def test_queue_that_comes_and_goes_is_told(node):
    with no_switch():
        node.vhost.declare_queue("q", durable=True, arguments={"x-max-length": 5})
        node.vhost.delete_queue("q")

    assert told(node, 2) == [
        ("queue.created", {
            "name": "q", "vhost": "/", "durable": True, "auto_delete": False, "exclusive": False,
            "arguments": {"x-max-length": 5}, "owner_pid": ""}),
        ("queue.deleted", {"name": "q", "vhost": "/"}),
    ]


def test_exchange_and_binding_are_told(node):
    node.vhost.declare_exchange("x", "topic", durable=True)
    node.vhost.bindings.bind_queue("told", "x", "a.#", {"k": 1})
    node.vhost.delete_exchange("x")

    binding = {
        "source_name": "x", "source_kind": "exchange", "destination_name": "told",
        "destination_kind": "queue", "routing_key": "a.#",
        "arguments": {"k": 1}, "vhost": "/",
    }
    assert told(node, 4) == [
        ("exchange.created", {
            "name": "x", "vhost": "/", "type": "topic", "durable": True, "auto_delete": False,
            "internal": False, "arguments": {}}),
        ("binding.created", binding), ("binding.deleted", binding),
        ("exchange.deleted", {"name": "x", "vhost": "/"}),
    ]


def test_redeclaring_and_passing_by_tell_nothing(node):
    node.vhost.declare_queue("told", durable=True)
    node.vhost.bindings.bind_queue("told", events.NAME, "#")
    node.vhost.delete_queue("missing")
    node.vhost.declare_queue("last")

    assert [key for key, _ in told(node)] == ["queue.created"]


def test_vhost_user_and_permission_are_told(node):
    broker = node.broker
    broker.create_vhost("shop", "a shop", ["tag"], creator="guest")
    broker.users.set_user("anna", password="x", tags=["monitoring"])
    broker.users.set_user("anna", password="y", tags=["monitoring"])
    broker.users.set_tags("anna", [])
    broker.users.set_permission("anna", "shop", "^a", ".*", "")
    broker.users.set_limits("anna", {"max-channels": 3})
    broker.users.delete_permission("anna", "shop")
    broker.users.delete_user("anna")
    broker.delete_vhost("shop")

    rights = {"user": "guest", "vhost": "shop"}
    assert told(node, 12) == [
        ("vhost.created", {"name": "shop", "description": "a shop", "tags": ["tag"]}),
        ("permission.created", {**rights, "configure": ".*", "write": ".*", "read": ".*"}),
        ("user.created", {"name": "anna"}), ("user.tags.set", {"name": "anna", "tags": ["monitoring"]}),
        ("user.password.changed", {"name": "anna"}), ("user.tags.set", {"name": "anna", "tags": []}),
        (
            "permission.created",
            {"user": "anna", "vhost": "shop", "configure": "^a", "write": ".*", "read": ""},
        ),
        ("user.limits.set", {"name": "anna", "limits": {"max-channels": 3}}),
        ("permission.deleted", {"user": "anna", "vhost": "shop"}), ("user.deleted", {"name": "anna"}),
        ("permission.deleted", rights), ("vhost.deleted", {"name": "shop"}),
    ]


def test_topic_permissions_and_what_is_said_about_a_vhost_are_told(node):
    broker = node.broker
    broker.users.set_topic_permission("guest", "/", "amq.topic", "^a", "^b")
    broker.users.delete_topic_permissions("guest", "/", "amq.topic")
    broker.users.delete_topic_permissions("guest", "/", "amq.topic")
    broker.describe_vhost(node.vhost, description="the first")
    broker.describe_vhost(node.vhost, description="the first")
    broker.describe_vhost(node.vhost, tags=["a"])
    node.vhost.declare_queue("last")

    limited = {"user": "guest", "vhost": "/", "exchange": "amq.topic"}
    said = {
        "name": "/", "description": "the first", "tags": [], "default_queue_type": "classic",
        "protected_from_deletion": False, "tracing": False}
    found = told(node, 5)
    assert found[:4] == [
        ("topic.permission.created", {**limited, "write": "^a", "read": "^b"}),
        ("topic.permission.deleted", limited),
        ("vhost.updated", said), ("vhost.updated", {**said, "tags": ["a"]})]
    assert found[4][0] == "queue.created"


def test_what_cannot_be_written_about_a_vhost_is_not_told(node, monkeypatch):
    def refuse(*_):
        raise OSError(28, "No space left on device")

    with monkeypatch.context() as full:
        full.setattr(node.broker._log, "append", refuse)
        with pytest.raises(OSError):
            node.broker.describe_vhost(node.vhost, description="the first")
    node.vhost.declare_queue("last")

    assert [key for key, _ in told(node)] == ["queue.created"]


def test_policies_limits_and_parameters_are_told(node):
    parameters, vhost = node.broker.parameters, node.vhost
    policy = {"pattern": "^never$", "definition": {"max-length": 1}, "priority": 3, "apply-to": "queues"}
    parameters.set(vhost, POLICY, "p", policy)
    parameters.clear(vhost, POLICY, "p")
    parameters.set(vhost, OPERATOR_POLICY, "o", policy)
    parameters.set(vhost, "vhost-limits", "limits", {"max-queues": 70})
    parameters.clear(vhost, "vhost-limits", "limits")
    parameters.set(vhost, "something", "n", {"a": 1})
    parameters.set_global("g", "v")
    parameters.clear_global("g")

    assert told(node, 10) == [
        ("policy.set", {"name": "p", "vhost": "/", **policy}),
        ("policy.cleared", {"name": "p", "vhost": "/"}),
        ("policy.set", {"name": "o", "vhost": "/", **policy}),
        (
            "parameter.set",
            {"vhost": "/", "component": "vhost-limits", "name": "limits", "value": {"max-queues": 70}},
        ),
        ("vhost.limits.set", {"name": "limits", "vhost": "/", "max-queues": 70}),
        ("parameter.cleared", {"vhost": "/", "component": "vhost-limits", "name": "limits", "value": None}),
        ("vhost.limits.cleared", {"name": "limits", "vhost": "/"}),
        ("parameter.set", {"vhost": "/", "component": "something", "name": "n", "value": {"a": 1}}),
        ("parameter.set", {"component": "global", "name": "g", "value": "v"}),
        ("parameter.cleared", {"component": "global", "name": "g", "value": None}),
    ]


def test_passwords_are_in_no_event(node):
    """URIs of shovels and upstreams, alone and in arrays; policies; arguments of queues, exchanges and
    bindings; what clients say of themselves.
    """
    uri = "amqp://ann:sesame@elsewhere/v"
    set_ = node.broker.parameters.set
    set_(node.vhost, "shovel", "s", {
        "src-uri": [uri, uri], "src-queue": "q", "dest-uri": uri, "dest-password": "sesame"
    })
    set_(node.vhost, "federation-upstream", "u", {"uri": uri})
    node.broker.parameters.set_global("g", {"uri": uri})
    set_(node.vhost, POLICY, "p", {
        "pattern": "^amqp://ann:sesame@", "definition": {"dead-letter-exchange": uri}
    })
    set_(node.vhost, OPERATOR_POLICY, "p", {"pattern": "^amqp:", "definition": {"max-length": 5}})
    node.vhost.declare_queue("q", arguments={"x-from": uri, "x-password": "sesame"})
    node.vhost.declare_exchange("x", "headers", arguments={"x-from": [uri, {"uri": uri}]})
    node.vhost.bindings.bind_queue("q", "x", "", {"from": uri})
    node.broker.events.emit(
        "connection.created", dict, {"client_properties": {"connection_name": uri, "token": "sesame"}}
    )

    events_ = told(node, 9)

    assert "sesame" not in repr(events_)
    assert repr(events_).count("amqp://ann:***@elsewhere/v") == 11
    assert node.broker.parameters.global_["g"] == {"uri": uri}


def test_event_of_a_quiet_broker_is_of_its_own_time(node):
    before_ms = int(time.time() * 1000)
    node.broker.scheduler.now_ms = 1  # of the last batch, long ago

    node.vhost.declare_queue("q")

    [(_, headers)] = told_in_full(node, 1)
    assert headers["timestamp_in_ms"] >= before_ms


def test_event_carries_its_time_node_and_actor(node):
    node.broker.events.on_behalf_of(actor("anna"), node.vhost.declare_queue, "q")
    queue = node.vhost.queue("told")
    node.wait(lambda: queue.ready_count)
    message = Message()
    queue.get(message, True)

    properties = Properties.decode(message.get_properties())
    assert properties.headers["user_who_performed_action"] == "anna"
    assert properties.headers["node"] == events.node_name()
    assert properties.timestamp == properties.headers["timestamp_in_ms"] // 1000 > 1_600_000_000
    assert (properties.delivery_mode, message.get_body(), message.get_exchange()) == (
        2, b"", b"amq.rabbitmq.event"
    )


def test_what_a_deletion_does_in_later_slices_is_told_of_its_user(node, monkeypatch):
    """Bindings of a deleted queue and of a deleted exchange, and exclusive queues;
    nobody else's events meanwhile.
    """
    monkeypatch.setattr(steps_module, "SliceClock", lambda clock: SliceClock(3, clock=StepClock(1)))
    vhost = node.vhost

    def acts(name, do, *arguments):
        node.broker.events.on_behalf_of(actor(name), do, *arguments)

    for number in range(10):
        vhost.declare_queue(f"mine-{number}", exclusive=True, owner=node)
        vhost.declare_queue("doomed")
        vhost.bindings.bind_queue("doomed", "amq.topic", f"k.{number}")
        vhost.declare_exchange("gone", "direct")
        vhost.bindings.bind_queue("told", "gone", f"k.{number}")
    told(node, 10 + 1 + 10 + 1 + 10)

    acts("anna", vhost.delete_queue, "doomed")
    acts("berta", vhost.delete_exchange, "gone")
    acts("carla", vhost.release_owner, node)
    acts("dora", vhost.declare_queue, "another")

    assert Counter(actors(node, 11 + 11 + 10 + 1)) == {
        ("anna", "binding.deleted"): 10, ("anna", "queue.deleted"): 1, ("berta", "binding.deleted"): 10,
        ("berta", "exchange.deleted"): 1,
        ("carla", "queue.deleted"): 10, ("dora", "queue.created"): 1}


def test_headers_are_not_made_when_nobody_is_bound(node):
    node.vhost.bindings.unbind_queue("told", events.NAME, "#")

    queue = node.vhost.declare_queue("q")

    node.broker.events.emit("queue.created", pytest.fail, *queue[:1])


def test_event_that_no_field_holds_does_not_stop_the_others(node):
    node.broker.events.emit("alarm.set", dict, {"huge": 1 << 80})
    node.vhost.declare_queue("q")

    assert [key for key, _ in told(node)] == ["queue.created"]


def test_flood_of_events_leaves_out_the_oldest(node, monkeypatch):
    monkeypatch.setattr(events, "WAITING_EVENTS", 10)
    for number in range(15):
        node.broker.events.emit("alarm.set", lambda number: {"number": number}, number)

    assert [headers["number"] for _, headers in told(node, 10)] == list(range(5, 15))


def test_boot_tells_nothing_and_the_binding_survives_it(node, tmp_path):
    node.vhost.declare_queue("q", durable=True)
    told(node)
    node.stop()

    again = Node(tmp_path / "data", event_exchange=True)
    try:
        assert [binding.routing_key for binding in again.vhost.exchange(events.NAME).bindings()] == ["#"]
        again.vhost.delete_queue("q")
        assert [key for key, _ in told(again)] == ["queue.deleted"]
    finally:
        again.stop()
        node.stop = lambda: None


def test_there_is_no_such_exchange_unless_it_is_asked_for(tmp_path):
    node = Node(tmp_path / "other")
    node.vhost.declare_queue("q")

    assert events.NAME not in node.vhost.exchanges
    node.stop()


def test_listeners_are_told_of_every_event_at_once_and_without_an_exchange(tmp_path):
    node = Node(tmp_path / "data")
    heard = []
    try:
        with no_switch():
            node.vhost.declare_queue("before")
            node.broker.events.subscribe(lambda key, subjects: heard.append((key, subjects[0].name)))
            node.vhost.declare_queue("q")
            node.vhost.delete_queue("q")

        assert heard == [("queue.created", "q"), ("queue.deleted", "q")]
    finally:
        node.stop()


def test_a_listener_of_some_events_is_told_of_no_other_and_of_none_once_it_has_gone(tmp_path):
    node = Node(tmp_path / "data")
    heard = []

    def hear(key, _subjects):
        heard.append(key)

    try:
        node.broker.events.subscribe(hear, ("queue.deleted",))
        node.vhost.declare_queue("q")
        node.vhost.delete_queue("q")
        node.broker.events.unsubscribe(hear)
        node.vhost.declare_queue("q")
        node.vhost.delete_queue("q")

        assert heard == ["queue.deleted"]
    finally:
        node.stop()


def test_a_listener_that_fails_keeps_nothing_from_happening_and_nobody_from_hearing(tmp_path):
    node = Node(tmp_path / "data")
    heard = []
    try:
        node.broker.events.subscribe(lambda key, subjects: 1 / 0)
        node.broker.events.subscribe(lambda key, subjects: heard.append(key))

        node.vhost.declare_queue("q")

        assert (heard, "q" in node.vhost.queues) == (["queue.created"], True)
    finally:
        node.stop()
