"""Stream reader: one consumer's position in a stream, its unsettled messages and its filter.

Between a door's consumer, which asks it for messages, and the stream. A location in a channel's unacked ring
is slot and offset, so an ack finds the reader without a look-up. Never switches.

Location: slot (16 bits) << 48 | (offset + 1) (48 bits): 0 is no location.
"""
# its .pxd types the flight
from gomq_py.broker.queues import stream_flight as _stream_flight  # noqa: F401
from gomq_py.storage.stores import stream_cursor as _stream_cursor  # noqa: F401  (its .pxd types the cursor)

OFFSET_BITS = 48
OFFSET_MASK = (1 << 48) - 1
SLOTS = 1 << 16

# Messages skipped by a filter in one turn, at most: about 1 ms.
PASSED_OVER = 2000
# Cost of a skipped message, in octets of a turn.
PASSED_OVER_OCTETS = 128


class StreamReader:
    """``outstanding``: unsettled deliveries. ``attached``: it has a consumer. ``tag``: name of its stored
    position, or None; ``moved``: the position must be stored. ``flight``: its unsettled messages, if needed.
    ``wanted``: a StreamFilter or None.

    Made by StreamQueue.open_reader.
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
        """Show the next wanted message, for ``take``. False: at the end, or enough were skipped this turn."""
        if self.wanted is None:
            return self.cursor.peek(message)
        while self.passed < PASSED_OVER and self.cursor.peek(message):
            if self.wanted.matches(message):
                return True
            self.cursor.step()
            self.passed += 1
        return False

    def pass_over(self):
        """Skip the shown message, which is unreadable."""
        self.cursor.step()
        self.passed += 1

    def take(self, body_length):
        """Deliver the shown message. Returns its location."""
        offset = self.cursor.offset
        self.cursor.step()
        self.outstanding += 1
        if self.flight is not None:
            self.flight.add(offset, body_length)
        return (self.slot << 48) | (offset + 1)

    def settle(self, location, is_done):
        """Settle a message; ``is_done``: it was processed. Returns True if the position is newly due to be
        stored.
        """
        self.outstanding -= 1
        if self.flight is None or not (is_done or self.attached):
            return False
        if not self.flight.settle((location & OFFSET_MASK) - 1, is_done) or self.tag is None or self.moved:
            return False
        self.moved = True
        return True

    def forget_passed(self):
        """End a turn. Returns the cost of skipped and damaged messages, in octets of a turn."""
        cost = self.passed * PASSED_OVER_OCTETS + self.cursor.forget_skipped()
        self.passed = 0
        return cost

    def is_behind(self):
        """True if there are messages that the reader has not looked at."""
        return self.cursor.offset < self.cursor.store.next_offset

    def position(self):
        """The offset to continue with: the oldest unsettled message's, or else the cursor's."""
        return self.flight.oldest() if self.flight is not None and self.flight.count else self.cursor.offset

    def octets_in_flight(self):
        """Octets of bodies that are unsettled, if counted."""
        return 0 if self.flight is None else self.flight.octets

    def describe(self):
        """The reader as plain data."""
        return {
            "offset": self.cursor.offset, "position": self.position(), "lag": self.lag(),
            "unacknowledged": self.outstanding,
        }

    def lag(self):
        """Messages between the reader and the end of the stream."""
        store = self.cursor.store
        return max(0, store.next_offset - max(self.cursor.offset, store.first_offset))
