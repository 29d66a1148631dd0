"""Retry back-off: messages that came back wait before they are ready again, longer with every time.

RabbitMQ's ``x-delayed-retry-*``.

Beside limits, which hands over what came back. A message stays unacked in its store while it waits, so that
nothing has to be moved and a restart loses nothing; the store notes until when, to the second, so that after
a restart it waits for the rest of its time. One whose delivery was lost with the broker waits from the boot
on, where lost deliveries wait at all. Never yields; what is due together goes on in slices.
"""
from gomq_py.broker.queues.due_timer import DueTimer
from gomq_py.broker.values import MAX_TIMER_MS
from gomq_py.hub.job import Job

# Messages that become ready again before others get their turn: about a millisecond.
SLICE = 1000


class Retries(Job):
    """What waits in ``queue``, which makes a message ready again."""

    name = "messages that came back"

    def __init__(self, queue, scheduler, timers):
        super().__init__()
        self.min_ms, self.max_ms = 0, None
        self._timers = timers
        self._queue = queue
        self._began_ms = timers.now_ms()
        self._scheduler = scheduler
        self._due = DueTimer(timers, self._first_is_due)

    @property
    def count(self):
        """Messages that wait."""
        return self._due.count

    def delay_ms(self, count):
        """How long a message waits that has come back ``count`` times."""
        return min(self.min_ms * count, MAX_TIMER_MS if self.max_ms is None else self.max_ms)

    def wait(self, location, count):
        """A message came back for the ``count``-th time.

        The store notes until when it waits, for the next run.
        """
        due_ms = self._timers.now_ms() + self.delay_ms(count)
        self._queue.store.wait_until(location, count, -(-due_ms // 1000))
        self._push(due_ms, location)

    def left_ms(self, count, due_s):
        """How long a message of an earlier run has to wait still: until ``due_s`` as noted then, in Unix
        seconds, or where that is 0, as if it had come back at boot.

        Never longer than if it had come back now, whatever the clock did meanwhile.
        """
        now_ms = self._timers.now_ms()
        whole_ms = self.delay_ms(count)
        return min(due_s * 1000 - now_ms if due_s else self._began_ms + whole_ms - now_ms, whole_ms)

    def wait_on(self, location, left_ms):
        """A message of an earlier run waits still."""
        self._push(self._timers.now_ms() + left_ms, location)

    def release(self):
        """Nothing waits any more: everything is ready, as soon as the hub has time for it."""
        self._due.hasten()

    def stop(self):
        """The queue is gone or closed."""
        self._due.stop()

    def step(self):
        """Make ready what is due."""
        for _ in range(SLICE):
            location = self._due.take()
            if location is None:
                break
            try:
                self._queue.ready_again(location)
            except Exception as error:  # the others must not suffer for it
                self._queue.set_aside(location, error, "making ready again")
        return self._goes_on()

    def failed(self, error):
        """What failed was no single message: the others are ready in their time."""
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
