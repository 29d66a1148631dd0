"""Stream reader: one consumer of a stream: where it stands, what it holds, and what it wants to see.

Between a door's consumer, which asks it for messages, and the stream, which knows it by its slot: the
location that a channel's unacked ring keeps is slot and offset, so that an ack finds its reader without
looking anything up. Never yields.

Location: slot (16 bits) << 48 | (offset + 1) (48 bits): 0 is no location.
"""
# its .pxd types what is in flight
from gomq_py.broker.queues import stream_flight as _stream_flight  # noqa: F401
from gomq_py.storage.stores import stream_cursor as _stream_cursor  # noqa: F401  (its .pxd types the cursor)

OFFSET_BITS = 48
OFFSET_MASK = (1 << 48) - 1
SLOTS = 1 << 16

# Messages a reader may look at in a turn and pass over: a filter that matches nothing must not hold up the
# hub. About 1 ms.
PASSED_OVER = 2000
# What looking at one costs, in octets of a turn.
PASSED_OVER_OCTETS = 128


class StreamReader:
    """``outstanding``: deliveries not settled.

    ``attached``: its consumer is still there. ``tag``: the name its position is stored under, or None;
    ``moved``: that has to be stored anew. ``flight``: what it holds, where somebody has to know. ``wanted``:
    a StreamFilter or None.

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
        """Show the next message it wants to see, which ``take`` then takes.

        False: there is none now, or it has passed over enough for a turn.
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
        """Nobody can read the message shown: those behind it go on."""
        self.cursor.step()
        self.passed += 1

    def take(self, body_length):
        """The message shown is delivered. Returns its location."""
        offset = self.cursor.offset
        self.cursor.step()
        self.outstanding += 1
        if self.flight is not None:
            self.flight.add(offset, body_length)
        return (self.slot << 48) | (offset + 1)

    def settle(self, location, is_done):
        """It does not hold a message any more; ``is_done``: because it has dealt with it.

        Returns whether its position has to be stored, for the first time since it last was.
        """
        self.outstanding -= 1
        if self.flight is None or not (is_done or self.attached):
            return False
        if not self.flight.settle((location & OFFSET_MASK) - 1, is_done) or self.tag is None or self.moved:
            return False
        self.moved = True
        return True

    def forget_passed(self):
        """A turn is over.

        Returns what passing over messages and damage has cost in it, in octets of a turn.
        """
        cost = self.passed * PASSED_OVER_OCTETS + self.cursor.forget_skipped()
        self.passed = 0
        return cost

    def is_behind(self):
        """Whether there are messages it has not looked at."""
        return self.cursor.offset < self.cursor.store.next_offset

    def position(self):
        """The offset it would go on with: of the oldest message it holds unsettled, or else where it stands.
        """
        return self.flight.oldest() if self.flight is not None and self.flight.count else self.cursor.offset

    def octets_in_flight(self):
        """Octets of bodies it holds unsettled, as far as that is counted."""
        return 0 if self.flight is None else self.flight.octets

    def describe(self):
        """As plain data."""
        return {
            "offset": self.cursor.offset, "position": self.position(), "lag": self.lag(),
            "unacknowledged": self.outstanding,
        }

    def lag(self):
        """Messages between it and the end of the stream."""
        store = self.cursor.store
        return max(0, store.next_offset - max(self.cursor.offset, store.first_offset))
