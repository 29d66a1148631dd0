"""Folder damage: notes in ``.cluster`` that damage was found in a leader's data folder.

No follower syncs from such a folder, until an operator accepts the damage.
"""
from collections.abc import Callable
from typing import Any

from gomq_py.cluster import identity as identities
from gomq_py.cluster.identity import Identity
from gomq_py.hub.threads import in_thread
from gomq_py.observability.log import logger

LOG = logger("cluster")
# What a follower is answered, and what the log says.
DAMAGED = (
    "this leader has found damage in its data folder (see its log), and the follower's copy may be the only "
    "sound one: promote the follower, or let it sync all the same with 'gomq-py-ctl accept_damage' on the "
    "leader")


class FolderDamage:
    """Damage of the data folder ``root``. ``count()``: number of damages found in this run. ``is_accepted``:
    an operator has accepted the folder's content.
    """

    def __init__(self, files: Any, root: str, count: Callable[[], int]):
        self._files, self._root = files, root
        self._count = count
        self._accepted_count = 0
        self._is_found = self.is_accepted = False

    def noted(self, identity: Identity) -> Identity:
        """Save the present ``damaged`` in the folder's Identity. Returns the Identity. Raises OSError. May
        switch.
        """
        return self._noted(
            identity, identity.damaged or self._is_found or self._count() > self._accepted_count)

    def found(self, identity: Identity, what: str) -> Identity:
        """Save damage that only a sync has met. Returns the Identity. Raises OSError. May switch."""
        LOG.error("damaged: %s", what)
        self._is_found = True
        return self.noted(identity)

    def accepted(self, identity: Identity) -> Identity:
        """Save that all damage up to now counts for nothing. Returns the Identity. Raises OSError. May
        switch.
        """
        self._accepted_count = self._count()
        self._is_found, self.is_accepted = False, True
        return self._noted(identity, False)

    def _noted(self, identity: Identity, damaged: bool) -> Identity:
        if identity.damaged != damaged:
            identity = identity._replace(damaged=damaged)
            in_thread(identities.write, self._files, self._root, identity)
        return identity


def why_no_sync(identity: Identity) -> str:
    """Why no follower may sync from the folder with this Identity, or ""."""
    return DAMAGED if identity.damaged else ""
