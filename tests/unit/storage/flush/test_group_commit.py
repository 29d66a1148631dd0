"""Group commit: what is covered by a sync, who is called back when, and what a failure does."""
import errno
import os
import threading
from functools import partial
from types import SimpleNamespace

import gevent
import pytest
from gevent.event import Event
from gevent.threadpool import ThreadPool

from gomq_py.hub.scheduler import SliceClock
from gomq_py.hub.turns import give_way
from gomq_py.storage.disk.files import Change, Files
from gomq_py.storage.errors import StoreClosed
from gomq_py.storage.flush import background, batch, flushing, group_commit
from gomq_py.storage.flush.group_commit import GroupCommit
from gomq_py.storage.format.log import LogScan
from gomq_py.storage.logs.framed_log import FramedLog
from tests.durability import flush_pool
from tests.support import waiting
from tests.support.unflushed import Unflushed
from tests.support.waiting import in_time


def wait_until(predicate):
    """Greenlets run meanwhile."""
    waiting.wait_until(predicate, sleep=gevent.sleep)


class SlowFiles(Files):
    """Flushes when the test lets them: ``open`` is true.

    ``flushed`` has the paths in order; paths in ``failing`` fail.
    """

    def __init__(self):
        super().__init__()
        self.open = True
        self.flushed = []
        self.failing = set()

    def sync(self, file):
        self._flush(file.path)

    def sync_folder(self, path):
        self._flush(path)

    def _flush(self, path):
        waiting.wait_until(lambda: self.open)  # in a pool thread
        self.flushed.append(path)
        if path in self.failing:
            raise OSError(errno.EIO, "Input/output error", path)


class FakeFile:
    """As much of a File, or of a LogFile with nothing to write, as a sync needs."""

    def __init__(self, path):
        self.path = path
        self.is_awaited, self.is_in_use, self.accepted, self.room = False, True, (), None
        self.failure = self.failed = None
        self.fails_all = True
        self.size = self.told = 0
        self.named = True
        self.holders = 0

    def retain(self):
        self.holders += 1

    def release(self):
        self.holders -= 1


class FakeStore:
    """A store with one file."""

    def __init__(self, name):
        self.folder = f"/data/queues/{name}"
        self.file = FakeFile(f"{self.folder}/msgs")
        self.acks = FakeFile(f"{self.folder}/acks")
        self.syncs = 0
        self.error = None

    def sync_files(self, acks_too):
        if self.error is not None:
            raise StoreClosed(self.folder, 0, "fenced")
        return [self.file, self.acks] if acks_too else [self.file]

    def synced(self):
        self.syncs += 1

    def fence(self, error):
        self.error = error


class Answers(list):
    """A callback that keeps what it was given."""

    def __call__(self, error):
        self.append(error)


@pytest.fixture
def files():
    return SlowFiles()


@pytest.fixture
def committer(files):
    committer = GroupCommit(files)
    yield committer
    files.open = True
    committer.stop()


def test_nothing_to_flush_is_answered_at_once(committer):
    answers = Answers()

    committer.after_sync(answers)

    assert answers == [None]


class Told:
    """A replicator that notes the events that it hears of in ``order``."""

    def __init__(self):
        self.order = []

    def __getattr__(self, name):
        return lambda *_: self.order.append(name)


def test_flush_is_told_when_it_begins_and_behind_its_logs_before_stores_and_callbacks_hear(tmp_path):
    told = Told()
    files = Unflushed((told,))
    committer, store = GroupCommit(files), FakeStore("a")
    store.file = files.create(tmp_path / "msgs", 4096)
    store.sync_files = lambda acks_too: [store.file]
    store.synced = lambda: told.order.append("store")
    log = FramedLog(files, tmp_path / "log", committer=committer)
    committer.wait()
    told.order.clear()
    log.append(b"one")
    committer.mark(store)

    committer.after_sync(lambda error: told.order.append("callback"))
    committer.wait()
    committer.stop()

    assert told.order == ["flushing", "appended", "flushed", "store", "callback"]


def test_flush_that_nobody_waits_for_is_not_told_when_it_begins(tmp_path):
    told = Told()
    files = Unflushed((told,))
    committer, store = GroupCommit(files), FakeStore("a")
    store.file = files.create(tmp_path / "msgs", 4096)
    store.sync_files = lambda acks_too: [store.file]
    told.order.clear()
    committer.mark(store)

    committer.stop()

    assert told.order == ["flushed"]


@pytest.mark.parametrize("with_log", [False, True])
def test_position_is_that_of_the_marks_of_a_flush_and_not_of_its_end(tmp_path, with_log):
    """What is told while the disk works belongs to the next flush; but logs are told of at the end."""
    files = Unflushed((Told(),))
    committer, store = GroupCommit(files), FakeStore("a")
    store.file = file = files.create(tmp_path / "msgs", 4096)
    store.sync_files = lambda acks_too: [file]
    log = FramedLog(files, tmp_path / "log", committer=committer)
    committer.wait()
    at_once, positions, sync = files.register.told, [], files.sync

    def sync_and_go_on(*arguments):
        files.overwritten(file, 0, 1)
        return sync(*arguments)

    files.sync = sync_and_go_on
    committer.mark(store)
    if with_log:
        log.append(b"one")

    committer.after_sync(lambda error: positions.append(committer.position))
    committer.wait()
    committer.stop()

    # two files flushed, and the log's append; "flushed" itself needs no answer
    assert positions == [at_once + (3 if with_log else 0)]


def test_position_of_what_is_flushed_already_is_that_of_all_events(tmp_path):
    files = Unflushed((Told(),))
    committer, positions = GroupCommit(files), []
    files.create(tmp_path / "msgs", 4096)

    committer.after_sync(lambda error: positions.append(committer.position))

    assert positions == [1]


def test_what_was_marked_before_is_flushed_before_the_answer(committer, files):
    store, answers = FakeStore("a"), Answers()
    committer.mark(store)
    committer.mark_file(FakeFile("/data/log"))
    committer.mark_folder("/data/queues")
    committer.after_sync(answers)
    assert answers == []

    wait_until(lambda: answers)

    assert answers == [None]
    assert sorted(files.flushed) == [
        "/data/log", "/data/queues", "/data/queues/a/acks", "/data/queues/a/msgs"
    ]
    assert store.syncs == 1


def test_confirms_do_not_wait_for_acks(committer, files, monkeypatch):
    monkeypatch.setattr(group_commit, "UNHURRIED_S", 3600)  # however long this process stands still
    store, answers = FakeStore("a"), Answers()
    committer.mark_acks(store)
    committer.after_sync(answers)
    assert answers == [None]

    committer.mark_messages(store)
    committer.after_sync(answers)
    wait_until(lambda: len(answers) == 2)
    assert files.flushed == ["/data/queues/a/msgs"]


def test_acks_are_flushed_though_nobody_waits_for_them(committer, files):
    committer.mark_acks(FakeStore("a"))

    wait_until(lambda: "/data/queues/a/acks" in files.flushed)


def test_a_mark_during_a_sync_waits_for_the_next_one(committer, files):
    files.open = False
    store, first, second = FakeStore("a"), Answers(), Answers()
    committer.mark(store)
    committer.after_sync(first)
    wait_until(lambda: store.file.holders)

    committer.mark(store)
    committer.after_sync(second)
    files.open = True
    wait_until(lambda: second)

    assert (first, second) == ([None], [None])
    assert files.flushed.count("/data/queues/a/msgs") == 2


