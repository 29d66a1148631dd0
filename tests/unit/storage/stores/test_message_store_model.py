"""A store does what a list would do: random histories, with restarts and kills between any two batches."""
import tempfile
from pathlib import Path

from hypothesis import settings, strategies as st
from hypothesis.stateful import Bundle, RuleBasedStateMachine, consumes, initialize, invariant, multiple, rule

from gomq_py.storage.disk.files import Files
from gomq_py.storage.stores.browser import browse
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
        self.picked = self.doubtful = False


class StoreMachine(RuleBasedStateMachine):
    """The messages in the order they came, each ready or out, with the number of failed deliveries."""

    taken = Bundle("taken")

    @initialize(enabled=st.booleans())
    def begin(self, enabled):
        self.folder = tempfile.TemporaryDirectory(prefix="gomq-model-")
        data = Path(self.folder.name, "data")
        data.mkdir()
        self.mirror = Mirror(data, Path(self.folder.name, "mirror"))
        self.bench = StoreBench(
            data, Files((self.mirror,)), segment_bytes=65536, enabled=enabled, in_threads=False
        )
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

    @rule()
    def rest(self):
        self.bench.rest()

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
            entry.picked = False
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
        if entry.state == OUT and not entry.picked:
            self.bench.store.requeue(entry.location)
            entry.state = READY
            entry.failed += 1

    @rule(entry=taken)
    def read(self, entry):
        if entry.state == OUT:
            assert self.bench.store.read(entry.location, self.bench.message)
            assert self.bench.message.get_body() == entry.body
            assert self.bench.message.describe()["delivery_count"] == entry.failed

    def browsed(self):
        """Everything that is ready, as a browser shows it."""
        browser, shown = browse(self.bench.store), []
        while browser.next(self.bench.message):
            fields = self.bench.message.describe()
            assert fields["redelivered"] == (fields["delivery_count"] > 0)
            shown.append((fields["location"], self.bench.message.get_body(), fields["delivery_count"]))
        return shown

    @rule()
    def browse(self):
        expected = [(entry.body, entry.failed) for entry in self.entries if entry.state == READY]
        assert [(body, failed) for _, body, failed in self.browsed()] == expected

    @rule(data=st.data(), steps=st.integers(1, 50))
    def skip(self, data, steps):
        """Passing over some, in steps, leads to the same messages as walking."""
        ready = [entry.body for entry in self.entries if entry.state == READY]
        count = data.draw(st.integers(0, len(ready)))
        browser, left = browse(self.bench.store), count
        while left:
            left -= browser.skip(left, steps)
        assert browser.next(self.bench.message) == (count < len(ready))
        if count < len(ready):
            assert self.bench.message.get_body() == ready[count]
        browser.close()

    @rule(target=taken, data=st.data(), count=st.integers(1, 20))
    def pick(self, data, count):
        """Take messages from anywhere."""
        picked = []
        for _ in range(count):
            ready = [entry for entry in self.entries if entry.state == READY]
            if not ready:
                break
            entry = data.draw(st.sampled_from(ready))
            assert self.bench.store.pick(entry.location) and not self.bench.store.pick(entry.location)
            entry.state, entry.picked = OUT, True
            picked.append(entry)
        return multiple(*picked)

    @rule(entry=consumes(taken))
    def unpick(self, entry):
        """As if it had not been picked, unless the cursor has passed it."""
        if entry.state == OUT and entry.picked:
            self.bench.store.unpick(entry.location)
            entry.state, entry.doubtful = READY, True
            self.settle_doubt(entry)

    def settle_doubt(self, entry):
        """Whether the cursor has passed a picked message the model does not know: then it counts as one that
        came back, until a crash.
        """
        failed = next(failed for _, body, failed in self.browsed() if body == entry.body)
        assert abs(failed - entry.failed) <= 1
        entry.failed = failed

    @rule()
    def purge(self):
        ready = [entry for entry in self.entries if entry.state == READY]
        assert self.bench.store.purge() == len(ready)
        self.entries = [entry for entry in self.entries if entry.state == OUT]

    @rule(clean=st.booleans())
    def restart(self, clean):
        """What was out comes back as redelivered; everything else is as it was.

        A mirror that followed the files has the same octets.
        """
        self.bench.store.write_out()
        assert self.mirror.differences() == []
        if clean:
            self.bench.reopen()
        else:
            self.bench.crash()
        assert self.mirror.differences() == []
        for entry in self.entries:
            was_out, entry.state = entry.state == OUT, READY
            if was_out and not entry.picked:
                entry.failed += 1
            if entry.doubtful or (was_out and entry.picked):
                self.settle_doubt(entry)

    @rule()
    def sync(self):
        self.bench.committer.wait()

    @invariant()
    def counts_agree(self):
        if not hasattr(self, "bench"):
            return
        store = self.bench.store
        for state, count, octets in (
            (READY, store.ready_count, store.ready_bytes), (OUT, store.unacked_count, store.unacked_bytes)
        ):
            bodies = [entry.body for entry in self.entries if entry.state == state]
            assert (count, octets) == (len(bodies), sum(map(len, bodies)))
        assert self.bench.damaged == [] and self.bench.fenced == []


StoreMachine.TestCase.settings = settings(max_examples=100, stateful_step_count=40, deadline=None)
TestStoreModel = StoreMachine.TestCase
