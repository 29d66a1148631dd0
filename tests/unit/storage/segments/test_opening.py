"""Closed segments are opened by threads, for readers that can wait; what they find there, they find once."""
import threading

import gevent
import pytest

from gomq_py.storage.format import record
from gomq_py.storage.message import Message
from gomq_py.storage.segments.opening import UNWANTED_MS
from gomq_py.storage.segments.recovered import AHEAD_BYTES, PROVEN_BYTES
from gomq_py.storage.stores.priority_store import open_priority_store
from tests.support.stores import INCARNATION, StoreBench
from tests.support.streams import StreamBench
from tests.support.waiting import wait_until

SEGMENT_BYTES = 65536
BODY = bytes(9_000)  # seven to a segment
COUNT = 42


class Bench(StoreBench):
    """``opened`` counts what the listener heard."""

    opened = 0

    def segment_opened(self, store):
        self.opened += 1

    def fill(self, count=COUNT):
        """Numbered messages, in segments of which those between reader and writer are closed."""
        for number in range(count):
            self.push(b"%08d" % number + BODY)
        self.store.write_out()
        self.committer.after_sync(lambda error: None)
        self.finish_aside()

    def numbers(self):
        """All that is ready, waiting for threads, each message acked."""
        found = []
        while True:
            item = self.shift()
            if item is not None:
                found.append(int(item[1].body[:8]))
                self.store.delete(item[0])
                self.store.write_out()
            elif self.store.is_waiting():
                wait_until(lambda: not self.store.is_waiting(), sleep=gevent.sleep)
            else:
                return found


@pytest.fixture(params=["of this run", "of an earlier run"])
def bench(request, tmp_path):
    bench = Bench(tmp_path, enabled=True, segment_bytes=SEGMENT_BYTES)
    bench.fill()
    if request.param == "of an earlier run":
        bench.reopen()
    bench.store.open_aside()
    yield bench
    bench.close()


def mapped(bench):
    return sum(segment.is_open for segment in bench.store._segments.values())


def read_one_segment(bench):
    """Up to where the next segment has been opened ahead."""
    taken = 0
    while not bench.pool.openings.count:
        if bench.shift() is not None:
            taken += 1
        bench.store.write_out()
        bench.finish_aside()
    return taken


def stand_before_closed(bench):
    """The reader has come to a segment that a thread is to open."""
    while bench.shift() is not None:
        pass
    assert bench.store.is_waiting()


def test_reader_waits_for_each_segment_and_gets_everything_in_order(bench):
    assert bench.numbers() == list(range(COUNT))
    assert not bench.store.ready_count and not bench.pool.openings.count and not bench.fenced


def test_next_segment_is_opened_ahead_and_the_reader_does_not_wait_for_it(bench):
    taken = read_one_segment(bench)
    told = bench.opened

    bodies = [bench.shift()[1].body for _ in range(7)]

    assert [int(body[:8]) for body in bodies] == list(range(taken, taken + 7))
    assert bench.opened == told


def test_each_segment_is_opened_ahead_of_a_reader_that_is_done_with_everything_at_once(bench):
    waited, found = 0, []
    while len(found) < COUNT:
        item = bench.shift()
        if item is None:
            waited += 1
        else:
            found.append(int(item[1].body[:8]))
            bench.store.delete(item[0])
            bench.store.write_out()
        bench.finish_aside()

    assert waited <= 1  # before the first, in which a run that begins stands


def test_purge_leaves_the_reader_where_it_looks_ahead_again(bench):
    read_one_segment(bench)
    bench.store.purge()
    bench.fill()
    told = bench.opened

    for number in range(COUNT):
        assert int(bench.shift()[1].body[:8]) == number
        bench.store.write_out()
        bench.finish_aside()
    assert bench.opened == told


def test_message_that_came_back_does_not_wait_for_the_files_of_the_next(bench):
    location = bench.shift()
    while location is None:  # a run that begins opens its first segment
        bench.finish_aside()
        location = bench.shift()
    stand_before_closed(bench)

    bench.store.requeue(location[0])

    assert not bench.store.is_waiting()
    assert bench.shift()[0] == location[0]
    assert bench.shift() is None and bench.store.is_waiting()


