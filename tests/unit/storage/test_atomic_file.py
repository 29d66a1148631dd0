"""storage.atomic_file: the old content or the new one, and nothing left behind."""
import os

import pytest

from gomq_py.storage import atomic_file
from gomq_py.storage.files import Files


class Order(Files):
    """Writes down the calls that make a replacement safe; fails the one it is told to."""

    def __init__(self, failing=None):
        super().__init__()
        self.calls = []
        self.failing = failing

    def _note(self, name):
        self.calls.append(name)
        if name == self.failing:
            raise OSError(5, "Input/output error")

    def append(self, file, octets):
        self._note("append")
        return super().append(file, octets)

    def sync(self, file):
        self._note("sync")
        super().sync(file)

    def rename(self, source, target, file=None):
        self._note("rename")
        super().rename(source, target, file)

    def sync_folder(self, path):
        self._note("sync_folder")
        super().sync_folder(path)


class Committer:
    """A committer whose flushes happen when the test says so."""

    def __init__(self):
        self.marked = []
        self.waiting = []

    def mark_file(self, file):
        self.marked.append(file.path)

    def mark_folder(self, path):
        self.marked.append(path)

    def after_sync(self, callback):
        self.waiting.append(callback)

    def flush(self, error=None):
        """One sync: tells those who waited before it began."""
        waiting, self.waiting = self.waiting, []
        for callback in waiting:
            callback(error)


@pytest.fixture
def path(tmp_path):
    (tmp_path / "users").write_bytes(b"old")
    return str(tmp_path / "users")


def content(path):
    with open(path, "rb") as file:
        return file.read()


def test_replace_flushes_the_content_before_the_name_and_the_name_before_returning(path, tmp_path):
    files = Order()

    atomic_file.replace(files, path, b"new")

    assert content(path) == b"new"
    assert files.calls == ["append", "sync", "rename", "sync_folder"]
    assert os.listdir(tmp_path) == ["users"]


def test_replace_creates_a_missing_file(tmp_path):
    atomic_file.replace(Files(), tmp_path / "policies", b"first")

    assert content(tmp_path / "policies") == b"first"


@pytest.mark.parametrize("step", ["append", "sync", "rename"])
def test_a_replacement_that_fails_leaves_the_old_content_and_no_temporary(path, tmp_path, step):
    with pytest.raises(OSError):
        atomic_file.replace(Order(failing=step), path, b"new")

    assert content(path) == b"old"
    assert os.listdir(tmp_path) == ["users"]


def test_replace_soon_waits_for_two_flushes_before_it_is_done(path, tmp_path):
    committer, done = Committer(), []

    atomic_file.replace_soon(Files(), committer, path, b"new", done.append)
    assert content(path) == b"old"

    committer.flush()
    assert content(path) == b"new" and not done

    committer.flush()
    assert done == [None]
    assert os.listdir(tmp_path) == ["users"]
    assert committer.marked[1:] == [str(tmp_path)]


def test_replacements_on_their_way_take_effect_in_order(path, tmp_path):
    committer, done = Committer(), []
    files = Files()

    for octets in (b"first", b"second", b"third"):
        atomic_file.replace_soon(files, committer, path, octets, done.append)
    committer.flush()
    committer.flush()

    assert content(path) == b"third" and done == [None] * 3
    assert os.listdir(tmp_path) == ["users"]


def test_replace_soon_reports_a_failed_flush_and_keeps_the_old_content(path, tmp_path):
    committer, done = Committer(), []
    failure = OSError(5, "Input/output error")

    atomic_file.replace_soon(Files(), committer, path, b"new", done.append)
    committer.flush(failure)

    assert done == [failure] and content(path) == b"old"
    assert os.listdir(tmp_path) == ["users"]


def test_replace_soon_reports_a_full_disk(path):
    done = []

    atomic_file.replace_soon(Order(failing="append"), Committer(), path, b"new", done.append)

    assert [error.errno for error in done] == [5] and content(path) == b"old"


def test_sweep_removes_what_a_crash_left_and_nothing_else(path, tmp_path):
    for name in ("users.new.1", "users.new.27", "users.new", "a.new.b", "7"):
        (tmp_path / name).touch()

    atomic_file.sweep(Files(), tmp_path)

    assert sorted(os.listdir(tmp_path)) == ["7", "a.new.b", "users", "users.new"]
