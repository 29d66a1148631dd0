"""What is removed: its place among the jobs of the threads."""
from collections import deque
from types import SimpleNamespace

from gomq_py.storage.disk.files import Files
from gomq_py.storage.disk.removal import FolderRemovals


class Lanes:
    """A committer's, as lists: who waits is ``first``."""

    def __init__(self):
        self.first, self.work = deque(), deque()
        self.marked = []
        self.background = SimpleNamespace(
            short=SimpleNamespace(add=self.add_short), long=SimpleNamespace(add=self.add_long))

    def add_short(self, function, *arguments, done=None, first=False):
        (self.first if first else self.work).append((function, arguments, done))

    def add_long(self, function, *arguments, done=None):
        done(function(*arguments), None)

    def mark_folder(self, path):
        self.marked.append(path)


def test_folder_is_removed_behind_the_job_that_makes_it_for_a_publisher(tmp_path):
    files, lanes = Files(), Lanes()
    coming = files.having_folder(tmp_path / "queue")
    lanes.add_short(coming.act, first=True, done=lambda _, error: coming.told())

    FolderRemovals(files, lanes).add(None, str(tmp_path / "queue"), "a queue", None)

    assert not lanes.work, "what is not first has its turn before it"
    for function, arguments, done in lanes.first:
        done(function(*arguments), None)
    assert not (tmp_path / "queue").exists() and lanes.marked == [str(tmp_path)]
