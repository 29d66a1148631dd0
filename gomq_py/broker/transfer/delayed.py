"""Delay queue: messages that wait for their time, in order of it, on disk like any queue's.

A destination of broker.exchanges.delayed, above a message store. Every message is taken from the store at
once and stays unacked until it has gone on and its copies are on disk; which one is next the due timer knows,
made anew from the store at boot. Never yields.
"""
from gomq_py.broker.queues.due_timer import DueTimer
from gomq_py.broker.queues.set_aside import SetAside, described
from gomq_py.broker.routing.destination import LATER, Destination
from gomq_py.broker.transfer.engine import ALL_WAIT, LEFT_TO_SOURCE, Source, Target, Transfer
from gomq_py.observability.log import logger
from gomq_py.observability.quiet_log import QuietLog
from gomq_py.storage.errors import StoreError, StoreFull, StoreLater
from gomq_py.storage.message import Message

LOG = logger("queue")
QUIET = QuietLog(LOG)

# Until a message is tried again that only queues which somebody has to open again have yet to take.
CLOSED_MS = 10_000
# Between two lines in the log about a full disk.
COMPLAIN_MS = 10_000


class DelayQueue(Destination):
    """``due_ms_of(message)`` tells when a message is due. ``release(message, pending)`` routes one that is
    due.

    It returns the destinations whose stores could not take it. They are its ``pending`` when it is tried
    again; None the first time.
    """

    def __init__(self, name, durable, store, scheduler, durability, timers):
        super().__init__(name, durable)
        self.store = store
        self.closed = False
        self.aside = None  # a SetAside, once there is a message in it
        self._complained_ms = 0
        self.due_ms_of = self.release = None
        self.scheduler = scheduler
        self.timers = timers
        waiting = DueMessages(self)
        self._transfer = Transfer(
            "delayed messages", waiting, ReleasedMessages(self, waiting.pending), scheduler, timers,
            durability.when_safe,
        )
        self.due = DueTimer(timers, self._transfer.start)
        self._message = Message()
        store.listener = self
        self._rebuild()

    @property
    def count(self):
        """Messages that wait."""
        return self.due.count

    def first(self, count):
        """[(due_ms, location)] of the first ``count`` that wait, in order; ``show`` says what they are."""
        return [] if self.closed else self.due.first(count)

    def show(self, location, message):
        """Read a message that waits. False: it is gone meanwhile, or damaged."""
        return not self.closed and bool(self.store.read(location, message))

    def publish(self, message):
        """Keep a message until it is due. 1: kept, 0: it cannot be stored, LATER: it waits for files, where
        it may.
        """
        if self.closed:
            self.unable = True
            return 0
        self.unable = False
        try:
            due_ms = self.due_ms_of(message)
        except Exception as error:
            QUIET.error(self.name, "%s refuses a message: %s", self.name, described(error))
            return 0
        copy, fields = self._message, message.describe()
        copy.readdress(
            message, message.get_exchange(), message.get_routing_key(), message.get_raw(),
            fields["timestamp_ms"], due_ms)
        copy.set_kind(fields["kind"], fields["flags"])
        copy.may_wait = message.may_wait
        try:
            self.store.append(copy)
            self._take_newest()
        except StoreLater as error:
            message.lacking = error.wait
            return LATER
        except StoreError as error:
            self.unable = True
            if isinstance(error, StoreFull):
                self.complain("refuses messages: %s", error)
            else:
                self.fail(error)
            return 0
        finally:
            copy.let_go()
        self.scheduler.touch(self)
        return 1

    def next_store(self):
        """As Destination.next_store."""
        return self.store if self.durable else None

    def outlives_kill(self):
        """As Destination.outlives_kill."""
        return not self.durable or self.store.outlives_kill()

    def not_stored(self, error):
        """As Destination.not_stored."""
        self.unable = True
        self.complain("refuses messages: %s", error)

    def flush(self):
        """End of a batch: what was kept outlives a kill from here on."""
        if not self.closed:
            try:
                self.store.flush()
            except StoreError as error:
                self.fail(error)

    def turn(self):
        """End of a batch: the timer waits for whatever is first now."""
        if not self._transfer.running:
            self.due.arm()
        return 0

    def hold_back(self):
        """Release no more messages. What was released is still dropped from the files."""
        self.due.stop()
        self._transfer.close()

    def close(self):
        """No more messages in or out; the files stay."""
        self.hold_back()
        if not self.closed:
            self.closed = True
            self.store.close()

    def retire(self):
        """No more messages in or out; the store stays open for whoever removes its files. What has gone on
        until now stays gone if a kill undoes the deletion.
        """
        self.flush()
        self.hold_back()
        self.closed = True

    def delete(self):
        """Drop all messages."""
        self.hold_back()
        self.closed = True
        self.store.delete_files()

    def _rebuild(self):
        """Let everything wait again that the last run left."""
        while self.store.ready_count and self._take_newest():
            pass
        self.due.arm()

    def _take_newest(self):
        """Take the store's only ready message, which waits from here on. False: it was damaged."""
        message = self._message
        if not self.store.peek(message):
            return False
        fields = message.describe()
        self.store.shift()
        self.due.push(fields["expires_at_ms"], fields["location"])
        return True

    def wait_again(self, location):
        """Let a message wait for room where it goes. It keeps its place in the order."""
        self.complain("keeps messages that are due: there is no room where they go%s", "")
        if self.store.read(location, self._message):
            self.due.push(self._message.describe()["expires_at_ms"], location)

    def complain(self, text, detail):
        """Log now and then that the disk is full, and what follows."""
        now_ms = self.timers.now_ms()
        if not 0 <= now_ms - self._complained_ms < COMPLAIN_MS:
            self._complained_ms = now_ms
            LOG.error(f"%s {text}", self.name, detail)

    def set_aside(self, location, error):
        """Keep a message that cannot be released or dropped as it is, until the next boot."""
        if self.aside is None:
            self.aside = SetAside(self.name)
        self.aside.add(location, error, "going on after the delay")

    def fail(self, error):
        """The store cannot go on."""
        self.failed = True
        if self.closed:
            return
        LOG.error("%s closed: %s", self.name, error)
        self.closed = True
        self.hold_back()

    def store_fenced(self, store, error):
        """The store heard of an I/O error from the disk (storage.sync)."""
        self.fail(error)

    def record_damaged(self, store, path, start, end, count):
        """A stored message failed its checksum and was set aside; the others go on."""
        LOG.error(
            "%s: %d damaged records in %s, octets %d to %d, set aside", self.name, count, path, start, end
        )


