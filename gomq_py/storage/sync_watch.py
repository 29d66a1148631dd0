"""Sync watch: writes to the log that a flush hangs, while it hangs and when it has ended.

Beside storage.sync, whose pool threads report to it. A thread of the operating system looks, because a disk
that hangs may hold the hub's thread too. It looks only while something is being flushed, and waits without a
timer otherwise. Nothing switches.
"""
import time

from gevent import monkey

from gomq_py.observability.log import logger

LOG = logger("storage")

# The command patches the standard library; here the real ones are needed.
_start_thread = monkey.get_original("_thread", "start_new_thread")
_new_lock = monkey.get_original("_thread", "allocate_lock")


class SyncWatch:
    """Flushes that run longer than ``after_s`` seconds are logged; 0: none are.

    ``begin`` and ``end`` are called by whoever flushes, in any thread.
    """

    def __init__(self, after_s):
        self._after_s = after_s
        self._running = {}  # id -> [path, when it began, whether it was logged]
        self._begun = 0
        self._wakeup = _new_lock()  # taken, but for a moment: released to wake the watch
        self._wakeup.acquire()
        self._switching = _new_lock()
        self._is_started = self._is_parked = self._stopping = False

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
            LOG.warning("flushing %s ended after %.1f s", entry[0], time.monotonic() - entry[1])

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
        seen = 0
        while not self._stopping:
            self._wakeup.acquire(True, interval_s)
            self._look()
            # stop() wakes it once, and may have done so above
            if seen == self._begun and not self._running and not self._stopping:
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
                LOG.error(
                    "flushing %s hangs for %.1f s: the disk does not answer, and nothing durable is "
                    "confirmed until it does", path, now - began,
                )
