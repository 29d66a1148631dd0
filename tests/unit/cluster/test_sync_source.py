"""What a sync sends, seen by the order of its payloads: the listing, what differs, and the end."""
import os
from types import SimpleNamespace

import gevent
import pytest

from gomq_py.cluster import sync_source as module
from gomq_py.cluster.sync_source import BLOCK_OCTETS, CHUNK_OCTETS, SyncError, SyncSource
from gomq_py.cluster.wire import events
from gomq_py.cluster.wire.messages import block_digest
from gomq_py.storage.disk.data_dir import OF_THIS_NODE
from gomq_py.storage.disk.files import Files
from gomq_py.storage.disk.replication import Replicator
from tests.support.stores import StoreBench
from tests.support.waiting import wait_until


class Nobody(Replicator):
    """Hears of everything, so that the files have a register."""

    def ignore(self, *_):
        pass

    created = folder_created = appended = overwritten = resized = renamed = unlinked = folder_removed = ignore
    flushed = ignore


class Sync:
    """A sync of the folder ``root``, which sends to this object; ``has`` is what the follower has, as
    {path: octets}, and answers for every file that is listed.
    """

    def __init__(self, root, has=None, answers=True):
        self.root = os.fspath(root)
        self.files = Files((Nobody(),))
        self.calls = []
        self.has = has or {}
        self.answers = answers
        self.source = SyncSource(self.root, self.files.register, self.put, self.wait_for_room)
        self.turns = []

    def path(self, *names):
        return os.path.join(self.root, *names)

    def seed(self):
        self.files.register.seed(self.root, OF_THIS_NODE)
        return self

    def run(self):
        self.source.run()
        return self

    def put(self, payload):
        events.decode(payload, self)

    def wait_for_room(self):
        self.turns.append(len(self.calls))

    def __getattr__(self, name):
        return lambda *arguments: self.calls.append((name, *arguments))

    def written(self, file_id, start, octets):
        self.calls.append(("written", file_id, start, bytes(octets)))

    def listed(self, file_id, size, path):
        self.calls.append(("listed", file_id, size, path))
        if self.answers:
            old = self.has.get(path, b"")
            blocks = [old[at:at + BLOCK_OCTETS] for at in range(0, len(old), BLOCK_OCTETS)]
            self.source.hashes(file_id, tuple(map(block_digest, blocks)))

    def names(self):
        return [call[0] for call in self.calls]

    def chunks(self):
        return [(start, len(octets)) for name, _, start, octets in (
            call for call in self.calls if call[0] == "written")]


@pytest.fixture
def clock(monkeypatch):
    """The clock of syncs, which stands still."""
    clock = SimpleNamespace(now_s=1000.0)
    monkeypatch.setattr(module, "time", SimpleNamespace(monotonic=lambda: clock.now_s))
    return clock


def write(root, content):
    for name, octets in content.items():
        path = os.path.join(root, name)
        os.makedirs(os.path.dirname(path), exist_ok=True)
        with open(path, "wb") as file:
            file.write(octets)


def test_listing_comes_first_then_the_content_then_the_end(tmp_path):
    write(tmp_path, {"users": b"users", "queues/q/msgs": b"msgs", "queues/empty": b""})

    sync = Sync(tmp_path).seed().run()

    names = sync.names()
    assert names == [
        *2 * ["listed_folder"], *3 * ["listed"], "listed_all", *2 * ["written"], "synced"]
    assert {call[1] for call in sync.calls if call[0] == "listed_folder"} == {"queues", "queues/q"}
    assert {call[2:] for call in sync.calls if call[0] == "listed"} == {
        (5, "users"), (4, "queues/q/msgs"), (0, "queues/empty")}
    assert sync.source.done_octets == sync.source.total_octets == sync.source.sent_octets == 9


def test_empty_folder_is_synced_at_once(tmp_path):
    assert Sync(tmp_path).run().names() == ["listed_all", "synced"]


def test_files_of_this_node_are_not_listed(tmp_path):
    mine = (*OF_THIS_NODE - {".sync"}, ".cluster", ".cluster.new.1", ".sync/msgs", "lost+found/x")
    write(tmp_path, dict.fromkeys((*mine, "users", "q/.lock"), b"x"))
    sync = Sync(tmp_path)
    sync.files.register.seed(sync.root, ())

    sync.run()

    assert sorted(call[-1] for call in sync.calls if call[0].startswith("listed_f")) == ["q"]
    assert sorted(call[-1] for call in sync.calls if call[0] == "listed") == ["q/.lock", "users"]


