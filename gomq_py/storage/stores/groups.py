"""Groups: reads which group a message belongs to, and keeps the messages that wait for their group.

Used by group_store. The key of a group is the routing key, the correlation id, or a header: a text, octets or
an integer. A message without a key, or with an empty one, belongs to no group; nor does one with a header of
another type. Waiting messages are lists of locations, one for each group, in order of arrival. All lists of a
store lie in two typed arrays, without an object per message: twelve octets for each.
"""
import heapq
from array import array
from collections import deque

from gomq_py import octets
from gomq_py.content import fields, properties
from gomq_py.digests import blake2b
from gomq_py.storage.format import record

FIRST_SLOTS = 64
# Longer keys are kept as digests: a group takes the same memory whatever its key.
WHOLE_KEY_OCTETS = 32
# Most groups without waiting messages that are remembered, so that their next messages are behind others.
SERVED_MAX = 10_000
# From here on full arrays grow by an eighth, so that a long list is not kept twice.
LARGE_SLOTS = 1 << 18


class GroupKey:
    """Reads the keys of one queue. ``source``: "routing-key", "correlation-id" or "header"; ``header``: the
    header's name in octets, which the object keeps as a table has it, its length first.
    """

    __slots__ = ("is_in_routing", "is_header", "header", "header_at", "header_octets")

    def __init__(self, source, header=b""):
        self.is_in_routing = source == "routing-key"
        self.is_header = source == "header"
        self.header = bytes((len(header),)) + header
        self.header_at = self.header  # for C: points into ``header``
        self.header_octets = len(self.header)

    def in_routing(self, p, at):
        """The key in exchange name and routing key, two adjacent short strings at ``at``; None without one.
        """
        at += 1 + p[at]
        return self._key(p, at + 1, p[at])

    def in_properties(self, p, at):
        """The key in checked basic properties at ``at``; None without one."""
        flags = octets.be16(p, at)
        at = properties.headers_at(p, at)
        if self.is_header:
            return self._in_headers(p, at) if flags & properties.HEADERS else None
        if not flags & properties.CORRELATION_ID:
            return None
        if flags & properties.HEADERS:
            at += 4 + octets.be32(p, at)
        if flags & properties.DELIVERY_MODE:
            at += 1
        if flags & properties.PRIORITY:
            at += 1
        return self._key(p, at + 1, p[at])

    def of_octets(self, octets_):
        """The key in checked basic properties given as bytes, for those translated from another protocol."""
        return self.in_properties(octets.pointer(octets_), 0)

    def _in_headers(self, p, at):
        at = fields.find_key(p, at + 4, at + 4 + octets.be32(p, at), self.header_at, self.header_octets)
        if at < 0:
            return None
        at += 1 + p[at]
        if p[at] == fields.LONGSTR or p[at] == fields.OCTETS:
            return self._key(p, at + 5, octets.be32(p, at + 1))
        return b"%d" % fields.integer(p, at) if fields.is_integer(p, at) else None

    def _key(self, p, at, length):
        if length == 0:
            return None
        whole = bytes(p[at:at + length])
        if length <= WHOLE_KEY_OCTETS:
            return whole
        return blake2b(whole, digest_size=WHOLE_KEY_OCTETS + 1).digest()  # longer than a key kept whole


def shown(key):
    """A key as text: octets that are no text, and digests of long keys, in hexadecimal digits."""
    try:
        text = key.decode()
    except UnicodeDecodeError:
        return key.hex()
    return text if len(key) <= 32 and text.isprintable() else key.hex()


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
    """The lists of all groups of one store.

        count           how many messages they hold
        group_count     how many groups have messages
        _in_segments    {number of a segment: how many of the messages lie there}
        _heads          heap of (location, key): where the first message of each group lies, or before
                        it; None until oldest() needs it
    """

    # Slot 0 is the end of every list. Free slots are a list, too.
    __slots__ = (
        "count", "group_count", "_locations", "_next", "_room", "_used", "_free", "_in_segments", "_heads",
    )

    def __init__(self):
        self.count = self.group_count = 0
        self._in_segments = {}
        self._heads = None
        self._room = self._used = self._free = 0
        self._begin()

    def in_segment(self, number):
        """How many of the messages lie in the segment of this number."""
        return self._in_segments.get(number, 0)

    def oldest(self, groups):
        """The Group, of the dict ``groups``, that has the oldest message; None without messages."""
        if self.count == 0:
            self._heads = None
            return None
        if self._heads is None or len(self._heads) > 2 * len(groups) + 1000:
            self._heads = [(self.first(group), group.key) for group in groups.values() if group.count]
            heapq.heapify(self._heads)
        while True:
            location, key = self._heads[0]
            group = groups.get(key)
            if group is None or group.count == 0:
                heapq.heappop(self._heads)
            elif self.first(group) == location:
                return group
            else:
                heapq.heapreplace(self._heads, (self.first(group), key))

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
            self._note_head(group, location)
        group.tail = slot
        group.count += 1

    def pop(self, group):
        """Remove the group's first message and return its location. Requires a message."""
        slot = group.head
        location = self._locations[slot]
        group.head = self._next[slot]
        group.count -= 1
        self.group_count -= group.count == 0
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
            self._note_head(group, location)
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
        self.group_count -= group.count == 0
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

    def _note_head(self, group, location):
        self.group_count += group.count == 0
        if self._heads is not None:
            heapq.heappush(self._heads, (location, group.key))
        return 0

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
        number = record.number_of(location)
        self._in_segments[number] = self._in_segments.get(number, 0) + 1
        return slot

    def _give_back(self, slot):
        number = record.number_of(self._locations[slot])
        left = self._in_segments[number] - 1
        if left:
            self._in_segments[number] = left
        else:
            del self._in_segments[number]
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


class GroupsIn:
    """Groups that are in, in the order in which they came in.

        _ready      heap of (since, number, Group) of groups with messages; it may hold others
        _served     deque of (number, Group) of groups that came in without messages
        _came_in    how many have come in
    """

    __slots__ = ("_ready", "_served", "_came_in")

    def __init__(self):
        self._ready = []
        self._served = deque()
        self._came_in = 0

    def first(self):
        """The Group with messages that waits longest; None without one."""
        while self._ready:
            _, number, group = self._ready[0]
            if group.is_ready and group.number == number:
                return group
            heapq.heappop(self._ready)
        return None

    def ready_count(self):
        """How many groups with messages there are, or a little more."""
        return len(self._ready)

    def served_count(self):
        """How many groups without messages there are, or a little more."""
        return len(self._served)

    def come_in(self, group, since):
        """Add a group whose wait begins at the location ``since``, as the last one."""
        self._came_in += 1
        group.number = self._came_in  # so that no two entries are equal
        group.since = since
        if group.count:
            return self.make_ready(group)
        self._served.append((group.number, group))
        return 0

    def make_ready(self, group):
        """A group that came in has messages now."""
        group.is_ready = True
        heapq.heappush(self._ready, (group.since, group.number, group))
        return 0

    def forget_served(self, at_cursor, groups):
        """Remove groups without messages from here and from the dict ``groups``: those that came in before
        the message at the location ``at_cursor``, and the oldest of too many.
        """
        while self._served:
            number, group = self._served[0]
            is_served = (
                group.number == number and group.count == 0 and not group.is_out
                and groups.get(group.key) is group
            )
            if is_served and group.since > at_cursor and len(self._served) <= SERVED_MAX:
                break
            self._served.popleft()
            if is_served:
                del groups[group.key]
        return 0

    def clear(self):
        """Remove all groups."""
        self._ready.clear()
        self._served.clear()
