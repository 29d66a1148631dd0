"""Replicator: what the rest of the world is told about changes of files.

Owned by storage, called by ``storage.disk.files`` after each change that succeeded, once per batch; a
cluster's leader implements it by copying the same changes to its followers. The calls come in the order of
the changes, on the hub's thread, and must neither block nor raise: what cannot be sent at once is queued by
the implementation. Names are changed by threads, which also write behind the logs, and told of after: a
process that was killed may have changed what nobody heard of, so that a follower compares names and logs when
it comes back. ``file.read(start, end)`` gives a range as it is *now*, so it must be read before the call
returns.

Not told: unnamed files (transient queues), whose bytes mean nothing to anybody else, and syncs: a follower
syncs on its own account.
"""


class Replicator:
    """Hears every change. Paths are absolute strings; the implementation knows its data folder."""

    __slots__ = ()
    hears = True

    def created(self, path, size):
        """A file came to be, ``size`` zero octets long."""
        raise NotImplementedError

    def folder_created(self, path):
        """A folder came to be, empty."""
        raise NotImplementedError

    def appended(self, file, start, end):
        """[start, end) was written for the first time; a log is ``end`` long now, a mapped file has kept its
        size.
        """
        raise NotImplementedError

    def overwritten(self, file, start, end):
        """[start, end) holds something else than it did."""
        raise NotImplementedError

    def resized(self, path, size):
        """The file was cut to ``size``, or grew to it with zeros."""
        raise NotImplementedError

    def renamed(self, source, target):
        """A file or folder took another name; what had that name before is gone."""
        raise NotImplementedError

    def unlinked(self, path):
        """A file lost its name."""
        raise NotImplementedError

    def folder_removed(self, path):
        """An empty folder is gone."""
        raise NotImplementedError


class NullReplicator(Replicator):
    """A broker that has no followers. ``storage.disk.files`` does not even call it."""

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
