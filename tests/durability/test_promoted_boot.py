"""The boot of a promoted follower: one flush for all queues, and no power cut in it costs a message."""
import errno
import os
from random import Random

import pytest

from gomq_py.storage.disk import data_dir
from gomq_py.storage.disk.data_dir import FOLLOWED, KILLED, DataDir
from gomq_py.storage.stores.unsealed import Unsealed
from tests.durability import flush_pool
from tests.durability.broker_driver import EVERYTHING, TOPOLOGY, Driver, Life, World
from tests.durability.seeds import seeds
from tests.durability.test_broker_cuts import cutter
from tests.support.mirror import Mirror
from tests.support.node import Node
from tests.support.power_cut import Disk
from tests.support.unflushed import Unflushed
from tests.support.watched_files import FLUSHES, WatchedFiles


@pytest.fixture(autouse=True)
def flushes_in_greenlets(monkeypatch):
    flush_pool.use(monkeypatch)


class CountedFiles(WatchedFiles):
    """``flushes``: paths of what was flushed so far; ``of_all``: number of flushes of everything, which fail
    if this one ``fails``.
    """

    def __init__(self, fails=False):
        super().__init__()
        self.flushes, self.of_all = [], 0
        self._fails = fails

    def about_to(self, call, subject):
        if call not in FLUSHES:
            return
        if self._fails and call == "sync" and os.path.isdir(subject):
            raise OSError(errno.EIO, "Input/output error", subject)
        self.flushes.append(os.fspath(subject))
        if call == "sync" and os.path.isdir(subject):
            self.of_all += 1


def followed(root, queues):
    """Leave a follower's folder with that many queues of one message."""
    node = Node(root, Unflushed())
    for number in range(queues):
        node.vhost.declare_queue(f"q{number}", True, False, False, {})
        node.publish("", f"q{number}", b"kept")
    node.committer.wait()
    node.kill()
    follow(root)


def follow(root):
    DataDir(root, lock=False).follow().close()


def booted(root, files):
    node = Node(root, files)
    assert node.data_dir.last_end == FOLLOWED
    return node


def flushes_of(root, queues):
    followed(root, queues)
    files = CountedFiles()
    node = booted(root, files)
    flushes = sorted(os.path.relpath(path, root) for path in files.flushes)
    assert [node.take(f"q{number}")[0] for number in range(queues)] == [b"kept"] * queues
    node.stop()
    return flushes


@pytest.mark.skipif(not Unsealed.is_possible(), reason="this system flushes no whole file system")
def test_boot_flushes_once_for_all_queues(tmp_path):
    few, many = (flushes_of(tmp_path / str(queues), queues) for queues in (2, 60))

    assert few == many


def test_segments_are_sealed_behind_the_flush(tmp_path):
    followed(tmp_path / "data", 3)
    with pytest.raises(OSError, match="Input/output"):
        booted(tmp_path / "data", CountedFiles(fails=True))

    files = CountedFiles()
    booted(tmp_path / "data", files).kill()
    assert files.of_all == 1  # the boot that failed has sealed nothing
    follow(tmp_path / "data")
    files = CountedFiles()
    booted(tmp_path / "data", files).kill()
    assert not files.of_all


@pytest.fixture
def promoted(monkeypatch):
    """Each boot after a kill is that of a promoted follower that has not flushed all it has written."""
    last_end = data_dir._last_end

    def ended(*arguments):
        found = last_end(*arguments)
        return FOLLOWED if found == KILLED else found

    monkeypatch.setattr(data_dir, "_last_end", ended)


@pytest.mark.timeout(400)
@pytest.mark.parametrize("seed", seeds(6))
@pytest.mark.parametrize(
    "operations, share", [(TOPOLOGY, 0.05), (EVERYTHING, 0.01)], ids=["topology", "everything"])
def test_power_cuts_in_and_after_the_boot_of_a_promoted_follower(
        tmp_path, promoted, seed, operations, share):
    random = Random(seed)
    (tmp_path / "data").mkdir()
    disk, world, taken = Disk(tmp_path / "data", random), World(), []
    mirror = Mirror(tmp_path / "data", tmp_path / "mirror")
    at_random = cutter(disk, world, tmp_path / "cut", random, share, taken)
    at_once = cutter(disk, world, tmp_path / "sure", random, 1, taken)

    def on_call(call, path):
        if call == "sync_all":
            at_once(call, path)
        at_random(call, path)

    driver = Driver(disk, random, world, on_call, (mirror,), operations)
    for _ in range(4):
        driver.work(50)
        driver.kill()
        for _ in range(2):
            at_once("none", "")
            driver.work(2)
    driver.life.stop()
    disk.discard()

    assert mirror.differences() == []
    for folder, then in taken:
        life = Life(folder, Unflushed())
        then.check(life, power_cut=True)
        assert life.broker.damage()[0] == 0, "found when it was read"
        life.stop()
