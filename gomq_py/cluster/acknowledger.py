"""Acknowledger: makes a leader's confirms wait for the in-sync followers, after the leader's own disk.

``storage.flush.durability`` calls the Acknowledger when the local disk has the changes. The links to
followers call ``acknowledged`` when a follower has flushed. Never switches greenlets.
"""
from collections.abc import Callable

from gomq_py.cluster.core.promises import Promises


class Acknowledger:
    """Delays confirms until the followers have the changes. Must be added to the Durability before listeners
    open.

    ``promises``: a core.promises.Promises. ``counts_received``: a change counts once a follower has received
    it, because nothing is flushed (--no-sync).
    """

    __slots__ = ("counts_received", "promises", "acknowledged", "_want")

    def __init__(
            self, promises: Promises, want: Callable[[int, bool], None], counts_received: bool = False):
        self.counts_received = counts_received
        self.promises = promises
        self._want = want
        self.acknowledged: Callable[[str, int], None] = promises.acknowledged

    def when_safe(self, position: int, callback: Callable) -> None:
        """Call ``callback`` once the required followers have the changes up to ``position``: Promises.ask."""
        self._want(position, not self.counts_received)
        self.promises.ask(position, callback)

    def __str__(self) -> str:
        return "the cluster"
