"""Errors of storage: the broker's own faults, never a peer's.

The broker logs them with the state that explains them. They close one queue, not the broker.
"""


class DataDirError(Exception):
    """The data folder cannot be used; the text is one line for the operator."""


class StoreError(Exception):
    """A store cannot carry out a call: ``path`` of the file, ``position`` in it (octets from its start), and
    ``reason``, a text for the operator.
    """

    def __init__(self, path, position, reason):
        super().__init__(path, position, reason)
        self.path = path
        self.position = position
        self.reason = reason

    def __str__(self):
        return f"{self.path} at {self.position}: {self.reason}"


class StoreFull(StoreError):
    """The disk has no room for another segment. The store stays open: the next append tries again."""


class StoreLater(StoreError):
    """Nothing was appended, because a thread must first make files or folders. Raised only for messages with
    ``may_wait``. The caller appends again after ``wait(callback)`` has called ``callback(error or None)``;
    ``wait`` returns at once.
    """

    def __init__(self, path, wait):
        super().__init__(path, 0, "the files of a new segment have to be made first")
        self.wait = wait


class StoreClosed(StoreError):
    """The store was closed, or fenced (stopped) after a failed sync or another I/O error."""
