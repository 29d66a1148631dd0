"""One message store under power cuts: at any moment of publishing, delivering, acking, requeueing, purging,
rolling and recycling, and in recovery.

Nothing confirmed is lost, order is kept, synced acks are not undone, no message is there twice, and an
ordinary cut is not reported as damage to what was promised. Each seed is one run with many cuts; each cut is
recovered with the power cut again at every few calls of the recovery.
"""
import errno
import os
import shutil
from itertools import count
from random import Random

import pytest

from gomq_py.storage.disk.open_file import File
from gomq_py.storage.errors import StoreError
from tests.durability import flush_pool
from tests.durability.account import Account
from tests.durability.seeds import seeds
from tests.durability.store_driver import Driver, Life, found_in
from tests.support.power_cut import Disk, PowerCutFiles

CUT_SHARE = 0.04
SECOND_CUT_SHARE = 0.15
# A run goes on until there are so many cuts: how many calls it makes is a matter of time, too.
ROUNDS, FEWEST_CUTS = 3, 10


@pytest.fixture(autouse=True)
def flushes_in_greenlets(monkeypatch):
    flush_pool.use(monkeypatch)


class Cuts:
    """Takes cuts of a disk before some of its seam calls, each with a copy of the account at that moment."""

    def __init__(self, disk, account, target, random, share):
        self.disk, self.account, self.target, self.random, self.share = disk, account, target, random, share
        self.taken = []

    def on_call(self, call, path):
        if self.random.random() < self.share:
            self.take()

    def take(self):
        self.taken.append((self.disk.cut(f"{self.target}-{len(self.taken)}"), self.account.copy()))


def check_cut(folder, account):
    found = found_in(folder)
    account.check([(number, redelivered) for number, redelivered, _ in found], power_cut=True)
    return found


def check_cut_twice(folder, account, random):
    """Recover with cuts during the recovery and the first work after it;
    every one of those must be as good.
    """
    disk = Disk(folder, random)
    cuts = Cuts(disk, account, f"{folder}-again", random, SECOND_CUT_SHARE)
    files = PowerCutFiles(disk, cuts.on_call)
    found = found_in(folder, files)
    account.check([(number, redelivered) for number, redelivered, _ in found], power_cut=True)
    cuts.take()
    for again, then in cuts.taken:
        check_cut(again, then)
        shutil.rmtree(again)  # what is gone soon is not written to the disk of a machine that has no time
    disk.discard()
    return len(cuts.taken)


@pytest.fixture
def uncached(monkeypatch):
    """The system never has pages for a new file: all that is appended is written with calls."""
    monkeypatch.setattr(File, "cached", property(lambda file: 0, lambda file, cached: None))


@pytest.mark.parametrize("seed", seeds(6))
def test_power_cuts_at_any_moment_and_in_recovery(tmp_path, seed):
    cut_at_any_moment_and_in_recovery(tmp_path, seed)


@pytest.mark.parametrize("seed", seeds(6))
def test_power_cuts_while_batches_are_written_with_calls(tmp_path, seed, uncached):
    cut_at_any_moment_and_in_recovery(tmp_path, seed)


def cut_at_any_moment_and_in_recovery(tmp_path, seed):
    random = Random(seed)
    (tmp_path / "data").mkdir()
    account = Account()
    disk = Disk(tmp_path / "data", random)
    cuts = Cuts(disk, account, tmp_path / "cut", random, CUT_SHARE)

    driver = Driver(disk, random, account, cuts.on_call)
    for round_ in count(1):
        driver.work(60)
        cuts.take()
        driver.kill()
        if round_ >= ROUNDS and len(cuts.taken) > FEWEST_CUTS:
            break
    disk.discard()

    for folder, then in cuts.taken:
        check_cut_twice(folder, then, random)
        shutil.rmtree(folder)


@pytest.mark.parametrize("seed", seeds(6))
def test_a_failed_flush_confirms_nothing_now_or_later(tmp_path, seed):
    """One flush in ten fails, and the system forgets what it was to write.

    Whatever was answered as durable is on the disk in the worst case.
    """
    fail_flushes(tmp_path, seed)


@pytest.mark.parametrize("seed", seeds(3))
def test_a_failed_flush_of_what_was_written_with_calls_confirms_nothing(tmp_path, seed, uncached):
    fail_flushes(tmp_path, seed)


def fail_flushes(tmp_path, seed):
    random = Random(seed)

    def fail_sometimes(path):
        if random.random() < 0.1:
            raise OSError(errno.EIO, "Input/output error", path)

    (tmp_path / "data").mkdir()
    account = Account()
    disk = Disk(tmp_path / "data", random, write_back=0)
    driver = Driver(disk, random, account, fail_flush=fail_sometimes)
    for number in count():
        driver.work(20)
        check_cut(disk.lay_out_flushed(tmp_path / f"cut-{number}"), account.copy())
        if number >= 7 and driver.failures:  # how many flushes there are is the machine's affair
            break
    disk.discard()


def test_a_folder_made_by_a_run_that_was_killed_is_flushed_by_the_next_one(tmp_path):
    """The folder is there when the last run looks, with nothing to recover, but its name is in the system's
    cache only. Found by seed 1021.
    """
    (tmp_path / "data").mkdir()
    disk = Disk(tmp_path / "data", Random(1), write_back=0)
    life = Life(disk.root, PowerCutFiles(disk))
    life.publish(0, True)
    life.store.write_out()
    life.files.switch_off()
    life.committer.kill()

    def fail(path):
        if path.endswith("jobs"):
            raise OSError(errno.EIO, "Input/output error", path)

    with pytest.raises(StoreError):
        Life(disk.root, PowerCutFiles(disk, flush_pause=fail))

    life = Life(disk.root, PowerCutFiles(disk))
    life.publish(1, True)
    life.committer.wait()

    assert 1 in [number for number, _, _ in found_in(disk.lay_out_flushed(tmp_path / "cut"))]
    disk.discard()


@pytest.mark.parametrize("goes", ["rests", "is left", "is emptied"])
@pytest.mark.parametrize("persistent", [False, True])
def test_acks_that_were_to_be_flushed_hold_though_their_segment_was_never_flushed(tmp_path, goes, persistent):
    """The segment's name is on the disk and, because the system wrote them back, its messages; no flush was
    ever asked for them. A transaction acks them, and the segment goes before or after the flush of that is
    asked for. Once it is answered, the messages do not come back.
    """
    (tmp_path / "data").mkdir()
    disk = Disk(tmp_path / "data", Random(1), write_back=0)
    life = Life(disk.root, PowerCutFiles(disk))
    msgs_path = life.store.path_of("msgs", 1)
    life.publish(0, False, size=30_000)
    life.committer.wait()  # the folder's names
    life.publish(1, persistent, size=30_000)  # one more does not fit
    life.store.write_out()
    disk.write_back(msgs_path)

    if goes == "is emptied":
        life.publish(2, False, size=30_000)
        life.committer.wait()
    for _, location, _, _ in life.take_all():
        life.store.delete(location)
    life.store.mark()
    if goes == "is left":
        life.publish(2, False, size=30_000)
    elif goes == "rests":
        life.rest()
    life.committer.wait()

    assert not os.path.exists(msgs_path)
    found = [number for number, _, _ in found_in(disk.lay_out_flushed(tmp_path / "cut"))]
    assert not {0, 1} & set(found)
    disk.discard()
