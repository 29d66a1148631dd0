"""Costly hashes: computed in a few threads, the addresses in turn.

Unauthenticated peers can trigger any number of them. So they occupy only some threads of the hub's pool,
which names, files and keys need too, and every address gets as many turns as the others.
"""
import os
from collections import OrderedDict, deque

from gevent.event import Event

from gomq_py.hub.threads import begin

# Hashing is bound by the CPU: more threads than processors would only make each slower.
AT_ONCE = max(1, min(4, (os.cpu_count() or 2) // 2))


class HashPool:
    """Runs costly functions in the pool; ``run`` is the only verb."""

    def __init__(self, at_once=AT_ONCE):
        self._free = at_once
        # address -> deque of Events; the address served longest ago comes first
        self._waiting = OrderedDict()

    def run(self, address, function, *arguments):
        """Run ``function(*arguments)`` in a thread at this address's turn; returns its result. May switch."""
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
        self._waiting.setdefault(address, deque()).append(mine)
        try:
            mine.wait()
        except BaseException:  # the client has disconnected
            if mine.is_set():
                self._hand_on()
            else:
                self._leave(address, mine)
            raise

    def _leave(self, address, mine):
        row = self._waiting[address]
        row.remove(mine)
        if not row:
            del self._waiting[address]

    def _hand_on(self):
        if not self._waiting:
            self._free += 1
            return
        address, row = self._waiting.popitem(last=False)
        row.popleft().set()
        if row:
            self._waiting[address] = row  # to the end of the line
