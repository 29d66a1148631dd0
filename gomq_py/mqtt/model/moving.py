"""Moving: writes the records of QoS 2 identifiers (qos2_records) anew, from the sessions' tables in memory.

When a new segment begins, the job Moving copies the records in old segments to the log's end. After a failure
of the store, the job Replacing writes all records to a new store.
"""
from functools import partial

from gomq_py.errors import Refused
from gomq_py.hub.scheduler import Job, SliceClock
from gomq_py.hub.timers import FIRST_PAUSE_MS, RetryJob
from gomq_py.mqtt.model.session_kind import EXTRA
from gomq_py.observability.log import logger
from gomq_py.storage.format import record

LOG = logger("mqtt")


class Moving(Job):
    """Writes QoS2Records anew that are in segments numbered below ``oldest``; some sessions per slice."""

    name = "writing QoS 2 identifiers anew"

    def __init__(self, records, oldest):
        super().__init__()
        self._records = records
        self._oldest = oldest
        self._left = None
        self._first = 1  # sent identifier to go on with in the last session

    def step(self):
        if self._records.failed:  # all records are written to a new store
            return False
        if self._left is None:
            self._left = self._records.vhost.extras[EXTRA].with_identifiers()
            for name in ("sure_at", "trust_at", "doubt_at"):
                kept_at = getattr(self._records, name)
                if kept_at and record.number_of(kept_at) < self._oldest:
                    setattr(self._records, name, self._records.again(kept_at))
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
        self._records.moving = None
        self._records.moved()
        return False

    def failed(self, error):
        """Leave the records where they are until the next segment begins."""
        self._records.moving = None
        return False


class Replacing(RetryJob):
    """Replaces a QoS2Records whose store has failed. The new QoS2Records has a new store, to which this job
    writes all identifiers in flight, some sessions per slice.
    """

    name = "noting QoS 2 identifiers in a new store"

    # PUBCOMPs leave only once the definitions on disk name the new store: the failed store may still have
    # records of identifiers that clients may then reuse. Until then both QoS2Records are stuck: QoS 2
    # publishers and deliveries wait.
    def __init__(self, sessions):
        super().__init__(lambda: sessions.vhost.timers)
        self._vhost = sessions.vhost
        self._sessions = sessions
        self._left = None
        self._replaced = []  # replaced QoS2Records that are still stuck

    def start(self):
        """Begin to write all identifiers in flight to a new store."""
        self._left = None
        self._vhost.scheduler.start(self)

    def step(self):
        sessions = self._sessions
        if self._vhost.is_gone:
            return False
        if self._left is None:
            before = sessions.qos2_records
            try:
                self._left = sessions.renew_qos2_records()
            except Refused as error:
                LOG.error("%s are not kept: %s", sessions.qos2_records.name, error)
                self.begin()
                return False
            self._replaced.append(before)
        clock = SliceClock(every=1)
        while self._left:
            session = self._left.pop()
            for one in (session.sent, session.received):
                if one is not None and one.records is not None:
                    one.keep_in(sessions.qos2_records)
            if clock.is_over():
                return True
        if not sessions.qos2_records.failed:
            LOG.info("%s are kept again, in a new store", sessions.qos2_records.name)
            self._tell_when_named()
        return False

    def _tell_when_named(self):
        self._vhost.when_safe(partial(self._named, self._sessions.qos2_records), _is_ours)

    def _named(self, after, error):
        if after.failed:  # released with the next store
            return
        if error is None:
            replaced, self._replaced = self._replaced, []
            for records in (*replaced, after):
                records.replaced()
        else:  # the log of definitions has failed, and gets a successor, too
            self._vhost.timers.start(FIRST_PAUSE_MS, self._tell_when_named)


def _is_ours():
    """The ``concerns`` for when_safe(): a failed flush of a queue's files does not concern definitions."""
    return False
