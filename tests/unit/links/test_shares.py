"""Shares: what links may keep is the less the more all of them keep, and never nothing."""
import pytest

from gomq_py.links.shares import ALL_OCTETS, LEAST_OCTETS, MOST_OCTETS, Shares


def full_of(count, run=64 * 1024):
    """Shares of so many links that took runs as long as they might, in turn."""
    shares, kept = Shares(), [0] * count
    while any(one < shares.limit() for one in kept):
        for number in range(count):
            if kept[number] < shares.limit():
                kept[number] += run
                shares.kept_octets += run
    return shares, kept


@pytest.mark.parametrize("count", [1, 2, 4])
def test_few_links_have_the_most_that_one_may_have(count):
    _, kept = full_of(count)

    assert set(kept) == {MOST_OCTETS}


@pytest.mark.parametrize("count", [20, 49, 300])
def test_many_links_keep_no_more_together_than_all_may_and_leave_something(count):
    shares, kept = full_of(count)

    assert shares.kept_octets <= ALL_OCTETS
    assert max(kept) - min(kept) <= 64 * 1024
    assert shares.limit() >= min(kept) - 64 * 1024


def test_when_nothing_is_left_each_may_keep_the_least():
    shares = Shares()
    shares.kept_octets = 2 * ALL_OCTETS

    assert shares.limit() == LEAST_OCTETS
