"""Unsynced: which queues must be on disk before the publishes of one read are answered.

A door's fast lane notes them per message; at the end of the read they go to promised. Never yields.
"""


class Unsynced:
    """``last``: the queues noted last, or None: a lane compares it in place, because most publishes go where
    the one before went.
    """

    __slots__ = ("last", "before")

    def __init__(self):
        self.last = self.before = None

    def add(self, queues):
        """A publish to these queues, a tuple, is answered when it is on disk."""
        if self.last is not None:
            if self.before is None:
                self.before = {}  # as an ordered set
            self.before[self.last] = None
        self.last = queues

    def take(self):
        """The tuples of queues added since the last call; empty: nothing has to be waited for."""
        queues, before, self.last, self.before = self.last, self.before, None, None
        if queues is None:
            return ()
        return (queues,) if before is None else (queues, *before)
