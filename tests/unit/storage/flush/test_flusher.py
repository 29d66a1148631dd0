"""Flusher: files are flushed by threads that need no interpreter, and whoever asked waits as for a socket."""
import contextlib
import errno
import gc
import os
import subprocess
import sys
import threading
import time
from pathlib import Path

import gevent
import pytest

from gomq_py.storage.disk import files as files_module
from gomq_py.storage.disk.files import Files
from gomq_py.storage.flush import flusher, flushing as flushing_module
from gomq_py.storage.flush.group_commit import GroupCommit
from tests.support.waiting import in_time, wait_until

pytestmark = pytest.mark.skipif(not flusher.IS_NATIVE, reason="interpreted, Python's threads flush")
MOST = 4


class OpenFile:
    """As much of a File as a flush needs: a descriptor of the test's own."""

    map = None

    def __init__(self, fd):
        self.fd = fd


@pytest.fixture
def flushing():
    flushing = flusher.Flusher(MOST)
    yield flushing
    flushing.close()


def held():
    """The threads of this process that Python does not know, and its eventfds.

    What an earlier test's Flusher held may go at any moment: compare sets, not counts.
    """
    known = {str(thread.native_id) for thread in threading.enumerate()}
    threads = {("thread", name) for name in os.listdir("/proc/self/task") if name not in known}
    for name in os.listdir("/proc/self/fd"):
        with contextlib.suppress(FileNotFoundError):
            link = os.path.join("/proc/self/fd", name)
            if "eventfd" in os.readlink(link):
                threads.add(("eventfd", link))
    return threads


@pytest.mark.parametrize("descriptors", [1, 0], ids=["descriptor", "mapping"])
def test_a_file_is_flushed_by_its_descriptor_or_its_mapping(tmp_path, monkeypatch, flushing, descriptors):
    monkeypatch.setattr(Files, "mapped_descriptors", descriptors)
    files = Files()
    file = files.create(tmp_path / "msgs", 8192)
    assert (file.fd >= 0) is bool(descriptors)
    file.map[:4] = b"octo"

    files.sync(file, flushing.flush)

    assert file.synced_size == 8192
    file.close()


def test_others_have_their_turn_meanwhile(tmp_path, flushing):
    file, turns = Files().create(tmp_path / "msgs", 8192), []
    other = gevent.spawn(lambda: turns.append("other"))

    flushing.flush(file)

    assert turns == ["other"]
    other.join()
    file.close()


def test_what_the_system_refuses_is_raised(tmp_path, flushing):
    reading, writing = os.pipe()

    with pytest.raises(OSError) as refused:  # a pipe is on no disk
        flushing.flush(OpenFile(reading))

    assert refused.value.errno == errno.EINVAL
    os.close(reading)
    os.close(writing)


def test_an_error_names_the_file(tmp_path, flushing):
    files = Files()
    file = files.create(tmp_path / "msgs", 8192)
    fd, file.fd = file.fd, os.pipe()[1]

    with pytest.raises(OSError) as refused:
        files.sync(file, flushing.flush)

    assert refused.value.filename == str(tmp_path / "msgs") and file.synced_size == 0
    os.close(file.fd)
    file.fd = fd
    file.close()


def test_more_flushes_than_threads_all_end(tmp_path, flushing):
    files = [Files().create(tmp_path / str(number), 4096) for number in range(12)]

    greenlets = [gevent.spawn(flushing.flush, file) for file in files]
    gevent.joinall(greenlets, raise_error=True)

    assert all(greenlet.successful() for greenlet in greenlets)
    for file in files:
        file.close()


def test_a_flush_wakes_one_thread_and_the_others_sleep_on(tmp_path):
    """By the system's counts of how often each thread went to sleep."""
    def threads():
        return {name for kind, name in held() - before if kind == "thread"}

    def of(thread, word):
        with open(f"/proc/self/task/{thread}/status") as status:
            return next(line.split()[1] for line in status if line.startswith(word))

    def flush_and_rest():
        flushing.flush(file)
        wait_until(lambda: all(of(thread, "State") == "S" for thread in threads()), sleep=gevent.sleep)

    gc.collect()
    before = held()
    file, flushing = Files().create(tmp_path / "msgs", 4096), flusher.Flusher(MOST)
    while len(threads()) < 2:
        gevent.joinall([gevent.spawn(flushing.flush, file) for _ in range(3)], raise_error=True)
    flush_and_rest()
    slept = {thread: of(thread, "voluntary_ctxt_switches") for thread in threads()}

    for _ in range(20):
        flush_and_rest()

    woken = [thread for thread, count in slept.items() if of(thread, "voluntary_ctxt_switches") != count]
    assert len(woken) == 1
    flushing.close()
    file.close()


