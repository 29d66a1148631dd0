"""Acknowledger: what a leader's promises wait for besides its own disk: the followers that are in sync.

Between ``storage.flush.durability``, which asks when the local disk has the changes, and the links to
followers, which tell what those have flushed. Nothing here switches.
"""
from collections.abc import Callable

from gomq_py.cluster.core.promises import Promises


class Acknowledger:
    """Asks ``promises``. ``counts_received``: what a follower has received is enough, since the leader itself
    flushes nothing (--no-sync).

    Add it to the Durability before doors open: it knows then which followers are required, and holds all
    promises until it does.
    """

    __slots__ = ("counts_received", "promises", "when_safe", "acknowledged")

    def __init__(self, promises: Promises, counts_received: bool = False):
        self.counts_received = counts_received
        self.promises = promises
        self.when_safe: Callable = promises.ask
        self.acknowledged: Callable[[str, int], None] = promises.acknowledged

    def __str__(self) -> str:
        return "the cluster"
