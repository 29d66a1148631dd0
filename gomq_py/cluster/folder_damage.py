"""Folder damage: notes in ``.cluster`` that damage was found in a leader's data folder.

No follower syncs from such a folder until an operator accepts the damage.
"""
from collections.abc import Callable

from gomq_py.cluster.identity import Identity, IdentityFile
from gomq_py.observability.log import logger

LOG = logger("cluster")
# What a follower is answered, and what the log says. What an operator can do in its place is the caller's.
DAMAGED = (
    "this leader has found damage in its data folder (see its log), and the follower's copy may be the only "
    "sound one: {}, or let it sync all the same with 'gomq-py-ctl accept_damage' on the leader")


class FolderDamage:
    """Damage of the data folder whose ``.cluster`` is ``file``.

    ``count()`` returns the number of damages that the broker has found in this run. ``is_accepted``: an
    operator has accepted the damage.
    """

    def __init__(self, file: IdentityFile, count: Callable[[], int]):
        self._file, self._count = file, count
        self._accepted_count = 0
        self._is_found = self.is_accepted = False

    def note(self) -> None:
        """Mark the folder as damaged in ``.cluster``, if there is damage that no operator has accepted.

        Raises OSError. May switch greenlets.
        """
        if self._is_found or self._count() > self._accepted_count:
            self._file.change(damaged=True)

    def found(self, what: str) -> None:
        """Log and note damage that a sync has found. ``count`` does not include it.

        ``what``: text for the log. Raises OSError. May switch greenlets.
        """
        LOG.error("damaged: %s", what)
        self._is_found = True
        self.note()

    def accept(self) -> None:
        """Note that all present damage is accepted. Raises OSError. May switch greenlets."""
        self._accepted_count = self._count()
        self._is_found, self.is_accepted = False, True
        self._file.change(damaged=False)


def why_no_sync(identity: Identity, remedy: str) -> str:
    """Return the reason why no follower may sync from the folder with this Identity, or "".

    ``remedy``: text on how to make another node the leader.
    """
    return DAMAGED.format(remedy) if identity.damaged else ""
