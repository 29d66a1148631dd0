"""Applier: applies the leader's frames to a follower's data folder, in one thread at a time, and flushes.

Used by ``follower``, which reads frames on the event loop and passes them to ``put``. Frames that arrive
while a thread works wait for its next round.
"""
import time
from collections import deque

import gevent
from gevent.event import Event

from gomq_py.cluster.former_run import EXACT_FLUSHES, Past
from gomq_py.cluster.replica import Replica, ReplicaError
from gomq_py.cluster.staging import Staging
from gomq_py.cluster.wire import events
from gomq_py.hub.threads import in_thread
from gomq_py.observability.log import logger
from gomq_py.storage.disk import swap
from gomq_py.storage.disk.data_dir import NOT_CONTENT

LOG = logger("cluster")
# Octets that wait to be applied: as many as the leader sends in a tenth of a second or less. Then the
# follower stops reading.
QUEUE_OCTETS = 16 << 20
# Octets that a thread applies before the follower hears of it.
BATCH_OCTETS = 4 << 20
# Longest time between a change and its flush.
FLUSH_S = 0.2


class Applier:
    """Applies frames to the data folder ``root``. Positions count the leader's events.

    ``received``: last position passed to ``put``. ``flushed``: last position on disk. ``failure``: the
    exception that stopped the Applier; ``begin_sync`` restarts it. ``damage``: the exception after which
    received changes may be missing on disk; reset to None when a full sync is complete.

    ``progress()`` is called on the event loop after each round of a thread. ``failed()`` is called there once
    per failure, after ``failure`` was set. ``flush_s``: longest time between a change and its flush.
    ``trusts_disk``: see Staging.
    """

    def __init__(self, files, root, progress, failed, flush_s=FLUSH_S, trusts_disk=True):
        self.received = self.flushed = self._applied = 0
        self.octets = 0  # that wait, or are being applied
        self.failure = self.damage = None
        self.identity = None  # of a sync that was swapped in; whoever takes note of it clears it
        self.staging = None  # of a sync under way
        self._files = files
        self._root = root
        self._progress = progress
        self._failed = failed
        self._flush_s = flush_s
        self._replica = None
        self._past = Past(trusts_disk)
        self._next_identity = None
        self._frames = deque()
        self._flush_at = None  # time of the next flush; None: nothing was applied since the last one
        self._wake, self._room, self._idle, self._turned = Event(), Event(), Event(), Event()
        self._idle.set()
        self._is_stopping = False
        self._greenlet = None

    @property
    def place(self):
        """Position after which the leader's stream can be resumed; None if a full sync is needed."""
        if self._replica is not None and self.failure is None:
            return self.received
        past, staging = self._past, self.staging
        is_sound = past.trusts_disk and not (staging is not None and staging.is_doubtful)
        return past.former.position if past.former is not None and is_sound else None

    @property
    def former(self):
        """The data folder's FormerRun, without ``runs``; None if a sync is needed. Call after ``flush``."""
        replica = self._replica
        if replica is None or self.failure is not None:
            return self._past.former
        return self._past.present(self._applied, replica)

    @property
    def is_doubtful(self):
        """Whether a flush or a read has failed since the last complete sync."""
        return not self._past.trusts_disk or any(
            target is not None and target.is_doubtful for target in (self.staging, self._replica))

    def start(self):
        self._greenlet = gevent.spawn(self._run)
        self._greenlet.name = "cluster: applies"

    def stop(self):
        """Apply and flush all waiting frames, drop an unfinished sync, and close. May switch greenlets.

        Returns ``damage``.
        """
        self._is_stopping = True
        self._wake.set()
        if self._greenlet is not None:
            self._greenlet.join()
        self._past.former = self.former
        try:
            in_thread(self._close)
        except OSError as error:
            self.damage = self.damage or error
        return self.damage

    def begin_sync(self, identity):
        """Begin a full sync. ``identity``: the data folder's identity after the sync.

        Waiting frames are applied and flushed first. An unfinished earlier sync is dropped. Raises OSError,
        DataDirError. May switch greenlets.
        """
        if self.staging is None:
            self.flush()
        self._past.former = self.former
        self._give_up()
        self.received = self.flushed = self._applied = 0
        in_thread(self._stage)
        self._next_identity = identity
        self.failure = None

    def go_on(self):
        """Prepare the data folder for the events after ``place``. Drops an unfinished sync.

        May switch greenlets. Raises OSError; ReplicaError if ``place`` is no longer available.
        """
        if self._replica is None:
            self._give_up()
            if self._replica is not None or self.place is None:
                raise ReplicaError("the sync has been swapped in, or has failed, meanwhile")
            former = self._past.former
            self.received = self.flushed = self._applied = former.position
            in_thread(self._open_again, former)
            self.failure = None

    def _give_up(self):
        """Drop the waiting frames, and wait until no thread works. May switch greenlets."""
        self._forget()
        while not self._idle.is_set():
            self._idle.wait()
            self._forget()  # a turn puts back what it did not come to; another one may have begun with that

    def put(self, frame):
        """Queue a frame of events. May switch greenlets: waits while QUEUE_OCTETS or more are queued."""
        self._frames.append(frame)
        self.octets += len(frame.payload)
        self.received = frame.position
        self._wake.set()
        while self.octets >= QUEUE_OCTETS and self.failure is None:
            self._room.clear()
            self._room.wait()

    def flush(self):
        """Apply all waiting frames, and flush them. May switch greenlets.

        During a full sync the frames are applied, but not flushed. Returns ``damage``.
        """
        while self.failure is None and (
                self._frames or self._flush_at is not None or not self._idle.is_set()):
            if self._flush_at is not None:
                self._flush_at = 0.0
            self._turned.clear()
            self._wake.set()
            self._turned.wait()
        return self.damage

    # the greenlet

    def _run(self):
        while self._frames or self._flush_at is not None or not self._is_stopping:
            self._wake.wait(self._pause_s())
            self._wake.clear()
            batch = self._take()
            now_s = time.monotonic()
            is_due = self._flush_at is not None and (
                self._is_stopping and not self._frames or now_s >= self._flush_at)
            if batch or is_due:
                self._idle.clear()
                try:
                    self._turn(batch, is_due)
                finally:
                    self._idle.set()
                    self._turned.set()

    def _pause_s(self):
        if self._frames or self._is_stopping:
            return 0
        return None if self._flush_at is None else max(0.0, self._flush_at - time.monotonic())

    def _take(self):
        batch, octets = [], 0
        while self._frames and octets < BATCH_OCTETS:
            batch.append(self._frames.popleft())
            octets += len(batch[-1].payload)
        return batch

    def _turn(self, batch, is_due):
        if self.failure is not None:
            self._forget()
            return
        if batch and self._flush_at is None and self.staging is None:
            self._flush_at = time.monotonic() + self._flush_s
        try:
            done, is_flushed = in_thread(self._work, batch, is_due)
        except Exception as error:
            self._fail(error)
            return
        self._frames.extendleft(reversed(batch[done:]))
        self.octets -= sum(len(frame.payload) for frame in batch[:done])
        self._room.set()
        if is_flushed:
            self._flush_at = None
        try:
            self._progress()
        except Exception as error:
            LOG.exception("the follower could not take note of what was applied; it syncs anew")
            self._fail(error)

    def _fail(self, error):
        self.failure = error
        if self.staging is None:  # a sync that fails leaves the data folder as it was
            self.damage = self.damage or error
            self._past.former = None
        self._forget()
        try:
            self._failed()
        except Exception:
            LOG.exception("the follower could not take note of a failure")

    def _forget(self):
        self._frames.clear()
        self.octets = 0
        self._flush_at = None
        self._room.set()

    # in a thread

    def _work(self, batch, is_due):
        """Apply frames up to one that requests a flush, and flush. Without one, flush only if ``is_due``.

        Runs in a thread. Returns (number of applied frames, whether all of them are flushed).
        """
        target, done = self.staging or self._replica, 0
        for frame in batch:
            events.decode(frame.payload, target)
            is_staged = self.staging is not None
            if not is_staged:
                self._past.applied(frame, self._applied)
            self._applied = frame.position
            done += 1
            if is_staged and target.is_whole:
                target = self._complete()
                is_due = True
            elif not is_staged and target.is_hurried:
                is_due = True
                break
        if self.staging is not None or not is_due:
            return done, False
        target.flush()
        self.flushed = self._applied
        return done, True

    def _complete(self):
        self._past.former = None  # from now on the data folder may be the new one, and after a fault partly
        identity = self._next_identity._replace(position=self._applied)
        replica = self.staging.complete(identity)
        self.identity = identity
        self.staging = None
        self.damage = None
        self._past.begin(self._applied)
        self._replica = replica  # last: from now on the hub may ask the leader to go on
        return replica

    def _stage(self):
        self._past.trusts_disk = not self.is_doubtful
        self._close()
        self.staging = Staging(self._files, self._root, self._past.trusts_disk)

    def _open_again(self, former):
        self._close()
        swap.finish(self._files, self._root, NOT_CONTENT)  # its links would keep the room of removed files
        self._replica = Replica(self._files, self._root, former.paths)
        self._replica.flushes = EXACT_FLUSHES * former.is_exact

    def _close(self):
        for target in (self.staging, self._replica):
            if target is not None:
                target.close()
        self.staging = self._replica = None
