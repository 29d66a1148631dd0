"""The time of a slice: over when it has passed, looked at as seldom as the caller says."""
from gomq_py.hub.job import SliceClock
from tests.support.clocks import StepClock


def test_a_slice_is_over_when_its_time_has_passed_and_stays_so_until_the_next_begins():
    clock = StepClock(0.001)
    slice_clock = SliceClock(0.0035, clock=clock)

    assert [slice_clock.is_over() for _ in range(6)] == [False, False, False, True, True, True]
    slice_clock.begin()
    assert not slice_clock.is_over()


def test_the_clock_is_looked_at_once_in_so_many_items():
    clock = StepClock(0.001)
    slice_clock = SliceClock(0.0025, every=10, clock=clock)

    items = 1
    while not slice_clock.is_over():
        items += 1

    assert items == 30 and clock.looks == 4


def test_a_first_item_that_takes_long_ends_the_slice():
    clock = StepClock(0)
    slice_clock = SliceClock(0.002, clock=clock)
    clock.now += 1

    assert slice_clock.is_over()
