"""Audit log: who changed which user, right, policy, vhost, queue or exchange, and by which way."""
import logging
from types import SimpleNamespace
from typing import Any, NamedTuple

import pytest

from gomq_py.broker.policies.policy import OPERATOR_POLICY, POLICY
from gomq_py.broker.signals import audit_log
from gomq_py.broker.signals.events import INTERNAL, Actor, Events
from tests.support.node import Node


@pytest.fixture
def node(tmp_path):
    node = Node(tmp_path / "data")
    yield node
    node.stop()


@pytest.fixture
def lines(caplog):
    caplog.set_level(logging.INFO, audit_log.LOG.name)
    return lambda: [text for name, _, text in caplog.record_tuples if name == audit_log.LOG.name]


def test_each_change_of_an_administrator_is_one_line(node, lines):
    broker, vhost = node.broker, node.vhost
    guest = broker.users.get("guest")

    def changes():
        broker.users.set_user("aud", password="first-secret", tags=("monitoring",))
        broker.users.set_user("aud", password="second-secret", tags=("monitoring",))
        broker.users.set_permission("aud", "/", "^a", "^b", "^c")
        broker.users.set_topic_permission("aud", "/", "amq.topic", "^w", "^r")
        broker.users.delete_topic_permissions("aud", "/", "amq.topic")
        broker.users.delete_permission("aud", "/")
        broker.users.delete_user("aud")
        policy = {"pattern": "^p", "definition": {"max-length": 5}, "apply-to": "queues", "priority": 1}
        broker.parameters.set(vhost, POLICY, "p", policy)
        broker.parameters.set(vhost, OPERATOR_POLICY, "o", policy)
        broker.parameters.clear(vhost, POLICY, "p")
        broker.parameters.set(vhost, "vhost-limits", "limits", {"max-queues": 9})
        broker.parameters.set(vhost, "of nobody", "x", {"key": "third-secret"})
        broker.parameters.set_global("g", "fourth-secret")
        vhost.declare_queue("q", durable=True)
        vhost.delete_queue("q")
        vhost.declare_exchange("x", "topic")
        vhost.delete_exchange("x")
        there = broker.create_vhost("two")
        there.declare_queue("of two", auto_delete=True)
        there.declare_exchange("of two", "topic", auto_delete=True)
        broker.describe_vhost(there, "another")
        for _ in range(2):
            there.set_tracing(True)
        broker.delete_vhost("two")
        broker.wait_until_gone("two")

    broker.events.on_behalf_of(Actor(guest, "HTTP", "10.0.0.9:40000"), changes)

    by = "by user 'guest' (HTTP from 10.0.0.9:40000)"
    rest = "'tags': [], 'default_queue_type': 'classic', 'protected_from_deletion': False"
    values = "pattern '^p', apply-to 'queues', definition {'max-length': 5}, priority 1"
    assert lines() == [f"{line} {by}" for line in (
        "user 'aud' created", "tags of user 'aud' set to ['monitoring']", "password of user 'aud' changed",
        "permissions of user 'aud' in vhost '/' set: configure '^a', write '^b', read '^c'",
        "topic permissions of user 'aud' in exchange 'amq.topic' of vhost '/' set: write '^w', read '^r'",
        "topic permissions of user 'aud' in exchange 'amq.topic' of vhost '/' deleted",
        "permissions of user 'aud' in vhost '/' deleted", "user 'aud' deleted",
        f"policy 'p' in vhost '/' set: {values}", f"operator policy 'o' in vhost '/' set: {values}",
        "policy 'p' in vhost '/' deleted", "limits of vhost '/' set to {'max-queues': 9}",
        "parameter 'x' of component 'of nobody' in vhost '/' set",
        "parameter 'g' of component 'global' set",
        "queue 'q' in vhost '/' created", "queue 'q' in vhost '/' deleted",
        "exchange 'x' in vhost '/' created", "exchange 'x' in vhost '/' deleted",
        "vhost 'two' created",
        f"vhost 'two' changed to {{'description': 'another', {rest}, 'tracing': False}}",
        f"vhost 'two' changed to {{'description': 'another', {rest}, 'tracing': True}}",
        "vhost 'two' deleted with 1 queue(s) and 1 exchange(s)")]


