"""Audit log: who changed which user, right, policy, vhost, queue or exchange, and by which way."""
import logging

import pytest

from gomq_py.broker.policies.policy import OPERATOR_POLICY, POLICY
from gomq_py.broker.signals import audit_log
from gomq_py.broker.signals.events import Actor
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
        broker.describe_vhost(there, "another")
        broker.delete_vhost("two")
        broker.wait_until_gone("two")

    broker.events.on_behalf_of(Actor(guest, "HTTP", "10.0.0.9:40000"), changes)

    by = "by user 'guest' (HTTP from 10.0.0.9:40000)"
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
        "vhost 'two' created", "vhost 'two' changed", "vhost 'two' deleted")]


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
