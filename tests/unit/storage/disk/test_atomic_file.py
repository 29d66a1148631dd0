"""storage.disk.atomic_file: the old content or the new one, and nothing left behind."""
import os

import pytest

from gomq_py.storage.disk import atomic_file
from gomq_py.storage.disk.files import Files


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


def test_sweep_removes_what_a_crash_left_and_nothing_else(path, tmp_path):
    for name in ("users.new.1", "users.new.27", "users.new", "a.new.b", "7"):
        (tmp_path / name).touch()

    atomic_file.sweep(Files(), tmp_path)

    assert sorted(os.listdir(tmp_path)) == ["7", "a.new.b", "users", "users.new"]
