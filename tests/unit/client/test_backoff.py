"""Waits between attempts."""

import pytest

from gomq_py.client.backoff import Backoff


def test_waits_double_up_to_the_longest():
    backoff = Backoff(1.0, 30.0, jitter=0)

    assert [backoff.wait_s(attempt) for attempt in (1, 2, 3, 6, 7, 10**9)] == [1, 2, 4, 30, 30, 30]


def test_a_random_part_is_taken_off():
    waits = {Backoff(1.0, jitter=0.5).wait_s(1) for _ in range(50)}

    assert len(waits) > 1 and all(0.5 <= each <= 1 for each in waits)


def test_there_are_so_many_and_no_more():
    assert [Backoff(0, retries=2).wait_s(attempt) for attempt in (1, 2, 3)] == [0, 0, None]


@pytest.mark.parametrize(
    "options", [{"first_s": -1}, {"first_s": 5, "most_s": 1}, {"jitter": 2}, {"factor": 0.5}, {"first_s": float("nan")}]
)
def test_what_is_no_backoff_is_refused(options):
    with pytest.raises(ValueError, match="is none"):
        Backoff(**options)
