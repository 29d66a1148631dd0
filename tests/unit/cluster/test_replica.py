"""Replica: repeats operations on a folder, and flushes."""
import errno

import pytest

from gomq_py.cluster import replica
from gomq_py.cluster.replica import Replica, ReplicaError
from gomq_py.storage.disk.plain_files import PlainFiles
from tests.support.faulty_files import FaultyFiles
from tests.support.mirror import folder_content


@pytest.fixture
def files():
    return FaultyFiles()


@pytest.fixture
def folder(files, tmp_path):
    made = Replica(files, tmp_path)
    yield made
    made.close()


def flushes(files):
    return [call for call in files.calls if call[0] in ("sync", "sync_folder", "sync_all")]


def test_operations_make_the_leaders_folder(folder, tmp_path):
    folder.folder_created("queues")
    folder.folder_created("queues/a")
    folder.created(1, 6, "queues/a/msgs")
    folder.written(1, 1, memoryview(b"abc"))
    folder.written(1, 8, memoryview(b"longer"))
    folder.created(2, 4, "log")
    folder.resized(2, 2)
    folder.created(3, 0, "gone")
    folder.renamed(2, "log", "users")
    folder.unlinked(3, "gone")
    folder.folder_created("empty")
    folder.folder_removed("empty")

    assert folder_content(tmp_path) == {
        "queues": None, "queues/a": None, "queues/a/msgs": b"\0abc\0\0\0\0longer", "users": b"\0\0",
    }
    assert folder.paths == {1: "queues/a/msgs", 2: "users"}


def test_renamed_file_replaces_the_one_with_that_name(folder, tmp_path):
    folder.created(1, 1, "log")
    folder.created(2, 2, "log.next")
    folder.renamed(2, "log.next", "log")
    folder.written(2, 0, b"xy")

    assert folder_content(tmp_path) == {"log": b"xy"} and folder.paths == {2: "log"}
    with pytest.raises(ReplicaError, match="no file 1"):
        folder.written(1, 0, b"x")


def test_renamed_folder_takes_its_files_along(folder, tmp_path):
    folder.folder_created("a")
    folder.folder_created("a/b")
    folder.created(1, 1, "a/b/file")
    folder.created(2, 1, "ab")
    folder.renamed(0, "a", "c")
    folder.written(1, 0, b"x")
    folder.flush()

    assert folder_content(tmp_path) == {"c": None, "c/b": None, "c/b/file": b"x", "ab": b"\0"}
    assert folder.paths == {1: "c/b/file", 2: "ab"}


def test_most_files_are_closed_again(folder, monkeypatch, tmp_path):
    monkeypatch.setattr(replica, "OPEN_FILES", 3)
    for number in range(1, 9):
        folder.created(number, 0, f"file{number}")
    for number in range(1, 9):
        folder.written(number, 0, b"%d" % number)

    assert len(folder._open) == 3
    assert folder_content(tmp_path) == {f"file{number}": b"%d" % number for number in range(1, 9)}


@pytest.mark.parametrize("operation, text", [
    (("created", 1, 0, "other"), "file 1 is here as file"),
    (("written", 9, 0, b"x"), "no file 9"),
    (("resized", 9, 0), "no file 9"),
    (("renamed", 9, "a", "b"), "no file 9"),
    (("renamed", 1, "other", "b"), "file 1 is file here"),
    (("unlinked", 9, "a"), "no file 9"),
    (("unlinked", 1, "other"), "file 1 is file here"),
    (("listed", 3, 0, "a"), "none is going on"),
    (("listed_folder", "a"), "none is going on"),
    (("listed_all",), "none is going on"),
    (("synced",), "none is going on"),
])
def test_operation_that_cannot_be_repeated_is_an_error(folder, tmp_path, operation, text):
    folder.created(1, 0, "file")
    name, *arguments = operation

    with pytest.raises(ReplicaError, match=text):
        getattr(folder, name)(*arguments)
    assert folder_content(tmp_path) == {"file": b""}


@pytest.mark.parametrize("operation, number", [
    (("created", 2, 0, "file"), errno.EEXIST),
    (("created", 2, 0, "nowhere/file"), errno.ENOENT),
    (("folder_created", "file"), errno.EEXIST),
    (("folder_removed", "nowhere"), errno.ENOENT),
    (("renamed", 0, "nowhere", "b"), errno.ENOENT),
])
def test_operation_that_the_system_refuses_is_an_error(folder, operation, number):
    folder.created(1, 0, "file")
    name, *arguments = operation

    with pytest.raises(OSError) as caught:
        getattr(folder, name)(*arguments)
    assert caught.value.errno == number


