"""Keyed store: the latest message for each key, on disk as a queue's messages are.

Above a message store of the vhost's own, below what is kept by key: retained messages by topic, wills by
client. All of its messages are taken and stay unacked; which of them is a key's latest an index in memory
says, made anew at boot, where of two messages for a key the later counts.

- *Replaced*: the message before is deleted only when its successor is safe, so that a power cut leaves one.
- *Deleted*: a message without content (a tombstone) comes last for the key. When that is safe, those before
  it are deleted, and when that is safe, the tombstone: an older message never comes back in between. Without
  room for it the message itself is deleted at once.
- *Healed*: a store that the disk has failed is closed, opened again as a restart does, and tried again until
  that succeeds. What was not promised may be there or not. Of a key that has several the last, which the
  disk may have refused, is written anew before the others go.
- *Bounded*: a message that nobody replaces keeps its segment on disk. Where segments hold little, what is
  left in them is written anew, in slices, until all take at most SPARSE times what they hold, and some
  segments.

Never yields, never flushes.
"""
from functools import partial

from gomq_py.broker.routing.destination import LATER, Destination
from gomq_py.errors import Refused
from gomq_py.hub.again import Again
from gomq_py.hub.job import Job
from gomq_py.hub.slice_clock import SliceClock
from gomq_py.mqtt.model.key_index import KeyIndex, successor
from gomq_py.mqtt.model.shelf import Shelf
from gomq_py.observability.log import logger
from gomq_py.storage import locations
from gomq_py.storage.errors import StoreError, StoreFull, StoreLater
from gomq_py.storage.message import Message

LOG = logger("mqtt")

# Segments may take so many times the octets of what is in them, and this many segments more.
SPARSE, SPARE_SEGMENTS = 3, 4
# Between two lines in the log about a full disk.
COMPLAIN_MS = 10_000
# Until what could not be made safe is tried again.
TRY_AGAIN_MS = 1000


