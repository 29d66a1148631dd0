"""Flushing: decides when the next flush begins, and runs the flushes and renames of one batch.

Used by storage.flush.group_commit, which decides which files are flushed, and whose greenlet a Wakeup wakes.
Native threads (``storage.flush.flusher``) flush the files of stores, for greenlets that wait here. A pool of
Python threads flushes logs and folders, renames and unlinks files and, in interpreted code, flushes all
files. The event loop's own pool is not used, because name resolution and hashing must not wait for a disk.

CommitDelay delays flushes. A flush costs the processor some 150 us, so on a fast disk 10 000 confirmed
messages a second would cause thousands of flushes a second. If flushes overlap, or one flush answers several
clients, the next flush begins later. A client that waits for one confirm before its next publish is not
delayed.

SyncWatch logs a flush that hangs, while it hangs and when it has ended. A thread of the operating system
looks for such flushes, because a disk that hangs may hold the event loop's thread, too. The event loop writes
the lines, because the log's locks may be gevent's. If the event loop stands still, the thread writes them.
"""
import errno
import logging
import time
from collections import deque

import gevent
from gevent import monkey
from gevent.hub import Waiter
from gevent.threadpool import ThreadPool

from gomq_py.hub.threads import begin
from gomq_py.observability.log import logger
from gomq_py.storage.flush import flusher

LOG = logger("storage")

# The command patches the standard library; here the real ones are needed.
_start_thread = monkey.get_original("_thread", "start_new_thread")
_new_lock = monkey.get_original("_thread", "allocate_lock")
_this_thread = monkey.get_original("_thread", "get_ident")


class SyncWatch:
    """Logs flushes that run longer than ``after_s`` seconds; 0: logs none. Made in the event loop's thread.
    The thread that flushes calls ``begin`` before each flush, and ``end`` after it.
    """

    def __init__(self, after_s):
        self._after_s = after_s
        self._running = {}  # id -> [path, when it began, whether it was logged]
        self._begun = 0
        self._wakeup = _new_lock()  # taken, but for a moment: released to wake the watch
        self._wakeup.acquire()
        self._switching = _new_lock()
        self._is_started = self._is_parked = self._stopping = False
        self._lines = deque()  # (level, text, *arguments) that the hub is to write
        self._loop = gevent.get_hub().loop if after_s else None
        self._hub_thread = _this_thread()

    def begin(self, path):
        """Record that a flush of the file or folder ``path`` begins. Returns an entry for ``end``."""
        entry = [path, time.monotonic(), False]
        if self._after_s:
            self._running[id(entry)] = entry
            self._begun += 1
            if self._is_parked or not self._is_started:
                self._wake()
        return entry

    def end(self, entry):
        """Record that a flush has ended or failed. ``entry``: the result of ``begin``."""
        self._running.pop(id(entry), None)
        if entry[2]:
            self._log(
                logging.WARNING, "flushing %s ended after %.1f s", entry[0], time.monotonic() - entry[1])

    def running(self):
        """Return the paths being flushed, the oldest flush first. Empty if ``after_s`` is 0."""
        return [path for path, _, _ in list(self._running.values())]

    def stop(self):
        """Log no more flushes; the watching thread ends by itself."""
        self._after_s, self._stopping = 0, True
        self._wake()

    def _wake(self):
        with self._switching:
            self._is_parked = False
            if self._is_started:
                if self._wakeup.locked():
                    self._wakeup.release()
            elif not self._stopping:
                try:
                    _start_thread(self._watch, (self._after_s / 4,))
                except RuntimeError:
                    return  # without a thread no flush fails, and the next one asks again
                self._is_started = True

    def _watch(self, interval_s):
        seen, left = 0, None
        while not self._stopping:
            self._wakeup.acquire(True, interval_s)
            if left is not None and left is self._oldest_line():
                self._write()  # the hub stands still
            self._look()
            left = self._oldest_line()
            # stop() wakes it once, and may have done so above
            if seen == self._begun and not self._running and left is None and not self._stopping:
                self._is_parked = True
                if self._running:  # it began before it could see that
                    self._is_parked = False
                else:
                    self._wakeup.acquire()
            seen = self._begun

    def _look(self):
        now = time.monotonic()
        for entry in list(self._running.values()):
            path, began, is_said = entry
            if not is_said and self._after_s and now - began >= self._after_s:
                entry[2] = True
                self._log(
                    logging.ERROR, "flushing %s hangs for %.1f s: the disk does not answer, and nothing "
                    "durable is confirmed until it does", path, now - began)

    # the log

    def _log(self, *line):
        """Write a log line (level, text, *arguments) in the event loop or, after its end, in this thread."""
        self._lines.append(line)
        if _this_thread() == self._hub_thread:
            self._write()
            return
        try:
            self._loop.run_callback_threadsafe(self._write)
        except ValueError:  # the hub is gone
            self._write()

    def _write(self):
        while True:
            try:
                line = self._lines.popleft()
            except IndexError:  # another thread may have taken the last one
                return
            LOG.log(*line)

    def _oldest_line(self):
        try:
            return self._lines[0]
        except IndexError:
            return None