def test_more_flushes_than_places_are_refused_and_the_others_end(tmp_path, flushing):
    file = Files().create(tmp_path / "msgs", 4096)

    greenlets = [gevent.spawn(flushing.flush, file) for _ in range(40)]
    gevent.joinall(greenlets)

    errors = [greenlet.exception for greenlet in greenlets if not greenlet.successful()]
    assert len(errors) < 40 and {error.errno for error in errors} <= {errno.ENOMEM}
    flushing.flush(file)
    file.close()


def test_whoever_is_cut_short_leaves_its_place_to_others(tmp_path, flushing):
    file = Files().create(tmp_path / "msgs", 4096)

    for _ in range(50):
        greenlet = gevent.spawn(flushing.flush, file)
        gevent.sleep(0)
        greenlet.kill()
        flushing.flush(file)

    # A flush whose greenlet is gone may take longer than the one that was asked for after it.
    wait_until(lambda: not flushing._waiting, sleep=gevent.sleep)
    file.close()


def test_threads_and_descriptors_go_with_it(tmp_path):
    gc.collect()
    before = held()
    file, flushing = Files().create(tmp_path / "msgs", 4096), flusher.Flusher(MOST)
    flushing.flush(file)
    assert held() - before

    flushing.close()

    wait_until(lambda: not held() - before)
    with pytest.raises(OSError, match="ended"):
        flushing.flush(file)
    flushing.close()
    file.close()


def test_a_flusher_that_nobody_closed_ends_when_it_is_forgotten(tmp_path):
    gc.collect()
    before = held()
    file, flushing = Files().create(tmp_path / "msgs", 4096), flusher.Flusher(MOST)
    flushing.flush(file)

    del flushing
    gevent.sleep(0)  # the hub was in the middle of telling it
    gc.collect()

    wait_until(lambda: not held() - before)
    file.close()


def test_a_flusher_ends_after_the_loop_of_its_thread(tmp_path):
    def flush_and_go():
        flushing = flusher.Flusher(MOST)
        kept.append(flushing)
        flushing.flush(file)
        flushing.pause(0.0001)
        gevent.get_hub().destroy(destroy_loop=True)

    gc.collect()
    before = held()
    file, kept = Files().create(tmp_path / "msgs", 4096), []
    thread = threading.Thread(target=flush_and_go)
    thread.start()
    thread.join()

    kept.pop().close()

    wait_until(lambda: not held() - before)
    file.close()


def test_whoever_closes_it_in_a_pause_leaves_the_loop_whole():
    """In a process of its own, which ended with the watcher that was freed while it was waited for."""
    program = (
        "import gevent\n"
        "from gomq_py.storage.flush.flusher import Flusher\n"
        "for _ in range(3):\n"
        "    flushing = Flusher(4)\n"
        "    flushing.pause(0.0001)\n"
        "    pausing = gevent.spawn(flushing.pause, 0.9)\n"
        "    gevent.sleep(0)\n"
        "    flushing.close()\n"
        "    pausing.kill(block=False)\n"
        "    gevent.sleep(0.001)\n"
        "    assert pausing.dead\n"
    )

    ended = subprocess.run([sys.executable, "-c", program], capture_output=True, timeout=in_time(30))

    assert (ended.returncode, ended.stderr) == (0, b"")


def test_group_commit_flushes_files_of_stores_without_a_thread_of_pythons(tmp_path, monkeypatch):
    def blocks(file):
        raise AssertionError("flushed by a thread of Python's")

    monkeypatch.setattr(files_module, "flush_file", blocks)
    files, answers = Files(), []
    committer = GroupCommit(files)
    stores = [Store(files, tmp_path, name) for name in "abcdef"]
    for store in stores:
        committer.mark(store)

    committer.after_sync(answers.append)
    wait_until(lambda: committer._flushing.lanes_here or answers, sleep=lambda _: gevent.sleep(0))
    names = [greenlet.name for greenlet in committer._flushing.lanes_here]
    wait_until(lambda: answers, sleep=gevent.sleep)

    assert answers == [None]
    assert set(names) <= {f"group-commit {lane}" for lane in range(1, 6)}
    assert [store.syncs for store in stores] == [1] * 6
    assert all(store.file.synced_size == 4096 and not store.file.is_retained for store in stores)
    assert committer._flushing.pool is None
    committer.stop()
    for store in stores:
        store.file.close()


