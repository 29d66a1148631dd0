"""Due timer: says when something is due, and hands over what is, in order, however much waits: a heap of 16
to 18 octets a message and one timer.

Below broker.transfer.delayed and broker.queues.retry, whose messages wait in a store; here there are only
their locations. Never yields. What is due together is taken one by one, by a job of whoever waits for it.
"""
from gomq_py.broker.queues import due_heap as _due_heap


class DueTimer:
    """``on_due()`` is called when the first message is due; ``take`` then gives those that are, and ``arm``
    waits for the next.
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
        self._now_ms = 0  # as the one that was taken last found it
        self._stopped = self._hastened = False

    @property
    def count(self):
        """Messages that wait."""
        return self._heap.count

    def first(self, count):
        """[(due_ms, location)] of the first ``count`` that wait, in order."""
        return self._heap.first(count)

    def push(self, due_ms, location):
        """One more waits; ``arm`` makes the timer know."""
        self._heap.push(due_ms, location)

    def take(self):
        """The first that is due, which waits no more; None: none is."""
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
        """Wait for whatever is first now."""
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
        """Nothing waits any more: everything is due, whenever it was."""
        self._hastened = True
        self._stop_timer()
        self._first_is_due()

    def stop(self):
        """Nothing will be handed over any more."""
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
