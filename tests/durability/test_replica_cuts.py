"""Power cuts on a follower's replica and on the swap of a sync.

The replica gets nothing but the events as they are sent: at any event it boots with all that was promised,
and without damage. A sync leaves the former content or the next one, whenever the power goes or the process
is killed, also while a boot finishes the swap.
"""
import os
import shutil
from random import Random

import pytest

from gomq_py.cluster import identity, replica, staging
from gomq_py.cluster.identity import Identity
from gomq_py.cluster.replica import Replica
from gomq_py.cluster.staging import Staging
from gomq_py.cluster.wire import events
from gomq_py.storage.disk import swap
from gomq_py.storage.disk.data_dir import NOT_CONTENT
from gomq_py.storage.disk.plain_files import PlainFiles
from gomq_py.storage.disk.replication import Replicator
from tests.durability import flush_pool
from tests.durability.broker_driver import EVERYTHING, TOPOLOGY, World, check_folder
from tests.durability.seeds import seeds
from tests.durability.test_follower_cuts import MOST_CUTS, Followed
from tests.support.mirror import folder_content
from tests.support.model_leader import ModelLeader
from tests.support.power_cut import Disk, PowerCutFiles
from tests.support.watched_files import POOL_CALLS


@pytest.fixture(autouse=True)
def flushes_in_greenlets(monkeypatch):
    flush_pool.use(monkeypatch)


class Streamed(Replicator):
    """Sends each event to a replica at once, as its encoding. ``on_event()``: called behind each."""

    def __init__(self, source, files, copy):
        self.source = os.fspath(source)
        self.replica = Replica(files, copy)
        self.on_event = None

    def when_safe(self, position, callback):
        """As an acknowledger."""
        self.replica.flush()
        callback(None)

    def created(self, file_id, path, size):
        self._send(events.created(file_id, size, self._name(path)))

    def folder_created(self, path):
        self._send(events.folder_created(self._name(path)))

    def appended(self, file_id, file, start, end):
        self._send(events.written(file_id, start, file.read(start, end)))

    overwritten = appended

    def resized(self, file_id, path, size):
        self._send(events.resized(file_id, size))

    def renamed(self, file_id, source, target):
        self._send(events.renamed(file_id, self._name(source), self._name(target)))

    def unlinked(self, file_id, path):
        self._send(events.unlinked(file_id, self._name(path)))

    def folder_removed(self, path):
        self._send(events.folder_removed(self._name(path)))

    def flushed(self):
        self._send(events.flushed())

    def _send(self, operation):
        events.decode(operation, self.replica)
        if self.on_event is not None:
            self.on_event()

    def _name(self, path):
        return os.path.relpath(path, self.source)


@pytest.mark.timeout(400)
@pytest.mark.parametrize("one_by_one", [False, True], ids=["syncfs", "one by one"])
@pytest.mark.parametrize("seed", seeds(3))
@pytest.mark.parametrize(
    "operations, share", [(TOPOLOGY, 0.5), (EVERYTHING, 0.05)], ids=["topology", "everything"])
def test_replica_boots_with_all_that_was_promised_after_a_power_cut_at_any_event(
        tmp_path, monkeypatch, seed, operations, share, one_by_one):
    if one_by_one:
        monkeypatch.setattr(replica, "CAN_FLUSH_FILE_SYSTEMS", False)
    random = Random(seed)
    (tmp_path / "data").mkdir()
    (tmp_path / "copy").mkdir()
    disk, world, taken = Disk(tmp_path / "data", random), World(), []
    copy_disk = Disk(tmp_path / "copy", random, write_back=0.2)
    follower = Streamed(tmp_path / "data", PowerCutFiles(copy_disk), tmp_path / "copy")
    driver = Followed(disk, random, world, None, (follower,), operations)

    def cut():
        if random.random() < share and len(taken) < MOST_CUTS:
            taken.append((copy_disk.cut(tmp_path / f"cut-{len(taken)}"), world.copy()))

    follower.on_event = cut
    driver.work(300)
    driver.life.stop()
    follower.replica.close()

    assert taken
    assert folder_content(tmp_path / "copy") == folder_content(tmp_path / "data")
    for folder, then in taken:
        check_folder(folder, then)
    for model in (disk, copy_disk):
        model.discard()


