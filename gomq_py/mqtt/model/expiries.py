"""Expiries: notes when each key's message expires, and finds the keys that are due.

A key has one due time, the earliest noted, and so costs one entry, however often its message is replaced.
When a key is due, the caller checks the message's own expiry. Never switches greenlets.
"""
import heapq

# Outdated heap entries allowed, in addition to one per key.
STALE = 1024


class Expiries:
    """Due times of keys. Calls ``on_due()`` when the earliest key is due; take() then returns one key."""

    __slots__ = ("_timers", "_on_due", "_times", "_heap", "_timer", "_timer_ms")

    def __init__(self, timers, on_due):
        """``timers()`` returns the event loop's timers (hub.timers). It is called on demand."""
        self._timers = timers
        self._on_due = on_due
        self._times = {}  # key: its time
        self._heap = []  # (time, key); entries that differ from _times are outdated
        self._timer = None
        self._timer_ms = 0

    @property
    def count(self):
        return len(self._times)

    def note(self, key, due_ms):
        """Set the key's due time (Unix milliseconds), unless an earlier time is set."""
        before = self._times.get(key)
        if before is not None and before <= due_ms:
            return
        self._times[key] = due_ms
        if len(self._heap) > 2 * len(self._times) + STALE:
            self._heap = [(time, each) for each, time in self._times.items()]
            heapq.heapify(self._heap)
        else:
            heapq.heappush(self._heap, (due_ms, key))

    def forget(self, key):
        self._times.pop(key, None)

    def take(self):
        """Remove and return a key that is due, or None."""
        now_ms = self._timers().now_ms()
        while self._heap and self._heap[0][0] <= now_ms:
            time, key = heapq.heappop(self._heap)
            if self._times.get(key) == time:
                del self._times[key]
                return key
        return None

    def arm(self):
        """Start the timer for the earliest key, or stop the timer if there is no key."""
        while self._heap and self._times.get(self._heap[0][1]) != self._heap[0][0]:
            heapq.heappop(self._heap)
        if not self._heap:
            self.stop()
            return
        due_ms = self._heap[0][0]
        if self._timer is not None:
            if self._timer_ms == due_ms:
                return
            self._timer.stop()
        timers = self._timers()
        self._timer_ms = due_ms
        self._timer = timers.start_at(due_ms, self._is_due)

    def stop(self):
        timer, self._timer = self._timer, None
        if timer is not None:
            timer.stop()

    def _is_due(self):
        self._timer = None
        self._on_due()
