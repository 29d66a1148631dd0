"""Stream reader: one consumer's position in a stream, its unsettled messages and its filter.

A message's location contains the reader's slot, so that an ack finds the reader without a look-up: slot (16
bits) << 48 | (offset + 1) (48 bits). broker.features.stream_filter defines the arguments of a filter. Never
switches greenlets.
"""
from array import array

from gomq_py import octets
from gomq_py.broker.features.stream_filter import ALL, ANY, filter_of
from gomq_py.content import fields, forms, properties
from gomq_py.content.fields import decode_table
from gomq_py.errors import Malformed
from gomq_py.storage.stores import stream_cursor as _stream_cursor  # noqa: F401  (its .pxd types the cursor)

OFFSET_BITS = 48
OFFSET_MASK = (1 << 48) - 1
SLOTS = 1 << 16

# Messages skipped by a filter in one turn, at most: about 1 ms.
PASSED_OVER = 2000
# Cost of a skipped message, in octets of a turn.
PASSED_OVER_OCTETS = 128

FIRST_ROOM = 16
SETTLED, RETURNED = 1 << 63, 1 << 62

VALUE_KEY = b"\x15x-stream-filter-value"
VALUE_KEY_BYTES = 22
HEADERS = 0x2000
BASIC = forms.BASIC


class StreamReader:
    """Reads a stream for one consumer; StreamQueue.open_reader makes it.

        outstanding     count of unsettled deliveries
        attached        False once the consumer has gone
        tag             consumer tag under which the position is stored, or None
        moved           True if the position is yet to be stored
        flight          the StreamFlight, or None if not needed
        wanted          the StreamFilter, or None
    """

    __slots__ = ("cursor", "slot", "outstanding", "attached", "tag", "moved", "flight", "wanted", "passed")

    def __init__(self, cursor, slot, tag=None, wanted=None, flight=None):
        self.cursor = cursor
        self.slot = slot
        self.tag = tag
        self.wanted = wanted
        self.flight = flight
        self.outstanding = self.passed = 0
        self.attached = True
        self.moved = False

    def next(self, message):
        """Fill ``message`` with the next wanted message, without taking it. Returns False at the end of the
        stream, while its file is being opened, or after many skipped messages in this delivery round.
        """
        if self.wanted is None:
            return self.cursor.peek(message)
        while self.passed < PASSED_OVER and self.cursor.peek(message):
            if self.wanted.matches(message):
                return True
            self.cursor.step()
            self.passed += 1
        return False

    def pass_over(self):
        """Skip the message that next() has shown, because it is unreadable."""
        self.cursor.step()
        self.passed += 1

    def take(self, body_length):
        """Take the message that next() has shown, for delivery. Returns its location."""
        offset = self.cursor.offset
        self.cursor.step()
        self.outstanding += 1
        if self.flight is not None:
            self.flight.add(offset, body_length)
        return (self.slot << 48) | (offset + 1)

    def settle(self, location, is_done):
        """Settle a delivery. ``is_done``: True if the client has processed the message. Returns True if the
        caller must store the reader's new position.
        """
        self.outstanding -= 1
        if self.flight is None or not (is_done or self.attached):
            return False
        if not self.flight.settle((location & OFFSET_MASK) - 1, is_done) or self.tag is None or self.moved:
            return False
        self.moved = True
        return True

    def forget_passed(self):
        """Return the cost of messages skipped since the last call, in bytes that count as if delivered."""
        cost = self.passed * PASSED_OVER_OCTETS + self.cursor.forget_skipped()
        self.passed = 0
        return cost

    def is_behind(self):
        """True if the stream has messages after the reader's cursor."""
        return self.cursor.offset < self.cursor.store.next_offset

    def position(self):
        """Return the offset to resume from: of the oldest unsettled message, or else of the cursor."""
        return self.flight.oldest() if self.flight is not None and self.flight.count else self.cursor.offset

    def octets_in_flight(self):
        """Return the size of unsettled bodies in bytes; 0 for a reader without a StreamFlight."""
        return 0 if self.flight is None else self.flight.octets

    def describe(self):
        """Return offset, position, lag and count of unacked messages as a dict."""
        return {
            "offset": self.cursor.offset, "position": self.position(), "lag": self.lag(),
            "unacknowledged": self.outstanding,
        }

    def lag(self):
        """Count the messages between the reader's cursor and the end of the stream."""
        store = self.cursor.store
        return max(0, store.next_offset - max(self.cursor.offset, store.first_offset))