def test_an_answer_asked_for_during_a_sync_that_covers_all_comes_with_it(committer, files):
    files.open = False
    store, first, second = FakeStore("a"), Answers(), Answers()
    committer.mark(store)
    committer.after_sync(first)
    wait_until(lambda: store.file.holders)

    committer.after_sync(second)
    assert second == []
    files.open = True
    wait_until(lambda: second)

    assert committer.syncs == 1


def test_who_waits_for_the_flush_that_begins_next_is_told_when_it_begins(committer, files):
    files.open = False
    first, second, answers = FakeStore("a"), FakeStore("b"), Answers()
    committer.mark(first)
    coming = committer.after_sync(answers)
    begun = coming.has_begun

    committer.mark(second)  # before it begins: it is covered, too
    wait_until(lambda: second.file.holders)
    assert (begun, coming.has_begun, answers) == (False, True, [])
    assert committer.after_sync(Answers()) is None  # the flush that runs covers all
    committer.mark(first)
    following = committer.after_sync(answers)
    assert following is not coming and not following.has_begun
    files.open = True
    wait_until(lambda: len(answers) == 2)

    assert answers == [None, None] and following.has_begun
    assert [path for path in sorted(files.flushed) if path.endswith("msgs")] == [
        "/data/queues/a/msgs", "/data/queues/a/msgs", "/data/queues/b/msgs",
    ]
    assert committer.after_sync(answers) is None


@pytest.mark.parametrize("end", ["kill", "ended"])
def test_who_waits_for_a_flush_that_never_begins_cannot_add_to_it(files, end):
    committer, answers = GroupCommit(files), Answers()
    committer.mark(FakeStore("a"))
    coming = committer.after_sync(answers)

    if end == "kill":
        committer.kill()
    else:
        gevent.kill(committer._greenlet)
        wait_until(lambda: answers)

    assert coming.has_begun
    committer.stop()


def test_without_syncing_there_is_no_flush_that_could_be_added_to(files):
    committer, answers = GroupCommit(files, enabled=False), Answers()
    committer.mark(FakeStore("a"))

    assert committer.after_sync(answers) is None and answers == [None]
    committer.stop()


def test_answers_come_in_the_order_they_were_asked_for(committer):
    order = []
    committer.mark(FakeStore("a"))
    for number in range(5):
        committer.after_sync(lambda error, number=number: order.append(number))

    wait_until(lambda: len(order) == 5)

    assert order == [0, 1, 2, 3, 4]


def test_marks_without_anybody_waiting_are_flushed_all_the_same(committer):
    store = FakeStore("a")
    committer.mark(store)

    wait_until(lambda: store.syncs == 1)


def test_files_are_held_while_they_are_flushed(committer, files):
    files.open = False
    store = FakeStore("a")
    committer.mark(store)
    committer.after_sync(Answers())

    wait_until(lambda: store.file.holders == 1)
    files.open = True

    wait_until(lambda: store.syncs == 1)
    assert store.file.holders == 0


def test_a_failed_flush_fences_its_store_and_confirms_nothing(committer, files):
    good, bad, answers = FakeStore("good"), FakeStore("bad"), Answers()
    files.failing.add(bad.file.path)
    committer.mark(good)
    committer.mark(bad)
    committer.after_sync(answers)

    wait_until(lambda: answers)

    assert answers[0].errno == errno.EIO
    assert bad.error is answers[0] and good.error is None
    assert (good.syncs, bad.syncs) == (1, 0)


def test_a_fenced_store_fails_the_next_sync_it_is_part_of(committer, files):
    store, answers = FakeStore("a"), Answers()
    store.error = OSError(errno.EIO, "earlier")
    committer.mark(store)
    committer.after_sync(answers)

    wait_until(lambda: answers)

    assert isinstance(answers[0], StoreClosed)


def test_a_store_that_was_fenced_before_its_acks_were_due_fails_nobody_elses_sync(committer, files):
    fenced, other, answers = FakeStore("fenced"), FakeStore("other"), Answers()
    committer.mark_acks(fenced)
    committer._next.acks_since -= group_commit.UNHURRIED_S  # due with the next sync
    fenced.error = OSError(errno.EIO, "earlier")
    committer.mark(other)
    committer.after_sync(answers)

    wait_until(lambda: answers)

    assert answers == [None] and other.syncs == 1
    assert fenced.syncs == 0 and not committer._next.acks


@pytest.mark.parametrize("mark, path", [
    (lambda committer: committer.mark_file(FakeFile("/data/log")), "/data/log"),
    (lambda committer: committer.mark_folder("/data/queues"), "/data/queues"),
])
def test_a_log_or_folder_that_failed_once_stays_failed(committer, files, mark, path):
    """The kernel forgets what it could not write: the second flush would succeed without it."""
    first, second = Answers(), Answers()
    files.failing.add(path)
    mark(committer)
    committer.after_sync(first)
    wait_until(lambda: first)
    files.failing.clear()

    committer.mark_file(FakeFile("/data/log"))
    committer.mark(FakeStore("a"))
    committer.after_sync(second)
    wait_until(lambda: second)

    assert first[0].errno == second[0].errno == errno.EIO


def fail_log(committer, files, path="/data/log"):
    """A log whose flush has failed, on a disk that is sound again."""
    log = FakeFile(path)
    files.failing.add(path)
    committer.mark_file(log)
    with pytest.raises(OSError, match="Input/output error"):
        committer.wait()
    files.failing.clear()
    return log


@pytest.mark.parametrize(
    "mark",
    [
        lambda committer, log: committer.mark_file(log),
        lambda committer, log: committer.mark(FakeStore("a")), lambda committer, log: None,
    ],
    ids=["the log", "a store", "nothing"],
)
def test_log_that_failed_once_fails_every_later_promise_whatever_it_is_about(committer, files, mark):
    """The second flush succeeds without what the first one lost.

    A confirm of a publish to a queue whose definition that was would promise what a restart throws away.
    """
    log, answers = fail_log(committer, files), Answers()

    for _ in range(2):
        mark(committer, log)
        committer.after_sync(answers, concerns=lambda: False)
        committer.after_sync(answers)
    wait_until(lambda: len(answers) == 4)

    assert [error.errno for error in answers] == [errno.EIO] * 4 and committer.has_failed
    wait_until(lambda: committer.is_idle)
    assert log.holders == 0


def test_log_that_failed_and_on_which_nothing_stands_fails_the_flushes_that_it_is_part_of(committer, files):
    log, answers = FakeFile("/data/log"), Answers()
    log.fails_all = False
    files.failing = {log.path}
    for is_part in (True, True, False):
        if is_part:
            committer.mark_file(log)
        committer.after_sync(answers, concerns=lambda: False)
        wait_until(lambda: committer.is_idle)
        files.failing = set()

    assert [error and error.errno for error in answers] == [errno.EIO, errno.EIO, None]


def test_log_on_which_nothing_stands_and_that_cannot_be_written_fails_nobody_later(committer, files):
    log, answers = FakeFile("/data/log"), Answers()
    log.fails_all, log.is_awaited = False, True
    files.failing = {log.path}
    committer.mark_file(log)
    for _ in range(3):
        committer.after_sync(answers, concerns=lambda: False)
        wait_until(lambda: committer.is_idle)

    assert [error and error.errno for error in answers] == [errno.EIO, None, None]
    assert log.holders == 0


