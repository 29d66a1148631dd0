"""Catching up: publishers that are read less eagerly, because the consumers of their queues cannot follow.

Beside the streams, which it holds, and below the queues, which it asks. A publisher that brings more than
live consumers take is read again when its queues are no longer outrun, and after LOOKS at the latest: it is
slowed down, never stopped. What it goes on to send waits in the buffers of its socket, and then in itself. Of
those that wait for one queue each look lets one on. Idle, no timer runs.
"""

# The backlog that consumers may have is several times this: they do not run out of messages meanwhile.
LOOK_MS = 2
# At least 50 reads of 64 KiB a second, 3 MB/s, whatever the backlog is.
LOOKS = 10


class CatchingUp:
    """One per hub. ``timers`` is the hub's."""

    def __init__(self, timers):
        self._timers = timers
        self._waiting = []
        self._timer = None

    def __len__(self):
        return len(self._waiting)

    def wait(self, stream, queues):
        """Hold a stream until its queues (Destinations, at least one) are no longer all outrun."""
        self._waiting.append(Waiting(stream.hold("consumers of its queues to catch up"), queues))
        if self._timer is None:
            self._timer = self._timers.start(LOOK_MS, self._look)

    def _look(self):
        self._timer = None
        waiting, self._waiting = self._waiting, []
        try:
            self._waiting += self._behind(waiting)  # beside those that came meanwhile
        except BaseException:
            for one in waiting:
                one.hold.release()  # nobody is held for a fault
            raise
        if self._waiting and self._timer is None:
            self._timer = self._timers.start(LOOK_MS, self._look)

    @staticmethod
    def _behind(waiting):
        """Those of them that wait on; the others are released."""
        behind = []
        let_on = set()
        for one in waiting:
            one.looks += 1
            queue = one.queues[0]
            if one.looks < LOOKS and (queue in let_on or all(queue.is_outrun() for queue in one.queues)):
                behind.append(one)
            else:
                let_on.add(queue)
                one.hold.release()
        return behind


class Waiting:
    """A publisher that is held, and what for."""

    __slots__ = ("hold", "queues", "looks")

    def __init__(self, hold, queues):
        self.hold = hold
        self.queues = queues
        self.looks = 0
