"""Inflight: what of exchanges at QoS 2 survives the process: identifiers of a vhost's durable sessions, in a
store of their own.

Beside the sessions, below the door, above storage. What is written outlives a kill at any instant, because it
is in the store's mappings when a function returns, and its files have their names; what was deleted does at
the end of the batch. The disk has it soon; that an identifier was released, before PUBCOMP leaves. What is
written anew is deleted where it was when it is on the disk.

    sent        before a PUBLISH of QoS 2 leaves, until its PUBCOMP: after a restart the message comes again
                with the same identifier and DUP, and where it is settled, PUBREL does
    received    behind the append of a message that came at QoS 2, until its PUBREL: after a kill the client's
                PUBLISH is known, and not stored twice. If the files of its message have no names yet, which
                the kill loses, the identifier counts only when it is sure
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
    20      8       SENT: when the message was stored, Unix milliseconds; RECEIVED: digest of the boot,
                    0: a kill may lose its message
"""
import hashlib
from functools import partial

from gomq_py import octets
from gomq_py.errors import Refused
from gomq_py.hub import scheduler as _scheduler  # noqa: F401  (its .pxd types the scheduler)
from gomq_py.hub import turn_taker
from gomq_py.mqtt.model.moving import Moving
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
        "vhost", "scheduler", "store", "boot", "failed", "message", "shown", "record", "at", "last_received",
        "sure_at", "sure_mark", "segment", "moving", "stored", "outdated", "together", "__weakref__",
    )

    def __init__(self, vhost, boot):
        turn_taker.TurnTaker.__init__(self, f"QoS 2 identifiers of vhost '{vhost.name}'")
        self.vhost = vhost
        self.scheduler = self.store = None
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
        self.outdated = {}  # {location of what was written anew: where it was, and is until that is safe}
        self.moving = None
        self.together = (self,)

    def open(self):
        """Have a store from here on, so that the first record need not wait for the log to name it, as a kill
        does not. Returns whether it was made, and is to be flushed.
        """
        was_there = self.store is not None
        return self._opened() and not was_there

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

    def received(self, key, identifier, queues):
        """A message with this identifier has been stored, durably in ``queues``, a tuple or None. Returns
        where that is kept, 0 where it cannot be.
        """
        if not self._opened():
            return 0
        boot = self.boot
        if queues is not None and self.store.pool.has_unnamed and not self._would_outlive_kill(queues):
            boot = 0
        kept_at = self._keep(RECEIVED, 0, identifier, key, 0, boot)
        if kept_at:
            self.last_received = kept_at
        return kept_at

    def mark(self):
        """What to say to sure() when all that was received until now is on the disk."""
        return self.last_received

    def await_flush(self):
        """All of it, with what is done with, is to be on the disk before the next promise is kept."""
        if self.store is not None and not self.failed:
            try:
                self.store.mark()
            except StoreError as error:
                self.fail(error)

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
                self._delete(before)  # in a batch of its own it would cost a poll; the next one will do

    # both

    def done(self, kept_at):
        """What is kept there is over."""
        if self.store is None or self.failed:
            return
        if self.stored:
            self.stored.pop(kept_at, None)
        if self.outdated:
            self._delete_outdated(kept_at)
        self._delete(kept_at)
        if not self.touched:
            self.scheduler.touch(self)

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
            self.stored[now] = self.stored.pop(kept_at)
        self.outdated[now] = kept_at
        return now

    def moved(self):
        """What again() has kept anew is to be deleted where it was, once it is safe."""
        if self.outdated:
            self.await_flush()
            self.vhost.when_safe(partial(self._settle, list(self.outdated)), self._has_failed, False)

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
        if not self._opened():
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
            message.timestamp_ms = self.scheduler.now_ms
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
        return kept_at

    def _delete(self, kept_at):
        if self.failed:
            return
        try:
            self.store.delete(kept_at)
        except StoreError as error:
            self.fail(error)

    def _complain(self, error):
        if isinstance(error, StoreError) and not isinstance(error, StoreFull):
            self.fail(error)
        else:
            QUIET.error(
                self.name, "%s are not kept, so that a kill may double messages: %s", self.name, error)

    def _has_failed(self):
        return self.failed

    def _settle(self, moved, error):
        """What lies there is safe, or, with an error, may not be: then what was written anew the next time
        takes the older copies with it.
        """
        if error is not None or self.failed:
            return
        for kept_at in moved:
            self._delete_outdated(kept_at)
        self.flush()

    def _delete_outdated(self, kept_at):
        """Delete what lay elsewhere before it was written anew here."""
        before = self.outdated.pop(kept_at, 0)
        while before:
            self._delete(before)
            before = self.outdated.pop(before, 0)

    def _would_outlive_kill(self, queues):
        """Whether what was appended to these destinations would: its files have their names."""
        pool = self.store.pool
        for queue in queues:
            folder = queue.folder()
            if folder is None or pool.is_naming(folder):
                return False
        return True

    def _opened(self):
        """Whether there is a store, made with the first record."""
        if self.store is None and not self.failed:
            try:
                self._begin(self.vhost.make_store(STORE))
            except (StoreError, Refused) as error:
                self._complain(error)
        return self.store is not None and not self.failed

    def _begin(self, store):
        self.scheduler = self.vhost.scheduler
        store.pool.name_at_once(store.folder)
        self.store = store
        store.be_unawaited()
        store.listener = self

    def _make_space(self):
        """A segment is begun: write anew what keeps the oldest, if there are too many."""
        if self.segment > SEGMENTS and self.moving is None:
            self.moving = Moving(self, self.segment - SEGMENTS)
            self.scheduler.start(self.moving)

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
