"""Folder damage: notes in ``.cluster`` that damage was found in a leader's data folder.

No follower syncs from such a folder, until an operator accepts the damage.
"""
from collections.abc import Callable
from typing import Any

from gomq_py.cluster import identity as identities
from gomq_py.cluster.identity import Identity
from gomq_py.hub.threads import in_thread

# What a follower is answered, and what the log says.
DAMAGED = (
    "this leader has found damage in its data folder (see its log), and the follower's copy may be the only "
    "sound one: promote the follower, or let it sync all the same with 'gomq-py-ctl accept_damage' on the "
    "leader")


class FolderDamage:
    """Damage of the data folder ``root``. ``count()``: of damage found in this run."""

    def __init__(self, files: Any, root: str, count: Callable[[], int]):
        self._files, self._root = files, root
        self._count = count
        self._accepted_count = 0

    def noted(self, identity: Identity) -> Identity:
        """The folder's Identity, with ``damaged`` as it is now; on the disk. Raises OSError. May switch."""
        return self._noted(identity, identity.damaged or self._count() > self._accepted_count)

    def accepted(self, identity: Identity) -> Identity:
        """As ``noted``, but all damage up to now counts for nothing. Raises OSError. May switch."""
        self._accepted_count = self._count()
        return self._noted(identity, False)

    def _noted(self, identity: Identity, damaged: bool) -> Identity:
        if identity.damaged != damaged:
            identity = identity._replace(damaged=damaged)
            in_thread(identities.write, self._files, self._root, identity)
        return identity


def why_no_sync(identity: Identity) -> str:
    """Why no follower may sync from the folder with this Identity, or ""."""
    return DAMAGED if identity.damaged else ""
