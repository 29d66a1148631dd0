"""Queues on a real store, and consumers that keep what they are given,
for tests of scheduling and of queue kinds.
"""
import os
from functools import partial

from gomq_py.broker.queues.consumers import Consumer
from gomq_py.broker.queues.group_queue import GroupQueue
from gomq_py.broker.queues.queue import Queue, QuorumQueue
from gomq_py.storage.disk.files import Files
from gomq_py.storage.flush.group_commit import GroupCommit
from gomq_py.storage.message import Message
from gomq_py.storage.segments.pool import SegmentPool
from gomq_py.storage.stores.group_store import GroupStore
from gomq_py.storage.stores.group_key import GroupKey
from gomq_py.storage.stores.message_store import MessageStore
from tests.support.clocks import patient_scheduler


class HandLoop:
    """A loop whose zero timer fires when the test says so: ``poll()`` is one turn of the hub."""

    def __init__(self):
        self.callback = None

    def timer(self, after_s):
        assert after_s == 0
        return self

    def start(self, callback):
        self.callback = callback

    def stop(self):
        self.callback = None

    def poll(self):
        """Fire the timer if it is running. Returns whether it was."""
        callback = self.callback
        if callback is not None:
            callback()
        return callback is not None


class HandTimers:
    """Timers on a bench's clock; ``started`` counts them. ``set_ms``: how far its time of day was set."""

    def __init__(self, bench):
        self.bench = bench
        self.started = self.set_ms = 0
        self.pending = []

    def now_ms(self):
        return self.bench.now_ms + self.set_ms

    def steady_ms(self):
        return self.bench.now_ms

    def start(self, after_ms, callback):
        self.started += 1
        timer = HandTimer(self.bench.now_ms + max(after_ms, 0), callback, self.pending)
        self.pending.append(timer)
        return timer

    def start_at(self, due_ms, callback):
        return self.start(due_ms - self.now_ms(), callback)

    def fire(self):
        """Call what is due."""
        for timer in [timer for timer in self.pending if timer.due_ms <= self.bench.now_ms]:
            if timer in self.pending:
                self.pending.remove(timer)
                timer.callback()


class HandTimer:
    """One pending call."""

    def __init__(self, due_ms, callback, pending):
        self.due_ms, self.callback, self.pending = due_ms, callback, pending

    def stop(self):
        if self in self.pending:
            self.pending.remove(self)


class Bench:
    """A scheduler on a hand-driven loop and queues on stores below ``folder``.

    ``batch()`` plays a door's read.
    """

    def __init__(self, folder):
        self.folder = os.fspath(folder)
        self.files = Files()
        self.committer = GroupCommit(self.files, enabled=False)
        os.makedirs(os.path.join(self.folder, "pool"), exist_ok=True)
        self.pool = SegmentPool(os.path.join(self.folder, "pool"), self.files, self.committer)
        self.loop = HandLoop()
        self.now_ms = 1_700_000_000_000
        self.scheduler = patient_scheduler(self.loop, lambda: self.now_ms)
        self.timers = HandTimers(self)

    def store(self, name="q", durable=True, level=0, make=MessageStore, segment_bytes=8388608):
        """A new store in a folder of its own."""
        folder = os.path.join(self.folder, f"{name}.{level}")
        os.makedirs(folder, exist_ok=True)
        return make(
            folder, self.files, self.pool, self.committer, os.urandom(16), segment_bytes, durable, level
        )

    def queue(self, name="q", kind=Queue, durable=True, **options):
        """A new queue of this kind."""
        return kind(name, "/", self.store(name, durable), self.scheduler, durable, **options)

    def group_queue(self, by=b"customer", durable=True, segment_bytes=8388608, limit=0, **options):
        """A new queue whose groups are named by the header ``by``; b"" means by the routing key."""
        key = GroupKey("header", by) if by else GroupKey("routing-key")
        store = self.store("groups", durable, 0, partial(GroupStore, key, limit), segment_bytes)
        return GroupQueue("groups", "/", store, self.scheduler, durable, **options)

    def publish(self, queue, *bodies, **fields):
        """Publish these bodies in one batch; returns what the queue answered."""
        self.scheduler.begin(self.now_ms)
        answers = [queue.publish(message(body, timestamp_ms=self.now_ms, **fields)) for body in bodies]
        self.scheduler.finish()
        return answers

    def advance(self, ms):
        """Let time pass, a millisecond at a time, with everything that happens meanwhile."""
        for _ in range(ms):
            self.now_ms += 1
            self.timers.fire()
            self.settle()

    def settle(self):
        """Let the loop turn until there is nothing left to do."""
        while self.loop.poll():
            pass


def message(body=b"x", routing_key=b"q", exchange=b"", properties=b"\0\0", timestamp_ms=1, **fields):
    """A message as the slow lane makes it."""
    made = Message()
    made.assign(exchange, routing_key, properties, body, timestamp_ms, **fields)
    return made


def quorum_queue(*parts, arguments=None):
    """A kind for Bench.queue()."""
    return QuorumQueue(*parts, arguments={"x-queue-type": "quorum", **(arguments or {})})


class KeepingConsumer(Consumer):
    """Takes what it may and keeps it: ``bodies``, and ``unacked`` (location of each body) where it has to
    ack. ``credit``: how many it may hold, None is no limit.
    """

    def __init__(self, tag="c", credit=None, no_ack=False, at_most=1000, **options):
        super().__init__(tag, no_ack, **options)
        self.credit = credit
        self.at_most = at_most
        self.message = Message()
        self.bodies = []
        self.redelivered = []
        self.unacked = []
        self.turns = []
        self.cancelled = None

    def capacity(self):
        return 1 << 30 if self.credit is None else self.credit - len(self.unacked)

    def deliver(self, limit):
        taken = 0
        while taken < min(limit, self.at_most) and self.capacity() > 0 and self.queue.peek(self.message):
            self.bodies.append(self.message.get_body())
            self.queue.take(self.message, self.no_ack)
            self.redelivered.append(self.message.describe()["redelivered"])
            if not self.no_ack:
                self.unacked.append(self.message.describe()["location"])
            taken += 1
        self.turns.append(taken)
        return taken * 100

    def ack(self, count=1):
        """Ack the oldest ``count`` and queue up for more, as a channel does."""
        for _ in range(count):
            self.queue.ack(self.unacked.pop(0))
        self.queue.offer(self)

    def cancel(self, reason):
        self.cancelled = reason
