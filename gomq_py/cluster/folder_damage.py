"""Folder damage: whether a leader's data folder has lost something, so that nobody may sync from it.

Damage that was found is noted in ``.cluster``; an operator may accept it.
"""
from collections.abc import Callable
from typing import Any

from gomq_py.cluster import identity as identities
from gomq_py.cluster.identity import Identity
from gomq_py.cluster.membership import DAMAGED
from gomq_py.hub.threads import in_thread


class FolderDamage:
    """Of the folder ``root``. ``count()``: of damage found in this run, once ``watch`` has told it."""

    def __init__(self, files: Any, root: str):
        self._files, self._root = files, root
        self._count: Callable[[], int] = int
        self._accepted_count = 0

    def watch(self, count: Callable[[], int]) -> None:
        """Ask ``count()`` from now on."""
        self._count = count

    def noted(self, identity: Identity) -> Identity:
        """The folder's Identity with what is known now, on the disk. Raises OSError. May switch."""
        return self._noted(identity, identity.damaged or self._count() > self._accepted_count)

    def accepted(self, identity: Identity) -> Identity:
        """The same, for an operator who wants the folder as it is. Raises OSError. May switch."""
        self._accepted_count = self._count()
        return self._noted(identity, False)

    def _noted(self, identity: Identity, damaged: bool) -> Identity:
        if identity.damaged != damaged:
            identity = identity._replace(damaged=damaged)
            in_thread(identities.write, self._files, self._root, identity)
        return identity


def why_no_sync(identity: Identity) -> str:
    """Why nobody may sync from a folder, or ""."""
    return DAMAGED if identity.damaged else ""
