"""Elected leader: the parts that an elected node has while it leads: the Leader and the publishers' alarms.

Between cluster.elected, which makes one when the data folder is open, and leadership, which says when doors
may open. Ends with the process.
"""
from typing import Any

from gevent.event import Event

from gomq_py.cluster.leader import Leader
from gomq_py.cluster.leadership import Leadership
from gomq_py.cluster.publisher_holds import PublisherHolds
from gomq_py.cluster.stream import EventStream
from gomq_py.errors import ClusterError

# Longest time for the nodes in sync to take everything.
DRAIN_S = 5.0
# Alarm that holds publishers meanwhile.
LEADERSHIP = "leadership"


class ElectedLeader:
    """``leader``: the Leader, which listens. ``promises``: core.promises.Promises."""

    def __init__(
            self, leadership: Leadership, leader: Leader, stream: EventStream, promises: Any, hub: Any,
            alarms: Any, max_lag_octets: int):
        self.leader = leader
        self._leadership = leadership
        self._promises = promises
        self._alarms = alarms
        self._holds = PublisherHolds(
            alarms, leader, stream, lambda: leadership.in_sync.required, max_lag_octets)
        leadership.serve(hub.gate, alarms, leader, self._holds)

    def wait_until_open(self) -> None:
        """Wait until doors may open. May switch."""
        self._leadership.start()
        self._leadership.opened.wait()

    def wait_for_the_end(self) -> None:
        """Wait until the node is closed. Never returns. May switch."""
        Event().wait()

    @property
    def has_others(self) -> bool:
        """Whether another node is in sync, too."""
        return len(self._leadership.in_sync.members) > 1

    def check_transfer(self) -> None:
        """Raise ClusterError if no other node can lead now."""
        if not self._leadership.opened.is_set() or self._leadership.is_fenced:
            raise ClusterError("this node does not lead, or does not know whether it does")
        if not self.has_others:
            raise ClusterError("no other node is in sync: this one would have to come back at once")

    def drain(self) -> frozenset[str]:
        """Hold publishers until every node in sync has everything on its disk, for DRAIN_S at most. Returns
        the nodes that lack something; if none does, publishers stay held. May switch.
        """
        self._alarms.set(LEADERSHIP, LEADERSHIP, "another node is to lead")
        lacking = self.leader.drain(self._leadership.in_sync.required, DRAIN_S)
        if lacking:
            self._alarms.clear(LEADERSHIP)
        return lacking

    def figures(self) -> dict[str, Any]:
        """The leader's part of the answer to /api/cluster."""
        return {"fenced": self._leadership.is_fenced, "promises": len(self._promises)}

    def close(self) -> None:
        """Send followers the changes up to now, and close their connections. May switch."""
        self.leader.close()
        self._holds.close()