def test_equal_blocks_are_not_sent(tmp_path):
    content = os.urandom(3 * BLOCK_OCTETS + 5)
    has = bytearray(content)
    has[BLOCK_OCTETS] ^= 1
    write(tmp_path, {"msgs": content})

    sync = Sync(tmp_path, {"msgs": bytes(has)}).seed().run()

    assert sync.chunks() == [
        (at, CHUNK_OCTETS) for at in range(BLOCK_OCTETS, 2 * BLOCK_OCTETS, CHUNK_OCTETS)]


def test_zeros_are_sent_only_over_what_the_follower_has(tmp_path):
    content = bytearray(3 * BLOCK_OCTETS)
    content[CHUNK_OCTETS] = content[-1] = 1
    write(tmp_path, {"new": bytes(content), "old": bytes(BLOCK_OCTETS)})

    sync = Sync(tmp_path, {"old": b"x" * BLOCK_OCTETS}).seed().run()

    ids = {call[3]: call[1] for call in sync.calls if call[0] == "listed"}
    written = [(call[1], call[2]) for call in sync.calls if call[0] == "written"]
    assert [start for file_id, start in written if file_id == ids["new"]] == [
        CHUNK_OCTETS, 3 * BLOCK_OCTETS - CHUNK_OCTETS]
    assert [start for file_id, start in written if file_id == ids["old"]] == list(
        range(0, BLOCK_OCTETS, CHUNK_OCTETS))


def test_long_file_is_compared_in_parts(tmp_path):
    write(tmp_path, {"long": bytes(40 * BLOCK_OCTETS) + b"end"})

    sync = Sync(tmp_path).seed().run()

    assert sync.chunks() == [(40 * BLOCK_OCTETS, 3)]
    assert sync.source.done_octets == 40 * BLOCK_OCTETS + 3


def test_names_are_listed_in_slices(tmp_path, monkeypatch):
    monkeypatch.setattr(module, "SLICE_NAMES", 3)
    write(tmp_path, {f"folder.{number}/file": b"" for number in range(10)})

    sync = Sync(tmp_path).seed().run()

    assert sync.turns[:8] == [3, 6, 9, 10, 13, 16, 19, 20]


def test_file_that_a_thread_has_renamed_is_listed_when_that_is_told(tmp_path, monkeypatch):
    monkeypatch.setattr(module, "RENAMED_S", 0.001)
    write(tmp_path, {"before": b"octets", "other": b"x"})
    sync = Sync(tmp_path).seed()
    change = sync.files.renaming(sync.path("before"), sync.path("after"))
    change.act()

    running = gevent.spawn(sync.run)
    wait_until(lambda: ("listed", sync.files.register.id_of(sync.path("other")), 1, "other") in sync.calls,
               sleep=gevent.sleep)
    assert "listed_all" not in sync.names()
    change.told()
    running.get()

    assert {call[3] for call in sync.calls if call[0] == "listed"} == {"other", "after"}
    assert {call[3] for call in sync.calls if call[0] == "written"} == {b"x", b"octets"}


def begin_and_rename(root):
    """A sync that has listed a file, which a thread has renamed since; its greenlet; the rename, untold."""
    write(root, {"before": b"octets"})
    sync = Sync(root, answers=False).seed()
    running = gevent.spawn(sync.run)
    wait_until(lambda: "listed_all" in sync.names(), sleep=gevent.sleep)
    change = sync.files.renaming(sync.path("before"), sync.path("after"))
    change.act()
    return sync, running, change


def answer_until_it_is_missed(sync):
    sync.source.hashes(1, ())
    wait_until(lambda: sync.source._tasks and sync.source._tasks[0].give_up_s, sleep=gevent.sleep)


def test_file_that_is_renamed_before_its_content_is_read_is_looked_for_again(tmp_path, monkeypatch):
    monkeypatch.setattr(module, "RENAMED_S", 0.001)
    sync, running, change = begin_and_rename(tmp_path)
    answer_until_it_is_missed(sync)

    change.told()
    running.get()

    assert sync.calls[-2:] == [("written", 1, 0, b"octets"), ("synced",)]


