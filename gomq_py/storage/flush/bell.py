"""Bell: wakes the greenlet of group commit, when it is rung or at a time.

Below group_commit, over the loop. An Event with a timeout makes a timer for each wait, thousands of times a
second; here one timer stays, and is set again only for an earlier time. So it may ring early, and whoever
waits looks at the clock.
"""
import time

import gevent
from gevent.hub import Waiter


class Bell:
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
