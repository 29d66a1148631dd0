"""Retry back-off: a returned message waits before it is ready again, longer after each failed delivery.

The settings are RabbitMQ's ``x-delayed-retry-*``. QueueLimits passes returned messages to Retries. A waiting
message stays unacked in its store, which records the end of the back-off in whole seconds. After a restart
the message waits for the rest of that time. A message that was unacked when the broker crashed counts as
returned, if the queue delays all kinds of returns. Never switches greenlets; works in slices.
"""
from gomq_py.broker.queues.due_timer import DueTimer
from gomq_py.hub.scheduler import Job

# Messages made ready before others get their turn: about a millisecond.
SLICE = 1000


class Retries(Job):
    """Keeps the returned messages of ``queue`` until their back-off ends, then makes them ready."""

    name = "messages that came back"

    def __init__(self, queue, scheduler, timers):
        super().__init__()
        self.min_ms = self.max_ms = 0
        self._timers = timers
        self._queue = queue
        self._began_ms = timers.now_ms()
        self._scheduler = scheduler
        self._due = DueTimer(timers, self._first_is_due)

    @property
    def count(self):
        return self._due.count

    def delay_ms(self, count):
        """Return the back-off in ms of a message after ``count`` failed deliveries."""
        return min(self.min_ms * max(count, 1), self.max_ms)

    def wait(self, location, count, failures):
        """Start the back-off of a message that was returned for the ``count``-th time. The back-off's length
        depends on ``failures``, the count of failed deliveries. The store records when the back-off ends.
        """
        due_ms = self._timers.now_ms() + self.delay_ms(failures)
        self._queue.store.wait_until(location, count, -(-due_ms // 1000))
        self._push(due_ms, location)

    def left_ms(self, count, due_s):
        """Return the ms left of a back-off that a restart interrupted. ``count``: failed deliveries.
        ``due_s``: the recorded end in Unix seconds. If 0, a full back-off began when the broker started.
        """
        # At most a full back-off, whatever happened to the clock.
        now_ms = self._timers.now_ms()
        whole_ms = self.delay_ms(count)
        return min(due_s * 1000 - now_ms if due_s else self._began_ms + whole_ms - now_ms, whole_ms)

    def wait_on(self, location, left_ms):
        """Resume the back-off that a restart interrupted, for ``left_ms``."""
        self._push(self._timers.now_ms() + left_ms, location)

    def release(self):
        """End all back-offs: the waiting messages become ready, in slices."""
        self._due.hasten()

    def stop(self):
        self._due.stop()

    def step(self):
        """Make up to SLICE messages ready whose back-off is over. Returns True if more of these are left."""
        for _ in range(SLICE):
            location = self._due.take()
            if location is None:
                break
            try:
                self._queue.ready_again(location)
            except Exception as error:  # a fault of one message must not affect the others
                self._queue.set_aside(location, error, "making ready again")
        return self._goes_on()

    def failed(self, error):
        return self._goes_on()

    def _goes_on(self):
        if self._due.has_due():
            return True
        self._due.arm()
        return False

    def _first_is_due(self):
        self._scheduler.start(self)

    def _push(self, due_ms, location):
        self._due.push(due_ms, location)
        if not self.running:
            self._due.arm()
