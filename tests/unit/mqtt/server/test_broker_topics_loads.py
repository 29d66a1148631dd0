"""Averages of what happens in a minute."""
import math

import pytest

from gomq_py.mqtt.server.broker_topics import Loads


def test_steady_rate_is_every_average():
    loads = Loads()

    assert loads.updated({"a": 100}, 1000.0) == {}
    assert loads.updated({"a": 110}, 1010.0) == {"a/1min": 60, "a/5min": 60, "a/15min": 60}
    assert loads.updated({"a": 130}, 1030.0) == {"a/1min": 60, "a/5min": 60, "a/15min": 60}


def test_what_is_long_ago_weighs_less():
    loads = Loads()
    loads.updated({"a": 0}, 0.0)
    loads.updated({"a": 60}, 60.0)

    found = loads.updated({"a": 60}, 120.0)

    assert found == pytest.approx({
        "a/1min": 60 * math.exp(-1), "a/5min": 60 * math.exp(-1 / 5), "a/15min": 60 * math.exp(-1 / 15)})


def test_moment_changes_no_average_and_is_not_forgotten():
    loads = Loads()
    loads.updated({"a": 0}, 0.0)

    assert loads.updated({"a": 50}, 0.5) == {}
    assert loads.updated({"a": 50}, 10.0)["a/1min"] == 300