class DueMessages(Source):
    """The messages of a DelayQueue whose time has come.

    ``pending``: {location: destinations that have yet to take it, of those that others have taken}.
    """

    def __init__(self, queue):
        self.pending = {}
        self._queue = queue

    def take(self, message):
        return self._queue.due.take()

    def show(self, item, message):
        return not self._queue.closed and self._queue.store.read(item, message)

    def drop(self, item):
        queue = self._queue
        if not queue.closed:
            queue.store.delete(item)
            queue.scheduler.touch(queue)

    def keep(self, items, error):
        """They come again at the next boot."""
        QUIET.error(
            (self._queue.name, "keep"),
            "%s: %d messages that were due stay, their copies are not on disk: %s", self._queue.name,
            len(items), error,
        )

    def no_room(self, item, pending):
        """Where only queues that are closed have yet to take it, the others do not wait for it."""
        self.pending[item] = pending
        if all(getattr(destination, "closed", False) for destination in pending):
            self._queue.due.push(self._queue.timers.now_ms() + CLOSED_MS, item)
            return LEFT_TO_SOURCE
        self._queue.wait_again(item)
        return ALL_WAIT

    def set_aside(self, item, error, was_sent):
        self._queue.set_aside(item, error)

    def fail(self, item, error):
        self._queue.fail(error)

    def broken(self, error):
        """The others go on in their time."""
        return False

    def paused(self, unsafe):
        self._queue.due.arm()


class ReleasedMessages(Target):
    """Hands messages to their exchange again."""

    def __init__(self, queue, pending):
        self._queue = queue
        self._pending = pending

    def send(self, item, message):
        return self._queue.release(message, self._pending.pop(item, None)) or None
