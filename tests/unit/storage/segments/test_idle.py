"""Stores that have been empty for a while give their segment back, and nothing else changes."""
import os

import pytest

from gomq_py.storage.message import Message
from gomq_py.storage.segments import idle
from gomq_py.storage.segments.idle import PAUSE_MS, REST_MS
from gomq_py.storage.stores.priority_store import open_priority_store
from tests.support.stores import INCARNATION, Shown, StoreBench


@pytest.fixture(params=[True, False], ids=["durable", "transient"])
def bench(request, tmp_path):
    (tmp_path / "queue").mkdir(exist_ok=True)  # where transient ones are made; a durable one makes its own
    bench = StoreBench(tmp_path, durable=request.param)
    yield bench
    bench.close()


def segments_of(bench):
    """The files of the store's segments that have names."""
    return sorted(os.listdir(bench.folder / "queue")) if bench.options["durable"] else []


def shown(body):
    return Shown(body, False, 0)


def test_empty_store_gives_its_segment_back_at_the_second_look(bench):
    bench.push(b"a")
    bench.drain()
    assert [timer.after_ms for timer in bench.timers] == [REST_MS]

    bench.push(b"b")  # something comes before the look
    bench.drain()
    bench.rest()
    assert bench.store.resting_at()

    bench.rest()
    bench.finish_aside()

    assert not bench.store.resting_at()
    assert segments_of(bench) == []
    assert not bench.timers and bench.pool.resting.count == 0


def test_store_goes_on_as_before(bench):
    first = bench.push(b"a")
    bench.drain()
    bench.rest()

    second = bench.push(b"b")
    assert second > first
    assert bench.drain() == [shown(b"b")]
    bench.rest()
    bench.push(b"c", persistent=False)
    bench.push(b"d")

    assert bench.drain() == [shown(b"c"), shown(b"d")]


@pytest.mark.parametrize("held", ["ready", "unacked", "requeued"])
def test_store_that_holds_something_keeps_its_segment(bench, held):
    bench.push(b"a")
    bench.drain()
    bench.push(b"b")
    if held != "ready":
        location, _ = bench.shift()
    if held == "requeued":
        bench.store.requeue(location)

    bench.rest()

    assert not bench.store.resting_at()
    assert not bench.timers
    if held == "unacked":
        bench.store.delete(location)
        assert bench.timers, "empty again, and nobody looks"
    else:
        assert [each.body for each in bench.drain()] == [b"b"]


def test_store_whose_last_message_was_in_an_older_segment_rests_too(tmp_path):
    bench = StoreBench(tmp_path, durable=True, segment_bytes=65536)
    locations = []
    for number in range(100):
        bench.push(b"%d" % number + bytes(1000))
        locations.append(bench.shift()[0])
    for location in reversed(locations):
        bench.store.delete(location)
    bench.store.write_out()

    assert bench.rest() and not bench.store.resting_at()
    bench.finish_aside()
    assert os.listdir(bench.folder / "queue") == []
    bench.close()


def test_purged_store_rests(bench):
    bench.push(b"a")
    bench.store.purge()

    assert bench.rest()
    bench.finish_aside()
    assert segments_of(bench) == [] and not bench.store.resting_at()


def test_next_message_after_a_restart_is_found(tmp_path):
    bench = StoreBench(tmp_path, durable=True)
    bench.push(b"a")
    bench.drain()
    bench.rest()
    bench.push(b"b")
    bench.reopen()

    assert bench.drain() == [shown(b"b")]
    bench.rest()
    bench.crash()
    assert bench.drain() == [] and bench.report.lost == 0
    bench.push(b"c")
    bench.crash()

    assert bench.drain() == [shown(b"c")]
    bench.close()


def test_closed_store_is_forgotten(bench):
    bench.push(b"a")
    bench.drain()
    bench.store.close()

    bench.rest()

    assert bench.pool.resting.count == 0 and not bench.timers


def test_many_stores_rest_in_slices(bench, monkeypatch):
    monkeypatch.setattr(idle, "GIVEN_AT_ONCE", 2)
    stores = [Stub() for _ in range(5)]
    for store in stores:
        bench.pool.resting.note(store)

    looks = []
    while bench.timers:
        pause_ms = bench.timers[0].after_ms
        bench.rest()
        looks.append((pause_ms, sum(store.given for store in stores)))

    assert looks == [(REST_MS, 1), (REST_MS, 3), (PAUSE_MS, 5)]


def test_store_that_becomes_empty_just_before_a_look_waits_for_the_next(bench):
    first, second = Stub(), Stub()
    bench.pool.resting.note(first)
    bench.pool.resting.note(second)

    bench.rest()
    assert first.given and not second.given

    bench.rest()
    assert second.given and not bench.timers


def test_levels_of_a_priority_store_rest(bench):
    folder = bench.folder / "levels"
    store, _ = open_priority_store(folder, bench.files, bench.pool, bench.committer, INCARNATION, 2)
    message = Message()
    for level in (0, 2):
        message.assign(b"", b"q", b"\0\0", b"%d" % level, 1, priority=level)
        store.append(message)
    for _ in range(2):
        assert store.peek(message)
        store.shift()
        store.delete(message.describe()["location"])
    store.write_out()
    assert bench.pool.resting.count == 2

    while bench.rest():
        pass
    bench.finish_aside()

    assert [name for _, _, names in os.walk(folder) for name in names if name.startswith("msgs")] == []
    message.assign(b"", b"q", b"\0\0", b"again", 1, priority=1)
    store.append(message)
    assert store.peek(message) and message.get_body() == b"again"
    store.close()


class Stub:
    """A store that is empty."""

    given = 0

    def resting_at(self):
        return 7

    def forgotten(self):
        pass

    def give_segment_back(self):
        self.given += 1
