"""Folder of a node: operations in the order in which they were made, of which those behind the last flush may
go with the power.

    a number         a record is appended
    ("copy", n)      record n stands in another file, too
    BARRIER          what follows relies on a flush of all before
    ("drop", n)      the file in which record n was first is removed
"""
BARRIER = "barrier"


class Folder:
    """``operations``: as they read; ``flushed``: how many of them are on the disk. ``cluster`` ("" for none),
    ``epoch`` and the noted ``position`` are changed as a whole.
    """

    def __init__(self, node_id):
        self.node_id = node_id
        self.cluster, self.epoch, self.position = "", 0, 0
        self.operations = []
        self.flushed = 0
        self.gap = None  # where a flush has left out what was not flushed before
        self.is_torn = False  # a flush has failed: no later one brings what is behind the gap to the disk

    def copy(self):
        """As a backup has it."""
        copied = Folder(self.node_id)
        copied.cluster, copied.epoch, copied.position = self.cluster, self.epoch, self.position
        copied.operations = list(self.operations)
        copied.flushed, copied.gap, copied.is_torn = self.flushed, self.gap, self.is_torn
        return copied

    def flush(self, start, end):
        """Flush the operations from ``start`` to ``end``. A leader flushes what it has appended itself."""
        if start > self.flushed and self.gap is None:
            self.gap = self.flushed
        self.flushed = max(self.flushed, end)

    def flush_all(self):
        """Flush everything, whoever has written it."""
        self.flushed = len(self.operations)
        if not self.is_torn:
            self.gap = None

    def fail_flush(self):
        """Flush nothing, although the system takes what is not on the disk for flushed from now on."""
        if self.gap is None:
            self.gap = self.flushed
        self.is_torn = True

    def lose_power(self, random):
        """Lose any part of what was not flushed. Records are one file, cut where the first is missing."""
        kept_until = self.flushed if self.gap is None else self.gap
        operations, is_torn = self.operations[:kept_until], False
        for operation in self.operations[kept_until:]:
            is_lost = random.random() < 0.5
            if isinstance(operation, int):
                is_torn = is_torn or is_lost
                if not is_torn:
                    operations.append(operation)
            elif not is_lost:
                operations.append(operation)
        self.operations = operations
        self.is_torn = False  # what the system has kept is gone, too
        self.flush_all()

    def swap(self, operations, cluster, epoch):
        """Take a whole other state, flushed."""
        self.operations, self.cluster, self.epoch, self.position = operations, cluster, epoch, len(operations)
        self.is_torn = False
        self.flush_all()

    def raise_epoch(self, epoch, cluster=None):
        """Note the epoch of a leader, in which no position is noted yet."""
        self.cluster, self.epoch, self.position = cluster or self.cluster, epoch, 0

    def records(self, only_flushed=False):
        """The records that can be read, in order."""
        operations = self.operations
        if only_flushed:
            operations = operations[:self.flushed if self.gap is None else self.gap]
        moved = [one for one in operations if isinstance(one, tuple)]
        if not moved:
            return [one for one in operations if isinstance(one, int)]
        copied = {record for what, record in moved if what == "copy"}
        gone = {record for what, record in moved if what == "drop"} - copied
        return [one for one in operations if isinstance(one, int) and one not in gone]
