"""Transactions: what the coordinator does in one step if all comparisons hold, and what comes back.

Keys are relative to the cluster's prefix (see ``records``).
"""
from typing import NamedTuple

from gomq_py.cluster.core.records import View

CREATE, MOD = "create", "mod"


class Compare(NamedTuple):
    """The ``target`` revision of the key is ``revision``. 0: the key is absent."""

    key: str
    target: str
    revision: int


class Put(NamedTuple):
    """Write a value. ``lease``: the key goes when it ends; 0 for none. The lease must be alive."""

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
    """``is_done``: whether the operations were done. ``view``: read in the same transaction, behind them."""

    is_done: bool
    view: View


class CoordinatorError(Exception):
    """What was asked of the coordinator was certainly not done; the text says why."""


class Unanswered(Exception):
    """Nobody knows whether what was asked of the coordinator was done, or will be."""
