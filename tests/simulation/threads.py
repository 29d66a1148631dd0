"""Threads: a thread of a pool is a greenlet that the world resumes, so that a seed decides what happens
meanwhile.

It begins some time after it was asked for, pauses in front of each call of the file seam and in the middle of
each flush, and its result reaches the hub some time after it ended. Between two pauses it runs to the end, as
it would without the interpreter's switches.
"""
from collections import deque

import gevent
from gevent.event import AsyncResult
from greenlet import getcurrent, greenlet

# Seconds between two steps of a thread.
STEP_S = (0.0, 10e-6, 100e-6, 100e-6, 1e-3)


class Pool:
    """In place of gevent's ThreadPool: at most ``threads`` at a time."""

    def __init__(self, threads, process=None):
        self._process = process or gevent.get_hub().process
        self._random = self._process.world.random(f"threads of {self._process}")
        self._free = threads
        self._waiting = deque()  # (function, arguments, result)

    def spawn(self, function, *arguments):
        """Begin ``function(*arguments)``. Returns an AsyncResult."""
        result = AsyncResult()
        self._waiting.append((function, arguments, result))
        self._begin()
        return result

    def kill(self):
        """Threads end what they have begun."""

    def step_s(self):
        """How long something takes."""
        return self._random.choice(STEP_S)

    def ended(self, result, value):
        """A thread has done its work."""
        self._process.hub.loop.run_callback_threadsafe(result.set, value)
        self._free += 1
        self._begin()

    def _begin(self):
        while self._free and self._waiting:
            self._free -= 1
            self._process.after(self.step_s(), Thread(self, self._process, *self._waiting.popleft()).switch)


class Thread(greenlet):
    """One piece of work. Other threads and the hub have their turns while it pauses."""

    is_in_flush_pool = True  # for the files of power cuts

    def __init__(self, pool, process, function, arguments, result):
        super().__init__(parent=process.world.greenlet)
        self._pool = pool
        self._process = process
        self._work = function, arguments, result

    def run(self):
        """Do the work; what it raises is in what it returns, see hub.threads."""
        function, arguments, result = self._work
        self._pool.ended(result, function(*arguments))

    def pause(self, seconds=None):
        """Let others go on for so long, or as long as a step takes."""
        self._process.after(self._pool.step_s() if seconds is None else seconds, self.switch)
        self._process.world.greenlet.switch()


def this_thread():
    """The Thread that runs this, or None in a hub or in one of its greenlets."""
    current = getcurrent()
    return current if isinstance(current, Thread) else None
