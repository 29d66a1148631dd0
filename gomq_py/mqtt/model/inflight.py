"""Inflight: what of exchanges at QoS 2 survives the process: identifiers of a vhost's durable sessions, in a
store of their own.

Beside the sessions, below the door, above storage. What is written outlives a kill at any instant, because it
is in the store's mappings when a function returns; what was deleted does at the end of the batch. The disk
has it with the next flush, which nobody waits for.

    sent        before a PUBLISH of QoS 2 leaves, until its PUBCOMP: after a restart the message comes again
                with the same identifier and DUP, and where it is settled, PUBREL does
    received    behind the append of a message that came at QoS 2, until its PUBREL: after a kill the client's
                PUBLISH is known, and not stored twice
    sure        before PUBREC leaves: the messages of all identifiers received up to there are on the disk

After a power cut, when the machine's boot is another, an identifier that is not sure does not count: its
message may be lost, and the client, which has no PUBREC, sends it again.

Each is a record without routing and body, whose properties are:

    offset  octets
    0       1       SENT, RECEIVED, SURE
    1       1       RECEIVED: 1 where it is sure
    2       2       packet identifier
    4       8       key of the session: from its queue's incarnation
    12      8       SENT: location of the message; SURE: location, here, of the last that is sure
    20      8       SENT: when the message was stored, Unix milliseconds; RECEIVED: digest of the boot
"""
import hashlib

from gomq_py import octets
from gomq_py.errors import Refused
from gomq_py.hub import turn_taker
from gomq_py.hub.job import Job
from gomq_py.hub.slice_clock import SliceClock
from gomq_py.observability.log import logger
from gomq_py.observability.quiet_log import QuietLog
from gomq_py.storage import locations
from gomq_py.storage import message_store as _message_store  # noqa: F401  (its .pxd types the store)
from gomq_py.storage.data_dir import STOPPED
from gomq_py.storage.errors import StoreError, StoreFull
from gomq_py.storage.message import Message

LOG = logger("mqtt")
QUIET = QuietLog(LOG)

STORE = "mqtt.inflight"
# Of a record; 1 and 2 are content (storage.message).
KIND = 3
SENT, RECEIVED, SURE = 1, 2, 3
RECORD_OCTETS = 28
# Segments that may hold nothing but old entries; what lies before them is written anew.
SEGMENTS = 3
NO_ROUTING = b"\0\0"


