"""MemoryBudget: what links may keep is the less the more all of them keep, and never nothing."""
import pytest

from gomq_py.links.buffers import ALL_OCTETS, LEAST_OCTETS, MOST_OCTETS, MemoryBudget

MIB = 1 << 20


def full_of(count, run=64 * 1024):
    """MemoryBudget of so many links that took runs as long as they might, in turn."""
    budget, kept = MemoryBudget(), [0] * count
    while any(one < budget.limit() for one in kept):
        for number in range(count):
            if kept[number] < budget.limit():
                kept[number] += run
                budget.keep(run)
    return budget, kept


@pytest.mark.parametrize("count", [1, 2, 4])
def test_few_links_have_the_most_that_one_may_have(count):
    _, kept = full_of(count)

    assert set(kept) == {MOST_OCTETS}


@pytest.mark.parametrize("count", [20, 49, 300])
def test_many_links_keep_no_more_together_than_all_may_and_leave_something(count):
    budget, kept = full_of(count)

    assert budget.kept_octets <= ALL_OCTETS
    assert max(kept) - min(kept) <= 64 * 1024
    assert budget.limit() >= min(kept) - 64 * 1024


def test_when_nothing_is_left_each_may_keep_the_least():
    budget = MemoryBudget()
    budget.kept_octets = 2 * ALL_OCTETS

    assert budget.limit() == LEAST_OCTETS


def test_links_of_one_user_leave_those_of_another_more_than_the_least():
    budget = MemoryBudget()
    for _ in range(300):
        kept = 0
        while kept < budget.limit(("greedy", "/")):
            budget.keep(LEAST_OCTETS, ("greedy", "/"))
            kept += LEAST_OCTETS
    assert budget.limit(("greedy", "/")) == LEAST_OCTETS

    assert budget.limit(("calm", "/")) >= MIB and budget.limit(("greedy", "calm")) >= MIB


def test_many_users_keep_no_more_than_half_as_much_again_and_the_least_of_each_link():
    budget = MemoryBudget()
    for user in range(100):
        kept = 0
        while kept < budget.limit((user, "/")):
            budget.keep(LEAST_OCTETS, (user, "/"))
            kept += LEAST_OCTETS

    assert budget.kept_octets <= ALL_OCTETS * 3 // 2 + 100 * LEAST_OCTETS


def test_nothing_is_known_of_who_keeps_nothing():
    budget = MemoryBudget()
    budget.keep(5, ("user", "/"))

    budget.keep(-5, ("user", "/"))

    assert budget.kept_octets == 0 and not budget._of_accounts
