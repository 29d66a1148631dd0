"""Timers: what time it is and what happens later, for the parts of the model that expire.

Tests have their own.
"""
import time

import gevent

from gomq_py.observability.log import logger

LOG = logger("broker")


class HubTimers:
    """Timers of this thread's hub.

    A pending one costs no greenlet, and none is pending where nothing can expire.
    """

    def __init__(self):
        self._pending = set()
        self._is_closed = False

    @staticmethod
    def now_ms():
        """Unix milliseconds."""
        return int(time.time() * 1000)

    def start(self, after_ms, callback):
        """Call ``callback()`` in the hub, once, not before ``after_ms``.

        Returns an object with ``stop()``. Callbacks must not switch.
        """
        timer = _Timer(self._pending, callback)
        if not self._is_closed:
            timer.start(max(after_ms, 0) / 1000)
        return timer

    def close(self):
        """None fires any more, nor one that is started later: a dead broker's would write into the files of
        the one that comes after it.
        """
        self._is_closed = True
        for timer in list(self._pending):
            timer.stop()


class _Timer:
    """One call, and among the pending ones until it is made or stopped."""

    __slots__ = ("_pending", "_callback", "_watcher")

    def __init__(self, pending, callback):
        self._pending = pending
        self._callback = callback
        self._watcher = None

    def start(self, after_s):
        self._pending.add(self)
        self._watcher = gevent.get_hub().loop.timer(after_s)
        self._watcher.start(self._fire)

    def stop(self):
        """Do not call."""
        self._pending.discard(self)
        watcher, self._watcher = self._watcher, None
        if watcher is not None:
            watcher.stop()
            watcher.close()

    def _fire(self):
        """Its time has come.

        What the callback raises would end on standard error, where no operator looks.
        """
        self.stop()
        try:
            self._callback()
        except Exception:
            LOG.exception(
                "a timer's work failed: %s", getattr(self._callback, "__qualname__", self._callback)
            )
