"""Permissions: three expressions, searched in names."""
import tracemalloc

import pytest

from gomq_py.auth import permissions
from gomq_py.auth.permissions import CONFIGURE, READ, WRITE, Permission, TopicPermission


@pytest.mark.parametrize("pattern, name, allowed", [
    (".*", "anything", True), ("^jobs$", "jobs", True), ("^jobs$", "jobs.2", False), ("ob", "jobs", True),
    ("", "jobs", False), ("^$", "jobs", False),
    ("", "", False), ("^amq\\.default$", "", True), (".*", "", True), ("a|b", "cb", True),
])
def test_expression_is_searched_in_the_name(pattern, name, allowed):
    permission = Permission("ann", "/", pattern, "^$", "^$")

    assert permission.allows(CONFIGURE, name) is allowed
    assert permission.allows(CONFIGURE, name) is allowed
    assert not permission.allows(WRITE, name)


def test_bad_expression_is_refused():
    with pytest.raises(ValueError, match="invalid regular expression"):
        Permission("ann", "/", "(", "", "")


def test_remembered_answers_are_bounded(monkeypatch):
    monkeypatch.setattr(permissions, "CACHED_NAMES", 10)
    permission = Permission("ann", "/", "5$", "", "")

    answers = [permission.allows(CONFIGURE, f"q{number}") for number in range(30)]

    assert [number for number, allowed in enumerate(answers) if allowed] == [5, 15, 25]


def test_names_that_everything_is_granted_on_are_not_kept():
    """A client that declares a new name each time would otherwise fill some 2 MB with them, for a user who
    may do everything."""
    permission = Permission("ann", "/", ".*", ".*", ".*")
    permission.allows(WRITE, "q")
    tracemalloc.start()
    before = tracemalloc.get_traced_memory()[0]

    verbs = (CONFIGURE, WRITE, READ)
    granted = all(permission.allows(verb, f"q{n}\n") for n in range(2000) for verb in verbs)

    grown = tracemalloc.get_traced_memory()[0] - before
    tracemalloc.stop()
    assert granted and grown < 10_000


def test_expression_that_would_never_end_refuses(caplog):
    permission = Permission("ann", "/", "^(a|aa)+$", "", "")

    assert not permission.allows(CONFIGURE, "a" * 250 + "!")
    assert "takes too long" in caplog.text


@pytest.mark.parametrize("write, routing_key, allowed", [
    ("^a\\.", "a.b", True), ("^a\\.", "b.a.", False), ("", "a", False), ("", "", True),
    ("^{username}\\.", "ann.x", True),
    ("^{username}\\.", "bob.x", False), ("^{vhost}-", "shop-1", True),
])
def test_topic_expression_is_searched_in_the_routing_key(write, routing_key, allowed):
    limit = TopicPermission("ann", "shop", "x", write, "^$")

    assert limit.allows(WRITE, routing_key) is allowed
    assert not limit.allows(READ, routing_key or "-")


def test_names_in_a_topic_expression_stand_for_themselves():
    limit = TopicPermission(".*", "a|b", "x", "^{username}$", "^{vhost}$")

    assert limit.allows(WRITE, ".*") and not limit.allows(WRITE, "anything")
    assert limit.allows(READ, "a|b") and not limit.allows(READ, "a")


def test_client_id_in_a_topic_expression_is_the_connections(monkeypatch):
    monkeypatch.setattr(permissions, "CACHED_CLIENTS", 2)
    limit = TopicPermission("ann", "/", "x", "^{client_id}\\.", ".*")

    answers = [limit.allows(WRITE, "c1.temperature", client) for client in ("c1", "c2", "c.", "c1", None)]

    assert answers == [True, False, False, True, False]
