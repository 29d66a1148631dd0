"""Moving: writes anew, behind everything else, what keeps old segments of the store of mqtt.model.inflight.

Started by inflight when a segment is begun; the sessions' tables say what is kept where.
"""
from gomq_py.hub.job import Job
from gomq_py.hub.slice_clock import SliceClock
from gomq_py.mqtt.model.session_kind import EXTRA
from gomq_py.storage import locations


class Moving(Job):
    """Writes anew what is kept in old segments, some sessions at a time."""

    name = "writing QoS 2 identifiers anew"

    def __init__(self, inflight, oldest):
        super().__init__()
        self._inflight = inflight
        self._oldest = oldest
        self._left = None
        self._first = 1  # identifier that was sent by the last of them, to go on with

    def step(self):
        if self._left is None:
            self._left = self._inflight.vhost.extras[EXTRA].with_identifiers()
            if self._inflight.sure_at and locations.number_of(self._inflight.sure_at) < self._oldest:
                self._inflight.sure_at = self._inflight.again(self._inflight.sure_at)
        clock = SliceClock(every=1)
        while self._left:
            session = self._left[-1]
            self._first = 0 if session.sent is None else session.sent.move(self._oldest, self._first)
            if not self._first:
                if session.received is not None:
                    session.received.move(self._oldest)
                self._left.pop()
                self._first = 1
            if clock.is_over():
                return True
        self._inflight.moving = None
        self._inflight.moved()
        return False

    def failed(self, error):
        """The next full segment is another occasion."""
        self._inflight.moving = None
        return False
