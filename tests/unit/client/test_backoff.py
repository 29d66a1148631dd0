"""Waits between attempts."""

import pytest

from gomq_py.client.backoff import Attempts, Backoff


def test_waits_double_up_to_the_longest():
    backoff = Backoff(1.0, 30.0, jitter=0)

    assert [backoff.wait_s(attempt) for attempt in (1, 2, 3, 6, 7, 10**9)] == [1, 2, 4, 30, 30, 30]


def test_a_random_part_is_taken_off():
    waits = {Backoff(1.0, jitter=0.5).wait_s(1) for _ in range(50)}

    assert len(waits) > 1 and all(0.5 <= each <= 1 for each in waits)


def test_there_are_so_many_and_no_more():
    assert [Backoff(0, retries=2).wait_s(attempt) for attempt in (1, 2, 3)] == [0, 0, None]


@pytest.mark.parametrize(
    "options",
    [{"first_s": -1}, {"first_s": 5, "most_s": 1}, {"jitter": 2}, {"factor": 0.5}, {"first_s": float("nan")}],
)
def test_what_is_no_backoff_is_refused(options):
    with pytest.raises(ValueError, match="is none"):
        Backoff(**options)


def test_a_success_that_ends_at_once_ends_no_row_of_failures():
    clock = [0.0]
    attempts = Attempts(Backoff(1.0, 30.0, jitter=0), lambda: clock[0])
    waits = []

    for _ in range(7):
        attempts.succeeded()
        clock[0] += 0.5
        waits.append(attempts.failed())

    assert waits == [1, 2, 4, 8, 16, 30, 30]


@pytest.mark.parametrize("lasted_s, wait_s", [(3.9, 4), (4.1, 1)])
def test_a_success_that_lasts_longer_than_the_next_wait_begins_anew(lasted_s, wait_s):
    clock = [0.0]
    attempts = Attempts(Backoff(1.0, 30.0, jitter=0), lambda: clock[0])
    assert [attempts.failed() for _ in range(2)] == [1, 2]

    attempts.succeeded()
    clock[0] += lasted_s

    assert attempts.failed() == wait_s


def test_a_success_that_did_work_begins_anew_however_short_it_was():
    attempts = Attempts(Backoff(1.0, 30.0, jitter=0), lambda: 0.0)
    assert [attempts.failed() for _ in range(3)] == [1, 2, 4]

    attempts.succeeded()
    attempts.worked()

    assert [attempts.failed() for _ in range(2)] == [1, 2]


def test_successes_that_end_at_once_use_up_the_retries():
    attempts = Attempts(Backoff(1.0, retries=2, jitter=0), lambda: 0.0)
    told = []

    for _ in range(3):
        attempts.succeeded()
        told.append(attempts.failed())

    assert told == [1, 2, None]
