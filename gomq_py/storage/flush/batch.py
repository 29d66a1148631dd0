"""Batch: keeps the files that one flush covers, the name changes before it, and the callbacks after it.

Used by group_commit, which fills the next batch while it flushes one. A *mark* notes that a store, log or
folder has something to flush. NameChanges has a thread rename and unlink files, because these calls may wait
for the disk. FlushFailures remembers failed logs and folders, because a second flush would succeed although
the first lost bytes. A failed folder fails everything in it for the rest of the run. A failed log fails every
callback, such as that of a confirm, until another file has replaced the log.
"""
import logging
import os
import time

from gomq_py.storage.errors import StoreError

logger = logging.getLogger("gomq_py.storage.sync")


class FlushBatch:
    """The work of one flush.

        stores        {store: True if its acks are flushed with its messages}
        acks          stores with only acks to flush, which may wait; the first was marked at ``acks_since``
        logs          retained LogFiles
        folders       paths of folders
        is_hurried    True if a waiting callback must not be delayed
        failures      {store, log, folder's path or Change: its error}
    """

    __slots__ = ("stores", "acks", "acks_since", "logs", "folders", "callbacks", "is_hurried", "failures")

    def __init__(self):
        self.stores, self.acks, self.logs, self.folders = {}, {}, {}, {}
        self.acks_since = 0.0
        self.callbacks = []
        self.is_hurried = False
        self.failures = {}

    def has_marks(self):
        """Return True if anything but acks is to be flushed."""
        return bool(self.stores or self.folders or self.logs)

    def collect(self, function, unawaited):
        """Return the jobs that flush the stores' files, (``function``, file, store), and retain the files. A
        store that cannot be flushed fails this flush. ``unawaited``: stores whose StoreError is ignored.
        """
        # unawaited: the stores with only acks to flush. No confirm depends on acks.
        jobs = []
        for store, acks_too in list(self.stores.items()):
            try:
                files = store.sync_files(acks_too)
            except Exception as error:
                if not isinstance(error, StoreError):
                    logger.exception("%s cannot be flushed", store.folder)
                elif store in unawaited:
                    del self.stores[store]
                    continue
                self.failures[store] = error
                continue
            for file in files:
                file.retain()
                jobs.append((function, file, store))
        return jobs

    def other_failure(self):
        """Return the first error of this flush that does not concern a log, or None."""
        return next((error for owner, error in self.failures.items() if owner not in self.logs), None)

    def failure_of_logs(self):
        """Return the first error of this flush that concerns a log in use, or None."""
        failures = self.failures
        return next((failures[file] for file in self.logs if file in failures and file.is_in_use), None)


def release(files):
    """Release files that were retained for a flush. Errors are logged."""
    for file in files:
        try:
            file.release()
        except Exception:  # its owner has closed it meanwhile, and the system reports an error for that
            logger.exception("closing %s failed", file.path)


def release_files(jobs):
    """Release the files of flush jobs. A job is (function, file or folder path, owner)."""
    release([file for _, file, _ in jobs if not isinstance(file, str)])  # a folder is a path


def tell(store, failures):
    """Call a store's ``synced()`` after a flush, or ``fence(error)`` if the store is in ``failures``. If
    ``synced()`` raises, its error is added to ``failures``, and the store is fenced.
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


def call_back(callback, of_logs, other):
    """Call a callback with the result of a flush. ``of_logs``: the error of a log on which confirms depend,
    or None; ``other``: any other error, or None.
    """
    try:
        if isinstance(callback, Particular):
            callback.tell(of_logs, other)
        else:
            callback(other if of_logs is None else of_logs)
    except Exception:
        logger.exception("a callback after a sync failed")


class Particular:
    """Base class of callbacks that get only some errors of a flush; a subclass decides which."""

    __slots__ = ("_callback",)

    def __init__(self, callback):
        self._callback = callback

    def __call__(self, error):
        self._callback(error)

    def tell(self, of_logs, other):
        """Call the callback with the one of these errors that it must get, or None. See call_back()."""
        raise NotImplementedError


class Concerned(Particular):
    """A callback that always gets errors of logs, but other errors only if ``concerns()`` returns True."""

    __slots__ = ("_concerns",)

    def __init__(self, callback, concerns):
        self._callback = callback
        self._concerns = concerns

    def tell(self, of_logs, other):
        if of_logs is None and other is not None and self._concerns():
            of_logs = other
        self._callback(of_logs)


class NotOfLogs(Particular):
    """A callback of housekeeping, which gets errors of stores and folders, but not of logs."""

    __slots__ = ()

    def tell(self, of_logs, other):
        self._callback(other)


class OfLog(Particular):
    """A callback that gets only the error of one log's flush."""

    __slots__ = ("_log",)

    def __init__(self, callback, log):
        self._callback = callback
        self._log = log

    def tell(self, of_logs, other):
        self._callback(self._log.failure)