# The least time between the beginnings of two flushes, if the second was asked for while the first ran, or if
# the first answered so many asks.
GATHER_S = 0.0005
GATHER_FROM = 3
# If asks come steadily, a flush that is due waits this much longer for the next ask, which begins it: the
# loop is awake for the ask, and a timer that wakes the loop costs the processor some 20 us.
GRACE_S = 0.00012


class NextFlush:
    """The flush that begins next. Covers all marks made before ``has_begun``. ``joined``: how often join()
    was called.
    """

    __slots__ = ("has_begun", "joined", "_commit_delay")

    def __init__(self, commit_delay=None):
        self.has_begun = False
        self.joined = 0
        self._commit_delay = commit_delay

    def join(self):
        """Count one more change that waits for this flush but has no callback of its own."""
        self.joined += 1
        if self._commit_delay is not None:
            self._commit_delay.asked()


class CommitDelay:
    """Delays the next flush, so that it covers more changes. ``next_flush``: the NextFlush."""

    __slots__ = ("next_flush", "_may_begin_s", "_due_s", "_is_steady", "_pausing")

    def __init__(self):
        self.next_flush = NextFlush(self)
        self._may_begin_s = 0.0  # when the next flush may begin, by time.monotonic(); 0: at any time
        # when the flush that was held up last was due; 0: an ask has come since, or none was held up
        self._due_s = 0.0
        self._is_steady = False  # the ask came within GRACE_S
        self._pausing = None  # the Flusher that pauses

    def begin(self):
        """Record that a flush begins, and set ``next_flush`` to the one after it."""
        self.next_flush.has_begun = True
        self.next_flush = NextFlush(self)

    def flushed(self, began_s, overlaps, answered):
        """Decide the delay of the next flush, after a flush that began at ``began_s`` (time.monotonic()).
        ``overlaps``: True if a callback began to wait during the flush. ``answered``: count of callbacks and
        joins that the flush answers.
        """
        self._may_begin_s = began_s + GATHER_S if overlaps or answered >= GATHER_FROM else 0.0

    def hold_up(self, flusher):
        """Wait, by ``flusher.pause``, until the next flush may begin. If ``flusher`` is None, return at once.
        May switch greenlets.
        """
        due, self._may_begin_s = self._may_begin_s, 0.0
        left = due - time.monotonic() if due and flusher is not None else 0.0
        if left > 0:
            if self._is_steady:
                left += GRACE_S
            self._is_steady = False
            self._due_s = due
            self._pausing = flusher
            try:
                flusher.pause(left)
            finally:
                self._pausing = None

    def asked(self):
        """Called when a callback begins to wait for the next flush. Ends the delay if that flush is due."""
        if self._due_s:
            late = time.monotonic() - self._due_s
            if late >= 0:
                self._due_s = 0.0
                self._is_steady = late <= GRACE_S
                if self._pausing is not None:
                    self._pausing.end_pause()


