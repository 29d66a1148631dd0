"""What is kept by key (mqtt.model.keyed_store) under power cuts and kills, at any moment of changes, of
writing anew and of rolling, and in the boot after.

Of each key the last change that was answered is there, or a later one, never an earlier one. Each seed is
one run of several processes on one modelled disk.
"""
import os
import pickle
import shutil
import signal
import subprocess
import sys
from itertools import count
from pathlib import Path
from random import Random

import gevent
import pytest

from gomq_py.broker.broker import Broker
from gomq_py.config.settings import Settings
from gomq_py.hub.context import Hub
from gomq_py.storage.disk.data_dir import DataDir
from gomq_py.storage.flush.durability import Durability
from gomq_py.storage.flush.group_commit import GroupCommit
from tests.durability import flush_pool
from tests.durability.flush_pool import give_way
from tests.durability.seeds import seeds
from tests.support.command import ROOT
from tests.support.kept import STORE, content, kept_kinds, made
from tests.support.power_cut import Disk, PowerCutFiles
from tests.support.unflushed import Unflushed
from tests.support.waiting import wait_until

SETTINGS = Settings(segment_size=65536, default_user="")
KEYS = [f"k{number}" for number in range(12)]
CUT_SHARE, SECOND_CUT_SHARE = 0.004, 0.02
ROUNDS, FEWEST_CUTS = 2, 6
SIZES = (0, 30, 3000, 12000)


@pytest.fixture(autouse=True)
def flushes_in_greenlets(monkeypatch):
    flush_pool.use(monkeypatch)


class Account:
    """For each key the changes that may count after a crash, oldest first: (number, whether it is there).

    The first was answered, or there was none.
    """

    def __init__(self):
        self.number = 0
        self.changes = {key: [(0, False)] for key in KEYS}

    def copy(self):
        return pickle.loads(pickle.dumps(self))

    def change(self, key, is_there):
        self.number += 1
        self.changes[key].append((self.number, is_there))
        return self.number

    def answered(self, number):
        for changes in self.changes.values():
            while len(changes) > 1 and changes[1][0] <= number:
                del changes[0]

    def check(self, found):
        """``found``: {key: number of the change that is there}."""
        for key, changes in self.changes.items():
            possible = [number if is_there else None for number, is_there in changes]
            assert found.get(key) in possible, f"{key} is {found.get(key)}, may be {possible}"
        assert found.keys() <= set(KEYS)

    def start_anew(self, found):
        self.changes = {key: [(found.get(key, 0), key in found)] for key in KEYS}


class Life:
    """One process."""

    def __init__(self, root, files):
        self.files = files
        self.data_dir = DataDir(root, files, lock=False).open()
        self.committer = GroupCommit(files)
        self.hub = Hub(SETTINGS)
        self.broker = Broker(
            self.data_dir, files, Durability(self.committer), SETTINGS, self.hub, kept_kinds())
        self.broker.recover()
        self.kept = self.broker.vhosts["/"].extras[STORE]

    def found(self):
        assert self.broker.damage()[0] == 0, "reported as damage"
        return {key: int(body.partition(b" ")[0]) for key, body in content(self.kept).items()}

    def kill(self):
        self.files.switch_off()
        self.hub.close()
        self.committer.kill()

    def stop(self):
        self.broker.close()
        self.committer.stop()
        self.hub.close()
        self.data_dir.close(in_order=True)


class Driver:
    """Random changes, with the account of what may be there."""

    def __init__(self, disk, random, account, on_call=None):
        self.disk, self.random, self.account, self.on_call = disk, random, account, on_call
        self.begin()

    def begin(self):
        files = PowerCutFiles(self.disk, self.on_call, lambda path: give_way(self.random))
        self.life = Life(self.disk.root, files)
        found = self.life.found()
        self.account.check(found)
        self.account.start_anew(found)

    def kill(self):
        self.life.kill()
        self.begin()

    def work(self, steps):
        for _ in range(steps):
            for _ in range(self.random.randrange(1, 6)):
                self.one(self.random.choice(KEYS[:self.random.choice((2, 12))]))
            self.life.kept.write_out()
            if self.random.random() < 0.4:
                self.ask_for_sync()
            for _ in range(self.random.randrange(4)):
                gevent.sleep(0)

    def one(self, key):
        kept = self.life.kept
        if self.random.random() < 0.25:
            self.account.change(key, False)
            kept.delete(key)
            return
        number = self.account.change(key, True)
        assert kept.put(key, made(key, b"%d " % number + bytes(self.random.choice(SIZES)))) == 1

    def ask_for_sync(self):
        number, life = self.account.number, self.life

        def answered(error):
            assert error is None or life.files.off, error
            if error is None:
                self.account.answered(number)

        life.committer.after_sync(answered)


