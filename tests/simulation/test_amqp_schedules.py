"""The judge of schedules: what breaks a promise by hand is found."""
import pytest

from tests.simulation.amqp_schedules import ScheduleLedger, unix_ms
from tests.simulation.world import World

FIELDS = {"every": 1000, "missed": "all"}


@pytest.fixture
def world():
    return World(1)


@pytest.fixture
def ledger(world):
    """A schedule "a" was set, and four seconds have passed."""
    ledger = ScheduleLedger(world, "s")
    accepted(ledger, FIELDS)
    until(ledger, 4)
    return ledger


def accepted(ledger, fields):
    order, _ = ledger.order("a", fields)
    ledger.accept(order)
    return order


def until(ledger, at_s):
    """Seconds since it was set, as below."""
    ledger.world.run(ledger.orders[0].asked_s + at_s)


def come(ledger, *seconds, redelivered=False):
    for at_s in seconds:
        ledger.deliver(0, "a", round(unix_ms(ledger.orders[0].asked_s + at_s)), redelivered)


def found(world, text):
    finding, = world.findings
    return text in finding


def test_each_time_once_is_as_promised(world, ledger):
    come(ledger, 1, 2, 3, 4)
    ledger.check_gaps()

    assert not world.findings


@pytest.mark.parametrize("at_s, text", [
    (5.5, "came before its time"), (-1, "a time before it was set")])
def test_time_that_is_none_is_found(world, ledger, at_s, text):
    come(ledger, at_s)

    assert found(world, text)


def test_time_that_is_left_out_is_found(world, ledger):
    come(ledger, 1, 2, 4)
    ledger.check_gaps()

    assert found(world, "has left out a time")


def test_schedule_that_begins_late_is_found(world, ledger):
    come(ledger, 2, 3)
    ledger.check_gaps()

    assert found(world, "began at")


def test_time_that_comes_twice_is_found_unless_it_came_back(world, ledger):
    come(ledger, 2)
    come(ledger, 2, redelivered=True)
    assert not world.findings

    come(ledger, 2)

    assert found(world, "came twice")


@pytest.mark.parametrize("shake", [
    ScheduleLedger.process_ended, lambda ledger: ledger.disk_is_ill(False),
    lambda ledger: ledger.disk_is_full(True)])
def test_kill_and_ill_disk_may_repeat_one(world, ledger, shake):
    shake(ledger)
    come(ledger, 4, 4)

    assert not world.findings


def test_schedule_that_goes_on_behind_its_deletion_is_found_once_the_disk_knows(world, ledger):
    accepted(ledger, None)
    until(ledger, 4.5)
    come(ledger, 4.4)
    assert not world.findings

    until(ledger, 6)
    come(ledger, 5.4)

    assert found(world, "was deleted or replaced before that")


def test_schedule_that_goes_on_behind_its_successor_is_found(world, ledger):
    accepted(ledger, FIELDS)
    until(ledger, 4.5)
    come(ledger, 4.4)

    assert found(world, "was deleted or replaced before that")


def test_schedule_that_stops_is_found(world, ledger):
    come(ledger, 1)
    assert ledger.to_delete() == ["b"]

    ledger.check_complete()

    assert any("0 of 'a' is in force, and sends nothing any more" in finding for finding in world.findings)