class KeyedStore(Destination):
    """``name`` is that of the vhost's store, made with the first message. ``key_of(message)`` is the key, a
    text, of a stored message; None: it is none of ours. ``tombstone(key)`` makes the Message that deletes it.

    ``index`` (KeyIndex) has the location of each key's message; ``octets`` of all their bodies. ``closed``:
    a fault has closed it, or it ``is_over``. ``when_open(store)`` gives steps that are taken once it is open
    again.
    """

    def __init__(self, vhost, name, key_of, tombstone):
        super().__init__(f"{name} of vhost '{vhost.name}'", True)
        self.vhost = vhost
        self.index = KeyIndex()
        self.octets = 0
        self.closed = self.is_over = False
        self.set_aside = 0  # messages of an earlier run that are none of ours
        self._store_name = name
        self._key_of = key_of
        self._tombstone = tombstone
        self._shelf = None
        self._outdated = []  # (key, location), to be deleted when what is written by now is safe
        self._tombstones = []  # locations, likewise, once those are gone
        self._gone = []  # tombstones whose messages are deleted: to go once that is safe
        self._settling = None  # (outdated, tombstones, gone) that wait for the disk
        self._segment = 0  # the number of the one that was written to last
        self._rewriting = Rewriting(self)
        self._reopening = Reopening(self, name)
        self.when_open = _nothing
        self._complained_ms = 0
        self._timer = None

    # messages come and go

    def put(self, key, message):
        """Keep a copy of the message for the key, instead of any other. As publish() of a Destination."""
        return self._put(key, message, False)

    def open(self):
        """Have a store from here on. Returns whether it was made, and is to be flushed."""
        return self._shelf is None and self.next_store() is not None

    def next_store(self):
        """As Destination.next_store."""
        try:
            return None if self.closed or self.vhost.is_gone else self._opened().store
        except (StoreError, Refused):
            return None  # put() will say so

    def outlives_kill(self):
        return self._shelf is None or self._shelf.store.outlives_kill()

    def delete(self, key):
        """There is no message for the key any more. Whether there was one. On disk as what is put is."""
        if self.index.get(key) is None or self.closed:
            return False
        if self._put(key, self._tombstone(key), True) != 1 and not self.closed:
            self._delete_at_once(key)
        return True

    def _put(self, key, message, is_tombstone):
        if self.closed or self.vhost.is_gone:
            self.unable = True
            return 0
        self.unable = False
        try:
            location = self._opened().add(message)
        except StoreLater as error:
            message.lacking = error.wait
            return LATER
        except (StoreError, Refused) as error:
            self.unable = True
            if isinstance(error, (StoreFull, Refused)):
                self._complain(error)
            else:
                self.fail(error)
            return 0
        self._came(key, location, is_tombstone)
        self._touch(location)
        return 1

    def _came(self, key, location, is_tombstone):
        """A message or tombstone lies there and is the last for its key."""
        shelf = self._shelf
        if is_tombstone:
            before = self.index.pop(key)
            self._tombstones.append(location)
        else:
            self.octets += shelf.octets
            before = self.index.put(key, location)
            self.on_kept(key, location, shelf.expires_at_ms)
        if before is not None:
            if shelf.look(before):
                self.octets -= shelf.octets
            self._outdated.append((key, before))

    def _delete_at_once(self, key):
        """There is no room for a tombstone. After a power cut before this is on disk an older message may
        come back.
        """
        location = self.index.pop(key)
        try:
            if self._shelf.look(location):
                self.octets -= self._shelf.octets
            for outdated in (self._outdated, self._settling[0] if self._settling else []):
                for each in [each for each in outdated if each[0] == key]:
                    outdated.remove(each)
                    self._shelf.store.delete(each[1])
            self._shelf.store.delete(location)
            self._shelf.store.mark()
        except StoreError as error:
            self.fail(error)

    def on_kept(self, key, location, expires_at_ms):
        """A message was put, or found at boot; for kinds that want to know."""

    def _opened(self):
        """The Shelf, made with the first message. Raises Refused, StoreError."""
        if self._shelf is None:
            self._begin(self.vhost.stores.make(self._store_name))
        return self._shelf

    def _begin(self, store):
        store.name_at_once()  # or an identifier of QoS 2 (inflight) would outlive a kill, and its message not
        self._shelf = Shelf(store)
        store.listener = self

    def _touch(self, location):
        number = locations.number_of(location)
        if number != self._segment:
            self._segment = number
            self._rewriting.start()
        if not self.touched:
            self.vhost.scheduler.touch(self)

    # messages are looked at

    def show(self, location, message):
        """Fill the message with the one that lies there. False: it cannot be had."""
        if self.closed:
            return False
        try:
            return self._shelf.store.read(location, message)
        except StoreError as error:
            self.fail(error)
            return False

    def get(self, key, message):
        """Fill the message with the one for the key. False: there is none."""
        location = self.index.get(key)
        return location is not None and self.show(location, message)

    # boot

    def recovered(self, store):
        """Take what an earlier run left; None: it cannot be opened. Blocks, for boot."""
        if store is None:
            self.closed = self.failed = True
            self._reopening.begin()
            return
        try:
            for _ in self.load(store):
                pass
        except StoreError as error:
            self.fail(error)
            return
        self._say_set_aside(store)

    def load(self, store):
        """Take what lies in the store, one message before each yield. A generator. Raises StoreError."""
        self._begin(store)
        message, found, buried, earlier = Message(), {}, {}, {}
        self.set_aside = self.octets = 0
        while store.ready_count and self._shelf.take_next(message):
            location = message.describe()["location"]
            key = self._key_of(message)
            if key is None:
                self.set_aside += 1
                continue
            for before in (found.pop(key, None), buried.pop(key, None)):
                if before is not None:
                    earlier.setdefault(key, []).append((key, before))
            if self._shelf.is_tombstone(message):
                buried[key] = location
            else:
                found[key] = location
            yield
        self.index = KeyIndex(found)
        self._outdated, self._tombstones, self._gone = [], list(buried.values()), []
        self._settling = None
        for key, location in found.items():
            if self._shelf.look(location):
                self.octets += self._shelf.octets
                self.on_kept(key, location, self._shelf.expires_at_ms)
            yield
        for key, outdated in earlier.items():
            try:
                if self.closed and key in found:
                    self.write_anew(key, found[key])
                self._outdated += outdated
            except StoreFull:  # they stay
                pass
            yield
        self.vhost.scheduler.touch(self)

    def reopen(self, store):
        """The store is open again: take what is in it, and everything goes on. A generator, as load()."""
        yield from self.load(store)
        if store.failure is not None:
            raise store.failure
        self.closed = self.failed = self.unable = False
        LOG.warning("%s is open again", self.name)
        if not self.touched:
            self.vhost.scheduler.touch(self)
        yield from self.when_open(store)

    def _say_set_aside(self, store):
        if self.set_aside:
            LOG.error(
                "%s: %d messages in %s are none of its own; they stay where they are", self.name,
                self.set_aside, store.folder)

    # the scheduler's side

    def flush(self):
        """End of a batch: what was kept and deleted outlives a kill from here on."""
        if not self.closed and self._shelf is not None:
            try:
                self._shelf.store.flush()
            except StoreError as error:
                self.fail(error)

    def turn(self):
        """End of a batch: see to what is not wanted any more."""
        if (self._outdated or self._tombstones or self._gone) and self._settling is None and not self.closed:
            self._settling = self._outdated, self._tombstones, self._gone
            self._outdated, self._tombstones, self._gone = [], [], []
            self.vhost.when_safe(partial(self._settle, self._settling), self._has_failed, False)
        return 0

    def _has_failed(self):
        return self.failed

    def _settle(self, settling, error):
        """What was written and marked before is safe, or cannot be."""
        if self._settling is not settling:  # the store has been opened again since
            return
        (outdated, tombstones, gone), self._settling = settling, None
        if self.closed:
            return
        if error is not None:
            self._outdated = outdated + self._outdated
            self._tombstones = tombstones + self._tombstones
            self._gone = gone + self._gone
            self._wait()
            return
        try:
            store = self._shelf.store
            for _, location in outdated:
                store.delete(location)
            for location in gone:
                store.delete(location)
            self._gone += tombstones
            if tombstones:
                store.mark()
            else:
                store.flush()
        except StoreError as fault:
            self.fail(fault)
            return
        self.turn()

    def _wait(self):
        if self._timer is None:
            self._timer = self.vhost.timers.start(TRY_AGAIN_MS, self._try_again)

    def _try_again(self):
        self._timer = None
        self.turn()

    # space

    def sparse(self):
        """The numbers of segments whose messages are to be written anew, because all of them together take
        too much room; none of the one that is written to.
        """
        layout = self._shelf.store.layout()
        taken = sum(capacity for _, capacity, _ in layout)
        held = sum(octets for _, _, octets in layout)
        most = SPARSE * held + SPARE_SEGMENTS * self._shelf.store.segment_bytes
        found = set()
        for number, capacity, octets in sorted(layout[:-1], key=lambda row: row[2] / row[1]):
            if taken <= most or 2 * octets > capacity:
                break
            taken -= capacity
            found.add(number)
        return found

    def write_anew(self, key, location):
        """Write the key's message, which lies there, behind all others. Raises StoreError."""
        now = self._shelf.again(location)
        if now:
            self._segment = locations.number_of(now)
            self.index.put(key, now)
            self._outdated.append((key, location))
            self.on_kept(key, now, self._shelf.expires_at_ms)
            if not self.touched:
                self.vhost.scheduler.touch(self)

    # ends

    def close(self):
        """Nothing goes in or out any more; the store is the vhost's to close."""
        self.is_over = True
        self.stop()

    def stop(self):
        """Nothing goes in or out from here on."""
        self.closed = True
        self._rewriting.stop()
        if self._timer is not None:
            self._timer.stop()
            self._timer = None

    def not_stored(self, error):
        self.unable = True
        self._complain(error)

    def fail(self, error):
        """The store cannot go on, and is closed until it is open again."""
        self.failed = True
        if not self.closed:
            LOG.error("%s is closed, and refuses messages, until it is open again: %s", self.name, error)
            self.stop()
            self._reopening.begin()

    def _complain(self, error):
        now_ms = self.vhost.timers.now_ms()
        if not 0 <= now_ms - self._complained_ms < COMPLAIN_MS:
            self._complained_ms = now_ms
            LOG.error("%s takes no messages: %s", self.name, error)

    # what the store tells

    def store_fenced(self, store, error):
        """The store heard of an I/O error from the disk (storage.flush.group_commit)."""
        self.fail(error)

    def record_damaged(self, store, path, start, end, count):
        """A stored message failed its checksum and was set aside; the others go on."""
        LOG.error(
            "%s: %d damaged records in %s, octets %d to %d, set aside", self.name, count, path, start, end)


