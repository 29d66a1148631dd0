"""Turns: limits how long work may keep the event loop busy before other work is done.

``give_way`` and ``paced`` are for greenlets whose result a client awaits, such as answers of the management
API or an import of definitions. Work without a waiting client is a Job of the scheduler.
PacedTurns is for pieces of work that begin one after the other, such as connects of links.

SlowTurns shares WALK_S of each poll of the event loop among connections with slow work: TLS handshakes,
WebSockets, and all frames but plain publishes and acks. A read of 64 KiB holds 2000 declares, which take a
tenth of a second; a handshake takes most of a millisecond. A connection checks its time after every such
frame, and before it looks for a route that is not cached.
"""
import time
from collections import deque
from functools import partial

import gevent
from gevent.event import Event

from gomq_py.hub.scheduler import Job, SliceClock

# Any short time: the timer sends the loop through a poll.
SHORTEST_S = 1e-4
# About as long as a read of the fast lane takes at most, so that both lanes are as fair.
WALK_S = 0.002
# Most turns that begin at one poll, if the turns of the last poll ended early: after a network failure
# thousands wait with little to do.
MOST_AT_ONCE = 64


def give_way():
    """Let the event loop serve all ready sockets and timers before the caller continues. May switch
    greenlets.
    """
    # ``gevent.sleep(0)`` is not enough: gevent runs up to 50 such callbacks between two polls, which with
    # slices of 2 ms delayed messages by 100 ms.
    gevent.sleep(SHORTEST_S)


def paced(objects, every=1):
    """Yield the objects, and let other work run whenever the caller has used up a time slice. May switch
    greenlets. ``every``: objects between two looks at the clock; above 1 only if an object takes a few
    microseconds.
    """
    clock = SliceClock(every=every)
    for one in objects:
        yield one
        if clock.is_over():
            give_way()
            clock.begin()


class Line:
    """Waiters in rows, one row per user or address. Rows take turns; the oldest waiter of a row comes first.
    A waiter is any hashable object, at most once in its row.
    """

    __slots__ = ("_rows",)

    def __init__(self):
        self._rows = {}  # row: {waiter: None}, the row served longest ago first; never empty

    def __len__(self):
        return sum(map(len, self._rows.values()))

    def __bool__(self):
        return bool(self._rows)

    def add(self, waiter, row=None):
        """Add a waiter at the end of ``row``, a key for a user or address."""
        self._rows.setdefault(row, {})[waiter] = None

    def discard(self, waiter, row=None):
        """Remove a waiter from its row. Does nothing if ``waiter`` does not wait."""
        waiters = self._rows.get(row, {})
        waiters.pop(waiter, None)
        if not waiters:
            self._rows.pop(row, None)

    def take(self):
        """Remove and return the oldest waiter of the row that was served longest ago."""
        row = next(iter(self._rows))
        waiters = self._rows.pop(row)
        waiter = next(iter(waiters))
        del waiters[waiter]
        if waiters:
            self._rows[row] = waiters
        return waiter


