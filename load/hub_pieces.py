"""Hub pieces: how much of its processor's time the loop takes from one poll to the next,
measured inside of the broker's process.

That is what everybody else waits for on a quiet machine, and a busy one changes little of it: what counts is
the CPU time of the hub's thread, not what passes. A piece is everything that happens between two polls, so
the figure is that of the longest piece of one client's work or more.
"""
import time


class HubPieces:
    """Measures from ``start()`` on; ``take()`` tells and forgets.

    ``loop`` is gevent's, and all calls are made in its thread.
    """

    def __init__(self, loop, clock=time.thread_time):
        self._clock = clock
        self._began = None
        self._longest_s = self._total_s = 0.0
        # After everything else that runs before a poll, gevent's own callbacks first of all, and before
        # everything that runs after it.
        self._before_poll, self._after_poll = loop.prepare(), loop.check()
        self._before_poll.priority, self._after_poll.priority = loop.MINPRI, loop.MAXPRI

    def start(self):
        """Measure from the next poll on. It keeps no loop running."""
        for watcher, callback in ((self._before_poll, self._end), (self._after_poll, self._begin)):
            watcher.ref = False
            watcher.start(callback)

    def stop(self):
        """Measure no longer."""
        self._before_poll.stop()
        self._after_poll.stop()

    def take(self):
        """(the longest piece, all of them), in CPU seconds since the last call."""
        found = self._longest_s, self._total_s
        self._longest_s = self._total_s = 0.0
        return found

    def _begin(self):
        self._began = self._clock()

    def _end(self):
        if self._began is not None:
            took = self._clock() - self._began
            self._total_s += took
            self._longest_s = max(self._longest_s, took)
            self._began = None
