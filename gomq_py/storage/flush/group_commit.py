"""Group commit: flushes all changes made during the last flush, then calls the callbacks that wait for them.

No other module flushes. Stores and logs are *marked* when they have something to flush. ``after_sync`` calls
back once all present marks are on the disk, for example to send confirms. A flush (sync) takes all marks when
it begins, so batches grow by themselves on a slow disk. ``storage.flush.flushing`` delays flushes that would
come too often, and has threads wait for the disk. After a failed flush all its stores are fenced (refuse
all further calls), and callbacks get the error. A repeated flush would prove nothing. There is one
GroupCommit per broker. After REST_S without work it has no greenlet and no timer.
"""
import errno
import logging
import os
import time
from collections import deque

import gevent
from gevent.event import AsyncResult

from gomq_py.hub.turns import give_way
from gomq_py.observability.histogram import Histogram
from gomq_py.storage.errors import StoreError
from gomq_py.storage.flush.background import WORKERS, Background
from gomq_py.storage.flush.batch import (
    Concerned, FlushBatch, FlushFailures, NameChanges, NotOfLogs, OfLog, call_back, release, release_files,
    tell,
)
from gomq_py.storage.flush.flushing import CommitDelay, Flushing, Wakeup

logger = logging.getLogger("gomq_py.storage.sync")

# Flushes of different files overlap in the kernel's journal; more threads than this only queue there.
THREADS = 4

# How long marked data may wait for a sync that nobody waits for (acks, persistent messages without confirms,
# names of recycled segments). The kernel's own writeback would take up to 30 s; syncing at once would make a
# client that asked for nothing pay for a disk write per batch, and flushing acks with every confirm doubled
# what a sync costs (docs/decisions/0002).
UNHURRIED_S = 0.2

# How long the greenlet rests, with a timer, before it ends: a new one for each flush costs 20 us.
REST_S = 0.2

# Stores or callbacks between two looks at the clock: each costs some 6 us,
# one that gives segments back or confirms a lot 50.
LOOKS = 16


