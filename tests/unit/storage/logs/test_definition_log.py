"""Definition log: compaction while the broker works, and when it cannot be finished."""
import contextlib
import errno
import os
import threading
from itertools import count
from pathlib import Path
from random import Random

import gevent
import pytest

from gomq_py.storage.disk.files import ROOM_AHEAD, Files
from gomq_py.storage.flush.group_commit import GroupCommit
from gomq_py.storage.format.log import log_id_of
from gomq_py.storage.logs import definition_log
from gomq_py.storage.logs.definition_log import DefinitionLog
from tests.support.faulty_files import FaultyFiles
from tests.support.hub_calls import HubCalls
from tests.support.waiting import in_time, wait_until


class Names:
    """A model of one kind of thing: names that are there.

    ``slices`` are what the log asked the scheduler to run.
    """

    def __init__(self, folder, files=None, syncing=True, **options):
        self.path = os.path.join(folder, "definitions")
        self.files = files or Files()
        self.committer = GroupCommit(self.files, enabled=syncing)
        self.slices = []
        self.names = {}
        self.possible = []  # what a kill may leave: ``names`` as of the last sync and after each change since
        self.log = DefinitionLog(
            self.files, self.path, self.committer, self, "names", {}, slack=20, **options).open()
        for record in self.log.replay():
            self.apply(record)
        self.possible.append(dict(self.names))
        self.log.compact_when_long(self.snapshot)

    def apply(self, record):
        if record["op"] == "add":
            self.names[record["name"]] = record["value"]
        else:
            self.names.pop(record["name"], None)

    def snapshot(self):
        for name in list(self.names):
            yield lambda name=name: {
                "op": "add", "name": name, "value": self.names[name]
            } if name in self.names else None

    def change(self, op, name, value=0):
        record = {"op": op, "name": name, "value": value}
        self.log.append(record)
        self.apply(record)
        self.possible.append(dict(self.names))

    def wait(self):
        """As a door does before it answers."""
        self.committer.wait()
        self.possible = [dict(self.names)]

    def start(self, job):
        self.slices.append(job)
        self.failed = job.failed

    def run_slice(self):
        if self.slices and not self.slices[0].step():
            self.slices.pop(0)

    def finish(self):
        """Until no compaction is under way."""
        def is_over():
            self.run_slice()
            self.committer.after_sync(lambda error: None)  # it need not wait for the next unhurried one
            return not self.log.is_compacting and self.committer.is_idle and self.committer.background.is_idle

        wait_until(is_over, sleep=gevent.sleep)

    def stop(self):
        self.committer.wait()
        self.log.close()
        self.committer.stop()


@pytest.fixture
def small(monkeypatch):
    monkeypatch.setattr(definition_log, "SLICE", 2)
    monkeypatch.setattr(definition_log, "COUNTED", 2)


def test_long_log_is_compacted(tmp_path, small):
    model = Names(tmp_path)
    for number in range(100):
        model.change("add", f"n{number % 5}", number)
        model.finish()
    model.stop()

    again = Names(tmp_path)

    assert again.names == {f"n{number % 5}": number for number in range(95, 100)}
    assert again.log.record_count < 60
    assert os.listdir(tmp_path) == ["definitions"]
    again.stop()


@pytest.mark.parametrize("seed", range(30))
def test_changes_during_a_compaction_are_kept(tmp_path, small, seed):
    random = Random(seed)
    model = Names(tmp_path)
    compacted = 0
    for number in range(200):
        model.change(random.choice(["add", "add", "remove"]), f"n{random.randrange(8)}", number)
        if random.random() < 0.5:
            compacted += model.log.is_compacting
            model.run_slice()
        if random.random() < 0.05:
            model.committer.wait()
    expected = dict(model.names)
    model.stop()

    again = Names(tmp_path)

    assert compacted
    assert again.names == expected
    again.stop()


@pytest.mark.parametrize("seed", range(10))
def test_kill_during_a_compaction_loses_nothing_that_was_answered(tmp_path, small, seed):
    random = Random(seed)
    model = Names(tmp_path)
    for number in range(random.randrange(20, 120)):
        model.change(random.choice(["add", "add", "remove"]), f"n{random.randrange(8)}", number)
        if random.random() < 0.5:
            model.run_slice()
        if random.random() < 0.05:
            model.wait()

    model.committer.kill()

    again = Names(tmp_path)

    assert again.names in model.possible
    again.finish()
    assert os.listdir(tmp_path) == ["definitions"]
    again.stop()


