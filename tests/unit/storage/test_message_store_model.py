"""A store does what a list would do: random histories, with restarts and kills between any two batches."""
import tempfile
from pathlib import Path

from hypothesis import settings, strategies as st
from hypothesis.stateful import Bundle, RuleBasedStateMachine, consumes, initialize, invariant, multiple, rule

from gomq_py.storage.files import Files
from tests.support.mirror import Mirror
from tests.support.stores import Shown, StoreBench

READY, OUT = "ready", "out"


class Entry:
    """What the model knows of a message."""

    def __init__(self, body):
        self.body = body
        self.state = READY
        self.failed = 0
        self.location = None


class StoreMachine(RuleBasedStateMachine):
    """The messages in the order they came, each ready or out, with the number of failed deliveries."""

    taken = Bundle("taken")

    @initialize(enabled=st.booleans())
    def begin(self, enabled):
        self.folder = tempfile.TemporaryDirectory(prefix="gomq-model-")
        data = Path(self.folder.name, "data")
        data.mkdir()
        self.mirror = Mirror(data, Path(self.folder.name, "mirror"))
        self.bench = StoreBench(data, Files((self.mirror,)), segment_bytes=65536, enabled=enabled)
        self.entries = []
        self.numbers = 0

    def teardown(self):
        if hasattr(self, "folder"):
            self.bench.committer.kill()
            self.folder.cleanup()

    def first_ready(self):
        return next((entry for entry in self.entries if entry.state == READY), None)

    @rule(count=st.integers(1, 30), size=st.sampled_from([8, 8, 100, 3000, 70000]), persistent=st.booleans())
    def push(self, count, size, persistent):
        for _ in range(1 if size == 70000 else count):
            self.numbers += 1
            entry = Entry(b"%d " % self.numbers + bytes(size))
            entry.location = self.bench.push(entry.body, persistent)
            self.entries.append(entry)

    @rule()
    def peek(self):
        entry = self.first_ready()
        expected = None if entry is None else Shown(entry.body, entry.failed > 0, entry.failed)
        assert self.bench.peek() == expected

    @rule(target=taken, count=st.integers(1, 40))
    def shift(self, count):
        out = []
        for _ in range(count):
            entry = self.first_ready()
            if entry is None:
                assert self.bench.shift() is None
                break
            location, shown = self.bench.shift()
            assert shown == Shown(entry.body, entry.failed > 0, entry.failed)
            entry.location = location
            entry.state = OUT
            out.append(entry)
        return multiple(*out)

    @rule(entry=consumes(taken))
    def delete(self, entry):
        if entry.state == OUT:
            self.bench.store.delete(entry.location)
            self.entries.remove(entry)
            entry.state = None

    @rule(data=st.data(), backwards=st.booleans())
    def delete_many(self, data, backwards):
        out = [entry for entry in self.entries if entry.state == OUT]
        if out:
            start = data.draw(st.integers(0, len(out) - 1))
            chosen = out[start:start + data.draw(st.integers(1, len(out)))]
            for entry in reversed(chosen) if backwards else chosen:
                self.delete(entry)

    @rule(entry=consumes(taken))
    def requeue(self, entry):
        if entry.state == OUT:
            self.bench.store.requeue(entry.location)
            entry.state = READY
            entry.failed += 1

    @rule(entry=taken)
    def read(self, entry):
        if entry.state == OUT:
            assert self.bench.store.read(entry.location, self.bench.message)
            assert self.bench.message.get_body() == entry.body
            assert self.bench.message.describe()["delivery_count"] == entry.failed

    @rule()
    def purge(self):
        ready = [entry for entry in self.entries if entry.state == READY]
        assert self.bench.store.purge() == len(ready)
        self.entries = [entry for entry in self.entries if entry.state == OUT]

    @rule(clean=st.booleans())
    def restart(self, clean):
        """What was out comes back as redelivered; everything else is as it was. A mirror that followed the files has the same octets."""
        self.bench.store.flush()
        assert self.mirror.differences() == []
        if clean:
            self.bench.reopen()
        else:
            self.bench.crash()
        assert self.mirror.differences() == []
        for entry in self.entries:
            if entry.state == OUT:
                entry.state = READY
                entry.failed += 1

    @rule()
    def sync(self):
        self.bench.committer.wait()

    @invariant()
    def counts_agree(self):
        if not hasattr(self, "bench"):
            return
        store = self.bench.store
        for state, count, octets in ((READY, store.ready_count, store.ready_bytes), (OUT, store.unacked_count, store.unacked_bytes)):
            bodies = [entry.body for entry in self.entries if entry.state == state]
            assert (count, octets) == (len(bodies), sum(map(len, bodies)))
        assert self.bench.damaged == [] and self.bench.fenced == []


StoreMachine.TestCase.settings = settings(max_examples=100, stateful_step_count=40, deadline=None)
TestStoreModel = StoreMachine.TestCase
