"""Member: interface of one part of a node. This part owns the data folder, the follower and the broker.

Called by ``coordination``; implemented by ``elected``.
"""
from typing import NamedTuple, Protocol

from gomq_py.cluster.leadership import Leadership


class Folder(NamedTuple):
    """The state of a member's data folder: the arguments of core.elector.Elector.folder."""

    cluster: str
    epoch: int
    is_whole: bool = True
    is_damaged: bool = False
    is_copy: bool = False
    position: int = 0


class Member(Protocol):
    """The part of a node that a Coordination controls. Every method may switch greenlets."""

    @property
    def folder(self) -> Folder:
        """The present state of the data folder."""

    @property
    def hears_leader(self) -> bool:
        """Whether the followed leader has sent something within the last second."""

    def hangs(self) -> bool:
        """Whether a flush or a check of the disk has hung so long that another node must lead."""

    def follow_leader(self, address: str) -> str:
        """Follow the leader at "host:port". Returns the reason why that is impossible, or ""."""

    def settle(self) -> bool:
        """End the link to the leader, and flush all received changes. Returns whether that succeeded."""

    def take(self, cluster: str, epoch: int) -> None:
        """Write the cluster's id and the epoch into ``.cluster``, flushed. Raises ClusterError, OSError."""

    def note(self, position: int) -> None:
        """Write and flush the position up to which the folder has this leader's changes. Raises OSError."""

    def elected(self, leadership: Leadership, is_first: bool) -> None:
        """Begin to lead, in a separate greenlet.

        The greenlet reads the folder, calls ``leadership.start()``, and opens listeners once
        ``leadership.opened`` is set. ``is_first``: no node of this cluster has served clients yet, so an
        empty folder lacks nothing.
        """

    def lead_on(self, epoch: int) -> None:
        """Continue as leader in a higher epoch."""

    def end_links(self) -> None:
        """End the links to followers, because this node stops leading.

        A follower that kept its link would wait before it campaigns, and this node could be elected again.
        """

    def deposed(self, reason: str) -> None:
        """Stop leading or following. The Coordination that calls this has ended."""
