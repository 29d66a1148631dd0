"""Removal: removes the folders of deleted queues in a background thread.

Uses the threads of storage.flush.group_commit. Nothing waits for a removal: folders left by a crash or the
broker's end are removed at the next boot.
"""
import os
import time
from collections import deque

from gomq_py.observability.log import logger

LOG = logger("storage")

# Time for which the thread removes files before it reports to the hub.
REMOVING_S = 0.02


class FolderRemovals:
    """Removes folders one by one, in slices, so that thousands of folders do not delay other work."""

    def __init__(self, files, committer):
        self._files = files
        self._committer = committer
        self._waiting = deque()  # (store or None, folder, whose, done); the first is being removed
        self._left = None  # content left of the first: (path, is a folder), taken from the end
        self._made = []  # changes that replicators have not heard of
        self._closed = False

    def add(self, store, folder, whose, error, done=None):
        """Remove a folder and its content in the background, then call ``done()`` if given.

        ``store``: the store that has files of the folder open, or None; it is stopped first. ``whose``: the
        queue's name for log lines. ``error``: None, or why the queue's deletion could not be saved. With an
        error nothing is removed, and ``done`` is not called.
        """
        if error is not None:
            LOG.error("the files of %s stay until the next boot: %s", whose, error)
            if store is not None:
                store.close()
            return
        self._waiting.append((store, folder, whose, done))
        if len(self._waiting) == 1:
            self._begin()

    def close(self):
        """Begin no more removals, and close the stores of folders not removed yet."""
        self._closed = True
        for store, _, _, _ in self._waiting:
            if store is not None:
                store.forget_files()
        self._waiting.clear()

    def _begin(self):
        store, folder, whose, _ = self._waiting[0]
        self._left = None
        try:
            if store is not None:
                store.forget_files()
        except Exception as error:  # a fault of ours keeps only this folder
            LOG.exception("the files of %s stay until the next boot: %s", whose, error)
            self._end(folder)
            return
        # a publisher's new folder, made after the removal, would stay
        if self._files.is_making_folder(folder):
            self._committer.background.short.add(
                _nothing, first=True, done=lambda _, error: self._remove(folder))
        else:
            self._remove(folder)

    def _remove(self, folder):
        self._committer.background.long.add(self._remove_some, folder, done=self._removed)

    def _remove_some(self, folder):
        """Remove a folder's files and subfolders for about REMOVING_S s. Runs in a thread. Raises OSError."""
        until = time.monotonic() + REMOVING_S
        if self._left is None:
            folders = list(os.walk(folder))
            self._left = [(inner, True) for inner, _, _ in folders]  # content goes behind its folder
            self._left += [
                (os.path.join(inner, name), False) for inner, _, names in folders for name in names
            ]
        while self._left and not self._closed:
            path, is_folder = self._left.pop()
            change = self._files.removing_folder(path) if is_folder else self._files.unlinking(path)
            try:
                change.act()
                self._made.append(change)
            except FileNotFoundError:  # moved into the segment pool meanwhile
                continue
            if time.monotonic() >= until:
                break

    def _removed(self, _, error):
        # a file may have left the folder by a rename that another thread has made and nobody was told of
        self._committer.names.when_told(lambda: self._tell(error))

    def _tell(self, error):
        made, self._made = self._made, []
        for change in made:
            change.told()
        if self._closed:
            return
        _, folder, whose, _ = self._waiting[0]
        if error is None and self._left:
            self._remove(folder)
            return
        if error is not None:
            LOG.error("the files of %s stay until the next boot: %s", whose, error)
        self._end(folder)

    def _end(self, folder):
        self._committer.mark_folder(os.path.dirname(folder))
        _, _, _, done = self._waiting.popleft()
        if done is not None:
            done()
        if self._waiting:
            self._begin()


def _nothing():
    """Do nothing. An urgent job of a BackgroundWorker, whose ``done`` runs after all earlier urgent jobs."""