def test_without_descriptors_for_it_the_pool_flushes(tmp_path, monkeypatch, caplog):
    def refuses(most):
        raise OSError(errno.EMFILE, "no thread that flushes: Too many open files")

    files, answers = Files(), []
    committer, store = GroupCommit(files), Store(files, tmp_path, "a")

    def sync_once():
        count = len(answers)
        committer.mark(store)
        committer.after_sync(answers.append)
        wait_until(lambda: len(answers) > count, sleep=gevent.sleep)

    with monkeypatch.context() as patch:
        patch.setattr(flusher, "Flusher", refuses)
        sync_once()
        sync_once()
    assert committer._flushing.pool is not None
    assert caplog.text.count("the pool flushes instead") == 1  # and not with each sync

    sync_once()

    assert answers == [None] * 3 and store.syncs == 3 and committer._flushing.flusher is not None
    committer.stop()
    store.file.close()


def test_no_descriptor_left_is_an_error_and_nothing_stays():
    """In a process of its own: in this one the threads of an earlier test may still close theirs."""
    program = (
        "import errno, os, resource\n"
        "from gomq_py.storage.flush.flusher import Flusher\n"
        "limits, lowest = resource.getrlimit(resource.RLIMIT_NOFILE), os.dup(0)\n"
        "os.close(lowest)\n"
        "threads = len(os.listdir('/proc/self/task'))\n"
        "resource.setrlimit(resource.RLIMIT_NOFILE, (lowest, limits[1]))\n"
        "try:\n"
        "    Flusher(4)\n"
        "except OSError as refused:\n"
        "    assert refused.errno == errno.EMFILE, refused\n"
        "else:\n"
        "    raise AssertionError('it began')\n"
        "resource.setrlimit(resource.RLIMIT_NOFILE, limits)\n"
        "assert len(os.listdir('/proc/self/task')) == threads\n"
        "assert os.dup(0) == lowest\n"
    )

    ended = subprocess.run([sys.executable, "-c", program], capture_output=True, timeout=in_time(30))

    assert (ended.returncode, ended.stderr) == (0, b"")


def test_a_forked_child_ends_without_its_parents_threads(tmp_path):
    file, flushing = Files().create(tmp_path / "msgs", 4096), flusher.Flusher(MOST)
    flushing.flush(file)

    child = os.fork()
    if child == 0:
        flushing.close()
        os._exit(0)

    assert os.waitpid(child, 0)[1] == 0
    flushing.flush(file)
    flushing.close()
    file.close()


def test_a_file_that_cannot_be_flushed_fails_its_store_alone(tmp_path):
    files, answers, failures = Files(), [], []
    committer = GroupCommit(files)
    sound, sick = Store(files, tmp_path, "sound"), Store(files, tmp_path, "sick")
    fd, sick.file.fd = sick.file.fd, os.pipe()[1]
    committer.mark(sound)
    committer.mark(sick)

    committer.after_sync(failures.append)
    committer.after_sync(answers.append, concerns=lambda: False)
    wait_until(lambda: failures and answers, sleep=gevent.sleep)

    assert failures[0].errno == errno.EINVAL and answers == [None]
    assert sound.syncs == 1 and sick.error is failures[0]
    committer.stop()
    os.close(sick.file.fd)
    sick.file.fd = fd
    for store in (sound, sick):
        store.file.close()


def test_a_broker_that_is_killed_while_it_flushes_leaves_nothing(tmp_path):
    gc.collect()
    before = held()
    files = Files()
    committer = GroupCommit(files)
    stores = [Store(files, tmp_path, str(number)) for number in range(10)]
    for store in stores:
        committer.mark(store)
    committer.after_sync(lambda error: None)
    gevent.sleep(0)

    committer.kill()

    wait_until(lambda: not held() - before, sleep=gevent.sleep)
    assert not any(store.syncs for store in stores)


def test_a_pause_is_as_long_as_asked_and_others_have_their_turn(flushing):
    turns, began = [], time.monotonic()
    other = gevent.spawn(lambda: turns.append("other"))

    flushing.pause(0.003)
    flushing.pause(0.002)

    assert time.monotonic() - began >= 0.005 and turns == ["other"]
    other.join()


@pytest.mark.parametrize("seconds", [1e-9, 9.9e-10, 1e-12])
def test_a_pause_of_less_than_the_clock_tells_ends(flushing, seconds):
    """What is left of half a millisecond may be one nanosecond, rounded down."""
    with gevent.Timeout(in_time(5)):
        flushing.pause(seconds)


def test_a_pause_that_is_cut_short_lets_the_next_one_be(flushing):
    took = []
    for _ in range(5):  # the whole process may stand still for a second, now and then
        greenlet = gevent.spawn(flushing.pause, 0.9)
        gevent.sleep(0)
        greenlet.kill()
        began = time.monotonic()
        flushing.pause(0.001)
        took.append(time.monotonic() - began)

    assert 0.001 <= min(took) < 0.9


