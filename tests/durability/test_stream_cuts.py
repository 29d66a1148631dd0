"""One stream under power cuts: at any moment of publishing, dropping, purging, storing positions,
rolling, and in recovery.

What was flushed is there under its offset, in order, unless it had been dropped; no offset that was ever
flushed is given to another message; positions stay within the stream; and an ordinary cut is not reported as
damage.
"""
from itertools import count
from pathlib import Path
from random import Random
from typing import NamedTuple

import pytest

from gomq_py.storage.flush.group_commit import GroupCommit
from gomq_py.storage.message import Message
from gomq_py.storage.segments.pool import SegmentPool
from gomq_py.storage.stores.stream_cursor import StreamCursor
from gomq_py.storage.stores.stream_recovery import open_stream_store
from tests.durability import flush_pool
from tests.durability.flush_pool import give_way
from tests.durability.seeds import seeds
from tests.support.power_cut import Disk, PowerCutFiles
from tests.support.unflushed import Unflushed

INCARNATION = b"0123456789abcdef"
CUT_SHARE = 0.05
SECOND_CUT_SHARE = 0.1
# Of how many cuts one is booted with the power cut again: each costs a dozen boots.
SECOND_EVERY = 6
# A run goes on until there are so many cuts: how many calls it makes is a matter of time, too.
ROUNDS, FEWEST_CUTS = 3, 10
TAGS = ("joe", "ann", "a-tag-of-some-length")


@pytest.fixture(autouse=True)
def flushes_in_greenlets(monkeypatch):
    flush_pool.use(monkeypatch)


class Then(NamedTuple):
    """What was known at the moment of a cut."""

    bodies: dict  # offset: body
    flushed: int  # offsets below were flushed
    dropped: int  # offsets below had been dropped


class Life:
    """One process's stream."""

    def __init__(self, root, files):
        self.damaged = []
        self.committer = GroupCommit(files)
        self.pool = SegmentPool(root / "pool", files, self.committer)
        self.store, self.report = open_stream_store(
            root / "stream", files, self.pool, self.committer, INCARNATION, 65536, self
        )
        self.message = Message()

    def record_damaged(self, store, path, start, end, count):
        self.damaged.append((path, start, end, count))

    def store_fenced(self, store, error):
        raise error

    def publish(self, body):
        self.message.assign(b"", b"s", b"\0\0", body, 1, persistent=True)
        self.store.append(self.message)

    def read_all(self):
        cursor = StreamCursor(self.store, 0)
        found = {}
        while cursor.peek(self.message):
            found[cursor.offset] = self.message.get_body()
            cursor.step()
        cursor.close()
        return found


def check_cut_twice(folder, then, random):
    """As check(), with the power cut again at moments of the boot and of what follows,
    and those cuts checked in turn.
    """
    disk, taken = Disk(folder, random), []
    # A message that was not flushed may come back once more,
    # or have given its offset to the one that check() publishes.
    sure = {offset: body for offset, body in then.bodies.items() if offset < then.flushed}

    def on_call(call, path):
        if random.random() < SECOND_CUT_SHARE:
            taken.append(Path(disk.cut(f"{folder}-again-{len(taken)}")))

    check(folder, then, PowerCutFiles(disk, on_call))
    disk.discard()
    for again in taken:
        check(again, then._replace(bodies=dict(sure)))
    return len(taken)


def check(folder, then, first_files=None):
    """What is there after a boot; and again after a message more, a restart and another boot."""
    for again in range(2):
        life = Life(folder, first_files if first_files is not None and not again else Unflushed())
        found = life.read_all()
        offsets = list(found)
        assert offsets == sorted(offsets) and life.report.lost == 0 and not life.damaged
        assert all(then.bodies.get(offset, body) == body for offset, body in found.items())
        missing = [offset for offset in range(then.dropped, then.flushed) if offset not in found]
        assert missing == [], f"flushed and gone: {missing[:5]}"
        assert life.store.next_offset >= then.flushed
        assert all(offset <= life.store.next_offset for _, offset, _ in life.store.offsets.items())
        if not again:
            then.bodies[life.store.next_offset] = b"after"
            life.publish(b"after")
        life.store.close()
        life.committer.stop()


@pytest.mark.parametrize("seed", seeds(6))
def test_power_cuts_at_any_moment(tmp_path, seed):
    random = Random(seed)
    (tmp_path / "data").mkdir()
    disk = Disk(tmp_path / "data", random)
    bodies, taken = {}, []
    life = None

    def known():
        return Then(
            dict(bodies), 0 if life is None else life.store.synced_offset,
            0 if life is None else life.store.first_offset,
        )

    def on_call(call, path):
        if random.random() < CUT_SHARE:
            taken.append((disk.cut(f"{tmp_path}/cut-{len(taken)}"), known()))

    for round_ in count(1):
        files = PowerCutFiles(disk, on_call)
        then = known()
        life = None
        life = Life(tmp_path / "data", files)
        assert life.store.next_offset >= then.flushed
        for _ in range(60):
            choice = random.random()
            if choice < 0.7:
                for _ in range(random.randrange(1, 40)):
                    body = b"%d " % len(bodies) + bytes(random.choice((0, 30, 1000, 5000)))
                    bodies[life.store.next_offset] = body
                    life.publish(body)
                life.store.write_out()
            elif choice < 0.8 and life.store.oldest() is not None:
                life.store.drop_oldest()
            elif choice < 0.82:
                life.store.purge()
            elif choice < 0.95:
                life.store.put_offset(random.choice(TAGS), random.randrange(life.store.next_offset + 1), 1)
            if random.random() < 0.4:
                give_way(random)
        taken.append((disk.cut(f"{tmp_path}/cut-{len(taken)}"), known()))
        files.switch_off()
        life.committer.kill()
        if round_ >= ROUNDS and len(taken) > FEWEST_CUTS:
            break
    disk.discard()

    again = 0
    for number, (folder, then) in enumerate(taken):
        if not again or number % SECOND_EVERY == SECOND_EVERY - 1:
            again += check_cut_twice(Path(folder), then, random)
        else:
            check(Path(folder), then)
    assert again > 0
