"""Commit delay: when the next flush begins, and what it will cover.

Below group_commit, whose greenlet a Wakeup wakes; above flusher, which pauses. A flush costs the processor
some 150 us and waits for the disk, so on a fast disk 10 000 confirmed messages a second would be thousands of
flushes a second. Where flushes overlap, or answer several asks, they begin apart. A client that waits for one
confirm before the next publish never overlaps with a flush of its own, and is not held up. Never flushes.
"""
import time

import gevent
from gevent.hub import Waiter

# How far the beginnings of two flushes lie apart, at least, where somebody asked for the second one while
# the first was running, or where the first one answered so many.
GATHER_S = 0.0005
GATHER_FROM = 3
# Where asks come steadily, a flush begins with the first one after that, if it comes within so long: the loop
# is awake for it. A timer that wakes the loop costs the processor some 20 us.
GRACE_S = 0.00012


class NextFlush:
    """The flush that begins next. Until it ``has_begun`` it covers whatever is marked, so that who waits for
    it may be told of that with the same callback, and says so (``join``); ``joined`` counts how often
    somebody did.
    """

    __slots__ = ("has_begun", "joined", "_commit_delay")

    def __init__(self, commit_delay=None):
        self.has_begun = False
        self.joined = 0
        self._commit_delay = commit_delay

    def join(self):
        """Somebody who waits for it already has marked more."""
        self.joined += 1
        if self._commit_delay is not None:
            self._commit_delay.asked()


class CommitDelay:
    """``next_flush``: the flush that begins next. ``asked()`` is called whenever somebody asks for it."""

    __slots__ = ("next_flush", "_may_begin_s", "_due_s", "_is_steady", "_pausing")

    def __init__(self):
        self.next_flush = NextFlush(self)
        self._may_begin_s = 0.0  # the next flush, by time.monotonic(); 0: whenever it likes
        # when a flush was due, until somebody has asked after that; 0: somebody has, or none was held up
        self._due_s = 0.0
        self._is_steady = False  # somebody asked soon after the last flush that was held up was due
        self._pausing = None  # the Flusher that pauses

    def begin(self):
        """A flush begins."""
        self.next_flush.has_begun = True
        self.next_flush = NextFlush(self)

    def flushed(self, began_s, overlaps, answered):
        """A flush that began then, by time.monotonic(), is over. ``overlaps``: somebody asked for the next
        one meanwhile; ``answered``: how many asks it answers.
        """
        self._may_begin_s = began_s + GATHER_S if overlaps or answered >= GATHER_FROM else 0.0

    def hold_up(self, flusher):
        """Return when the next flush may begin. ``flusher``: what pauses; None: nothing does. May switch."""
        due, self._may_begin_s = self._may_begin_s, 0.0
        left = due - time.monotonic() if due and flusher is not None else 0.0
        if left > 0:
            if self._is_steady:
                left += GRACE_S
            self._is_steady = False
            self._due_s = due
            self._pausing = flusher
            try:
                flusher.pause(left)
            finally:
                self._pausing = None

    def asked(self):
        """Somebody asks for the flush that begins next: one that is due begins, when the loop has had its
        turn.
        """
        if self._due_s:
            late = time.monotonic() - self._due_s
            if late >= 0:
                self._due_s = 0.0
                self._is_steady = late <= GRACE_S
                if self._pausing is not None:
                    self._pausing.end_pause()


class Wakeup:
    """For one greenlet, which waits, and anybody in its hub, who rings.

    ``is_rung`` stays until ``clear``. ``rings_at_s``: the time, by time.monotonic, for which the timer is
    set; 0: for none. ``waiter`` is there only while somebody waits.
    """

    __slots__ = ("is_rung", "rings_at_s", "waiter", "timer")

    def __init__(self):
        self.is_rung = False
        self.rings_at_s = 0.0
        self.waiter = self.timer = None

    def set(self):
        """Ring. Whoever waits goes on in one of the next turns of the loop."""
        if not self.is_rung:
            self.is_rung = True
            waiter = self.waiter
            if waiter is not None:
                # A waiter of its own for each wait: a ring that comes when that is over, or the greenlet was
                # killed meanwhile, wakes nobody, and not what the greenlet waits for then.
                self.waiter = None
                gevent.get_hub().loop.run_callback(waiter.switch, None)

    def clear(self):
        """What was rung until now is heard."""
        self.is_rung = False

    def wait(self, until_s):
        """Return when it was rung, or at ``until_s``, or somewhat earlier. May switch."""
        if self.is_rung:
            return
        if not 0.0 < self.rings_at_s <= until_s:
            self._set_timer(until_s)
        waiter = self.waiter = Waiter()
        try:
            waiter.get()
        except BaseException:  # killed: nobody waits any more
            self.close()
            raise
        finally:
            if self.waiter is waiter:
                self.waiter = None

    def close(self):
        """Nobody waits any more, and the loop has no timer."""
        timer = self.timer
        self.timer = None
        self.rings_at_s = 0.0
        if timer is not None:
            timer.close()

    def _set_timer(self, until_s):
        if self.timer is not None:
            self.timer.close()
        self.rings_at_s = until_s
        self.timer = gevent.get_hub().loop.timer(max(0.0, until_s - time.monotonic()))
        self.timer.start(self._time_is_up)

    def _time_is_up(self):
        """In the hub."""
        self.rings_at_s = 0.0
        waiter = self.waiter
        if waiter is not None:
            self.waiter = None
            waiter.switch(None)
