"""The account of the rounds sees what is lost, comes twice or comes too late, and nothing else."""
from types import SimpleNamespace

import pytest

from tests.cluster_rounds.accounts import QueueAccount, Reading, SessionAccount, StreamAccount


def account_of(sent, confirmed, kind=QueueAccount):
    """``sent``: the generation of each number."""
    account = kind("q")
    account.sent = dict(enumerate(sent))
    account.confirmed = set(confirmed)
    return account


def problems_of(account, *numbers, redelivered=()):
    reading = Reading(account)
    for number in numbers:
        reading.take(number, number in redelivered)
    return account.problems


def test_confirmed_and_never_received_is_lacking():
    account = account_of([1, 1, 1], [0, 2])

    assert problems_of(account, 0) == []
    assert account.lacking() == {2}


@pytest.mark.parametrize("numbers", [(0, 0), (1, 0)])
def test_twice_and_out_of_order_over_one_connection_are_problems(numbers):
    assert problems_of(account_of([1, 1], [0, 1]), *numbers)


def test_redelivered_may_come_again_and_late():
    assert problems_of(account_of([1, 1], [0, 1]), 0, 1, 0, redelivered={0}) == []


def test_another_connection_may_bring_the_same_again():
    account = account_of([1, 1], [0, 1])

    assert problems_of(account, 0, 1) == problems_of(account, 0, 1) == []
    assert account.again == 2


def test_confirmed_behind_what_was_sent_later_by_another_connection_is_a_problem():
    assert problems_of(account_of([1, 2], [0, 1]), 1, 0)


def test_unconfirmed_of_a_lost_connection_may_come_late():
    assert problems_of(account_of([1, 2], [1]), 1, 0) == []


def test_what_nobody_sent_is_a_problem():
    assert problems_of(account_of([1], []), 7)


def test_stream_that_has_another_message_where_a_confirmed_one_was_is_a_problem():
    account = account_of([1, 1, 2], [0, 2], StreamAccount)
    account.places = {0: 0, 1: 1}

    account.check([(0, 0), (1, 2)])
    assert account.problems == []
    account.check([(0, 2)])
    assert account.problems and account.lacking() == {0}


def test_gap_in_a_stream_is_a_problem():
    account = account_of([1, 1], [0, 1], StreamAccount)

    account.check([(0, 0), (2, 1)])

    assert account.problems


@pytest.mark.parametrize(("received", "is_right"), [
    ({1: [0, 1, 0, 1, 3], 2: [0, 1, 3]}, True),  # 2 was refused; QoS 1 may repeat
    ({1: [0, 1, 3], 2: [0, 1, 1, 3]}, False),
    ({1: [0, 1, 3], 2: [0, 3, 1]}, False),
    ({1: [0, 3, 1], 2: [0, 1, 3]}, False),
    ({1: [0, 1, 3], 2: [0, 1]}, False),
])
def test_qos_2_comes_once_and_both_in_order_but_for_what_was_refused(received, is_right):
    publisher = SimpleNamespace(published={1: 4, 2: 4}, refused={1: {2}, 2: {2}})
    account = SessionAccount(publisher, SimpleNamespace(received=received))

    account.check()

    assert (account.problems == []) == is_right
