"""Due timer: reports when messages are due and returns them in order, with a heap of 16 to 18 octets a
message and one timer.

Below broker.transfer.delayed and broker.queues.retry, whose stores hold the messages; here are only
locations. The owner's job takes due messages one by one. Never yields.
"""
from gomq_py.broker.queues import due_heap as _due_heap


class DueTimer:
    """Calls ``on_due()`` when the first message is due; ``take`` then returns the due ones, and ``arm``
    starts the timer for the next.
    """

    __slots__ = (
        "_timers", "_on_due", "_heap", "_timer", "_timer_ms", "_now_ms", "_stopped", "_hastened",
    )

    def __init__(self, timers, on_due):
        self._timers = timers
        self._on_due = on_due
        self._heap = _due_heap.DueHeap()
        self._timer = None
        self._timer_ms = 0
        self._now_ms = 0  # the time at the last take()
        self._stopped = self._hastened = False

    @property
    def count(self):
        """Messages that wait."""
        return self._heap.count

    def first(self, count):
        """[(due_ms, location)] of the first ``count`` that wait, in order."""
        return self._heap.first(count)

    def push(self, due_ms, location):
        """Add a message; ``arm`` must follow."""
        self._heap.push(due_ms, location)

    def take(self):
        """Remove and return the first due message, or None."""
        if self.has_due():
            return self._heap.pop()
        self._now_ms = 0
        return None

    def has_due(self):
        """Whether something is due."""
        if not self._heap.count:
            return False
        due_ms = self._heap.first_due_ms()
        if not self._hastened and due_ms > self._now_ms:
            self._now_ms = self._timers.now_ms()
            return due_ms <= self._now_ms
        return True

    def arm(self):
        """Start the timer for the first message."""
        if self._stopped or not self._heap.count:
            return
        due_ms = self._heap.first_due_ms()
        if self._timer is not None:
            if self._timer_ms <= due_ms:
                return
            self._timer.stop()
        self._timer_ms = due_ms
        self._timer = self._timers.start_at(due_ms, self._first_is_due)

    def hasten(self):
        """Make all messages due now."""
        self._hastened = True
        self._stop_timer()
        self._first_is_due()

    def stop(self):
        """Stop for good; the stored messages stay."""
        self._stopped = True
        self._stop_timer()
        self._heap = _due_heap.DueHeap()

    def _first_is_due(self):
        self._timer = None
        if not self._stopped:
            self._on_due()

    def _stop_timer(self):
        if self._timer is not None:
            self._timer.stop()
            self._timer = None
