"""Headers exchange: modes, presence, types."""
import pytest

from gomq_py.errors import PreconditionFailed
from tests.support.model import make_vhost, routed


def bound(arguments):
    vhost, _, _ = make_vhost()
    vhost.declare_queue("q")
    vhost.bindings.bind_queue("q", "amq.headers", "", arguments)
    return vhost


@pytest.mark.parametrize("arguments, headers, expected", [
    ({"x-match": "all", "a": 1, "b": "x"}, {"a": 1, "b": "x", "c": 2}, True),
    ({"a": 1, "b": "x"}, {"a": 1}, False),
    ({"x-match": "any", "a": 1, "b": "x"}, {"b": "x"}, True),
    ({"x-match": "any", "a": 1}, {"a": 2}, False),
    ({"x-match": "all", "x-a": 1}, {}, True),
    ({"x-match": "any", "x-a": 1}, {"x-a": 1}, False),
    ({"x-match": "all-with-x", "x-a": 1}, {}, False),
    ({"x-match": "all-with-x", "x-a": 1}, {"x-a": 1}, True),
    ({"x-match": "any-with-x", "x-a": 1}, {"x-a": 1}, True),
    ({"x-match": "any-with-x", "x-a": 1}, {"x-match": "any-with-x"}, False),
    ({"a": None}, {"a": "whatever"}, True),
    ({"a": None}, {}, False),
    ({"x-match": "any", "a": None}, {"a": 0}, True),
    ({}, None, True),
    ({"x-match": "any"}, {"a": 1}, False),
    ({"a": 1}, {"a": 1.0}, True),
    ({"a": True}, {"a": 1}, False),
    ({"a": 0}, {"a": False}, False),
    ({"a": "x"}, {"a": b"x"}, True),
    ({"a": "1"}, {"a": 1}, False),
    ({"a": {"k": [1, 2]}}, {"a": {"k": [1, 2]}}, True),
    ({"a": {"k": [1, 2]}}, {"a": {"k": [1, True]}}, False),
])
def test_binding_matches(arguments, headers, expected):
    vhost = bound(arguments)

    assert (routed(vhost, "amq.headers", "ignored", headers) == ["q"]) is expected


@pytest.mark.parametrize("mode, text", [
    ("some", 'Invalid x-match field value <<"some">>; expected all, any, all-with-x, or any-with-x'),
    (5, "Invalid x-match field type signedint (value 5); expected longstr"),
])
def test_unknown_mode_is_refused(mode, text):
    vhost, _, _ = make_vhost()
    vhost.declare_queue("q")

    with pytest.raises(PreconditionFailed) as refused:
        vhost.bindings.bind_queue("q", "amq.headers", "", {"x-match": mode})

    assert refused.value.text == text


def test_unbinding_one_of_two_rules_leaves_the_other():
    vhost = bound({"a": 1})
    vhost.bindings.bind_queue("q", "amq.headers", "", {"a": 2})

    vhost.bindings.unbind_queue("q", "amq.headers", "", {"a": 1})

    assert routed(vhost, "amq.headers", "", {"a": 1}) == []
    assert routed(vhost, "amq.headers", "", {"a": 2}) == ["q"]


def test_routes_by_headers_are_not_to_be_cached():
    vhost, _, _ = make_vhost()

    assert vhost.exchange("amq.match").needs_headers
    assert not vhost.exchange("amq.topic").needs_headers
