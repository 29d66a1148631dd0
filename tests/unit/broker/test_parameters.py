"""Parameters: set, checked, heard of, recorded."""
import pytest

from gomq_py.broker.parameters import Component, ParameterError, Parameters
from gomq_py.broker.tables import TableLimits
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


def test_component_that_comes_late_hears_of_what_is_there(model):
    parameters, vhost, _ = model
    parameters.set(vhost, "shovel", "s", 1)
    parameters.set(vhost, "other", "s", 2)
    component = Listening()

    parameters.register("shovel", component, [vhost])

    assert component.heard == [("changed", "s", 1)]


@pytest.mark.parametrize("value", [float("nan"), float("inf"), object(), {1: {2, 3}}, b"octets"])
def test_what_is_not_json_is_refused(model, value):
    parameters, vhost, log = model

    with pytest.raises(ParameterError):
        parameters.set(vhost, "any", "n", value)

    assert log.records == []


def test_value_that_is_refused_by_now_is_kept_without_effect(model):
    parameters, vhost, _ = model
    component = Listening()
    parameters.register("shovel", component)

    assert parameters.restore(vhost, "shovel", "s", "bad") == "not that one"
    assert parameters.restore(vhost, "shovel", "t", "good") is None

    assert component.heard == [("changed", "t", "good")]
    assert vhost.parameters["shovel", "s"] == "bad"


def test_global_values_are_set_and_cleared(model):
    parameters, _, log = model

    parameters.set_global("cluster_name", "ours")
    assert parameters.global_ == {"cluster_name": "ours"}
    assert parameters.clear_global("cluster_name") and not parameters.clear_global("cluster_name")

    assert [record["op"] for record in log.records] == ["global-parameter", "global-parameter-clear"]
