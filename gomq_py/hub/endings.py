"""Endings: the channels of connections that end, given back in slices, over all connections of a server.

Beside connection. A channel that ends costs some 10 us, and a connection may have thousands; where a network
fails, hundreds of connections end at once. What is left of a slice waits for the next poll of the loop,
connections in the order in which they ended. Never switches.
"""
from collections import deque
from itertools import chain, islice

from gomq_py.hub.job import Job, SliceClock

# Channels that end without waiting for others to be served: some 0.3 ms.
FEW = 32


class Endings(Job):
    """Connections that have not let go of everything yet."""

    name = "ends of connections"

    def __init__(self, scheduler, slice_clock=SliceClock):
        super().__init__()
        self._scheduler = scheduler
        self._slice_clock = slice_clock
        self._waiting = deque()  # (iterator of ends; then)
        self._is_closed = False

    def give_back(self, ends, then):
        """Call each of ``ends``, an iterable that is asked for one at a time, and then ``then()``."""
        if not self._is_closed:
            self._waiting.append((iter(ends), then))
            self._scheduler.start(self)

    def give_back_few(self, ends, then):
        """The same at once, where they are few and nobody waits."""
        ends = iter(ends)
        first = list(islice(ends, FEW + 1))
        self.give_back(chain(first, ends), then)
        if len(self._waiting) == 1 and len(first) <= FEW:
            self.finish()

    def are_waiting(self):
        """Whether connections have not let go of everything yet."""
        return bool(self._waiting)

    def close(self):
        """Nothing is given back any more: what connections held stays as it is."""
        self._is_closed = True
        self._waiting.clear()

    def finish(self):
        """Do all of it now."""
        while self._waiting:
            self._next()

    def step(self):
        clock = self._slice_clock()
        while self._waiting:
            self._next()
            if clock.is_over():
                break
        return bool(self._waiting)

    def _next(self):
        """End one thing, or tell of the last."""
        ends, then = self._waiting[0]
        end = next(ends, None)
        if end is not None:
            end()
        else:
            self._waiting.popleft()
            then()

    def failed(self, error):
        """Something could not end as it should, and has been counted; the others do."""
        return bool(self._waiting)
