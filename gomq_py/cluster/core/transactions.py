"""Transactions: operations that the coordinator does in one step if all comparisons hold.

Keys are relative to the cluster's prefix (see ``records``).
"""
from typing import NamedTuple

from gomq_py.cluster.core.records import View

CREATE, MOD = "create", "mod"


class Compare(NamedTuple):
    """Holds if the ``target`` revision of the key (CREATE or MOD) is ``revision``. 0: the key is absent."""

    key: str
    target: str
    revision: int


class Put(NamedTuple):
    """Write a value. ``lease``: an existing lease, with which the key ends; 0 for none."""

    key: str
    value: bytes
    lease: int = 0


class Delete(NamedTuple):
    """Delete a key, which may be absent."""

    key: str


class Transaction(NamedTuple):
    """Do all ``operations`` if all ``compares`` hold, else none."""

    compares: tuple[Compare, ...]
    operations: tuple[Put | Delete, ...]


class Outcome(NamedTuple):
    """Result of a transaction. ``view``: all keys, read in the same transaction after the operations."""

    is_done: bool
    view: View


class CoordinatorError(Exception):
    """A request to the coordinator was certainly not carried out. The text says why."""


class Unanswered(Exception):
    """A request to the coordinator may have been carried out, now or later; the outcome is unknown."""
