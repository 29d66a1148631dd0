"""Flushing: runs the flushes of one sync, and changes of names, each where it has to wait.

Below group_commit, which says what and when; above flusher and files. Threads that need no interpreter flush
stores' files (``storage.flush.flusher``), for greenlets that wait here. Logs and folders, interpreted all
files, and changes of names have a pool of threads of their own: the hub's serves name resolution and hashing,
which must not wait for a disk. Says what failed, and never what that means.
"""
import errno
import logging

import gevent
from gevent.threadpool import ThreadPool

from gomq_py.hub.threads import begin
from gomq_py.storage.flush import flusher
from gomq_py.storage.flush.sync_watch import SyncWatch

logger = logging.getLogger("gomq_py.storage.flushing")


class Flushing:
    """At most ``threads`` flushes at one time. ``others``: threads of the pool for work that no flush waits
    for. ``slow_s``: a flush that takes more seconds is logged while it runs; 0: none is.

    A job is (function of one file or path, that, its owner). ``at_work``: work in threads that the cycle
    waits for, or did when it was cut short.
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
        """The pool."""
        if self.pool is None:
            # so that no flush waits for what is done aside
            self.pool = ThreadPool(self._threads + self._others)
        return self.pool

    def way_of_stores(self):
        """The function of a job that flushes a file of a store."""
        return self.sync_in_hub if self._has_flusher() else self._files.sync

    def jobs_of(self, logs, folders):
        """The jobs that flush logs and folders. Logs are held since they were marked."""
        jobs = [(self._files.sync_log, file, file) for file in logs]
        return jobs + [(self._files.sync_folder, path, path) for path in folders]

    def sync_in_hub(self, file):
        """Flush a file of a store while others have their turn. Raises OSError. Switches."""
        self._files.sync(file, self.flusher.flush)

    def run(self, jobs, unbegun):
        """Run the jobs, divided among greenlets where these wait for the disk as for a socket, and else among
        the pool's threads. Returns (owner, error) of those that failed. ``unbegun``: a dict, which gets the
        error of each owner for which there was no thread. May switch.
        """
        in_hub = self.sync_in_hub
        here = [job for job in jobs if job[0] == in_hub]
        if len(here) == len(jobs):
            failed = self._run_here(jobs)
        else:
            failed = self._run_in_pool([job for job in jobs if job[0] != in_hub], here, unbegun)
        for _, failure in failed:
            logger.error("sync failed: %s", failure)
        return failed

    def change_each(self, groups):
        """Make each group's changes, see change_each. Raises if there is no thread. Switches."""
        self.at_work = [begin(change_each, groups, self.watch, pool=self.threads_of())]
        results = self.at_work[0].get()
        self.at_work = []
        return results

    def finish(self):
        """Return when the threads of a cycle that was cut short have done their work. May switch."""
        for work in self.at_work:
            work.wait(None)
        self.at_work = []

    def cut_short(self):
        """End what waits here, as a crash does; threads end by themselves."""
        for greenlet in self.lanes_here:
            gevent.kill(greenlet)

    def end(self):
        """No thread is needed any more."""
        if self.pool is not None:
            self.pool.kill()
            self.pool = None
        if self.flusher is not None:
            self.flusher.close()
            self.flusher = None

    def _has_flusher(self):
        if self.flusher is None and flusher.is_native() and self._files.may_sync_in_hub:
            try:
                self.flusher = flusher.Flusher(self._threads)
            except OSError as error:
                if not self._lacks_flusher:  # it is asked for with each sync, thousands of times a second
                    logger.warning("%s: the pool flushes instead", error)
            self._lacks_flusher = self.flusher is None
        return self.flusher is not None and self._files.may_sync_in_hub

    def _run_in_pool(self, jobs, here, unbegun):
        """Run the jobs in threads, and those of ``here`` meanwhile in greenlets. Switches."""
        begun = self.at_work = []
        lanes = [jobs[lane::self._threads] for lane in range(min(self._threads, len(jobs)))]
        try:
            for lane in lanes:
                begun.append(begin(flush_each, lane, self.watch, pool=self.threads_of()))
        except Exception as error:  # no thread to be had
            logger.exception("sync failed")
            for lane in lanes[len(begun):]:
                unbegun.update(dict.fromkeys([owner for _, _, owner in lane], error))
        failed = self._run_here(here) if here else []
        # all of them: a log that one still writes must not be written by the next sync
        for lane, job in zip(lanes, begun):
            try:
                failed += job.get()
            except Exception as error:
                failed += [(owner, error) for _, _, owner in lane]
        self.at_work = []
        return failed

    def _run_here(self, jobs):
        """Run the jobs in greenlets: the first ones in this one. Switches."""
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
    """In a pool thread, or in a greenlet where that only waits: flush one after the other.

    Returns (owner, error) of those that failed.
    """
    failed = []
    for function, target, owner in jobs:
        watched = watch.begin(target if isinstance(target, str) else target.path)
        try:
            function(target)
        except FileNotFoundError:
            # a folder that went with its queue meanwhile has no names to flush; its parent is marked
            continue
        except Exception as error:
            failed.append((owner, error))
        finally:
            watch.end(watched)
    return failed


def change_each(groups, watch):
    """In a pool thread: make each group's changes until one fails.

    Returns how many were made, and the error or None, for each.
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
