"""Keyed store: keeps the latest message of each key, on disk like a queue's messages.

Used for retained messages (key: topic) and wills (key: client), on top of a message store of the vhost. In
that store all messages stay unacked; an index in memory, rebuilt at boot, has the latest of each key.

- *Replaced*: a message is deleted only once its successor is safe, so a power cut leaves one of the two.
- *Deleted*: a message without content (a tombstone) is written for the key. Once the tombstone is safe, the
  key's older messages are deleted; once these deletions are safe, the tombstone is deleted. If there is no
  room for a tombstone, the message is deleted at once.
- *Reopened*: a store that failed is closed and reopened as in a restart, again and again until that succeeds.
  Messages whose publishers were not answered may be in the reopened store or not. If a key has several
  messages, the last is rewritten before the others are deleted, because the disk may have refused it.
- *Bounded*: a message that is never replaced keeps its segment on disk. Messages in sparse segments are
  rewritten, in slices, until all segments take at most SPARSE times the bytes of messages, plus
  SPARE_SEGMENTS segments.

Never switches greenlets, never flushes.
"""
from functools import partial

from gomq_py.broker.routing.route import LATER, Destination
from gomq_py.errors import Refused
from gomq_py.hub.scheduler import Job, SliceClock
from gomq_py.hub.timers import RetryJob
from gomq_py.mqtt.model.key_index import KeyIndex, successor
from gomq_py.observability.log import logger
from gomq_py.storage.errors import StoreError, StoreFull, StoreLater
from gomq_py.storage.format import record
from gomq_py.storage.message import Message

LOG = logger("mqtt")

# Segments may take this multiple of the octets of their messages, and this many segments more.
SPARSE, SPARE_SEGMENTS = 3, 4
# Least interval between two log lines about a full disk.
COMPLAIN_MS = 10_000
# Flag of records of any kind: the key has no message any more.
TOMBSTONE = 0x80
# Delay before a failed flush is tried again.
TRY_AGAIN_MS = 1000


