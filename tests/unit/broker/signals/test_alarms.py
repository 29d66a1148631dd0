"""Alarms: several at once, and who hears of them."""
import pytest

from gomq_py.broker.signals.alarms import Alarms


@pytest.fixture
def alarms():
    return Alarms()


@pytest.fixture
def heard(alarms):
    """The reasons that a listener was told."""
    told = []
    alarms.subscribe(told.append)
    return told


def test_alarm_is_told_when_it_comes_and_when_it_goes(alarms, heard):
    alarms.set("watch", "memory")
    alarms.set("watch", "memory")
    alarms.clear("watch")
    alarms.clear("watch")

    assert heard == ["low on memory", None]


def test_publishers_are_held_until_the_last_alarm_is_over(alarms, heard):
    alarms.set("watch", "memory")
    alarms.set("other watch", "disk")

    assert alarms.reason == "low on memory & disk"
    assert alarms.is_on("memory") and alarms.is_on("disk") and alarms.is_on()
    alarms.clear("watch")
    assert heard == ["low on memory"] and alarms.resources == ["disk"] and not alarms.is_on("memory")
    alarms.clear("other watch")
    assert heard == ["low on memory", None] and not alarms.is_on() and alarms.reason is None


def test_two_who_find_the_same_are_one_reason(alarms):
    alarms.set("watch", "disk")
    alarms.set("a test", "disk")

    assert alarms.resources == ["disk"]
    alarms.clear("watch")
    assert alarms.is_on("disk")


def test_who_subscribes_during_an_alarm_hears_of_it(alarms):
    alarms.set("watch", "disk")
    told = []

    alarms.subscribe(told.append)

    assert told == ["low on disk"]
