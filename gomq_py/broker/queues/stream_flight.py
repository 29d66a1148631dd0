"""Stream flight: a reader's unsettled messages in order of offsets.

Owned by stream_reader, for consumers with a stored position or a limit of octets in flight; other readers
have none. A ring of 16 octets a message: offset u64, size u64 with the highest bit set once settled. Settling
in order, as most clients do, only looks at the head.
"""
from array import array

FIRST_ROOM = 16
SETTLED, RETURNED = 1 << 63, 1 << 62


class StreamFlight:
    """``octets``: sum of the bodies in flight; ``count`` includes settled ones behind an unsettled one."""

    __slots__ = ("octets", "count", "_done", "_items", "_room", "_first")

    def __init__(self):
        self.octets = 0
        self.count = self._first = self._done = 0
        self._room = FIRST_ROOM
        self._items = array("Q", bytes(16 * FIRST_ROOM))

    def add(self, offset, size):
        """Add a delivered message; offsets must rise."""
        if self.count == self._room:
            self._grow()
        at = self._place(self.count)
        self._items[at] = offset
        self._items[at + 1] = size
        self.count += 1
        self.octets += size
        return 0

    def settle(self, offset, is_done=True):
        """Settle a message in flight. Returns whether the oldest unsettled one has changed.

        A returned message (not ``is_done``) remains the oldest until a later message is done: clients return
        their messages before they disconnect.
        """
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
        """The offset of the oldest message in flight. Requires ``count`` > 0."""
        return self._items[self._place(0)]

    def _place(self, index):
        index += self._first
        if index >= self._room:
            index -= self._room
        return 2 * index

    def _find(self, offset):
        """The index of an offset; -1 if it is not in flight."""
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