def test_a_pause_ends_when_that_is_told_and_the_next_one_is_as_long_as_asked(flushing):
    took = []
    for _ in range(5):  # the whole process may stand still for a second, now and then
        began = time.monotonic()
        greenlet = gevent.spawn(flushing.pause, 0.9)
        gevent.sleep(0)
        flushing.end_pause()
        flushing.end_pause()
        assert not greenlet.dead  # it goes on when the loop has had its turn
        greenlet.join()
        took.append(time.monotonic() - began)
        began = time.monotonic()
        flushing.pause(0.002)
        assert time.monotonic() - began >= 0.002

    assert min(took) < 0.9


def test_a_pause_is_nobodys_once_it_is_closed():
    """It may be told to end before the greenlet that pauses has heard that it is killed."""
    flushing = flusher.Flusher(1)
    greenlet = gevent.spawn(flushing.pause, 0.9)
    gevent.sleep(0)

    flushing.close()
    flushing.end_pause()

    greenlet.kill()


def test_nothing_is_told_to_end_where_nobody_pauses(flushing):
    flushing.end_pause()
    flushing.pause(0.001)
    flushing.end_pause()

    with gevent.Timeout(in_time(5)):
        flushing.pause(0.001)


class RecordingFlusher:
    """Flushes at once, after ``while_flushing()``, and notes how long it was to pause."""

    def __init__(self, while_flushing):
        self.pauses = []
        self._while_flushing = while_flushing

    def flush(self, file):
        self._while_flushing()

    def pause(self, seconds):
        self.pauses.append(seconds)

    def close(self):
        pass


def flush_twice(folder, overlapping):
    """The pauses between two flushes, of which the second one was asked for during the first, or after it."""
    files, answers = Files(), []
    committer, store = GroupCommit(files), Store(files, folder, "a")

    def ask():
        committer.mark(store)
        committer.after_sync(answers.append)

    def while_flushing():
        if overlapping and len(answers) == 0 and not asked:
            asked.append(True)
            ask()

    asked: list = []
    recording = committer._flushing.flusher = RecordingFlusher(while_flushing)
    ask()
    if not overlapping:
        wait_until(lambda: answers, sleep=gevent.sleep)
        ask()
    wait_until(lambda: len(answers) == 2, sleep=gevent.sleep)
    committer.stop()
    store.file.close()
    return recording.pauses


def test_flushes_that_overlap_are_gathered(tmp_path, monkeypatch):
    monkeypatch.setattr(flushing_module, "GATHER_S", 3600)  # however long this process stands still

    (pause,) = flush_twice(tmp_path, overlapping=True)

    assert 0 < pause <= flushing_module.GATHER_S


@pytest.mark.parametrize("joined", [False, True], ids=["callbacks", "one-callback"])
@pytest.mark.parametrize("count", [flushing_module.GATHER_FROM - 1, flushing_module.GATHER_FROM])
def test_flush_that_answers_many_holds_the_next_one_up_though_nobody_asked_meanwhile(
    tmp_path, count, joined, monkeypatch
):
    """Who asked for it several times, or once and then added to that."""
    monkeypatch.setattr(flushing_module, "GATHER_S", 3600)
    files, answers = Files(), []
    committer, store = GroupCommit(files), Store(files, tmp_path, "a")
    recording = committer._flushing.flusher = RecordingFlusher(lambda: None)
    committer.mark(store)
    for _ in range(1 if joined else count):
        coming = committer.after_sync(answers.append)
    for _ in range(count - 1 if joined else 0):
        coming.join()
    wait_until(lambda: len(answers) == (1 if joined else count), sleep=gevent.sleep)

    for _ in range(2):
        committer.mark(store)
        before = len(answers)
        committer.after_sync(answers.append)
        wait_until(lambda: len(answers) > before, sleep=gevent.sleep)
    committer.stop()

    # the second one answered one
    assert len(recording.pauses) == (1 if count >= flushing_module.GATHER_FROM else 0)
    store.file.close()


def test_whoever_waits_for_one_answer_before_the_next_question_is_not_held_up(tmp_path):
    assert flush_twice(tmp_path, overlapping=False) == []


class Store:
    """A store with one file."""

    def __init__(self, files, folder, name):
        self.folder = str(Path(folder, name))
        os.mkdir(self.folder)
        self.file = files.create(Path(self.folder, "msgs"), 4096)
        self.syncs = 0
        self.error = None

    def sync_files(self, acks_too):
        return [self.file]

    def synced(self):
        self.syncs += 1

    def fence(self, error):
        self.error = error
