"""Delay queue: messages that wait for their time, in order of it, on disk like any queue's.

A destination of broker.exchanges.delayed, above a message store. Every message is taken from the store at once and stays unacked until it has gone on
and its copies are on disk; which one is next is in a heap of 16 octets each, made anew from the store at boot. One timer waits for the first. Never
yields; messages that are due together go on in slices.
"""
from gomq_py.broker.destination import Destination
from gomq_py.broker.queues.due_heap import DueHeap
from gomq_py.observability.log import logger
from gomq_py.storage.errors import StoreError
from gomq_py.storage.message import Message

LOG = logger("queue")

# Messages that go on before others get their turn: some 5 ms.
SLICE = 200


class DelayQueue(Destination):
    """``due_ms_of(message)`` tells when a message is due; ``release(message)`` is given each in its time and says whether copies went to a disk."""

    def __init__(self, name, durable, store, scheduler, committer, timers):
        super().__init__(name, durable)
        self.store = store
        self.closed = False
        self.due_ms_of = self.release = None
        self._scheduler = scheduler
        self._committer = committer
        self._timers = timers
        self._heap = DueHeap()
        self._message = Message()
        self._timer = None
        self._timer_ms = 0
        self._running = False
        self._rebuild()

    @property
    def count(self):
        """Messages that wait."""
        return self._heap.count

    def publish(self, message):
        """Keep a message until it is due. 1: kept, 0: it cannot be stored."""
        if self.closed:
            return 0
        due_ms = self.due_ms_of(message)
        fields = message.describe()
        copy = Message()
        copy.assign(
            message.get_exchange(), message.get_routing_key(), message.get_properties(), message.get_body(), fields["timestamp_ms"],
            expires_at_ms=due_ms, priority=fields["priority"], persistent=fields["persistent"])
        try:
            self.store.append(copy)
            self._take_newest()
        except StoreError as error:
            self._fail(error)
            return 0
        self._scheduler.touch(self)
        return 1

    def flush(self):
        """End of a batch: what was kept outlives a kill from here on."""
        if not self.closed:
            try:
                self.store.flush()
            except StoreError as error:
                self._fail(error)

    def turn(self):
        """End of a batch: the timer waits for whatever is first now."""
        self._wait()
        return 0

    def close(self):
        """No more messages in or out; the files stay."""
        self._stop()
        if not self.closed:
            self.closed = True
            self.store.close()

    def delete(self):
        """Nothing stays of the messages."""
        self._stop()
        self.closed = True
        self.store.delete_files()

    def _rebuild(self):
        """Everything the last run left waits again."""
        while self.store.ready_count and self._take_newest():
            pass
        self._wait()

    def _take_newest(self):
        """Take the store's only ready message into the heap. False: it was damaged."""
        message = self._message
        if not self.store.peek(message):
            return False
        fields = message.describe()
        self.store.shift()
        self._heap.push(fields["expires_at_ms"], fields["location"])
        return True

    def _wait(self):
        if self.closed or self._running or not self._heap.count:
            return
        due_ms = self._heap.first_due_ms()
        if self._timer is not None:
            if self._timer_ms <= due_ms:
                return
            self._timer.stop()
        self._timer_ms = due_ms
        self._timer = self._timers.start(due_ms - self._timers.now_ms(), self._first_is_due)

    def _first_is_due(self):
        self._timer = None
        if not self._running and not self.closed:
            self._running = True
            self._scheduler.run_sliced(self._slice)

    def _slice(self):
        """The scheduler's next slice of what is due; False: that was all."""
        now_ms = self._timers.now_ms()
        moved = []
        left = SLICE
        try:
            while not self.closed and left and self._heap.count and self._heap.first_due_ms() <= now_ms:
                left -= 1
                location = self._heap.pop()
                if self.store.read(location, self._message):
                    self.release(self._message)
                    moved.append(location)
        except StoreError as error:
            self._fail(error)
        if moved:
            self._committer.after_sync(lambda error: self._drop(moved, error))
        self._running = not self.closed and left == 0
        self._wait()
        return self._running

    def _drop(self, moved, error):
        """The copies are on disk, or cannot be: then the messages come again at the next boot."""
        if error is not None:
            LOG.error("%s: %d messages that were due stay, their copies are not on disk: %s", self.name, len(moved), error)
            return
        if self.closed:
            return
        try:
            for location in moved:
                self.store.delete(location)
        except StoreError as failure:
            self._fail(failure)
        self._scheduler.touch(self)

    def _fail(self, error):
        LOG.error("%s closed: %s", self.name, error)
        self.closed = True
        self._stop()

    def _stop(self):
        if self._timer is not None:
            self._timer.stop()
            self._timer = None