class Inflight(turn_taker.TurnTaker):
    """Those of one vhost, which makes its store when the first is noted. ``boot``: what tells this boot of
    the machine from any other.

    Nothing here fails for the disk's sake: what cannot be kept is not, and said in the log.
    """

    __slots__ = (
        "vhost", "store", "boot", "failed", "message", "shown", "record", "at", "last_received", "sure_at",
        "sure_mark", "segment", "moving", "stored", "together", "__weakref__",
    )

    def __init__(self, vhost, boot):
        turn_taker.TurnTaker.__init__(self, f"QoS 2 identifiers of vhost '{vhost.name}'")
        self.vhost = vhost
        self.store = None
        self.boot = int.from_bytes(hashlib.sha256(boot).digest()[:8], "little")
        self.failed = False
        self.record = record = bytearray(len(NO_ROUTING) + RECORD_OCTETS)
        self.at = octets.pointer(self.record)
        self.shown = Message()
        self.message = message = Message()
        message.kind = KIND
        message.persistent = True
        message.buffer = self.at
        message.routing_at = 0
        message.routing_length = message.properties_at = message.body_at = len(NO_ROUTING)
        message.properties_length = RECORD_OCTETS
        message.body_at = len(record)
        self.last_received = self.sure_at = self.sure_mark = self.segment = 0
        self.stored = {}  # of an earlier run: {location of a SENT: when its message was stored}
        self.moving = None
        self.together = (self,)

    def key_of(self, queue):
        """The key of the session of a durable queue."""
        return int.from_bytes(self.vhost.incarnation_of(queue)[:8], "little")

    # outgoing

    def sent(self, key, identifier, location, stored_ms):
        """A message is sent at QoS 2. Returns where that is kept, 0 where it cannot be."""
        return self._keep(SENT, 0, identifier, key, location, stored_ms)

    def stored_ms(self, kept_at):
        """When the message was stored that an earlier run sent; 0: it was this run."""
        return self.stored.get(kept_at, 0)

    # incoming

    def received(self, key, identifier):
        """A message with this identifier has been stored. Returns where that is kept, 0 where it cannot be.
        """
        kept_at = self._keep(RECEIVED, 0, identifier, key, 0, self.boot)
        if kept_at:
            self.last_received = kept_at
        return kept_at

    def mark(self):
        """What to say to sure() when all that was received until now is on the disk."""
        return self.last_received

    def sure(self, mark):
        """What was received up to a mark() is on the disk: the client may be told."""
        if mark <= self.sure_mark:
            return
        kept_at = self._keep(SURE, 0, 0, 0, mark, 0)
        if kept_at:
            before = self.sure_at
            self.sure_mark = mark
            self.sure_at = kept_at
            if before:
                self.done(before)

    # both

    def done(self, kept_at):
        """What is kept there is over."""
        if self.store is None or self.failed:
            return
        if self.stored:
            self.stored.pop(kept_at, None)
        try:
            self.store.delete(kept_at)
        except StoreError as error:
            self.fail(error)
        if not self.touched:
            self.vhost.scheduler.touch(self)

    def again(self, kept_at):
        """Keep it anew, behind everything else. Returns where it is now."""
        if self.store is None or self.failed or not self.store.read(kept_at, self.shown):
            return kept_at
        shown, place = self.shown, self.shown.properties_at
        kind = shown.buffer[place]
        sure = shown.buffer[place + 1]
        if kind == RECEIVED:
            if kept_at > self.sure_mark and not sure:
                return kept_at
            sure = 1
        now = self._keep(
            kind, sure, octets.le16(shown.buffer, place + 2), octets.le64(shown.buffer, place + 4),
            octets.le64(shown.buffer, place + 12), octets.le64(shown.buffer, place + 20))
        if not now:
            return kept_at
        if kept_at in self.stored:
            self.stored[now] = self.stored[kept_at]
        self.done(kept_at)
        return now

    # the scheduler's side

    def flush(self):
        """End of a batch: what was deleted outlives a kill, too."""
        if self.store is not None and not self.failed:
            try:
                self.store.flush()
            except StoreError as error:
                self.fail(error)

    # boot and faults

    def recovered(self, store, sessions):
        """Take what an earlier run left, for the durable ``sessions``; ``store`` None: it cannot be opened.
        Blocks, for boot.
        """
        if store is None:
            self.failed = True
            return
        self._begin(store)
        try:
            self._recover({self.key_of(session.queue): session for session in sessions})
        except StoreError as error:
            self.fail(error)
        self.flush()

    def fail(self, error):
        """The store cannot go on: until a restart nothing is kept."""
        if not self.failed:
            self.failed = True
            LOG.error("%s are not kept any more, so that a kill may double messages: %s", self.name, error)

    def store_fenced(self, store, error):
        """The store heard of an I/O error from the disk (storage.sync)."""
        self.fail(error)

    def record_damaged(self, store, path, start, end, count):
        """A record failed its checksum and was set aside; the others count."""
        LOG.error(
            "%s: %d damaged records in %s, octets %d to %d, set aside", self.name, count, path, start, end)

    # helpers

    def _keep(self, kind, sure, identifier, key, location, number):
        """Write a record. Returns its location, 0 where it cannot be written."""
        if self.failed:
            return 0
        at = self.at
        place = 2  # behind NO_ROUTING
        at[place] = kind
        at[place + 1] = sure
        octets.put_le16(at, place + 2, identifier)
        octets.put_le64(at, place + 4, key)
        octets.put_le64(at, place + 12, location)
        octets.put_le64(at, place + 20, number)
        message = self.message
        try:
            if self.store is None:
                self._begin(self.vhost.make_store(STORE))
            message.timestamp_ms = self.vhost.scheduler.now_ms
            self.store.append(message)
            kept_at = message.location
            if self.store.peek(self.shown):
                self.store.shift()
        except (StoreError, Refused) as error:
            self._complain(error)
            return 0
        if locations.number_of(kept_at) != self.segment:
            self.segment = locations.number_of(kept_at)
            self._make_space()
        if not self.touched:
            self.vhost.scheduler.touch(self)
        return kept_at

    def _complain(self, error):
        if isinstance(error, StoreError) and not isinstance(error, StoreFull):
            self.fail(error)
        else:
            QUIET.error(
                self.name, "%s are not kept, so that a kill may double messages: %s", self.name, error)

    def _begin(self, store):
        self.store = store
        store.listener = self

    def _make_space(self):
        """A segment is begun: write anew what keeps the oldest, if there are too many."""
        if self.segment > SEGMENTS and self.moving is None:
            self.moving = Moving(self, self.segment - SEGMENTS)
            self.vhost.scheduler.start(self.moving)

    def _recover(self, by_key):
        entries, over = {}, []
        while self.store.ready_count and self.store.peek(self.shown):
            shown, place = self.shown, self.shown.properties_at
            self.store.shift()
            location = shown.location
            if shown.kind != KIND or shown.properties_length != RECORD_OCTETS:
                over.append(location)
                continue
            kind = shown.buffer[place]
            key = octets.le64(shown.buffer, place + 4)
            entry = (
                location, shown.buffer[place + 1], octets.le64(shown.buffer, place + 12),
                octets.le64(shown.buffer, place + 20))
            if kind == SURE:
                key = 0
                self.sure_mark = max(self.sure_mark, entry[2])
            name = key, kind, octets.le16(shown.buffer, place + 2)
            if name in entries:  # it was being kept anew
                over.append(entries[name][0])
            entries[name] = entry
        self._hand_out(entries, by_key, over)
        for location in over:
            self.store.delete(location)

    def _hand_out(self, entries, by_key, over):
        # a run that stopped in order has flushed everything
        is_whole = self.store.pool.last_end == STOPPED
        sent = {}
        for (key, kind, identifier), (location, is_sure, place, number) in entries.items():
            session = by_key.get(key)
            if kind == SURE:
                self.sure_at = location
            elif session is None or not identifier:
                over.append(location)
            elif kind == SENT:
                sent.setdefault(key, []).append((identifier, place, location))
                self.stored[location] = number
            elif kind == RECEIVED and (
                is_whole or is_sure or location <= self.sure_mark or number == self.boot
            ):
                session.received_ids().restore(identifier, location)
                self.last_received = max(self.last_received, location)
            else:
                over.append(location)
        if is_whole:
            self.sure(self.last_received)
        for key, rows in sent.items():
            by_key[key].sent_from(by_key[key].queue).restore(rows)