def test_compaction_that_cannot_be_written_is_given_up(tmp_path, small):
    """Every seam call of a run with a compaction fails once: appends may raise, what they said is then not in
    the model, nothing else is lost.
    """
    def run(folder, files):
        folder.mkdir()
        model = Names(folder, files)
        for number in range(60):
            try:
                model.change("add", f"n{number % 5}", number)
            except OSError:
                pass
            model.run_slice()
            if number % 10 == 9:
                try:
                    model.wait()
                except Exception:
                    break  # a failed sync: the doors would not have answered, the operator restarts
        return model

    clean = FaultyFiles()
    run(tmp_path / "clean", clean)
    for fail_at in range(3, len(clean.calls) + 1):
        folder = tmp_path / str(fail_at)

        model = run(folder, FaultyFiles(fail_at, error=errno.ENOSPC))
        model.committer.kill()

        again = Names(folder)
        assert again.names in model.possible, f"call {fail_at}: {clean.calls[fail_at - 1]}"
        again.log.close()


class SickFiles(Files):
    """Flushes of logs fail while ``is_sick``."""

    is_sick = False

    def sync(self, file):
        if self.is_sick:
            raise OSError(errno.EIO, "Input/output error", file.path)
        super().sync(file)


def test_what_is_on_the_disk_is_noted_after_its_flush_and_two_logs_before_one_takes_the_other_s_name(
    tmp_path, small
):
    noted = []

    def note(left):
        assert threading.get_ident() != hub_thread
        noted.append((left, os.stat(model.path).st_size, log_id_of(Path(model.path).read_bytes())))

    hub_thread = threading.get_ident()
    model = Names(tmp_path, note=note, notes_growth=True)
    for number in range(100):
        model.change("add", f"name-{number % 7}", number)
        model.wait()
    model.finish()
    wait_until(lambda: [*model.log.on_disk.items()] == [*noted[-1][0].items()], sleep=gevent.sleep)

    assert any(len(left) == 2 for left, _, _ in noted)
    for left, size, log_id in noted:
        assert left[log_id] <= size
    for log_id in {log_id for _, _, log_id in noted}:
        first = next(index for index, (_, _, found) in enumerate(noted) if found == log_id)
        assert log_id in noted[first - 1][0] or first == 0
    model.stop()


def test_compaction_that_cannot_be_noted_is_given_up(tmp_path, small, caplog):
    def note(_):
        raise OSError(errno.EIO, "no note")

    model = Names(tmp_path, note=note)
    for number in range(100):
        model.change("add", f"name-{number % 7}", number)
        model.wait()
    model.finish()

    assert "compaction given up" in caplog.text and model.log.record_count == 100
    assert os.listdir(tmp_path) == ["definitions"]
    model.stop()


def test_log_whose_flush_failed_is_replaced_at_once_or_with_a_later_change_and_promises_are_kept_again(
    tmp_path, small
):
    """It may have lost what it held; the model has everything. No limit of length has to be reached."""
    files = SickFiles()
    model = Names(tmp_path, files)
    model.change("add", "before", 1)
    model.wait()
    files.is_sick = True
    model.change("add", "refused", 2)
    with pytest.raises(OSError, match="Input/output error"):
        model.wait()
    model.finish()  # what was tried at once; the disk is as sick then
    files.is_sick = False
    with pytest.raises(OSError, match="Input/output error"):
        model.wait()
    failed = os.stat(model.path).st_ino

    model.change("add", "later", 3)
    model.finish()
    model.wait()

    assert os.stat(model.path).st_ino != failed and os.listdir(tmp_path) == ["definitions"]
    model.committer.kill()
    again = Names(tmp_path)
    assert again.names == {"before": 1, "refused": 2, "later": 3}
    again.stop()


def test_second_log_that_could_not_be_removed_keeps_no_later_one_from_being_written(
    tmp_path, small, monkeypatch
):
    """Or promises would not be kept again before the next boot, though the disk is sound."""
    files = SickFiles()
    model = Names(tmp_path, files)
    model.change("add", "before", 1)
    model.wait()
    files.is_sick = True
    unlink = os.unlink

    def refuse(path, *arguments, **options):
        if files.is_sick:
            raise OSError(errno.EIO, "Input/output error", path)
        unlink(path, *arguments, **options)

    monkeypatch.setattr(os, "unlink", refuse)
    model.change("add", "refused", 2)
    with pytest.raises(OSError, match="Input/output error"):
        model.wait()
    model.finish()
    assert "definitions.next" in os.listdir(tmp_path)
    files.is_sick = False

    for number in (3, 4):  # the first removes what is left
        model.change("add", "later", number)
        model.finish()
        with contextlib.suppress(OSError):
            model.wait()

    model.wait()
    assert os.listdir(tmp_path) == ["definitions"]
    model.stop()


def test_compaction_whose_log_cannot_be_flushed_fails_no_promise(tmp_path, small, monkeypatch, caplog):
    """The first log has everything, too."""
    files = SickFiles()
    model = Names(tmp_path, files)
    sync, tried = files.sync, []

    def fail_next(file):
        if file.path.endswith(".next"):
            tried.append(file.path)
            raise OSError(errno.EIO, "Input/output error", file.path)
        sync(file)

    files.sync = fail_next
    for number in range(60):
        model.change("add", f"n{number % 5}", number)
        model.finish()
        model.wait()

    assert (
        tried and "compaction given up" in caplog.text and "nothing durable is confirmed" not in caplog.text
    )
    assert not model.committer.has_failed
    model.stop()


