"""QoS2Records: keeps the QoS 2 packet identifiers of a vhost's durable sessions on disk, in a store of their
own.

A record outlives a kill once the function that writes it has returned; a deletion outlives a kill from the
end of the batch on. Records are flushed soon. A deletion by PUBREL is flushed before PUBCOMP leaves. A
rewritten record's old copy is deleted once the new copy is on disk. Kinds of records:

    sent        written before a PUBLISH of QoS 2 leaves, deleted at its PUBCOMP. After a restart the message
                is sent again with the same identifier and DUP; for a settled message PUBREL is sent. PUBLISH
                and PUBREL wait for followers, because a new leader must have the record
    received    written just before a QoS 2 message is published to its destinations, deleted at its PUBREL.
                After a kill the client's repeated PUBLISH is known and not stored twice
    partly      some destinations have the message, the next waits for files. After a kill the client sends
                the message again, for the destinations that lack it
    sure        written before PUBREC is sent: the messages of all "received" records up to a location are on
                disk
    doubt       clients may hold identifiers that are free here. From the next boot on, PUBREL is sent for an
                identifier before it is used. A missing "trust" record means the same
    trust       all sent messages are recorded. Deleted by a power loss, or when a full disk refuses a sent
                record. Doubt and trust are a store's first records

A received record has the positions of its message in the destinations' logs (PLACE_OCTETS each). A boot
checks the positions in these records:

- after a kill: the last record, whose message may be missing, and the records of messages in files without
  names, because a kill deletes such files
- after a power loss, and in a folder that was copied or is a follower's: all records that are not sure

If all destinations have the message, its identifier is restored, and sure from then on. If only some have it,
the client sends the message again, for the others. mqtt.model.qos2_recovery has the format.
"""
from functools import partial

from gomq_py import octets
from gomq_py.errors import Refused
from gomq_py.hub import scheduler as _scheduler
from gomq_py.mqtt.model.qos2_recovery import (
    BEGUN, DOUBT, IS_SURE, KIND, MAY_BE_LOST, PARTLY, PLACE_OCTETS, RECEIVED, RECORD_OCTETS, SENT, SURE,
    TRUST, QoS2Recovery,
)
from gomq_py.mqtt.model.moving import Moving
from gomq_py.mqtt.model.session_kind import EXTRA, QOS2_STORE
from gomq_py.observability.log import logger
from gomq_py.observability.quiet_log import QuietLog
from gomq_py.storage.errors import StoreError, StoreFull
from gomq_py.storage.format import record as record_format
from gomq_py.storage.message import Message
from gomq_py.storage.stores import message_store as _message_store  # noqa: F401  (its .pxd types the store)

LOG = logger("mqtt")
QUIET = QuietLog(LOG)

# Most destinations whose places are recorded. After a kill within a publish to more, the client's repeat goes
# to all of them again.
PLACES = 4096
# Number of newest segments that may hold only old entries; entries in earlier segments are rewritten.
SEGMENTS = 3
NO_ROUTING = b"\0\0"


