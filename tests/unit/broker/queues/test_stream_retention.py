"""Retention of streams: whole segments go by count, octets and age;
the timer runs only while something will be too old.
"""
import pytest

from gomq_py.broker.policies.queue_settings import QueueSettings
from gomq_py.broker.queues.stream_queue import StreamQueue
from gomq_py.broker.queues.stream_retention import SLACK_MS
from gomq_py.storage.message import Message
from gomq_py.storage.stores.stream_recovery import open_stream_store
from tests.support.queues import Bench
from tests.support.stores import INCARNATION
from tests.support.streams import SEGMENT_BYTES, STREAM


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


def publish(bench, stream, count=100):
    """Messages of about 1 KiB: 63 fill a segment."""
    message = Message()
    for _ in range(count):
        message.assign(b"", b"s", b"\0\0", bytes(970), bench.now_ms)
        stream.publish(message)
    stream.turn()


@pytest.mark.parametrize("arguments", [
    {}, {"x-max-length": 1000}, {"x-max-length-bytes": 1 << 20}, {"x-max-age": "1h"}
])
def test_within_its_limits_everything_stays(bench, stream, arguments):
    stream.configure(QueueSettings(arguments))
    publish(bench, stream)

    assert stream.ready_count == 100


@pytest.mark.parametrize("arguments", [
    {"x-max-length": 90}, {"x-max-length-bytes": 90_000}, {"x-max-length": 0}, {"x-max-length-bytes": 0}
])
def test_too_much_goes_by_whole_segments_but_not_the_newest(bench, stream, arguments):
    stream.configure(QueueSettings(arguments))
    publish(bench, stream)

    first = stream.stream.first_offset
    assert 50 < first < 70
    assert len(stream.segments()) == 1


def test_a_limit_that_comes_later_counts_at_once(bench, stream):
    publish(bench, stream)

    stream.configure(QueueSettings({}, {"max-length": 10}))
    stream.turn()

    assert stream.stream.first_offset > 50


def test_too_old_goes_when_the_timer_fires(bench, stream):
    stream.configure(QueueSettings({"x-max-age": "1h"}))
    stream.turn()
    publish(bench, stream, 10)
    assert bench.timers.pending == []  # the newest segment never goes

    publish(bench, stream, 90)
    timer, = bench.timers.pending
    assert timer.due_ms == bench.now_ms + 3_600_000 + SLACK_MS

    bench.now_ms = timer.due_ms
    bench.timers.fire()
    stream.turn()
    assert stream.stream.first_offset > 50
    assert bench.timers.pending == []


def test_closed_stream_has_no_timer(bench, stream):
    stream.configure(QueueSettings({"x-max-age": "1h"}))
    publish(bench, stream)
    assert bench.timers.pending

    stream.close()

    assert bench.timers.pending == []
