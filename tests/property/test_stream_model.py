"""A stream on a real store, driven at random beside a model of it: publish, readers at any offset, settle,
retention, purge, restarts and kills.
"""
import shutil
import tempfile
from pathlib import Path

from hypothesis import settings, strategies as st
from hypothesis.stateful import RuleBasedStateMachine, initialize, invariant, precondition, rule

from gomq_py.broker.policies.queue_settings import QueueSettings
from gomq_py.broker.features.stream_offset import NEWEST, NUMBER, StreamStart
from gomq_py.broker.queues.stream_queue import StreamQueue
from gomq_py.storage.message import Message
from gomq_py.storage.stores.stream_recovery import open_stream_store
from tests.support.queues import Bench
from tests.support.stores import INCARNATION
from tests.support.streams import SEGMENT_BYTES, STREAM

TAGS = ("joe", "ann")
MOST_READERS = 6


class Reading:
    """What the model knows of one reader: where it stands, and what it holds (offset: location)."""

    def __init__(self, reader, at, tag):
        self.reader, self.at, self.tag = reader, at, tag
        self.held = {}

    @property
    def position(self):
        return min(self.held, default=self.at)


class StreamModel(RuleBasedStateMachine):
    """``bodies``: every message ever published, by offset.

    ``positions``: what must be stored for each tag.
    """

    @initialize()
    def begin(self):
        self.folder = Path(tempfile.mkdtemp(prefix="stream-model-"))
        self.bodies = []
        self.positions = {}
        self.open()

    def open(self):
        self.bench = Bench(self.folder)
        self.store, report = open_stream_store(
            self.folder / "stream", self.bench.files, self.bench.pool, self.bench.committer, INCARNATION,
            SEGMENT_BYTES)
        assert report.lost == 0
        self.stream = StreamQueue("s", "/", self.store, self.bench.scheduler, self.bench.timers, STREAM)
        self.readings = []

    @rule(count=st.integers(1, 60), size=st.sampled_from([0, 10, 3000]))
    def publish(self, count, size):
        message = Message()
        for _ in range(count):
            body = b"%d " % len(self.bodies) + bytes(size)
            message.assign(b"", b"s", b"\0\0", body, self.bench.now_ms, persistent=True)
            assert self.stream.publish(message) == 1
            self.bodies.append(body)
        self.stream.write_out()

    @precondition(lambda self: len(self.readings) < MOST_READERS)
    @rule(
        kind=st.sampled_from([NUMBER, NEWEST]), number=st.integers(0, 300), tag=st.sampled_from([None, *TAGS])
    )
    def attach(self, kind, number, tag):
        if any(reading.tag == tag for reading in self.readings if tag is not None):
            return
        reader = self.stream.open_reader(StreamStart(kind, number), tag)
        first = self.store.first_offset
        end = len(self.bodies)
        wanted = self.positions.get(tag, min(number, end) if kind == NUMBER else end - number)
        self.readings.append(Reading(reader, max(wanted, first), tag))

    @precondition(lambda self: self.readings)
    @rule(index=st.integers(0, MOST_READERS - 1), count=st.integers(1, 200))
    def read(self, index, count):
        reading = self.readings[index % len(self.readings)]
        message = Message()
        reading.at = max(reading.at, self.store.first_offset)
        for _ in range(count):
            there = bool(reading.reader.next(message))
            assert there == (reading.at < len(self.bodies))
            if not there:
                break
            assert message.describe()["location"] == reading.at
            assert message.get_body() == self.bodies[reading.at]
            reading.held[reading.at] = reading.reader.take(len(self.bodies[reading.at]))
            self.stream.note_delivered()
            reading.at += 1

    @precondition(lambda self: any(reading.held for reading in self.readings))
    @rule(index=st.integers(0, MOST_READERS - 1), which=st.integers(0, 5), refuse=st.booleans())
    def settle(self, index, which, refuse):
        holding = [reading for reading in self.readings if reading.held]
        reading = holding[index % len(holding)]
        offsets = sorted(reading.held)
        offset = offsets[which % len(offsets)]
        location = reading.held.pop(offset)
        if refuse:
            self.stream.reject(location, False)
        else:
            self.stream.ack(location)
        self.stream.write_out()
        if reading.tag is not None and offset == offsets[0]:
            self.positions[reading.tag] = reading.position

    @precondition(lambda self: self.readings)
    @rule(index=st.integers(0, MOST_READERS - 1))
    def detach(self, index):
        """The channel closes: what it holds comes back, and does not count as dealt with."""
        reading = self.readings.pop(index % len(self.readings))
        self.stream.close_reader(reading.reader)
        for location in reading.held.values():
            self.stream.requeue(location)
        self.stream.write_out()

    @rule(most=st.integers(0, 400))
    def keep_less(self, most):
        before = self.store.first_offset
        self.stream.configure(QueueSettings({"x-max-length": most}))
        self.stream.turn()
        self.stream.configure(QueueSettings())
        assert before <= self.store.first_offset <= len(self.bodies)
        assert self.store.ready_count <= most or len(self.store.describe()) == 1

    @rule()
    def purge(self):
        kept = len(self.bodies) - self.store.first_offset
        assert self.stream.purge() == kept
        assert self.store.ready_count == 0

    @rule(orderly=st.booleans())
    def restart(self, orderly):
        self.bench.committer.wait()  # or what was dropped may be there again, which is no loss
        first = self.store.first_offset
        if orderly:
            self.stream.close()
            self.bench.committer.stop()
        else:
            self.bench.committer.kill()
        self.open()
        assert self.store.first_offset <= first

    @invariant()
    def offsets_go_on(self):
        if hasattr(self, "store"):
            assert self.store.next_offset == len(self.bodies)
            assert {tag: offset for tag, offset, _ in self.store.offsets.items()} == self.positions
            assert self.stream.unacked_count == sum(len(reading.held) for reading in self.readings)

    def teardown(self):
        if hasattr(self, "store"):
            self.stream.close()
            self.bench.committer.stop()
            shutil.rmtree(self.folder)


TestStreamModel = StreamModel.TestCase
TestStreamModel.settings = settings(max_examples=40, stateful_step_count=30, deadline=None)