def test_changes_and_a_compaction_ask_nothing_of_the_disk_in_the_hub(tmp_path, small):
    files = HubCalls()
    model = Names(tmp_path, files)
    files.begin()

    for number in range(100):
        model.change("add", f"n{number % 5}", number)
        model.finish()

    assert model.log.record_count < 60
    assert files.in_hub == {}
    assert {"make_log", "write_accepted", "rename", "sync", "sync_folder"} <= set(files.elsewhere)
    model.stop()


def test_what_only_one_log_takes_while_their_names_change_is_refused(tmp_path, small):
    """From the order to rename until it is done nobody knows which of the two a crash would leave."""
    files = HeldName()
    model = Names(tmp_path, files)
    numbers = count()

    def is_held():
        number = next(numbers)
        model.change("add", f"n{number % 5}", number)
        model.run_slice()
        model.committer.after_sync(lambda error: None)
        return files.is_held

    wait_until(is_held, sleep=gevent.sleep)
    model.change("add", "both", 1)

    # more than is reserved
    for which, size in (("definitions", 2 * ROOM_AHEAD), ("definitions.next", 4 * ROOM_AHEAD)):
        files.full = which
        with pytest.raises(OSError):
            model.change("add", "one", bytes(size))
    files.full = None
    model.change("add", "later", 2)
    files.go_on.set()
    model.finish()
    expected = dict(model.names)
    model.stop()

    again = Names(tmp_path)
    assert again.names == expected and expected["later"] == 2
    again.stop()


class HeldName(FaultyFiles):
    """A disk on which ``rename`` hangs until it may go on, and on which one file (``full``) cannot grow."""

    def __init__(self):
        super().__init__()
        self.go_on = threading.Event()
        self.is_held = False
        self.full = None

    def about_to(self, call, subject):
        super().about_to(call, subject)
        if call == "rename":
            self.is_held = True
            self.go_on.wait(in_time(20))
        if call == "reserve" and os.path.basename(subject) == self.full:
            raise OSError(errno.ENOSPC, os.strerror(errno.ENOSPC), subject)


def test_slice_that_fails_when_the_second_log_is_whole_ends_nothing(tmp_path):
    """Without syncing, its last slice has the names changed: what was given up then took the first log's name
    all the same, and was closed.
    """
    names = Names(tmp_path, syncing=False)
    names.change("add", "kept", 1)
    for value in range(50):
        names.change("add", "kept", value)

    def slice_ran():
        names.committer.after_sync(lambda error: None)
        return names.slices

    count = names.slices.pop()
    assert count.step() is False
    slice_ = wait_until(slice_ran, sleep=gevent.sleep).pop()
    assert slice_.step() is False
    names.failed(RuntimeError("a fault after the slice"))
    names.change("add", "later", 7)
    names.finish()
    names.change("add", "latest", 8)
    names.stop()

    assert Names(tmp_path).names == {"kept": 49, "later": 7, "latest": 8}


class OverAtOnce:
    """A SliceClock of slices of one item."""

    def __init__(self, every):
        pass

    def is_over(self):
        return True


def test_many_definitions_are_counted_and_rewritten_in_slices(tmp_path, monkeypatch):
    """However many of them are not durable, too.

    Between two slices others have their turn, and change what is there.
    """
    asked = []

    def snapshot(model):
        for name in [None] * 20 + list(model.names):
            asked.append(name)
            yield name and (
                lambda: {
                    "op": "add", "name": name, "value": model.names[name]
                } if name in model.names else None
            )

    monkeypatch.setattr(definition_log, "SliceClock", OverAtOnce)
    monkeypatch.setattr(Names, "snapshot", snapshot)
    model = Names(tmp_path)
    for number in range(60):
        model.change("add", f"n{number % 10}", number)
    assert model.log.is_compacting and not asked
    slices = []

    def is_over():
        before = len(asked)
        model.run_slice()
        slices.append(len(asked) - before)
        if len(slices) == 40:
            model.change("remove", "n3")
            model.change("add", "came", 1)
        model.committer.after_sync(lambda error: None)
        return not model.log.is_compacting

    wait_until(is_over, sleep=gevent.sleep)
    assert model.log.record_count < 20
    model.stop()

    assert max(slices) == 1 and len(asked) >= 2 * 30
    again = Names(tmp_path)
    assert again.names == model.names and "n3" not in again.names and "came" in again.names
    again.stop()


def test_failed_count_is_tried_again_when_the_log_has_grown(tmp_path, small):
    model = Names(tmp_path)
    while not model.slices:
        model.change("add", "n", 1)
    model.slices.clear()
    model.failed(RuntimeError("a fault"))
    assert not model.log.is_compacting
    length = model.log.record_count

    while not model.slices:
        model.change("add", "n", 1)
    assert length < model.log.record_count <= 3 * length + 20
    model.finish()

    assert model.log.record_count < 20
    model.stop()
