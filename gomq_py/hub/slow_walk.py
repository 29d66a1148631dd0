"""Slow walk: how long connections may keep the hub busy with frames of the slow lane
before others have their turn.

Beside connection, which asks after every such frame, and before it looks for a route that is not remembered.
A read of 64 KiB holds 2000 declares, which are a tenth of a second: ten clients that send nothing else would
make everybody wait for a second. What is left of a read when its time is over is walked later, one connection
for each poll of the loop, so that all who are busy in this way take together what one of them may take alone.
"""
import time
from collections import deque

from gomq_py.hub.job import Job

# About as long as a read of the fast lane takes at most, so that both lanes are as fair.
WALK_S = 0.002


class Turns(Job):
    """The holds of those that wait for their next turn, over all connections of a server."""

    name = "slow connections"

    def __init__(self, scheduler):
        super().__init__()
        self._scheduler = scheduler
        self._waiting = deque()

    def wait(self, stream):
        """Hold a stream until it is its turn."""
        self._waiting.append(stream.hold("its turn"))
        self._scheduler.start(self)

    def step(self):
        self._waiting.popleft().release()
        return bool(self._waiting)

    def failed(self, error):
        """A connection could not go on; the next ones can."""
        return bool(self._waiting)


class SlowWalk:
    """The walk of one connection's ``stream``."""

    __slots__ = ("_stream", "_turns", "_ends_at", "has_begun")

    def __init__(self, stream, turns):
        self._stream = stream
        self._turns = turns
        self._ends_at = 0.0
        self.has_begun = False  # whether its time counts

    def is_over(self):
        """Whether the walk has had its time, which counts from the first question on."""
        now = time.monotonic()
        if not self.has_begun:
            self.has_begun = True
            self._ends_at = now + WALK_S
            return False
        return now >= self._ends_at

    def has_time(self):
        """After a frame: may the walk go on? If not it is gone on with later."""
        if not self.is_over():
            return True
        self._turns.wait(self._stream)
        return False

    def done(self):
        """The walk is over, one way or the other."""
        self.has_begun = False