# How often the owner of a failed log is asked to replace it, while promises are asked for: the owner then
# writes all that the log holds.
REPLACE_AGAIN_S = 5.0


class FlushFailures:
    """Remembers the logs and folders whose flush has failed. One object per GroupCommit. ``files`` reports to
    the replicators which bytes were written to logs.
    """

    __slots__ = ("unwritten", "_files", "_folders", "_logs", "_replace_at_s")

    def __init__(self, files):
        self.unwritten = {}  # logs that could not be written, or got no thread: the next flush writes them
        self._files = files
        self._folders = {}  # path of a folder whose flush failed -> the error, for the rest of the run
        self._logs = {}  # logs whose flush failed: every promise depends on them
        self._replace_at_s = 0.0  # when a failed log's owner is asked again to replace it

    def counts(self):
        """Return (number of failed folders, number of failed logs)."""
        return len(self._folders), len(self._logs)

    def tell_of_logs(self, logs, failures, unbegun):
        """Report the bytes written to these flushed logs to the replicators, and remember failed logs.
        ``unbegun``: {log: error} of logs for which there was no thread; these are flushed next time.
        """
        for file in logs:
            self._files.tell_written(file)
            if file in failures:
                # Without a thread nothing is wrong with the log, and only this flush fails. If nothing
                # depends on the log, its owner begins another.
                is_put_off = file in unbegun and file.is_in_use
                if not is_put_off and file.failure is None:
                    file.failure = failures[file]
                # A log on which no queue depends is tried again with its owner's next change.
                is_due = is_put_off or file.is_awaited and file.fails_all
                if is_due and file not in self.unwritten:
                    file.retain()
                    self.unwritten[file] = None

    def take_unwritten(self):
        """Remove and return the unwritten logs, still retained. The next flush must write them."""
        unwritten, self.unwritten = self.unwritten, {}
        return unwritten

    def blame(self, batch):
        """Remember the folders and logs that failed in this flush. A folder or log that failed before fails
        the batch again. A failed folder also fails all files in it.
        """
        failures, logs = batch.failures, batch.logs
        for owner, error in failures.items():
            if isinstance(owner, str):
                self._folders[owner] = error
        if self._folders:
            self._blame_folders(batch)
        for file in logs:
            if file.failure is None or not file.is_in_use:
                continue
            failures.setdefault(file, file.failure)
            if not file.fails_all:
                if file.failed is not None:
                    file.failed()
            elif file not in self._logs:
                self._logs[file] = None
                self._replace_at_s = 0.0
                logger.error(
                    "nothing durable is confirmed while %s is in use, for what it holds may be lost: "
                    "check the disk",
                    file.path,
                )

    def error_of_logs(self):
        """Return the error of a log in use whose flush has ever failed; None if there is no such log.
        Also asks the owner of such a log for a new log, now and then.
        """
        if not self._logs:
            return None
        for file in list(self._logs):
            if file.is_in_use:
                self._have_replaced(file)
                return file.failure
            del self._logs[file]
            logger.warning(
                "another file has taken the place of the log that failed: what is durable is confirmed again"
            )
        return None

    def _blame_folders(self, batch):
        failures, logs = batch.failures, batch.logs
        for owner, path in (
            [(store, store.folder) for store in batch.stores] + [(file, file.path) for file in logs]
        ):
            while owner not in failures and path != os.path.dirname(path):
                if path in self._folders:
                    failures[owner] = self._folders[path]
                    if owner in logs:
                        owner.failure = owner.failure or failures[owner]
                path = os.path.dirname(path)

    def _have_replaced(self, file):
        """Ask the owner of a failed log for a new log: at once, then at most every REPLACE_AGAIN_S."""
        now = time.monotonic()
        if file.failed is not None and now >= self._replace_at_s:
            self._replace_at_s = now + REPLACE_AGAIN_S
            file.failed()


# How long changes that are wanted soon are gathered. Each trip to a thread takes the processor from the hub
# for a moment, and for some milliseconds if all processors are busy. A flood through 20 segments a second
# made 90 trips, and p99 of other clients was 5.6 ms; with changes gathered it was 3.3 ms.
SOON_S = 0.02