class SlowTurns(Job):
    """Limits the part of each poll of the event loop for slow work, such as declares."""

    name = "slow connections"

    def __init__(self, scheduler):
        super().__init__()
        self._scheduler = scheduler
        # Functions that begin a turn. Streams, ends of connections and greenlets have a row each: a frame of
        # a client does not wait until thousands of others have ended or come back.
        self._line = Line()
        self._late = deque()  # greenlets that came too late in their turn; they go first
        self._is_closed = False
        self._loop = None
        self._poll = -1  # the poll of that time
        self._ends_at = 0.0
        self._was_over = False
        self._at_once = 1

    def has_time(self):
        """Whether slow work may begin or continue in this poll of the event loop, within WALK_S."""
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
        """Stop reading a Stream until there is time again for the slow work of its frames."""
        self._await(stream.pause_reading("its turn").release, "streams")

    def call(self, function):
        """Call the slow ``function()`` when there is time, usually at once. It must not switch greenlets."""
        if self._is_free():
            function()
        else:
            self._await(partial(function), "ends")  # each call waits, also a function's second

    def take(self):
        """Wait until the calling greenlet may begin slow work: usually not at all. May switch greenlets."""
        if self._is_free():
            return
        mine = Event()
        self._await(mine.set, "greenlets")
        mine.wait()
        if not self._is_closed and not self.has_time():
            # Others were quicker in this poll. In the next poll this one goes first, even without time.
            mine.clear()
            self._late.append(mine.set)
            self._scheduler.start(self)
            mine.wait()
            self.has_time()  # so that its time counts

    def finish(self):
        """Begin all waiting work now, and let later work begin at once."""
        self._is_closed = True
        while self._begin_next():
            pass

    def _await(self, begin, row):
        self._line.add(begin, row)
        self._scheduler.start(self)

    def _is_free(self):
        return self._is_closed or not self._are_waiting() and self.has_time()

    def _are_waiting(self):
        return bool(self._late or self._line)

    def step(self):
        self._at_once = 1 if self._was_over else min(2 * self._at_once, MOST_AT_ONCE)
        for _ in range(self._at_once):
            if not self._begin_next() or not self.has_time():
                break
        return self._are_waiting()

    def _begin_next(self):
        if not self._are_waiting():
            return False
        begin = self._late.popleft() if self._late else self._line.take()
        begin()
        return True

    def failed(self, error):
        """Continue with the next waiting work after an error."""
        return self._are_waiting()


class SlowWalk:
    """Limits the time per poll of the event loop for handling one connection's frames."""

    __slots__ = ("_stream", "_turns")

    def __init__(self, stream, turns):
        self._stream = stream
        self._turns = turns

    def is_over(self):
        """Whether slow work has used up its time in this poll of the event loop."""
        # The time begins with the poll's first call.
        return not self._turns.has_time()

    def has_time(self):
        """Whether the connection's next frame may be handled now. If not, pauses reading of the stream."""
        if self._turns.has_time():
            return True
        self._turns.wait(self._stream)
        return False


class PacedTurns:
    """Lets requests begin one at a time, with a pause after each. Users take turns; retries come last."""

    # A turn only begins its work: slow work delays no other turn.
    def __init__(self, spawn=gevent.spawn, pace_s=SHORTEST_S, rest_most_s=0.0):
        """``pace_s``: pause in seconds between two requests. ``rest_most_s``: longest extra pause on a busy
        loop. The extra pause follows a pause that ended late.
        """
        self._spawn = spawn
        self._pace_s = pace_s
        self._rest_most_s = rest_most_s
        self._line, self._failed_line = Line(), Line()
        self._greenlet = None

    def ask(self, granted, has_failed=False, account=None):
        """Call ``granted()``, which must not switch greenlets, when the request may begin. ``account``: the
        user who makes the request. ``has_failed``: the request repeats a failed request, and comes last.
        """
        if self._greenlet is None:
            granted()
            self._greenlet = self._spawn(self._run)
            self._greenlet.name = "turns at a pace"
        else:
            (self._failed_line if has_failed else self._line).add(granted, account)

    def wait(self, wakened=None, is_over=lambda: False, has_failed=False, account=None):
        """Wait until the caller's request may begin, or until ``is_over()`` is true. May switch greenlets.
        ``is_over`` is checked at first and whenever the Event ``wakened`` is set. ``has_failed``: see ask().
        """
        has_turn = False
        if wakened is None:
            wakened = Event()

        def granted():
            nonlocal has_turn
            has_turn = True
            wakened.set()

        self.ask(granted, has_failed, account)
        try:
            while not (has_turn or is_over()):
                wakened.wait()
                wakened.clear()
        finally:
            self.forget(granted, account)

    def forget(self, granted, account=None):
        """Withdraw the request that was made with the callback ``granted``."""
        self._line.discard(granted, account)
        self._failed_line.discard(granted, account)

    def _run(self):
        try:
            self._pause()
            while line := self._line or self._failed_line:
                line.take()()
                self._pause()
        finally:
            self._greenlet = None

    def _pause(self):
        began_s = time.monotonic()
        gevent.sleep(self._pace_s)
        rest_s = min(time.monotonic() - began_s - self._pace_s, self._rest_most_s)
        if rest_s > 0:
            gevent.sleep(rest_s)
