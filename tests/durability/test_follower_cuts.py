"""Power cuts on a follower, which has nothing but what the file seam tells: at any event it boots with all
that was promised, and without damage.

The follower flushes before it says that it keeps something, and before it goes on behind a flush of the
leader. Without the second, a queue whose deletion was promised comes back without its messages, or a seal is
on the disk before what it covers.
"""
from random import Random

import pytest

from tests.durability import flush_pool
from tests.durability.broker_driver import EVERYTHING, TOPOLOGY, Driver, World, check_folder
from tests.durability.seeds import seeds
from tests.support.mirror import Mirror
from tests.support.power_cut import Disk

MOST_CUTS = 60


@pytest.fixture(autouse=True)
def flushes_in_greenlets(monkeypatch):
    flush_pool.use(monkeypatch)


class Follower(Mirror):
    """A mirror on a modelled disk. ``on_event()``: called behind each event, None until it has flushed once.
    """

    def __init__(self, source, copy, random):
        super().__init__(source, copy)
        self.disk = Disk(copy, random, write_back=0.2)
        self.on_event = None
        self._is_behind_flush = False

    def flush(self):
        self._is_behind_flush = False
        self.disk.flush_all()

    def flushed(self):
        self._is_behind_flush = True

    def when_safe(self, position, callback):
        """As an acknowledger."""
        self.flush()
        callback(None)

    # each event: the barrier, the change, what the disk knows of it

    def created(self, file_id, path, size):
        self._before()
        super().created(file_id, path, size)
        self.disk.born(self._here(path))
        self._behind()

    def folder_created(self, path):
        self._before()
        super().folder_created(path)
        self.disk.folder_born(self._here(path))
        self._behind()

    def appended(self, file_id, file, start, end):
        self._before()
        super().appended(file_id, file, start, end)
        self._behind()

    def overwritten(self, file_id, file, start, end):
        self._before()
        super().overwritten(file_id, file, start, end)
        self._behind()

    def resized(self, file_id, path, size):
        self._before()
        super().resized(file_id, path, size)
        self._behind()

    def renamed(self, file_id, source, target):
        self._before()
        super().renamed(file_id, source, target)
        self.disk.renamed(self._here(source), self._here(target))
        self._behind()

    def unlinked(self, file_id, path):
        self._before()
        super().unlinked(file_id, path)
        self.disk.gone(self._here(path))
        self._behind()

    def folder_removed(self, path):
        self._before()
        super().folder_removed(path)
        self.disk.gone(self._here(path))
        self._behind()

    def _before(self):
        if self._is_behind_flush:
            self.flush()

    def _behind(self):
        self.disk.tick()
        if self.on_event is not None:
            self.on_event()


class Followed(Driver):
    """A driver whose promises wait for its follower, too."""

    def begin(self):
        super().begin()
        (follower,) = self.listeners
        self.life.broker.durability.add(follower)


@pytest.mark.timeout(400)
@pytest.mark.parametrize("seed", seeds(4))
@pytest.mark.parametrize(
    "operations, share", [(TOPOLOGY, 0.5), (EVERYTHING, 0.05)], ids=["topology", "everything"])
def test_follower_boots_with_all_that_was_promised_after_a_power_cut_at_any_event(
        tmp_path, seed, operations, share):
    random = Random(seed)
    (tmp_path / "data").mkdir()
    (tmp_path / "copy").mkdir()
    disk, world, taken = Disk(tmp_path / "data", random), World(), []
    follower = Follower(tmp_path / "data", tmp_path / "copy", random)
    driver = Followed(disk, random, world, None, (follower,), operations)

    def cut():
        if random.random() < share and len(taken) < MOST_CUTS:
            taken.append((follower.disk.cut(tmp_path / f"cut-{len(taken)}"), world.copy()))

    follower.flush()
    follower.on_event = cut
    driver.work(300)
    driver.life.stop()
    follower.on_event = None

    assert follower.differences() == []
    for folder, then in taken:
        check_folder(folder, then)
    for model in (disk, follower.disk):
        model.discard()
