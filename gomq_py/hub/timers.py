"""Timers: gives the time and makes calls in the future. Tests use other timers instead."""
import time

import gevent

from gomq_py.hub.scheduler import Job
from gomq_py.observability.log import logger

LOG = logger("broker")
# Interval of checks whether the system's clock was set, while a timer waits for a time; and the least
# difference that counts: less is drift, or a late check.
LOOK_MS = 5000
SET_S = 0.5
# Pause before the second attempt of a RetryJob, and the longest between two.
FIRST_PAUSE_MS, LONGEST_PAUSE_MS = 1000, 10_000


class HubTimers:
    """Timers of this thread's event loop. A pending timer costs no greenlet."""

    def __init__(self):
        self._pending = {}  # as keys
        self._is_closed = False
        self._watch = None  # over the clock
        self._ahead_s = 0.0  # the clock's lead over monotonic time at the last look

    @staticmethod
    def now_ms():
        """Return the time in Unix milliseconds."""
        return int(time.time() * 1000)

    @staticmethod
    def steady_ms():
        """Return the milliseconds of a monotonic clock."""
        return int(time.monotonic() * 1000)

    def start(self, after_ms, callback):
        """Call ``callback()`` once, after ``after_ms`` or later. Returns an object whose ``stop()`` cancels
        the call. The callback must not switch greenlets.
        """
        timer = _Timer(self._pending, callback)
        if not self._is_closed:
            timer.start(max(after_ms, 0) / 1000)
        return timer

    def start_at(self, due_ms, callback):
        """Call ``callback()`` at ``due_ms`` (Unix milliseconds). Returns an object whose ``stop()`` cancels
        the call. The callback must not switch greenlets. It may come early if the system's clock is set.
        """
        # If the system's clock is set meanwhile, the call may be ``LOOK_MS`` late, or early: a callback
        # called early must start another timer.
        timer = self.start(due_ms - self.now_ms(), callback)
        timer.due_ms = due_ms
        if self._watch is None:
            self._ahead_s = _ahead_s()
            self._watch = self.start(LOOK_MS, self._look_at_clock)
        return timer

    def _look_at_clock(self):
        self._watch = None
        before_s, self._ahead_s = self._ahead_s, _ahead_s()
        if abs(self._ahead_s - before_s) > SET_S:
            now_ms = self.now_ms()
            for timer in list(self._pending):
                if timer.due_ms is not None:
                    timer.stop()
                    timer.start(max(timer.due_ms - now_ms, 0) / 1000)
        if any(timer.due_ms is not None for timer in self._pending):
            self._watch = self.start(LOOK_MS, self._look_at_clock)

    def close(self):
        """Stop all timers. A timer that is started later never fires."""
        # Its callback would write into files that the next broker of this data folder uses.
        self._is_closed = True
        for timer in list(self._pending):
            timer.stop()


def _ahead_s():
    return time.time() - time.monotonic()


class _Timer:
    """A pending call. ``due_ms``: its Unix time in milliseconds; None if started with a delay."""

    __slots__ = ("due_ms", "_pending", "_callback", "_watcher")

    def __init__(self, pending, callback):
        self.due_ms = None
        self._pending = pending
        self._callback = callback
        self._watcher = None

    def start(self, after_s):
        self._pending[self] = None
        self._watcher = gevent.get_hub().loop.timer(after_s)
        self._watcher.start(self._fire)

    def stop(self):
        self._pending.pop(self, None)
        watcher, self._watcher = self._watcher, None
        if watcher is not None:
            watcher.stop()
            watcher.close()

    def _fire(self):
        self.stop()
        try:
            self._callback()
        except Exception:
            LOG.exception(
                "a timer's work failed: %s", getattr(self._callback, "__qualname__", self._callback)
            )


class RetryJob(Job):
    """Base class of jobs that retry an operation after a failure, such as a full disk: at once, then after
    pauses that double. ``timers()`` returns the HubTimers. Never switches greenlets.
    """

    def __init__(self, timers):
        super().__init__()
        self._timers = timers
        self._pause_ms = 0
        self._last_ms = 0  # when the last attempt was asked for

    def begin(self):
        """Start another attempt after a failure: at once, or after a pause if the last attempt was recent."""
        timers, before = self._timers(), self._last_ms
        self._last_ms = timers.now_ms()
        if not 0 <= self._last_ms - before < 2 * LONGEST_PAUSE_MS:
            self._pause_ms = 0
        timers.start(self._pause_ms, self.start)
        self._pause_ms = min(max(2 * self._pause_ms, FIRST_PAUSE_MS), LONGEST_PAUSE_MS)

    def start(self):
        """Make an attempt. Called at the end of the pause."""
        raise NotImplementedError

    def failed(self, error):
        """Start another attempt, perhaps after a pause."""
        self.begin()
        return False
