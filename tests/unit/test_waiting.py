"""How much longer than usual deadlines are is measured once, when a session of tests begins."""
import os

import pytest

from tests.support.waiting import MOST, USUAL_S, patience

CORES = os.cpu_count() or 1


def measured(work_s, load):
    """The patience where the piece of work takes ``work_s`` and ``load`` is the load for each core."""
    times = iter((100.0, 100.0 + work_s))
    return patience({}, lambda: next(times), lambda: (load * CORES, 0.0, 0.0))


@pytest.mark.parametrize("work_s, load, factor", [
    (USUAL_S / 3, 0.2, 1.0),
    (USUAL_S * 3, 0.2, 3.0),  # a slow machine, or one that has just become busy
    (USUAL_S, 4.0, 4.0),
    (USUAL_S * 1000, 0.2, MOST),
])
def test_deadlines_grow_with_the_time_that_work_takes_and_with_the_load(work_s, load, factor):
    assert measured(work_s, load) == pytest.approx(factor, abs=0.1)


def test_what_the_first_process_measured_is_told_to_those_it_starts():
    environment = {}
    first = patience(environment)

    assert patience(environment, clock=None, load=None) == first


def test_what_is_said_is_not_measured():
    assert patience({"GOMQ_TEST_PATIENCE": "12.5"}, clock=None, load=None) == 12.5
