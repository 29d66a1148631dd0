"""Transactions: operations that the coordinator does in one step if all comparisons hold, and their outcome.
Keys are relative to the cluster's prefix (see ``records``).
"""
from typing import NamedTuple

from gomq_py.cluster.core.records import View

CREATE, MOD = "create", "mod"


class Compare(NamedTuple):
    """True if the ``target`` revision of the key is ``revision``. 0: the key is absent."""

    key: str
    target: str
    revision: int


class Put(NamedTuple):
    """Write a value. ``lease``: the key is deleted when this lease, which must exist, ends; 0: none."""

    key: str
    value: bytes
    lease: int = 0


class Delete(NamedTuple):
    """Delete a key, which may be absent."""

    key: str


class Transaction(NamedTuple):
    """If all ``compares`` hold, all ``operations`` are done, else none."""

    compares: tuple[Compare, ...]
    operations: tuple[Put | Delete, ...]


class Outcome(NamedTuple):
    """``is_done``: whether the operations were done. ``view``: a View read after them, in one transaction."""

    is_done: bool
    view: View


class CoordinatorError(Exception):
    """A request to the coordinator was certainly not carried out. The text says why."""


class Unanswered(Exception):
    """It is unknown whether a request to the coordinator was or will be carried out."""
