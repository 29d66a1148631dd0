"""Received: knows which QoS 2 packet identifiers a session's client has used and not released.

mqtt.server.flows.Inbound calls this; qos2_records keeps the identifiers of durable sessions. Never switches
greenlets.
"""
from functools import partial

from gomq_py import octets
from gomq_py.mqtt.model import qos2_records as _qos2_records  # noqa: F401  (its .pxd types what keeps them)
from gomq_py.mqtt.model.qos2_recovery import held_in, keys_in, those_in
from gomq_py.storage.format import record

# A page has 32 identifiers; COUNT_AT is the offset of their count.
PAGE_BITS, PAGE_MASK = 5, 31
COUNT_AT = 256
PAGE_OCTETS = COUNT_AT + 2
NO_PAGE = bytearray()
NONE = ()
# Stands for a location: the identifier is known but cannot be kept. Segments are numbered from 1.
NOT_KEPT = 1


class Received:
    """The packet identifiers of one session's QoS 2 messages that wait for PUBREL.

        count         number of these identifiers
        records       the QoS2Records that keeps them under ``key``, or None
        begun_at      location of the record of the message being stored, or 0
        storing       {identifier whose message waits for files: [log positions, callbacks]}
        added         number of calls of add(), and of replacements of ``records``
        unsafe        [[value of ``added``, tuple of destinations]], in order: destinations that may not have
                      their messages on disk yet
        kept_since    the value of ``added`` when ``records`` replaced another QoS2Records
        earlier       a set of identifiers whose messages an earlier run gave to all destinations, or None

    Identifiers lie in pages of 32, because clients number in sequence: most accesses hit the current page. An
    empty page is dropped when another page is accessed. A page has:

        offset  bytes
        0       8       per identifier: location of its record, NOT_KEPT, or 0: unknown
        256     2       count of known identifiers
    """

    __slots__ = (
        "records", "key", "count", "pages", "page", "number", "at", "begun_at", "storing", "added", "unsafe",
        "latest", "closed", "partly", "kept_since", "earlier",
    )

    def __init__(self, records=None, key=0):
        self.records = records
        self.key = key
        self.count = 0
        self.pages = {}  # {number: page}
        self.number = -1
        self.page = NO_PAGE
        self.at = octets.pointer(NO_PAGE)
        self.begun_at = 0
        self.storing = {}  # {identifier: [places of its message, callback(taken, queues)...]}
        self.partly = None  # {identifier: places of its message}, for is_partly()
        self.added = self.kept_since = 0
        self.unsafe = []
        self.latest = None  # destinations of the last entry of ``unsafe``
        self.earlier = None
        self.closed = False

    def has(self, identifier):
        return self._value(identifier) != 0

    def begin(self, identifier, destinations, message):
        """Record that ``destinations`` (a tuple) will now get the message of an identifier. The identifier
        must be unknown, partly stored or postponed. The caller then calls add(), postpone(), not_stored() or
        refused_by_some().
        """
        if self.records is None or self.closed:
            return
        if not destinations and self.is_partly(identifier):  # all destinations have the message
            self.begun_at = self.records.whole(self.key, identifier)
        else:
            self.begun_at = self.records.begun(
                self.key, identifier, destinations, message, self._had(identifier))

    def postpone(self, identifier, message, destinations, left, taken):
        """Record that the destinations ``left``, the tail of ``destinations``, must wait for new segment
        files before they can store the message. ``taken``: True if all earlier destinations stored the
        message. Returns the function that BlockedPublish calls before each retry.
        """
        if not self.closed:
            self.storing[identifier] = [self._places_of(identifier)]
            self._put(identifier, self._value(identifier))
        self._wait(identifier, destinations, left, taken)
        return partial(self._try_again, identifier, message)

    def _try_again(self, identifier, message, destinations, left, taken):
        if left is None:
            self.begin(identifier, destinations, message)
        else:
            self._wait(identifier, destinations, left, taken)

    def _wait(self, identifier, destinations, left, taken):
        """Record the destinations that have the message; a PUBLISH repeated after a restart skips them."""
        if self.begun_at and not self.closed:
            places = (
                self.records.places_of(left) if taken
                else self._had(identifier) + self._held_by(identifier, destinations))
            if places:
                kept_at = self.records.partly(
                    self.key, identifier, destinations[:len(destinations) - len(left)], places)
                self._release(identifier)
                self._put(identifier, kept_at)
                self.storing[identifier][0] = places
        self._dismiss()

    def _release(self, identifier):
        kept_at = self._value(identifier)
        if kept_at > NOT_KEPT:
            self._put(identifier, NOT_KEPT)
            self.records.done(kept_at)
        if self.partly is not None:
            self.partly.pop(identifier, None)

    def _places_of(self, identifier):
        return b"" if self.partly is None else self.partly.get(identifier, b"")

    def _had(self, identifier):
        """Return encoded log positions of a message that is partly stored or waits for files; else b""."""
        return self.storing[identifier][0] if identifier in self.storing else self._places_of(identifier)

    def is_partly(self, identifier):
        """Return whether destinations lack the identifier's message, so that the client must repeat it."""
        return self.partly is not None and identifier in self.partly

    def lacking(self, identifier, destinations):
        """Return the ``destinations`` that lack an identifier's message: all of them, unless is_partly()."""
        if not self.is_partly(identifier):
            return destinations
        keys = keys_in(self.partly[identifier])
        return [destination for destination in destinations if not destination.is_one_of(keys)]

    def give_up_partly(self, identifier):
        """Forget a partly stored message, because the client reuses the identifier."""
        if self.is_partly(identifier) and self.discard(identifier):
            # otherwise after a kill the new message would count as stored where the old one is
            self.records.write_out()

    def _dismiss(self):
        """Delete the record that begin() wrote, because not all destinations stored the message."""
        if self.begun_at:
            begun_at, self.begun_at = self.begun_at, 0
            self.records.done(begun_at)
            self.records.write_out()

    def is_storing(self, identifier):
        """Return whether an identifier's message waits for files."""
        return identifier in self.storing

    def when_stored(self, identifier, callback):
        """Call ``callback(taken, queues)`` when a message that waits for files is stored or refused.
        ``queues``: as in add(), or None if refused.
        """
        self.storing[identifier].append(callback)

    def add(self, identifier, queues=None):
        """Record that begin()'s message is stored. ``queues``: destinations to flush for PUBREC, or None."""
        if self.closed:
            return
        if self.storing or self.partly is not None:
            self._release(identifier)
        kept_at = self.begun_at
        if kept_at:
            self.begun_at = 0
            kept_at = self.records.received(kept_at, self.key, identifier, queues or NONE)
        self._put(identifier, kept_at)
        self.added += 1
        if queues is not None:
            if queues is self.latest:
                self.unsafe[len(self.unsafe) - 1][0] = self.added
            else:
                self.unsafe.append([self.added, queues])
                self.latest = queues
        if self.storing:
            self._tell(identifier, True, queues)

    def not_stored(self, identifier):
        """Forget an identifier whose message was refused."""
        self._dismiss()
        if identifier in self.storing or self.is_partly(identifier):
            if self._value(identifier):
                self._release(identifier)
                self._take_out(identifier)
            self._tell(identifier, False, None)

    def refused_by_some(self, identifier, destinations):
        """Record that some ``destinations`` refused a message. The client gets no answer, and its repeat goes
        only to destinations that did not store the message.
        """
        places = self._had(identifier)
        if self.begun_at:
            places += self._held_by(identifier, destinations)
        if places:
            self._keep_partly(identifier, places)
            self._dismiss()
            self._tell(identifier, False, None)
        else:
            self.not_stored(identifier)

    def _held_by(self, identifier, destinations):
        """Return encoded positions: where the ``destinations`` that have stored begin()'s message have it."""
        noted, came_ms = self.records.noted(self.begun_at)
        return held_in(_sound(destinations), noted[len(self._had(identifier)):], came_ms)

    def lost_by_some(self, identifier, destinations):
        """Handle the possible loss of an identifier's message in some ``destinations``, whose stores failed.
        The client's repeat goes only to these; to all if no position of another copy is recorded.
        """
        # Identifiers of an earlier run stay: boot flushed their messages.
        if self.earlier is not None and identifier in self.earlier:
            return
        places = b""
        kept_at = self._value(identifier)
        if kept_at > NOT_KEPT and identifier not in self.storing:
            noted = self.records.noted(kept_at)[0]
            places = those_in(noted, keys_in(noted) - _failed(destinations))
        if places:
            self._keep_partly(identifier, places)
        else:
            self.discard(identifier)

    def _keep_partly(self, identifier, places):
        kept_at = self.records.received_before(self.key, identifier, False, places)
        self._release(identifier)
        self.restore_partly(identifier, kept_at, places)

    def _tell(self, identifier, taken, queues):
        for callback in self.storing.pop(identifier, ())[1:]:
            callback(taken, queues)

    def discard(self, identifier):
        """Forget an identifier, after PUBREL or because its message is lost. Returns False if the identifier
        is unknown, or must stay because its message waits for files.
        """
        if identifier in self.storing:
            return False
        kept_at = self._value(identifier)
        if kept_at == 0:
            return False
        if self.partly is not None:
            self.partly.pop(identifier, None)
        self._take_out(identifier)
        if kept_at != NOT_KEPT:
            self.records.done(kept_at)
        return True

    def awaited(self, identifier):
        """Return the queues that must flush an identifier's message before PUBREC, as a list of tuples. If
        one of these queues has failed, the message may be lost.
        """
        awaited = [queues for _, queues in self.unsafe]
        kept_at = self._value(identifier)
        if kept_at > NOT_KEPT and kept_at > self.records.sure_mark and not self.records.failed:
            awaited.append(self.records.together)
        return awaited

    def sure(self, added, mark):
        """Record that the messages of the first ``added`` identifiers are on disk. ``mark``: location for
        QoS2Records.sure(), or 0.
        """
        unsafe = self.unsafe
        while unsafe and unsafe[0][0] <= added:
            del unsafe[0]
        if not unsafe:
            self.latest = None
        if mark and added >= self.kept_since:  # otherwise the mark is of the replaced store
            self.records.sure(mark)

    def restore(self, identifier, kept_at):
        """Restore an earlier run's identifier, whose record is at ``kept_at``."""
        self._put(identifier, kept_at)
        if self.earlier is None:
            self.earlier = set()
        self.earlier.add(identifier)

    def restore_partly(self, identifier, kept_at, places):
        """Restore an identifier whose message some destinations lack. ``places``: encoded log positions."""
        self._put(identifier, kept_at)
        if self.partly is None:
            self.partly = {}
        self.partly[identifier] = places

    def move(self, oldest):
        """Copy the records in segments before number ``oldest`` to the log's end, to free these segments."""
        for identifier in self._identifiers():
            kept_at = self._value(identifier)
            if kept_at != NOT_KEPT and record.number_of(kept_at) < oldest:
                octets.put_le64(self.at, (identifier & PAGE_MASK) * 8, self.records.again(kept_at))

    def keep_in(self, records):
        """Write the identifiers to a new QoS2Records, because the old store failed."""
        # Except identifiers whose messages a kill would lose, because they are in files without names.
        outlives = True
        for _, queues in self.unsafe:
            for destination in queues:
                outlives = outlives and destination.outlives_kill()
        for identifier in self._identifiers():
            kept_at = self._value(identifier)
            is_sure = kept_at != NOT_KEPT and kept_at <= self.records.sure_mark
            places, waits = self._had(identifier), identifier in self.storing
            now = 0
            if places or not waits and (is_sure or outlives):
                now = records.received_before(self.key, identifier, is_sure, places)
            self._put(identifier, now)
        self.records = records
        self.added += 1
        self.kept_since = self.added

    def close(self):
        """Delete the records of an ended session. Later calls of add() do nothing."""
        self._dismiss()
        self.closed = True
        self.storing = {}
        self.partly = None
        self.unsafe = []
        self.latest = None
        for identifier in self._identifiers():
            kept_at = self._value(identifier)
            self._take_out(identifier)
            if kept_at != NOT_KEPT:
                self.records.done(kept_at, True)

    def _identifiers(self):
        found = []
        for number in sorted(self.pages):
            for identifier in range(number << PAGE_BITS, number + 1 << PAGE_BITS):
                if self._value(identifier):
                    found.append(identifier)
        return found

    def _value(self, identifier):
        """Return an identifier's record location, NOT_KEPT or 0 (see Received). Makes its page current."""
        if identifier >> PAGE_BITS != self.number:
            page = self.pages.get(identifier >> PAGE_BITS)
            if page is None:
                return 0
            self._look_at(identifier >> PAGE_BITS, page)
        return octets.le64(self.at, (identifier & PAGE_MASK) * 8)

    def _put(self, identifier, kept_at):
        number = identifier >> PAGE_BITS
        if number != self.number:
            page = self.pages.get(number)
            if page is None:
                page = self.pages[number] = bytearray(PAGE_OCTETS)
            self._look_at(number, page)
        if octets.le64(self.at, (identifier & PAGE_MASK) * 8) == 0:
            octets.put_le16(self.at, COUNT_AT, octets.le16(self.at, COUNT_AT) + 1)
            self.count += 1
        octets.put_le64(self.at, (identifier & PAGE_MASK) * 8, kept_at or NOT_KEPT)

    def _take_out(self, identifier):
        octets.put_le64(self.at, (identifier & PAGE_MASK) * 8, 0)
        octets.put_le16(self.at, COUNT_AT, octets.le16(self.at, COUNT_AT) - 1)
        self.count -= 1
        if self.earlier is not None:
            self.earlier.discard(identifier)

    def _look_at(self, number, page):
        if self.number >= 0 and octets.le16(self.at, COUNT_AT) == 0:
            del self.pages[self.number]
        self.number = number
        self.page = page
        self.at = octets.pointer(page)


def _sound(destinations):
    """Return {key: store} of the destinations whose stores have not failed."""
    return {
        store.key: store for destination in destinations if not destination.failed
        for store in destination.stores() if store.failure is None}


def _failed(destinations):
    """Return the keys of the failed stores of these destinations."""
    stores = {store.key for destination in destinations for store in destination.stores()}
    return stores - _sound(destinations).keys()
