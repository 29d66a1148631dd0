"""Sent: records which messages of a session were sent with a packet identifier and not acknowledged.

mqtt.server.delivery calls it; it uses the session's queue and qos2_records. A Sent outlives the connection:
unacknowledged messages are sent again with their identifiers. Each identifier has a row of 24 bytes:

    offset  bytes
    0       8       location in the queue's store
    8       8       location of its record in mqtt.model.qos2_records (QoS 2 of a durable session), else 0
    16      4       if FREE, the next free identifier, or 0; otherwise the low bytes of the message's storing
                    time (Unix milliseconds)
    20      1       state: FREE, QOS_1, QOS_2 or RELEASED; plus FROM_BEFORE if of an earlier connection
    21      1       1: the message is taken from the queue, and has yet to go back there
    22      1       1: sent by an earlier run, so that another message may have this location by now
    23      1       1: the client may hold an unknown message with this identifier (``doubts``)

Identifiers are given in the order in which they became free. Never switches greenlets.
"""
from array import array
from bisect import bisect_left

from gomq_py import octets
from gomq_py.broker.queues import queue as _queue  # noqa: F401  (its .pxd types the queue)
from gomq_py.hub.scheduler import Job
from gomq_py.mqtt.model import qos2_records as _qos2_records  # noqa: F401
from gomq_py.mqtt.wire.constants import IDENTIFIER_MAX, PUBACK, PUBCOMP, PUBREC
from gomq_py.storage.format import record

ROW, FIRST_ROWS = 24, 16
# An empty table with more rows is freed at the end of the connection.
KEPT_ROWS = 64
# Messages that go back to the queue between two polls of the loop: some 3 ms, as in amqp.server.settling.
AT_ONCE = 2500
# Records rewritten between two looks at the clock: some 0.2 ms.
MOVED_AT_ONCE = 100
LOW_OCTETS = 0xFFFFFFFF
# In place of the storing time: matches no message.
SETTLED_MS = 1

# RELEASED: PUBREC came, the message is settled, PUBCOMP is awaited. FROM_BEFORE: sent over an earlier
# connection and not yet over this one.
FREE, QOS_1, QOS_2, RELEASED, FROM_BEFORE = 0, 1, 2, 3, 8

# What the caller has to do after an acknowledgement.
NOTHING, RELEASE, UNKNOWN, WRONG = 0, 1, 2, 3


