"""Sent: what one session has been sent with a packet identifier, and has not acknowledged.

Below the door's deliveries, above the session's queue and inflight. It outlives the connection: what was
under way comes again with its identifier. A row of 24 octets for each identifier from 1 on, made as they are
needed:

    offset  octets
    0       8       location in the queue's store
    8       8       where mqtt.model.inflight keeps it (QoS 2 of a durable session), else 0
    16      4       the identifier that is free behind this one, 0: none
    20      1       state: FREE, QOS_1, QOS_2 or RELEASED, and FROM_BEFORE
    21      3       nothing

Identifiers are given in the order in which they became free. Never yields.
"""
from array import array
from bisect import bisect_left

from gomq_py import octets
from gomq_py.broker.queues import queue as _queue  # noqa: F401  (its .pxd types the queue)
from gomq_py.mqtt.model import inflight as _inflight  # noqa: F401
from gomq_py.mqtt.wire.constants import IDENTIFIER_MAX, PUBACK, PUBCOMP, PUBREC
from gomq_py.storage import locations

ROW = 24
FIRST_ROWS = 16
# An empty table of more rows is given back when the connection ends.
KEPT_ROWS = 64

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
    None: nobody has to.
    """

    __slots__ = (
        "queue", "window", "count", "used", "to_release", "inflight", "key", "rows", "at", "capacity",
        "first_free", "last_free", "before", "next_before", "is_connected", "owed",
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
        self.before = None  # [(location, identifier, when it was stored or 0)], as they lie in the queue
        self.is_connected = False
        self.owed = None  # locations of what is_owed() of a client that is absent, once that was asked

    # a connection

    def begin(self, window):
        """A connection begins, which lets so many be under way. Returns the identifiers that PUBREL has been
        sent for, in the order of their messages: it is to be sent again.
        """
        self.window = window
        self.count = 0
        self.to_release = []
        self.is_connected, self.owed = True, None
        released, self.before, self.next_before = [], [], 0
        for identifier in range(1, self.capacity + 1):
            row = (identifier - 1) * ROW
            state = self.at[row + 20]
            if state == RELEASED | FROM_BEFORE:
                released.append((octets.le64(self.at, row), identifier))
            elif state & FROM_BEFORE:
                self.before.append((octets.le64(self.at, row), identifier, self._stored_ms(row)))
        self.before.sort()
        if not self.before:
            self.before = None
        elif self.queue.ready_count == 0 and not self.queue.is_opening():
            self.nothing_left()
        released.sort()
        return [identifier for _, identifier in released]

    def end(self):
        """The connection ends: what was under way goes back to the queue, to its place there."""
        self.before = self.owed = None
        self.is_connected = False
        for identifier in range(1, self.capacity + 1):
            row = (identifier - 1) * ROW
            state = self.at[row + 20]
            if state == FREE or state & FROM_BEFORE:
                continue
            self.at[row + 20] = state | FROM_BEFORE
            if state != RELEASED:
                self.queue.requeue(octets.le64(self.at, row))
        self.count = 0
        if self.used == 0 and self.capacity > KEPT_ROWS:
            self.rows = bytearray()
            self.at = octets.pointer(self.rows)
            self.capacity = self.first_free = self.last_free = 0

    def restore(self, entries):
        """Take over what an earlier run has sent: (identifier, location, where inflight keeps it) each. For a
        table that is empty.
        """
        self._grow(max([identifier for identifier, _, _ in entries]))
        for identifier, location, kept_at in entries:
            row = (identifier - 1) * ROW
            octets.put_le64(self.at, row, location)
            octets.put_le64(self.at, row + 8, kept_at)
            self.at[row + 20] = QOS_2 | FROM_BEFORE
            self.used += 1
        self.first_free = self.last_free = 0
        for identifier in range(1, self.capacity + 1):
            if self.at[(identifier - 1) * ROW + 20] == FREE:
                self._chain(identifier)

    def close(self):
        """The session is over: nothing of it comes again."""
        for identifier in range(1, self.capacity + 1):
            if self.at[(identifier - 1) * ROW + 20] != FREE:
                self._free(identifier)

    def begun(self):
        """{location: when it was stored, or 0 where the location is that of this run} of messages whose
        delivery at QoS 2 has begun over an earlier connection, and that have not been settled.
        """
        found = {}
        for identifier in range(1, self.capacity + 1):
            row = (identifier - 1) * ROW
            if self.at[row + 20] == QOS_2 | FROM_BEFORE:
                found[octets.le64(self.at, row)] = self._stored_ms(row)
        return found

    def move(self, oldest):
        """Have kept anew what is kept in segments before this number."""
        for identifier in range(1, self.capacity + 1):
            row = (identifier - 1) * ROW
            kept_at = octets.le64(self.at, row + 8)
            if kept_at and locations.number_of(kept_at) < oldest:
                octets.put_le64(self.at, row + 8, self.inflight.again(kept_at))

    # deliveries

    def room(self):
        """How many more may be sent now."""
        room = self.window - self.count
        if room > IDENTIFIER_MAX - self.used:
            room = IDENTIFIER_MAX - self.used
        return room if room > 0 else 0

    def add(self, location, timestamp_ms, qos):
        """The message there, taken from the queue, is sent at QoS 1 or 2. Returns its packet identifier;
        there is room().
        """
        if self.first_free == 0:
            self._grow(self.capacity + 1)
        identifier = self.first_free
        row = (identifier - 1) * ROW
        self.first_free = octets.le32(self.at, row + 16)
        if self.first_free == 0:
            self.last_free = 0
        octets.put_le64(self.at, row, location)
        kept_at = 0
        if qos == QOS_2 and self.inflight is not None:
            kept_at = self.inflight.sent(self.key, identifier, location, timestamp_ms)
        octets.put_le64(self.at, row + 8, kept_at)
        self.at[row + 20] = qos
        self.count += 1
        self.used += 1
        return identifier

    def known(self, location, timestamp_ms):
        """The packet identifier that this message, which is next, was sent with before; 0: it was not.

        Those that lie before it in the queue are not there any more.
        """
        while self.next_before < len(self.before):
            place, identifier, stored_ms = self.before[self.next_before]
            if place > location:
                return 0
            if place == location and (stored_ms == 0 or stored_ms == timestamp_ms):
                return identifier
            self.next_before += 1
            self._gone(identifier)
        self.before = None
        return 0

    def is_owed(self, message):
        """Whether this message of the queue has been sent at QoS 2, and comes again with its identifier."""
        location = message.location
        if self.is_connected:
            if self.before is None:
                return False
            place = bisect_left(self.before, (location,))
            while place < len(self.before) and self.before[place][0] == location:
                if self._is_owed_by(self.before[place][1], message):
                    return True
                place += 1
            return False
        if self.owed is None:
            self._list_owed()
        place = bisect_left(self.owed, location)
        if place == len(self.owed) or self.owed[place] != location:
            return False
        for identifier in range(1, self.capacity + 1):  # once a turn: it stays where it is, and is the oldest
            if self._is_owed_by(identifier, message):
                return True
        return False

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
        if self.before is not None:
            for _, identifier, _ in self.before[self.next_before:]:
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
        """
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
            self.at[row + 20] = RELEASED
            self.queue.settle(octets.le64(self.at, row))
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

    def _list_owed(self):
        """Note the locations of what was sent at QoS 2 over an earlier connection."""
        owed = array("Q")
        for identifier in range(1, self.capacity + 1):
            row = (identifier - 1) * ROW
            if self.at[row + 20] == QOS_2 | FROM_BEFORE:
                owed.append(octets.le64(self.at, row))
        self.owed = array("Q", sorted(owed))

    def _is_owed_by(self, identifier, message):
        """Whether a message was sent at QoS 2 with an identifier, and comes again with it."""
        row = (identifier - 1) * ROW
        if self.at[row + 20] != QOS_2 | FROM_BEFORE or octets.le64(self.at, row) != message.location:
            return False
        stored_ms = self._stored_ms(row)
        return stored_ms == 0 or stored_ms == message.timestamp_ms

    def _stored_ms(self, row):
        """When the message of a row was stored, where its location may be another one's by now: after a
        restart. Otherwise 0.
        """
        kept_at = octets.le64(self.at, row + 8)
        return 0 if kept_at == 0 else self.inflight.stored_ms(kept_at)

    def _gone(self, identifier):
        """A message that was sent before is not in the queue any more."""
        row = (identifier - 1) * ROW
        if self.at[row + 20] & 3 == QOS_2:
            # the client may have its identifier, and would take another message with it for the same
            self.at[row + 20] = RELEASED | FROM_BEFORE
            self.to_release.append(identifier)
        else:
            self._free(identifier)

    def _free(self, identifier):
        row = (identifier - 1) * ROW
        kept_at = octets.le64(self.at, row + 8)
        if kept_at:
            self.inflight.done(kept_at)
            octets.put_le64(self.at, row + 8, 0)
        self.at[row + 20] = FREE
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
            self._chain(identifier)
