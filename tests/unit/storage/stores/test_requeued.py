"""Requeued: the heap of locations and the table of counts do what sorted() and a dict do."""
from hypothesis import given, strategies as st

from gomq_py.storage.stores.requeued import DeliveryCounts, LocationHeap

LOCATIONS = st.integers(1, 60).map(lambda number: number << 28 | number * 80)


@given(st.lists(st.tuples(st.sampled_from(["push", "pop", "remove"]), LOCATIONS), max_size=200))
def test_the_heap_gives_the_lowest_first_whatever_comes_and_goes(steps):
    heap, model = LocationHeap(), []
    for step, location in steps:
        if step == "push" and location not in model:
            heap.push(location)
            model.append(location)
        elif step == "pop" and model:
            assert heap.pop() == min(model)
            model.remove(min(model))
        elif step == "remove" and location in model:
            heap.remove(location)
            model.remove(location)
        assert heap.count == len(model)
        if model:
            assert heap.first() == min(model)


def test_the_heap_grows_and_shrinks_again():
    heap = LocationHeap()
    for location in range(10000, 0, -1):
        heap.push(location)

    assert [heap.pop() for _ in range(10000)] == list(range(1, 10001))


@given(st.lists(
    st.tuples(st.booleans(), LOCATIONS, st.integers(0, 1000), st.integers(0, 1000)), max_size=300
))
def test_the_counts_are_those_that_were_put_last(steps):
    counts, model = DeliveryCounts(), {}
    for put, location, failed, entry in steps:
        if put:
            counts.put(location, failed, entry)
            model[location] = failed, entry
        else:
            counts.discard(location)
            model.pop(location, None)
        assert counts.count == len(model)

    for number in range(1, 61):
        location = number << 28 | number * 80
        assert (counts.get(location), counts.get_entry(location)) == model.get(location, (0, 0))


def test_many_neighbouring_locations_keep_their_counts():
    counts = DeliveryCounts()
    for number in range(1, 20000):
        counts.put(1 << 28 | number * 80, number, number + 1)
    for number in range(1, 20000, 2):
        counts.discard(1 << 28 | number * 80)

    assert counts.count == 9999
    for number in range(1, 20000):
        expected = (0, 0) if number % 2 else (number, number + 1)
        assert (counts.get(1 << 28 | number * 80), counts.get_entry(1 << 28 | number * 80)) == expected
