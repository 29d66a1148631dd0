"""Parameters: set, checked, heard of, recorded."""
import pytest

from gomq_py.broker.policies.parameters import Component, ParameterError, Parameters
from gomq_py.broker.tables import TableLimits
from gomq_py.global_names import IMPORTED
from tests.support.model import make_vhost


class Listening(Component):
    """Refuses "bad" and writes down the rest."""

    def __init__(self):
        self.heard = []

    def check(self, vhost, name, value):
        if value == "bad":
            raise ParameterError("not that one")

    def changed(self, vhost, name, value):
        self.heard.append(("changed", name, value))

    def cleared(self, vhost, name):
        self.heard.append(("cleared", name))


@pytest.fixture
def model():
    vhost, _, log = make_vhost()
    return Parameters(log, TableLimits()), vhost, log


def test_component_checks_and_hears(model):
    parameters, vhost, log = model
    component = Listening()
    parameters.register("shovel", component)

    parameters.set(vhost, "shovel", "s", {"a": 1})
    with pytest.raises(ParameterError):
        parameters.set(vhost, "shovel", "s", "bad")
    assert parameters.clear(vhost, "shovel", "s")
    assert not parameters.clear(vhost, "shovel", "s")

    assert component.heard == [("changed", "s", {"a": 1}), ("cleared", "s")]
    assert [record["op"] for record in log.records] == ["parameter", "parameter-clear"]
    assert vhost.parameters == {}


def test_component_that_comes_late_leaves_alone_what_was_set_without_it_until_it_is_set_again(model):
    parameters, vhost, _ = model
    parameters.set(vhost, "shovel", "s", 1)
    parameters.set(vhost, "other", "s", 2)
    component = Listening()

    parameters.register("shovel", component, [vhost])
    waited = parameters.waits(vhost, "shovel", "s")
    parameters.set(vhost, "shovel", "s", 3)

    assert component.heard == [("changed", "s", 3)]
    assert waited and not parameters.waits(vhost, "shovel", "s") and parameters.waits(vhost, "other", "s")


def test_component_that_comes_again_hears_of_what_it_was_set_with(model):
    parameters, vhost, _ = model
    parameters.register("shovel", Listening())
    parameters.set(vhost, "shovel", "s", 1)
    component = Listening()

    parameters.register("shovel", component, [vhost])

    assert component.heard == [("changed", "s", 1)]


def test_what_nobody_acts_on_has_a_reason(model):
    parameters, _, _ = model
    parameters.register("policy", Listening())

    assert parameters.idle_parts("shovel", {}) == {"shovel": "this broker has no shovels"}
    assert parameters.idle_parts("mine", {}) == {"mine": "nothing in this broker acts on it"}
    assert parameters.idle_parts("policy", {"definition": {"max-length": 1, "federation-upstream": "u"}}) == {
        "federation-upstream": "this broker has no federation"}
    parameters.register("federation-upstream", Listening())
    assert parameters.idle_parts("policy", {"definition": {"federation-upstream": "u"}}) == {}


@pytest.mark.parametrize("component, value, said, waits", [
    ("shovel", 1, None, True), ("shovel", 1, True, True), ("shovel", 1, False, False),
    ("mine", 1, None, True),
    ("policy", {"definition": {"max-length": 1}}, None, False),
    ("policy", {"definition": {"federation-upstream-set": "all"}}, None, True),
    ("policy", {"definition": {"federation-upstream-set": "all"}}, False, False),
    ("policy", "no policy", None, False),
])
def test_record_says_whether_a_value_waits_and_releases_that_acted_on_none_say_nothing(
    model, component, value, said, waits
):
    parameters, vhost, _ = model
    handler = Listening()
    parameters.register(component, handler)

    assert parameters.restore(vhost, component, "n", value, said) is None

    assert parameters.waits(vhost, component, "n") == waits
    assert bool(handler.heard) == (not waits or component == "policy")


@pytest.mark.parametrize("value", [float("nan"), float("inf"), object(), {1: {2, 3}}, b"octets"])
def test_what_is_not_json_is_refused(model, value):
    parameters, vhost, log = model

    with pytest.raises(ValueError):
        parameters.set(vhost, "any", "n", value)

    assert log.records == []


def test_value_that_is_refused_by_now_is_kept_without_effect(model):
    parameters, vhost, _ = model
    component = Listening()
    parameters.register("shovel", component)

    assert parameters.restore(vhost, "shovel", "s", "bad", False) == "not that one"
    assert parameters.restore(vhost, "shovel", "t", "good", False) is None

    assert component.heard == [("changed", "t", "good")]
    assert vhost.parameters["shovel", "s"] == "bad"


def test_global_values_are_set_and_cleared(model):
    parameters, _, log = model

    parameters.set_global("cluster_name", "ours")
    assert parameters.global_ == {"cluster_name": "ours"}
    assert parameters.clear_global("cluster_name") and not parameters.clear_global("cluster_name")

    assert [record["op"] for record in log.records] == ["global-parameter", "global-parameter-clear"]


def test_internal_values_are_neither_shown_nor_set_nor_cleared_by_users(model):
    parameters, _, log = model

    parameters.set_internal(IMPORTED, {"path": "a.json"})
    with pytest.raises(ParameterError, match="the broker's own"):
        parameters.set_global(IMPORTED, "another")

    assert not parameters.clear_global(IMPORTED)
    assert (parameters.global_, parameters.internal) == ({}, {IMPORTED: {"path": "a.json"}})
    assert [record["op"] for record in log.records] == ["global-parameter"]
