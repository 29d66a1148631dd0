"""Member: the part of an elected node that owns the data folder, the follower and the broker.

Steered by coordination, implemented by elected.
"""
from typing import NamedTuple, Protocol

from gomq_py.cluster.leadership import Leadership


class Folder(NamedTuple):
    """The state of a member's data folder: arguments of core.elector.Elector.folder."""

    cluster: str
    epoch: int
    is_whole: bool = True
    is_damaged: bool = False
    is_copy: bool = False
    position: int = 0


class Member(Protocol):
    """The part of a node that a Coordination steers. Every method may switch."""

    @property
    def folder(self) -> Folder:
        """The data folder's state now."""

    @property
    def hears_leader(self) -> bool:
        """Whether a heartbeat of the followed leader came within the last second."""

    def hangs(self) -> bool:
        """Whether a flush or a look at the disk has hung for so long that another node is to lead."""

    def follow_leader(self, address: str) -> str:
        """Follow the leader at "host:port". Returns why that is impossible, or ""."""

    def settle(self) -> bool:
        """End the link to the leader, and flush all received changes. Returns whether the folder has them
        all.
        """

    def take(self, cluster: str, epoch: int) -> None:
        """Write cluster and epoch into the folder, flushed. Raises ClusterError, OSError."""

    def note(self, position: int) -> None:
        """Write the position of this leader's changes up to which the folder has all; flushed. Raises
        OSError.
        """

    def elected(self, leadership: Leadership, is_first: bool) -> None:
        """Begin to lead, in a greenlet of its own: read the folder, call ``leadership.start()``, and open
        doors once ``leadership.opened`` is set. ``is_first``: no door of this cluster has been open yet, so
        that an empty folder has lost nothing.
        """

    def lead_on(self, epoch: int) -> None:
        """Go on as leader in a higher epoch."""

    def end_links(self) -> None:
        """End the links to followers, which promise nothing any more. A follower that hears a leader lets it
        be elected again first.
        """

    def deposed(self, reason: str) -> None:
        """Stop leading or following. This Coordination has ended."""
