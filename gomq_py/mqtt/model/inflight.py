"""Inflight: what of exchanges at QoS 2 survives the process: identifiers of a vhost's durable sessions, in a
store of their own.

Beside the sessions, below the door, above storage. What is written outlives a kill at any instant, because it
is in the store's mappings when a function returns, and its files have their names; what was deleted does at
the end of the batch. The disk has it soon; that an identifier was released, before PUBCOMP leaves. What is
written anew is deleted where it was when it is on the disk.

    sent        before a PUBLISH of QoS 2 leaves, until its PUBCOMP: after a restart the message comes again
                with the same identifier and DUP, and where it is settled, PUBREL does. Where somebody else
                keeps what the broker keeps, PUBLISH and PUBREL wait for that: who takes over must know it
    received    right before a message that came at QoS 2 is given to its destinations, until its PUBREL:
                after a kill the client's PUBLISH is known, and not stored twice
    partly      before a destination waits for files, which others before it did not, until all have the
                message: after a kill the client sends it again, and it goes to those that lack it
    sure        before PUBREC leaves: the messages of all identifiers received up to there are on the disk
    doubt       clients may hold identifiers that are free here, so that from the next boot on PUBREL goes out
                for each before it is used. So it is where there is no ``trust``
    trust       all that was sent is noted. Both are there from the first; a loss of power, or a disk that has
                no room for what is sent, deletes trust: nothing else can be said on a full disk

With the record of a received one lie the places of its message, in its destinations' logs. After a kill they
are looked at where the kill may have come before the message: for the last record of all, and for those whose
message lay in files without names, which a kill loses. In any other folder than the one that a process was
killed over in this boot of the machine all are looked at that are not sure: after a loss of power, in a copy,
in what a follower was told of. The identifier counts if the message lies in all of its places. If some lack
it, the client sends it again, and it goes to those. What counts is sure from then on: boot has flushed it.
mqtt.model.found says what a record is.
"""
from functools import partial

from gomq_py import octets
from gomq_py.errors import Refused
from gomq_py.hub import scheduler as _scheduler
from gomq_py.mqtt.model.found import (
    BEGUN, DOUBT, IS_SURE, KIND, MAY_BE_LOST, PARTLY, PLACE_OCTETS, RECEIVED, RECORD_OCTETS, SENT, SURE,
    TRUST, Found, places_in,
)
from gomq_py.mqtt.model.moving import Moving
from gomq_py.mqtt.model.session_kind import EXTRA, INFLIGHT_STORE
from gomq_py.observability.log import logger
from gomq_py.observability.quiet_log import QuietLog
from gomq_py.storage import locations
from gomq_py.storage.errors import StoreError, StoreFull
from gomq_py.storage.format import sizes
from gomq_py.storage.message import Message
from gomq_py.storage.stores import message_store as _message_store  # noqa: F401  (its .pxd types the store)

LOG = logger("mqtt")
QUIET = QuietLog(LOG)

# Of how many destinations at most the places are noted. Where a message goes to more, a kill within it has
# the client send the message again to all.
PLACES = 4096
# Segments that may hold nothing but old entries; what lies before them is written anew.
SEGMENTS = 3
NO_ROUTING = b"\0\0"


