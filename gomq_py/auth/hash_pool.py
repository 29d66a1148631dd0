"""Computes costly password hashes in a few threads, which client addresses use in turn.

A peer that has not logged in can cause any number of hashes. So hashes use only some threads of the pool,
which also serves name lookups, files and keys. Waiting addresses get a thread in turn, for one hash each.
"""
import os

from gevent.event import Event

from gomq_py.hub.threads import begin
from gomq_py.hub.turns import Line

# Hashing is bound by the CPU: more threads than processors would only make each slower.
AT_ONCE = max(1, min(4, (os.cpu_count() or 2) // 2))


class HashPool:
    """Runs costly functions in at most ``at_once`` threads."""

    def __init__(self, at_once=AT_ONCE):
        self._free = at_once
        self._line = Line()  # Events, by address

    def run(self, address, function, *arguments):
        """Run ``function(*arguments)`` in a thread when ``address`` has its turn, and return its result.

        May switch greenlets.
        """
        if self._free:
            self._free -= 1
        else:
            self._wait(address)  # a finished job hands its thread on
        job = None
        try:
            job = begin(function, *arguments)
            return job.get()
        finally:
            if job is None or job.ready():
                self._hand_on()
            else:  # the caller has given up, but the thread still works
                job.call_after(self._hand_on)

    def _wait(self, address):
        mine = Event()
        self._line.add(mine, address)
        try:
            mine.wait()
        except BaseException:  # the client has disconnected
            if mine.is_set():
                self._hand_on()
            else:
                self._line.discard(mine, address)
            raise

    def _hand_on(self):
        if self._line:
            self._line.take().set()
        else:
            self._free += 1
