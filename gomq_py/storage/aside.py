"""Aside: work on files that may take long and that no flush waits for, in order, in one thread at a time.

Three lanes of storage.sync's.

Its greenlet runs only while there is work.
"""
import logging
from collections import deque

import gevent

from gomq_py.hub.threads import begin

logger = logging.getLogger(__name__)


class Aside:
    """One lane. ``threads_of()`` gives the pool."""

    def __init__(self, name, threads_of):
        self._name = name
        self._threads_of = threads_of
        self._work = deque()  # (function, arguments, done or None)
        # the same, which comes before that, in turns: who waits without end may not keep the rest from being
        # done
        self._first = deque()
        self._was_first = False
        self._greenlet = None
        self._killed = False

    def __len__(self):
        return len(self._first) + len(self._work)

    @property
    def is_idle(self):
        """Whether all of it is done."""
        return self._greenlet is None

    def add(self, function, arguments, done, first=False):
        """Have ``function(*arguments)`` called in a thread.

        ``done(result, error)``, if given, is called in the hub after it.
        """
        (self._first if first else self._work).append((function, arguments, done))
        if self._greenlet is None:
            self._greenlet = gevent.spawn(self._run)
            self._greenlet.name = self._name

    def join(self):
        """Return when all of it is done. May switch."""
        while self._greenlet is not None:
            self._greenlet.join()

    def kill(self):
        """End as a crash does.

        What nobody hears of, closing descriptors, is done: those go with a process that dies.
        """
        self._killed = True
        if self._greenlet is not None:
            gevent.kill(self._greenlet)
            self._greenlet = None
        while self:
            function, arguments, done = self._next()
            if done is None:
                function(*arguments)

    def _next(self):
        self._was_first = bool(self._first) and not (self._was_first and self._work)
        return (self._first if self._was_first else self._work).popleft()

    def _run(self):
        while self:
            function, arguments, done = self._next()
            try:
                result, error = begin(function, *arguments, pool=self._threads_of()).get(), None
            except Exception as failure:  # the work's, or no thread to be had
                result, error = None, failure
            if self._killed:
                return  # the work ended in the very moment of the crash: nobody hears of it
            if done is None and error is not None:
                logger.warning("work on files failed: %s", error)
            try:
                if done is not None:
                    done(result, error)
            except Exception:
                logger.exception("a callback after work on files failed")
        self._greenlet = None
