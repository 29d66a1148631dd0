"""Flush failures: which logs and folders failed, and what that means to later flushes.

Below group_commit, which asks after each flush. A second flush of the same file or folder would succeed
without what the first one lost. So a folder that failed fails everything in it for the rest of the run, and
a log that failed fails every promise until another file has taken its place.
"""
import logging
import os
import time

logger = logging.getLogger("gomq_py.storage.sync")

# How often the owner of a log that failed is asked to replace it, while promises are asked for:
# a write of all that it holds.
REPLACE_AGAIN_S = 5.0


class FlushFailures:
    """One per GroupCommit. ``files`` are told of what was written of a log."""

    __slots__ = ("unwritten", "_files", "_folders", "_logs", "_replace_at_s")

    def __init__(self, files):
        self.unwritten = {}  # logs that could not be written, or got no thread, for whoever asks next
        self._files = files
        self._folders = {}  # path of a folder whose flush failed -> the error, for the rest of the run
        self._logs = {}  # logs whose flush failed: all promises stand on them, whatever they are about
        self._replace_at_s = 0.0  # when the owner of one is asked again to replace it

    def counts(self):
        """How many folders and how many logs have failed."""
        return len(self._folders), len(self._logs)

    def tell_of_logs(self, logs, failures, unbegun):
        """Say what was written of the logs that were flushed, and note which of them failed.

        ``unbegun``: the error of each that got no thread.
        """
        for file in logs:
            self._files.tell_written(file)
            if file in failures:
                # Without a thread nothing is wrong with the log, and only this flush fails. Where nothing
                # stands on it, its owner begins anew.
                is_put_off = file in unbegun and file.is_in_use
                if not is_put_off and file.failure is None:
                    file.failure = failures[file]
                # One on which no queue stands is tried again with its owner's next change.
                is_due = is_put_off or file.is_awaited and file.fails_all
                if is_due and file not in self.unwritten:
                    file.retain()
                    self.unwritten[file] = None

    def take_unwritten(self):
        """The logs that could not be written, which are held: the next flush tries again, and until then
        nobody may be told that nothing is left to flush.
        """
        unwritten, self.unwritten = self.unwritten, {}
        return unwritten

    def blame(self, batch):
        """Add to the batch's failures what earlier failures mean, and note those of this flush."""
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
        """The error of a log in use whose flush failed, at any time; None: all are sound, or another one has
        taken the place of each that is not.
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
        """Have the owner of a failed log write another one: at once, and then every REPLACE_AGAIN_S while
        somebody asks.
        """
        now = time.monotonic()
        if file.failed is not None and now >= self._replace_at_s:
            self._replace_at_s = now + REPLACE_AGAIN_S
            file.failed()
