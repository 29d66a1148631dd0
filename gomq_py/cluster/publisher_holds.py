"""Publisher holds: alarms that block a leader's publishers while its followers cannot keep up.

Publishers are blocked while fewer than ``min_isr`` nodes are in sync, because no confirm is sent then. They
are also blocked while a required follower is far behind. The changes that it lacks are in memory, and once
they are dropped the follower needs a full sync. Only ``close`` switches greenlets.
"""
from collections.abc import Callable, Iterable
from typing import Any

import gevent

from gomq_py.cluster.leader import Leader
from gomq_py.cluster.stream import EventStream

# What the broker is low on, as operators and the clients of connection.blocked read it.
IN_SYNC_FOLLOWERS, FOLLOWER_THROUGHPUT = "in-sync followers", "follower throughput"
# Part of the kept frames that a follower in sync may lack; changes that come before publishers are held
# need the rest.
KEPT_PART = 3 / 4
# Part of the limit by which a follower may be behind when publishers go on: a small step, and they would stop
# and go all the time.
RESUME_PART = 1 / 2
LOOK_S = 0.1
MB = 1_000_000


class PublisherHolds:
    """Sets and clears alarms in a broker's Alarms.

    ``required()`` returns the ids of the nodes that confirms wait for. ``max_lag_octets``: bytes of changes
    that such a node may lack before publishers are blocked.
    """

    def __init__(
            self, alarms: Any, leader: Leader, stream: EventStream, required: Callable[[], Iterable[str]],
            max_lag_octets: int):
        self._alarms = alarms
        self._leader = leader
        self._stream = stream
        self._required = required
        self._most = max_lag_octets, int(stream.kept_most * KEPT_PART)
        self._next = 0, 0  # the stream's octets and made at which to look again
        self._is_due = False
        self._watcher: Any = None
        stream.wakes.add(self._grown)

    def close(self) -> None:
        """Clear the alarms, and stop watching followers. May switch greenlets."""
        self._stream.wakes.discard(self._grown)
        watcher, self._watcher = self._watcher, None
        if watcher is not None:
            watcher.kill()
        self._alarms.clear(IN_SYNC_FOLLOWERS)
        self._alarms.clear(FOLLOWER_THROUGHPUT)

    def count(self, in_sync: int, least: int) -> None:
        """Block publishers while ``in_sync``, the number of in-sync nodes, is below ``least``."""
        text = f"{in_sync} of the {least} nodes that min_isr asks for are in sync"
        if in_sync < least:
            self._alarms.set(IN_SYNC_FOLLOWERS, IN_SYNC_FOLLOWERS, text)
        else:
            self._alarms.clear(IN_SYNC_FOLLOWERS)

    # helpers

    def _grown(self) -> None:
        """Schedule a check of the followers' lag, if one may be too far behind. Called for each frame."""
        octets, made = self._next
        if (self._stream.octets > octets or self._stream.made > made) and not self._is_due:
            self._is_due = True
            gevent.get_hub().loop.run_callback(self._look)

    def _look(self) -> None:
        self._is_due = False
        stream = self._stream
        if self._watcher is not None or self._grown not in stream.wakes:
            return
        behind = self._leader.behind(self._required())
        if any(octets > most for octets, most in zip(behind, self._most, strict=True)):
            self._alarms.set(
                FOLLOWER_THROUGHPUT, FOLLOWER_THROUGHPUT,
                f"a follower in sync is {behind[0] // MB} MB of changes behind")
            self._watcher = gevent.spawn(self._watch)
            self._watcher.name = "cluster: waits for a follower"
        else:
            self._next = (
                stream.octets - behind[0] + self._most[0], stream.made - behind[1] + self._most[1])

    def _watch(self) -> None:
        """Wait until the slow follower has caught up or is not required, then clear the alarm.

        May switch greenlets.
        """
        while any(
                octets > most * RESUME_PART
                for octets, most in zip(self._leader.behind(self._required()), self._most, strict=True)):
            gevent.sleep(LOOK_S)
        self._watcher = None
        self._alarms.clear(FOLLOWER_THROUGHPUT)