class KeyedStore(Destination):
    """A Destination that keeps one message per key.

        name                  name of the vhost's message store, which the first message creates
        key_of(message)       returns the key (a text) of a stored message, None if the message has no key
        tombstone(key)        makes the Message that deletes the key's message
        index                 (KeyIndex) the location of each key's message
        octets                bytes of all bodies together
        closed                True after a fault until the store is reopened, and for ever after close()
        when_open(store)      returns an iterator, whose steps are run after a reopening
    """

    def __init__(self, vhost, name, key_of, tombstone):
        super().__init__(f"{name} of vhost '{vhost.name}'", True)
        self.vhost = vhost
        self.index = KeyIndex()
        self.octets = 0
        self.closed = self.is_over = False
        self.set_aside = 0  # foreign messages of an earlier run
        self._store_name = name
        self._key_of = key_of
        self._tombstone = tombstone
        self._store = None
        self._shown = Message()  # filled from the store for a moment
        self._outdated = []  # (key, location) to delete once everything written until now is safe
        self._tombstones = []  # locations of tombstones whose older messages are in _outdated
        self._gone = []  # tombstones to delete once the deletion of their messages is safe
        self._deleting = None  # (outdated, tombstones, gone) that wait for the disk
        self._segment = 0  # number of the segment written last
        self._rewriting = Rewriting(self)
        self._reopening = Reopening(self, name)
        self.when_open = lambda store: ()
        self._complained_ms = 0
        self._timer = None

    # messages come and go

    def put(self, key, message):
        """Store a copy of the message as the key's latest. Returns 1 if stored, 0 if refused, LATER if the
        message must wait for a new segment file.
        """
        return self._put(key, message, False)

    def open(self):
        """Create the message store if missing. Returns True if it was created and needs a flush."""
        return self._store is None and self.next_store() is not None

    def next_store(self):
        try:
            return None if self.closed or self.vhost.is_gone else self._opened()
        except (StoreError, Refused):
            return None  # put() will report the failure

    def outlives_kill(self):
        return self._store is None or self._store.outlives_kill()

    def delete(self, key):
        """Delete a key's message, as durably as put() stores. Returns False if closed or the key has none."""
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
            location, expires_at_ms = self._append(message)
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
        if is_tombstone:
            before = self.index.pop(key)
            self._tombstones.append(location)
        else:
            self.octets += message.get_body_length()
            before = self.index.put(key, location)
            self.on_kept(key, location, expires_at_ms)
        if before is not None:
            self.octets -= self._octets_at(before)
            self._outdated.append((key, before))
        self._touch(location)
        return 1

    def _append(self, message):
        """Append a copy of the message, which stays unacked. Returns (location, expiry in Unix ms). Raises
        StoreError, Refused.
        """
        store, shown = self._opened(), self._shown
        store.append(message)
        if not store.peek(shown):
            raise StoreError(store.folder, 0, "what was appended is not there")
        store.shift()
        about = shown.describe()
        return about["location"], about["expires_at_ms"]

    def _octets_at(self, location):
        return self._shown.get_body_length() if self._store.read(location, self._shown) else 0

    def _delete_at_once(self, key):
        """Delete the key's message without a tombstone, because the disk has no room."""
        # A power cut may revive an older message.
        location = self.index.pop(key)
        try:
            self.octets -= self._octets_at(location)
            for outdated in (self._outdated, self._deleting[0] if self._deleting else []):
                for each in [each for each in outdated if each[0] == key]:
                    outdated.remove(each)
                    self._store.delete(each[1])
            self._store.delete(location)
            self._store.mark()
        except StoreError as error:
            self.fail(error)

    def on_kept(self, key, location, expires_at_ms):
        """Hook for subclasses, called when a message was stored, or found at boot. Does nothing here."""

    def _opened(self):
        if self._store is None:
            self._begin(self.vhost.stores.make(self._store_name))
        return self._store

    def _begin(self, store):
        # otherwise a QoS 2 identifier (qos2_records) might outlive a kill without its message
        store.name_at_once()
        self._store = store
        store.listener = self

    def _touch(self, location):
        number = record.number_of(location)
        if number != self._segment:
            self._segment = number
            self._rewriting.start()
        if not self.touched:
            self.vhost.scheduler.touch(self)

    # messages are looked at

    def show(self, location, message):
        """Fill ``message`` with the message at a location. Returns False if it cannot be read."""
        if self.closed:
            return False
        try:
            return self._store.read(location, message)
        except StoreError as error:
            self.fail(error)
            return False

    def get(self, key, message):
        """Fill ``message`` with the key's message. Returns False if there is none."""
        location = self.index.get(key)
        return location is not None and self.show(location, message)

    # boot

    def recovered(self, store):
        """Load the messages of an earlier run. Blocks; called at boot. ``store`` is None if it could not be
        opened; the message store is then reopened later.
        """
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
        if self.set_aside:
            LOG.error(
                "%s: %d messages in %s are none of its own; they stay where they are", self.name,
                self.set_aside, store.folder)

    def load(self, store):
        """A generator that loads the messages of a store, one per step. Raises StoreError."""
        self._begin(store)
        message, found, buried, earlier = Message(), {}, {}, {}
        self.set_aside = self.octets = 0
        while store.ready_count and store.peek(message):
            store.shift()
            about, key = message.describe(), self._key_of(message)
            if key is None:
                self.set_aside += 1
                continue
            for before in (found.pop(key, None), buried.pop(key, None)):
                if before is not None:
                    earlier.setdefault(key, []).append((key, before))
            (buried if about["flags"] & TOMBSTONE else found)[key] = about["location"]
            yield
        self.index = KeyIndex(found)
        self._outdated, self._tombstones, self._gone = [], list(buried.values()), []
        self._deleting = None
        for key, location in found.items():
            if store.read(location, message):
                self.octets += message.get_body_length()
                self.on_kept(key, location, message.describe()["expires_at_ms"])
            yield
        for key, outdated in earlier.items():
            try:
                if self.closed and key in found:
                    self.write_anew(key, found[key])
                self._outdated += outdated
            except StoreFull:  # the messages stay
                pass
            yield
        self.vhost.scheduler.touch(self)

    def reopen(self, store):
        """A generator that loads a reopened store in small steps, and then accepts new messages again."""
        yield from self.load(store)
        if store.failure is not None:
            raise store.failure
        self.closed = self.failed = self.unable = False
        LOG.warning("%s is open again", self.name)
        if not self.touched:
            self.vhost.scheduler.touch(self)
        yield from self.when_open(store)

    # the scheduler's side

    def write_out(self):
        """Write changes to the files, where they survive a kill. Called at the end of a batch."""
        if not self.closed and self._store is not None:
            try:
                self._store.write_out()
            except StoreError as error:
                self.fail(error)

    def turn(self):
        """Have outdated messages deleted once their successors are on disk. Called at the end of a batch."""
        if (self._outdated or self._tombstones or self._gone) and self._deleting is None and not self.closed:
            self._deleting = self._outdated, self._tombstones, self._gone
            self._outdated, self._tombstones, self._gone = [], [], []
            self.vhost.when_safe(partial(self._delete_outdated, self._deleting), lambda: self.failed, False)
        return 0

    def _delete_outdated(self, deleting, error):
        """Delete outdated messages, whose successors are on disk. After an ``error``, try again later."""
        if self._deleting is not deleting:  # the store was reopened meanwhile
            return
        (outdated, tombstones, gone), self._deleting = deleting, None
        if self.closed:
            return
        if error is not None:
            self._outdated = outdated + self._outdated
            self._tombstones = tombstones + self._tombstones
            self._gone = gone + self._gone
            if self._timer is None:
                self._timer = self.vhost.timers.start(TRY_AGAIN_MS, self._try_again)
            return
        try:
            store = self._store
            for _, location in outdated:
                store.delete(location)
            for location in gone:
                store.delete(location)
            self._gone += tombstones
            if tombstones:
                store.mark()
            else:
                store.write_out()
        except StoreError as fault:
            self.fail(fault)
            return
        self.turn()

    def _try_again(self):
        self._timer = None
        self.turn()

    # space

    def sparse(self):
        """Return the set of numbers of sparse segments to rewrite; empty while the store is small enough."""
        layout = self._store.layout()
        taken = sum(capacity for _, capacity, _ in layout)
        held = sum(octets for _, _, octets in layout)
        most = SPARSE * held + SPARE_SEGMENTS * self._store.segment_bytes
        found = set()
        for number, capacity, octets in sorted(layout[:-1], key=lambda row: row[2] / row[1]):
            if taken <= most or 2 * octets > capacity:
                break
            taken -= capacity
            found.add(number)
        return found

    def write_anew(self, key, location):
        """Append a copy of the key's message, so that its old segment can be deleted. Raises StoreError."""
        shown = self._shown
        if not self._store.read(location, shown):  # the store is fenced
            return
        copy, about = Message(), shown.describe()
        copy.assign(
            shown.get_exchange(), shown.get_routing_key(), shown.get_raw(), shown.get_body(),
            about["timestamp_ms"], about["expires_at_ms"], about["priority"], persistent=True)
        copy.set_kind(about["kind"], about["flags"])
        now, expires_at_ms = self._append(copy)
        self.index.put(key, now)
        self._outdated.append((key, location))
        self.on_kept(key, now, expires_at_ms)
        self._touch(now)

    # ends

    def close(self):
        """Stop for good. The message store itself stays open until the vhost closes it."""
        self.is_over = True
        self.stop()

    def stop(self):
        """Refuse messages and reads, and stop rewriting."""
        self.closed = True
        self._rewriting.stop()
        if self._timer is not None:
            self._timer.stop()
            self._timer = None

    def not_stored(self, error):
        self.unable = True
        self._complain(error)

    def fail(self, error):
        """Close after a failure of the store, and begin to reopen it."""
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

    # reports of the store

    def store_fenced(self, store, error):
        """Close and begin to reopen. The store calls this when the disk reported an error."""
        self.fail(error)

    def record_damaged(self, store, path, start, end, count):
        LOG.error(
            "%s: %d damaged records in %s, bytes %d to %d, set aside", self.name, count, path, start, end)


class Reopening(RetryJob):
    """Reopens a failed store and loads its messages, in slices."""

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
    """Rewrites the messages of sparse (mostly unused) segments, in slices."""

    name = "writing kept MQTT messages anew"

    def __init__(self, kept):
        super().__init__()
        self._kept = kept
        self._segments = frozenset()
        self._at = None  # the next key; None while idle

    def start(self):
        """Begin to rewrite if there are sparse segments. KeyedStore calls this at each new segment."""
        if self._at is None and not self._kept.closed:
            self._segments = self._kept.sparse()
            if self._segments:
                self._at = ""
                self._kept.vhost.scheduler.start(self)

    def stop(self):
        self._at = None

    def step(self):
        clock = SliceClock()
        while self._at is not None and not clock.is_over():
            page = self._kept.index.page(self._at)
            if not page:
                self._at = None
                break
            for key, location in page:
                if record.number_of(location) in self._segments:
                    self._kept.write_anew(key, location)
                self._at = successor(key)
                if clock.is_over():
                    break
        return self._at is not None

    def failed(self, error):
        """Leave the messages in place, until the next segment is full."""
        self._at = None
        if isinstance(error, StoreError) and not isinstance(error, StoreFull):
            self._kept.fail(error)
        return False