class GroupCommit:
    """Flushes stores, logs and folders.

        enabled        False (--no-sync): flushes nothing. Callbacks wait only for changes of names and, if
                       there are followers, for reports to them. A confirmed message then survives a kill,
                       but not a power cut
        slow_s         a flush that takes more seconds is logged while it runs; 0: no log
        slice_clock    the broker's SliceClock, which cuts the callbacks of one flush into slices
        names          the NameChanges that flushes wait for
        background     jobs that no flush waits for
    """

    __slots__ = (
        "begun", "sync_seconds", "enabled", "tells_before_it_answers", "has_failed", "position", "names",
        "background", "_register", "_failures", "_flushing", "_commit_delay", "_slice_clock", "_greenlet",
        "_wake", "_is_resting", "_next", "_in_flight", "_is_syncing", "_stopping", "_gone", "_killed",
        "__dict__", "__weakref__",
    )

    def __init__(self, files, enabled=True, threads=THREADS, slow_s=0, slice_clock=None):
        # count of flushes that took the marks: noted with a mark, it tells whether a flush has taken that one
        self.begun = 0
        self.sync_seconds = Histogram()
        self.enabled = enabled
        # without syncing, too: marked files are told of before callbacks are called
        self.tells_before_it_answers = False
        # a flush or a change of names has failed: files may stay that an orderly end does not leave
        self.has_failed = False
        self.position = 0  # Register.told when all had been told that the last callbacks waited for
        self._register = files.register
        self._slice_clock = slice_clock
        self._greenlet = None
        self._wake = Wakeup()
        self._is_resting = False  # the greenlet has nothing to do, and waits for more
        self._next = FlushBatch()
        self._in_flight = deque()  # callbacks of the sync that is running
        self._is_syncing = self._stopping = self._killed = False
        self._gone = None  # the error that ended group commit
        self._flushing = Flushing(files, threads, len(WORKERS), slow_s)
        self._commit_delay = CommitDelay()
        self._failures = FlushFailures(files)
        self.names = NameChanges(
            self._flushing.change_each, lambda: self._begin_soon(), self._wake, gathers_soon=enabled)
        self.background = Background(self._threads_of)

    # marks

    def mark(self, store):
        """Mark a store that has messages and acks to flush. The flush calls the store's ``sync_files()``
        first, and ``synced()`` or ``fence(error)`` at its end.
        """
        self._next.stores[store] = True
        self._begin_soon()

    def mark_messages(self, store):
        """Mark a store that has messages to flush. Its acks may wait: no confirm depends on acks."""
        self._next.stores.setdefault(store, False)
        self._begin_soon()

    def mark_acks(self, store):
        """Mark a store that has acks to flush. These may wait: ``after_sync`` does not wait for acks."""
        batch = self._next
        if not batch.acks:
            batch.acks_since = time.monotonic()
        batch.acks[store] = None
        self._begin_soon()

    def mark_file(self, file):
        """Mark a log that has new bytes to flush. Bytes that the log has only accepted are written first. The
        log stays open until it has been flushed, even if its owner closes it or removes its name.
        """
        if file not in self._next.logs:
            file.retain()
            self._next.logs[file] = None
        self._begin_soon()

    def mark_folder(self, path):
        """Mark a folder in which a name changed."""
        self._next.folders[os.fspath(path)] = None
        self._begin_soon()

    # waiting

    def after_sync(self, callback, hurry=True, concerns=None, about_logs=True):
        """Call ``callback(error or None)`` once all present marks are flushed and a running flush has ended.

        Callbacks are called in order, at once if nothing is to be flushed. They must neither switch greenlets
        nor raise. ``hurry=False``: the flush may wait for more marks. ``concerns()`` must not raise. It
        returns whether the callback gets the error of stores that cannot be flushed (these are fenced).
        Without ``concerns`` the callback gets that error. A callback gets the error of a failed log until
        another log has replaced the failed one, but never with ``about_logs=False`` (housekeeping). Returns
        the NextFlush for which the callback waits, or None.
        """
        if concerns is not None:
            callback = Concerned(callback, concerns)
        elif not about_logs:
            callback = NotOfLogs(callback)
        self._mark_unwritten()
        if not self.enabled and self._gone is None:
            untold = self.tells_before_it_answers and (self._is_syncing or self._has_marks())
            if untold or self.names.are_due() or self._next.callbacks or self._in_flight:
                self._next.callbacks.append(callback)
            else:
                self.position = self._register.told
                callback(None)
        elif self._gone is not None:
            callback(self._gone)
        elif self._has_marks():
            self._next.callbacks.append(callback)
            if hurry:
                self._next.is_hurried = True
                self._wake.set()
            self._commit_delay.asked()
            return self._commit_delay.next_flush
        elif self._is_syncing:
            self._in_flight.append(callback)
        else:
            self.position = self._register.told
            is_of_no_log = isinstance(callback, (NotOfLogs, OfLog))
            callback(None if is_of_no_log else self._failures.error_of_logs())
        return None

    def after_flush_of(self, log, callback):
        """Mark a log, and call ``callback(error or None)`` with the result of this log's flush alone."""
        # For a log that is to replace another one.
        self.mark_file(log)
        self.after_sync(OfLog(callback, log))

    def wait(self):
        """Wait until all present marks have been flushed. Raises the error of a failed flush. May switch
        greenlets.
        """
        result = AsyncResult()
        self.after_sync(lambda error: result.set(None) if error is None else result.set_exception(error))
        result.get()

    def stop(self):
        """Flush all marks; finish all background jobs, also those added meanwhile. May switch greenlets."""
        self._stopping = True
        self._mark_unwritten()
        if self._has_marks() or self._next.acks:
            self._begin_soon()
        while not (self._greenlet is None and self.background.is_idle):
            while (greenlet := self._greenlet) is not None:
                self._wake.set()
                greenlet.join()
                self._ended(greenlet)
            self.background.join()
        self._flushing.watch.stop()
        self._flushing.end()

    def kill(self):
        """Stop as a crash would: marks are not flushed, and no callback is called."""
        self._killed = True
        # taken, so that a cycle that is about to begin has no callbacks
        release([*self._take().logs, *self._failures.take_unwritten()])
        self.names.forget()
        if self._greenlet is not None:
            gevent.kill(self._greenlet)
            self._greenlet = None
        self._flushing.cut_short()
        self.background.kill()
        self._flushing.end()

    @property
    def told(self):
        """Number of changes that have been reported to replicators."""
        return self._register.told

    @property
    def syncs(self):
        """Number of flushes made in this run."""
        return sum(self.sync_seconds.counts)

    @property
    def is_idle(self):
        """Whether there is nothing to flush: the greenlet rests or does not exist."""
        return self._greenlet is None or self._is_resting

    def describe(self):
        """Return the state of flushes, marks and failures as one line of text for operators."""
        state = (
            "over" if self._gone else "syncing" if self._is_syncing else "idle" if self.is_idle
            else "waiting for more"
        )
        running = ", ".join(self._flushing.watch.running())
        batch, (folders, logs) = self._next, self._failures.counts()
        return (
            f"{'' if self.enabled else 'off, '}{state}, {self.syncs} so far; to flush: {len(batch.stores)} "
            f"queues, {len(batch.acks)} of acks, {len(batch.logs)} logs, {len(batch.folders)} folders; "
            f"waiting: {len(batch.callbacks)} for the next, {len(self._in_flight)} for this one; "
            f"{folders} folders and {logs} logs failed"
            f"{'; being flushed: ' if running else ''}{running}"
        )

    def _threads_of(self):
        return self._flushing.threads_of()

    # the cycle

    def _has_marks(self):
        return self._next.has_marks() or self.names.are_due()

    def _has_work(self):
        return self._has_marks() or bool(self._next.acks or self._next.callbacks)

    def _take(self):
        """Remove and return the batch for the flush that begins now. Starts an empty batch."""
        self._commit_delay.begin()
        batch, self._next = self._next, FlushBatch()
        return batch

    def _begin_soon(self):
        if self._greenlet is None:
            self._greenlet = gevent.spawn(self._run)
            self._greenlet.name = "group-commit"
            self._greenlet.rawlink(self._ended)
        elif self._is_resting:
            self._is_resting = False
            self._wake.set()

    def _run(self):
        try:
            self._flushing.finish()  # of a cycle that was cut short: two threads must not write one log
            if self.enabled:
                self._sync_marks()
                while not self._killed and self._has_more():
                    self._sync_marks()
            else:
                self._forget_marks()
        except Exception as error:
            self._give_up(error)
        self._wake.close()
        self._greenlet = None

    def _has_more(self):
        """Rest until a mark is made, at most REST_S. Returns whether one came. May switch greenlets."""
        if self._stopping:
            return False
        self._is_resting = True
        due = time.monotonic() + REST_S
        while self._is_resting and not self._stopping and time.monotonic() < due:
            self._wake.clear()
            self._wake.wait(due)
        is_woken, self._is_resting = not self._is_resting, False
        return is_woken

    def _ended(self, greenlet):
        """Fail all waiting callbacks if ``greenlet``, which flushes, was killed before it called them."""
        if self._greenlet is greenlet and not self._killed:
            self._greenlet = None
            if self._is_resting:  # nothing was marked, and no callback waits
                self._is_resting = False
                return
            how = type(greenlet.exception or greenlet.value).__name__
            self._give_up(OSError(errno.ECANCELED, f"the flush was cut short: {how}"))

    def _forget_marks(self):
        """With --no-sync: count all marks as flushed, and call the callbacks. May switch greenlets."""
        while self._has_work():
            self._in_flight, self._next.callbacks = deque(self._next.callbacks), []
            failures = {}
            self.names.make_alone(failures)
            if self._killed:
                return
            self.has_failed = self.has_failed or bool(failures)
            batch = self._take()
            self._next.callbacks = batch.callbacks  # the names of later asks are not changed yet
            release(batch.logs)
            self._is_syncing = True  # the stores of later portions are not told of yet
            for store in self._in_portions({**batch.acks, **batch.stores}):
                try:
                    store.sync_files(True)
                except StoreError as error:
                    failures[store] = error
                tell(store, failures)
            self._is_syncing = False
            awaited = [
                error for owner, error in failures.items()
                if owner in batch.stores or owner not in batch.acks
            ]
            self.position = self._register.told
            self._answer(None, awaited[0] if awaited else None)

    def _sync_marks(self):
        while self._has_work():
            if not self._next.is_hurried:
                self._wait_for_more()
            self._commit_delay.hold_up(None if self._stopping else self._flushing.flusher)
            if self._killed:
                return
            if self._has_work():
                self._cycle()

    def _wait_for_more(self):
        """Wait until a callback is in a hurry, at most UNHURRIED_S. May switch greenlets."""
        # Meanwhile changes asked for with ``soon`` are made.
        due = time.monotonic() + UNHURRIED_S
        while not self._next.is_hurried and not self._stopping:
            self._wake.clear()
            now = time.monotonic()
            if now >= due:
                return
            soon = self.names.soon_at()
            if not soon:
                self._wake.wait(due)
            elif soon > now:
                self._wake.wait(min(due, soon))
            else:
                failures = self.names.make_soon()
                self.has_failed = self.has_failed or bool(failures)
                if self._next.callbacks:  # asked for meanwhile
                    self._next.failures.update(failures)
                if self._killed or not self._has_work():
                    return

    def _give_up(self, error):
        """Fail all present and later callbacks with this error, after a fault here or a killed greenlet."""
        # Later marks are still flushed: the next run needs them. The files of this cycle stay open, because
        # its threads may still flush them.
        logger.error(
            "group commit failed; nothing that is to be durable will be confirmed any more", exc_info=error
        )
        self._gone = error
        self.has_failed = True
        self._is_syncing = False
        batch = self._take()
        callbacks, self._in_flight = [*self.names.give_up(), *self._in_flight, *batch.callbacks], deque()
        release([*batch.logs, *self._failures.take_unwritten()])
        # in one piece: later callbacks are called at once, and must not come before earlier ones
        for store in {**batch.stores, **batch.acks}:
            tell(store, {store: error})
        for callback in callbacks:
            try:
                callback(error)
            except Exception:
                logger.exception("a callback after the end of group commit failed")

    def _cycle(self):
        self._mark_unwritten()
        next_flush = self._commit_delay.next_flush
        batch, changes, unawaited = self._take(), self.names.take(), ()
        if batch.acks:
            if self._stopping or time.monotonic() - batch.acks_since >= UNHURRIED_S:
                unawaited = batch.acks.keys() - batch.stores.keys()
                batch.stores.update(dict.fromkeys(batch.acks, True))
            else:
                self._next.acks, self._next.acks_since = batch.acks, batch.acks_since
        if batch.stores or batch.logs or batch.folders:
            self.begun += 1
        self._in_flight = deque(batch.callbacks)
        self._wake.clear()
        self._is_syncing = True
        # Before anything switches: acks that somebody waits for are flushed even if their segment goes
        # meanwhile. So this part alone is not cut into slices; it takes 2 us for each store.
        jobs = batch.collect(self._flushing.way_of_stores(), unawaited)
        self.position = self._register.told  # not after the flush: the next batch is told meanwhile
        if changes:
            self.names.make(changes, batch.failures)
            if self._killed:
                release_files(jobs)
                release(batch.logs)
                return
            self.position = self._register.told
        jobs += self._flushing.jobs_of(batch.logs, batch.folders)
        if jobs:
            if self._in_flight and self._register.replicators:
                self._register.flushing()
            self._flush(batch, jobs, len(self._in_flight) + next_flush.joined)
            if self._killed:
                return  # killed during the flush: no callbacks
        self._failures.blame(batch)
        of_logs = self._failures.error_of_logs()
        if of_logs is None and batch.failures:
            of_logs = batch.failure_of_logs()
        for store in batch.stores if len(batch.stores) < LOOKS else self._in_portions(batch.stores):
            tell(store, batch.failures)
        if not self._killed:
            other = batch.other_failure() if batch.failures else None
            self.has_failed = self.has_failed or other is not None or of_logs is not None
            self._answer(of_logs, other)
            self._is_syncing = False

    def _in_portions(self, items):
        """Yield the items. Lets other greenlets run after each slice of time, and ends early after kill().
        May switch greenlets.
        """
        clock = None if self._slice_clock is None else self._slice_clock(every=LOOKS, clock=time.thread_time)
        for item in items:
            yield item
            if clock is not None and clock.is_over():
                give_way()
                if self._killed:
                    return
                clock.begin()

    def _flush(self, batch, jobs, answered):
        """Run the jobs of a batch, release their files, and record errors and duration. May switch greenlets.
        Also sets the next flush's delay. ``answered``: count of callbacks and joins that this flush answers.
        """
        began = time.monotonic()
        unbegun = {}
        failed = self._flushing.run(jobs, unbegun)
        batch.failures.update(unbegun)
        for owner, failure in failed:
            batch.failures[owner] = failure
        if not self._killed:
            if batch.logs:
                self._failures.tell_of_logs(batch.logs, batch.failures, unbegun)
                self.position = self._register.told
            if self._register.replicators:
                self._register.flushed()
        release_files(jobs)
        if not self._killed:
            self.sync_seconds.observe(time.monotonic() - began)
            self._commit_delay.flushed(began, bool(self._next.callbacks), answered)

    def _mark_unwritten(self):
        if self._failures.unwritten:
            unwritten = self._failures.take_unwritten()
            for file in unwritten:
                if file.named:
                    self.mark_file(file)
            release(unwritten)

    def _answer(self, of_logs, other):
        """Call all callbacks of this flush, and those added during the calls. ``of_logs``: the error of a
        failed log; ``other``: any other error. May switch greenlets.
        """
        if len(self._in_flight) < LOOKS:
            for _ in range(LOOKS):
                if not self._in_flight:
                    return
                call_back(self._in_flight.popleft(), of_logs, other)
        for callback in self._in_portions(self._asked()):
            call_back(callback, of_logs, other)

    def _asked(self):
        while self._in_flight:
            yield self._in_flight.popleft()
