"""Turns: how long work may keep the loop busy before everybody else has theirs.

``give_way`` and ``paced`` are for work in one greenlet that somebody waits for: answers of the management
door, an import of definitions. Work that nobody waits for is a job of the scheduler's.

Turns and SlowWalk share the time of each poll among connections that are busy with frames of the slow lane. A
connection asks after every such frame, and before it looks for a route that is not remembered; net.websocket
and net.tls ask, too, whose frames and handshakes are as slow. A read of 64 KiB holds 2000 declares, which are
a tenth of a second, and 2700 frames of a WebSocket; a handshake takes most of a millisecond: clients that
send nothing else would make everybody wait for a second. All of them together have WALK_S of each poll of the
loop; what is left when that is over waits for its turn, so that all who are busy in this way take together
what one of them may take alone.
"""
import time
from bisect import insort
from collections import deque

import gevent
from gevent.event import Event

from gomq_py.hub.job import Job, SliceClock

# Any time there is: what counts is that it takes the loop through a poll.
_SHORTEST_S = 1e-4
# About as long as a read of the fast lane takes at most, so that both lanes are as fair.
WALK_S = 0.002
# Turns that begin at one poll, where those of the poll before needed less than their time: after a restart
# of the network thousands wait who have little to do.
MOST_AT_ONCE = 64


def give_way():
    """Let the loop look at every socket and timer before going on. May switch.

    ``gevent.sleep(0)`` does not: gevent runs up to 50 such callbacks between two polls, which with slices of
    2 ms held messages up for 100 ms.
    """
    gevent.sleep(_SHORTEST_S)


def paced(objects, every=1):
    """The objects, giving way when what is done with them has had a slice's time. A generator; may switch.

    ``every``: objects between two looks at the clock, where nothing that is done with one takes
    more than some microseconds.
    """
    clock = SliceClock(every=every)
    for one in objects:
        yield one
        if clock.is_over():
            give_way()
            clock.begin()


class Turns(Job):
    """The time of each poll, and those that wait for their next turn, over all connections of a server."""

    name = "slow connections"

    def __init__(self, scheduler):
        super().__init__()
        self._scheduler = scheduler
        # functions that begin a turn: of streams, of call(), of greenlets
        self._held, self._called, self._waiting = deque(), deque(), deque()
        # Each has every third turn where all wait: a client's one frame does not wait until thousands have
        # ended, or have come back.
        self._lines = deque((self._held, self._called, self._waiting))
        self._late = []  # [number, function] of greenlets that came too late in theirs, the oldest first
        self._taken = 0
        self._is_closed = False
        self._loop = None
        self._poll = -1  # of which this is the time
        self._ends_at = 0.0
        self._was_over = False
        self._at_once = 1

    def has_time(self):
        """May slow work go on, or begin, in this poll? The first one who asks always may."""
        loop = self._loop
        if loop is None:
            loop = self._loop = gevent.get_hub().loop
        now, poll = time.monotonic(), loop.iteration
        if poll != self._poll:
            self._poll = poll
            self._ends_at = now + WALK_S
            self._was_over = False
            return True
        if now < self._ends_at:
            return True
        self._was_over = True
        return False

    def wait(self, stream):
        """Hold a stream until it is its turn."""
        self._held.append(stream.hold("its turn").release)
        self._scheduler.start(self)

    def call(self, function):
        """Call ``function()``, which does slow work and does not switch, when it is its turn: at once, as a
        rule.
        """
        if self._is_free():
            function()
        else:
            self._called.append(function)
            self._scheduler.start(self)

    def take(self):
        """Return when the caller, a greenlet, may begin slow work: at once, as a rule. May switch."""
        if self._is_free():
            return
        self._taken += 1
        number, mine = self._taken, Event()
        self._waiting.append(mine.set)
        self._scheduler.start(self)
        mine.wait()
        if not self._is_closed and not self.has_time():
            # Others were quicker in this poll: in the next it goes before them, whatever there is of time.
            mine.clear()
            insort(self._late, (number, mine.set))
            self._scheduler.start(self)
            mine.wait()
            self.has_time()  # so that its time counts

    def finish(self):
        """All turns begin now, and nobody waits for one any more."""
        self._is_closed = True
        while self._begin_next():
            pass

    def _is_free(self):
        return self._is_closed or not self._are_waiting() and self.has_time()

    def _are_waiting(self):
        return bool(self._late) or any(self._lines)

    def step(self):
        self._at_once = 1 if self._was_over else min(2 * self._at_once, MOST_AT_ONCE)
        for _ in range(self._at_once):
            if not self._begin_next() or not self.has_time():
                break
        return self._are_waiting()

    def _begin_next(self):
        if self._late:
            self._late.pop(0)[1]()
            return True
        for _ in self._lines.copy():
            line = self._lines[0]
            self._lines.rotate(-1)
            if line:
                line.popleft()()
                return True
        return False

    def failed(self, error):
        """A connection could not go on, or to its end; the next ones can."""
        return self._are_waiting()


class SlowWalk:
    """The walk of one connection's ``stream``."""

    __slots__ = ("_stream", "_turns")

    def __init__(self, stream, turns):
        self._stream = stream
        self._turns = turns

    def is_over(self):
        """Whether the walks of this poll have had their time, which counts from the first question on."""
        return not self._turns.has_time()

    def has_time(self):
        """After a frame: may the walk go on? If not it is gone on with later."""
        if self._turns.has_time():
            return True
        self._turns.wait(self._stream)
        return False
