"""Due timer: one timer for the first of many, and what is due in order; its heap: the earliest first,
whatever comes and goes.
"""
import heapq
import tracemalloc

import pytest
from hypothesis import given
from hypothesis import strategies as st

from gomq_py.broker.queues.due_timer import DueHeap, DueTimer
from tests.support.queues import Bench

NUMBERS = st.integers(0, (1 << 64) - 1) | st.integers(0, 5)


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


@given(st.lists(st.none() | st.tuples(NUMBERS, NUMBERS), max_size=400))
def test_heap_gives_what_a_sorted_list_would(steps):
    """None takes the first, a pair adds one."""
    heap, expected = DueHeap(), []
    for step in steps:
        if step is not None:
            heap.push(*step)
            heapq.heappush(expected, step)
        elif expected:
            due_ms, location = heapq.heappop(expected)
            assert (heap.first_due_ms(), heap.pop()) == (due_ms, location)
        assert heap.count == len(expected)

    while expected:
        assert heap.pop() == heapq.heappop(expected)[1]


def test_message_takes_no_more_than_24_octets():
    tracemalloc.start()
    try:
        heap = DueHeap()
        for number in range(100_000):
            heap.push(number * 7919 % 100_003, number)
        octets = tracemalloc.get_traced_memory()[0]
    finally:
        tracemalloc.stop()

    assert octets / heap.count < 24


def test_memory_is_given_back():
    heap = DueHeap()
    tracemalloc.start()
    try:
        for number in range(50_000):
            heap.push(number, number)
        full = tracemalloc.get_traced_memory()[0]
        while heap.count > 10:
            heap.pop()
        left = tracemalloc.get_traced_memory()[0]
    finally:
        tracemalloc.stop()

    assert left < full / 20


@given(st.lists(st.integers(0, 50), max_size=60), st.integers(0, 70))
def test_the_first_are_told_in_order_and_stay(due, count):
    heap = DueHeap()
    for location, due_ms in enumerate(due):
        heap.push(due_ms, location)

    told = heap.first(count)

    assert told == sorted((due_ms, location) for location, due_ms in enumerate(due))[:count]
    assert heap.count == len(due)
