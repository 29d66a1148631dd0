"""Coordinator: the interface to a cluster's shared keys, which are in etcd (``cluster.etcd``) or a model of
it.
"""
from collections.abc import Callable
from typing import Protocol

from gomq_py.cluster.core.records import View
from gomq_py.cluster.core.transactions import Outcome, Transaction


class Watch(Protocol):
    """A running watch."""

    def close(self) -> None:
        """End the watch; ``wake`` is not called any more."""


class Coordinator(Protocol):
    """Keeps a cluster's keys. Reads are linearizable: they contain every change that was answered before.
    Every method may switch, and raises CoordinatorError if the request was certainly not carried out,
    Unanswered if that is unknown.
    """

    def read(self) -> View:
        """All keys at one revision, as a View."""

    def transact(self, transaction: Transaction) -> Outcome:
        """Do the operations if the comparisons hold. The transaction is sent once: after Unanswered it may be
        carried out at any later time, but never twice.
        """

    def grant(self, ttl_s: float) -> int:
        """A new lease, never 0, which ends ``ttl_s`` seconds after its last keepalive."""

    def keep_alive(self, lease: int) -> bool:
        """Renew a lease. Returns False if it has ended."""

    def revoke(self, lease: int) -> None:
        """End a lease and delete its keys."""

    def watch(self, wake: Callable[[], None]) -> Watch:
        """Call ``wake()`` after every change, and whenever a change may have been missed; the caller must
        then read all keys. ``wake`` neither switches nor raises.
        """