# the swap

OLD, NEW = Identity(b"c" * 16, b"n" * 16, 3), Identity(b"c" * 16, b"n" * 16, 4)


class CutFiles(PowerCutFiles):
    """A cut may come in a flush, too: nothing of it counts then."""

    def about_to(self, call, subject):
        super().about_to(call, subject)
        if call in POOL_CALLS:
            self.on_call(call, subject)


class Cutter:
    """Files whose power is cut, or whose process is killed, at each call with a probability. ``taken``:
    folders that are left then.
    """

    def __init__(self, root, places, random, share):
        self.taken = []
        self.disk = Disk(root, random, write_back=0.2)
        self.files = CutFiles(self.disk, self._cut)
        self._root = root
        self._places = places
        self._random = random
        self.share = share

    def _cut(self, call, subject):
        if self._random.random() < self.share:
            self._take(self.disk.cut)
        if self._random.random() < self.share / 4:
            self._take(lambda target: shutil.copytree(self._root, target))

    def _take(self, lay_out):
        target = self._places / str(len(os.listdir(self._places)))
        lay_out(target)
        self.taken.append(target)


def state(root):
    """Everything in a data folder that was booted."""
    found = folder_content(root)
    assert not any(name.startswith(".sync") for name in found)
    return found


@pytest.mark.timeout(400)
@pytest.mark.parametrize("one_by_one", [False, True], ids=["syncfs", "one by one"])
@pytest.mark.parametrize("seed", seeds(6))
def test_sync_leaves_the_old_content_or_the_new_one_at_any_power_cut(
        tmp_path, monkeypatch, seed, one_by_one):
    if one_by_one:
        monkeypatch.setattr(staging, "CAN_FLUSH_FILE_SYSTEMS", False)
    random = Random(seed)
    root, places = tmp_path / "data", tmp_path / "cuts"
    root.mkdir()
    places.mkdir()
    first = Replica(PlainFiles(), root)
    leader = ModelLeader(random, first)
    leader.change(60)
    first.close()
    identity.write(PlainFiles(), root, OLD)
    old = state(root)
    cutter = Cutter(root, places, random, 0.02)

    sync = leader.tell = Staging(cutter.files, root)
    for _ in leader.steps(dict, 8):
        leader.change(random.randrange(3))
    before = len(cutter.taken)
    cutter.share = 0.4
    sync.complete(NEW).close()

    new = state(root)
    assert new == {**leader.content, ".cluster": new[".cluster"]} and identity.read(root) == NEW
    assert len(cutter.taken) > before
    for number, folder in enumerate(cutter.taken):
        boot = Cutter(folder, places, random, 0.3)
        swap.finish(boot.files, str(folder), NOT_CONTENT)
        left = state(folder)
        assert left in ([old] if number < before else [old, new])
        boot.files.switch_off()
        boot.disk.discard()
        for again in boot.taken:
            swap.finish(PlainFiles(), str(again), NOT_CONTENT)
            assert state(again) == left
    cutter.disk.discard()


@pytest.mark.parametrize("seed", seeds(4))
def test_what_was_synced_is_on_the_disk(tmp_path, seed):
    """When ``complete`` has returned, not even a cut that keeps only what was flushed undoes it."""
    random = Random(seed)
    root = tmp_path / "data"
    root.mkdir()
    disk = Disk(root, random)
    leader = ModelLeader(random, Staging(PowerCutFiles(disk), root))
    for _ in leader.steps(dict, 8):
        leader.change(5)
    folder = leader.tell.complete(NEW)
    folder.created(1000, 3, "later")
    folder.flush()
    folder.close()

    disk.lay_out_flushed(tmp_path / "cut")
    swap.finish(PlainFiles(), str(tmp_path / "cut"), NOT_CONTENT)

    assert state(tmp_path / "cut") == state(root)
    disk.discard()
