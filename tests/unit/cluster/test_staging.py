"""Staging: what a sync brings lands beside the data folder, and replaces it when it is whole."""
import os
from random import Random

import pytest

from gomq_py.cluster import identity, staging
from gomq_py.cluster.identity import Identity
from gomq_py.cluster.replica import Replica, ReplicaError
from gomq_py.cluster.staging import Staging
from gomq_py.storage.disk import swap
from gomq_py.storage.disk.data_dir import NOT_CONTENT
from gomq_py.storage.disk.plain_files import PlainFiles
from tests.support.mirror import folder_content
from tests.support.model_leader import ModelLeader, digest_of

ONE = Identity(b"c" * 16, b"n" * 16, 3)
BLOCK = 8


@pytest.fixture(autouse=True)
def small_blocks(monkeypatch):
    monkeypatch.setattr(staging, "BLOCK_OCTETS", BLOCK)


def content(root):
    """Of a data folder, without its identity and version."""
    return {
        name: octets for name, octets in folder_content(root).items()
        if name not in (".cluster", "schema_version")}


def answers(sync):
    """What the follower would send: {id: checksums}."""
    found = {}
    while batch := sync.take_listed(3, 4):
        parts = [(file_id, 0, blocks) for file_id, blocks in batch]
        found.update(zip([file_id for file_id, _ in batch], sync.checksums(parts), strict=True))
    return found


def complete(sync):
    sync.listed(99, 2, "schema_version")
    sync.listed_all()
    sync.synced()
    done = sync.complete(ONE)
    done.close()


def fill(root, **files):
    for name, octets in files.items():
        (root / name).write_bytes(octets)


def test_listed_files_replace_the_folder(tmp_path):
    fill(tmp_path, gone=b"x", same=b"abcdefgh12", other=b"abcdefgh12345678", longer=b"abc", shorter=b"abcdef")
    (tmp_path / "old").mkdir()
    fill(tmp_path / "old", file=b"x")
    sync = Staging(PlainFiles(), tmp_path)

    sync.listed_folder("queues")
    sync.listed(1, 10, "same")
    sync.listed(2, 16, "other")
    sync.listed(3, 5, "longer")
    sync.listed(4, 2, "shorter")
    sync.listed(5, 4, "new/deep/file")
    sync.listed_all()
    found = answers(sync)
    sync.written(2, 8, b"87654321")
    sync.written(5, 0, b"new!")

    assert found == {
        1: [digest_of(b"abcdefgh"), digest_of(b"12")], 2: [digest_of(b"abcdefgh"), digest_of(b"12345678")],
        3: [digest_of(b"abc\0\0")], 4: [digest_of(b"ab")], 5: [],
    }
    assert {"gone", "old/file"} <= content(tmp_path).keys()
    assert (tmp_path / "other").read_bytes() == b"abcdefgh12345678"
    complete(sync)
    assert content(tmp_path) == {
        "queues": None, "same": b"abcdefgh12", "other": b"abcdefgh87654321", "longer": b"abc\0\0",
        "shorter": b"ab", "new": None, "new/deep": None, "new/deep/file": b"new!",
    }
    assert identity.read(tmp_path) == ONE


def test_listed_files_are_taken_in_small_groups(tmp_path):
    fill(tmp_path, one=b"x", two=b"x" * 50, three=b"x" * 9, four=b"x" * 9)
    sync = Staging(PlainFiles(), tmp_path)
    for number, name in enumerate(("one", "two", "three", "four", "five"), start=1):
        sync.listed(number, 100, name)

    assert sync.take_listed(2, 4) == [(1, 1)]
    assert sync.take_listed(2, 4) == [(2, 7)]
    assert sync.take_listed(2, 4) == [(3, 2), (4, 2)]
    assert sync.take_listed(2, 4) == [(5, 0)]
    assert sync.take_listed(2, 4) == []
    sync.close()


def test_file_that_is_the_same_is_not_copied(tmp_path):
    fill(tmp_path, same=b"abc")
    number = (tmp_path / "same").stat().st_ino
    sync = Staging(PlainFiles(), tmp_path)
    sync.listed(1, 3, "same")

    complete(sync)

    assert (tmp_path / "same").stat().st_ino == number and (tmp_path / "same").stat().st_nlink == 1


def test_what_is_of_this_node_stays(tmp_path):
    for name in (".lock", ".last-run"):
        fill(tmp_path, **{name: b"mine"})
    (tmp_path / "lost+found").mkdir()
    sync = Staging(PlainFiles(), tmp_path)

    complete(sync)

    assert sorted(os.listdir(tmp_path)) == [".cluster", ".last-run", ".lock", "lost+found", "schema_version"]


def test_after_a_failed_flush_nothing_of_the_folder_is_kept(tmp_path):
    fill(tmp_path, same=b"abc")
    number = (tmp_path / "same").stat().st_ino
    sync = Staging(PlainFiles(), tmp_path, trusts_disk=False)
    sync.listed(1, 3, "same")

    assert answers(sync) == {1: []}
    complete(sync)
    assert (tmp_path / "same").read_bytes() == bytes(3) and (tmp_path / "same").stat().st_ino != number


