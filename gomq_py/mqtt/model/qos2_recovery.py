"""QoS 2 recovery: restores the packet identifiers of an earlier run from the store of qos2_records. Blocks;
called at boot.

Each received identifier is restored as complete or as partly stored, or dropped; qos2_records has the rules.
Restored identifiers are recorded again, so that later boots need not check them. A power loss may
have removed sent identifiers: the store records that it happened, and the sessions of that time stay doubtful
in all later runs.

A record has no routing. Its properties are:

    offset  bytes
    0       1       SENT, RECEIVED, SURE, PARTLY, DOUBT, TRUST
    1       1       state of RECEIVED or PARTLY: IS_SURE, BEGUN, or MAY_BE_LOST: a kill may lose the message
    2       2       packet identifier
    4       8       key of the session: from its queue's incarnation
    12      8       SENT: location of the message; SURE: location of the last record that is sure
    20      8       SENT, RECEIVED: when the message came, Unix milliseconds

In states BEGUN and MAY_BE_LOST the body consists of log positions of the message, one per destination. A
PARTLY record has them only for destinations that have the message:

    0       8       key of the store
    8       8       position in its log: Store.place_of()
"""
from operator import attrgetter, itemgetter
from struct import Struct
from typing import NamedTuple

from gomq_py.storage.disk.data_dir import KILLED, POWER_LOST, STOPPED
from gomq_py.storage.message import Message

# Kind of the records; 1 and 2 are content (storage.message).
KIND = 3
SENT, RECEIVED, SURE, PARTLY, DOUBT, TRUST = 1, 2, 3, 4, 5, 6
IS_SURE, BEGUN, MAY_BE_LOST = 1, 2, 3
RECORD = Struct("<BBHQQQ")
RECORD_OCTETS = 28
assert RECORD.size == RECORD_OCTETS
PLACE_OCTETS = 16


class Entry(NamedTuple):
    """A decoded record at ``location``. ``place``: the location that the record names. ``number``: the time
    that it names, Unix milliseconds. ``places``: the encoded log positions in its body.
    """

    location: int
    kind: int
    state: int
    place: int
    number: int
    places: bytes


class QoS2Recovery:
    """Reads an earlier run's records from the store of a QoS2Records, before new records are written."""

    def __init__(self, records):
        self._records = records
        self._store = records.store
        self._last_end = self._store.pool.last_end
        self._over = []  # locations of records to delete
        self._last = None  # the last record received, if a kill may have come before its message was stored
        self._sure_mark = 0
        self._stores = stores_of(records.vhost)

    def hand_out(self, by_key):
        """Restore the identifiers of durable sessions. ``by_key``: {key: session}. Raises StoreError."""
        sent, received, counting = {}, {}, []
        entries = self._entries()
        trust_at, doubt_at = (
            entries.pop((0, kind, 0)).location if (0, kind, 0) in entries else 0 for kind in (TRUST, DOUBT))
        is_doubtful = bool(by_key) and (not trust_at or self._last_end == POWER_LOST)
        for session in by_key.values():
            session.is_doubtful = is_doubtful
        for (key, kind, identifier), entry in entries.items():
            if kind == SURE:
                self._records.sure_before(entry.location, entry.place)
            elif key not in by_key or not identifier:
                self._over.append(entry.location)
            elif kind == SENT:
                sent.setdefault(key, []).append((identifier, entry.place, entry.location, entry.number))
            else:
                received.setdefault((key, identifier), []).append(entry)
        for key, rows in sent.items():
            by_key[key].sent_from(by_key[key].queue).restore(rows)
        for (key, identifier), found in received.items():
            found.sort(key=attrgetter("location"))
            is_whole, places = self._judged(found[-1])
            if not (is_whole or places) and found[0].kind == PARTLY:  # too many destinations to note
                _, places = self._judged(found[0])
            if is_whole or places:
                counting.append((is_whole, places, by_key[key].received_ids(), identifier, found))
            else:
                self._over += [entry.location for entry in found]
        # Forget first: records written from here on mark the last old record as delivered.
        self._forget()
        for one in sorted(counting, key=itemgetter(0)):
            self._restore(*one)
        self._records.trust(trust_at, doubt_at, is_doubtful)
        self._forget()

    def _entries(self):
        """Read all records. Returns {(key, kind, identifier): Entry of the last such record}."""
        entries, message = {}, Message()
        while self._store.ready_count and self._store.peek(message):
            self._store.shift()
            fields, properties = message.describe(), message.get_raw()
            location = fields["location"]
            if fields["kind"] != KIND or len(properties) != RECORD_OCTETS:
                self._over.append(location)
                continue
            kind, state, identifier, key, place, number = RECORD.unpack(properties)
            entry = Entry(location, kind, state, place, number, message.get_body())
            if kind == SURE:
                key = 0
                self._sure_mark = max(self._sure_mark, place)
            elif kind == RECEIVED:
                # a record marked as delivered: the batch of its message had ended
                self._last = None if fields["redelivered"] or state != BEGUN else entry
            name = key, kind, identifier
            if name in entries:  # rewritten before the old record was deleted
                self._over.append(entries[name].location)
            entries[name] = entry
        return entries

    def _judged(self, entry):
        """Return (whether all destinations have the Entry's message, encoded log positions where it is)."""
        is_known = self._is_known(entry)
        places = entry.places if is_known else held_in(self._stores, entry.places, entry.number)
        if entry.kind == PARTLY:
            return False, places
        return is_known or places == entry.places != b"", places

    def _restore(self, is_whole, places, ids, identifier, found):
        *before, entry = found
        now = 0
        if not is_whole or not self._is_sure(entry):
            now = self._records.received_before(ids.key, identifier, is_whole, b"" if is_whole else places)
        if is_whole:
            ids.restore(identifier, now or entry.location)
        else:
            ids.restore_partly(identifier, now or entry.location, places)
        self._over += [each.location for each in (found if now else before)]

    def _forget(self):
        for location in self._over:
            self._store.delete(location)
        self._store.write_out()
        self._over = []

    def _is_sure(self, entry):
        return entry.state == IS_SURE or entry.location <= self._sure_mark

    def _is_known(self, entry):
        """Return whether all destinations certainly have the entry's message. Reads no stores."""
        return (
            self._is_sure(entry) or self._last_end == STOPPED
            or self._last_end == KILLED and entry.state != MAY_BE_LOST and entry is not self._last
        )


def stores_of(vhost):
    """Return {key: store} of the vhost's durable stores."""
    return {store.key: store for store in vhost.durable_stores()}


def held_in(stores, noted, came_ms=0):
    """Return the encoded log positions in ``noted`` where the message is stored, or was stored until its ack.
    Blocks. ``came_ms``: arrival of the message, Unix ms.
    """
    # Not if the message is new and still in memory.
    return those_in(noted, {
        key for key, place in places_in(noted) if key in stores and stores[key].has_record(place, came_ms)})


def keys_in(noted):
    """Return the set of keys of the stores that are named in the encoded log positions ``noted``."""
    return {key for key, _ in places_in(noted)}


def those_in(noted, keys):
    """Return the part of ``noted`` (encoded log positions) that lies in stores with these keys."""
    return b"".join([
        noted[PLACE_OCTETS * at:PLACE_OCTETS * (at + 1)]
        for at, (key, _) in enumerate(places_in(noted)) if key in keys])


def places_in(noted):
    """Decode the log positions ``noted``. Returns a list of (key of a store, position in its log)."""
    numbers = memoryview(noted).cast("Q").tolist() if len(noted) % PLACE_OCTETS == 0 else []
    return list(zip(numbers[::2], numbers[1::2]))
