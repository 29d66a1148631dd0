"""Stream reader: one consumer of a stream: where it stands, what it holds, and what it wants to see.

Between a door's consumer, which asks it for messages, and the stream, which knows it by its slot: the location that a channel's unacked ring keeps
is slot and offset, so that an ack finds its reader without looking anything up. Never yields.

Location: slot (16 bits) << 48 | (offset + 1) (48 bits): 0 is no location.
"""
from gomq_py.storage import stream_cursor as _stream_cursor  # noqa: F401  (its .pxd types the cursor)

OFFSET_BITS = 48
OFFSET_MASK = (1 << 48) - 1
SLOTS = 1 << 16

# Messages a reader may look at in a turn and pass over: a filter that matches nothing must not hold up the hub. About 1 ms.
PASSED_OVER = 5000


class StreamReader:
    """``outstanding``: deliveries not settled yet. ``attached``: its consumer is still there; afterwards settling changes no stored offset.

    Made by StreamQueue.open_reader.
    """

    __slots__ = ("cursor", "slot", "outstanding", "attached", "wanted")

    def __init__(self, cursor, slot, wanted=None):
        self.cursor = cursor
        self.slot = slot
        self.wanted = wanted
        self.outstanding = 0
        self.attached = True

    def next(self, message):
        """Show the next message it wants to see, which ``take`` then takes. False: there is none now."""
        return self.cursor.peek(message)

    def take(self):
        """The message shown is delivered. Returns its location."""
        location = (self.slot << 48) | (self.cursor.offset + 1)
        self.cursor.step()
        self.outstanding += 1
        return location

    def is_behind(self):
        """Whether there are messages it has not looked at."""
        return self.cursor.offset < self.cursor.store.next_offset

    def offset(self):
        """The offset of the message it stands at."""
        return self.cursor.offset

    def lag(self):
        """Messages between it and the end of the stream."""
        store = self.cursor.store
        return max(0, store.next_offset - max(self.cursor.offset, store.first_offset))