def test_what_the_broker_does_by_itself_names_no_user(node, lines):
    node.vhost.declare_queue("q")

    assert lines() == ["queue 'q' in vhost '/' created by the broker"]


@pytest.mark.parametrize("properties", [{"auto_delete": True}, {"exclusive": True, "owner": object()}])
def test_queue_that_ends_with_its_client_is_told_at_debug_only(node, lines, caplog, properties):
    node.vhost.declare_queue("quiet", **properties)
    assert not lines()

    caplog.set_level(logging.DEBUG, audit_log.LOG.name)
    node.vhost.declare_queue("told", **properties)

    assert lines() == ["queue 'told' in vhost '/' created by the broker"]


@pytest.mark.parametrize("text", ["N" * 1_000_000, "\x1b[2J" * 300_000, "\U0010ffff\u202e" * 300_000],
                         ids=["long", "terminal", "turned"])
def test_line_of_any_name_is_short_and_printable(node, lines, text):
    broker, vhost = node.broker, node.vhost
    broker.users.set_user("ann", password="x", tags=("administrator",))
    actor = Client(broker.users.get("ann"), "AMQP 0-9-1", "10.0.0.7:1", {"connection_name": text})

    def changes():
        broker.parameters.set(vhost, POLICY, text, {"pattern": "^p", "definition": {"max-length": 5}})
        broker.parameters.set_global(text, 1)
        vhost.declare_queue(text[:60])

    broker.events.on_behalf_of(actor, changes)

    told = lines()[2:]
    assert len(told) == 3 and all(len(line) < 3 * audit_log.SHOWN_MAX and line.isprintable() for line in told)


class Client(NamedTuple):
    """An actor with properties, as a connection has them."""

    user: Any
    protocol: str
    peer: str
    client_properties: dict


def test_user_who_is_no_administrator_has_a_budget_of_lines(tmp_path, caplog):
    """A flood ends with a line that says so, and the next interval begins with the number of changes left
    out. The lines of others are all there.
    """
    caplog.set_level(logging.INFO, audit_log.LOG.name)
    now_s, events = [0.0], Events(None)
    audit_log.AuditLog(events, now_s=lambda: now_s[0])
    ann, boss, auto = (
        Actor(SimpleNamespace(name="ann", tags=("management",)), "HTTP"),
        Actor(SimpleNamespace(name="boss", tags=("administrator",)), "HTTP"), INTERNAL)

    def told(actor, count):
        before = len(caplog.messages)
        for number in range(count):
            queue = SimpleNamespace(name=f"q{number}", vhost="/")
            events.emit_for(actor, "queue.created", dict, queue)
        return caplog.messages[before:]

    assert len(told(ann, audit_log.LINES_MAX)) == audit_log.LINES_MAX
    assert told(ann, 5) == ["1000 changes by user 'ann' within 600 s: further ones are counted but not told"]
    assert len(told(auto, 1)) == 1
    assert len(told(boss, audit_log.LINES_MAX + 5)) == audit_log.LINES_MAX + 5
    assert len(told(INTERNAL._replace(protocol="import of x"), 2000)) == 2000
    now_s[0] = audit_log.LINES_S
    assert told(ann, 1) == [
        "5 changes by user 'ann' were left out", "queue 'q0' in vhost '/' created by user 'ann' (HTTP)"]


def test_budgets_of_any_number_of_users_are_bounded(caplog):
    caplog.set_level(logging.INFO, audit_log.LOG.name)
    events = Events(None)
    log = audit_log.AuditLog(events)

    for number in range(audit_log.USERS_MAX + 10):
        actor = Actor(SimpleNamespace(name=f"u{number}", tags=()), "HTTP")
        events.emit_for(actor, "queue.deleted", dict, SimpleNamespace(name="q", vhost="/"))

    assert len(log._budgets) == audit_log.USERS_MAX
