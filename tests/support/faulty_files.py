"""FaultyFiles: a disk that fails, writes half or hangs at the N-th seam call of a scenario.

A scenario is run once with no fault to count its calls (``calls``), then once for every N. Only what the disk
did before is on it afterwards, so the folder can be recovered with plain ``Files``.
"""
import errno
import os
import signal
import threading

import gevent

from tests.support.waiting import in_time
from tests.support.watched_files import ANNOUNCEMENTS, FLUSHES, POOL_CALLS, WatchedFiles


APPENDS = frozenset({"append", "write_accepted"})
SLOW_TURNS = 200  # far more than a scenario does between two of its flushes
LONGEST_HOLD_S = in_time(20.0)  # a test that forgets to resume ends all the same


class FaultyFiles(WatchedFiles):
    """Misbehaves at seam call ``fail_at`` (from 1), or never.

    ``calls`` is what happened: (call, base name) in order.

    ``how``: "fail" raises instead of doing it, "short" does half of an append and then raises, "little" has
    the system take an append a little at a time, "after" does it and raises all the same (the answer was
    lost; a flush that failed after some pages), "slow" lets a flush take many turns of the loop (for flushes
    in greenlets), "hold" lets it hang until ``resume`` is set, "dead" fails this call and every later one,
    "kill" calls ``on_kill()`` and ends the process as kill -9 does.
    """

    def __init__(self, fail_at=None, how="fail", error=errno.EIO, listeners=()):
        super().__init__(listeners)
        self.fail_at = fail_at
        self.how = how
        self.error = error
        self.resume = threading.Event()
        self.calls = []
        self.failed = None  # (call, base name) that was hit
        self._count_lock = threading.Lock()
        self.on_kill = None
        self._short = self._little = False

    @property
    def may_sync_in_hub(self):
        """A flush that hangs, hangs in a thread."""
        return self.how != "hold"

    def about_to(self, call, subject):
        if call in ANNOUNCEMENTS:
            return
        with self._count_lock:
            self.calls.append((call, os.path.basename(subject)))
            number = len(self.calls)
        dead = self.how == "dead" and self.fail_at is not None and number > self.fail_at
        if number != self.fail_at and not dead:
            return
        if number == self.fail_at:
            self.failed = self.calls[number - 1]
        self._misbehave(call, subject)

    def _misbehave(self, call, subject):
        if self.how == "hold":
            # a slow disk is felt in the pool; the hub's own calls do not wait for the platter
            if call in POOL_CALLS:
                self.resume.wait(LONGEST_HOLD_S)
        elif self.how == "slow":
            if call in POOL_CALLS:
                for _ in range(SLOW_TURNS):
                    gevent.sleep(0)
        elif self.how == "little":
            self._little = call in APPENDS
        elif self.how == "kill":
            self.on_kill()
            os.kill(os.getpid(), signal.SIGKILL)
        elif self.how == "short" and call in APPENDS:
            self._short = True
        elif self.how == "after" and call in FLUSHES:
            self._flush_anyway(call, subject)
            raise OSError(self.error, os.strerror(self.error), subject)
        else:
            raise OSError(self.error, os.strerror(self.error), subject)

    def _write(self, file, at, octets):
        if not self._short:
            super()._write(file, at, octets)
            return
        self._short = False
        super()._write(file, at, octets[:len(octets) // 2])
        raise OSError(self.error, os.strerror(self.error))

    def _write_once(self, file, at, octets):
        return super()._write_once(file, at, octets[:max(1, len(octets) // 5)] if self._little else octets)

    def _flush_anyway(self, call, subject):
        fd = os.open(subject, os.O_RDONLY)
        try:
            os.fsync(fd)
        finally:
            os.close(fd)
