"""Coordinator: the interface to a cluster's shared keys.

The keys are stored in etcd (``cluster.etcd``), or in a model of it in tests.
"""
from collections.abc import Callable
from typing import Protocol

from gomq_py.cluster.core.records import View
from gomq_py.cluster.core.transactions import Outcome, Transaction


class Watch(Protocol):
    """A running watch of the keys."""

    def close(self) -> None:
        """End the watch. ``wake`` is not called any more."""


class Coordinator(Protocol):
    """Keeps a cluster's keys.

    Reads are linearizable: a read contains every change that was answered before. Every method may switch
    greenlets. It raises CoordinatorError if the request was certainly not carried out, and Unanswered if that
    is unknown.
    """

    def read(self) -> View:
        """Read all keys at one revision."""

    def transact(self, transaction: Transaction) -> Outcome:
        """Do the operations if the comparisons hold.

        The transaction is sent once. After Unanswered it may be carried out at any later time, but never
        twice.
        """

    def grant(self, ttl_s: float) -> int:
        """Create a lease that ends ``ttl_s`` seconds after its last keepalive. Returns its id, never 0."""

    def keep_alive(self, lease: int) -> bool:
        """Renew a lease. Returns False if it has ended."""

    def revoke(self, lease: int) -> None:
        """End a lease and delete the keys that belong to it."""

    def watch(self, wake: Callable[[], None]) -> Watch:
        """Call ``wake()`` after every change, and whenever a change may have been missed.

        The caller must then read all keys. ``wake`` neither switches greenlets nor raises.
        """
