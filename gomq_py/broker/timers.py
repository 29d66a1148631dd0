"""Timers: what time it is and what happens later, for the parts of the model that expire. Tests have their own."""
import time

import gevent


class HubTimers:
    """Timers of this thread's hub, or of ``loop``. A pending one costs no greenlet, and none is pending where nothing can expire."""

    def __init__(self, loop=None):
        self._loop = loop

    @staticmethod
    def now_ms():
        """Unix milliseconds."""
        return int(time.time() * 1000)

    def start(self, after_ms, callback):
        """Call ``callback()`` in the hub, once, not before ``after_ms``. Returns an object with ``stop()``. Callbacks must not switch."""
        timer = (self._loop or gevent.get_hub().loop).timer(max(after_ms, 0) / 1000)
        timer.start(callback)
        return timer