class QoS2Records(_scheduler.TurnTaker):
    """Keeps the QoS 2 packet identifiers of one vhost on disk, in a store made for the first record. Records
    that cannot be stored are skipped and logged. If the store has ``failed``, another QoS2Records with a new
    store replaces this one (moving.Replacing). Both have ``is_stuck`` until the definitions on disk name the
    new store: a kill before that would restore identifiers that clients have released.
    """

    __slots__ = (
        "vhost", "scheduler", "store", "failed", "message", "shown", "record", "at", "places_length",
        "came_ms", "last_received", "sure_at", "sure_mark", "segment", "moving", "outdated", "old_copies",
        "together", "is_stuck", "waiting", "doubts", "trust_at", "doubt_at", "__weakref__",
    )

    def __init__(self, vhost):
        _scheduler.TurnTaker.__init__(self, f"QoS 2 identifiers of vhost '{vhost.name}'")
        self.vhost = vhost
        self.scheduler = self.store = self.moving = None
        self.failed = self.doubts = self.is_stuck = False
        self.shown = Message()
        self.message = message = Message()
        self._use(bytearray(len(NO_ROUTING) + RECORD_OCTETS))
        message.kind, message.persistent, message.routing_at = KIND, True, 0
        message.routing_length = message.properties_at = len(NO_ROUTING)
        message.properties_length, message.body_at = RECORD_OCTETS, len(self.record)
        self.places_length = self.came_ms = self.last_received = 0
        self.sure_at = self.sure_mark = self.segment = self.trust_at = self.doubt_at = 0
        # {location of a rewritten record, or 1 + location of one that ended with its session: the old
        # location, to delete once that is safe}; and the keys that wait for moved()
        self.outdated, self.old_copies = {}, []
        self.together, self.waiting = (self,), []  # waiting: callbacks for the end of is_stuck

    def open(self):
        """Create the store before the first record. Returns True if it is new and needs a flush."""
        # The definitions must name the store before a kill can follow.
        if self.store is not None or not self._opened():
            return False
        self.trust(0, 0, self.doubts)
        return True

    def key_of(self, queue):
        """Return the number that stands in records for the session of a durable queue."""
        return int.from_bytes(self.vhost.incarnation_of(queue)[:8], "little")

    # outgoing

    def sent(self, key, identifier, location, stored_ms):
        """Record a QoS 2 message before its PUBLISH leaves. Returns the record's location; 0 on failure."""
        if not self.doubt_at:
            self.trust(self.trust_at, 0, self.doubts)
        kept_at = self._keep(SENT, 0, identifier, key, location, stored_ms)
        if not (kept_at or self.failed):  # after a failure the new store gets the record
            self.doubt()
        return kept_at

    def trust(self, trust_at, doubt_at, is_doubtful):
        """Use the trust and doubt records at these locations; write each record whose location is 0.
        ``is_doubtful``: some sent messages are not recorded, so there must be no trust record.
        """
        self.trust_at = trust_at
        if not trust_at and not is_doubtful:
            self.trust_at = self._keep(TRUST, 0, 0, 0, 0, 0)
        self.doubt_at = doubt_at or self._keep(DOUBT, 0, 0, 0, 0, 0)
        if is_doubtful:
            self.doubt()

    def doubt(self):
        """Delete the trust record, so that later boots know that some sent messages are not recorded."""
        self.doubts = True
        if self.trust_at:
            self.done(self.trust_at)
            self.trust_at = 0
            self.write_out()  # before the PUBLISH leaves

    def is_kept_elsewhere(self):
        """Return whether the broker has followers, which may lack the last records."""
        return self.vhost.durability.has_acknowledgers

    def when_safe(self, callback):
        """Call ``callback(error or None)`` once all records and messages written until now are durable."""
        self.await_flush()
        self.vhost.when_safe(callback, lambda: self.failed)

    # incoming

    def begun(self, key, identifier, destinations, message, had):
        """Record a received message before ``destinations`` (a tuple) get it. ``had``: encoded log positions
        in destinations that have the message already. Returns the record's location for received(), or 0 on
        failure.
        """
        if not self._opened():
            return 0
        self._note_places(destinations, message, had)
        if not self.touched:
            self.scheduler.touch(self)
        kept_at = self._keep(RECEIVED, BEGUN, identifier, key, 0, self.came_ms)
        if kept_at:
            # A follower with the message alone would store the client's repeat, too. Not write_out(), which
            # marks records as delivered: QoS2Recovery takes that for the end of the batch.
            self.store.announce()
        return kept_at

    def received(self, kept_at, key, identifier, destinations):
        """Record that all ``destinations`` stored the message of begun(). Returns the record's location."""
        if not kept_at or self.failed:
            return kept_at
        if self.store.pool.has_unnamed and not _would_outlive_kill(destinations):
            now = self._keep(RECEIVED, MAY_BE_LOST, identifier, key, 0, self.came_ms)
            if now:
                self._delete(kept_at)
                kept_at = now
        self.last_received = kept_at
        return kept_at

    def places(self, destinations, message):
        """Return the encoded log positions that a message will get in ``destinations`` (a tuple). Returns b""
        if there are more than PLACES destinations.
        """
        self._note_places(destinations, message, b"")
        return self.places_of(())

    def places_of(self, left):
        """Return the encoded log positions that begun() recorded, except for ``left``, the last ones."""
        end = self.message.body_at + self.places_length
        for destination in left:
            if destination.next_store() is not None:
                end -= PLACE_OCTETS
        return bytes(self.record[self.message.body_at:max(end, self.message.body_at)])

    def noted(self, kept_at):
        """Return (encoded log positions, arrival in Unix ms) of the record at ``kept_at``, or (b"", 0)."""
        shown = self.shown
        if self.failed or not self.store.read(kept_at, shown):
            return b"", 0
        return shown.get_body(), octets.le64(shown.buffer, shown.properties_at + 20)

    def partly(self, key, identifier, had, places):
        """Record that the destinations ``had`` have the message, while other destinations wait for files.
        ``places``: encoded log positions of the message. Returns the record's location, or 0 on failure.
        """
        if not self._opened():
            return 0
        is_named = not self.store.pool.has_unnamed or _would_outlive_kill(had)
        if not self.touched:
            self.scheduler.touch(self)
        return self._keep_partly(BEGUN if is_named else MAY_BE_LOST, identifier, key, places)

    def whole(self, key, identifier):
        """Record that all destinations have an earlier run's message. Returns the record's location, or 0."""
        return self._keep(RECEIVED, IS_SURE, identifier, key, 0, 0)

    def received_before(self, key, identifier, is_sure, places):
        """Record an identifier that is already known, at boot or for a new store. ``places``: encoded log
        positions of its message if some destinations lack it, else b"". Returns the record's location, or 0
        on failure.
        """
        if not self._opened():
            return 0
        if places:
            state = MAY_BE_LOST if self.store.pool.has_unnamed else BEGUN
            return self._keep_partly(state, identifier, key, places)
        kept_at = self._keep(RECEIVED, IS_SURE if is_sure else 0, identifier, key, 0, 0)
        if kept_at:
            self.last_received = kept_at
        return kept_at

    def await_flush(self):
        """Request a flush of all records and deletions. The next answers to publishers wait for it."""
        if self.store is not None and not self.failed:
            try:
                self.store.mark()
            except StoreError as error:
                self.fail(error)

    def sure(self, mark):
        """Record, before PUBREC, that the messages of all RECEIVED records up to ``mark`` are on disk."""
        if mark <= self.sure_mark:
            return
        kept_at = self._keep(SURE, 0, 0, 0, mark, 0)
        if kept_at:
            before, self.sure_mark, self.sure_at = self.sure_at, mark, kept_at
            if before:
                self._delete(before)  # the next flush covers this, too: another flush would cost a poll

    def sure_before(self, kept_at, mark):
        """Use an earlier run's SURE record, at ``kept_at``, until the next SURE record replaces it. Called at
        boot. ``mark``: location of the last RECEIVED record that it covers.
        """
        self.sure_at = kept_at
        self.sure_mark = max(self.sure_mark, mark)

    # both

    def done(self, kept_at, has_ended=False):
        """Delete a record. If its session ``has_ended``, moved() deletes the record, after the next flush."""
        if self.store is None or self.failed:
            return
        if has_ended:
            self.outdated[kept_at + 1] = kept_at  # no record begins there
            self.old_copies.append(kept_at + 1)
            return
        if self.outdated:
            self._delete_outdated(kept_at)
        self._delete(kept_at)
        if not self.touched:
            self.scheduler.touch(self)

    def again(self, kept_at):
        """Copy a record to free its old segment. Returns the copy's location; ``kept_at`` if none is made."""
        if self.store is None or self.failed or not self.store.read(kept_at, self.shown):
            return kept_at
        shown, place = self.shown, self.shown.properties_at
        kind = shown.buffer[place]
        state = shown.buffer[place + 1]
        if kind == RECEIVED:
            if kept_at > self.sure_mark and state != IS_SURE:
                return kept_at
            state = IS_SURE
        identifier, key = octets.le16(shown.buffer, place + 2), octets.le64(shown.buffer, place + 4)
        if kind == PARTLY:
            now = self._keep_partly(state, identifier, key, shown.get_body())
        else:
            now = self._keep(
                kind, state, identifier, key, octets.le64(shown.buffer, place + 12),
                octets.le64(shown.buffer, place + 20))
        if not now:
            return kept_at
        self.outdated[now] = kept_at
        self.old_copies.append(now)
        return now

    def moved(self):
        """After the next flush, delete records that again() has copied, and records of ended sessions."""
        if self.old_copies and not self.vhost.is_gone:  # otherwise the store is deleted with the vhost
            old_copies, self.old_copies = self.old_copies, []
            self.await_flush()
            self.vhost.when_safe(partial(self._delete_old_copies, old_copies), lambda: self.failed, False)

    # the scheduler's side

    def write_out(self):
        """Write deletions into the mapped files, where they survive a kill. Called at the end of a batch."""
        if self.store is not None and not self.failed:
            try:
                self.store.write_out()
            except StoreError as error:
                self.fail(error)

    # boot and faults

    def recovered(self, store, sessions):
        """Restore the identifiers of the durable ``sessions``. Blocks; called at boot. ``store`` is None if
        it cannot be opened; then a new store replaces it.
        """
        if store is None:
            self.doubts = True
            for session in sessions:
                session.is_doubtful = True
            self.fail("the store cannot be opened")
            return
        self._begin(store)
        try:
            QoS2Recovery(self).hand_out({self.key_of(session.queue): session for session in sessions})
        except StoreError as error:
            self.fail(error)
        self.write_out()

    def fail(self, error):
        """Stop writing records. Another QoS2Records with a new store must replace this object."""
        if not self.failed:
            self.failed = self.is_stuck = True
            LOG.error(
                "%s are not kept, and publishers at QoS 2 wait, until a new store is made: %s", self.name,
                error)
            self.vhost.extras[EXTRA].qos2_records_failed(self)

    def when_replaced(self, callback):
        """Call ``callback()`` once ``is_stuck`` is False again."""
        self.waiting.append(callback)

    def replaced(self):
        """Clear ``is_stuck``, because the definitions on disk name the new store."""
        self.is_stuck = False
        waiting, self.waiting = self.waiting, []
        for callback in waiting:
            callback()

    def close(self):
        self.failed = True

    def store_fenced(self, store, error):
        """Stop writing records. The store calls this when the disk reported an error."""
        self.fail(error)

    def record_damaged(self, store, path, start, end, count):
        LOG.error(
            "%s: %d damaged records in %s, bytes %d to %d, set aside", self.name, count, path, start, end)

    # helpers

    def _note_places(self, destinations, message, had):
        """Put into the next record the message's log positions: where earlier destinations have it (``had``,
        encoded), and where ``destinations`` will have it.
        """
        room = len(NO_ROUTING) + RECORD_OCTETS + len(had) + PLACE_OCTETS * len(destinations)
        self.places_length = 0
        # The destinations in ``had`` stored the message at another time: do not search for it by time.
        self.came_ms = 0 if had else message.timestamp_ms
        if len(destinations) > PLACES:
            return
        if room > len(self.record):
            self._use(bytearray(room))
        size = record_format.size_of(message.routing_length, message.properties_length, message.body_length)
        at, place = self.at, self.message.body_at + len(had)
        if had:
            self.record[self.message.body_at:place] = had
        for destination in destinations:
            store = destination.next_store()
            if store is not None:
                store.name_at_once()
                octets.put_le64(at, place, store.key)
                octets.put_le64(at, place + 8, store.place_of(size))
                place += PLACE_OCTETS
        self.places_length = place - self.message.body_at

    def _keep(self, kind, state, identifier, key, location, number):
        """Append a record. Returns its location, or 0 on failure. In states BEGUN and MAY_BE_LOST the record
        has the log positions of _note_places().
        """
        if not self._opened():
            return 0
        at = self.at
        place = 2  # behind NO_ROUTING
        at[place] = kind
        at[place + 1] = state
        octets.put_le16(at, place + 2, identifier)
        octets.put_le64(at, place + 4, key)
        octets.put_le64(at, place + 12, location)
        octets.put_le64(at, place + 20, number)
        message = self.message
        message.body_length = self.places_length if state >= BEGUN else 0
        try:
            message.timestamp_ms = self.scheduler.now_ms
            self.store.append(message)
            kept_at = message.location
            if self.store.peek(self.shown):
                self.store.shift()
        except (StoreError, Refused) as error:
            self._complain(error)
            return 0
        if record_format.number_of(kept_at) != self.segment:
            self.segment = record_format.number_of(kept_at)
            # When a segment begins, rewrite the records of the oldest segments if there are too many.
            if self.segment > SEGMENTS and self.moving is None:
                self.moving = Moving(self, self.segment - SEGMENTS)
                self.scheduler.start(self.moving)
        return kept_at

    def _keep_partly(self, state, identifier, key, places):
        record, length = self.record, self.places_length
        self._use(bytearray(self.message.body_at) + places)
        self.places_length = len(places)
        try:
            return self._keep(PARTLY, state, identifier, key, 0, 0)
        finally:
            self._use(record)
            self.places_length = length

    def _use(self, record):
        self.record = record
        self.at = octets.pointer(record)
        self.message.buffer = self.at

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

    def _delete_old_copies(self, moved, error):
        """Delete replaced records, whose copies are on disk. After an ``error``, leave this to moved()."""
        if error is not None:
            self.old_copies += moved
            return
        for kept_at in moved:
            self._delete_outdated(kept_at)
        self.write_out()

    def _delete_outdated(self, kept_at):
        before = self.outdated.pop(kept_at, 0)
        while before:
            self._delete(before)
            before = self.outdated.pop(before, 0)

    def _opened(self):
        """Make the store if it does not exist. Returns whether the store can be used."""
        if self.store is None and not self.failed:
            try:
                self._begin(self.vhost.stores.make(QOS2_STORE))
            except (StoreError, Refused) as error:
                self._complain(error)
        return self.store is not None and not self.failed

    def _begin(self, store):
        self.scheduler = self.vhost.scheduler
        store.name_at_once()
        self.store = store
        store.be_unawaited()
        store.listener = self


def _would_outlive_kill(destinations):
    for destination in destinations:
        if not destination.outlives_kill():
            return False
    return True