class StreamFlight:
    """A reader's unsettled messages in order of offsets. Used when the reader's position is stored or its
    bytes in flight are limited. ``octets``: bytes of unsettled bodies. ``count``: number of messages from the
    oldest unsettled one on, including settled ones between.
    """

    # A ring of 16 octets a message: offset u64, size u64. The highest bit of the size marks a processed
    # message, the next bit a returned one. Settled messages stay while an older one is in flight. Settling in
    # order, as most clients do, only looks at the head.
    __slots__ = ("octets", "count", "_done", "_items", "_room", "_first")

    def __init__(self):
        self.octets = 0
        self.count = self._first = self._done = 0
        self._room = FIRST_ROOM
        self._items = array("Q", bytes(16 * FIRST_ROOM))

    def add(self, offset, size):
        """Add a delivered message. Its offset must be higher than those of all messages added before."""
        if self.count == self._room:
            self._grow()
        at = self._place(self.count)
        self._items[at] = offset
        self._items[at + 1] = size
        self.count += 1
        self.octets += size
        return 0

    def settle(self, offset, is_done=True):
        """Settle the message at this offset. Returns True if oldest() has changed, or no message is in flight
        any more. ``is_done``: True if the message was processed, False if it was returned.
        """
        # A returned message remains the oldest until a later one is processed: clients return their messages
        # before they disconnect.
        at = self._find(offset)
        if at < 0:
            return False
        place = self._place(at)
        size = self._items[place + 1]
        if size >= RETURNED:
            return False
        self.octets -= size
        self._items[place + 1] = SETTLED if is_done else RETURNED
        if is_done and offset > self._done:
            self._done = offset
        before = self.count
        while self.count and (self._items[self._place(0) + 1] >= SETTLED or (
                self._items[self._place(0) + 1] >= RETURNED and self._items[self._place(0)] < self._done)):
            self._first += 1
            if self._first == self._room:
                self._first = 0
            self.count -= 1
        return self.count < before

    def oldest(self):
        """Return the offset of the oldest message in flight. Requires ``count`` > 0."""
        return self._items[self._place(0)]

    def _place(self, index):
        index += self._first
        if index >= self._room:
            index -= self._room
        return 2 * index

    def _find(self, offset):
        if self.count == 0:
            return -1
        if self._items[self._place(0)] == offset:
            return 0
        low, high = 0, self.count
        while low < high:
            middle = (low + high) // 2
            if self._items[self._place(middle)] < offset:
                low = middle + 1
            else:
                high = middle
        return low if low < self.count and self._items[self._place(low)] == offset else -1

    def _grow(self):
        items = array("Q", bytes(32 * self._room))
        for index in range(self.count):
            at = self._place(index)
            items[2 * index] = self._items[at]
            items[2 * index + 1] = self._items[at + 1]
        self._items = items
        self._room *= 2
        self._first = 0
        return 0


class StreamFilter:
    """Selects the messages that a consumer wants; the broker skips all others. ``values``: wanted values of
    x-stream-filter-value, as bytes. ``conditions``: functions of a dict of headers. parse_filter() makes it.
    """

    __slots__ = ("values", "conditions", "match_unfiltered", "all_values", "any_part")

    def __init__(self, values, conditions, match_type=None, match_unfiltered=False):
        self.values = frozenset(values)
        self.conditions = tuple(conditions)
        self.match_unfiltered = match_unfiltered
        self.all_values = match_type == ALL
        self.any_part = match_type == ANY

    def matches(self, message):
        """True if the message is wanted. Also True for an unreadable message, which the consumer skips."""
        if message.kind == BASIC:
            return self._matches(message, message.buffer, message.properties_at)
        try:
            properties = message.get_properties()
        except Malformed:
            return True
        return self._matches(message, octets.pointer(properties), 0)

    def _matches(self, message, p, at):
        if self.any_part:
            return self._matches_value(p, at) if not self.conditions else (
                bool(self.values) and self._matches_value(p, at) or self._matches_conditions(message))
        if self.values and not self._matches_value(p, at):
            return False
        return not self.conditions or self._matches_conditions(message)

    def _matches_value(self, p, at):
        found = -1
        if octets.be16(p, at) & HEADERS:
            table = properties.headers_at(p, at)
            found = fields.find_key(
                p, table + 4, table + 4 + octets.be32(p, table), VALUE_KEY, VALUE_KEY_BYTES
            )
        if found < 0 or p[found + VALUE_KEY_BYTES] != 83:  # a text
            return self.match_unfiltered
        found += VALUE_KEY_BYTES + 1
        value = bytes(p[found + 4:found + 4 + octets.be32(p, found)])
        if b"," in value or self.all_values:
            there = {part.strip() for part in value.split(b",")}
            return self.values <= there if self.all_values else not self.values.isdisjoint(there)
        return value.strip() in self.values

    def _matches_conditions(self, message):
        headers = headers_of(message)
        if self.any_part:
            return any(condition(headers) for condition in self.conditions)
        return all(condition(headers) for condition in self.conditions)


def headers_of(message):
    """Decode a message's headers to a dict."""
    properties = message.get_properties()
    if not properties[0] & 0x20:
        return {}
    at = 2
    for flag in (0x80, 0x40):
        if properties[0] & flag:
            at += 1 + properties[at]
    return decode_table(properties, at)[0]


def parse_filter(arguments):
    """Return the StreamFilter in a consumer's arguments; None without a filter. Raises ValueError."""
    wanted = filter_of(arguments)
    return None if wanted is None else StreamFilter(*wanted)
