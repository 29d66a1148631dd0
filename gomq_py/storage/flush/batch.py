"""Batch: what one flush covers, and the callbacks that wait for it.

Below group_commit, which fills the next batch while it flushes one. A batch says what there is to flush, and
never flushes.
"""
import logging

from gomq_py.storage.errors import StoreError

logger = logging.getLogger("gomq_py.storage.sync")


class FlushBatch:
    """``stores``: store -> whether its acks, too; ``acks``: stores of which only acks are due, and not before
    a while after ``acks_since``; ``logs`` are held, ``folders`` are paths. ``is_hurried``: one of the
    ``callbacks`` does not want to wait for more. ``failures``: store, log, path of a folder or change of a
    name -> the error.
    """

    __slots__ = ("stores", "acks", "acks_since", "logs", "folders", "callbacks", "is_hurried", "failures")

    def __init__(self):
        self.stores, self.acks, self.logs, self.folders = {}, {}, {}, {}
        self.acks_since = 0.0
        self.callbacks = []
        self.is_hurried = False
        self.failures = {}

    def has_marks(self):
        """Whether there is something to flush that somebody may wait for."""
        return bool(self.stores or self.folders or self.logs)

    def collect(self, function, unawaited):
        """What to flush of stores, as (function, file, its store). The files are retained.

        A store that failed before fails this flush too, unless only its acks are due (``unawaited``): nobody
        waits for acks, and the confirms of others do not depend on them.
        """
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
        """The failure of anything but a log, or None."""
        return next((error for owner, error in self.failures.items() if owner not in self.logs), None)

    def failure_of_logs(self):
        """The failure of a log in use, or None."""
        failures = self.failures
        return next((failures[file] for file in self.logs if file in failures and file.is_in_use), None)


def release(files):
    """Let go of files that were retained for a flush."""
    for file in files:
        try:
            file.release()
        except Exception:  # closed meanwhile by its owner, and the system did not like it
            logger.exception("closing %s failed", file.path)


def release_files(jobs):
    """Let go of the files that jobs flushed."""
    release([file for _, file, _ in jobs if not isinstance(file, str)])  # a folder is a path


def tell(store, failures):
    """Tell a store what became of its files. A store that fails at that is fenced, and fails the flush."""
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
    """Tell a callback what became of its flush. ``of_logs``: the error of a log that promises depend on;
    ``other``: of anything else.
    """
    try:
        if isinstance(callback, Particular):
            callback.tell(of_logs, other)
        else:
            callback(other if of_logs is None else of_logs)
    except Exception:
        logger.exception("a callback after a sync failed")


class Particular:
    """A callback that some failures do not concern."""

    __slots__ = ("_callback",)

    def __init__(self, callback):
        self._callback = callback

    def __call__(self, error):
        self._callback(error)

    def tell(self, of_logs, other):
        """What became of a flush, see call_back."""
        raise NotImplementedError


class Concerned(Particular):
    """A callback with a function that says whether the failure of some stores is about it."""

    __slots__ = ("_concerns",)

    def __init__(self, callback, concerns):
        self._callback = callback
        self._concerns = concerns

    def tell(self, of_logs, other):
        if of_logs is None and other is not None and self._concerns():
            of_logs = other
        self._callback(of_logs)


class NotOfLogs(Particular):
    """A callback of housekeeping: failures of logs do not concern it."""

    __slots__ = ()

    def tell(self, of_logs, other):
        self._callback(other)


class OfLog(Particular):
    """A callback that hears of the flush of one log alone."""

    __slots__ = ("_log",)

    def __init__(self, callback, log):
        self._callback = callback
        self._log = log

    def tell(self, of_logs, other):
        self._callback(self._log.failure)