def test_owner_of_a_log_that_failed_is_asked_to_replace_it_again_while_promises_are_asked_for(
    committer, files, monkeypatch
):
    monkeypatch.setattr(batch, "REPLACE_AGAIN_S", 1e9)
    log, asked = FakeFile("/data/log"), []
    log.failed = lambda: asked.append(None)
    files.failing = {log.path}
    committer.mark_file(log)
    committer.after_sync(lambda error: None)
    wait_until(lambda: committer.is_idle)
    assert len(asked) == 1

    committer.after_sync(lambda error: None)
    assert len(asked) == 1, "not with each"

    monkeypatch.setattr(batch, "REPLACE_AGAIN_S", 0.0)
    committer._failures._replace_at_s = 0.0
    for count in (2, 3):
        committer.after_sync(lambda error: None)
        assert len(asked) == count


def test_log_that_failed_fails_nobody_when_another_one_has_taken_its_place(committer, files):
    log, told = fail_log(committer, files), []
    log.is_in_use = log.named = False

    committer.mark_file(FakeFile("/data/log"))
    committer.after_sync(told.append)
    committer.wait()

    assert told == [None]


def test_housekeeping_hears_of_stores_and_folders_and_not_of_logs(committer, files):
    """Or files that are not needed any more would stay for as long as the log is in use."""
    fail_log(committer, files)
    answers, store = Answers(), FakeStore("a")
    committer.after_sync(answers, about_logs=False)
    committer.mark_folder("/data/queues")
    committer.after_sync(answers, hurry=False, about_logs=False)
    with pytest.raises(OSError, match="Input/output error"):
        committer.wait()
    assert answers == [None, None]

    files.failing.add(store.file.path)
    committer.mark(store)
    committer.after_sync(answers, about_logs=False)
    wait_until(lambda: len(answers) == 3)

    assert answers[2] is store.error


def test_log_that_is_to_take_anothers_place_fails_its_owner_and_nobody_else(committer, files):
    """The other one has everything, too."""
    following, promise, owner = FakeFile("/data/log.next"), Answers(), Answers()
    following.is_in_use = False
    files.failing.add(following.path)
    committer.mark_file(following)
    committer.after_sync(promise)
    wait_until(lambda: promise)
    files.failing.clear()

    committer.after_flush_of(following, owner)
    committer.after_sync(promise)
    wait_until(lambda: len(promise) == 2)

    assert promise == [None, None] and owner[0].errno == errno.EIO and not committer.has_failed


def test_owner_of_a_log_is_told_of_its_flush_though_the_log_that_is_in_use_has_failed(committer, files):
    fail_log(committer, files)
    following, owner = FakeFile("/data/log.next"), Answers()
    following.is_in_use = False

    committer.after_flush_of(following, owner)
    wait_until(lambda: owner)

    assert owner == [None] and following.path in files.flushed


def test_owner_of_a_log_hears_once_that_its_flush_failed(committer, files, monkeypatch):
    monkeypatch.setattr(batch, "REPLACE_AGAIN_S", 1e9)
    log, heard = FakeFile("/data/log"), []
    log.failed = lambda: heard.append("failed")
    files.failing.add(log.path)
    for _ in range(2):
        committer.mark_file(log)
        with pytest.raises(OSError, match="Input/output error"):
            committer.wait()

    assert heard == ["failed"]


def test_log_that_gets_no_thread_fails_the_sync_and_is_flushed_by_the_next(committer, files, monkeypatch):
    """Nothing is wrong with the disk."""
    log, following, owner = FakeFile("/data/log"), FakeFile("/data/log.next"), Answers()
    begin = flushing.begin
    following.is_in_use = False
    monkeypatch.setattr(flushing, "begin", no_thread)
    committer.mark_file(log)
    committer.after_flush_of(following, owner)
    with pytest.raises(RuntimeError, match="no thread"):
        committer.wait()
    monkeypatch.setattr(flushing, "begin", begin)
    assert files.flushed == [] and isinstance(owner[0], RuntimeError)

    committer.wait()

    assert files.flushed == [log.path] and log.failure is None
    assert log.holders == following.holders == 0


def no_thread(*_, **__):
    raise RuntimeError("no thread")


def test_a_store_in_a_folder_that_failed_is_fenced(committer, files):
    first, second, store = Answers(), Answers(), FakeStore("a")
    files.failing.add(store.folder)
    committer.mark_folder(store.folder)
    committer.after_sync(first)
    wait_until(lambda: first)
    files.failing.clear()

    committer.mark(store)
    committer.after_sync(second)
    wait_until(lambda: second)

    assert store.error is not None and second[0] is store.error


def test_a_folder_that_is_gone_has_nothing_to_flush(tmp_path):
    committer, answers = GroupCommit(Files()), Answers()
    committer.mark_folder(tmp_path / "gone")
    committer.after_sync(answers)
    wait_until(lambda: answers)
    committer.stop()

    assert answers == [None]


def test_without_sync_everybody_is_answered_at_once_and_nothing_is_flushed(files):
    committer, store, answers = GroupCommit(files, enabled=False), FakeStore("a"), Answers()
    committer.mark(store)
    committer.after_sync(answers)
    assert answers == [None]

    wait_until(lambda: store.syncs == 1)  # it is told, so that it can let go of segments

    assert files.flushed == []


def test_stop_flushes_what_is_marked(files):
    committer, store = GroupCommit(files), FakeStore("a")
    committer.mark_acks(store)

    committer.stop()

    assert store.syncs == 1


@pytest.mark.parametrize("enabled", [True, False])
def test_stop_does_what_the_work_that_it_waits_for_puts_on_any_lane_or_marks(files, enabled, monkeypatch):
    done, done_by_then = [], []

    class Noting(ThreadPool):
        def kill(self):
            done_by_then.extend(done)
            super().kill()

    monkeypatch.setattr(flushing, "ThreadPool", Noting)
    committer = GroupCommit(files, enabled=enabled)
    work = committer.background
    lanes = [work.short.add, work.long.add, work.for_readers.add]
    steps = [*lanes, *reversed(lanes), lanes[1], lanes[0], lanes[2]]

    def go_on(_result=None, _error=None):
        done.append(len(done))
        if steps:
            steps.pop(0)(give_up_the_interpreter, done=go_on)
        elif len(done) == 10:
            change = Change("/data/name", give_up_the_interpreter, lambda _: None)
            committer.names.change([change], done=go_on)

    go_on()
    committer.stop()

    assert done_by_then == list(range(11)) and committer.is_idle and committer.background.is_idle


def kill_its_greenlet(committer):
    """As whoever ends all greenlets of a process does."""
    gevent.kill(committer._greenlet)


def test_group_commit_that_is_ended_in_the_middle_of_a_flush_tells_who_waits_and_can_be_stopped(files):
    committer, log, first, second, later, renamed = (
        GroupCommit(files), FakeFile("/data/log"), Answers(), Answers(), Answers(), Answers()
    )
    files.open = False
    committer.mark_file(log)
    committer.after_sync(first)
    wait_until(lambda: committer._is_syncing)
    committer.mark(store := FakeStore("a"))
    committer.names.change([NameChange("a", [])], renamed)
    committer.after_sync(second)

    kill_its_greenlet(committer)
    wait_until(lambda: committer.is_idle)
    committer.after_sync(later)

    (error,) = first
    assert (
        first == second == later == renamed == [error] and error.errno == errno.ECANCELED
        and "GreenletExit" in str(error)
    )
    assert store.error is error and committer.has_failed
    files.open = True
    committer.stop()


