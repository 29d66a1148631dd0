"""Permissions: three expressions, searched in names."""
import pytest

from gomq_py.amqp.wire.errors import AccessRefused
from gomq_py.auth import permissions
from gomq_py.auth.permissions import CONFIGURE, READ, WRITE, Permission


@pytest.mark.parametrize("pattern, name, allowed", [
    (".*", "anything", True), ("^jobs$", "jobs", True), ("^jobs$", "jobs.2", False), ("ob", "jobs", True), ("", "jobs", False), ("^$", "jobs", False),
    ("", "", False), ("^amq\\.default$", "", True), (".*", "", True), ("a|b", "cb", True),
])
def test_expression_is_searched_in_the_name(pattern, name, allowed):
    permission = Permission("ann", "/", pattern, "^$", "^$")

    assert permission.allows(CONFIGURE, name) is allowed
    assert permission.allows(CONFIGURE, name) is allowed
    assert not permission.allows(WRITE, name)


def test_refusal_names_user_right_and_entity():
    permission = Permission("ann", "shop", "", ".*", "")

    with pytest.raises(AccessRefused) as refused:
        permission.check(READ, "queue", "jobs")

    assert refused.value.text == "read access to queue 'jobs' in vhost 'shop' refused for user 'ann'"
    permission.check(WRITE, "exchange", "")


def test_bad_expression_is_refused():
    with pytest.raises(ValueError, match="invalid regular expression"):
        Permission("ann", "/", "(", "", "")


def test_remembered_answers_are_bounded(monkeypatch):
    monkeypatch.setattr(permissions, "CACHED_NAMES", 10)
    permission = Permission("ann", "/", "5$", "", "")

    answers = [permission.allows(CONFIGURE, f"q{number}") for number in range(30)]

    assert [number for number, allowed in enumerate(answers) if allowed] == [5, 15, 25]
