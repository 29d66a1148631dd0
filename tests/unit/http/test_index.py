"""The index over a clock that the test moves: what is read when, and what is kept."""
import gc
import weakref

import gevent
import pytest

from gomq_py.http import index as index_module
from gomq_py.http.index import Index, Rows, in_order
from gomq_py.http.kinds import Kind
from gomq_py.hub import turns
from gomq_py.hub.scheduler import SliceClock
from gomq_py.hub.timers import HubTimers
from tests.support.waiting import in_time

INTERVAL_S = 5.0


class Thing:
    def __init__(self, name, count=0):
        self.name = name
        self.count = count


class Reader:
    """Reads the counts of things, and knows of which."""

    def __init__(self):
        self.names = []

    def __call__(self, thing):
        self.names.append(thing.name)
        return thing.count

    def take(self):
        taken, self.names = self.names, []
        return taken


KIND = Kind(lambda thing: {"count": thing.count}, numbers=lambda things: [id(thing) for thing in things])


@pytest.fixture(autouse=True)
def short_lists_are_kept(monkeypatch):
    monkeypatch.setattr(index_module, "KEPT_FROM", 3)
    monkeypatch.setattr(index_module, "FEW", 0)


@pytest.fixture
def clock():
    return [0.0]


@pytest.fixture
def index(clock):
    one = Index(HubTimers(), INTERVAL_S, now_s=lambda: clock[0])
    yield one
    one.close()


@pytest.fixture
def read():
    return Reader()


def things(*counts):
    return [Thing(f"t{number}", count) for number, count in enumerate(counts)]


def ordered(index, rows, read, what="count"):
    """The names of the rows in the order of the index."""
    return [rows[place].name for place in index.order(Rows(KIND, rows), what, read)]


def test_the_second_viewer_of_an_interval_has_nothing_read(index, read):
    rows = things(3, 1, 2)

    first, second = ordered(index, rows, read), ordered(index, list(rows), read)

    assert first == second == ["t1", "t2", "t0"]
    assert read.take() == ["t0", "t1", "t2"]


def test_everything_is_read_again_when_the_interval_is_over(index, read, clock):
    rows = things(3, 1, 2)
    ordered(index, rows, read)
    rows[0].count = 0
    read.take()
    clock[0] += INTERVAL_S

    assert ordered(index, rows, read) == ["t0", "t1", "t2"]
    assert read.take() == ["t0", "t1", "t2"]


def test_rows_that_came_are_read_by_themselves_and_rows_that_went_are_left_out(index, read):
    rows = things(3, 1, 2, 7)
    ordered(index, rows, read)
    read.take()
    rows = [rows[0], *rows[2:], Thing("new", 5)]

    assert ordered(index, rows, read) == ["t2", "t0", "new", "t3"]
    assert read.take() == ["new"]


def test_viewers_who_see_different_rows_share_what_was_read_and_nothing_else(index, read):
    rows = things(3, 1, 2, 5, 4)
    ordered(index, rows, read)
    read.take()

    assert ordered(index, rows[2:], read) == ["t2", "t4", "t3"]
    assert ordered(index, rows[:3], read) == ["t1", "t2", "t0"]
    assert read.take() == []


def test_short_lists_are_read_each_time(index, read):
    rows = things(2, 1)
    ordered(index, rows, read)
    rows[0].count = 0

    assert ordered(index, rows, read) == ["t0", "t1"]
    assert index.row_count == 0


def test_rows_that_each_request_makes_are_not_kept(index):
    rows = [{"name": "b"}, {"name": "a"}, {"name": "c"}]

    assert list(index.order(Rows(Kind(), rows), "name", lambda row: row["name"])) == [1, 0, 2]
    assert index.row_count == 0


