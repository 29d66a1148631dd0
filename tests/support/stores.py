"""Message stores for tests: one made in a folder, messages put in and taken out as plain values."""
from typing import NamedTuple

import gevent

from gomq_py.storage.disk.files import Files
from gomq_py.storage.flush.group_commit import GroupCommit
from gomq_py.storage.message import Message
from gomq_py.storage.segments.pool import SegmentPool
from gomq_py.storage.stores.recovery import open_store
from tests.support.waiting import wait_until

INCARNATION = bytes(range(16))


class Shown(NamedTuple):
    """What a test compares of a message."""

    body: bytes
    redelivered: bool = False
    delivery_count: int = 0


class StoreBench:
    """One store with everything below it; ``reopen`` is a restart, ``crash`` one without a close."""

    def __init__(self, folder, files=None, enabled=False, in_threads=True, **options):
        self.folder = folder
        self.files = files or Files()
        self.options = options
        self.enabled = enabled
        self.in_threads = in_threads
        self.damaged = []
        self.fenced = []
        self.message = Message()
        self.start()

    def start(self, listed=()):
        """``listed``: {folder: segment_list.Listed} as an orderly stop leaves it."""
        self.timers = []  # those that run, for rest()
        self.committer = GroupCommit(self.files, enabled=self.enabled)
        self.pool = SegmentPool(
            self.folder / "pool", self.files, self.committer,
            segment_bytes=self.options.get("segment_bytes", 8388608), in_threads=self.in_threads,
            start_timer=self.start_timer,
        )
        self.pool.listed = dict(listed)
        self.store, self.report = open_store(
            self.folder / "queue", self.files, self.pool, self.committer, INCARNATION, listener=self,
            **self.options)
        return self.store

    def close(self):
        self.store.close()
        self.committer.stop()

    def reopen(self):
        """Nothing may be missed after it."""
        self.close()
        listed = self.store.listed()
        self.start({} if listed is None or self.committer.has_failed else {self.store.folder: listed})
        assert not self.report.gone, self.report
        return self.store

    def crash(self):
        """As after kill -9: what is in the mappings is there, what is in memory is not."""
        self.committer.kill()
        return self.start()

    def finish_aside(self):
        """Wait until files that are being made ahead or given back are there, or gone,
        and everybody was told.
        """
        wait_until(self._is_finished, sleep=gevent.sleep)

    def _is_finished(self):
        if self.committer.background.is_idle and self.committer.is_idle:
            return True
        self.committer.after_sync(lambda error: None)
        return False

    def start_timer(self, after_ms, callback):
        timer = BenchTimer(self.timers, after_ms, callback)
        self.timers.append(timer)
        return timer

    def rest(self):
        """The time comes that an empty store is looked at; False: nobody looks."""
        timers, self.timers[:] = list(self.timers), ()
        for timer in timers:
            timer.callback()
        return bool(timers)

    # what the store tells

    def record_damaged(self, store, path, start, end, count):
        self.damaged.append((path, start, end, count))

    def store_fenced(self, store, error):
        self.fenced.append(error)

    # messages as values

    def push(self, body, persistent=True, **fields):
        """Append a message with this body; returns its location."""
        message = Message()
        message.assign(
            fields.pop("exchange", b""), fields.pop("routing_key", b"q"), fields.pop("properties", b"\0\0"),
            body, 1700000000000, persistent=persistent, **fields,
        )
        self.store.append(message)
        return message.describe()["location"]

    def peek(self):
        """The oldest ready message as ``Shown``, or None."""
        return self._shown() if self.store.peek(self.message) else None

    def shift(self):
        """Take the oldest ready message: (location, Shown), or None."""
        shown = self.peek()
        if shown is None:
            return None
        self.store.shift()
        return self.message.describe()["location"], shown

    def drain(self, ack=True, most=None):
        """Take all that is ready, in order, or as many as ``most``."""
        taken = []
        while len(taken) != most and (item := self.shift()) is not None:
            taken.append(item[1])
            if ack:
                self.store.delete(item[0])
        self.store.write_out()
        return taken

    def _shown(self):
        fields = self.message.describe()
        return Shown(self.message.get_body(), fields["redelivered"], fields["delivery_count"])


class BenchTimer:
    """One timer that a bench rings."""

    def __init__(self, running, after_ms, callback):
        self.running, self.after_ms, self.callback = running, after_ms, callback

    def stop(self):
        if self in self.running:
            self.running.remove(self)
