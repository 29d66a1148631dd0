"""Alarm news: connections are told that publishers are held, or that it is over.

Beside clients, which begins a round at each change. A connection is told by ``block(reason)`` or
``unblock()``; what its client hears of it is its door's business. In slices: thousands that were told at once
would hold everybody up. Never reads, never writes.
"""
import time

from gomq_py.hub.job import Job
from gomq_py.hub.slice_clock import SliceClock


class AlarmNews(Job):
    """Connections that have not been told yet."""

    name = "telling connections of an alarm"

    def __init__(self, scheduler):
        super().__init__()
        self._scheduler = scheduler
        self._untold = []
        self._reason = None

    def begin(self, connections, reason):
        """Tell these, anew: what is left of an earlier round would be told of what is over.

        ``reason`` is None where the alarm is over.
        """
        self._untold, self._reason = connections, reason
        if self.step():
            self._scheduler.start(self)

    def step(self):
        """Tell some, for some milliseconds of the processor's time."""
        clock = SliceClock(clock=time.thread_time)
        while self._untold:
            connection = self._untold.pop()
            if self._reason is None:
                connection.unblock()
            else:
                connection.block(self._reason)
            if clock.is_over():
                break
        return bool(self._untold)

    def failed(self, error):
        """One could not be told; the others are."""
        return bool(self._untold)
