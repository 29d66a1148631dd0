"""Promises: each is kept when every required node has it, in the order of asking, and never otherwise."""
import pytest

from gomq_py.cluster.core.promises import Promises

A, B, C = "a" * 32, "b" * 32, "c" * 32


@pytest.fixture
def answers():
    return []


@pytest.fixture
def promises():
    promises = Promises()
    promises.hold(False)
    return promises


def ask(promises, answers, *positions):
    for position in positions:
        promises.ask(position, lambda error, position=position: answers.append((position, error)))


def test_without_required_nodes_the_local_disk_is_enough(promises, answers):
    ask(promises, answers, 3)

    assert answers == [(3, None)]
    assert (promises.promised, promises.asked, len(promises)) == (3, None, 0)


def test_a_promise_waits_for_the_slowest_required_node(promises, answers):
    promises.require({A, B})
    ask(promises, answers, 1, 2, 3)

    promises.acknowledged(A, 3)
    promises.acknowledged(B, 2)

    assert answers == [(1, None), (2, None)]
    assert (promises.promised, promises.asked, len(promises)) == (2, 3, 1)


def test_a_node_that_is_not_required_counts_for_nothing(promises, answers):
    promises.require({A})
    ask(promises, answers, 1)

    promises.acknowledged(C, 9)

    assert answers == []


def test_what_a_node_has_counts_when_it_is_required_later(promises, answers):
    promises.acknowledged(A, 5)
    promises.require({A})
    ask(promises, answers, 5, 6)

    assert answers == [(5, None)]


def test_promises_go_on_when_a_node_is_not_required_any_more(promises, answers):
    promises.require({A, B})
    ask(promises, answers, 1)
    promises.acknowledged(A, 1)

    promises.require({A})

    assert answers == [(1, None)]


def test_less_than_before_takes_nothing_back(promises, answers):
    promises.require({A})
    promises.acknowledged(A, 5)

    promises.acknowledged(A, 2)
    ask(promises, answers, 4)

    assert answers == [(4, None)]


def test_nothing_is_promised_at_first(answers):
    promises = Promises()
    ask(promises, answers, 1)

    assert answers == []


def test_nothing_is_promised_while_held(promises, answers):
    promises.require({A})
    promises.hold(True)
    ask(promises, answers, 1, 2)
    promises.acknowledged(A, 2)
    assert answers == []

    promises.hold(False)

    assert answers == [(1, None), (2, None)]


def test_a_deposed_leader_keeps_no_promise(promises, answers):
    error = RuntimeError("deposed")
    promises.require({A})
    ask(promises, answers, 1, 2)

    promises.refuse(error)
    promises.acknowledged(A, 9)
    promises.require(())
    ask(promises, answers, 3)

    assert answers == [(1, error), (2, error), (3, error)]
    assert promises.promised == 0


def test_the_first_error_stays(promises, answers):
    first = RuntimeError("deposed")
    promises.refuse(first)
    promises.refuse(RuntimeError("again"))

    ask(promises, answers, 1)

    assert answers == [(1, first)]


def test_a_callback_that_asks_again_is_answered_in_order(promises, answers):
    promises.require({A})
    promises.ask(1, lambda error: ask(promises, answers, 2))
    ask(promises, answers, 1)

    promises.acknowledged(A, 2)

    assert answers == [(1, None), (2, None)]


def test_a_callback_that_holds_stops_the_rest(promises, answers):
    promises.require({A})
    promises.ask(1, lambda error: promises.hold(True))
    ask(promises, answers, 1)

    promises.acknowledged(A, 2)

    assert answers == []


def test_a_callback_that_deposes_refuses_the_rest(promises, answers):
    error = RuntimeError("deposed")
    promises.require({A})
    promises.ask(1, lambda _: promises.refuse(error))
    ask(promises, answers, 1)

    promises.acknowledged(A, 2)

    assert answers == [(1, error)]