class Received:
    """The packet identifiers of one session's messages that came at QoS 2 and that PUBREL has not come for.

    ``count``: how many. ``inflight``: the Inflight that keeps them under ``key``, or None.
    """

    __slots__ = ("inflight", "key", "count", "found")

    def __init__(self, inflight=None, key=0):
        self.inflight = inflight
        self.key = key
        self.count = 0
        self.found = {}  # {identifier: where it is kept, or 0}

    def has(self, identifier):
        """Whether it is there."""
        return identifier in self.found

    def add(self, identifier):
        """One that is not there: its message has been stored, just before."""
        kept_at = 0
        if self.inflight is not None:
            kept_at = self.inflight.received(self.key, identifier)
        self.found[identifier] = kept_at
        self.count += 1

    def discard(self, identifier):
        """PUBREL, or its message is lost. Returns whether it was there."""
        kept_at = self.found.pop(identifier, None)
        if kept_at is None:
            return False
        self.count -= 1
        if kept_at:
            self.inflight.done(kept_at)
        return True

    def awaited(self, identifier):
        """What must be flushed before a PUBREC may leave for one that is there: a tuple, None: nothing."""
        kept_at = self.found.get(identifier, 0)
        if kept_at and kept_at > self.inflight.sure_mark and not self.inflight.failed:
            return self.inflight.together
        return None

    def mark(self):
        """As Inflight.mark."""
        return 0 if self.inflight is None else self.inflight.last_received

    def sure(self, mark):
        """As Inflight.sure: before PUBREC leaves."""
        if mark:
            self.inflight.sure(mark)

    def restore(self, identifier, kept_at):
        """One of an earlier run."""
        self.found[identifier] = kept_at
        self.count = len(self.found)

    def move(self, oldest):
        """Have kept anew what is kept in segments before this number."""
        for identifier, kept_at in self.found.items():
            if kept_at and locations.number_of(kept_at) < oldest:
                self.found[identifier] = self.inflight.again(kept_at)

    def close(self):
        """The session is over."""
        for identifier in list(self.found):
            self.discard(identifier)


class Moving(Job):
    """Writes anew what is kept in old segments, some sessions at a time."""

    name = "writing QoS 2 identifiers anew"

    def __init__(self, inflight, oldest):
        super().__init__()
        self._inflight = inflight
        self._oldest = oldest
        self._left = None

    def step(self):
        if self._left is None:
            self._left = self._inflight.vhost.extras["mqtt"].with_identifiers()
            if self._inflight.sure_at and locations.number_of(self._inflight.sure_at) < self._oldest:
                self._inflight.sure_at = self._inflight.again(self._inflight.sure_at)
        clock = SliceClock(every=1)
        while self._left:
            session = self._left.pop()
            for one in (session.sent, session.received):
                if one is not None:
                    one.move(self._oldest)
            if clock.is_over():
                return True
        self._inflight.moving = None
        return False

    def failed(self, error):
        """The next full segment is another occasion."""
        self._inflight.moving = None
        return False
