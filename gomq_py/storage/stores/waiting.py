"""Waiting messages of groups: lists of locations, one for each group, in order of arrival.

Used by group_store. All lists of a store lie in two typed arrays, without an object per message: twelve octets
for each.
"""
from array import array

FIRST_SLOTS = 64
# From here on full arrays grow by an eighth, so that a long list is not kept twice.
LARGE_SLOTS = 1 << 18


class Group:
    """A group that is out, or came in when the store ended at the location ``since``, as the ``number``-th.

    ``count``: its waiting messages. ``is_ready``: it is in, and has waiting messages.
    """

    __slots__ = ("key", "head", "tail", "count", "since", "number", "is_out", "is_ready")

    def __init__(self, key):
        self.key = key
        self.head = self.tail = self.count = 0
        self.since = self.number = 0
        self.is_out = self.is_ready = False


class WaitingLists:
    """The lists of all groups of one store. ``count``: how many messages they hold."""

    # Slot 0 is the end of every list. Free slots are a list, too.
    __slots__ = ("count", "_locations", "_next", "_room", "_used", "_free")

    def __init__(self):
        self.count = 0
        self._begin()

    def first(self, group):
        """Location of the group's first message. Requires a message."""
        return self._locations[group.head]

    def push(self, group, location):
        """Add a message behind the group's others."""
        slot = self._slot(location)
        if group.count:
            self._next[group.tail] = slot
        else:
            group.head = slot
        group.tail = slot
        group.count += 1

    def pop(self, group):
        """Remove the group's first message and return its location. Requires a message."""
        slot = group.head
        location = self._locations[slot]
        group.head = self._next[slot]
        group.count -= 1
        self._give_back(slot)
        return location

    def insert(self, group, location):
        """Add a message at its place by age. Slow: it searches."""
        before = self._before(group, location)
        if before == group.tail and group.count:
            return self.push(group, location)
        slot = self._slot(location)
        if before:
            self._next[slot] = self._next[before]
            self._next[before] = slot
        else:
            self._next[slot] = group.head
            group.head = slot
            if group.count == 0:
                group.tail = slot
        group.count += 1
        return 0

    def remove(self, group, location):
        """Remove a message. Returns False if it is not in the list. Slow: it searches."""
        before = self._before(group, location)
        slot = self._next[before] if before else group.head
        if group.count == 0 or slot == 0 or self._locations[slot] != location:
            return False
        if before:
            self._next[before] = self._next[slot]
        else:
            group.head = self._next[slot]
        if slot == group.tail:
            group.tail = before
        group.count -= 1
        self._give_back(slot)
        return True

    def drain(self, group):
        """Remove the group's messages, and return their locations as an array."""
        locations = array("Q")
        while group.count:
            locations.append(self.pop(group))
        return locations

    def all(self, group):
        """The locations of the group's messages, as an array."""
        locations = array("Q")
        slot = group.head
        for _ in range(group.count):
            locations.append(self._locations[slot])
            slot = self._next[slot]
        return locations

    def _before(self, group, location):
        """The last slot of the group whose location is lower; 0 if there is none."""
        before, slot = 0, group.head
        for _ in range(group.count):
            if self._locations[slot] >= location:
                break
            before, slot = slot, self._next[slot]
        return before

    def _slot(self, location):
        slot = self._free
        if slot:
            self._free = self._next[slot]
        else:
            if self._used == self._room:
                self._grow()
            slot = self._used
            self._used += 1
        self._locations[slot] = location
        self._next[slot] = 0
        self.count += 1
        return slot

    def _give_back(self, slot):
        self._next[slot] = self._free
        self._free = slot
        self.count -= 1
        if self.count == 0 and self._room > FIRST_SLOTS:
            self._begin()
        return 0

    def _begin(self):
        self._locations = array("Q", bytes(8 * FIRST_SLOTS))
        self._next = array("I", bytes(4 * FIRST_SLOTS))
        self._room = FIRST_SLOTS
        self._used = 1
        self._free = 0
        return 0

    def _grow(self):
        room = self._room * 2 if self._room < LARGE_SLOTS else self._room + (self._room >> 3)
        locations = array("Q", (0,)) * room  # avoids a bytes object of that size
        following = array("I", (0,)) * room
        memoryview(locations)[:self._room] = memoryview(self._locations)
        memoryview(following)[:self._room] = memoryview(self._next)
        self._locations = locations
        self._next = following
        self._room = room
        return 0
