"""Sync watch: writes to the log that a flush hangs, while it hangs and when it has ended.

Beside storage.flush.group_commit, whose pool threads report to it. A thread of the operating system looks,
because a disk that hangs may hold the hub's thread too. It looks only while something is being flushed, and
waits without a timer otherwise. The hub writes the lines, because the log's locks may be gevent's, for which
no thread may wait; the watch does where the hub stands still. Nothing switches.
"""
import logging
import time
from collections import deque

import gevent
from gevent import monkey

from gomq_py.observability.log import logger

LOG = logger("storage")

# The command patches the standard library; here the real ones are needed.
_start_thread = monkey.get_original("_thread", "start_new_thread")
_new_lock = monkey.get_original("_thread", "allocate_lock")
_this_thread = monkey.get_original("_thread", "get_ident")


class SyncWatch:
    """Flushes that run longer than ``after_s`` seconds are logged; 0: none are.

    Made in the hub. ``begin`` and ``end`` are called by whoever flushes, in any thread.
    """

    def __init__(self, after_s):
        self._after_s = after_s
        self._running = {}  # id -> [path, when it began, whether it was logged]
        self._begun = 0
        self._wakeup = _new_lock()  # taken, but for a moment: released to wake the watch
        self._wakeup.acquire()
        self._switching = _new_lock()
        self._is_started = self._is_parked = self._stopping = False
        self._lines = deque()  # (level, text, *arguments) that the hub is to write
        self._loop = gevent.get_hub().loop if after_s else None
        self._hub_thread = _this_thread()

    def begin(self, path):
        """A flush of the file or folder begins now. Returns what ``end`` is to be given."""
        entry = [path, time.monotonic(), False]
        if self._after_s:
            self._running[id(entry)] = entry
            self._begun += 1
            if self._is_parked or not self._is_started:
                self._wake()
        return entry

    def end(self, entry):
        """It has ended, one way or the other."""
        self._running.pop(id(entry), None)
        if entry[2]:
            self._log(
                logging.WARNING, "flushing %s ended after %.1f s", entry[0], time.monotonic() - entry[1])

    def running(self):
        """The paths that are being flushed, the oldest flush first; none if nothing is logged."""
        return [path for path, _, _ in list(self._running.values())]

    def stop(self):
        """Nothing is logged any more, and the thread ends by itself."""
        self._after_s, self._stopping = 0, True
        self._wake()

    def _wake(self):
        with self._switching:
            self._is_parked = False
            if self._is_started:
                if self._wakeup.locked():
                    self._wakeup.release()
            elif not self._stopping:
                try:
                    _start_thread(self._watch, (self._after_s / 4,))
                except RuntimeError:
                    return  # no thread to be had: no flush fails for that, and the next one asks again
                self._is_started = True

    def _watch(self, interval_s):
        seen, left = 0, None
        while not self._stopping:
            self._wakeup.acquire(True, interval_s)
            if left is not None and left is self._oldest_line():
                self._write()  # the hub stands still
            self._look()
            left = self._oldest_line()
            # stop() wakes it once, and may have done so above
            if seen == self._begun and not self._running and left is None and not self._stopping:
                self._is_parked = True
                if self._running:  # it began before it could see that
                    self._is_parked = False
                else:
                    self._wakeup.acquire()
            seen = self._begun

    def _look(self):
        now = time.monotonic()
        for entry in list(self._running.values()):
            path, began, is_said = entry
            if not is_said and self._after_s and now - began >= self._after_s:
                entry[2] = True
                self._log(
                    logging.ERROR, "flushing %s hangs for %.1f s: the disk does not answer, and nothing "
                    "durable is confirmed until it does", path, now - began)

    # the log

    def _log(self, *line):
        """Have the hub write a line: level, text and arguments."""
        self._lines.append(line)
        if _this_thread() == self._hub_thread:
            self._write()
            return
        try:
            self._loop.run_callback_threadsafe(self._write)
        except ValueError:  # the hub is gone
            self._write()

    def _write(self):
        while True:
            try:
                line = self._lines.popleft()
            except IndexError:  # another thread may have taken the last one
                return
            LOG.log(*line)

    def _oldest_line(self):
        """The line that has waited longest for the hub, or None."""
        try:
            return self._lines[0]
        except IndexError:
            return None