class Inflight(_scheduler.TurnTaker):
    """Those of one vhost, which makes its store when the first is noted.

    Nothing here fails for the disk's sake: what cannot be kept is not, and said in the log. Where its store
    has ``failed`` another Inflight with a new store takes its place (moving.Replacing). Both are ``is_stuck``
    until the definitions on the disk name that one: a kill would bring identifiers back that clients have
    released.
    """

    __slots__ = (
        "vhost", "scheduler", "store", "failed", "message", "shown", "record", "at", "places_length",
        "came_ms", "last_received", "sure_at", "sure_mark", "segment", "moving", "outdated", "unsettled",
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
        # {location of what was written anew, or 1 behind that of what has ended with its session: where it is
        # until that is safe}, and those of its keys that wait for moved()
        self.outdated, self.unsettled = {}, []
        self.together, self.waiting = (self,), []  # waiting: called back when it is stuck no more

    def open(self):
        """Have a store from here on, so that the first record need not wait for the log to name it, as a kill
        does not. Returns whether it was made, and is to be flushed.
        """
        if self.store is not None or not self._opened():
            return False
        self.trust(0, 0, self.doubts)
        return True

    def key_of(self, queue):
        """The key of the session of a durable queue."""
        return int.from_bytes(self.vhost.incarnation_of(queue)[:8], "little")

    # outgoing

    def sent(self, key, identifier, location, stored_ms):
        """A message is sent at QoS 2. Returns where that is kept, 0 where it cannot be."""
        if not self.doubt_at:
            self.trust(self.trust_at, 0, self.doubts)
        kept_at = self._keep(SENT, 0, identifier, key, location, stored_ms)
        if not (kept_at or self.failed):  # where it has, another store is to have it
            self.doubt()
        return kept_at

    def trust(self, trust_at, doubt_at, is_doubtful):
        """Be able to doubt(), or do so. The records lie there, or, 0, are written."""
        self.trust_at = trust_at
        if not trust_at and not is_doubtful:
            self.trust_at = self._keep(TRUST, 0, 0, 0, 0, 0)
        self.doubt_at = doubt_at or self._keep(DOUBT, 0, 0, 0, 0, 0)
        if is_doubtful:
            self.doubt()

    def doubt(self):
        """Not all that sessions have been sent is noted, as later boots are to know."""
        self.doubts = True
        if self.trust_at:
            self.done(self.trust_at)
            self.trust_at = 0
            self.flush()  # before the PUBLISH leaves

    def is_kept_elsewhere(self):
        """Whether somebody else keeps what the broker keeps, and may not have what was noted last."""
        return self.vhost.has_acknowledgers

    def when_safe(self, callback):
        """Call ``callback(error or None)`` when all that was noted until now is safe, with its messages."""
        self.await_flush()
        self.vhost.when_safe(callback, self._has_failed)

    # incoming

    def begun(self, key, identifier, destinations, message, had):
        """The message with this identifier is given to ``destinations``, a tuple, next; ``had``: its places
        in others. Returns where that is kept, for received() or dismissed(), 0 where it cannot be.
        """
        if not self._opened():
            return 0
        self._note_places(destinations, message, had)
        if not self.touched:
            self.scheduler.touch(self)
        return self._keep(RECEIVED, BEGUN, identifier, key, 0, self.came_ms)

    def received(self, kept_at, key, identifier, destinations):
        """All of these, those of begun(), have taken the message. Returns where that is kept from here on."""
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
        """The places of a message that is given to ``destinations``, a tuple, next; none of too many."""
        self._note_places(destinations, message, b"")
        return self.places_of(())

    def places_of(self, left):
        """The places of the message that begun() was called for last, without those in ``left``, which are
        the last of its destinations.
        """
        end = self.message.body_at + self.places_length
        for destination in left:
            if destination.next_store() is not None:
                end -= PLACE_OCTETS
        return bytes(self.record[self.message.body_at:max(end, self.message.body_at)])

    def noted(self, kept_at):
        """(places, when it came) of the message that begun() has noted there; without places where that is
        not known.
        """
        shown = self.shown
        if self.failed or not self.store.read(kept_at, shown):
            return b"", 0
        return shown.get_body(), octets.le64(shown.buffer, shown.properties_at + 20)

    def keys_in(self, places):
        """The keys of the stores in what places_of() has said."""
        return {key for key, _ in places_in(places)}

    def partly(self, key, identifier, had, places):
        """These destinations have the message, and others wait for files. ``places``: what places_of() has
        said of all that have it. Returns where that is kept, 0 where it cannot be.
        """
        if not self._opened():
            return 0
        is_named = not self.store.pool.has_unnamed or _would_outlive_kill(had)
        if not self.touched:
            self.scheduler.touch(self)
        return self._keep_partly(BEGUN if is_named else MAY_BE_LOST, identifier, key, places)

    def whole(self, key, identifier):
        """All that are left of a message's destinations have it since an earlier run. Returns where that is
        kept, 0 where it cannot be.
        """
        return self._keep(RECEIVED, IS_SURE, identifier, key, 0, 0)

    def received_before(self, key, identifier, is_sure, places):
        """An identifier that another Inflight has kept. ``places``: what places_of() has said, where others
        lack its message. Returns where that is kept, 0 where it cannot be.
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

    def dismissed(self, kept_at):
        """What begun() has noted is nothing: not all of its destinations have taken the message."""
        self.done(kept_at)
        self.flush()

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
            before, self.sure_mark, self.sure_at = self.sure_at, mark, kept_at
            if before:
                self._delete(before)  # in a batch of its own it would cost a poll; the next one will do

    def sure_before(self, kept_at, mark):
        """As sure(), by an earlier run."""
        self.sure_at = kept_at
        self.sure_mark = max(self.sure_mark, mark)

    # both

    def done(self, kept_at, has_ended=False):
        """What is kept there is over; ``has_ended``: with its session, which a kill brings back unless that
        is safe, so that moved() is to be called.
        """
        if self.store is None or self.failed:
            return
        if has_ended:
            self.outdated[kept_at + 1] = kept_at  # no record begins there
            self.unsettled.append(kept_at + 1)
            return
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
        self.unsettled.append(now)
        return now

    def moved(self):
        """What again() has kept anew is to be deleted where it was, once it is safe; and what has ended."""
        if self.unsettled and not self.vhost.is_gone:  # else the store goes with it
            unsettled, self.unsettled = self.unsettled, []
            self.await_flush()
            self.vhost.when_safe(partial(self._settle, unsettled), self._has_failed, False)

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
            self.doubts = True
            for session in sessions:
                session.is_doubtful = True
            self.fail("the store cannot be opened")
            return
        self._begin(store)
        try:
            Found(self).hand_out({self.key_of(session.queue): session for session in sessions})
        except StoreError as error:
            self.fail(error)
        self.flush()

    def fail(self, error):
        """The store cannot go on: nothing is kept before another one has taken its place."""
        if not self.failed:
            self.failed = self.is_stuck = True
            LOG.error(
                "%s are not kept, and publishers at QoS 2 wait, until a new store is made: %s", self.name,
                error)
            self.vhost.extras[EXTRA].inflight_failed(self)

    def when_replaced(self, callback):
        """Call back once it is stuck no more, which it is."""
        self.waiting.append(callback)

    def replaced(self):
        """The definitions on the disk name the store of another one."""
        self.is_stuck = False
        waiting, self.waiting = self.waiting, []
        for callback in waiting:
            callback()

    def close(self):
        """The broker stops, and the store is closed: nothing is kept any more."""
        self.failed = True

    def store_fenced(self, store, error):
        """The store heard of an I/O error from the disk (storage.flush.group_commit)."""
        self.fail(error)

    def record_damaged(self, store, path, start, end, count):
        """A record failed its checksum and was set aside; the others count."""
        LOG.error(
            "%s: %d damaged records in %s, octets %d to %d, set aside", self.name, count, path, start, end)

    # helpers

    def _note_places(self, destinations, message, had):
        """Put the places of a message, those it ``had`` first, behind the record that is written next."""
        room = len(NO_ROUTING) + RECORD_OCTETS + len(had) + PLACE_OCTETS * len(destinations)
        self.places_length = 0
        self.came_ms = message.timestamp_ms
        if len(destinations) > PLACES:
            return
        if room > len(self.record):
            self._use(bytearray(room))
        size = sizes.record_size(message.routing_length, message.properties_length, message.body_length)
        at, place = self.at, self.message.body_at + len(had)
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
        """Write a record, with the places noted last where its state is of these. Returns its location, 0
        where it cannot be written.
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
        if locations.number_of(kept_at) != self.segment:
            self.segment = locations.number_of(kept_at)
            self._make_space()
        return kept_at

    def _keep_partly(self, state, identifier, key, places):
        """As _keep(), with these places instead of those that were noted last."""
        record, length = self.record, self.places_length
        self._use(bytearray(self.message.body_at) + places)
        self.places_length = len(places)
        try:
            return self._keep(PARTLY, state, identifier, key, 0, 0)
        finally:
            self._use(record)
            self.places_length = length

    def _use(self, record):
        """Write records from this bytearray."""
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

    def _has_failed(self):
        return self.failed

    def _settle(self, moved, error):
        """What lies there is safe, or, with an error, may not be: then the next moved() takes it with it."""
        if error is not None:
            self.unsettled += moved
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

    def _opened(self):
        """Whether there is a store, made with the first record."""
        if self.store is None and not self.failed:
            try:
                self._begin(self.vhost.stores.make(INFLIGHT_STORE))
            except (StoreError, Refused) as error:
                self._complain(error)
        return self.store is not None and not self.failed

    def _begin(self, store):
        self.scheduler = self.vhost.scheduler
        store.name_at_once()
        self.store = store
        store.be_unawaited()
        store.listener = self

    def _make_space(self):
        """A segment is begun: write anew what keeps the oldest, if there are too many."""
        if self.segment > SEGMENTS and self.moving is None:
            self.moving = Moving(self, self.segment - SEGMENTS)
            self.scheduler.start(self.moving)


def _would_outlive_kill(destinations):
    """Whether what was appended to these would: its files have their names."""
    for destination in destinations:
        if not destination.outlives_kill():
            return False
    return True