@pytest.mark.parametrize("enabled", [True, False])
def test_group_commit_that_is_ended_before_its_first_turn_tells_who_waits_and_can_be_stopped(files, enabled):
    committer, answers, renamed = GroupCommit(files, enabled=enabled), Answers(), Answers()
    committer.names.change([NameChange("a", [])], renamed)
    committer.after_sync(answers)

    kill_its_greenlet(committer)
    committer.stop()

    assert answers == renamed == [answers[0]] and answers[0].errno == errno.ECANCELED


def test_what_is_marked_after_group_commit_was_ended_is_flushed_for_the_next_run_by_one_thread_at_a_time(
    files
):
    """The thread of the flush that was cut short may still write the log:
    two of them would write it twice.
    """
    committer, log = GroupCommit(files), FakeFile("/data/log")
    files.open = False
    committer.mark_file(log)
    committer.after_sync(Answers())
    wait_until(lambda: committer._flushing.at_work)
    kill_its_greenlet(committer)
    wait_until(lambda: committer.is_idle)
    began = []
    sync_log, files.sync_log = files.sync_log, lambda file: (
        began.append(list(files.flushed)), sync_log(file)
    )

    committer.mark_file(log)
    committer._stopping = True  # what is marked is flushed at once
    committer._wake.set()
    for _ in range(100):
        gevent.sleep(0)
    assert began == []
    files.open = True
    committer.stop()

    assert began == [["/data/log"]] and files.flushed == ["/data/log"] * 2


@pytest.mark.parametrize("enabled", [True, False])
def test_group_commit_that_meets_a_fault_of_ours_tells_who_waits_with_and_without_syncing(
    files, enabled, monkeypatch
):
    committer, answers, later = GroupCommit(files, enabled=enabled), Answers(), Answers()
    monkeypatch.setattr(committer, "_answer", lambda *_: 1 / 0)
    committer.names.change([NameChange("a", [])])
    committer.after_sync(answers)
    committer.after_sync(answers)

    wait_until(lambda: len(answers) == 2)
    committer.after_sync(later)

    assert [type(error) for error in [*answers, *later]] == [ZeroDivisionError] * 3
    committer.stop()


def test_work_aside_goes_on_though_its_greenlet_is_ended(files):
    """Whoever it is done for hears of each piece, and the committer can be stopped."""
    committer, go_on, heard = GroupCommit(files), threading.Event(), []
    for number in range(3):
        committer.background.short.add(
            go_on.wait, waiting.TIMEOUT_S,
            done=lambda result, error, number=number: heard.append((number, result, error)),
        )
    (lane,) = [lane for lane in committer.background._workers if not lane.is_idle]
    wait_until(lambda: lane._under_way)

    gevent.kill(lane._greenlet)
    go_on.set()
    committer.stop()

    assert heard == [(number, True, None) for number in range(3)]


def test_work_aside_goes_on_though_its_greenlet_is_ended_while_it_waits_for_a_thread(files, monkeypatch):
    committer, heard, begin = GroupCommit(files), [], background.begin

    def wait_for_a_thread(*arguments, **options):
        monkeypatch.setattr(background, "begin", begin)
        Event().wait(waiting.TIMEOUT_S)

    monkeypatch.setattr(background, "begin", wait_for_a_thread)
    for number in range(2):
        committer.background.short.add(
            lambda: True, done=lambda result, error, number=number: heard.append((number, result, error)))
    (lane,) = [lane for lane in committer.background._workers if not lane.is_idle]
    wait_until(lambda: background.begin is begin)

    gevent.kill(lane._greenlet)
    committer.stop()

    assert heard == [(number, True, None) for number in range(2)]


def test_work_aside_whose_thread_is_interrupted_is_told_so_and_the_rest_is_done(files):
    def interrupt():
        raise SystemExit

    committer, heard = GroupCommit(files), []
    for work in (interrupt, lambda: "done"):
        committer.background.short.add(work, done=lambda result, error: heard.append((result, type(error))))

    committer.stop()

    assert heard == [(None, SystemExit), ("done", type(None))]


def give_up_the_interpreter():
    """Work in a thread that the hub has its turn before."""
    threading.Event().wait(0.001)


def test_flush_that_ends_in_the_moment_of_a_kill_is_told_to_nobody(committer, files, monkeypatch):
    """The greenlet may have its result already, and go on before it hears of the kill."""
    store, answers = FakeStore("a"), Answers()
    files.open = False
    committer.mark(store)
    committer.after_sync(answers)
    wait_until(lambda: store.file.holders)
    greenlets = []
    monkeypatch.setattr(group_commit, "gevent", SimpleNamespace(kill=greenlets.append))

    files.open = True
    committer.kill()

    wait_until(lambda: greenlets[0].dead)
    assert (store.syncs, answers) == (0, [])


def test_wait_raises_what_the_sync_failed_with(committer, files):
    store = FakeStore("a")
    files.failing.add(store.file.path)
    committer.mark(store)

    with pytest.raises(OSError):
        committer.wait()


def test_a_callback_that_fails_does_not_keep_the_others_from_being_called(committer):
    answers, done = Answers(), Event()
    committer.mark(FakeStore("a"))
    committer.after_sync(lambda error: 1 / 0)
    committer.after_sync(answers)
    committer.after_sync(lambda error: done.set())

    assert done.wait(in_time(30))
    assert answers == [None]


def test_a_log_that_is_closed_before_its_flush_is_flushed_all_the_same(tmp_path):
    files, answers = Files(), Answers()
    committer, file = GroupCommit(files), files.open_log(tmp_path / "log")
    files.append(file, b"x")
    committer.mark_file(file)
    committer.mark_file(file)
    files.close(file)
    files.unlink(file.path)
    committer.after_sync(answers)

    wait_until(lambda: answers)
    committer.stop()

    assert answers == [None]
    assert file.closed


@pytest.mark.parametrize("enabled", [True, False])
def test_a_marked_log_is_let_go_of_when_nothing_will_be_flushed(tmp_path, enabled):
    files = Files()
    committer, file = GroupCommit(files, enabled=enabled), files.open_log(tmp_path / "log")
    committer.mark_file(file)
    files.close(file)
    assert not file.closed

    if enabled:
        committer.kill()
    else:
        committer.stop()

    wait_until(lambda: file.closed)


def test_everybody_in_a_failed_sync_hears_of_it_and_every_store_in_it_is_fenced(committer, files):
    stores, answers = [FakeStore(name) for name in "abc"], [Answers() for _ in range(6)]
    for number, store in enumerate(stores):
        committer.mark(store)
        committer.after_sync(answers[number])
    for path in (stores[0].file.path, stores[2].acks.path):
        files.failing.add(path)
    files.open = False
    wait_until(lambda: stores[0].file.holders)
    committer.after_sync(answers[3])  # nothing new is marked: it is answered with the sync that runs
    committer.mark(stores[1])
    committer.after_sync(answers[4])  # has a sync of its own
    files.open = True

    wait_until(lambda: answers[4])

    assert [bool(answer[0]) for answer in answers[:5]] == [True, True, True, True, False]
    assert [store.error is not None for store in stores] == [True, False, True]


