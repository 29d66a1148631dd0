"""Group commit: one flush for everything that became dirty while the last one ran, then the confirms that
waited for it. The only place that flushes.

Stores and logs mark themselves; doors ask ``after_sync`` to be called once all that is marked now is on the
disk. A sync that begins takes everything marked by then, so batches grow by themselves when the disk is slow
and are small when it is fast. Where that would be too often, one waits for more
(``storage.flush.gathering``); each waits for the disk in threads (``storage.flush.flushing``). Other work on
files that may take long and that no flush waits for goes there too (``aside``). A sync that failed proves
nothing, not even when it is repeated: whoever it covered is fenced, and callbacks get the error. One per
broker; idle, it holds neither a timer nor a thread's time.
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
from gomq_py.storage.flush.background import Aside
from gomq_py.storage.flush.bell import Bell
from gomq_py.storage.flush.flushing import Flushing
from gomq_py.storage.flush.gathering import Gathering

logger = logging.getLogger("gomq_py.storage.sync")

# Flushes of different files overlap in the kernel's journal; more threads than this only queue there.
THREADS = 4
# Of work that no flush waits for: each has a greenlet, and a thread of its own.
LANES = ("files-aside", "files-at-leisure", "files-for-readers")

# How long marked data may wait for a sync that nobody waits for (acks, persistent messages without confirms,
# names of recycled segments). The kernel's own writeback would take up to 30 s; syncing at once would make a
# client that asked for nothing pay for a disk write per batch, and flushing acks with every confirm doubled
# what a sync costs (docs/decisions/0002).
UNHURRIED_S = 0.2
# How long names that are to change soon are gathered. Each trip to a thread takes the processor from the hub
# for a moment, and on a machine where all processors are busy for some milliseconds: a flood that goes
# through 20 segments a second made 90 of them, which p99 of others felt (5.6 ms; 3.3 so).
SOON_S = 0.02

# How long the greenlet rests, with a timer, before it ends: a new one for each flush costs 20 us.
REST_S = 0.2

# Stores or callbacks between two looks at the clock: each costs some 6 us,
# one that gives segments back or confirms a lot 50.
LOOKS = 16
# How often the owner of a log that failed is asked to replace it, while promises are asked for:
# a write of all that it holds.
REPLACE_AGAIN_S = 5.0


class GroupCommit:
    """Flushes stores, logs and folders.

    ``enabled=False`` (--no-sync): flushes nothing, and calls back as soon as no name is left to change. Then
    a confirmed message outlives a killed process, and not a power cut. ``slow_s``: a flush that takes more
    seconds is logged while it runs; 0: none is. ``slice_clock``: the broker's SliceClock, which cuts the
    callbacks of one sync into slices.
    """

    __slots__ = (
        "syncs", "begun", "sync_seconds", "enabled", "tells_before_it_answers", "has_failed", "_files",
        "_flushing", "_gathering", "_slice_clock", "_greenlet", "_wake", "_is_resting", "_stores", "_logs",
        "_folders", "_unwritten", "_failed_logs", "_replace_at_s", "_later", "_later_since", "_waiting",
        "_in_flight", "_is_syncing", "_hurried", "_stopping", "_gone", "_making", "_killed", "_changes",
        "_soon", "_soon_since", "_makes_soon", "_soon_failures", "_aside", "_at_leisure", "_for_readers",
        "_lanes", "_failed", "__dict__", "__weakref__",
    )

    def __init__(self, files, enabled=True, threads=THREADS, slow_s=0, slice_clock=None):
        self.syncs = 0
        # flushes that have taken what was marked; whoever notes it with a mark knows
        # whether that mark has been taken
        self.begun = 0
        self.sync_seconds = Histogram()
        self._files = files
        self.enabled = enabled
        self._slice_clock = slice_clock
        self._greenlet = None
        self._wake = Bell()
        self._is_resting = False  # the greenlet has nothing to do, and waits for more
        self._stores, self._logs, self._folders = {}, {}, {}  # store -> whether its acks, too
        self._unwritten = {}  # logs that could not be written, or got no thread, for whoever asks next
        self._failed_logs = {}  # logs whose flush failed: all promises stand on them, whatever they are about
        self._replace_at_s = 0.0  # when the owner of one is asked again to replace it
        self._later = {}  # stores whose acks may wait
        self._later_since = 0.0
        self._waiting = []  # callbacks for the sync that begins next
        self._in_flight = deque()  # callbacks of the sync that is running
        self._is_syncing = self._hurried = self._stopping = False
        self._gone = None  # the error that ended group commit
        self._making = []  # the changes that are being made
        self._killed = False
        self._changes = []  # ([storage.disk.files.Change, ...], done or None) for the sync that begins next
        self._soon = []  # the same, for a moment in which no sync runs
        self._soon_since = 0.0
        self._makes_soon = False
        self._soon_failures = {}  # of these, for whoever waits for the sync that begins next
        self._flushing = Flushing(files, threads, len(LANES), slow_s)
        self._gathering = Gathering()
        self._aside, self._at_leisure, self._for_readers = self._lanes = tuple([
            Aside(name, self._threads_of) for name in LANES])
        # without syncing, too: nobody is called back before what is marked has been told of
        self.tells_before_it_answers = False
        # a flush or a change of names: files may stay that an orderly end does not leave
        self.has_failed = False
        self._failed = {}  # path of a folder whose flush failed -> the error, for the rest of the run

    # what marks itself

    def mark(self, store):
        """The store has something to flush.

        When a sync begins its ``sync_files()`` tells what; then ``synced()`` or ``fence(error)`` is called.
        """
        self._stores[store] = True
        self._begin_soon()

    def mark_messages(self, store):
        """As ``mark``, for the messages only; confirms need no acks."""
        self._stores.setdefault(store, False)
        self._begin_soon()

    def mark_acks(self, store):
        """The store has acks to flush. Nobody waits for them, and ``after_sync`` does not cover them."""
        if not self._later:
            self._later_since = time.monotonic()
        self._later[store] = None
        self._begin_soon()

    def mark_file(self, file):
        """A log was appended to, or has accepted something, which the sync writes first.

        It is held until it has been flushed: until then its owner may close it, and even remove its name.
        """
        if file not in self._logs:
            file.retain()
            self._logs[file] = None
        self._begin_soon()

    def mark_folder(self, path):
        """A name in the folder changed."""
        self._folders[os.fspath(path)] = None
        self._begin_soon()

    def change(self, changes, done=None, soon=False):
        """Have names changed in a thread, in the order in which that was asked for, before the next sync
        flushes anything; ``after_sync`` covers it.

        ``changes``: storage.disk.files.Change; each is made only if those before it in the list were made.
        ``done(error or None)`` is called in the hub, and must neither switch nor raise. A change that fails
        fails the sync for everybody who waits for it. It is no failure that a file was not there any more,
        unless the change needs it.

        ``soon``: it is made after ``SOON_S`` at the latest unless a sync is running then, before changes that
        were asked for without ``soon``, and without a sync of its own; for files that somebody wants to use
        again. Without syncing, all are made in the order in which they were asked for.
        """
        if soon and self.enabled:
            if not self._soon:
                self._soon_since = time.monotonic()
                self._wake.set()
            self._soon.append((changes, done))
        else:
            self._changes.append((changes, done))
        self._begin_soon()

    # who waits

    def after_sync(self, callback, hurry=True, concerns=None, about_logs=True):
        """Call ``callback(error or None)`` once all that is marked now has been flushed: at once, before this
        returns, when nothing is left to flush.

        Callbacks come in the order they were given, and must neither switch nor raise. ``hurry=False``: it
        may take a while. ``concerns()`` is asked when files of some stores could not be flushed, which are
        fenced by then, and says whether that is about what the caller did; it must not raise. Without it each
        failure is, and one of a log is everybody's: in that sync, and in all later ones until another log has
        taken its place, for a second flush would succeed without what the first one lost.
        ``about_logs=False``, for housekeeping: what was promised has nothing to do with it, and it hears of
        failures of stores, folders and names alone.

        Returns the Coming where the callback waits for the flush that begins next, and else None.
        """
        if concerns is not None:
            callback = _Concerned(callback, concerns)
        elif not about_logs:
            callback = _NotOfLogs(callback)
        if self._unwritten:
            self._mark_unwritten()
        if not self.enabled and self._gone is None:
            untold = self.tells_before_it_answers and self._has_marks()
            if untold or self._has_changes() or self._waiting or self._in_flight:
                self._waiting.append(callback)
            else:
                callback(None)
        elif self._gone is not None:
            callback(self._gone)
        elif self._has_marks():
            self._waiting.append(callback)
            if hurry:
                self._hurried = True
                self._wake.set()
            self._gathering.asked()
            return self._gathering.coming
        elif self._is_syncing:
            self._in_flight.append(callback)
        elif self._failed_logs and not isinstance(callback, (_NotOfLogs, _OfLog)):
            callback(self._error_of_logs())
        else:
            callback(None)
        return None

    def after_flush_of(self, log, callback):
        """Mark this log, and call back with the result of its own flush, whatever else fails: for a log that
        is to take another one's place.
        """
        self.mark_file(log)
        self.after_sync(_OfLog(callback, log))

    def wait(self):
        """Wait until all that is marked now has been flushed.

        Raises the error of a failed sync. May switch.
        """
        result = AsyncResult()
        self.after_sync(lambda error: result.set(None) if error is None else result.set_exception(error))
        result.get()

    def stop(self):
        """Flush what is marked, do what was put aside, and end.

        Whatever that puts aside or marks is done, too. May switch.
        """
        self._stopping = True
        self._mark_unwritten()
        if self._has_marks() or self._later:
            self._begin_soon()
        while not (self._greenlet is None and self.is_done_aside):
            while (greenlet := self._greenlet) is not None:
                self._wake.set()
                greenlet.join()
                self._ended(greenlet)
            for lane in reversed(self._lanes):  # what the others let go of is closed aside
                lane.join()
        self._flushing.watch.stop()
        self._end_threads()

    def kill(self):
        """End as a crash does: what is marked is not flushed, nobody is called back."""
        self._killed = True
        self._release([*self._logs, *self._unwritten])
        self._unwritten = {}
        self._stores, self._later, self._logs, self._folders, self._changes, self._soon = (
            {}, {}, {}, {}, [], []
        )
        self._take_waiting()  # or a cycle that is about to begin would find nothing to flush, and say so
        if self._greenlet is not None:
            gevent.kill(self._greenlet)
            self._greenlet = None
        self._flushing.cut_short()
        for lane in self._lanes:
            lane.kill()
        self._end_threads()

    @property
    def is_idle(self):
        """Whether there is nothing to flush, and no greenlet to do it but one that rests."""
        return self._greenlet is None or self._is_resting

    def describe(self):
        """What it is doing, for people."""
        state = (
            "over" if self._gone else "syncing" if self._is_syncing else "idle" if self.is_idle
            else "waiting for more"
        )
        running = ", ".join(self._flushing.watch.running())
        return (
            f"{'' if self.enabled else 'off, '}{state}, {self.syncs} so far; to flush: {len(self._stores)} "
            f"queues, {len(self._later)} of acks, {len(self._logs)} logs, {len(self._folders)} folders; "
            f"waiting: {len(self._waiting)} for the next, {len(self._in_flight)} for this one; "
            f"{len(self._failed)} folders and {len(self._failed_logs)} logs failed"
            f"{'; being flushed: ' if running else ''}{running}"
        )

    # what nobody waits for

    def aside(self, function, *arguments, done=None, first=False):
        """Have ``function(*arguments)`` called in a thread soon, beside the flushes: one at a time, in order.
        ``first``: before other work, because somebody waits for it; as a number: it is so many pieces, and as
        many of the others have their turn after it. ``done(result, error)`` is called in the hub after it,
        and must neither switch nor raise.
        """
        self._aside.add(function, arguments, done, first)

    def aside_at_leisure(self, function, *arguments, done=None):
        """As ``aside``, in a lane of its own, for work that may take long together: nothing that is put
        ``aside`` waits for it.
        """
        self._at_leisure.add(function, arguments, done)

    def aside_for_readers(self, function, *arguments, done=None):
        """As ``aside``, in a lane of its own, for work that consumers wait for."""
        self._for_readers.add(function, arguments, done)

    @property
    def is_done_aside(self):
        """Whether all of it is done."""
        return all(lane.is_idle for lane in self._lanes)

    def _threads_of(self):
        return self._flushing.threads_of()

    def _end_threads(self):
        self._flushing.end()

    # the cycle

    def _has_marks(self):
        return bool(self._stores or self._folders or self._logs) or self._has_changes()

    def _has_changes(self):
        return bool(self._changes or self._soon or self._makes_soon)

    def _take_waiting(self):
        """The callbacks for the sync that begins now."""
        self._gathering.begin()
        waiting, self._waiting = self._waiting, []
        return waiting

    def _take_changes(self):
        changes, self._soon, self._changes = [*self._soon, *self._changes], [], []
        return changes

    def _begin_soon(self):
        if self._greenlet is None:
            self._greenlet = gevent.spawn(self._run)
            self._greenlet.name = "group-commit"
            self._greenlet.rawlink(self._ended)
        elif self._is_resting:
            self._is_resting = False
            self._wake.set()

    def _run(self):
        """Cycle while there is something to flush, rest, and end: an idle broker has no greenlet here."""
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
        """Rest: whether somebody has marked something within REST_S. May switch."""
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
        """The greenlet was ended from outside (killed, maybe before its first turn, or by Ctrl-C) and has
        told nobody: tell everybody who waits.
        """
        if self._greenlet is greenlet and not self._killed:
            self._greenlet = None
            if self._is_resting:  # nothing was marked, and nobody waits
                self._is_resting = False
                return
            how = type(greenlet.exception or greenlet.value).__name__
            self._give_up(OSError(errno.ECANCELED, f"the flush was cut short: {how}"))

    def _forget_marks(self):
        """Without syncing, what is marked counts as flushed at the end of the loop's turn.

        May switch, for changes of names.
        """
        while self._has_marks() or self._later or self._waiting:
            self._in_flight = deque(self._take_waiting())
            failures = {}
            self._makes_soon = True
            self._make(self._take_changes(), failures)
            self._makes_soon = False
            if self._killed:
                return
            logs, self._logs, self._folders = self._logs, {}, {}
            self._release(logs)
            awaited, unawaited, self._stores, self._later = self._stores, self._later, {}, {}
            for store in self._in_portions({**unawaited, **awaited}):
                try:
                    store.sync_files(True)
                except StoreError as error:
                    failures[store] = error
                self._tell(store, failures)
            awaited_failure = next(
                (error for owner, error in failures.items() if owner in awaited or owner not in unawaited),
                None,
            )
            self._answer(None, awaited_failure)

    def _sync_marks(self):
        while self._has_marks() or self._later or self._waiting:
            if not self._hurried:
                self._wait_for_more()
            self._gathering.hold_up(None if self._stopping else self._flushing.flusher)
            if self._killed:
                return
            if self._has_marks() or self._later or self._waiting:
                self._cycle()

    def _wait_for_more(self):
        """Return when somebody waits for a sync, or after UNHURRIED_S.

        Meanwhile changes that are wanted soon are made. May switch.
        """
        due = time.monotonic() + UNHURRIED_S
        while not self._hurried and not self._stopping:
            self._wake.clear()
            now = time.monotonic()
            if now >= due:
                return
            if not self._soon:
                self._wake.wait(due)
            elif (soon := self._soon_since + SOON_S) > now:
                self._wake.wait(min(due, soon))
            else:
                self._make_soon()
                if self._killed or not (self._has_marks() or self._later or self._waiting):
                    return

    def _make_soon(self):
        """Make the changes that are wanted soon, without a flush.

        Who asks for a sync after this has begun hears of a failure with the next sync. May switch.
        """
        changes, self._soon = self._soon, []
        self._makes_soon = True
        failures = {}
        self._make(changes, failures)
        self._makes_soon = False
        if self._waiting:
            self._soon_failures.update(failures)

    def _give_up(self, error):
        """A cycle has met a fault of ours, or was ended from outside: whoever waits, or asks from now on,
        gets the error.

        What is marked from now on is flushed, for the next run. The files that the cycle was flushing stay
        open: its threads may still do so.
        """
        logger.error(
            "group commit failed; nothing that is to be durable will be confirmed any more", exc_info=error
        )
        self._gone = error
        self.has_failed = True
        self._is_syncing = self._makes_soon = False
        callbacks, self._in_flight = [*self._in_flight, *self._take_waiting()], deque()
        self._release([*self._logs, *self._unwritten])
        self._unwritten = {}
        stores, self._stores, self._later, self._logs, self._folders = (
            {**self._stores, **self._later}, {}, {}, {}, {}
        )
        changes, self._making = [*self._making, *self._take_changes()], []
        callbacks = [done for _, done in changes if done is not None] + callbacks
        # in one piece: who asks from now on is answered at once, and not before those who asked earlier
        for store in stores:
            self._tell(store, {store: error})
        for callback in callbacks:
            try:
                callback(error)
            except Exception:
                logger.exception("a callback after the end of group commit failed")

    def _cycle(self):
        """One sync, from taking the marks to the callbacks."""
        if self._unwritten:
            self._mark_unwritten()
        stores, logs, folders, changes = self._stores, self._logs, self._folders, self._take_changes()
        self._stores, self._logs, self._folders = {}, {}, {}
        unawaited = set()
        if self._later and (self._stopping or time.monotonic() - self._later_since >= UNHURRIED_S):
            unawaited = self._later.keys() - stores.keys()
            stores.update(dict.fromkeys(self._later, True))
            self._later = {}
        if stores or logs or folders:
            self.begun += 1
        coming = self._gathering.coming
        self._in_flight = deque(self._take_waiting())
        self._hurried = False
        self._wake.clear()
        self._is_syncing = True
        # store, or log, or path of a folder, or change -> error
        failures, self._soon_failures = self._soon_failures, {}
        # Before anything switches: of a segment that goes meanwhile, the acks that somebody waits for are
        # flushed all the same. So this is the one part that is not cut into slices; it takes 2 us for each
        # store.
        jobs = self._collect(stores, unawaited, failures)
        if changes:
            self._make(changes, failures)
            if self._killed:
                self._release_files(jobs)
                self._release(logs)
                return
        if logs or folders:
            jobs += self._jobs_of(logs, folders)
        if jobs:
            self._flush_timed(jobs, failures, len(self._in_flight) + coming.joined)
            if self._killed:
                return  # the flush ended in the very moment of the crash: nobody hears of it
        self._blame(stores, logs, failures)
        of_logs = self._error_of_logs() if self._failed_logs else None
        if of_logs is None and failures:
            of_logs = _failure_of_logs(failures, logs)
        for store in stores if len(stores) < LOOKS else self._in_portions(stores):
            self._tell(store, failures)
        if not self._killed:
            other = _other_failure(failures, logs) if failures else None
            self.has_failed = self.has_failed or other is not None or of_logs is not None
            self._answer(of_logs, other)
            self._is_syncing = False

    def _in_portions(self, items):
        """The items; others have their turn whenever a slice of time is over.

        Ends when the broker is killed meanwhile. A generator; may switch.
        """
        clock = None if self._slice_clock is None else self._slice_clock(every=LOOKS, clock=time.thread_time)
        for item in items:
            yield item
            if clock is not None and clock.is_over():
                give_way()
                if self._killed:
                    return
                clock.begin()

    def _make(self, changes, failures):
        """Have the changes made, one after the other, and tell of them. May switch."""
        if not changes:
            return
        self._making = changes
        try:
            results = self._change_each([group for group, _ in changes])
        except Exception as failure:  # no thread to be had: nothing was done
            results = [(0, failure)] * len(changes)
        self._making, self._flushing.at_work = [], []
        if self._killed:
            return
        for (group, done), (made, refusal) in zip(changes, results):
            try:
                for change in group[:made]:
                    change.told()
                if refusal is not None and (not isinstance(refusal, FileNotFoundError) or group[made].needed):
                    logger.error("a name could not be changed: %s", refusal)
                    failures[group[made]] = refusal
                    self.has_failed = True
                if done is not None:
                    done(refusal)
            except Exception:
                logger.exception("a callback after a change of names failed")

    def _change_each(self, groups):
        return self._flushing.change_each(groups)

    def _collect(self, stores, unawaited, failures):
        """What to flush of stores, as (function, file, its store). The files are retained.

        A store that failed before fails this sync too, unless only its acks are due (``unawaited``): nobody
        waits for acks, and the confirms of others do not depend on them.
        """
        jobs = []
        function = self._flushing.way_of_stores()
        for store, acks_too in list(stores.items()):
            try:
                files = store.sync_files(acks_too)
            except Exception as error:
                if not isinstance(error, StoreError):
                    logger.exception("%s cannot be flushed", store.folder)
                elif store in unawaited:
                    del stores[store]
                    continue
                failures[store] = error
                continue
            for file in files:
                file.retain()
                jobs.append((function, file, store))
        return jobs

    def _jobs_of(self, logs, folders):
        """What to flush of logs and folders. Logs are retained since they were marked."""
        jobs = [(self._files.sync_log, file, file) for file in logs]
        return jobs + [(self._files.sync_folder, path, path) for path in folders]

    def _flush_timed(self, jobs, failures, answered):
        """Run the jobs, and say how long that took and when the next flush may begin. May switch."""
        began = time.monotonic()
        self._flush(jobs, failures)
        if not self._killed:
            self.sync_seconds.observe(time.monotonic() - began)
            self._gathering.flushed(began, bool(self._waiting), answered)
            self.syncs += 1

    def _flush(self, jobs, failures):
        """Run the jobs, and let go of their files. May switch."""
        unbegun = {}
        failed = self._flushing.run(jobs, unbegun)
        failures.update(unbegun)
        for owner, failure in failed:
            failures[owner] = failure
        if not self._killed:
            self._tell_of_logs(jobs, failures, unbegun)
        self._release_files(jobs)

    def _tell_of_logs(self, jobs, failures, unbegun):
        """Say what was written of the logs among the jobs, and note which of them failed."""
        sync_log = self._files.sync_log
        for function, file, owner in jobs:
            if function != sync_log:
                continue
            self._files.tell_written(file)
            if owner in failures:
                # Without a thread nothing is wrong with the log, and only this sync fails. Where nothing
                # stands on it, its owner begins anew.
                is_put_off = file in unbegun and file.is_in_use
                if not is_put_off and file.failure is None:
                    file.failure = failures[owner]
                # One on which no queue stands is tried again with its owner's next change.
                is_due = is_put_off or file.is_awaited and file.fails_all
                if is_due and file not in self._unwritten:
                    file.retain()
                    self._unwritten[file] = None

    def _mark_unwritten(self):
        """Mark the logs that could not be written, so that the next sync tries again: until then nobody may
        be told that nothing is left to flush.
        """
        unwritten, self._unwritten = self._unwritten, {}
        for file in unwritten:
            if file.named:
                self.mark_file(file)
        self._release(unwritten)

    def _error_of_logs(self):
        """The error of a log in use whose flush failed, at any time; None: all are sound, or another one has
        taken the place of each that is not.
        """
        for file in list(self._failed_logs):
            if file.is_in_use:
                self._have_replaced(file)
                return file.failure
            del self._failed_logs[file]
            logger.warning(
                "another file has taken the place of the log that failed: what is durable is confirmed again"
            )
        return None

    def _have_replaced(self, file):
        """Have the owner of a failed log write another one: at once, and then every REPLACE_AGAIN_S while
        somebody asks.
        """
        now = time.monotonic()
        if file.failed is not None and now >= self._replace_at_s:
            self._replace_at_s = now + REPLACE_AGAIN_S
            file.failed()

    def _release_files(self, jobs):
        self._release([file for _, file, _ in jobs if not isinstance(file, str)])  # a folder is a path

    def _release(self, files):
        for file in files:
            try:
                file.release()
            except Exception:  # closed meanwhile by its owner, and the system did not like it
                logger.exception("closing %s failed", file.path)

    def _tell(self, store, failures):
        """Tell the store what became of its files. A store that fails at that is fenced, and fails the sync.
        """
        if store not in failures:
            try:
                store.synced()
                return
            except Exception as error:
                logger.exception("%s failed after a sync", store.folder)
                failures[store] = error
        try:
            store.fence(failures[store])
        except Exception:
            logger.exception("%s cannot be fenced", store.folder)

    def _answer(self, of_logs, other):
        """Call back everybody who waits for this sync, and then those who ask meanwhile and have changed
        nothing. ``of_logs``: the error of a log that promises depend on; ``other``: of anything else. May
        switch.
        """
        if len(self._in_flight) < LOOKS:
            for _ in range(LOOKS):
                if not self._in_flight:
                    return
                self._call_back(self._in_flight.popleft(), of_logs, other)
        for callback in self._in_portions(self._asked()):
            self._call_back(callback, of_logs, other)

    def _call_back(self, callback, of_logs, other):
        try:
            if isinstance(callback, _Particular):
                callback.tell(of_logs, other)
            else:
                callback(other if of_logs is None else of_logs)
        except Exception:
            logger.exception("a callback after a sync failed")

    def _asked(self):
        """The callbacks of the sync that is running, until there are no more. A generator."""
        while self._in_flight:
            yield self._in_flight.popleft()

    def _blame(self, stores, logs, failures):
        """A log or folder whose flush failed fails everything in it, now and later: a second flush would
        succeed without writing anything.
        """
        for owner, error in failures.items():
            if isinstance(owner, str):
                self._failed[owner] = error
        if self._failed:
            for owner, path in (
                [(store, store.folder) for store in stores] + [(file, file.path) for file in logs]
            ):
                while owner not in failures and path != os.path.dirname(path):
                    if path in self._failed:
                        failures[owner] = self._failed[path]
                        if owner in logs:
                            owner.failure = owner.failure or failures[owner]
                    path = os.path.dirname(path)
        for file in logs:
            if file.failure is None or not file.is_in_use:
                continue
            failures.setdefault(file, file.failure)
            if not file.fails_all:
                if file.failed is not None:
                    file.failed()
            elif file not in self._failed_logs:
                self._failed_logs[file] = None
                self._replace_at_s = 0.0
                logger.error(
                    "nothing durable is confirmed while %s is in use, for what it holds may be lost: "
                    "check the disk",
                    file.path,
                )


def _failure_of_logs(failures, logs):
    """That of a log in use, or None."""
    return next((failures[file] for file in logs if file in failures and file.is_in_use), None)


def _other_failure(failures, logs):
    """That of anything but a log, or None."""
    return next((error for owner, error in failures.items() if owner not in logs), None)


class _Particular:
    """A callback that some failures do not concern."""

    __slots__ = ("_callback",)

    def __init__(self, callback):
        self._callback = callback

    def __call__(self, error):
        self._callback(error)

    def tell(self, of_logs, other):
        """What became of a sync, see GroupCommit._answer."""
        raise NotImplementedError


class _Concerned(_Particular):
    """A callback with a function that says whether the failure of some stores is about it."""

    __slots__ = ("_concerns",)

    def __init__(self, callback, concerns):
        self._callback = callback
        self._concerns = concerns

    def tell(self, of_logs, other):
        if of_logs is None and other is not None and self._concerns():
            of_logs = other
        self._callback(of_logs)


class _NotOfLogs(_Particular):
    """A callback of housekeeping: failures of logs do not concern it."""

    __slots__ = ()

    def tell(self, of_logs, other):
        self._callback(other)


class _OfLog(_Particular):
    """A callback that hears of the flush of one log alone."""

    __slots__ = ("_log",)

    def __init__(self, callback, log):
        self._callback = callback
        self._log = log

    def tell(self, of_logs, other):
        self._callback(self._log.failure)
