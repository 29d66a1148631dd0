"""Retry back-off: messages that came back wait before they are ready again, longer with every time. RabbitMQ's ``x-delayed-retry-*``.

Beside limits, which hands over what came back. A message stays unacked in its store while it waits, so that nothing has to be moved and a restart
loses nothing; which one is next is in a heap of 16 to 18 octets each, one timer waits for the first. After a restart a message that had come back
before waits once more, counted from the boot: when it came back is not on the disk. Never yields; what is due together goes on in slices.
"""
from gomq_py.broker.queues.due_heap import DueHeap

# How a message comes back: its channel let go of it, basic.nack, basic.reject. The numbers of guard, which are C's there.
LOST, RETURNED, FAILED = 1, 2, 4

# Messages that become ready again before others get their turn: about a millisecond.
SLICE = 1000

# Ten years, RabbitMQ's limit for timers.
MAX_DELAY_MS = 10 * 365 * 24 * 3600 * 1000

# x-delayed-retry-type: what waits. RabbitMQ counts basic.reject as a failure and basic.nack as a return.
TYPES = {"disabled": 0, "failed": FAILED, "returned": RETURNED, "all": LOST | RETURNED | FAILED}


def retry_of(arguments, policy):
    """(kinds that wait, min_ms, max_ms or None) that arguments, or else the policy, ask for; None: nothing waits."""
    kinds = TYPES.get(_given("retry-type", arguments, policy), 0)
    min_ms, max_ms = (_given(f"retry-{end}", arguments, policy) for end in ("min", "max"))
    if not kinds or not _is_count(min_ms) or min_ms == 0:
        return None
    return kinds, min_ms, max_ms if _is_count(max_ms) else None


class Retries:
    """What waits in ``queue``, which makes a message ready again."""

    def __init__(self, queue, scheduler, timers):
        self.min_ms, self.max_ms = 0, None
        self._scheduler = scheduler
        self._timers = timers
        self._queue = queue
        self._began_ms = timers.now_ms()
        self._heap = DueHeap()
        self._timer = None
        self._timer_ms = 0
        self._running = False

    @property
    def count(self):
        """Messages that wait."""
        return self._heap.count

    def delay_ms(self, count):
        """How long a message waits that has come back ``count`` times."""
        return min(self.min_ms * count, MAX_DELAY_MS if self.max_ms is None else self.max_ms)

    def wait(self, location, count):
        """A message came back for the ``count``-th time."""
        self._push(self._timers.now_ms() + self.delay_ms(count), location)

    def left_ms(self, count):
        """How long a message of an earlier run has to wait still."""
        return self._began_ms + self.delay_ms(count) - self._timers.now_ms()

    def wait_since_boot(self, location, count):
        """A message of an earlier run, which had come back then."""
        self._push(self._began_ms + self.delay_ms(count), location)

    def release(self):
        """Nothing waits any more: everything is ready."""
        self._stop_timer()
        while self._heap.count:
            self._queue.ready_again(self._heap.pop())

    def stop(self):
        """The queue is gone or closed."""
        self._stop_timer()
        self._heap = DueHeap()

    def _push(self, due_ms, location):
        self._heap.push(due_ms, location)
        self._arm()

    def _arm(self):
        if self._running or not self._heap.count:
            return
        due_ms = self._heap.first_due_ms()
        if self._timer is not None:
            if self._timer_ms <= due_ms:
                return
            self._timer.stop()
        self._timer_ms = due_ms
        self._timer = self._timers.start(due_ms - self._timers.now_ms(), self._first_is_due)

    def _first_is_due(self):
        self._timer = None
        if not self._running:
            self._running = True
            self._scheduler.run_sliced(self._slice)

    def _slice(self):
        """The scheduler's next slice of what is due; False: that was all."""
        now_ms = self._timers.now_ms()
        left = SLICE
        while left and self._heap.count and self._heap.first_due_ms() <= now_ms:
            left -= 1
            self._queue.ready_again(self._heap.pop())
        self._running = left == 0
        self._arm()
        return self._running

    def _stop_timer(self):
        if self._timer is not None:
            self._timer.stop()
            self._timer = None


def _given(key, arguments, policy):
    return arguments.get(f"x-delayed-{key}", policy.get(f"delayed-{key}"))


def _is_count(value):
    return isinstance(value, int) and not isinstance(value, bool) and value >= 0