@pytest.mark.parametrize("theirs", ["folder", "link", "pipe"])
def test_other_things_with_a_files_name_are_replaced(tmp_path, theirs):
    path = tmp_path / "data" / "name"
    (tmp_path / "data").mkdir()
    (tmp_path / "secret").write_bytes(b"secret")
    make = {"folder": os.mkdir, "link": lambda name: os.symlink("../secret", name), "pipe": os.mkfifo}
    make[theirs](path)
    sync = Staging(PlainFiles(), tmp_path / "data")
    sync.listed(1, 3, "name")

    assert answers(sync) == {1: []}
    complete(sync)
    assert content(tmp_path / "data") == {"name": bytes(3)}
    assert (tmp_path / "secret").read_bytes() == b"secret"


def test_operations_of_files_that_are_not_listed_are_skipped(tmp_path):
    sync = Staging(PlainFiles(), tmp_path)

    sync.written(1, 0, b"x")
    sync.resized(1, 4)
    sync.renamed(1, "a", "b")
    sync.renamed(0, "folder", "other")
    sync.unlinked(1, "b")
    sync.folder_removed("folder")
    sync.flushed()
    complete(sync)

    assert content(tmp_path) == {}


def test_file_whose_name_an_unlisted_one_takes_is_dead(tmp_path):
    sync = Staging(PlainFiles(), tmp_path)
    sync.listed(1, 1, "log")
    sync.renamed(2, "log.next", "log")
    assert answers(sync) == {1: []}
    sync.listed(2, 2, "log")
    sync.unlinked(1, "log")

    complete(sync)

    assert content(tmp_path) == {"log": bytes(2)}


def test_later_of_two_listed_with_one_path_wins(tmp_path):
    sync = Staging(PlainFiles(), tmp_path)
    sync.listed(1, 1, "log")
    sync.listed(2, 2, "log")
    sync.written(1, 0, b"x")

    complete(sync)

    assert content(tmp_path) == {"log": bytes(2)}


def test_nothing_may_follow_the_end_of_a_sync(tmp_path):
    sync = Staging(PlainFiles(), tmp_path)
    sync.listed(1, 2, "schema_version")
    sync.listed_all()
    sync.synced()

    with pytest.raises(ReplicaError, match="in one frame"):
        sync.created(1, 0, "file")
    sync.close()


def test_sync_without_a_complete_listing_is_none(tmp_path):
    sync = Staging(PlainFiles(), tmp_path)
    sync.listed(1, 2, "schema_version")

    with pytest.raises(ReplicaError, match="before its listing was complete"):
        sync.synced()
    assert not sync.is_whole
    sync.close()


def test_sync_without_a_schema_version_is_none(tmp_path):
    sync = Staging(PlainFiles(), tmp_path)
    sync.listed(1, 2, "schema_version.1")
    sync.listed_all()

    with pytest.raises(ReplicaError, match="without the file schema_version"):
        sync.synced()
    assert not sync.is_whole
    sync.close()


def test_file_behind_a_link_is_not_taken_from_the_folder(tmp_path):
    """It would become a file of the data folder, and changes of the leader's would reach it from there."""
    (tmp_path / "data").mkdir()
    (tmp_path / "theirs").mkdir()
    fill(tmp_path / "theirs", file=b"secret")
    (tmp_path / "data" / "folder").symlink_to("../theirs")
    sync = Staging(PlainFiles(), tmp_path / "data")
    sync.listed(1, 6, "folder/file")

    assert answers(sync) == {1: []}
    complete(sync)
    assert content(tmp_path / "data") == {"folder": None, "folder/file": bytes(6)}
    assert (tmp_path / "theirs" / "file").read_bytes() == b"secret"


def test_next_sync_begins_anew(tmp_path):
    fill(tmp_path, old=b"x")
    first = Staging(PlainFiles(), tmp_path)
    first.listed(1, 1, "file")
    first.close()

    second = Staging(PlainFiles(), tmp_path)
    assert os.listdir(tmp_path / ".sync") == []
    second.close()
    swap.finish(PlainFiles(), tmp_path, NOT_CONTENT)
    assert folder_content(tmp_path) == {"old": b"x"}


def test_sync_without_syncfs(tmp_path, monkeypatch):
    monkeypatch.setattr(staging, "CAN_FLUSH_FILE_SYSTEMS", False)
    fill(tmp_path, file=b"x")
    sync = Staging(PlainFiles(), tmp_path)
    sync.listed(1, 1, "file")
    sync.listed(2, 1, "folder/file")

    complete(sync)

    assert content(tmp_path) == {"file": b"x", "folder": None, "folder/file": b"\0"}


@pytest.mark.parametrize("seed", range(60))
def test_sync_with_changes_in_between_brings_the_leaders_folder(tmp_path, seed):
    """The follower has an older copy of the leader's folder, or a damaged one, or none; goes on with the
    stream after the sync.
    """
    random = Random(seed)
    (tmp_path / "data").mkdir()
    copy = Replica(PlainFiles(), tmp_path / "data")
    leader = ModelLeader(random, copy)
    leader.change(random.randrange(60))
    copy.close()
    for _ in range(random.randrange(4)):
        leader.tell = Deaf()
        leader.change(random.randrange(30))
        sync = leader.tell = Staging(PlainFiles(), tmp_path / "data")
        for _ in leader.steps(lambda: answers(sync), BLOCK):
            leader.change(random.randrange(3))

        leader.tell = sync.complete(ONE)
        assert folder_content(tmp_path / "data").items() >= leader.content.items()
        leader.change(30)
        assert folder_content(tmp_path / "data").items() >= leader.content.items()
        leader.tell.close()


class Deaf:
    """Hears nothing: no follower is connected."""

    def __getattr__(self, name):
        return lambda *arguments: None
