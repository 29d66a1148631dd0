"""Turns of requests: one request begins per poll of the loop. Inside a request ``hub.turns`` yields."""
import contextlib
from collections import deque

import gevent
from gevent.event import Event

# Any short time: the timer sends the loop through a poll.
SHORTEST_S = 1e-4


class Turns:
    """Starts one greenlet per poll of the loop, in order of arrival: clients that send requests without pause
    delay only each other.

    Otherwise the next request of such a client would begin before the loop looks at other sockets.
    """

    def __init__(self):
        self._waiting = deque()
        self._timer = None

    def wait(self):
        """Return at the caller's turn. May switch."""
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