def test_what_was_opened_ahead_is_closed_when_no_reader_comes(bench):
    read_one_segment(bench)
    before = mapped(bench)
    assert [timer.after_ms for timer in bench.timers if timer.after_ms == UNWANTED_MS]

    for _ in range(2):
        bench.rest()
    bench.finish_aside()

    assert bench.pool.openings.count == 0 and mapped(bench) == before
    assert len(bench.numbers()) + bench.store.unacked_count == COUNT


@pytest.mark.parametrize("end", ["purge", "close", "delete_files", "fence"])
@pytest.mark.parametrize("is_ready", [False, True], ids=["while it is opened", "when it is open"])
def test_what_nobody_wants_any_more_is_closed(bench, end, is_ready, monkeypatch):
    opened, open_ = [], bench.files.open
    monkeypatch.setattr(bench.files, "open", lambda path: opened.append(open_(path)) or opened[-1])
    if is_ready:
        read_one_segment(bench)
    else:
        stand_before_closed(bench)

    getattr(bench.store, end)(*[OSError(5, "the disk failed")] if end == "fence" else ())
    bench.finish_aside()

    assert bench.pool.openings.count == 0 and not bench.store.is_waiting()
    attached = [file for segment in bench.store._segments.values() for file in (segment.msgs, segment.acks)]
    assert [file for file in opened if not file.closed and file not in attached] == []


def refuse(*_):
    raise OSError(5, "the disk failed")


def test_error_of_a_thread_that_a_reader_waits_for_fences_the_store(bench, monkeypatch):
    monkeypatch.setattr(bench.store.files, "read_through", refuse)
    stand_before_closed(bench)

    bench.finish_aside()

    assert [error.strerror for error in bench.fenced] == ["the disk failed"]
    assert not bench.store.is_waiting()


def test_what_a_thread_could_not_open_ahead_is_tried_again_when_the_reader_comes(bench, monkeypatch):
    refused = []
    while bench.peek() is None:
        bench.finish_aside()
    with monkeypatch.context() as patch:
        patch.setattr(bench.store.files, "read_through", lambda *_: refused.append(1) or refuse())
        taken = 0
        while not refused:
            assert bench.shift() is not None
            taken += 1
            bench.store.write_out()
            bench.finish_aside()

    assert bench.numbers() == list(range(taken, COUNT))
    assert not bench.fenced


@pytest.fixture
def large(tmp_path):
    """A store with large segments of an earlier run, which threads read piece by piece, and how they do:
    (thread is the hub's, start, end).
    """
    bench = Bench(tmp_path, enabled=True, segment_bytes=4 << 20)
    for number in range(80):
        bench.push(b"%08d" % number + bytes(100_000))
    bench.drained = [bench.shift() for _ in range(20)]
    for location, _ in bench.drained[:10]:
        bench.store.delete(location)
    bench.reopen()
    bench.store.open_aside()
    bench.pieces = []
    read_through = bench.files.read_through

    def noted(file, start=0, end=None):
        bench.pieces.append((threading.current_thread() is hub, start, end))
        return read_through(file, start, end)

    hub = threading.current_thread()
    bench.files.read_through = noted
    yield bench
    bench.close()


def test_threads_read_segments_of_an_earlier_run_piece_by_piece(large):
    assert large.numbers() == list(range(10, 80))

    assert not any(is_hub for is_hub, _, _ in large.pieces)
    assert max(end - start for _, start, end in large.pieces if end is not None) <= AHEAD_BYTES
    assert sum(end - start for _, start, end in large.pieces if end is not None) < 10 << 20
    assert not large.fenced


def test_no_more_than_the_first_piece_is_read_for_a_queue_that_nobody_reads(large):
    for _ in range(3):
        large.peek()
        large.store.write_out()
        large.finish_aside()

    assert large.peek() is not None
    assert sum(end - start for _, start, end in large.pieces if end is not None) <= 2 * PROVEN_BYTES
    large.numbers()


