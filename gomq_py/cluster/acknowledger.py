"""Acknowledger: makes each confirm of a leader wait for the flushes of the in-sync followers.

``storage.flush.durability`` calls ``when_safe`` once the local disk has the changes. The Leader calls
``acknowledged`` when a follower has flushed. Never switches greenlets.
"""
from collections.abc import Callable

from gomq_py.cluster.core.promises import Promises


class Acknowledger:
    """Delays confirms until the required followers have the changes.

    Must be added to the Durability before listeners open. ``promises``: a core.promises.Promises.
    ``want(position, hurries)``: see EventStream.want. ``counts_received``: a change counts once a follower
    has received it, because nothing is flushed (--no-sync).
    """

    __slots__ = ("counts_received", "promises", "acknowledged", "_want")

    def __init__(
            self, promises: Promises, want: Callable[[int, bool], None], counts_received: bool = False):
        self.counts_received = counts_received
        self.promises = promises
        self._want = want
        self.acknowledged: Callable[[str, int], None] = promises.acknowledged

    def when_safe(self, position: int, callback: Callable) -> None:
        """Call ``callback(None)`` once the required followers have the first ``position`` events.

        If this node is deposed first, the call is ``callback(error)``.
        """
        self._want(position, not self.counts_received)
        self.promises.ask(position, callback)

    def __str__(self) -> str:
        return "the cluster"
