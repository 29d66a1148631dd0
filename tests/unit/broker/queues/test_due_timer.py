"""Due timer: one timer for the first of many, and what is due in order."""
import pytest

from gomq_py.broker.queues.due_timer import DueTimer
from tests.support.queues import Bench


@pytest.fixture
def bench(tmp_path):
    return Bench(tmp_path)


@pytest.fixture
def calls():
    return []


@pytest.fixture
def due(bench, calls):
    return DueTimer(bench.timers, lambda: calls.append(bench.now_ms))


def test_it_says_when_the_first_is_due_and_gives_those_that_are_in_order(bench, due, calls):
    now_ms = bench.now_ms
    for after_ms, location in ((30, 3), (10, 1), (10, 2)):
        due.push(now_ms + after_ms, location)
    due.arm()

    bench.advance(20)

    assert calls == [now_ms + 10] and due.has_due()
    assert [due.take(), due.take(), due.take()] == [1, 2, None] and (due.count, due.has_due()) == (1, False)


def test_one_that_is_due_earlier_moves_the_timer_and_one_that_is_due_later_does_not(bench, due, calls):
    now_ms = bench.now_ms
    for after_ms in (20, 30, 10):
        due.push(now_ms + after_ms, after_ms)
        due.arm()

    assert bench.timers.started == 2 and len(bench.timers.pending) == 1
    bench.advance(10)

    assert calls == [now_ms + 10]


def test_everything_is_due_once_it_is_hastened(bench, due, calls):
    due.push(bench.now_ms + 1000, 1)
    due.arm()

    due.hasten()
    due.push(bench.now_ms + 2000, 2)

    assert calls == [bench.now_ms] and [due.take(), due.take()] == [1, 2] and bench.timers.pending == []


def test_nothing_is_due_once_it_is_stopped(bench, due, calls):
    due.push(bench.now_ms + 1, 1)
    due.arm()

    due.stop()
    due.hasten()
    due.arm()
    bench.advance(5)

    assert calls == [] and due.take() is None and bench.timers.pending == []