def test_unlinked_file_that_was_never_told_of_is_ignored(folder):
    folder.unlinked(0, "unknown")


def test_link_in_the_place_of_a_file_is_not_followed(folder, tmp_path):
    folder.created(1, 0, "file")
    folder._close(1)
    (tmp_path / "file").unlink()
    (tmp_path / "other").write_bytes(b"theirs")
    (tmp_path / "file").symlink_to("other")

    with pytest.raises(OSError):
        folder.written(1, 0, b"ours")
    assert (tmp_path / "other").read_bytes() == b"theirs"


@pytest.mark.parametrize("operation", [
    ("created", 9, 0, "folder/new"), ("written", 1, 0, b"x"), ("resized", 1, 0),
    ("renamed", 1, "folder/file", "other"), ("renamed", 2, "here", "folder/file"),
    ("renamed", 0, "folder/inner", "inner"), ("renamed", 0, "real", "folder/real"),
    ("unlinked", 1, "folder/file"), ("folder_created", "folder/new"), ("folder_removed", "folder/inner"),
    ("renamed", 0, "folder", "other"), ("renamed", 0, "here", "other"),
])
def test_link_in_the_place_of_a_folder_is_not_followed(folder, tmp_path, tmp_path_factory, operation):
    theirs = tmp_path_factory.mktemp("theirs")
    (theirs / "inner").mkdir()
    (theirs / "file").write_bytes(b"theirs")
    for name in ("folder", "folder/inner", "real"):
        folder.folder_created(name)
    folder.created(1, 1, "folder/file")
    folder.created(2, 1, "here")
    folder._close(1)
    (tmp_path / "folder").rename(tmp_path / "away")
    (tmp_path / "folder").symlink_to(theirs)
    name, *arguments = operation

    with pytest.raises(ReplicaError, match="is not a folder"):
        getattr(folder, name)(*arguments)
    assert folder_content(theirs) == {"inner": None, "file": b"theirs"}
    assert (tmp_path / "here").exists() and (tmp_path / "real").is_dir()


def test_file_that_is_renamed_to_itself_stays(folder, tmp_path):
    folder.created(1, 1, "file")
    folder.renamed(1, "file", "file")
    folder.written(1, 0, b"x")

    assert folder_content(tmp_path) == {"file": b"x"} and folder.paths == {1: "file"}


# flushes

def test_next_operation_waits_for_a_flush_after_one_of_the_leader(folder, files):
    folder.created(1, 0, "file")
    folder.flushed()
    assert flushes(files) == []

    folder.written(1, 0, b"x")

    assert [call for call, _ in flushes(files)] == ["sync", "sync_folder"]
    assert folder.is_dirty


def test_nothing_is_flushed_twice(folder, files):
    folder.created(1, 0, "file")
    folder.flush()
    count = len(flushes(files))
    folder.flush()
    folder.flushed()
    folder.flushed()
    folder.written(1, 0, b"x")

    assert len(flushes(files)) == count


def test_many_files_are_flushed_by_one_call(folder, files, tmp_path):
    if not replica.CAN_FLUSH_FILE_SYSTEMS:
        pytest.skip("syncfs says nothing of failed writes here")
    for number in range(1, 10):
        folder.created(number, 0, f"file{number}")
    folder.flush()

    assert flushes(files) == [("sync_all", tmp_path.name)]
    assert not folder.is_dirty


def test_many_files_are_flushed_one_by_one_where_nothing_else_works(folder, files, monkeypatch):
    monkeypatch.setattr(replica, "CAN_FLUSH_FILE_SYSTEMS", False)
    for number in range(1, 10):
        folder.created(number, 0, f"file{number}")
    folder.unlinked(9, "file9")
    folder.flush()

    assert len(flushes(files)) == 8 + 1


def test_folder_that_has_gone_is_not_flushed(folder, files):
    folder.folder_created("a")
    folder.created(1, 0, "a/file")
    folder.unlinked(1, "a/file")
    folder.folder_removed("a")
    folder.flush()

    assert [call for call, _ in flushes(files)] == ["sync_folder"]


def test_failed_flush_is_remembered(folder, files):
    folder.created(1, 0, "file")
    files.fail_at = len(files.calls) + 1

    with pytest.raises(OSError):
        folder.flush()
    assert folder.is_doubtful and folder.is_dirty


def test_replica_goes_on_with_known_files(tmp_path):
    (tmp_path / "file").write_bytes(b"abc")
    folder = Replica(PlainFiles(), tmp_path, {7: "file"})
    folder.written(7, 1, b"x")
    folder.unlinked(7, "file")
    folder.close()
    folder.close()

    assert folder_content(tmp_path) == {}
