"""Sent: what one session has been sent with a packet identifier, and has not acknowledged.

Below the door's deliveries, above the session's queue and inflight. It outlives the connection: what was
under way comes again with its identifier. A row of 24 octets for each identifier from 1 on, made as they are
needed:

    offset  octets
    0       8       location in the queue's store
    8       8       where mqtt.model.inflight keeps it (QoS 2 of a durable session), else 0
    16      4       FREE: the identifier that is free behind this one, 0: none; else when the message was
                    stored, the low octets of Unix milliseconds
    20      1       state: FREE, QOS_1, QOS_2 or RELEASED, and FROM_BEFORE
    21      1       1: the message is taken from the queue, and has yet to go back there
    22      1       1: an earlier run has sent it, so that another message may lie there by now
    23      1       1: the client may have had a message with it that nobody here knows of (``doubts``)

Identifiers are given in the order in which they became free. Never yields.
"""
from array import array
from bisect import bisect_left

from gomq_py import octets
from gomq_py.broker.queues import queue as _queue  # noqa: F401  (its .pxd types the queue)
from gomq_py.mqtt.model import inflight as _inflight  # noqa: F401
from gomq_py.mqtt.model.returning import Returning
from gomq_py.mqtt.wire.constants import IDENTIFIER_MAX, PUBACK, PUBCOMP, PUBREC
from gomq_py.storage import locations

ROW = 24
FIRST_ROWS = 16
# An empty table of more rows is given back when the connection ends.
KEPT_ROWS = 64
# Messages that go back to the queue between two polls of the loop: some 3 ms, as in amqp.server.settling.
AT_ONCE = 2500
# What is kept anew between two looks at the clock: some 0.2 ms.
MOVED_AT_ONCE = 100

LOW_OCTETS = 0xFFFFFFFF
# In place of when the message was stored: no message is the one that was sent.
SETTLED_MS = 1

# RELEASED: PUBREC came, the message is settled, PUBCOMP is awaited. FROM_BEFORE: sent over an earlier
# connection, and not again over this one.
FREE, QOS_1, QOS_2, RELEASED, FROM_BEFORE = 0, 1, 2, 3, 8

# What is to be done about an acknowledgement.
NOTHING, RELEASE, UNKNOWN, WRONG = 0, 1, 2, 3


