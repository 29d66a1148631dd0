"""Errors of storage: faults of the broker or its disk, never of a client. The broker logs these errors with
their causes. An error of a store closes its queue, not the broker.
"""


class DataDirError(Exception):
    """The data folder cannot be used. The text is one line for the operator."""


class StoreError(Exception):
    """A store cannot carry out a call. ``path``: the file. ``position``: bytes from its start. ``reason``:
    text for the operator.
    """

    def __init__(self, path, position, reason):
        super().__init__(path, position, reason)
        self.path = path
        self.position = position
        self.reason = reason

    def __str__(self):
        return f"{self.path} at {self.position}: {self.reason}"


class StoreFull(StoreError):
    """The disk has no space for another segment. The store stays open, and the next append tries again."""


class StoreLater(StoreError):
    """Nothing was appended, because a thread must first make files. Raised only for messages with
    ``may_wait``.

    ``wait(callback)`` returns at once, and later calls ``callback(error or None)``; then append again.
    """

    def __init__(self, path, wait):
        super().__init__(path, 0, "the files of a new segment have to be made first")
        self.wait = wait


class StoreClosed(StoreError):
    """The store was closed, or stopped after a failed flush or another I/O error."""
