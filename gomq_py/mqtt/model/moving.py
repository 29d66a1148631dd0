"""Moving: writes anew what the store of mqtt.model.inflight keeps, because the sessions' tables know it, too.

Moving does so behind everything else with what keeps old segments, when a segment is begun; Replacing in a
new store with all of it, when one has failed.
"""
from functools import partial

from gomq_py.errors import Refused
from gomq_py.hub.again import FIRST_PAUSE_MS, Again
from gomq_py.hub.job import Job
from gomq_py.hub.slice_clock import SliceClock
from gomq_py.mqtt.model.session_kind import EXTRA
from gomq_py.observability.log import logger
from gomq_py.storage import locations

LOG = logger("mqtt")


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
        if self._inflight.failed:  # all of it is written anew elsewhere
            return False
        if self._left is None:
            self._left = self._inflight.vhost.extras[EXTRA].with_identifiers()
            for name in ("sure_at", "trust_at", "doubt_at"):
                kept_at = getattr(self._inflight, name)
                if kept_at and locations.number_of(kept_at) < self._oldest:
                    setattr(self._inflight, name, self._inflight.again(kept_at))
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


class Replacing(Again):
    """Puts a new Inflight with a new store in the place of one whose store has failed, and has everything
    that is under way noted there, some sessions at a time.

    The definitions name the new store on the disk before PUBCOMP leaves to anybody, because the one before
    may know identifiers that are free by then. Publishers at QoS 2, and what clients are sent at it, wait for
    that, and for nothing else: both are stuck until then.
    """

    name = "noting QoS 2 identifiers in a new store"

    def __init__(self, sessions):
        super().__init__(lambda: sessions.vhost.timers)
        self._vhost = sessions.vhost
        self._sessions = sessions
        self._left = None
        self._replaced = []  # Inflights that have yet to be told

    def start(self):
        """Make a new store."""
        self._left = None
        self._vhost.scheduler.start(self)

    def step(self):
        sessions = self._sessions
        if self._vhost.is_gone:
            return False
        if self._left is None:
            before = sessions.inflight
            try:
                self._left = sessions.renew_inflight()
            except Refused as error:
                LOG.error("%s are not kept: %s", sessions.inflight.name, error)
                self.begin()
                return False
            self._replaced.append(before)
        clock = SliceClock(every=1)
        while self._left:
            session = self._left.pop()
            for one in (session.sent, session.received):
                if one is not None and one.inflight is not None:
                    one.keep_in(sessions.inflight)
            if clock.is_over():
                return True
        if not sessions.inflight.failed:
            LOG.info("%s are kept again, in a new store", sessions.inflight.name)
            self._tell_when_named()
        return False

    def _tell_when_named(self):
        """Tell those before as soon as the definitions on the disk name another store."""
        self._vhost.when_safe(partial(self._named, self._sessions.inflight), _is_ours)

    def _named(self, after, error):
        if after.failed:  # those before are told with it
            return
        if error is None:
            replaced, self._replaced = self._replaced, []
            for inflight in (*replaced, after):
                inflight.replaced()
        else:  # the log of definitions has failed, and gets a successor, too
            self._vhost.timers.start(FIRST_PAUSE_MS, self._tell_when_named)


def _is_ours():
    """Files of stores that cannot be flushed are not about what the definitions name."""
    return False