class Reopening(Again):
    """Opens a store again that the disk has failed, and takes what is in it, some messages at a time."""

    name = "opening kept MQTT messages again"

    def __init__(self, kept, store_name):
        super().__init__(lambda: kept.vhost.timers)
        self._vhost = kept.vhost
        self._kept = kept
        self._store_name = store_name
        self._left = None

    def start(self):
        if self._kept.closed and not self._vhost.is_gone:
            self._vhost.stores.reopen(self._store_name, self._opened)

    def _opened(self, store, error):
        if error is not None:
            self.failed(error)
            return
        self._left = self._kept.reopen(store)
        self._vhost.scheduler.start(self)

    def step(self):
        clock = SliceClock()
        for _ in () if self._kept.is_over else self._left:
            if clock.is_over():
                return True
        return False

    def failed(self, error):
        LOG.error("%s cannot be opened again: %s", self._kept.name, error)
        return super().failed(error)


class Rewriting(Job):
    """Writes anew what keeps segments that hold little, some keys at a time."""

    name = "writing kept MQTT messages anew"

    def __init__(self, kept):
        super().__init__()
        self._kept = kept
        self._segments = frozenset()
        self._at = None  # the key to go on with, or None: nothing is being written anew

    def start(self):
        """A segment is full: look whether there are too many."""
        if self._at is None and not self._kept.closed:
            self._segments = self._kept.sparse()
            if self._segments:
                self._at = ""
                self._kept.vhost.scheduler.start(self)

    def stop(self):
        """Write nothing any more."""
        self._at = None

    def step(self):
        clock = SliceClock()
        while self._at is not None and not clock.is_over():
            page = self._kept.index.page(self._at)
            if not page:
                self._at = None
                break
            for key, location in page:
                if locations.number_of(location) in self._segments:
                    self._kept.write_anew(key, location)
                self._at = successor(key)
                if clock.is_over():
                    break
        return self._at is not None

    def failed(self, error):
        """The messages stay where they are; the next full segment is another occasion."""
        self._at = None
        if isinstance(error, StoreError) and not isinstance(error, StoreFull):
            self._kept.fail(error)
        return False


def _nothing(store):
    """No steps."""
    return ()