def cutter(disk, account, target, random, share, taken):
    def on_call(call, path):
        if random.random() < share:
            taken.append((disk.cut(f"{target}-{len(taken)}"), account.copy()))
    return on_call


def check_cut(folder, account, files=None):
    life = Life(folder, files or Unflushed())
    account.check(life.found())
    for _ in range(20):
        gevent.sleep(0)
    if files is None:
        life.stop()
    else:
        life.kill()


def check_cut_twice(folder, account, random):
    disk, taken = Disk(folder, random), []
    on_call = cutter(disk, account, f"{folder}-again", random, SECOND_CUT_SHARE, taken)
    check_cut(folder, account, PowerCutFiles(disk, on_call, lambda path: give_way(random)))
    taken.append((disk.cut(f"{folder}-end"), account))
    for again, then in taken:
        check_cut(again, then)
        shutil.rmtree(again)
    disk.discard()


@pytest.mark.timeout(400)
@pytest.mark.parametrize("seed", seeds(3))
def test_power_cuts_at_any_moment_and_in_the_boot_after(tmp_path, seed):
    random = Random(seed)
    (tmp_path / "data").mkdir()
    disk, account, taken = Disk(tmp_path / "data", random), Account(), []

    driver = Driver(disk, random, account, cutter(disk, account, tmp_path / "cut", random, CUT_SHARE, taken))
    for round_ in count(1):
        driver.work(50)
        driver.kill()
        if round_ >= ROUNDS and len(taken) > FEWEST_CUTS:
            break
    driver.life.kill()
    disk.discard()

    for folder, then in taken:
        check_cut_twice(folder, then, random)
        shutil.rmtree(folder)


# a process that is killed

def work_until_killed(root, target):
    """What the child does: changes without end. It says in ``target`` which it makes, and which are answered.
    """
    random, account = Random(7), Account()
    life = Life(root, Unflushed())
    with open(target, "wb", buffering=0) as log:

        def answered(number):
            log.write(pickle.dumps(("answered", number)))

        while True:
            for _ in range(random.randrange(1, 20)):
                key, is_there = random.choice(KEYS), random.random() > 0.25
                number = account.change(key, is_there)
                log.write(pickle.dumps(("change", number, key, is_there)))
                if is_there:
                    life.kept.put(key, made(key, b"%d " % number + bytes(random.choice(SIZES))))
                else:
                    life.kept.delete(key)
            life.kept.write_out()
            life.committer.after_sync(lambda _, number=number: answered(number))
            gevent.sleep(0)


def account_of(target):
    """The Account that a killed process has left."""
    account = Account()
    with open(target, "rb") as file:
        while True:
            try:
                what, number, *change = pickle.load(file)
            except EOFError:
                return account
            if what == "answered":
                account.answered(number)
            else:
                assert account.change(*change) == number


@pytest.mark.parametrize("octets", [2_000, 200_000])
def test_process_that_is_killed_leaves_what_was_answered(tmp_path, octets):
    root, target = tmp_path / "data", tmp_path / "said"
    child = subprocess.Popen(
        [sys.executable, "-m", __name__, str(root), str(target)], cwd=ROOT,
        env={**os.environ, "PYTHONPATH": str(ROOT)})
    try:
        wait_until(lambda: child.poll() is not None or target.exists() and target.stat().st_size >= octets)
        assert child.poll() is None
    finally:
        child.send_signal(signal.SIGKILL)
        child.wait()

    for _ in range(2):
        life = Life(root, Unflushed())
        account_of(target).check(life.found())
        life.stop()


if __name__ == "__main__":
    work_until_killed(Path(sys.argv[1]), sys.argv[2])
