"""Delay queue: messages that wait for their time, in order of it, on disk like any queue's.

A destination of broker.exchanges.delayed, above a message store. Every message is taken from the store at once and stays unacked until it has gone on
and its copies are on disk; which one is next the due timer knows, made anew from the store at boot. Never yields.
"""
from gomq_py.broker.destination import LATER, Destination
from gomq_py.broker.queues.due_timer import DueTimer
from gomq_py.broker.set_aside import SetAside, described
from gomq_py.broker.slice_clock import SliceClock
from gomq_py.observability.log import logger
from gomq_py.observability.quiet_log import QuietLog
from gomq_py.storage.errors import StoreError, StoreFull, StoreLater
from gomq_py.storage.message import Message

LOG = logger("queue")
QUIET = QuietLog(LOG)

# Messages that go on before others get their turn: some 5 ms. Fewer where their headers or their routes take longer than SLICE_S.
SLICE = 200
SLICE_S = 0.005
# Until what is due is tried again: where the disk had no room for it, and where a queue has to be opened again by somebody.
NO_ROOM_MS = 1000
CLOSED_MS = 10_000
# Between two lines in the log about a full disk.
COMPLAIN_MS = 10_000


class DelayQueue(Destination):
    """``due_ms_of(message)`` tells when a message is due. ``release(message, owed)`` is given each in its time, and answers with the destinations
    whose stores could not take it: those are ``owed`` it when it is tried again, which is None the first time.
    """

    def __init__(self, name, durable, store, scheduler, committer, timers):
        super().__init__(name, durable)
        self.store = store
        self.closed = False
        self.aside = None  # a SetAside, once there is a message in it
        self._complained_ms = 0
        self._owed = {}  # location: destinations that have yet to take the message, of those that others have taken
        self.due_ms_of = self.release = None
        self._scheduler = scheduler
        self._committer = committer
        self._timers = timers
        self._due = DueTimer(scheduler, timers, SLICE, self._go_on, "delayed messages")
        self._message = Message()
        self._rebuild()

    @property
    def count(self):
        """Messages that wait."""
        return self._due.count

    def publish(self, message):
        """Keep a message until it is due. 1: kept, 0: it cannot be stored, LATER: it waits for files, where it may."""
        if self.closed:
            self.unable = True
            return 0
        self.unable = False
        try:
            due_ms = self.due_ms_of(message)
        except Exception as error:
            QUIET.error(self.name, "%s refuses a message: %s", self.name, described(error))
            return 0
        copy = self._message
        copy.readdress(
            message, message.get_exchange(), message.get_routing_key(), message.get_properties(), message.describe()["timestamp_ms"], due_ms)
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
                self._complain("refuses messages: %s", error)
            else:
                self._fail(error)
            return 0
        self._scheduler.touch(self)
        return 1

    def not_stored(self, error):
        """As Destination.not_stored."""
        self.unable = True
        self._complain("refuses messages: %s", error)

    def flush(self):
        """End of a batch: what was kept outlives a kill from here on."""
        if not self.closed:
            try:
                self.store.flush()
            except StoreError as error:
                self._fail(error)

    def turn(self):
        """End of a batch: the timer waits for whatever is first now."""
        self._due.arm()
        return 0

    def hold_back(self):
        """Nothing goes on any more; of what has gone on the files still hear."""
        self._due.stop()

    def close(self):
        """No more messages in or out; the files stay."""
        self._due.stop()
        if not self.closed:
            self.closed = True
            self.store.close()

    def retire(self):
        """No more messages in or out; the store stays open for whoever removes its files. What has gone on
        until now stays gone if a kill undoes the deletion.
        """
        self.flush()
        self._due.stop()
        self.closed = True

    def delete(self):
        """Nothing stays of the messages."""
        self._due.stop()
        self.closed = True
        self.store.delete_files()

    def _rebuild(self):
        """Everything the last run left waits again."""
        while self.store.ready_count and self._take_newest():
            pass
        self._due.arm()

    def _take_newest(self):
        """Take the store's only ready message, which waits from here on. False: it was damaged."""
        message = self._message
        if not self.store.peek(message):
            return False
        fields = message.describe()
        self.store.shift()
        self._due.push(fields["expires_at_ms"], fields["location"])
        return True

    def _go_on(self, locations):
        """These are due. Returns how many of them there was time for; the others are still to go on."""
        moved = []
        done = len(locations)
        clock = SliceClock(SLICE_S)
        try:
            for at, location in enumerate(locations):
                if at and clock.is_over():
                    done = at
                    break
                if self.closed or not self.store.read(location, self._message):
                    continue
                try:
                    owed = self.release(self._message, self._owed.pop(location, None))
                except StoreError:
                    raise
                except Exception as error:  # whatever is the matter with this one, the others must not suffer for it
                    self._set_aside(location, error)
                    continue
                if not owed:
                    moved.append(location)
                elif all(getattr(destination, "closed", False) for destination in owed):
                    self._owed[location] = owed
                    self._due.push(self._timers.now_ms() + CLOSED_MS, location)
                else:
                    self._owed[location] = owed
                    self._wait_for_room(locations[at:])
                    break
        except StoreError as error:
            self._fail(error)
        if moved:
            self._committer.after_sync(lambda error: self._drop(moved, error))
        return done

    def _wait_for_room(self, locations):
        """The disk is full: these, and what is due behind them, go on when it is not."""
        self._complain("keeps messages that are due: there is no room where they go%s", "")
        for location in locations:
            if self.store.read(location, self._message):
                self._due.push(self._message.describe()["expires_at_ms"], location)
        self._due.rest(NO_ROOM_MS)

    def _complain(self, text, detail):
        now_ms = self._timers.now_ms()
        if not 0 <= now_ms - self._complained_ms < COMPLAIN_MS:
            self._complained_ms = now_ms
            LOG.error(f"%s {text}", self.name, detail)

    def _drop(self, moved, error):
        """The copies are on disk, or cannot be: then the messages come again at the next boot."""
        if error is not None:
            LOG.error("%s: %d messages that were due stay, their copies are not on disk: %s", self.name, len(moved), error)
            return
        if self.closed:
            return
        for location in moved:
            try:
                self.store.delete(location)
            except StoreError as failure:
                self._fail(failure)
                return
            except Exception as failure:
                self._set_aside(location, failure)
        self._scheduler.touch(self)

    def _set_aside(self, location, error):
        if self.aside is None:
            self.aside = SetAside(self.name)
        self.aside.add(location, error, "going on after the delay")

    def _fail(self, error):
        LOG.error("%s closed: %s", self.name, error)
        self.closed = True
        self._due.stop()