def test_file_in_the_place_of_a_renamed_one_is_not_read_for_it(tmp_path, monkeypatch):
    """A thread has renamed one and made the other, and the hub has told of neither."""
    monkeypatch.setattr(module, "RENAMED_S", 0.001)
    sync, running, change = begin_and_rename(tmp_path)
    write(tmp_path, {"before": b"others"})
    answer_until_it_is_missed(sync)

    change.told()
    running.get()

    assert sync.calls[-2:] == [("written", 1, 0, b"octets"), ("synced",)]


def test_file_that_is_gone_is_awaited_no_longer(tmp_path, monkeypatch):
    monkeypatch.setattr(module, "LOOK_S", 0.001)
    write(tmp_path, {"msgs": b"octets"})
    sync = Sync(tmp_path, answers=False).seed()
    running = gevent.spawn(sync.run)
    wait_until(lambda: "listed_all" in sync.names(), sleep=gevent.sleep)

    sync.files.unlink(sync.path("msgs"))
    running.get()

    assert sync.names() == ["listed", "listed_all", "synced"]
    assert sync.source.done_octets == sync.source.total_octets


def test_file_that_is_gone_before_its_content_is_read_is_left_out(tmp_path):
    write(tmp_path, {"msgs": b"octets"})
    sync = Sync(tmp_path).seed()
    listed = sync.listed

    def listed_and_gone(*arguments):
        listed(*arguments)
        sync.files.unlink(sync.path("msgs"))

    sync.listed = listed_and_gone
    assert sync.run().names() == ["listed", "listed_all", "synced"]


def test_folder_that_is_renamed_during_the_listing_is_listed_with_its_new_name(tmp_path):
    write(tmp_path, {"folder/inner/file": b"x", "other/file": b"x"})
    sync = Sync(tmp_path).seed()
    listed = sync.listed

    def listed_and_renamed(*arguments):
        listed(*arguments)
        if sync.files.register.folders.get(sync.path("folder"), 0) is None:
            sync.files.rename(sync.path("folder"), sync.path("moved"))

    sync.listed = listed_and_renamed
    sync.run()

    folders = [call[1] for call in sync.calls if call[0] == "listed_folder"]
    assert folders.index("moved") > 0 and folders.index("moved/inner") > 0
    assert sync.names().index("listed_all") > max(
        at for at, name in enumerate(sync.names()) if name == "listed_folder")


def test_file_that_is_created_during_the_sync_is_not_listed(tmp_path):
    write(tmp_path, {"msgs": b"octets"})
    sync = Sync(tmp_path).seed()
    listed = sync.listed

    def listed_and_created(*arguments):
        listed(*arguments)
        sync.files.create(sync.path("new"), 10)

    sync.listed = listed_and_created
    assert sync.run().names() == ["listed", "listed_all", "written", "synced"]


def test_follower_that_does_not_answer_ends_the_sync(tmp_path, monkeypatch):
    monkeypatch.setattr(module, "LOOK_S", 0.001)
    monkeypatch.setattr(module, "ANSWER_MOST_S", 0.01)
    write(tmp_path, {"msgs": b"octets"})

    with pytest.raises(SyncError, match="waited for 0.01 s longer"):
        Sync(tmp_path, answers=False).seed().run()


def test_follower_that_drips_loses_its_turn(tmp_path, clock):
    """It answers for one small file every 59 s, which is in time for each of them."""
    write(tmp_path, {f"file.{number}": b"octets" for number in range(20)})
    sync = Sync(tmp_path, answers=False).seed()
    running = gevent.spawn(sync.run)
    wait_until(lambda: "listed_all" in sync.names(), sleep=gevent.sleep)
    answered = 0

    while not running.ready():
        clock.now_s += 59
        answered += 1
        sync.source.hashes(answered, ())
        wait_until(
            lambda: running.ready() or sync.names().count("written") == answered, sleep=gevent.sleep)

    assert isinstance(running.exception, SyncError) and answered < 10


def test_follower_that_takes_little_loses_its_turn(tmp_path, clock):
    write(tmp_path, {f"file.{number}": b"octets" for number in range(200)})
    sync = Sync(tmp_path).seed()

    def wait_for_room():
        clock.now_s += 29

    sync.source._wait_for_room = wait_for_room

    with pytest.raises(SyncError, match="too slow"):
        sync.run()


