"""Replicator: the interface that gets each change of a file.

Owned by storage. ``storage.disk.register`` calls it after each change that succeeded; for writes to a mapped
file once per batch. A cluster's leader implements it to copy the changes to its followers. The calls come in
the order of the changes, on the event loop's thread, and must neither block nor raise.
``file.read(start, end)`` returns the *present* content of a range, so it must be called before the method
returns.

Threads rename files and write to logs, and report afterwards. A killed process may have made unreported
changes, so a returning follower compares names and logs. ``file_id`` is the file's id in the register, which
no rename changes; 0 for a folder. Unnamed files (transient queues) are not reported, because other nodes do
not need them.

A follower flushes its own copy before it acknowledges a change, and before it repeats changes that come after
``flushed``. Such changes, for example the removal of a queue's files, rely on the leader's flush.
"""


class Replicator:
    """Gets every change of files. Paths are absolute; the implementation knows its data folder."""

    __slots__ = ()

    def created(self, file_id, path, size):
        """A file was created with ``size`` zero bytes."""
        raise NotImplementedError

    def folder_created(self, path):
        raise NotImplementedError

    def appended(self, file_id, file, start, end):
        """The bytes [start, end) were written for the first time. A log now ends at ``end``. The bytes stay
        unchanged while the file is retained (Range).
        """
        raise NotImplementedError

    def overwritten(self, file_id, file, start, end):
        """The content of [start, end) was changed. It may change again, so ``file.read(start, end)`` must be
        called before this method returns.
        """
        raise NotImplementedError

    def resized(self, file_id, path, size):
        """The file was cut to ``size``, or extended to it with zeros."""
        raise NotImplementedError

    def renamed(self, file_id, source, target):
        """A file or folder was renamed to ``target``, and may have replaced a file of that name."""
        raise NotImplementedError

    def unlinked(self, file_id, path):
        raise NotImplementedError

    def folder_removed(self, path):
        raise NotImplementedError

    def flushing(self):
        """A flush of all reported changes begins, and a caller waits for it. A follower should flush, too.
        This call does not count as a change.
        """

    def diverged(self):
        """A file was changed without a report, so each copy of the folder must be compared with it."""
        raise NotImplementedError

    def flushed(self):
        """A flush has ended. The flush's writes into logs were reported before. Stores and callbacks are
        informed after this call.
        """
        raise NotImplementedError


class Range:
    """A long range of appended bytes, which ``take_into`` reads in pieces: a copy of a body of 256 MiB would
    block the event loop. The file stays open until the last piece is read.
    """

    __slots__ = ("_at", "_end", "_file")

    def __init__(self, file, start, end):
        self._at, self._end = start, end
        file.retain()
        self._file = file

    def take_into(self, target):
        """Copy the next bytes of the range into ``target``, a memoryview. Returns the number of bytes copied.
        Call until the whole range is read, or call ``drop``. Raises OSError; then the range is dropped.
        """
        start, self._at = self._at, min(self._at + len(target), self._end)
        is_last = True
        try:
            count = self._file.read_into(target, start, self._at)
            is_last = self._at == self._end
            return count
        finally:
            if is_last:
                self.drop()

    def drop(self):
        """Release the file without reading the rest."""
        file, self._file = self._file, None
        if file is not None:
            file.release()
