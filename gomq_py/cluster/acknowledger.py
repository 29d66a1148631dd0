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

    __slots__ = ("counts_received", "promises", "when_safe", "acknowledged")

    def __init__(self, promises: Promises, counts_received: bool = False):
        self.counts_received = counts_received
        self.promises = promises
        self.when_safe: Callable = promises.ask
        self.acknowledged: Callable[[str, int], None] = promises.acknowledged

    def __str__(self) -> str:
        return "the cluster"
