"""Transactions: operations that the coordinator does in one step if all comparisons hold.

Keys are relative to the cluster's prefix (see ``records``).
"""
from typing import NamedTuple

from gomq_py.cluster.core.records import View

CREATE, MOD = "create", "mod"


class Compare(NamedTuple):
    """Holds if the ``target`` revision (CREATE or MOD) of the key is ``revision``. 0: the key is absent."""

    key: str
    target: str
    revision: int


class Put(NamedTuple):
    """An operation that writes a value. ``lease``: the key is deleted when this lease ends; 0 for none."""

    key: str
    value: bytes
    lease: int = 0


class Delete(NamedTuple):
    """An operation that deletes a key, which may be absent."""

    key: str


class Transaction(NamedTuple):
    """Operations that are all done if all ``compares`` hold; otherwise none is done."""

    compares: tuple[Compare, ...]
    operations: tuple[Put | Delete, ...]


class Outcome(NamedTuple):
    """The result of a transaction.

    ``is_done``: the comparisons held. ``view``: all keys, read in the same transaction after the operations.
    """

    is_done: bool
    view: View


class CoordinatorError(Exception):
    """A request to the coordinator was certainly not carried out. The text says why."""


class Unanswered(Exception):
    """A request to the coordinator may have been carried out, now or later; the outcome is unknown."""