@pytest.mark.parametrize("enabled", [True, False])
def test_who_says_what_concerns_him_hears_of_nothing_else(files, enabled):
    committer = GroupCommit(files, enabled=enabled)
    sick, sound = FakeStore("sick"), FakeStore("sound")
    sick.error = None if enabled else OSError(errno.EIO, "Input/output error")
    files.failing.add(sick.file.path)
    # without syncing, too, there is something to wait for
    committer.names.change([Change("/data/pool/1", lambda: None, lambda _: None)])
    told = {}
    for store in (sick, sound):
        committer.mark(store)
        committer.after_sync(
            partial(told.__setitem__, store), concerns=lambda store=store: store.error is not None
        )
    committer.after_sync(partial(told.__setitem__, "whoever says nothing"))

    wait_until(lambda: len(told) == 3)

    assert told[sound] is None and told[sick] is not None and told["whoever says nothing"] is not None
    committer.kill()


def test_fault_that_ends_group_commit_is_told_to_everybody_whatever_concerns_him(committer, monkeypatch):
    monkeypatch.setattr(committer, "_answer", None)
    told = []
    committer.mark(FakeStore("a"))
    committer.after_sync(told.append, concerns=lambda: False)

    wait_until(lambda: told)

    assert isinstance(told[0], TypeError)


def test_who_asks_while_a_failed_sync_is_answered_hears_of_the_failure_behind_the_others(committer, files):
    order, store = [], FakeStore("a")
    files.failing.add(store.file.path)
    store.fence = lambda error: committer.after_sync(lambda error: order.append(("fenced", error)))
    committer.mark(store)
    committer.after_sync(lambda error: order.append(("first", error)))

    wait_until(lambda: len(order) == 2)

    assert [name for name, _ in order] == ["first", "fenced"]
    assert all(error.errno == errno.EIO for _, error in order)


@pytest.mark.parametrize("verb", ["sync_files", "synced"])
def test_a_store_that_cannot_take_part_is_fenced_and_keeps_nobody_waiting(committer, verb):
    bad, good, first, second = FakeStore("bad"), FakeStore("good"), Answers(), Answers()
    setattr(bad, verb, lambda *_: 1 / 0)
    committer.mark(bad)
    committer.mark(good)
    committer.after_sync(first)
    wait_until(lambda: first)

    committer.mark(good)
    committer.after_sync(second)
    wait_until(lambda: second)

    assert isinstance(first[0], ZeroDivisionError) and bad.error is first[0]
    assert second == [None] and good.syncs == 2


def test_without_a_thread_to_flush_in_everybody_hears_that_nothing_is_on_the_disk(committer, monkeypatch):
    store, answers = FakeStore("a"), Answers()
    monkeypatch.setattr(flushing, "ThreadPool", lambda threads: 1 / 0)
    committer.mark(store)
    committer.after_sync(answers)

    wait_until(lambda: answers)

    assert isinstance(answers[0], ZeroDivisionError) and store.error is answers[0]
    assert store.file.holders == 0


def test_with_a_thread_for_some_of_the_flushes_only_the_sync_ends_when_that_one_has(
    committer, files, monkeypatch, caplog
):
    """What it writes must not be written by the next sync meanwhile."""
    stores, answers, begun = [FakeStore(name) for name in "abc"], Answers(), []

    def begin_once(*arguments, **options):
        if begun:
            raise RuntimeError("can't start new thread")
        begun.append(None)
        return sync_begin(*arguments, **options)

    sync_begin = flushing.begin
    monkeypatch.setattr(flushing, "begin", begin_once)
    files.open = False
    for store in stores:
        committer.mark_messages(store)
    committer.after_sync(answers)
    wait_until(lambda: "can't start new thread" in caplog.text)
    held = [store.file.holders for store in stores]
    files.open = True
    wait_until(lambda: answers)

    assert held == [1, 1, 1]
    assert isinstance(answers[0], RuntimeError)
    assert [store.error is None for store in stores] == [True, False, False]
    assert [store.file.holders for store in stores] == [0, 0, 0]


def test_a_fault_in_a_cycle_is_told_to_everybody_from_then_on(committer, monkeypatch):
    stores, first, later = [FakeStore("a"), FakeStore("b")], Answers(), Answers()
    monkeypatch.setattr(committer, "_answer", lambda *_: 1 / 0)
    committer.mark(stores[0])
    committer.after_sync(first)
    wait_until(lambda: first)

    committer.mark(stores[1])
    committer.after_sync(later)

    assert isinstance(first[0], ZeroDivisionError) and later == first
    committer.stop()


def test_an_idle_committer_has_no_greenlet(committer):
    committer.mark(FakeStore("a"))
    committer.wait()

    wait_until(lambda: committer.is_idle)


def test_the_greenlet_stays_for_the_next_flush_and_ends_when_none_comes(committer, monkeypatch):
    monkeypatch.setattr(group_commit, "REST_S", 3600)
    committer.mark(FakeStore("a"))
    committer.wait()
    wait_until(lambda: committer.is_idle)
    first = committer._greenlet
    monkeypatch.setattr(group_commit, "REST_S", 0.001)

    committer.mark(FakeStore("b"))
    second = committer._greenlet
    is_idle = committer.is_idle
    committer.wait()

    assert first is second and not is_idle
    wait_until(lambda: committer._greenlet is None)
    assert committer._wake.rings_at_s == 0.0


def test_a_greenlet_that_is_ended_while_it_rests_has_failed_nobody(committer, files, monkeypatch):
    monkeypatch.setattr(group_commit, "REST_S", 3600)
    committer.mark(FakeStore("a"))
    committer.wait()
    wait_until(lambda: committer.is_idle)

    kill_its_greenlet(committer)
    wait_until(lambda: committer._greenlet is None)
    committer.mark(FakeStore("b"))
    committer.wait()

    assert not committer.has_failed and committer.syncs == 2


def test_a_greenlet_that_is_ended_as_it_is_woken_tells_who_waits(committer, monkeypatch):
    monkeypatch.setattr(group_commit, "REST_S", 3600)
    committer.mark(FakeStore("a"))
    committer.wait()
    wait_until(lambda: committer.is_idle)
    answers = Answers()

    kill_its_greenlet(committer)
    committer.mark(store := FakeStore("b"))
    committer.after_sync(answers)
    wait_until(lambda: answers)

    assert answers[0].errno == errno.ECANCELED and store.error is answers[0] and committer.has_failed


@pytest.mark.parametrize("end", ["stop", "kill"])
def test_no_greenlet_and_no_timer_stay_when_it_ends_while_it_rests(committer, monkeypatch, end):
    monkeypatch.setattr(group_commit, "REST_S", 3600)
    committer.mark(FakeStore("a"))
    committer.wait()
    wait_until(lambda: committer.is_idle)

    getattr(committer, end)()

    assert committer._greenlet is None and committer._wake.rings_at_s == 0.0


