"""Due heap: the earliest first, whatever comes and goes."""
import heapq
import tracemalloc

from hypothesis import given
from hypothesis import strategies as st

from gomq_py.broker.queues.due_heap import DueHeap

NUMBERS = st.integers(0, (1 << 64) - 1) | st.integers(0, 5)


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
