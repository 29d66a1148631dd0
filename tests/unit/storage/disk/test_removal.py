"""What is removed: its place among the jobs of the threads."""
from collections import deque
from types import SimpleNamespace

from gomq_py.storage.disk.files import Files
from gomq_py.storage.disk.removal import FolderRemovals
from gomq_py.storage.flush.batch import NameChanges


class Lanes:
    """A committer's, as lists: who waits is ``first``."""

    def __init__(self):
        self.first, self.work = deque(), deque()
        self.marked = []
        self.names = NameChanges(None, lambda: None, None, False)
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


def test_removal_is_told_behind_the_rename_of_a_file_that_has_left_the_folder(tmp_path):
    (tmp_path / "queue").mkdir()
    (tmp_path / "queue" / "msgs").touch()
    told, lanes = [], Lanes()
    files = Files((Events(told),))
    rename = files.renaming(tmp_path / "queue" / "msgs", tmp_path / "pooled")
    began = []

    def change_each(groups):
        for change in groups[0]:
            change.act()
        FolderRemovals(files, lanes).add(None, str(tmp_path / "queue"), "a queue", None)
        began.append(list(told))
        return [(1, None)]

    lanes.names = NameChanges(change_each, lambda: None, None, False)
    lanes.names.change([rename])
    lanes.names.make(lanes.names.take(), {})

    assert began == [[]] and told == ["renamed", "folder_removed"]


class Events:
    """A replicator that notes the names of the events."""

    def __init__(self, told):
        self._told = told

    def __getattr__(self, name):
        return lambda *_: self._told.append(name)


def test_callback_that_raises_behind_a_change_of_names_harms_no_flush(caplog):
    told = []

    def change_each(groups):
        names.when_told(lambda: 1 / 0)
        names.when_told(lambda: told.append("the next one"))
        return [(0, None)]

    names = NameChanges(change_each, lambda: None, None, False)
    names.change([])
    names.make(names.take(), {})

    assert told == ["the next one"] and "ZeroDivisionError" in caplog.text
