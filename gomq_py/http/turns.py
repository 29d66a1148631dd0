"""Turns of requests: one begins at each poll of the loop.

Inside a request it is ``hub.turns`` that gives way.
"""
import contextlib
from collections import deque

import gevent
from gevent.event import Event

# Any time there is: what counts is that it takes the loop through a poll.
SHORTEST_S = 1e-4


class Turns:
    """One greenlet for each poll of the loop, in the order in which they came: clients who ask without end
    hold up one another and nobody else.

    A request of a client that has sent the next one already would otherwise begin without a look at any other
    socket.
    """

    def __init__(self):
        self._waiting = deque()
        self._timer = None

    def wait(self):
        """Come back when it is the caller's turn. May switch."""
        mine = Event()
        self._waiting.append(mine)
        self._arm()
        try:
            mine.wait()
        except BaseException:
            with contextlib.suppress(ValueError):
                self._waiting.remove(mine)
            raise

    def _arm(self):
        if self._timer is None:
            self._timer = gevent.get_hub().loop.timer(SHORTEST_S)
            self._timer.start(self._next)

    def _next(self):
        self._timer.close()
        self._timer = None
        if self._waiting:
            self._waiting.popleft().set()
            if self._waiting:
                self._arm()
