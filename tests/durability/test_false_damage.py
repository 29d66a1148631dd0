"""Sound files are never reported as damaged: whatever was acked, in runs or one by one,
before an orderly stop or a kill -9.

Much is acked in front of what is read: a segment of an earlier run is looked at 256 KiB at a time, and
records that are gone are passed over between.
"""
from random import Random

import pytest

from tests.durability.seeds import seeds
from tests.support.stores import StoreBench

COUNT, LIVES = 2000, 3
LARGEST_BODY = 1500


class World:
    """A store with numbered messages, and which of them must be there."""

    def __init__(self, root, random):
        self.random = random
        self.bench = StoreBench(
            root, enabled=True, in_threads=False, segment_bytes=random.choice([1 << 20, 8 << 20])
        )
        self.alive = []
        self.next = 0

    def live(self):
        """Publish, deliver some, settle some of these in runs."""
        random, store = self.random, self.bench.store
        for _ in range(COUNT // LIVES):
            self.bench.push(b"%06d" % self.next + b"x" * random.randrange(LARGEST_BODY))
            self.alive.append(self.next)
            self.next += 1
        store.write_out()
        taken = [self.bench.shift() for _ in range(random.randrange(store.ready_count))]
        spans, at = [], 0
        while at < len(taken):
            length = random.choice([1, 2, 3, 7, 50, 400])
            spans.append((random.random() < 0.6, taken[at:at + length]))
            at += length
        random.shuffle(spans)
        for is_acked, span in spans:
            for location, shown in span:
                if is_acked:
                    store.delete(location)
                    self.alive.remove(int(shown.body[:6]))
                elif random.random() < 0.5:
                    store.requeue(location)
            if random.random() < 0.1:
                store.write_out()
        store.write_out()

    def end(self):
        if self.random.random() < 0.5:
            self.bench.committer.wait()
        return self.bench.reopen() if self.random.random() < 0.5 else self.bench.crash()

    def check(self):
        taken = [self.bench.shift() for _ in range(self.bench.store.ready_count)]
        assert sorted(int(shown.body[:6]) for _, shown in taken) == self.alive
        assert self.bench.shift() is None
        for location, _ in taken:
            self.bench.store.requeue(location)
        self.bench.store.write_out()


@pytest.mark.parametrize("seed", seeds(8))
def test_sound_files_are_never_reported_as_damaged_whatever_was_acked(tmp_path, seed, caplog):
    world = World(tmp_path, Random(seed))
    for _ in range(LIVES):
        world.live()
        world.end()
        if world.random.random() < 0.5:
            world.check()
            world.end()
    world.check()
    world.bench.close()

    assert not world.bench.damaged and not world.bench.fenced
    assert "damage" not in caplog.text and not list(tmp_path.rglob("damaged*"))
