"""Due timer: hands over what is due when it is, in order, however much waits: a heap of 16 to 18 octets a message and one timer for the first.

Below broker.transfer.delayed and broker.queues.retry, whose messages wait in a store; here there are only their locations. Never yields; what is due
together goes on in slices.
"""
from gomq_py.broker.queues.due_heap import DueHeap


class DueTimer:
    """``go_on(locations)`` gets what is due, at most ``at_once`` between two polls of the loop, and returns how many of them it had time for; None:
    all. The others come again next. ``name``: the job's, for people.

    Where ``go_on`` raises, those that it was given are not handed over again; the others are, in their time.
    """

    def __init__(self, scheduler, timers, at_once, go_on, name="messages that are due"):
        self._scheduler = scheduler
        self._timers = timers
        self._at_once = at_once
        self._go_on = go_on
        self._name = name
        self._heap = DueHeap()
        self._timer = None
        self._timer_ms = 0
        self._running = self._stopped = self._hastened = self._resting = False

    @property
    def count(self):
        """Messages that wait."""
        return self._heap.count

    def push(self, due_ms, location):
        """One more waits; ``arm`` makes the timer know."""
        self._heap.push(due_ms, location)

    def arm(self):
        """Wait for whatever is first now."""
        if self._running or self._stopped or self._resting or not self._heap.count:
            return
        due_ms = self._heap.first_due_ms()
        if self._timer is not None:
            if self._timer_ms <= due_ms:
                return
            self._timer.stop()
        self._timer_ms = due_ms
        self._timer = self._timers.start(due_ms - self._timers.now_ms(), self._first_is_due)

    def rest(self, ms):
        """Hand over nothing for so long, whatever is due."""
        self._stop_timer()
        self._resting = True
        self._timer = self._timers.start(ms, self._rested)

    def hasten(self):
        """Nothing waits any more: everything is due, whenever it was."""
        self._hastened = True
        self._stop_timer()
        self._first_is_due()

    def stop(self):
        """Nothing will be handed over any more."""
        self._stopped = True
        self._stop_timer()
        self._heap = DueHeap()

    def _rested(self):
        self._timer = None
        self._resting = False
        self.arm()

    def _first_is_due(self):
        self._timer = None
        if not self._running and not self._stopped:
            self._running = True
            self._scheduler.run_sliced(self._slice, self._failed, self._name)

    def _slice(self):
        """The scheduler's next slice of what is due; False: that was all."""
        now_ms = self._timers.now_ms()
        heap = self._heap
        due, times = [], []
        while len(due) < self._at_once and heap.count and (self._hastened or heap.first_due_ms() <= now_ms):
            times.append(heap.first_due_ms())
            due.append(heap.pop())
        done = self._go_on(due) if due else None
        left = 0 if done is None or self._stopped else len(due) - done
        for at in range(len(due) - left, len(due)):
            self._heap.push(times[at], due[at])
        self._running = (left > 0 or len(due) == self._at_once) and not self._stopped and not self._resting
        self.arm()
        return self._running

    def _failed(self, _error):
        """A slice of them failed: the rest goes on in its time."""
        self._running = False
        self.arm()
        return False

    def _stop_timer(self):
        if self._timer is not None:
            self._timer.stop()
            self._timer = None
