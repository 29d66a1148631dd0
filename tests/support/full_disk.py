"""FullDisk: a disk that takes no more files at a moment that a test chooses."""
import errno
import os

from tests.support.unflushed import Unflushed


class FullDisk(Unflushed):
    """No more files once it ``is_full``."""

    is_full = False

    def create(self, path, size):
        self._check(path)
        return super().create(path, size)

    def make(self, path, size, fetched=True):
        self._check(path)
        return super().make(path, size, fetched)

    def _check(self, path):
        if self.is_full:
            raise OSError(errno.ENOSPC, os.strerror(errno.ENOSPC), path)
