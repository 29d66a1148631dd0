"""Heartbeats: checks the connections of all protocols by one timer.

Connections are in buckets of an eighth of a second, and the timer is set for the next bucket. Without
connections no timer runs. A connection that has ended is forgotten at once, even with a long interval.
"""
import heapq
import math
import time

from gomq_py.observability.log import logger
from gomq_py.observability.quiet_log import QuietLog

QUIET = QuietLog(logger("hub"))

TICKS_PER_S = 8
# Ticks without a bucket that may stay in the heap.
SLACK = 64


class Heartbeats:
    """Calls ``check_heartbeat()`` of each watched connection twice in each interval that watch() got."""

    def __init__(self, timers, clock=time.monotonic):
        """``timers``: the HubTimers. ``clock``: a function that returns seconds."""
        self._timers = timers
        self._clock = clock
        self._buckets = {}  # tick -> connections as keys, never empty
        self._order = []  # a heap of ticks, some without a bucket
        self._intervals = {}
        self._ticks = {}  # connection -> its bucket
        self._timer = None
        self._armed_for = 0
        self._is_closed = False

    def watch(self, connection, heartbeat_s):
        """Check ``connection`` every ``heartbeat_s / 2`` seconds from now on; with 0, never check it."""
        if heartbeat_s > 0 and not self._is_closed:
            self._intervals[connection] = heartbeat_s / 2
            self._schedule(connection, self._clock())
            self._arm()

    def forget(self, connection):
        if self._intervals.pop(connection, None) is None:
            return
        tick = self._ticks.pop(connection, None)
        bucket = self._buckets.get(tick)
        if bucket is None:
            return
        del bucket[connection]
        if not bucket:
            del self._buckets[tick]
            if len(self._order) > 2 * len(self._buckets) + SLACK:
                self._order = list(self._buckets)
                heapq.heapify(self._order)

    def close(self):
        """Stop the timer and all checks."""
        self._is_closed = True
        self._intervals.clear()
        self._ticks.clear()
        self._buckets.clear()
        self._order.clear()
        self._disarm()

    def run_due(self):
        """Call ``check_heartbeat()`` of every connection whose check is due."""
        now = self._clock()
        while self._order and self._order[0] <= now * TICKS_PER_S:
            for connection in list(self._buckets.pop(heapq.heappop(self._order), ())):
                if connection in self._intervals:  # the check of another connection may have ended this one
                    # Counted from now, so that a late timer does not make two checks follow each other
                    # closely; in whole ticks that have passed, or each check would come one tick later.
                    tick = math.floor(now * TICKS_PER_S)
                    self._schedule(connection, tick / TICKS_PER_S)
                    try:
                        connection.check_heartbeat()
                    except Exception as error:  # all connections share the timer
                        QUIET.error(None, "a heartbeat check of %r failed", connection, exc_info=error)

    def _schedule(self, connection, now):
        due = math.ceil((now + self._intervals[connection]) * TICKS_PER_S)
        if due not in self._buckets:
            self._buckets[due] = {}
            heapq.heappush(self._order, due)
        self._buckets[due][connection] = None
        self._ticks[connection] = due

    def _arm(self):
        if not self._buckets:
            self._order.clear()
            self._disarm()
            return
        if self._timer is not None and self._armed_for <= self._order[0]:
            return
        self._disarm()
        self._armed_for = self._order[0]
        after_s = self._armed_for / TICKS_PER_S - self._clock()
        self._timer = self._timers.start(after_s * 1000, self._on_timer)

    def _disarm(self):
        if self._timer is not None:
            self._timer.stop()
            self._timer = self._armed_for = None

    def _on_timer(self):
        self._disarm()
        try:
            self.run_due()
        finally:
            self._arm()