class Wakeup:
    """Wakes one greenlet, at a set time or when ``set`` is called.

    ``is_rung``: ``set`` was called and ``clear`` was not. ``rings_at_s``: time of the timer by
    time.monotonic(), 0 without a timer. ``waiter``: not None only while the greenlet waits.
    """

    __slots__ = ("is_rung", "rings_at_s", "waiter", "timer")

    def __init__(self):
        self.is_rung = False
        self.rings_at_s = 0.0
        self.waiter = self.timer = None

    def set(self):
        """Wake the greenlet in a later iteration of the event loop, or end its next wait() at once."""
        if not self.is_rung:
            self.is_rung = True
            waiter = self.waiter
            if waiter is not None:
                # Each wait has a waiter of its own: a ring that comes after the wait, or after the greenlet
                # was killed, ends nothing else that the greenlet waits for.
                self.waiter = None
                gevent.get_hub().loop.run_callback(waiter.switch, None)

    def clear(self):
        """Undo ``set``, so that the next wait() waits."""
        self.is_rung = False

    def wait(self, until_s):
        """Wait until ``set``, or about until ``until_s`` (time.monotonic()). May switch greenlets."""
        if self.is_rung:
            return
        if not 0.0 < self.rings_at_s <= until_s:
            self._set_timer(until_s)
        waiter = self.waiter = Waiter()
        try:
            waiter.get()
        except BaseException:  # killed: the greenlet does not wait any more
            self.close()
            raise
        finally:
            if self.waiter is waiter:
                self.waiter = None

    def close(self):
        """Stop the timer."""
        timer = self.timer
        self.timer = None
        self.rings_at_s = 0.0
        if timer is not None:
            timer.close()

    def _set_timer(self, until_s):
        if self.timer is not None:
            self.timer.close()
        self.rings_at_s = until_s
        # Not hub.timers: set before almost each flush, and a call more would delay confirms.
        self.timer = gevent.get_hub().loop.timer(max(0.0, until_s - time.monotonic()))
        self.timer.start(self._time_is_up)

    def _time_is_up(self):
        self.rings_at_s = 0.0
        waiter = self.waiter
        if waiter is not None:
            self.waiter = None
            waiter.switch(None)


FLUSH_LOG = logging.getLogger("gomq_py.storage.flushing")


