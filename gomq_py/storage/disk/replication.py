"""Replicator: the interface of a listener to changes of files.

Owned by storage, called by ``storage.disk.files`` after each change that succeeded, once per batch; a
cluster's leader implements it to copy the changes to its followers. The calls come in the order of the
changes, on the hub's thread, and must neither block nor raise: the implementation queues what it cannot send
at once. Threads rename files and write to logs, and report afterwards: a killed process may have made
unreported changes, so a returning follower compares names and logs. ``file.read(start, end)`` returns the
*present* content of a range, so it must be called before the method returns.

Unnamed files (transient queues) are not reported, because they mean nothing to other nodes. Syncs are not
reported, because a follower syncs by itself.
"""


class Replicator:
    """Hears every change of files. Paths are absolute; the implementation knows its data folder."""

    __slots__ = ()
    hears = True

    def created(self, path, size):
        """A file was created with ``size`` zero bytes."""
        raise NotImplementedError

    def folder_created(self, path):
        """An empty folder was created."""
        raise NotImplementedError

    def appended(self, file, start, end):
        """The bytes [start, end) were written for the first time. A log now ends at ``end``; a mapped file
        has kept its size.
        """
        raise NotImplementedError

    def overwritten(self, file, start, end):
        """The content of [start, end) was changed."""
        raise NotImplementedError

    def resized(self, path, size):
        """The file was cut to ``size``, or extended to it with zeros."""
        raise NotImplementedError

    def renamed(self, source, target):
        """A file or folder was renamed to ``target``, and may have replaced a file of that name."""
        raise NotImplementedError

    def unlinked(self, path):
        """A file was unlinked."""
        raise NotImplementedError

    def folder_removed(self, path):
        """An empty folder was removed."""
        raise NotImplementedError


class NullReplicator(Replicator):
    """A listener that ``storage.disk.files`` never calls, for a broker without followers."""

    __slots__ = ()
    hears = False

    def created(self, path, size):
        pass

    def folder_created(self, path):
        pass

    def appended(self, file, start, end):
        pass

    def overwritten(self, file, start, end):
        pass

    def resized(self, path, size):
        pass

    def renamed(self, source, target):
        pass

    def unlinked(self, path):
        pass

    def folder_removed(self, path):
        pass
