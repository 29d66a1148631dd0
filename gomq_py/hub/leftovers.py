"""Leftovers: memory that many clients took, given back to the system once they have gone.

Beside admission, which tells of each that leaves. What a client leaves is free memory of the allocators, and
in between objects that the interpreter keeps for the next ones; one of these holds an arena of 1 MiB. So they
are let go of when many have left and nobody leaves any more: while clients come and go, the next ones take
that memory. Idle, no timer runs.
"""
from gomq_py.hub.threads import in_thread
from gomq_py.observability.garbage import let_go_of_spares
from gomq_py.observability.log import forget_second
from gomq_py.observability.resources import give_memory_back

# Clients that left: some 5 MB.
MANY = 500
# Without anybody that leaves, until it is quiet.
LULL_MS = 500


def give_back():
    """What nobody uses. May take milliseconds, most of them in a thread. May switch."""
    forget_second()
    let_go_of_spares()
    in_thread(give_memory_back)


class Leftovers:
    """One per hub. ``timers`` and ``endings``, of what clients had, are the hub's; ``begin_to_give_back()``
    must not switch.
    """

    def __init__(self, timers, endings, begin_to_give_back):
        self._timers = timers
        self._endings = endings
        self._begin_to_give_back = begin_to_give_back
        self._left = 0  # since it was given back
        self._seen = 0  # of them, at the last look
        self._timer = None

    def one_left(self):
        """A client has gone."""
        self._left += 1
        if self._left >= MANY and self._timer is None:
            self._look_later()

    def _look_later(self):
        self._seen = self._left
        self._timer = self._timers.start(LULL_MS, self._look)

    def _look(self):
        self._timer = None
        if self._left > self._seen or self._endings.are_waiting():
            self._look_later()
        else:
            self._left = self._seen = 0
            self._begin_to_give_back()
