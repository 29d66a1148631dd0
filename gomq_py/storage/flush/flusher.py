"""Flusher: flushes files for greenlets, in threads that never take the interpreter's lock.

Used by storage.flush.flushing. A greenlet that calls ``flush`` waits as for a socket, and the event loop goes
on. Interpreted code has no Flusher (``IS_NATIVE``): a pool of Python threads flushes.
"""
import contextlib
import errno
import os
import weakref

import gevent
from gevent.hub import Waiter

from gomq_py.storage.disk.mapping import address_of
from gomq_py.storage.flush import flush_threads

READ = 1  # event of the loop's watchers

# Whether a Flusher can be had.
IS_NATIVE = flush_threads.is_native()


class Flusher:
    """Flushes files for greenlets, in at most ``most`` native threads. One per GroupCommit and event loop.

    The first thread begins at once, further threads when needed; all stay until ``close``. The constructor
    raises OSError if the system has no thread or descriptor left.
    """

    __slots__ = (
        "_threads", "_watcher", "_waiting", "_alarm", "_alarm_watcher", "_pausing", "_pid", "most",
        "__weakref__",
    )

    def __init__(self, most):
        self.most = most
        self._waiting = {}  # place -> [Waiter or None, file, its mapping]
        self._alarm = -1
        self._pausing = None  # the Waiter of the greenlet that pauses
        self._pid = os.getpid()
        self._begin()

    def _begin(self):
        self._threads = flush_threads.begin(self.most)
        if not self._threads:
            number = flush_threads.last_error()
            raise OSError(number, f"no thread that flushes: {os.strerror(number)}")
        descriptor = flush_threads.done_descriptor(self._threads)
        self._watcher = gevent.get_hub().loop.io(descriptor, READ, ref=False)
        # The loop holds what it calls: a Flusher that nobody closed would stay for ever.
        self._watcher.start(_heard_by, weakref.ref(self))

    def flush(self, file):
        """Flush the file, so that its size and all bytes written before survive a power cut. Raises OSError,
        without a path. Switches greenlets.
        """
        waiter = Waiter()
        place = self._ask(file)
        entry = self._waiting[place] = [waiter, file, file.map]
        self._watcher.ref = True
        try:
            number = waiter.get()
        finally:
            entry[0] = None  # cut short: the end of the flush wakes no greenlet
        if number:
            raise OSError(number, os.strerror(number))

    def pause(self, seconds):
        """Suspend the greenlet for ``seconds`` (less than 1), or until ``end_pause``. The pause is exact,
        whereas the event loop's timers are up to a millisecond late. Returns at once if the system has no
        timer. For one greenlet at a time. May switch greenlets.
        """
        if self._alarm < 0:
            self._alarm = flush_threads.begin_alarm()
            if self._alarm < 0:
                return
            self._alarm_watcher = gevent.get_hub().loop.io(self._alarm, READ, ref=False)
            self._alarm_watcher.start(_rung_by, weakref.ref(self))
        if not flush_threads.set_alarm(self._alarm, seconds):
            return
        waiter = self._pausing = Waiter()
        self._alarm_watcher.ref = True
        try:
            waiter.get()
        finally:
            if self._pausing is waiter:  # cut short: the alarm wakes no greenlet
                self._pausing = None

    def end_pause(self):
        """Wake the greenlet in ``pause()``, if any, after the present iteration of the event loop."""
        waiter = self._pausing
        if waiter is not None:
            self._pausing = None
            flush_threads.still_alarm(self._alarm)
            self._alarm_watcher.ref = False
            gevent.get_hub().loop.run_callback(waiter.switch, None)

    def close(self):
        """End the threads without waiting. The end of a running flush wakes no greenlet."""
        if self._threads:
            threads = self._threads
            self._threads = flush_threads.none()
            watcher, self._watcher = self._watcher, None
            _forget(watcher)
            self._waiting = {}
            # The threads belong to the process that began them: a forked child has none, and may find the
            # mutex taken by a thread of its parent.
            if os.getpid() == self._pid:
                flush_threads.end(threads)
        if self._alarm >= 0:
            watcher, self._alarm_watcher = self._alarm_watcher, None
            _forget(watcher)
            self._pausing = None
            flush_threads.end_alarm(self._alarm)
            self._alarm = -1

    def __del__(self):
        self.close()

    def _rung(self):
        """Wake the greenlet in ``pause()``. Called when the pause's timer (the alarm) has expired."""
        flush_threads.hear_alarm(self._alarm)
        self._alarm_watcher.ref = False
        waiter = self._pausing
        if waiter is not None:
            self._pausing = None
            waiter.switch(None)

    def _ask(self, file):
        """Hand the file to a flush thread. Returns the key of the request in ``_waiting``. Raises OSError."""
        if not self._threads:
            raise OSError(errno.ECANCELED, "flushes have ended")
        if file.fd >= 0:
            place = flush_threads.ask(self._threads, file.fd, flush_threads.at(0), 0)
        else:
            place = flush_threads.ask(
                self._threads, -1, flush_threads.at(address_of(file.map)), len(file.map))
        if place < 0:
            raise OSError(-place, os.strerror(-place))
        return place

    def _heard(self):
        """Wake the greenlets whose flushes have ended. Called when the eventfd is readable."""
        flush_threads.hear(self._threads)
        for place in list(self._waiting):
            number = flush_threads.take(self._threads, place)
            if number >= 0:
                waiter = self._waiting.pop(place)[0]
                if not self._waiting:
                    self._watcher.ref = False
                if waiter is not None:
                    waiter.switch(number)
                if not self._threads:
                    return  # a woken greenlet has closed this


def _forget(watcher):
    if watcher is not None:
        with contextlib.suppress(ValueError):  # the loop went first, with its thread
            watcher.close()


def _heard_by(reference):
    flusher = reference()
    if flusher is not None:
        flusher._heard()


def _rung_by(reference):
    flusher = reference()
    if flusher is not None:
        flusher._rung()
