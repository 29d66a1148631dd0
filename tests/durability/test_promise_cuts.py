"""Power cuts on a leader and its follower, whose promises wait for both disks: at any change or flush of the
follower, behind each promise and in the middle of a sync, either folder boots with all that was promised, and
without damage.

The leader, the follower and the connection between them are the real ones; the disks are modelled, and what
the follower's threads do is done in the hub, so that cuts come at every call.
"""
from random import Random

import gevent
import pytest

from gomq_py.cluster import applier, follower, identity
from gomq_py.cluster.acknowledger import Acknowledger
from gomq_py.cluster.core.promises import Promises
from gomq_py.cluster.follower import Follower
from gomq_py.cluster.leader import Leader
from gomq_py.cluster.stream import EventStream
from gomq_py.storage.disk.plain_files import PlainFiles
from tests.durability import flush_pool
from tests.durability.broker_driver import EVERYTHING, TOPOLOGY, Driver, World, check_folder
from tests.durability.seeds import seeds
from tests.support.power_cut import Disk, PowerCutFiles
from tests.support.waiting import wait_until

SECRET = b"a secret of sixteen octets"
MOST_CUTS = 25


@pytest.fixture(autouse=True)
def threads_are_greenlets(monkeypatch):
    flush_pool.use(monkeypatch)
    for module in (applier, follower):
        monkeypatch.setattr(module, "in_thread", lambda function, *arguments: function(*arguments))


class Pair(Driver):
    """A driver whose promises wait for the follower with the folder ``copy``. ``cut()`` is called before each
    call of the follower's files, and while promises are answered, once they wait for it.
    """

    def __init__(self, folder, copy, random, operations):
        self.copy = Disk(copy, random)
        self.cut = None
        self.epoch = 1
        super().__init__(Disk(folder, random), random, World(), None, (EventStream(folder),), operations)

    def begin(self):
        super().begin()
        (self.stream,) = self.listeners
        self.promises = Promises()
        acknowledger = Acknowledger(self.promises, self.stream.want)
        self.life.broker.durability.add(acknowledger)
        mine = identity.of_leader(PlainFiles(), self.disk.root)
        self.leader = Leader(
            SECRET, mine.cluster_id, mine.epoch, self.stream, self.files.register, self.disk.root,
            "127.0.0.1", 0, acknowledger=acknowledger)
        self.leader.open()
        self.there = PowerCutFiles(
            self.copy, lambda *call: self.cut and self.cut(),
            lambda path: flush_pool.give_way(self.random))
        self.follower = Follower(
            self.there, self.copy.root, SECRET, "127.0.0.1", self.leader.port, "follower",
            identity.IdentityFile(
                self.there, self.copy.root, identity.of_follower(self.there, self.copy.root)))
        self.follower.start()
        self.await_follower()
        self.promises.require(self.leader.progress)
        self.promises.hold(False)

    def ask_for_sync(self):
        super().ask_for_sync()
        if self.random.random() < 0.3:
            kept = []
            self.life.broker.durability.when_safe(kept.append)
            self.wait(lambda: kept)
        if self.cut:
            self.cut()

    def await_follower(self):
        self.wait(lambda: any(found.is_synced for found in self.leader.progress.values()))

    def wait(self, condition):
        wait_until(condition, sleep=gevent.sleep, what=lambda: self.follower.status)

    def disturb(self, what):
        """Things that happen to the connection. The follower stays required."""
        if what == "epoch":
            self.epoch += 1
            self.leader.lead_on(self.epoch)
        elif what == "sync":
            self.files.register._tell("diverged")
        elif what == "cut":
            for link in self.leader.links:
                link.end(OSError("cut by the test"))

    def end(self):
        self.await_follower()
        self.wait(lambda: not len(self.promises) and self.life.committer.is_idle)
        self.follower.stop()
        self.leader.close()
        self.life.stop()


@pytest.mark.timeout(400)
@pytest.mark.parametrize("seed", seeds(2))
@pytest.mark.parametrize(
    "operations, share", [(TOPOLOGY, 0.2), (EVERYTHING, 0.05)], ids=["topology", "everything"])
def test_both_folders_boot_with_all_that_was_promised(tmp_path, seed, operations, share):
    random = Random(seed)
    for name in ("data", "copy"):
        (tmp_path / name).mkdir()
    pair, taken = Pair(tmp_path / "data", tmp_path / "copy", random, operations), []

    def cut():
        if random.random() < share and len(taken) < MOST_CUTS:
            number, then = len(taken), pair.world.copy()
            taken.append((pair.copy.cut(tmp_path / f"copy-{number}"), then))
            pair.disk.cut(tmp_path / f"data-{number}")

    pair.cut = cut
    for what in random.choices(("epoch", "sync", "cut", ""), k=6):
        pair.disturb(what)
        pair.work(25)
    pair.end()
    pair.cut = None

    assert taken
    for number, (folder, then) in enumerate(taken):
        check_folder(folder, then)
        check_folder(tmp_path / f"data-{number}", then)
    for model in (pair.disk, pair.copy):
        model.discard()