class Flushing:
    """Runs flushes, at most ``threads`` at one time. A job is (function, file or folder path, owner).

    The owner is a store, a log or a folder path. ``others``: number of further threads in the pool, for other
    work. ``slow_s``: a flush that takes more seconds is logged while it runs; 0: no log. ``at_work``: futures
    of the work in the pool's threads.
    """

    __slots__ = (
        "watch", "flusher", "pool", "at_work", "lanes_here", "_files", "_threads", "_others",
        "_lacks_flusher",
    )

    def __init__(self, files, threads, others, slow_s):
        self.watch = SyncWatch(slow_s)
        self.flusher = self.pool = None
        self.at_work = []
        self.lanes_here = []  # greenlets that flush
        self._files = files
        self._threads = threads
        self._others = others
        self._lacks_flusher = False

    def threads_of(self):
        """Return the pool of threads, which the first call makes."""
        if self.pool is None:
            self.pool = ThreadPool(self._threads + self._others)
        return self.pool

    def way_of_stores(self):
        """Return the function to flush a store's file: sync_in_hub() with a Flusher, else Files.sync()."""
        return self.sync_in_hub if self._has_flusher() else self._files.sync

    def jobs_of(self, logs, folders):
        """Return the jobs that flush these retained ``logs`` and these ``folders`` (paths), for run()."""
        jobs = [(self._files.sync_log, file, file) for file in logs]
        return jobs + [(self._files.sync_folder, path, path) for path in folders]

    def sync_in_hub(self, file):
        """Flush a store's file by the Flusher. Raises OSError. Switches greenlets."""
        self._files.sync(file, self.flusher.flush)

    def run(self, jobs, unbegun):
        """Run the jobs, and wait for all. Returns (owner, error) of each failed job. May switch greenlets.
        Jobs for which there was no thread are instead added to the dict ``unbegun``, as {owner: error}.
        """
        # Jobs of sync_in_hub() run in greenlets, the others in threads of the pool.
        in_hub = self.sync_in_hub
        here = [job for job in jobs if job[0] == in_hub]
        if len(here) == len(jobs):
            failed = self._run_here(jobs)
        else:
            failed = self._run_in_pool([job for job in jobs if job[0] != in_hub], here, unbegun)
        for _, failure in failed:
            FLUSH_LOG.error("sync failed: %s", failure)
        return failed

    def change_each(self, groups):
        """Have a thread run the function change_each(), and return its result. Raises if there is no thread.
        Switches greenlets.
        """
        self.at_work = [begin(change_each, groups, self.watch, pool=self.threads_of())]
        results = self.at_work[0].get()
        self.at_work = []
        return results

    def finish(self):
        """Wait until the threads of an interrupted flush have ended their work. May switch greenlets."""
        for work in self.at_work:
            work.wait(None)
        self.at_work = []

    def cut_short(self):
        """Kill the greenlets that flush, as a crash would; threads end by themselves."""
        for greenlet in self.lanes_here:
            gevent.kill(greenlet)

    def end(self):
        """Close the pool and the Flusher."""
        if self.pool is not None:
            self.pool.kill()
            self.pool = None
        if self.flusher is not None:
            self.flusher.close()
            self.flusher = None

    def _has_flusher(self):
        if self.flusher is None and flusher.IS_NATIVE and self._files.may_sync_in_hub:
            try:
                self.flusher = flusher.Flusher(self._threads)
            except OSError as error:
                if not self._lacks_flusher:  # once: each sync asks, thousands of times a second
                    FLUSH_LOG.warning("%s: the pool flushes instead", error)
            self._lacks_flusher = self.flusher is None
        return self.flusher is not None and self._files.may_sync_in_hub

    def _run_in_pool(self, jobs, here, unbegun):
        """Run ``jobs`` in threads and, at the same time, ``here`` in greenlets. Returns, and adds to
        ``unbegun``, as run() does. Switches greenlets.
        """
        begun = self.at_work = []
        lanes = [jobs[lane::self._threads] for lane in range(min(self._threads, len(jobs)))]
        try:
            for lane in lanes:
                begun.append(begin(flush_each, lane, self.watch, pool=self.threads_of()))
        except Exception as error:  # the system gives no thread
            FLUSH_LOG.exception("sync failed")
            for lane in lanes[len(begun):]:
                unbegun.update(dict.fromkeys([owner for _, _, owner in lane], error))
        failed = self._run_here(here) if here else []
        # wait for all: the next sync must not write a log that a thread still writes
        for lane, job in zip(lanes, begun):
            try:
                failed += job.get()
            except Exception as error:
                failed += [(owner, error) for _, _, owner in lane]
        self.at_work = []
        return failed

    def _run_here(self, jobs):
        """Run the jobs in several greenlets, also in the calling greenlet. Returns the failed jobs as run()
        does. Switches greenlets.
        """
        if len(jobs) == 1:
            return flush_each(jobs, self.watch)
        self.lanes_here = [
            gevent.spawn(flush_each, jobs[lane::self._threads], self.watch)
            for lane in range(1, min(self._threads, len(jobs)))
        ]
        for lane, greenlet in enumerate(self.lanes_here, 1):
            greenlet.name = f"group-commit {lane}"
        failed = flush_each(jobs[::self._threads], self.watch)
        for lane, greenlet in enumerate(self.lanes_here, 1):
            greenlet.join()
            if isinstance(greenlet.value, list):
                failed += greenlet.value
            else:  # ended from outside
                error = OSError(errno.ECANCELED, "the flush was cut short")
                failed += [(owner, error) for _, _, owner in jobs[lane::self._threads]]
        self.lanes_here = []
        return failed


def flush_each(jobs, watch):
    """Run the jobs one by one, in a thread or a greenlet. Returns (owner, error) of each failed job."""
    failed = []
    for function, target, owner in jobs:
        watched = watch.begin(target if isinstance(target, str) else target.path)
        try:
            function(target)
        except FileNotFoundError:
            # a folder that was removed with its queue has no names to flush; its parent is marked
            continue
        except Exception as error:
            failed.append((owner, error))
        finally:
            watch.end(watched)
    return failed


def change_each(groups, watch):
    """Make the changes of each group, a list of Changes, until one fails. Runs in a thread of the pool.
    Returns (count of changes made, error or None) for each group.
    """
    results = []
    for group in groups:
        made, error = 0, None
        for change in group:
            watched = watch.begin(change.path)
            try:
                change.act()
            except Exception as failure:
                error = failure
                break
            finally:
                watch.end(watched)
            made += 1
        results.append((made, error))
    return results