class Sent:
    """``queue``: where the messages are. ``window``: how many may be under way at once; ``count`` are, over
    this connection, and ``used`` identifiers are taken. ``to_release``: identifiers whose messages are gone,
    so that PUBREL is all that is left to say.

    ``inflight`` (mqtt.model.inflight.Inflight) keeps what is sent at QoS 2, under the session's ``key``;
    None: nobody has to. ``doubts``: it has lost some of that with the power, before this table was made.
    """

    __slots__ = (
        "queue", "window", "count", "used", "to_release", "inflight", "key", "rows", "at", "capacity",
        "first_free", "last_free", "before", "places", "next_before", "is_connected", "next_out", "returning",
        "doubts", "awaits_one",
    )

    def __init__(self, queue, inflight=None, key=0):
        self.queue = queue
        self.inflight = inflight
        self.key = key
        self.window = IDENTIFIER_MAX
        self.count = self.used = self.capacity = self.first_free = self.last_free = self.next_before = 0
        self.to_release = []
        self.rows = bytearray()
        self.at = octets.pointer(self.rows)
        # Identifiers of what was sent over an earlier connection and may be in the queue still, in the order
        # of the messages, and where these are; None: nothing is, or nobody has asked for it.
        self.before = self.places = None
        self.is_connected = self.doubts = False
        self.awaits_one = False  # an identifier, for what is next: that of a PUBCOMP
        self.next_out = 1  # what has yet to go back to the queue has no identifier before this
        self.returning = None  # the Returning that gives it back, or None

    # a connection

    def begin(self, window):
        """A connection begins, which lets so many be under way. Returns the identifiers that PUBREL has been
        sent for, in the order of their messages: it is to be sent again.
        """
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
        """The connection ends: what was under way goes back to the queue, to its place there. Where that is
        very much the most of it goes in slices, and the queue delivers nothing meanwhile.
        """
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
        """Give some of the messages back to the queue that have yet to go there. Whether there are more."""
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

    def returned(self, returning):
        """A Returning is over."""
        if self.returning is returning:
            self.returning = None

    def spare(self, message):
        """Take a message that is_owed(), and that the queue has just shown, out of the queue until its client
        comes back: what has to go goes from behind it. Returns False where the client is there, and has to
        take it first.
        """
        if self.is_connected:
            return False
        place = self._place_of(message)
        self.at[(self.before[place] - 1) * ROW + 21] = 1
        self.queue.shift_head()
        return True

    def moved_to(self, queue):
        """Its queue has been opened again after a fault and is this one: all that was under way is ready
        there, but for what was settled, as after a restart.
        """
        self.queue = queue
        self.returning = self.before = None
        for identifier in range(1, self.capacity + 1):
            row = (identifier - 1) * ROW
            state = self.at[row + 20] & 3
            self.at[row + 21] = 0
            if state != FREE:  # that one was settled may be what the fault took back
                self.at[row + 20] = FROM_BEFORE | (QOS_2 if state == RELEASED else state)

    def restore(self, entries):
        """Take over what an earlier run has sent: (identifier, location, where inflight keeps it, when the
        message was stored) each. For a table that is empty.
        """
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
        """The session is over: nothing of it comes again."""
        for identifier in range(1, self.capacity + 1):
            if self.at[(identifier - 1) * ROW + 20] != FREE:
                self._free(identifier, True)

    def begun(self):
        """{location: when it was stored, the low octets, or 0 where the location is that of this run} of
        messages whose delivery at QoS 2 has begun over an earlier connection, and that have not been settled.
        """
        found = {}
        for identifier in range(1, self.capacity + 1):
            row = (identifier - 1) * ROW
            if self.at[row + 20] == QOS_2 | FROM_BEFORE:
                found[octets.le64(self.at, row)] = self._stored_ms(row)
        return found

    def move(self, oldest, first):
        """Have kept anew what is kept in segments before this number, of identifiers from ``first`` on, some
        of it. Returns the identifier to go on with; 0: there is no more.
        """
        left = MOVED_AT_ONCE
        for identifier in range(first, self.capacity + 1):
            row = (identifier - 1) * ROW
            kept_at = octets.le64(self.at, row + 8)
            if kept_at and locations.number_of(kept_at) < oldest:
                if left == 0:
                    return identifier
                left -= 1
                octets.put_le64(self.at, row + 8, self.inflight.again(kept_at))
        return 0

    def keep_in(self, inflight):
        """Have what is under way kept there from now on, because what has kept it has failed."""
        for identifier in range(1, self.capacity + 1):
            row = (identifier - 1) * ROW
            state = self.at[row + 20] & 3
            if state == QOS_2 or state == RELEASED:
                stored_ms = SETTLED_MS if state == RELEASED else octets.le32(self.at, row + 16)
                octets.put_le64(self.at, row + 8, inflight.sent(
                    self.key, identifier, octets.le64(self.at, row), stored_ms))
        self.inflight = inflight

    # deliveries

    def room(self):
        """How many more may be sent now."""
        room = self.window - self.count
        if room > IDENTIFIER_MAX - self.used:
            room = IDENTIFIER_MAX - self.used
        if self.awaits_one and self.doubts and self.first_free == 0:
            return 0
        return room if room > 0 else 0

    def add(self, location, timestamp_ms, qos):
        """The message there, taken from the queue, is sent at QoS 1 or 2. Returns its packet identifier;
        there is room(). 0: it may not be sent before ``inflight`` is replaced.
        """
        if self.first_free == 0:
            self._grow(self.capacity + 1)
        identifier = self.first_free
        kept_at = 0
        if qos == QOS_2 and self.inflight is not None:
            if not self.inflight.is_stuck:
                kept_at = self.inflight.sent(self.key, identifier, location, timestamp_ms)
            if self.inflight.is_stuck:
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
        """Whether no free identifier is sure to be free at the client, too, so that there is no room for what
        is next, at QoS 2, before a PUBCOMP has come. Those that are not sure are ``to_release`` then.
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
        """The packet identifier that this message, which is next, was sent with before; 0: it was not.

        Those that lie before it in the queue are not there any more.
        """
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
        """Whether this message of the queue has been sent at QoS 2, and comes again with its identifier."""
        if self.before is None:
            if self.is_connected:
                return False
            self._list_before()
        return self._place_of(message) >= 0

    def again(self, identifier):
        """The message that known() told this identifier of is sent again with it."""
        row = (identifier - 1) * ROW
        self.at[row + 20] &= ~FROM_BEFORE & 0xFF
        self.count += 1
        self.next_before += 1

    def qos_of(self, identifier):
        """At which QoS it was sent."""
        return self.at[(identifier - 1) * ROW + 20] & 3

    def nothing_left(self):
        """The queue is empty: what was sent before and has not come again is not there any more."""
        if self.before is not None and self.returning is None:
            for identifier in self.before[self.next_before:]:
                self._gone(identifier)
            self.before = None

    def drop(self, identifier):
        """The message that known() told this identifier of was taken and will not be sent."""
        self.next_before += 1
        self._gone(identifier)

    def take_to_release(self):
        """``to_release``, which is empty afterwards."""
        identifiers, self.to_release = self.to_release, []
        return identifiers

    # acknowledgements

    def acknowledged(self, kind, identifier):
        """A PUBACK, PUBREC or PUBCOMP of success came. NOTHING, or RELEASE: PUBREL is to be sent; UNKNOWN:
        there is no such identifier; WRONG: it is not what this identifier waits for.

        Where a fault has closed the queue nothing can be settled, and what is under way comes again.
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
            self.queue.settle(octets.le64(self.at, row))
            return NOTHING
        if state == QOS_2:
            if kind != PUBREC:
                return WRONG
            self.queue.settle(octets.le64(self.at, row))
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
        # what was sent over an earlier connection comes again, and is acknowledged again
        return UNKNOWN if state == FREE else NOTHING

    def refused(self, identifier):
        """A PUBREC came that says why the client does not want the message. As acknowledged()."""
        if self.queue.closed:
            return NOTHING
        if identifier == 0 or identifier > self.capacity:
            return UNKNOWN
        row = (identifier - 1) * ROW
        state = self.at[row + 20]
        if state == QOS_1:
            return WRONG
        if state == QOS_2:
            self.queue.settle(octets.le64(self.at, row))
        elif state != RELEASED:
            return UNKNOWN if state == FREE else NOTHING
        self.count -= 1
        self._free(identifier)
        return NOTHING

    # helpers

    def _put_back(self):
        """Give back what has yet to go to the queue, as much of it at once as others may wait for."""
        self.next_out = 1
        if self.returning is None and self.put_back_some():
            self.returning = Returning(self)

    def _list_before(self):
        """Note what was sent over an earlier connection, and is not settled."""
        self.before = self._found(False)
        self.places = places = array("Q")
        for identifier in self.before:
            places.append(octets.le64(self.at, (identifier - 1) * ROW))

    def _found(self, is_released):
        """The identifiers of what was sent over an earlier connection, in the order of the messages: those
        that PUBREL has been sent for, or those that are not settled.
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
        """Which of ``before`` a message is, if it was sent at QoS 2 and has not been sent again. -1: none."""
        location = message.location
        place = bisect_left(self.places, location)
        while place < len(self.before) and self.places[place] == location:
            row = (self.before[place] - 1) * ROW
            if self.at[row + 20] == QOS_2 | FROM_BEFORE and self._is_same(row, message.timestamp_ms):
                return place
            place += 1
        return -1

    def _is_same(self, row, timestamp_ms):
        """Whether the message at the location of a row, stored then, is the one that was sent."""
        stored_ms = self._stored_ms(row)
        return stored_ms == 0 or stored_ms == timestamp_ms & LOW_OCTETS

    def _stored_ms(self, row):
        """When the message of a row was stored, the low octets, where its location may be another one's by
        now: after a restart. Otherwise 0.
        """
        return octets.le32(self.at, row + 16) if self.at[row + 22] else 0

    def _gone(self, identifier):
        """A message that was sent before is not in the queue any more."""
        row = (identifier - 1) * ROW
        if self.at[row + 20] & 3 == QOS_2:
            # the client may have its identifier, and would take another message with it for the same
            self.at[row + 20] = RELEASED | FROM_BEFORE
            self.to_release.append(identifier)
        else:
            self._free(identifier)

    def _free(self, identifier, has_ended=False):
        row = (identifier - 1) * ROW
        kept_at = octets.le64(self.at, row + 8)
        if kept_at:
            self.inflight.done(kept_at, has_ended)
            octets.put_le64(self.at, row + 8, 0)
        self.at[row + 20] = FREE
        self.at[row + 21] = self.at[row + 22] = 0
        self.used -= 1
        self._chain(identifier)

    def _chain(self, identifier):
        """It is free, behind all others that are."""
        octets.put_le32(self.at, (identifier - 1) * ROW + 16, 0)
        if self.last_free:
            octets.put_le32(self.at, (self.last_free - 1) * ROW + 16, identifier)
        else:
            self.first_free = identifier
        self.last_free = identifier

    def _grow(self, least):
        """Have so many rows at least."""
        before = self.capacity
        capacity = max(least, 2 * before, FIRST_ROWS)
        if capacity > IDENTIFIER_MAX:
            capacity = IDENTIFIER_MAX
        rows = bytearray(capacity * ROW)
        rows[:before * ROW] = self.rows
        self.rows = rows
        self.at = octets.pointer(rows)
        self.capacity = capacity
        for identifier in range(before + 1, capacity + 1):
            self.at[(identifier - 1) * ROW + 23] = self.doubts
            self._chain(identifier)
