"""Acknowledger: makes a leader's confirms wait for the followers in sync, after its own disk.

Called by ``storage.flush.durability`` when the local disk has the changes, and by the links to followers when
these have flushed. Never switches.
"""
from collections.abc import Callable

from gomq_py.cluster.core.promises import Promises


class Acknowledger:
    """Waits by ``promises`` (core.promises.Promises). Must be added to the Durability before doors open.
    ``counts_received``: a change counts once a follower has received it, because the leader itself flushes
    nothing (--no-sync).
    """

    __slots__ = ("counts_received", "promises", "acknowledged", "_want")

    def __init__(
            self, promises: Promises, want: Callable[[int, bool], None], counts_received: bool = False):
        self.counts_received = counts_received
        self.promises = promises
        self._want = want
        self.acknowledged: Callable[[str, int], None] = promises.acknowledged

    def when_safe(self, position: int, callback: Callable) -> None:
        """See Promises.ask."""
        self._want(position, not self.counts_received)
        self.promises.ask(position, callback)

    def __str__(self) -> str:
        return "the cluster"
