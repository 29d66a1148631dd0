"""Pace of streams: with several readers what is published shortly after a turn goes out together;
nobody else waits.
"""
import pytest

from gomq_py.broker.features.stream_offset import NEXT, StreamStart
from gomq_py.broker.queues.stream_pace import MESSAGES, PACE_MS, READERS
from gomq_py.broker.queues.stream_queue import StreamQueue
from gomq_py.broker.queues.consumers import Consumer
from gomq_py.storage.message import Message
from gomq_py.storage.stores.stream_recovery import open_stream_store
from tests.support.queues import Bench
from tests.support.stores import INCARNATION
from tests.support.streams import SEGMENT_BYTES, STREAM


class Reader(Consumer):
    """Takes everything it may; ``calls`` has how many messages each delivery carried."""

    def __init__(self, stream, credit=1 << 30):
        super().__init__("c")
        self.reader = stream.open_reader(StreamStart(NEXT))
        self.credit = credit
        self.message = Message()
        self.calls = []
        self.held = []

    def capacity(self):
        return self.credit - len(self.held)

    def is_behind(self):
        return self.reader.is_behind()

    def deliver(self, limit):
        taken = 0
        while taken < min(limit, self.capacity()) and self.reader.next(self.message):
            self.held.append(self.reader.take(1))
            self.queue.note_delivered()
            taken += 1
        self.calls.append(taken)
        return taken

    def ack(self):
        self.queue.ack(self.held.pop(0))
        self.queue.offer(self)


@pytest.fixture
def bench(tmp_path):
    return Bench(tmp_path)


@pytest.fixture
def stream(bench, tmp_path):
    store, _ = open_stream_store(
        tmp_path / "stream", bench.files, bench.pool, bench.committer, INCARNATION, SEGMENT_BYTES
    )
    stream = StreamQueue("s", "/", store, bench.scheduler, bench.timers, STREAM)
    yield stream
    stream.close()


def readers_of(bench, stream, count, **options):
    readers = [Reader(stream, **options) for _ in range(count)]
    for reader in readers:
        stream.add_consumer(reader)
    bench.settle()
    bench.advance(PACE_MS)
    return readers


def delivered(readers):
    return {tuple(reader.calls) for reader in readers}


def test_first_message_after_a_pause_goes_at_once(bench, stream):
    readers = readers_of(bench, stream, READERS)

    bench.publish(stream, b"a")

    assert delivered(readers) == {(1,)}


def test_what_follows_shortly_after_goes_out_together(bench, stream):
    """One call for each reader carries all three; nothing is waited for afterwards."""
    readers = readers_of(bench, stream, READERS)
    for body in (b"a", b"b", b"c", b"d"):
        bench.publish(stream, body)

    assert delivered(readers) == {(1,)}
    bench.advance(PACE_MS)

    assert delivered(readers) == {(1, 3)}
    assert not bench.timers.pending


def test_few_readers_do_not_wait(bench, stream):
    readers = readers_of(bench, stream, READERS - 1)

    for body in (b"a", b"b", b"c"):
        bench.publish(stream, body)

    assert delivered(readers) == {(1, 1, 1)}


def test_much_at_once_does_not_wait(bench, stream):
    readers = readers_of(bench, stream, READERS)
    bench.publish(stream, b"a")

    bench.publish(stream, *[b"b"] * MESSAGES)

    assert delivered(readers) == {(1, MESSAGES)}


def test_reader_with_credit_again_goes_on_at_once(bench, stream):
    """With a prefetch of one each ack brings the next message,
    however shortly after the last turn it comes.
    """
    first, *others = readers_of(bench, stream, READERS + 1, credit=1)
    bench.publish(stream, *[b"a"] * 5)

    for _ in range(4):
        first.ack()
        bench.settle()

    assert first.calls == [1, 1, 1, 1, 1]
    assert delivered(others) == {(1,)}


def test_clock_that_is_set_back_holds_nobody_up(bench, stream):
    readers = readers_of(bench, stream, READERS)
    bench.publish(stream, b"a")
    bench.now_ms -= 3_600_000

    bench.publish(stream, b"b")

    assert delivered(readers) == {(1, 1)}


def test_stream_that_closes_takes_its_timer_along(bench, stream):
    readers_of(bench, stream, READERS)
    bench.publish(stream, b"a")
    bench.publish(stream, b"b")

    stream.close()

    assert not bench.timers.pending