class NameChanges:
    """Collects renames, unlinks and creations (storage.disk.files.Change) for the next flush.

    One object per GroupCommit. ``change_each(groups)`` makes changes in a thread. ``begin()`` starts the
    greenlet that flushes; the Wakeup ``wake`` wakes it. ``gathers_soon=False``: change() ignores ``soon``.
    """

    __slots__ = (
        "_change_each", "_begin", "_wake", "_gathers_soon", "_changes", "_soon", "_soon_since", "_making",
        "_is_making_alone", "_when_told", "__dict__",
    )

    def __init__(self, change_each, begin, wake, gathers_soon):
        self._change_each = change_each
        self._begin = begin
        self._wake = wake
        self._gathers_soon = gathers_soon
        self._changes = []  # ([storage.disk.files.Change, ...], done or None) for the flush that begins next
        self._soon = []  # like _changes, to be made while no flush runs
        self._soon_since = 0.0
        self._making = []  # the changes that are being made
        self._when_told = []
        self._is_making_alone = False

    def change(self, changes, done=None, soon=False):
        """Have a thread make the changes before the next flush, in the order of the calls.

        ``changes``: a list of storage.disk.files.Change; the first error ends the list. ``done(error or
        None)``, if given, is called in the event loop, and must neither switch greenlets nor raise. A failed
        change fails the callbacks of the flush; a missing file fails them only with ``Change.needed``.
        ``soon``: make these changes before all others, within ``SOON_S`` or, if a flush is running by
        then, right after that flush. For files that are to be reused.
        """
        if soon and self._gathers_soon:
            if not self._soon:
                self._soon_since = time.monotonic()
                self._wake.set()
            self._soon.append((changes, done))
        else:
            self._changes.append((changes, done))
        self._begin()

    def when_told(self, callback):
        """Call ``callback()`` once the replicators know of all changes that a thread is making now."""
        if self._making:
            self._when_told.append(callback)
        else:
            callback()

    # for group_commit

    def are_due(self):
        """Return True if changes wait, or are being made while no flush runs."""
        return bool(self._changes or self._soon or self._is_making_alone)

    def soon_at(self):
        """Return the time.monotonic() by which changes with ``soon`` must be made; 0 if there are none."""
        return self._soon_since + SOON_S if self._soon else 0.0

    def take(self):
        """Remove and return all waiting changes, those with ``soon`` first."""
        changes, self._soon, self._changes = [*self._soon, *self._changes], [], []
        return changes

    def make(self, changes, failures):
        """Have a thread make the ``changes``, a result of take(), in order. Reports the changes to the
        replicators, and calls each ``done``. Adds {change: error} to ``failures``. May switch greenlets.
        """
        if not changes:
            return
        self._making = changes
        try:
            results = self._change_each([group for group, _ in changes])
        except Exception as failure:  # without a thread nothing was done
            results = [(0, failure)] * len(changes)
        changes, self._making = self._making, []  # empty if they were forgotten meanwhile
        for (group, done), (made, refusal) in zip(changes, results):
            try:
                for change in group[:made]:
                    change.told()
                if refusal is not None and (not isinstance(refusal, FileNotFoundError) or group[made].needed):
                    logger.error("a name could not be changed: %s", refusal)
                    failures[group[made]] = refusal
                if done is not None:
                    done(refusal)
            except Exception:
                logger.exception("a callback after a change of names failed")
        waiting, self._when_told = self._when_told, []
        for callback in waiting:
            try:
                callback()
            except Exception:
                logger.exception("a callback after a change of names failed")

    def make_alone(self, failures):
        """Make all waiting changes while no flush runs. Until this returns, are_due() is True. Adds {change:
        error} to ``failures``. May switch greenlets.
        """
        self._is_making_alone = True
        self.make(self.take(), failures)
        self._is_making_alone = False

    def make_soon(self):
        """Make the changes with ``soon``; no flush runs. Returns {change: error}. May switch greenlets."""
        changes, self._soon = self._soon, []
        failures = {}
        self._is_making_alone = True
        self.make(changes, failures)
        self._is_making_alone = False
        return failures

    def give_up(self):
        """Drop all changes. Returns their ``done`` callbacks, also of changes that a thread is making."""
        changes = [*self._making, *self.take()]
        self.forget()
        return [done for _, done in changes if done is not None]

    def forget(self):
        """Drop all changes and their callbacks, as a crash would."""
        self._changes, self._soon, self._making, self._when_told = [], [], [], []
        self._is_making_alone = False