def test_error_in_a_piece_fences_the_store_when_the_reader_comes_to_it(large):
    while large.peek() is None:
        large.finish_aside()
    large.files.read_through = refuse
    while large.shift() is not None:
        large.store.write_out()
        large.finish_aside()
        assert not large.fenced

    large.finish_aside()

    assert large.fenced and large.store.failure is not None and not large.store.is_waiting()


def test_damage_between_pieces_is_stepped_over(tmp_path):
    bench = Bench(tmp_path, enabled=True, segment_bytes=4 << 20)
    for number in range(40):
        bench.push(b"%08d" % number + bytes(100_000))
    bench.close()
    path = max((tmp_path / "queue").glob("msgs.*"), key=lambda path: path.stat().st_size)
    octets = bytearray(path.read_bytes())
    octets[700_000:700_008] = b"damaged!"
    octets[1_300_000:1_500_000] = bytes(200_000)
    path.write_bytes(octets)
    bench.start()
    bench.store.open_aside()

    found = bench.numbers()

    assert bench.damaged and not bench.fenced
    assert found == sorted(found) and len(found) == 40 - sum(count for _, _, _, count in bench.damaged)
    bench.close()


def test_what_is_picked_is_opened_at_once_also_when_a_thread_is_about_to(bench):
    stand_before_closed(bench)
    number = bench.store.read_segment.number

    assert bench.store.pick(record.location_of(0, number, 128))

    bench.finish_aside()
    assert bench.pool.openings.count == 0
    taken = bench.store.unacked_count
    assert len(bench.numbers()) == COUNT - taken


def test_lower_level_is_not_shown_before_the_one_that_waits(tmp_path):
    bench = Bench(tmp_path, enabled=True, segment_bytes=SEGMENT_BYTES)
    bench.store, _ = open_priority_store(
        bench.folder / "levels", bench.files, bench.pool, bench.committer, INCARNATION, 3,
        segment_bytes=SEGMENT_BYTES, listener=bench)
    bench.store.open_aside()
    message = Message()
    for number in range(COUNT):
        message.assign(b"", b"q", b"\0\0", b"%08d" % number + BODY, 1, persistent=True, priority=number % 2)
        bench.store.append(message)
    bench.store.write_out()
    bench.committer.after_sync(lambda error: None)
    bench.finish_aside()

    assert bench.numbers() == [*range(1, COUNT, 2), *range(0, COUNT, 2)]
    assert bench.opened
    bench.close()


def test_higher_level_is_shown_while_a_lower_one_waits(tmp_path):
    bench = Bench(tmp_path, enabled=True, segment_bytes=SEGMENT_BYTES)
    bench.store, _ = open_priority_store(
        bench.folder / "levels", bench.files, bench.pool, bench.committer, INCARNATION, 3,
        segment_bytes=SEGMENT_BYTES, listener=bench)
    bench.store.open_aside()
    bench.fill()
    stand_before_closed(bench)

    bench.push(b"%08d" % 77, priority=2)

    assert not bench.store.is_waiting()
    assert bench.shift()[1].body == b"%08d" % 77
    assert bench.shift() is None and bench.store.is_waiting()
    bench.finish_aside()
    bench.close()


def test_stream_reader_that_can_wait_waits_and_others_do_not(tmp_path):
    bench = StreamBench(tmp_path, enabled=True)
    opened = []
    bench.segment_opened = opened.append
    bench.push(6000)
    bench.sync()
    bench.reopen()
    bench.store.open_aside()
    assert bench.read(bench.cursor()) == list(range(6000)) and not opened
    cursor = bench.cursor()
    cursor.let_wait()

    found = []
    while len(found) < 6000:
        found += bench.read(cursor)
        wait_until(lambda: bench.committer.background.is_idle, sleep=gevent.sleep)

    assert found == list(range(6000)) and opened
    cursor.close()
    bench.store.close()
    bench.committer.stop()
    assert bench.pool.openings.count == 0
