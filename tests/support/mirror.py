"""Mirror: a Replicator that rebuilds a data folder elsewhere from nothing but the events,
as a follower would.
"""
import contextlib
import os
import shutil

from gomq_py.storage.disk.data_dir import DEFINITIONS, POOL, USERS
from gomq_py.storage.disk.replication import Replicator

LOGS = (DEFINITIONS, f"{DEFINITIONS}.next", USERS)


class Mirror(Replicator):
    """Repeats under ``copy`` what is done under ``source``.

    Writes at once and keeps no file open: a test's follower, not a fast one.
    """

    def __init__(self, source, copy):
        self.source = os.fspath(source)
        self.copy = os.fspath(copy)
        self.events = 0
        os.makedirs(self.copy, exist_ok=True)

    def created(self, file_id, path, size):
        assert file_id
        fd = os.open(self._here(path), os.O_WRONLY | os.O_CREAT | os.O_EXCL)
        os.ftruncate(fd, size)
        os.close(fd)

    def folder_created(self, path):
        os.mkdir(self._here(path))

    def appended(self, file_id, file, start, end):
        assert file_id
        content = file.read(start, end)
        assert len(content) == end - start, (
            f"{file.path}: told of {start}..{end}, {len(content)} octets are there"
        )
        self.written(file.path, start, content)

    overwritten = appended

    def resized(self, file_id, path, size):
        os.truncate(self._here(path), size)

    def renamed(self, file_id, source, target):
        os.rename(self._here(source), self._here(target))

    def unlinked(self, file_id, path):
        with contextlib.suppress(*self._never_told(path)):
            os.unlink(self._here(path))

    def folder_removed(self, path):
        os.rmdir(self._here(path))

    def diverged(self):
        """It has no way to begin anew."""
        raise AssertionError("something was changed that is told to nobody")

    def flushed(self):
        """It writes at once, and its power is not cut."""

    def follow_again(self):
        """The source's process was killed.

        What it had done to names and not told yet, and what it had written behind its logs, is found by
        comparing; other contents had been told.
        """
        for name in sorted(
            folder_content(self.copy).keys() - folder_content(self.source).keys(), reverse=True
        ):
            path = os.path.join(self.copy, name)
            os.rmdir(path) if os.path.isdir(path) else os.unlink(path)
        for name in sorted(folder_content(self.source).keys() - folder_content(self.copy).keys()):
            source, path = os.path.join(self.source, name), os.path.join(self.copy, name)
            os.mkdir(path) if os.path.isdir(source) else shutil.copyfile(source, path)
        for name in LOGS:
            if os.path.exists(source := os.path.join(self.source, name)):
                shutil.copyfile(source, os.path.join(self.copy, name))

    def _never_told(self, path):
        """What a missing file raises where that is no fault: a process that dies may have made spare files
        without having told of them yet.
        """
        return (FileNotFoundError,) if os.path.basename(os.path.dirname(path)) == POOL else ()

    def differences(self):
        """What is not the same in both folders, byte for byte;
        what is about this machine is not part of the data.
        """
        here, there = folder_content(self.source), folder_content(self.copy)
        return sorted(name for name in here.keys() | there.keys() if here.get(name) != there.get(name))

    def _here(self, path):
        self.events += 1
        relative = os.path.relpath(path, self.source)
        assert not relative.startswith(".."), f"{path} is outside of the data folder"
        return os.path.join(self.copy, relative)

    def written(self, path, start, content):
        """These octets are in a file from ``start`` on: for who tells of them later."""
        self._put(self._here(path), start, content)

    @staticmethod
    def _put(path, start, content):
        fd = os.open(path, os.O_WRONLY)
        os.pwrite(fd, content, start)
        os.close(fd)


def folder_content(root):
    """Relative path -> octets, or None for a folder. A running node may remove a file meanwhile."""
    content = {}
    for folder, folders, names in os.walk(root):
        for name in folders:
            content[os.path.relpath(os.path.join(folder, name), root)] = None
        for name in names:
            if name not in (".lock", ".last-run", ".segments"):
                path = os.path.join(folder, name)
                with contextlib.suppress(FileNotFoundError), open(path, "rb") as file:
                    content[os.path.relpath(path, root)] = file.read()
    return content


def differing(root, other):
    """Sorted names of what is not the same in two nodes' data folders; each has an identity of its own."""
    here, there = folder_content(root), folder_content(other)
    names = (here.keys() | there.keys()) - {".cluster"}
    return sorted(name for name in names if here.get(name, 0) != there.get(name, 0))
