"""Delay queue: in order of time, on disk, and nothing lost by a store that fails."""
import tracemalloc
from functools import partial

import pytest

from gomq_py.broker.transfer import engine
from gomq_py.broker.transfer.delayed import DelayQueue
from gomq_py.hub.slice_clock import SliceClock
from gomq_py.storage.durability import Durability
from gomq_py.storage.recovery import open_store
from tests.support.clocks import StepClock
from tests.support.queues import Bench, message


@pytest.fixture
def bench(tmp_path):
    return Bench(tmp_path)


@pytest.fixture
def park(bench):
    """A delay queue whose messages say in their body after how many milliseconds they are due;
    ``released`` are (time, body).
    """
    return make(bench, bench.store("park"))


def make(bench, store):
    park = DelayQueue("park", True, store, bench.scheduler, Durability(bench.committer), bench.timers)
    park.due_ms_of = lambda parked: parked.describe()["timestamp_ms"] + int(parked.get_body())
    park.released = []
    park.release = lambda parked, _pending: park.released.append((bench.now_ms, parked.get_body()))
    return park


def test_messages_go_on_in_their_time(bench, park):
    start = bench.now_ms
    bench.publish(park, b"30", b"10", b"20")

    bench.advance(50)

    assert park.released == [(start + 10, b"10"), (start + 20, b"20"), (start + 30, b"30")]
    assert (park.count, park.store.unacked_count) == (0, 0)


def test_body_of_a_message_that_waits_is_kept_on_disk_only(bench, park):
    body = b"9" + b" " * 1_000_000
    bench.publish(park, b"5")
    tracemalloc.start()
    try:
        bench.publish(park, body)
        kept = tracemalloc.get_traced_memory()[0]
    finally:
        tracemalloc.stop()

    assert (park.count, kept < len(body) / 2) == (2, True)


def test_equal_times_keep_the_order(bench, park):
    bench.publish(park, b"5", b"05", b"005")

    bench.advance(10)

    assert [body for _, body in park.released] == [b"5", b"05", b"005"]


def test_earlier_one_that_comes_later_goes_first(bench, park):
    bench.publish(park, b"100")
    bench.advance(10)
    bench.publish(park, b"5")

    bench.advance(10)

    assert [body for _, body in park.released] == [b"5"]


def test_many_that_are_due_together_go_in_slices(bench, monkeypatch):
    monkeypatch.setattr(engine, "SLICE", 10)
    monkeypatch.setattr(engine, "SLICE_S", 60)  # by number alone, on a busy machine too
    park = make(bench, bench.store("park"))
    bench.publish(park, *[b"5"] * 35)
    bench.now_ms += 5
    bench.timers.fire()

    bench.loop.poll()
    assert len(park.released) == 10
    bench.settle()

    assert len(park.released) == 35


def test_slice_ends_with_its_time_and_the_others_go_on_in_their_order(bench, monkeypatch):
    """Every look at the clock finds that a millisecond has passed, and a slice has five."""
    monkeypatch.setattr(engine, "CLOCK", partial(SliceClock, clock=StepClock()))
    park = make(bench, bench.store("park"))
    bodies = [b"%05d" % (number % 3) for number in range(20)]
    bench.publish(park, *bodies)
    bench.now_ms += 5
    bench.timers.fire()

    bench.loop.poll()
    assert 1 <= len(park.released) <= 6 and park.count + len(park.released) == 20
    bench.settle()

    assert [body for _, body in park.released] == sorted(bodies)


def test_what_waits_is_found_again(bench, park):
    bench.publish(park, b"20", b"10")
    park.store.flush()
    again = make(bench, reopened(bench, park))

    bench.advance(30)

    assert [body for _, body in again.released] == [b"10", b"20"]


def reopened(bench, park):
    """The store as a boot after a kill finds it."""
    store = park.store
    park.close()
    return open_store(store.folder, bench.files, bench.pool, bench.committer, store.incarnation)[0]


def test_empty_queue_has_no_timer(bench, park):
    bench.publish(park, b"5")
    bench.advance(10)

    assert bench.timers.pending == []


def test_closed_queue_takes_and_releases_nothing(bench, park):
    bench.publish(park, b"5")

    park.close()
    bench.advance(10)

    assert park.released == []
    assert park.publish(message(b"5", timestamp_ms=bench.now_ms)) == 0
    assert bench.timers.pending == []


def test_message_that_cannot_be_released_is_set_aside_and_the_others_go_on(bench, park, caplog):
    release, park.release = park.release, lambda parked, pending: 1 // int(
        parked.get_body() != b"5"
    ) and release(parked, pending)
    bench.publish(park, b"3", b"5", b"05", b"7")

    bench.advance(20)

    assert [body for _, body in park.released] == [b"3", b"05", b"7"]
    assert park.aside.count == 1 and park.store.unacked_count == 1
    assert (
        "park: the message in segment" in caplog.text
        and "is set aside until the next restart: going on after the delay" in caplog.text
    )


def test_message_whose_time_cannot_be_told_is_refused(bench, park):
    assert bench.publish(park, b"soon", b"5") == [0, 1]
    assert not park.unable

    bench.advance(10)

    assert [body for _, body in park.released] == [b"5"]
