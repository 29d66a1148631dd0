"""Turns of a stream: who is behind gets a share; nobody is asked again and again for what is not there."""
import pytest

from gomq_py.broker.queues.consumers import Consumer
from gomq_py.broker.features.stream_offset import FIRST, StreamStart
from gomq_py.broker.queues.stream_queue import StreamQueue
from gomq_py.storage.message import Message
from gomq_py.storage.stores.stream_recovery import open_stream_store
from tests.support.queues import Bench, message
from tests.support.stores import INCARNATION
from tests.support.streams import SEGMENT_BYTES, STREAM, damage_records

# More than any of these tests needs: a turn that goes on for ever must end as a failure.
MOST_ASKED = 1000


class Reader(Consumer):
    """Reads from the first message on and settles nothing."""

    def __init__(self, stream):
        super().__init__("c")
        self.reader = stream.open_reader(StreamStart(FIRST))
        self.message = Message()
        self.bodies = []
        self.asked = 0

    def is_behind(self):
        return self.reader.is_behind()

    def deliver(self, limit):
        self.asked += 1
        assert self.asked < MOST_ASKED, "asked again and again"
        count = len(self.bodies)
        while self.reader.next(self.message):
            self.bodies.append(self.message.get_body())
            self.reader.take(1)
            self.queue.note_delivered()
        return len(self.bodies) - count + self.reader.forget_passed()


class Hungry(Reader):
    """One that always seems to be behind, and is given nothing."""

    def is_behind(self):
        return True


@pytest.fixture
def bench(tmp_path):
    return Bench(tmp_path)


def stream_in(bench, folder):
    store, _ = open_stream_store(folder, bench.files, bench.pool, bench.committer, INCARNATION, SEGMENT_BYTES)
    return StreamQueue("s", "/", store, bench.scheduler, bench.timers, STREAM)


def settle(bench):
    polls = 0
    while bench.loop.poll():
        polls += 1
        assert polls < MOST_ASKED, "the hub has no rest"


@pytest.mark.parametrize("readers", [1, 5])
@pytest.mark.parametrize(
    "hit", [range(9, 10), range(5, 10), range(10), range(3, 5)], ids=["last", "second half", "all", "middle"]
)
def test_readers_that_come_to_damage_leave_the_hub_to_others_and_see_what_comes_next(
    bench, tmp_path, hit, readers
):
    stream = stream_in(bench, tmp_path / "stream")
    bench.publish(stream, *(b"%d" % number for number in range(10)))
    stream.close()
    bench.committer.stop()
    damage_records(*(tmp_path / "stream").glob("msgs.*"), hit)
    stream = stream_in(bench, tmp_path / "stream")
    others = [Reader(stream) for _ in range(readers)]

    for reader in others:
        stream.add_consumer(reader)
    settle(bench)
    bench.publish(stream, b"new")
    bench.advance(5)

    expected = [b"%d" % number for number in range(10) if number not in hit] + [b"new"]
    assert [reader.bodies for reader in others] == [expected] * readers
    assert [reader.lag() for reader in stream.readers()] == [0] * readers
    stream.close()


def test_reader_that_finds_nothing_though_it_is_behind_is_asked_again_when_something_comes(bench, tmp_path):
    stream = stream_in(bench, tmp_path / "stream")
    bench.publish(stream, b"0")
    reader = Hungry(stream)
    stream.add_consumer(reader)
    settle(bench)
    asked = reader.asked

    bench.publish(stream, b"1")
    settle(bench)

    assert asked <= 3 and reader.bodies == [b"0", b"1"]
    stream.close()


def test_reader_that_steps_over_more_damage_than_a_turn_may_cost_goes_on_in_the_next(bench, tmp_path):
    store, _ = open_stream_store(
        tmp_path / "stream", bench.files, bench.pool, bench.committer, INCARNATION, 8 << 20
    )
    stream = StreamQueue("s", "/", store, bench.scheduler, bench.timers, STREAM)
    bench.publish(stream, b"0")
    for number in range(60):
        stream.publish(message(b"%d" % number * (100_000 if number < 59 else 1)))
    stream.close()
    bench.committer.stop()
    for path in (tmp_path / "stream").glob("msgs.*"):
        damage_records(path, range(60))
    stream = stream_in(bench, tmp_path / "stream")
    reader = Reader(stream)

    stream.add_consumer(reader)
    polls = 0
    while not reader.bodies:
        assert polls < MOST_ASKED
        polls += bench.loop.poll()

    assert reader.bodies == [b"59"] and polls > 5
    stream.close()


def test_a_stream_has_no_message_to_take(bench, tmp_path):
    stream = stream_in(bench, tmp_path / "stream")
    bench.publish(stream, b"0")
    shown = Message()

    assert not stream.peek(shown)
    assert not stream.head(shown)
    assert not stream.read(0, shown)
    assert not stream.get(shown, False)
    assert not stream.is_opening()
    assert stream.ready_count == 1
    stream.close()


def test_what_goes_back_to_a_stream_holds_nobody_up(bench, tmp_path):
    stream = stream_in(bench, tmp_path / "stream")
    reader = Reader(stream)
    stream.add_consumer(reader)

    stream.hold_deliveries()
    bench.publish(stream, b"0")
    settle(bench)

    assert reader.bodies == [b"0"]
    stream.resume_deliveries()
    settle(bench)
    stream.close()


def test_a_stream_is_never_outrun_however_much_it_holds_and_readers_take(bench, tmp_path):
    """Of a queue that holds so much and is read so fast its publishers would be held."""
    stream = stream_in(bench, tmp_path / "stream")
    stream.add_consumer(Reader(stream))

    outrun = []
    for _ in range(60):
        bench.now_ms += 1
        bench.publish(stream, *(b"%d" % number for number in range(100)))
        settle(bench)
        outrun.append(stream.is_outrun())

    assert stream.delivered > 60 * 50 and stream.ready_count == 60 * 100
    assert not any(outrun)
