"""Coordinator: the interface to what a cluster agrees by, which is etcd (``cluster.etcd``) or a model of it.
"""
from collections.abc import Callable
from typing import Protocol

from gomq_py.cluster.core.records import View
from gomq_py.cluster.core.transactions import Outcome, Transaction


class Watch(Protocol):
    """A running watch."""

    def close(self) -> None:
        """End it; ``wake`` is not called any more."""


class Coordinator(Protocol):
    """Keeps a cluster's keys. Reads are linearizable: what is read contains every change that was answered
    before. Every method may switch, and raises CoordinatorError if what was asked was certainly not done,
    Unanswered if nobody knows.
    """

    def read(self) -> View:
        """All keys at one revision."""

    def transact(self, transaction: Transaction) -> Outcome:
        """Do the operations if the comparisons hold. It is sent once: after Unanswered it may be done at any
        later time, but never twice.
        """

    def grant(self, ttl_s: float) -> int:
        """A new lease, never 0, which ends ``ttl_s`` seconds after its last keepalive."""

    def keep_alive(self, lease: int) -> bool:
        """Renew a lease. False: it has ended."""

    def revoke(self, lease: int) -> None:
        """End a lease; its keys go."""

    def watch(self, wake: Callable[[], None]) -> Watch:
        """Call ``wake()`` after every change, and whenever one may have been missed. ``wake`` neither
        switches nor raises; a woken caller reads everything.
        """