def test_work_aside_is_done_in_order_while_a_flush_hangs(caplog):
    """Files are closed and made there.

    Nobody waits for it, a flush that hangs holds none of it up, and a failure is its own.
    """
    files, done, results = SlowFiles(), [], []
    files.open = False
    committer = GroupCommit(files, threads=1)
    committer.mark_folder("/data")
    committer.after_sync(results.append)

    for number in range(300):
        committer.background.short.add(
            lambda number=number: done.append(number) or number,
            done=lambda result, error: results.append((result, error)),
        )
    assert not committer.background.is_idle and not done
    committer.background.short.add(lambda: 1 / 0)
    committer.background.short.add(done.append, 300)
    wait_until(lambda: len(done) == 301)

    assert done == list(range(301)) and results == [(number, None) for number in range(300)]
    assert "division by zero" in caplog.text
    files.open = True
    committer.stop()
    assert results[-1] is None


def test_work_aside_that_somebody_waits_for_comes_first_and_keeps_the_rest_from_nothing():
    committer, done = GroupCommit(SlowFiles()), []
    for name, first in (
        ("closed", False), ("closed too", False), *((f"made {number}", True) for number in range(4))
    ):
        committer.background.short.add(done.append, name, first=first)

    wait_until(lambda: len(done) == 6)

    assert done == ["made 0", "closed", "made 1", "closed too", "made 2", "made 3"]
    committer.stop()


def test_after_pieces_that_somebody_waits_for_as_many_others_have_their_turn(caplog):
    """Or files would be emptied faster than closed; one that fails keeps none of the others from it."""
    committer, done = GroupCommit(SlowFiles()), []
    for name in ("a", "b", "c"):
        committer.background.short.add(done.append, name, first=3)
    committer.background.short.add(done.append, 0)
    committer.background.short.add(lambda: 1 / 0)
    for number in range(1, 5):
        committer.background.short.add(done.append, number)
    committer.background.short.add(done.append, 5, done=lambda result, error: done.append("heard"))
    committer.background.short.add(done.append, 6)

    wait_until(lambda: len(done) == 11)

    assert done == ["a", 0, 1, "b", 2, 3, 4, "c", 5, "heard", 6]
    assert "division by zero" in caplog.text
    committer.stop()


def test_failures_of_pieces_that_are_done_together_are_logged_in_the_hub(monkeypatch):
    """Under gevent's patches the log's locks are for greenlets, and no thread may wait for them."""
    committer, threads = GroupCommit(SlowFiles()), []
    monkeypatch.setattr(background.logger, "warning", lambda *_: threads.append(threading.get_ident()))

    committer.background.short.add(list, first=3)
    for _ in range(4):
        committer.background.short.add(lambda: 1 / 0)

    wait_until(lambda: len(threads) == 4)
    assert set(threads) == {threading.get_ident()}
    committer.stop()


def test_work_aside_that_a_crash_overtakes():
    """What was to be closed is closed, as the system does it then; nothing is made any more."""
    committer, done = GroupCommit(SlowFiles()), []
    committer.background.short.add(done.append, "closed")
    committer.background.short.add(done.append, "made", done=lambda result, error: done.append("called back"))

    committer.kill()

    assert done == ["closed"]


def test_work_aside_whose_turn_was_to_come_together_is_done_though_a_crash_overtakes_it():
    committer, done = GroupCommit(SlowFiles()), []
    committer.background.short.add(
        done.append, "made", done=lambda result, error: done.append("called back"), first=2)
    for name in ("closed", "closed too", "and that"):
        committer.background.short.add(done.append, name)

    committer.kill()

    assert done == ["closed", "closed too", "and that"]


def test_work_aside_that_ends_in_the_moment_of_a_crash(monkeypatch):
    """Its greenlet is about to go on with the result when the process dies."""
    flush_pool.use(monkeypatch)
    committer, done = GroupCommit(SlowFiles()), []

    def make():
        done.append("made")
        gevent.get_hub().loop.run_callback(committer.kill)

    committer.background.short.add(make, done=lambda result, error: done.append("called back"))
    for _ in range(10):
        gevent.sleep(0)

    assert done == ["made"]


class NameChange:
    """As much of a storage.disk.files.Change as a sync needs; what is done to it stands in ``log``."""

    def __init__(self, name, log, error=None, needed=False):
        self.path = name
        self.name, self.log, self.error, self.needed = name, log, error, needed

    def act(self):
        if self.error is not None:
            raise self.error
        self.log.append((self.name, threading.get_native_id() == HUB))

    def told(self):
        self.log.append((self.name, "told"))


HUB = threading.get_native_id()


def test_names_change_in_a_thread_in_order_before_the_flush_and_are_told_in_the_hub(committer, files):
    log, answers = files.flushed, Answers()
    for names in ("ab", "c"):
        committer.names.change(
            [NameChange(name, log) for name in names], lambda error, names=names: log.append((names, error))
        )
    committer.mark_folder("/data/queues")
    committer.after_sync(answers)
    assert not log and not answers

    wait_until(lambda: answers)

    assert log == [
        ("a", False), ("b", False), ("c", False), ("a", "told"), ("b", "told"), ("ab", None), ("c", "told"),
        ("c", None), "/data/queues"]
    assert answers == [None]


def test_a_change_of_names_that_fails_ends_its_list_and_fails_who_waits_for_it(committer):
    log, answers, heard = [], Answers(), Answers()
    error = OSError(errno.EIO, "Input/output error", "b")
    committer.names.change([NameChange("a", log), NameChange("b", log, error), NameChange("c", log)], heard)
    committer.names.change([NameChange("d", log)])
    committer.after_sync(answers)

    wait_until(lambda: answers)

    assert log == [("a", False), ("d", False), ("a", "told"), ("d", "told")]
    assert heard == answers == [error]
    committer.names.change([NameChange("e", log)])
    committer.after_sync(answers)
    wait_until(lambda: answers[1:])
    assert answers == [error, None]


def test_a_name_that_was_gone_already_fails_nobody_else(committer):
    answers, heard = Answers(), Answers()
    committer.names.change([NameChange("a", [], FileNotFoundError(errno.ENOENT, "No such file", "a"))], heard)
    committer.after_sync(answers)

    wait_until(lambda: answers)

    assert answers == [None] and isinstance(heard[0], FileNotFoundError)


def test_a_change_of_names_during_a_sync_waits_for_the_next_one(committer, files):
    files.open = False
    log, first, second = files.flushed, Answers(), Answers()
    committer.mark_folder("/data/queues")
    committer.after_sync(first)
    gevent.sleep(0)
    committer.names.change([NameChange("a", log)])
    committer.after_sync(second)
    gevent.sleep(0)
    assert not log

    files.open = True
    wait_until(lambda: second)

    assert first == second == [None]
    assert log == ["/data/queues", ("a", False), ("a", "told")]


def test_a_name_that_is_needed_and_gone_fails_the_sync(committer):
    answers, missing = Answers(), FileNotFoundError(2, "gone")
    committer.names.change([NameChange("a", [], missing, needed=True)])
    committer.after_sync(answers)

    wait_until(lambda: answers)

    assert answers == [missing] and committer.has_failed


@pytest.mark.parametrize("error", [None, OSError(5, "the disk failed")])
def test_without_sync_too_nobody_is_answered_before_the_names_have_changed(files, error):
    """Or what was confirmed would be gone with a killed process,
    because its file still has the name that the next boot removes.
    """
    committer, log, answers = GroupCommit(files, enabled=False), [], Answers()
    committer.names.change([NameChange("a", log, error)], soon=True)
    for answer in (answers, lambda error: answers.append("second")):
        committer.after_sync(answer)
    assert answers == []

    wait_until(lambda: len(answers) == 2)

    assert answers == [error, "second"] and len(log) == (2 if error is None else 0)
    committer.after_sync(answers)
    assert answers[2:] == [None]