def test_viewers_who_come_while_a_column_is_read_wait_for_it(index, read, monkeypatch):
    monkeypatch.setattr(turns, "SliceClock", lambda every: SliceClock(0))
    monkeypatch.setattr(turns, "give_way", lambda: gevent.sleep(0))
    rows = things(*range(20, 0, -1))

    viewers = [gevent.spawn(ordered, index, list(rows), read) for _ in range(3)]
    gevent.joinall(viewers, timeout=in_time(30))

    assert [viewer.get() for viewer in viewers] == [[f"t{number}" for number in range(19, -1, -1)]] * 3
    assert len(read.take()) == 20


def test_a_column_that_cannot_be_read_is_read_by_the_next_viewer(index, read):
    rows = things(2, 1, 3)

    with pytest.raises(TimeoutError):
        ordered(index, rows, lambda thing: (_ for _ in ()).throw(TimeoutError()))

    assert ordered(index, rows, read) == ["t1", "t0", "t2"]


def test_nothing_is_kept_in_memory_by_the_index(index, read):
    rows = things(2, 1, 3)
    ordered(index, rows, read)
    gone = weakref.ref(rows[0])

    del rows
    gc.collect()

    assert gone() is None


def test_columns_that_nobody_asks_for_are_forgotten(index, read, clock):
    ordered(index, things(2, 1, 3), read, "old")
    clock[0] += INTERVAL_S / 2
    ordered(index, things(2, 1, 3), read, "young")
    clock[0] += INTERVAL_S / 2
    before = index.row_count

    index.forget()

    assert (before, index.row_count) == (6, 3)


def test_no_more_rows_are_kept_than_the_limit(index, read, monkeypatch):
    monkeypatch.setattr(index_module, "ROWS_MAX", 10)
    rows = things(2, 1, 3, 4)
    for what in ("a", "b", "c"):
        ordered(index, rows, read, what)
    read.take()

    for what in ("c", "b"):
        ordered(index, rows, read, what)
    kept = read.take()
    ordered(index, rows, read, "a")

    assert kept == []
    assert len(read.take()) == 4
    assert index.row_count <= 10


def test_a_column_keeps_few_lists_of_rows(index, read):
    """As where queues come and go all the time."""
    rows = things(*range(50))
    for first in range(40):
        ordered(index, rows[first:], read)

    assert index.row_count <= 50 * index_module.ROW_LISTS_MAX
    assert len(read.take()) == 50


def test_columns_of_many_chunks_are_as_those_of_one(index, read, monkeypatch):
    monkeypatch.setattr(index_module, "CHUNK", 4)
    rows = things(*((number * 37) % 50 for number in range(30)))
    expected = [one.name for one in sorted(rows, key=lambda one: one.count)]

    assert ordered(index, rows, read) == expected
    assert ordered(index, rows[5:], read) == [name for name in expected if int(name[1:]) >= 5]
    assert len(read.take()) == 30


def test_values_that_are_sorted_in_parts_are_in_order(monkeypatch):
    """100 000 that were sorted in one go held everybody up for 60 ms."""
    monkeypatch.setattr(index_module, "SORTED_AT_ONCE", 7)
    values = [number * 37 % 50 for number in range(40)]

    assert [values[place] for place in in_order(values)] == sorted(values)


def test_values_of_all_kinds_are_sorted_and_equal_ones_keep_their_order(monkeypatch):
    monkeypatch.setattr(index_module, "SORTED_AT_ONCE", 3)

    assert list(in_order(["b", 2, None, "a", 1.5, True, None, "b", {"x": 1}, 2, "a"])) == [
        2, 6, 5, 4, 1, 9, 3, 10, 0, 7, 8
    ]


def test_sorting_makes_no_objects_that_the_collector_goes_through():
    """With 100 000 values their tuples had each full collection take 20 to 100 ms, several in one list."""
    counted = []

    class Value(int):
        def __lt__(self, other):
            counted.append(len(gc.get_objects()) if not counted else 0)
            return int.__lt__(self, other)

    values = [*range(3000, 0, -1), Value(0)]
    gc.disable()
    try:
        before = len(gc.get_objects())
        in_order(values)
    finally:
        gc.enable()

    assert counted[0] - before < 1000
