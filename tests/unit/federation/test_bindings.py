"""Bindings of a federated exchange: what is to be done upstream, and how far bindings spread."""
import pytest

from gomq_py.federation.bindings import Bindings, arguments_upstream
from tests.support.model import make_vhost


@pytest.fixture
def vhost():
    vhost, _, _ = make_vhost()
    vhost.declare_exchange("fed", "topic")
    for name in "ab":
        vhost.declare_queue(name)
    return vhost


class Mirror:
    """Bindings that hear of a vhost's, as the supervisor tells them."""

    def __init__(self, vhost):
        self.calls = 0
        exchange = vhost.exchange("fed")
        self.bindings = Bindings(exchange, self._changed)
        vhost._events.subscribe(self._heard)
        self.exchange = exchange

    def _changed(self):
        self.calls += 1

    def _heard(self, key, subjects):
        if key == "binding.created" and subjects[0].source is self.exchange:
            self.bindings.made(subjects[0])
        elif key == "binding.deleted" and subjects[0].source is self.exchange:
            self.bindings.gone(subjects[0])


def test_bindings_that_ask_for_the_same_are_one_upstream_up_to_the_last(vhost):
    vhost.bindings.bind_queue("a", "fed", "k.#")
    mirror = Mirror(vhost)

    first = mirror.bindings.begin()
    vhost.bindings.bind_queue("b", "fed", "k.#")
    vhost.bindings.unbind_queue("a", "fed", "k.#")
    between = mirror.bindings.take_changes()
    vhost.bindings.unbind_queue("b", "fed", "k.#")

    assert first == [("k.#", {})]
    assert between == []
    assert mirror.bindings.take_changes() == [("k.#", {}, False)]
    assert mirror.bindings.take_changes() == [] and not mirror.bindings.has_changes


def test_what_changes_while_all_bindings_are_made_is_done_afterwards(vhost):
    vhost.bindings.bind_queue("a", "fed", "old")
    mirror = Mirror(vhost)
    mirror.bindings.begin()

    vhost.bindings.bind_queue("a", "fed", "new", {"n": 1})
    vhost.delete_queue("b")
    vhost.bindings.unbind_queue("a", "fed", "old")

    assert mirror.bindings.take_changes() == [("new", {"n": 1}, True), ("old", {}, False)]


def test_binding_that_comes_and_goes_costs_nothing_upstream(vhost):
    mirror = Mirror(vhost)
    mirror.bindings.begin()

    vhost.bindings.bind_queue("a", "fed", "k")
    vhost.bindings.unbind_queue("a", "fed", "k")

    assert mirror.bindings.take_changes() == []
    assert mirror.calls == 2


def test_arguments_are_part_of_what_is_asked_for(vhost):
    mirror = Mirror(vhost)
    vhost.bindings.bind_queue("a", "fed", "k", {"n": 1})
    vhost.bindings.bind_queue("a", "fed", "k", {"n": True})
    vhost.bindings.bind_queue("b", "fed", "k", {"n": 1})

    assert mirror.bindings.begin() == [("k", {"n": 1}), ("k", {"n": True})]


HERE, THERE = ("me", "/", "/:fed A"), ("up", "/")


def bound_from(*hops, name="down"):
    return {"x-bound-from": [{"cluster-name": name, "vhost": "/", "hops": each} for each in hops]}


@pytest.mark.parametrize("arguments, max_hops, hops", [
    ({}, 1, 1), ({}, 3, 3), (bound_from(1), 3, None), (bound_from(3), 3, 2), (bound_from(5), 2, 2),
    (bound_from(3, 9), 3, 2), (bound_from(3, name="up"), 3, None), ({"x-bound-from": "text"}, 1, 1),
    ({"x-bound-from": ["text"]}, 3, None), ({"x-bound-from": [{}]}, 3, None),
    ({}, 1 << 40, 32767), ({}, 0, None), (bound_from(3), 0, None),
])
def test_binding_spreads_as_far_as_it_may_and_not_back(arguments, max_hops, hops):
    made = arguments_upstream({"own": 1, **arguments}, HERE, THERE, max_hops)

    if hops is None:
        assert made is None
    else:
        passed = arguments.get("x-bound-from")
        assert made == {"own": 1, "x-bound-from": [
            {"cluster-name": "me", "vhost": "/", "exchange": "/:fed A", "hops": hops},
            *(passed if isinstance(passed, list) else [])]}
