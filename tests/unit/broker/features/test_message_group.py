"""What names a queue's groups: its argument, or the policy in force when it is declared."""
from types import SimpleNamespace

import pytest

from gomq_py.broker.features.message_group import group_of, limit_of, with_policy

POLICY = {"message-group": "header:customer", "message-group-limit": 3}


@pytest.mark.parametrize("arguments, group", [
    ({}, None), ({"x-message-group": "routing-key"}, ("routing-key", b"")),
    ({"x-message-group": "header:é:b"}, ("header", "é:b".encode())),
    # from definitions that no declare has checked
    ({"x-message-group": 5}, None), ({"x-message-group": "nope"}, None),
    ({"x-message-group": "routing-key", "x-max-priority": 5}, None),
    ({"x-message-group": "routing-key", "x-queue-type": "stream"}, None),
])
def test_unusable_values_mean_no_groups(arguments, group):
    assert group_of(arguments) == group


@pytest.mark.parametrize("existing, arguments, kept", [
    (None, {}, "header:customer"),
    (None, {"x-message-group": "routing-key"}, "routing-key"),
    (None, {"x-max-priority": 5}, None),
    (None, {"x-queue-type": "stream"}, None),
    ({"x-message-group": "header:customer"}, {}, "header:customer"),
    ({"x-message-group": "header:customer"}, {"x-message-group": "routing-key"}, "routing-key"),
    ({}, {}, None),
])
def test_a_declare_takes_the_queues_value_or_the_policys(existing, arguments, kept):
    existing = None if existing is None else SimpleNamespace(arguments=existing)

    assert with_policy(existing, arguments, lambda: POLICY).get("x-message-group") == kept


@pytest.mark.parametrize("existing, arguments, kept", [
    (None, {}, 3), (None, {"x-message-group": "routing-key"}, None), (None, {"x-max-priority": 5}, None),
    ({"x-message-group": "header:customer"}, {}, None),
    ({"x-message-group": "header:customer", "x-message-group-limit": 1}, {}, 1), ({}, {}, None),
])
def test_a_limit_comes_with_what_names_the_groups(existing, arguments, kept):
    existing = None if existing is None else SimpleNamespace(arguments=existing)

    assert with_policy(existing, arguments, lambda: POLICY).get("x-message-group-limit") == kept


@pytest.mark.parametrize("arguments, limit", [
    ({}, 0), ({"x-message-group-limit": 2}, 2), ({"x-message-group-limit": -2}, 0),
    ({"x-message-group-limit": "2"}, 0), ({"x-message-group-limit": 1 << 70}, 0),
])
def test_unusable_limits_are_none(arguments, limit):
    assert limit_of(arguments) == limit