def test_file_that_stays_missing_ends_the_sync(tmp_path, monkeypatch):
    monkeypatch.setattr(module, "RENAMED_S", 0.001)
    monkeypatch.setattr(module, "MISSING_MOST_S", 0.01)
    write(tmp_path, {"msgs": b"octets"})
    sync = Sync(tmp_path).seed()
    os.unlink(tmp_path / "msgs")

    with pytest.raises(SyncError, match="msgs is missing"):
        sync.run()


def test_answer_about_an_unknown_file_is_ignored(tmp_path):
    sync = Sync(tmp_path).seed()

    sync.source.hashes(99, (1, 2, 3))

    assert sync.run().names() == ["listed_all", "synced"]


def test_chunk_is_read_in_the_turn_in_which_it_is_put(tmp_path):
    """A writer overwrites the file in every turn of the loop, and notes what it wrote."""
    write(tmp_path, {"msgs": bytes(4 * BLOCK_OCTETS)})
    sync = Sync(tmp_path).seed()
    file = sync.files.open(sync.path("msgs"))
    now = [0]
    stale = []

    def overwrite():
        while True:
            now[0] += 1
            file.map[:] = now[0].to_bytes(4, "big") * (BLOCK_OCTETS)
            gevent.sleep(0)

    def written(_file_id, _start, octets):
        if bytes(octets[:4]) != now[0].to_bytes(4, "big"):
            stale.append(octets)
        sync.calls.append(("written",))

    sync.written = written
    writer = gevent.spawn(overwrite)
    sync.run()
    writer.kill()

    assert sync.names().count("written") == 64 and not stale


# damage of the leader's own file

class Damaged:
    """A leader's sealed segment with a flipped bit, and a follower that has it as it was."""

    def __init__(self, folder):
        (folder / "made").mkdir()
        bench = StoreBench(folder / "made", enabled=True, segment_bytes=65536)
        for number in range(100):
            bench.push(b"%06d" % number * 100)
        bench.committer.wait()
        bench.close()
        self.name = "msgs.0000000001"
        self.sound = (folder / "made" / "queue" / self.name).read_bytes()
        self.damaged = bytearray(self.sound)
        self.damaged[self.sound.index(b"000005")] ^= 1
        self.root = folder / "leader"
        write(self.root, {self.name: bytes(self.damaged), "users": b"users"})

    def sync(self, has, found_damage=lambda what: True):
        sync = Sync(self.root, has).seed()
        sync.source._found_damage = found_damage
        return sync


def test_damaged_segment_does_not_replace_the_followers(tmp_path):
    damaged, heard = Damaged(tmp_path), []
    sync = damaged.sync({damaged.name: damaged.sound}, lambda what: heard.append(what) or True)

    with pytest.raises(SyncError, match="msgs.0000000001 is damaged .*do not check.*may be sound") as raised:
        sync.run()

    ids = {call[3]: call[1] for call in sync.calls if call[0] == "listed"}
    assert heard == [str(raised.value)]
    assert ids[damaged.name] not in [call[1] for call in sync.calls if call[0] == "written"]
    assert "synced" not in sync.names()


@pytest.mark.parametrize("what", ["nothing", "equal", "accepted"])
def test_damaged_segment_is_sent_where_it_replaces_nothing_better(tmp_path, what):
    damaged = Damaged(tmp_path)
    has = {"nothing": b"", "equal": bytes(damaged.damaged), "accepted": damaged.sound}[what]

    sync = damaged.sync({damaged.name: has}, lambda text: what != "accepted")

    assert sync.run().names()[-1] == "synced"


def test_segment_that_differs_is_checked_once(tmp_path, monkeypatch):
    """In several batches of blocks."""
    checked = []
    monkeypatch.setattr(module, "lost_in", lambda path: checked.append(os.path.basename(path)) or "")
    long = bytes(40 * BLOCK_OCTETS)
    write(tmp_path, {"msgs.0000000001": long, "acks.0000000001": long})
    other = b"x" * len(long)

    Sync(tmp_path, {"msgs.0000000001": other, "acks.0000000001": other}).seed().run()

    assert checked == ["msgs.0000000001"]
