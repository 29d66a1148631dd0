"""The watch over flushes: what it says of those that hang, and that it is parked when nothing is flushed."""
import re
import threading

import gevent

from gomq_py.storage.disk.files import Files
from gomq_py.storage.flush import flushing
from gomq_py.storage.flush.group_commit import GroupCommit
from gomq_py.storage.flush.flushing import SyncWatch
from tests.support.faulty_files import FaultyFiles
from tests.support.waiting import in_time, wait_until

AFTER_S = 0.05
LONG_S = 3600  # however long this process stands still


def test_a_flush_that_hangs_is_said_while_it_hangs_though_the_hub_stands_still_and_when_it_ends(caplog):
    watch = SyncWatch(AFTER_S)
    running = watch.begin("/data/msgs.1")

    # the hub gets no turn meanwhile
    said = wait_until(lambda: re.search(r"flushing /data/msgs.1 hangs for (\d+\.\d) s", caplog.text))
    watch.end(running)

    ended = re.search(r"flushing /data/msgs.1 ended after (\d+\.\d) s", caplog.text)
    assert 0.0 <= float(said[1]) <= float(ended[1])
    assert caplog.text.count("hangs") == 1
    watch.stop()


def in_a_thread(function, *arguments):
    thread = threading.Thread(target=function, args=arguments)
    thread.start()
    thread.join()


def test_the_hub_writes_what_threads_have_to_say(monkeypatch):
    """The log's locks may be gevent's, for which no thread may wait."""
    lines = []
    monkeypatch.setattr(
        flushing.LOG, "log", lambda _, text, *more: lines.append((text, threading.get_ident())))
    watch = SyncWatch(LONG_S)
    running = watch.begin("/data/msgs.1")
    watch._after_s = 1e-9

    in_a_thread(watch._look)
    in_a_thread(watch.end, running)

    assert lines == []
    wait_until(lambda: len(lines) == 2, sleep=gevent.sleep)
    assert ["hangs" in text for text, _ in lines] == [True, False]
    assert {thread for _, thread in lines} == {threading.get_ident()}
    watch.stop()


def test_who_ends_a_flush_in_the_hub_writes_what_waits_before(caplog):
    watch = SyncWatch(LONG_S)
    running = watch.begin("/data/msgs.1")
    watch._after_s = 1e-9
    in_a_thread(watch._look)

    watch.end(running)

    assert ["hangs" in record.getMessage() for record in caplog.records] == [True, False]
    gevent.sleep(0)
    assert len(caplog.records) == 2
    watch.stop()


def test_the_watch_is_parked_without_flushes_and_woken_by_the_next(caplog):
    watch = SyncWatch(AFTER_S)
    watch.end(watch.begin("/data/first"))
    wait_until(lambda: watch._is_parked)
    watch._after_s = LONG_S
    for path in ("/data/a", "/data/b", "/data/c"):
        watch.end(watch.begin(path))
        wait_until(lambda: watch._is_parked)

    watch._after_s = AFTER_S
    running = watch.begin("/data/d")

    wait_until(lambda: "flushing /data/d hangs" in caplog.text)
    watch.end(running)
    assert "/data/a" not in caplog.text
    watch.stop()


def test_the_watch_ends_when_it_is_stopped_while_it_looks():
    """Instead of parking for ever, a thread that nobody wakes any more."""
    watch = SyncWatch(AFTER_S)
    watch._is_started = True  # by this test
    watch.end(watch.begin("/data/a"))
    looks = []

    def look():
        looks.append(None)
        if len(looks) == 2:  # nothing was flushed since the first: it would park now
            watch.stop()
            watch._wakeup.acquire(False)  # as the wait before this look has, when it was stop() that ended it
    watch._look = look
    thread = threading.Thread(target=watch._watch, args=(0.001,), daemon=True)

    thread.start()
    thread.join(in_time(10))

    assert not thread.is_alive() and len(looks) == 2


def test_no_flush_fails_where_the_watch_gets_no_thread_and_the_next_one_asks_again(monkeypatch, caplog):
    def refuses(function, arguments):
        raise RuntimeError("can't start new thread")

    watch = SyncWatch(AFTER_S)
    with monkeypatch.context() as patch:
        patch.setattr(flushing, "_start_thread", refuses)
        watch.end(watch.begin("/data/a"))

    running = watch.begin("/data/b")

    wait_until(lambda: "flushing /data/b hangs" in caplog.text)
    watch.end(running)
    watch.stop()


def test_nothing_is_watched_when_it_is_turned_off():
    watch, before = SyncWatch(0), set(threading.enumerate())

    watch.end(watch.begin("/data/a"))
    watch.stop()

    assert set(threading.enumerate()) <= before and not watch._is_started


def test_what_needs_no_flush_goes_on_while_one_hangs(tmp_path, caplog):
    """And what was marked meanwhile is flushed once the disk answers."""
    files, answers = FaultyFiles(None, "hold"), []
    committer = GroupCommit(files, slow_s=AFTER_S)
    first, second = (Files.open_log(files, tmp_path / name) for name in "ab")
    files.fail_at = len(files.calls) + 1
    committer.mark_file(first)
    committer.after_sync(lambda error: answers.append(("first", error)))
    wait_until(lambda: "a hangs for" in caplog.text, sleep=gevent.sleep)

    committer.mark_file(second)
    committer.after_sync(lambda error: answers.append(("second", error)))
    assert answers == []
    files.resume.set()

    wait_until(lambda: len(answers) == 2, sleep=gevent.sleep)
    assert answers == [("first", None), ("second", None)]
    wait_until(lambda: "a ended after" in caplog.text, sleep=gevent.sleep)
    committer.stop()
    for file in (first, second):
        file.close()