def test_names_change_without_sync_too_and_at_the_latest_when_it_stops(files):
    committer, log = GroupCommit(files, enabled=False), []
    committer.names.change([NameChange("a", log)])

    committer.stop()

    assert log == [("a", False), ("a", "told")] and files.flushed == []


def test_a_kill_changes_no_names(committer):
    log = []
    committer.names.change([NameChange("a", log)])

    committer.kill()
    gevent.sleep(0)

    assert log == []


@pytest.fixture
def patient(monkeypatch):
    """Nothing is flushed that nobody waits for."""
    monkeypatch.setattr(group_commit, "UNHURRIED_S", 1000)


def test_change_that_is_wanted_soon_waits_for_no_flush_and_is_none(patient, committer, files):
    """What was marked, and other changes, go on waiting;
    segments that are alive meanwhile were not there when a flush began.
    """
    log, heard, answers = files.flushed, Answers(), Answers()
    committer.names.change([NameChange("later", log)])
    committer.mark_folder("/data/queues")
    committer.after_sync(answers, hurry=False)

    for name in "ab":
        committer.names.change([NameChange(name, log)], heard, soon=True)
        wait_until(lambda: heard)
        assert log == [(name, False), (name, "told")] and heard == [None]
        assert not answers and (committer.begun, committer.syncs) == (0, 0)
        log.clear()
        heard.clear()

    committer.after_sync(answers)
    wait_until(lambda: answers[1:])
    assert log == [("later", False), ("later", "told"), "/data/queues"] and answers == [None, None]


def test_changes_that_are_wanted_soon_are_gathered_for_a_while(patient, committer, files, monkeypatch):
    """Each trip to a thread takes the processor from the hub,
    so that a flood through many segments makes few.
    """
    log, trips, change_each = files.flushed, [], flushing.change_each
    monkeypatch.setattr(batch, "SOON_S", 1000)
    monkeypatch.setattr(
        flushing, "change_each",
        lambda groups, watch: trips.append(len(groups)) or change_each(groups, watch))

    for name in "ab":
        committer.names.change([NameChange(name, log)], soon=True)
        give_way()
        assert log == []
    monkeypatch.setattr(batch, "SOON_S", 0)
    committer.names.change([NameChange("c", log)])
    committer.after_sync(answers := Answers())
    wait_until(lambda: answers)

    assert trips == [3] and [name for name, made in log if made == "told"] == ["a", "b", "c"]


def test_what_nobody_waits_for_is_flushed_when_it_is_due_though_a_change_is_being_gathered(
    committer, files, monkeypatch
):
    monkeypatch.setattr(group_commit, "UNHURRIED_S", 0.01)
    monkeypatch.setattr(batch, "SOON_S", 1000)
    committer.mark_folder("/data/queues")
    committer.names.change([NameChange("a", files.flushed)], soon=True)

    wait_until(lambda: "/data/queues" in files.flushed)

    assert files.flushed == [("a", False), ("a", "told"), "/data/queues"]


def test_what_nobody_waits_for_is_flushed_when_it_is_due_though_changes_are_wanted_without_end(
    committer, files, monkeypatch
):
    """As a flood makes them, which goes from one segment to the next."""
    monkeypatch.setattr(group_commit, "UNHURRIED_S", 0.01)
    monkeypatch.setattr(batch, "SOON_S", 0)

    def one_more(_error=None):
        if "/data/queues" not in files.flushed:
            committer.names.change([NameChange("a", [])], one_more, soon=True)

    committer.mark_folder("/data/queues")
    one_more()

    wait_until(lambda: "/data/queues" in files.flushed)


@pytest.mark.parametrize("enabled", [True, False])
def test_acks_that_cannot_be_flushed_fail_nobody_who_waits(files, enabled):
    """Nobody waits for them: their queue is fenced, and everybody else goes on."""
    committer, fenced, other, answers = (
        GroupCommit(files, enabled=enabled), FakeStore("fenced"), FakeStore("other"), Answers()
    )
    fenced.error = OSError(errno.EIO, "earlier")
    committer.tells_before_it_answers = True
    committer.mark_acks(fenced)
    committer._next.acks_since -= group_commit.UNHURRIED_S
    committer.mark(other)
    committer.after_sync(answers)

    committer.stop()

    assert answers == [None] and other.syncs == 1 and fenced.syncs == 0


def test_who_asks_while_a_change_that_is_wanted_soon_is_made_hears_of_its_end(patient, committer, files):
    log, answers, made = files.flushed, Answers(), threading.Event()
    slow = NameChange("a", log)
    slow.act = lambda: made.wait(waiting.TIMEOUT_S) and log.append("a")
    committer.names.change([slow], soon=True)
    gevent.sleep(0)
    committer.after_sync(answers)
    gevent.sleep(0)
    assert not answers

    made.set()
    wait_until(lambda: answers)

    assert answers == [None] and log == ["a", ("a", "told")]


def test_a_change_that_is_wanted_soon_and_fails_fails_who_waits_for_it_and_nobody_later(patient, committer):
    error, heard, answers, later = (
        OSError(errno.EIO, "Input/output error", "a"), Answers(), Answers(), Answers()
    )
    committer.names.change([NameChange("a", [], error)], heard, soon=True)
    committer.after_sync(answers)
    wait_until(lambda: answers)
    assert heard == answers == [error] and committer.has_failed

    committer.names.change([NameChange("b", [], error)], heard, soon=True)
    wait_until(lambda: heard[1:])
    committer.mark_folder("/data/queues")
    committer.after_sync(later)
    wait_until(lambda: later)
    assert later == [None]


@pytest.mark.parametrize("end", ["stop", "sync"])
def test_changes_that_are_wanted_soon_are_made_before_others_however_it_goes_on(patient, files, end):
    log = []
    committer = GroupCommit(files)
    committer.names.change([NameChange("later", log)])
    committer.names.change([NameChange("soon", log)], soon=True)
    if end == "sync":
        committer.wait()
    committer.stop()

    assert [entry for entry in log if entry[1] != "told"] == [("soon", False), ("later", False)]


def test_without_syncing_all_changes_are_made_in_the_order_in_which_they_were_asked_for(files):
    """Nobody was made to wait for the first of them before asking for the second."""
    log = []
    committer = GroupCommit(files, enabled=False)
    committer.names.change([NameChange("first", log)])
    committer.after_sync(lambda error: committer.names.change([NameChange("second", log)], soon=True))
    committer.stop()

    assert [entry for entry in log if entry[1] != "told"] == [("first", False), ("second", False)]


def test_sync_that_only_changes_names_counts_as_none(committer):
    """Or segments that were never flushed would count as such."""
    committer.names.change([NameChange("a", [])])

    committer.wait()

    assert (committer.begun, committer.syncs) == (0, 0)


def test_what_is_marked_is_flushed_though_it_is_let_go_while_names_change(committer, files):
    """A segment that goes in that moment has acks that somebody waits for;
    its own change of names comes too late for the answer.
    """
    store, answers = FakeStore("a"), Answers()
    committer.mark(store)
    committer.names.change(
        [NameChange("b", [])], lambda error: setattr(store, "sync_files", lambda acks_too: []))
    committer.after_sync(answers)

    wait_until(lambda: answers)

    assert sorted(files.flushed) == [store.acks.path, store.file.path]


