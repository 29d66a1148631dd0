"""Timers: what time it is and what happens later, for the parts of the model that expire. Tests have their own."""
import time
from functools import partial

import gevent

from gomq_py.observability.log import logger

LOG = logger("broker")


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
        timer.start(partial(_call, callback))
        return timer


def _call(callback):
    """A timer has fired. What its callback raises would end on standard error, where no operator looks."""
    try:
        callback()
    except Exception:
        LOG.exception("a timer's work failed: %s", getattr(callback, "__qualname__", callback))