class Sent:
    """A table of the messages from the session's ``queue`` that were sent and not acknowledged.

        window        most messages in flight
        count         messages in flight over this connection
        used          number of identifiers in use
        to_release    identifiers whose messages are gone, for which PUBREL must be sent
        records       the QoS2Records that keeps QoS 2 messages under the session's ``key``, or None
        doubts        the client may hold identifiers whose records a power cut deleted
    """

    __slots__ = (
        "queue", "window", "count", "used", "to_release", "records", "key", "rows", "at", "capacity",
        "first_free", "last_free", "before", "places", "next_before", "is_connected", "next_out", "returning",
        "doubts", "awaits_one",
    )

    def __init__(self, queue, records=None, key=0):
        self.queue = queue
        self.records = records
        self.key = key
        self.window = IDENTIFIER_MAX
        self.count = self.used = self.capacity = self.first_free = self.last_free = self.next_before = 0
        self.to_release = []
        self.rows = bytearray()
        self.at = octets.pointer(self.rows)
        # Identifiers sent over an earlier connection whose messages may still be in the queue, in queue
        # order, and their locations; None: no such message, or not computed.
        self.before = self.places = None
        self.is_connected = self.doubts = False
        self.awaits_one = False  # the next message waits for a PUBCOMP that frees an identifier
        self.next_out = 1  # messages yet to be returned have no identifier below this
        self.returning = None  # the Returning at work, or None

    # a connection

    def begin(self, window):
        """Begin a connection. Returns a list of identifiers whose PUBREL must be repeated, oldest first."""
        self.window = window
        self.count, self.to_release = 0, []
        self.is_connected, self.awaits_one, self.next_before = True, False, 0
        self._put_back()
        released = self._found(True)
        self._list_before()
        if not self.before:
            self.before = None
        elif self.queue.ready_count == 0 and not self.queue.is_opening():
            self.nothing_left()
        return released

    def end(self):
        """End a connection: return unacknowledged messages to the queue, in their old order."""
        self.before = None
        self.is_connected = False
        self.count = 0
        for identifier in range(1, self.capacity + 1):
            row = (identifier - 1) * ROW
            state = self.at[row + 20]
            if state == FREE or state & FROM_BEFORE:
                continue
            self.at[row + 20] = state | FROM_BEFORE
            if state != RELEASED:
                self.at[row + 21] = 1
        self._put_back()
        if self.used == 0 and self.capacity > KEPT_ROWS:
            self.rows = bytearray()
            self.at = octets.pointer(self.rows)
            self.capacity = self.first_free = self.last_free = 0

    def put_back_some(self):
        """Return some unacknowledged messages to the queue. Returns True if more are left to return."""
        left = AT_ONCE
        while self.next_out <= self.capacity:
            row = (self.next_out - 1) * ROW
            if self.at[row + 21]:
                if left == 0:
                    return True
                left -= 1
                self.at[row + 21] = 0
                self.queue.requeue(octets.le64(self.at, row))
            self.next_out += 1
        return False

    def spare(self, message):
        """Take ``message`` out of the queue until the client reconnects, so that others can be dropped. It is
        the queue's first, and is_owed() is true. If the client is connected, only returns False.
        """
        if self.is_connected:
            return False
        place = self._place_of(message)
        self.at[(self.before[place] - 1) * ROW + 21] = 1
        self.queue.shift_head()
        return True

    def moved_to(self, queue):
        """Use this queue, which was reopened after a fault. All its unsettled messages are ready."""
        self.queue = queue
        self.returning = self.before = None
        for identifier in range(1, self.capacity + 1):
            row = (identifier - 1) * ROW
            state = self.at[row + 20] & 3
            self.at[row + 21] = 0
            if state != FREE:  # the fault may have undone a settlement
                self.at[row + 20] = FROM_BEFORE | (QOS_2 if state == RELEASED else state)

    def restore(self, entries):
        """Restore an earlier run's entries (identifier, location, record's location, Unix ms when stored)."""
        self._grow(max([identifier for identifier, _, _, _ in entries]))
        for identifier, location, kept_at, stored_ms in entries:
            row = (identifier - 1) * ROW
            octets.put_le64(self.at, row, location)
            octets.put_le64(self.at, row + 8, kept_at)
            octets.put_le32(self.at, row + 16, stored_ms & LOW_OCTETS)
            self.at[row + 20] = QOS_2 | FROM_BEFORE
            self.at[row + 22] = 1
            self.at[row + 23] = 0
            self.used += 1
        self.first_free = self.last_free = 0
        for identifier in range(1, self.capacity + 1):
            if self.at[(identifier - 1) * ROW + 20] == FREE:
                self._chain(identifier)

    def close(self):
        """Free all identifiers, because the session has ended."""
        for identifier in range(1, self.capacity + 1):
            if self.at[(identifier - 1) * ROW + 20] != FREE:
                self._free(identifier, True)

    def begun(self):
        """Return {location: stored_ms} of unsettled messages sent at QoS 2 over an earlier connection.
        ``stored_ms``: low 32 bits of Unix milliseconds, or 0 if the message was sent in this run.
        """
        found = {}
        for identifier in range(1, self.capacity + 1):
            row = (identifier - 1) * ROW
            if self.at[row + 20] == QOS_2 | FROM_BEFORE:
                found[octets.le64(self.at, row)] = self._stored_ms(row)
        return found

    def move(self, oldest, first):
        """Rewrite some records that are in segments before number ``oldest``, from the identifier ``first``
        on. Returns the identifier from which to go on, or 0 at the end.
        """
        left = MOVED_AT_ONCE
        for identifier in range(first, self.capacity + 1):
            row = (identifier - 1) * ROW
            kept_at = octets.le64(self.at, row + 8)
            if kept_at and record.number_of(kept_at) < oldest:
                if left == 0:
                    return identifier
                left -= 1
                octets.put_le64(self.at, row + 8, self.records.again(kept_at))
        return 0

    def keep_in(self, records):
        """Write all QoS 2 identifiers to a new QoS2Records, because the old store failed."""
        for identifier in range(1, self.capacity + 1):
            row = (identifier - 1) * ROW
            state = self.at[row + 20] & 3
            if state == QOS_2 or state == RELEASED:
                stored_ms = SETTLED_MS if state == RELEASED else octets.le32(self.at, row + 16)
                octets.put_le64(self.at, row + 8, records.sent(
                    self.key, identifier, octets.le64(self.at, row), stored_ms))
        self.records = records

    # deliveries

    def room(self):
        if self.awaits_one and self.doubts and self.first_free == 0:
            return 0
        return max(0, min(self.window - self.count, IDENTIFIER_MAX - self.used))

    def add(self, location, timestamp_ms, qos):
        """Record that the message at ``location``, taken from the queue, is sent at QoS 1 or 2. Returns its
        packet identifier, or 0 if the message must wait until ``records`` is replaced. The caller has checked
        room().
        """
        if self.first_free == 0:
            self._grow(self.capacity + 1)
        identifier = self.first_free
        kept_at = 0
        if qos == QOS_2 and self.records is not None:
            if not self.records.is_stuck:
                kept_at = self.records.sent(self.key, identifier, location, timestamp_ms)
            if self.records.is_stuck:
                return 0
        row = (identifier - 1) * ROW
        self.first_free = octets.le32(self.at, row + 16)
        if self.first_free == 0:
            self.last_free = 0
        octets.put_le64(self.at, row, location)
        octets.put_le32(self.at, row + 16, timestamp_ms & LOW_OCTETS)
        octets.put_le64(self.at, row + 8, kept_at)
        self.at[row + 20] = qos
        self.count += 1
        self.used += 1
        return identifier

    def must_release(self):
        """Return whether the next QoS 2 message must wait for a PUBCOMP. True if the client may still hold
        every free identifier; these identifiers are put into ``to_release``.
        """
        if self.first_free == 0 and not self._found(True):
            self._grow(self.capacity + 1)
        if self.first_free and not self.at[(self.first_free - 1) * ROW + 23]:
            self.awaits_one = False
            return False
        self.first_free = self.last_free = 0
        for identifier in range(1, self.capacity + 1):
            row = (identifier - 1) * ROW
            if self.at[row + 20] == FREE and self.at[row + 23]:
                self.at[row + 20] = RELEASED | FROM_BEFORE
                self.at[row + 23] = 0
                self.used += 1
                self.to_release.append(identifier)
            elif self.at[row + 20] == FREE:
                self._chain(identifier)
        self.awaits_one = self.first_free == 0
        return self.awaits_one

    def known(self, location, timestamp_ms):
        """Return the packet identifier by which an earlier connection sent the queue's next message, or 0."""
        # Entries of messages that are no longer in the queue are dropped on the way.
        while self.next_before < len(self.before):
            identifier = self.before[self.next_before]
            row = (identifier - 1) * ROW
            place = octets.le64(self.at, row)
            if place > location:
                return 0
            if place == location and self._is_same(row, timestamp_ms):
                return identifier
            self.next_before += 1
            self._gone(identifier)
        self.before = None
        return 0

    def is_owed(self, message):
        """Return whether this queued message was sent at QoS 2; if so, it is resent with its identifier."""
        if self.before is None:
            if self.is_connected:
                return False
            self._list_before()
        return self._place_of(message) >= 0

    def again(self, identifier):
        """Record that the message of this identifier, which known() returned, is sent again."""
        row = (identifier - 1) * ROW
        self.at[row + 20] &= ~FROM_BEFORE & 0xFF
        self.count += 1
        self.next_before += 1

    def qos_of(self, identifier):
        return self.at[(identifier - 1) * ROW + 20] & 3

    def nothing_left(self):
        """The queue is empty: forget what an earlier connection had sent and this one has not sent again."""
        if self.before is not None and self.returning is None:
            for identifier in self.before[self.next_before:]:
                self._gone(identifier)
            self.before = None

    def drop(self, identifier):
        """Forget this identifier, which known() returned, because its message was dropped."""
        self.next_before += 1
        self._gone(identifier)

    def take_to_release(self):
        """Return and clear ``to_release``."""
        identifiers, self.to_release = self.to_release, []
        return identifiers

    # acknowledgements

    def acknowledged(self, kind, identifier):
        """Handle a successful PUBACK, PUBREC or PUBCOMP. Returns what the caller has to do:

            RELEASE    send PUBREL
            UNKNOWN    report an unknown identifier
            WRONG      report that a different packet is due
            NOTHING    nothing; always while the queue is closed
        """
        if self.queue.closed:
            return NOTHING
        if identifier == 0 or identifier > self.capacity:
            return UNKNOWN
        row = (identifier - 1) * ROW
        state = self.at[row + 20]
        if state == QOS_1:
            if kind != PUBACK:
                return WRONG
            self.count -= 1
            self._free(identifier)
            self.queue.ack(octets.le64(self.at, row))
            return NOTHING
        if state == QOS_2:
            if kind != PUBREC:
                return WRONG
            self.queue.ack(octets.le64(self.at, row))
            if self.queue.closed:
                return NOTHING
            self.at[row + 20] = RELEASED
            return RELEASE
        if state & 3 == RELEASED:
            if kind == PUBREC:
                return RELEASE
            if kind != PUBCOMP:
                return WRONG
            if state == RELEASED:
                self.count -= 1
            self._free(identifier)
            return NOTHING
        # messages of an earlier connection come again and are acknowledged again
        return UNKNOWN if state == FREE else NOTHING

    def refused(self, identifier):
        """Handle a PUBREC that refuses the message. Returns UNKNOWN if there is no such identifier, WRONG for
        a QoS 1 message, otherwise NOTHING.
        """
        if self.queue.closed:
            return NOTHING
        if identifier == 0 or identifier > self.capacity:
            return UNKNOWN
        row = (identifier - 1) * ROW
        state = self.at[row + 20]
        if state == QOS_1:
            return WRONG
        if state == QOS_2:
            self.queue.ack(octets.le64(self.at, row))
        elif state != RELEASED:
            return UNKNOWN if state == FREE else NOTHING
        self.count -= 1
        self._free(identifier)
        return NOTHING

    # helpers

    def _put_back(self):
        self.next_out = 1
        if self.returning is None and self.put_back_some():
            self.returning = Returning(self)

    def _list_before(self):
        self.before = self._found(False)
        self.places = array("Q", [octets.le64(self.at, (each - 1) * ROW) for each in self.before])

    def _found(self, is_released):
        """Return identifiers of an earlier connection, oldest message first. ``is_released``: True for
        identifiers in state RELEASED, False for those in other states.
        """
        found = []
        places = array("Q")  # by identifier
        before = 0
        is_in_order = True
        for identifier in range(1, self.capacity + 1):
            row = (identifier - 1) * ROW
            state = self.at[row + 20]
            place = octets.le64(self.at, row)
            places.append(place)
            if state & FROM_BEFORE and (state & 3 == RELEASED) == is_released:
                is_in_order = is_in_order and before <= place
                before = place
                found.append(identifier)
        if not is_in_order:
            places.insert(0, 0)
            found.sort(key=places.__getitem__)
        return found

    def _place_of(self, message):
        """Return the index in ``before`` of a message that an earlier connection sent at QoS 2; else -1."""
        location = message.location
        place = bisect_left(self.places, location)
        while place < len(self.before) and self.places[place] == location:
            row = (self.before[place] - 1) * ROW
            if self.at[row + 20] == QOS_2 | FROM_BEFORE and self._is_same(row, message.timestamp_ms):
                return place
            place += 1
        return -1

    def _is_same(self, row, timestamp_ms):
        """Return whether a message with this timestamp, at the row's location, may be the one sent."""
        stored_ms = self._stored_ms(row)
        return stored_ms == 0 or stored_ms == timestamp_ms & LOW_OCTETS

    def _stored_ms(self, row):
        """Return the low 32 bits of a message's storing time (Unix ms), or 0 if this run sent the message."""
        return octets.le32(self.at, row + 16) if self.at[row + 22] else 0

    def _gone(self, identifier):
        """Forget a message of an earlier connection that is no longer in the queue."""
        row = (identifier - 1) * ROW
        if self.at[row + 20] & 3 == QOS_2:
            # the client may hold the identifier and would take another message for the same
            self.at[row + 20] = RELEASED | FROM_BEFORE
            self.to_release.append(identifier)
        else:
            self._free(identifier)

    def _free(self, identifier, has_ended=False):
        row = (identifier - 1) * ROW
        kept_at = octets.le64(self.at, row + 8)
        if kept_at:
            self.records.done(kept_at, has_ended)
            octets.put_le64(self.at, row + 8, 0)
        self.at[row + 20] = FREE
        self.at[row + 21] = self.at[row + 22] = 0
        self.used -= 1
        self._chain(identifier)

    def _chain(self, identifier):
        octets.put_le32(self.at, (identifier - 1) * ROW + 16, 0)
        if self.last_free:
            octets.put_le32(self.at, (self.last_free - 1) * ROW + 16, identifier)
        else:
            self.first_free = identifier
        self.last_free = identifier

    def _grow(self, least):
        before = self.capacity
        capacity = min(max(least, 2 * before, FIRST_ROWS), IDENTIFIER_MAX)
        rows = bytearray(capacity * ROW)
        rows[:before * ROW] = self.rows
        self.rows = rows
        self.at = octets.pointer(rows)
        self.capacity = capacity
        for identifier in range(before + 1, capacity + 1):
            self.at[(identifier - 1) * ROW + 23] = self.doubts
            self._chain(identifier)


class Returning(Job):
    """Requeues very many messages of a Sent in slices. Until the end, the queue delivers nothing."""

    name = "putting back what MQTT clients have not acknowledged"

    def __init__(self, sent):
        super().__init__()
        self._sent, self._queue = sent, sent.queue
        self._is_over = False
        self._queue.hold_deliveries()
        self._queue.scheduler.start(self)

    def step(self):
        if self._sent.returning is self:  # otherwise the queue was opened again
            if self._sent.put_back_some():
                return True
            self._sent.returning = None
        self._is_over = True
        self._queue.resume_deliveries()
        self._queue.emptied()
        return False

    def failed(self, error):
        """Return whether to go on without the failed message, which is delivered again after a restart."""
        return not self._is_over