def short_slices(**options):
    """Slices that are over at each look at the clock."""
    return SliceClock(seconds=0, **options)


@pytest.fixture
def turns(monkeypatch):
    """What a test has done when the committer lets others have their turn; each is counted."""
    done = []

    def give_way():
        done.append(len(done))
        if len(done) <= len(turns):
            turns[len(done) - 1]()
        gevent.sleep(0)

    turns = Turns(done)
    monkeypatch.setattr(group_commit, "give_way", give_way)
    return turns


class Turns(list):
    """Functions, one for each turn; ``done`` has an item for each turn that was had."""

    def __init__(self, done):
        super().__init__()
        self.done = done


@pytest.mark.parametrize("enabled", [True, False])
def test_many_stores_of_one_sync_are_told_in_slices(files, turns, enabled):
    committer, stores = (
        GroupCommit(files, enabled=enabled, slice_clock=short_slices),
        [FakeStore(str(number)) for number in range(100)],
    )
    told = []
    turns[:] = [lambda: told.append(sum(store.syncs for store in stores))] * 7
    for store in stores:
        committer.mark(store)

    committer.stop()

    assert told[:6] == [group_commit.LOOKS * number for number in range(1, 7)]
    assert [store.syncs for store in stores] == [1] * 100


def test_without_syncing_a_promise_asked_for_between_slices_waits_until_all_stores_have_told(files, turns):
    """Whoever keeps a copy is asked for all that was told until then."""
    committer, stores, told = (
        GroupCommit(files, enabled=False, slice_clock=short_slices),
        [FakeStore(str(number)) for number in range(100)], [],
    )
    committer.tells_before_it_answers = True
    turns.append(lambda: committer.after_sync(lambda _: told.append(sum(store.syncs for store in stores))))
    for store in stores:
        committer.mark(store)

    committer.stop()

    assert (told, committer.is_idle) == ([100], True)
    committer.after_sync(told.append)
    assert told == [100, None]


def test_many_callbacks_of_one_sync_are_called_in_slices_and_keep_their_order(files, turns):
    """A mark between two slices waits for the next sync;
    who asks there without one comes behind those who asked before.
    """
    committer, order, late = GroupCommit(files, slice_clock=short_slices), [], FakeStore("late")
    called = []
    turns[:] = [
        lambda: (
            called.append(len(order)), committer.after_sync(lambda error: order.append("asked in between"))
        ),
        lambda: (
            called.append(len(order)), committer.mark(late),
            committer.after_sync(lambda error: order.append("marked in between")),
        ),
        lambda: (
            called.append(len(order)),
            committer.after_sync(lambda error: order.append("asked behind the mark")),
        ),
    ]
    committer.mark(FakeStore("a"))
    for number in range(50):
        committer.after_sync(lambda error, number=number: order.append(number))

    wait_until(lambda: late.syncs)
    committer.stop()

    assert called == [group_commit.LOOKS, 2 * group_commit.LOOKS, 3 * group_commit.LOOKS]
    assert order == [*range(50), "asked in between", "marked in between", "asked behind the mark"]
    assert committer.syncs == 2


def test_broker_that_is_killed_between_two_slices_calls_nobody_back_any_more(files, turns):
    committer, stores, answers = (
        GroupCommit(files, slice_clock=short_slices), [FakeStore(str(number)) for number in range(100)],
        Answers(),
    )
    for store in stores:
        committer.mark(store)
    committer.after_sync(answers)
    turns.append(lambda: gevent.get_hub().loop.run_callback(committer.kill))

    wait_until(lambda: turns.done and committer.is_idle)

    assert sum(store.syncs for store in stores) == group_commit.LOOKS
    assert answers == []


def test_log_whose_flush_fails_as_it_takes_another_ones_name_fails_from_then_on(committer, files):
    log = FakeFile("/data/log.next")
    committer.names.change([Change(log.path, lambda: None, lambda _: setattr(log, "path", "/data/log"))])
    committer.mark_file(log)
    files.failing = {"/data/log"}
    with pytest.raises(OSError, match="Input/output error"):
        committer.wait()
    files.failing = set()

    committer.mark_file(log)

    with pytest.raises(OSError, match="Input/output error"):
        committer.wait()
    assert log.holders == 0


class Unwritable(Files):
    """A disk on which logs can be flushed, and written only while ``is_well``."""

    is_well = True

    def _write_once(self, file, at, octets):
        if not self.is_well:
            raise OSError(errno.EIO, "Input/output error")
        return super()._write_once(file, at, octets)


@pytest.fixture
def unwritable(tmp_path):
    """(files, committer, log of which one record is on the disk)."""
    files = Unwritable()
    committer = GroupCommit(files)
    log = FramedLog(files, tmp_path / "log", committer=committer)
    log.append(b"one")
    committer.wait()
    yield files, committer, log
    files.is_well = True
    log.close()
    committer.stop()


def read_log(log):
    with open(log.path, "rb") as file:
        return list(LogScan(log.path, file.read()))


def fail_to_write_two(files, committer, log):
    files.is_well = False
    log.append(b"two")
    with pytest.raises(OSError, match="Input/output error"):
        committer.wait()


def test_nobody_is_answered_while_a_log_has_not_been_written(unwritable):
    """Not even who asks when nothing else was marked: a declare of what an earlier one has declared,
    and was refused.
    """
    files, committer, log = unwritable
    files.is_well = False
    log.append(b"two")

    for _ in range(3):
        with pytest.raises(OSError, match="Input/output error"):
            committer.wait()

    assert read_log(log) == [b"one"]


def test_log_that_could_not_be_written_is_whole_after_an_orderly_end(unwritable):
    files, committer, log = unwritable
    fail_to_write_two(files, committer, log)
    files.is_well = True
    log.append(b"three")

    log.close()
    committer.stop()

    assert read_log(log) == [b"one", b"two", b"three"] and log.file.closed


def test_log_that_could_not_be_written_and_was_abandoned_fails_nobody_any_more(unwritable):
    """The second log of a compaction that was given up."""
    files, committer, log = unwritable
    fail_to_write_two(files, committer, log)

    log.abandon()

    committer.wait()


def test_who_asked_while_a_log_could_not_be_written_is_not_answered_either(unwritable):
    """A publish, say, to the queue whose declare that was."""
    files, committer, log = unwritable
    files.is_well = False
    answers = Answers()

    def ask(_):
        committer.mark_folder(os.path.dirname(log.path))
        committer.after_sync(answers)

    log.append(b"two")
    committer.names.change([Change(log.path, lambda: None, ask)])
    with pytest.raises(OSError, match="Input/output error"):
        committer.wait()
    wait_until(lambda: answers)

    assert isinstance(answers[0], OSError)


def test_log_that_is_abandoned_while_a_thread_fails_to_write_it_fails_nobody(unwritable, caplog):
    """Whoever takes its place has everything."""
    files, committer, log = unwritable

    def fail(file, at, octets):
        log.abandon()
        raise OSError(errno.EIO, "Input/output error")

    log.append(b"two")
    files._write_once = fail

    committer.wait()

    committer.wait()
    assert "nothing durable is confirmed" not in caplog.text


def test_kill_lets_go_of_a_log_that_could_not_be_written(unwritable):
    files, committer, log = unwritable
    fail_to_write_two(files, committer, log)

    committer.kill()

    log.close()
    assert log.file.closed
