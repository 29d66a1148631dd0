"""Costly hashes: computed in a thread, few at once, the addresses in turn.

Strangers can ask for as many as they like. So they never hold more than some threads of the hub's pool, which
names, files and keys need too, and one address with many attempts is as far as the next with one.
"""
import os
from collections import OrderedDict, deque

from gevent.event import Event

from gomq_py.hub.threads import begin

# Computing is all that they do: more than there are processors would only be slower each.
AT_ONCE = max(1, min(4, (os.cpu_count() or 2) // 2))


class CostlyHashes:
    """``run`` is the only verb."""

    def __init__(self, at_once=AT_ONCE):
        self._free = at_once
        # address -> deque of Events; first the address that was served longest ago
        self._waiting = OrderedDict()

    def run(self, address, function, *arguments):
        """``function(*arguments)`` in a thread, when it is this address's turn. May switch."""
        if self._free:
            self._free -= 1
        else:
            self._wait(address)  # whoever is done hands the thread on
        job = None
        try:
            job = begin(function, *arguments)
            return job.get()
        finally:
            if job is None or job.ready():
                self._hand_on()
            else:  # who waited for it has given up, but the thread is at work
                job.call_after(self._hand_on)

    def _wait(self, address):
        mine = Event()
        self._waiting.setdefault(address, deque()).append(mine)
        try:
            mine.wait()
        except BaseException:  # the client has gone
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
            self._waiting[address] = row  # behind the others
