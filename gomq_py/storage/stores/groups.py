"""Groups: keeps the waiting messages of each message group, and chooses the next group for a consumer.

Used by group_store. The waiting messages of a group are a linked list of locations, in order of arrival. All
lists of a store lie in two typed arrays, at twelve bytes per message, without a Python object per message.
"""
import heapq
from array import array
from collections import OrderedDict, deque

from gomq_py.storage.format import record

FIRST_SLOTS = 64
# Most groups without waiting messages that are remembered, so that their next messages are behind others.
SERVED_MAX = 10_000
# From here on full arrays grow by an eighth, so that a long list is not kept twice.
LARGE_SLOTS = 1 << 18


class Group:
    """State of one message group.

        since     location that stands for the time at which the group's wait began
        number    decides the order of groups with the same ``since``; lowest first
        id        number in the store's list of groups
        line      the Line to which the group belongs
        place     index in the line's heap + 1 if the next message may be delivered; otherwise 0
        count     number of waiting messages
        out       number of delivered messages that are neither deleted nor returned
        resting   number of delivered messages that wait for a retry
        near      slot of the message that insert() added last, or 0
        returned  location of the newest message that was returned, or 0
    """

    __slots__ = (
        "key", "id", "line", "place", "head", "tail", "near", "count", "out", "resting", "since", "number",
        "returned",
    )

    def __init__(self, key, id_, line):
        self.key = key
        self.id = id_
        self.line = line
        self.head = self.tail = self.near = self.count = 0
        self.place = self.out = self.resting = self.since = self.number = self.returned = 0


class WaitingLists:
    """The waiting messages of all groups of one store.

        count           number of waiting messages of all groups
        group_count     number of groups with waiting messages
        _in_segments    {segment number: number of waiting messages}, to which the next two counts are applied
                        later: a dict update per message would be slow
        _came_count     number of messages added lately, all of the segment ``_came_number``
        _went_count     number of messages removed lately, all of the segment ``_went_number``
        _heads          heap of (location of a group's first message or of an earlier one, key of the group);
                        None until oldest() needs it
    """

    # Slot 0 is the end of every list. Free slots are a list, too.
    __slots__ = (
        "count", "group_count", "_locations", "_next", "_room", "_used", "_free", "_in_segments", "_heads",
        "_came_number", "_came_count", "_went_number", "_went_count",
    )

    def __init__(self):
        self.count = self.group_count = 0
        self._in_segments = {}
        self._came_number = self._came_count = self._went_number = self._went_count = 0
        self._heads = None
        self._room = self._used = self._free = 0
        self._begin()

    def in_segment(self, number):
        """Return the number of waiting messages in the segment with this number."""
        count = self._in_segments.get(number, 0)
        if number == self._came_number:
            count += self._came_count
        return count - self._went_count if number == self._went_number else count

    def oldest(self, groups):
        """Return the Group with the oldest waiting message, or None. ``groups``: {key: Group}."""
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
        """Return the location of the group's first message. The group must have one."""
        return self._locations[group.head]

    def push(self, group, location):
        """Add a message at the end of the group's list."""
        slot = self._slot(location)
        if group.count:
            self._next[group.tail] = slot
        else:
            group.head = slot
            self._note_head(group, location)
        group.tail = slot
        group.count += 1
        group.line.count += 1

    def pop(self, group):
        """Remove the group's first message and return its location. The group must have one."""
        slot = group.head
        location = self._locations[slot]
        group.head = self._next[slot]
        self._count_removed(group, slot)
        return location

    def insert(self, group, location):
        """Insert a message in order of location, searching from the message inserted last if possible."""
        # A channel gives back its messages in order, perhaps thousands of one group.
        before = self._before(group, location)
        if before == group.tail and group.count:
            self.push(group, location)
            group.near = group.tail
            return 0
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
        group.near = slot
        group.count += 1
        group.line.count += 1
        return 0

    def remove(self, group, location):
        """Remove a message. Returns False if the list does not contain it. Slow: searches the list."""
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
        self._count_removed(group, slot)
        return True

    def drain(self, group):
        """Remove all messages of the group. Returns their locations as an array."""
        locations = array("Q")
        while group.count:
            locations.append(self.pop(group))
        return locations

    def all(self, group):
        """Return the locations of the group's messages as an array."""
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

    def _count_removed(self, group, slot):
        group.count -= 1
        group.line.count -= 1
        if slot == group.near:
            group.near = 0
        if group.count == 0:
            self.group_count -= 1
            if group.place:
                group.line.remove(group)
        return self._give_back(slot)

    def _before(self, group, location):
        """Return the last slot of the group's list with a location below ``location``; 0 without one."""
        before, slot = 0, group.head if group.count else 0
        if group.near and self._locations[group.near] < location:
            before, slot = group.near, self._next[group.near]
        while slot and self._locations[slot] < location:
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
        if number != self._came_number:
            self._count_in(self._came_number, self._came_count)
            self._came_number, self._came_count = number, 0
        self._came_count += 1
        return slot

    def _give_back(self, slot):
        number = record.number_of(self._locations[slot])
        if number != self._went_number:
            self._count_in(self._went_number, -self._went_count)
            self._went_number, self._went_count = number, 0
        self._went_count += 1
        self._next[slot] = self._free
        self._free = slot
        self.count -= 1
        if self.count == 0 and self._room > FIRST_SLOTS:
            self._begin()
        return 0

    def _count_in(self, number, count):
        left = self._in_segments.get(number, 0) + count
        if left:
            self._in_segments[number] = left
        else:
            self._in_segments.pop(number, None)
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


class Line:
    """The groups that are bound to one consumer, or the free groups, which any consumer may get.

        taker    the consumer; None for the free groups
        bound    number of groups bound to the consumer
        count    number of waiting messages of all groups of this Line
        is_due   True while the Line is in Lines.due
        _ready   heap of the ready Groups, the longest wait first
    """

    __slots__ = ("taker", "bound", "count", "is_due", "_ready")

    def __init__(self, taker):
        self.taker = taker
        self.bound = self.count = 0
        self.is_due = False
        self._ready = []

    def first(self):
        """Return the ready Group that has waited longest, or None."""
        return self._ready[0] if self._ready else None

    def add(self, group):
        """Add a group, which becomes ready."""
        self._ready.append(group)
        return self._rise(len(self._ready) - 1, group)

    def moved(self, group, is_earlier):
        """Move a ready group to its place in the heap after a change of ``since``. ``is_earlier``: True if
        the group now counts as waiting longer.
        """
        return self._rise(group.place - 1, group) if is_earlier else self._sink(group.place - 1, group)

    def remove(self, group):
        """Remove a group, which is no longer ready."""
        at = group.place - 1
        group.place = 0
        moved = self._ready.pop()
        if moved is group:
            return 0
        if at and waits_longer(moved, self._ready[(at - 1) >> 1]):
            return self._rise(at, moved)
        return self._sink(at, moved)

    def _rise(self, at, group):
        while at > 0:
            above = self._ready[(at - 1) >> 1]
            if not waits_longer(group, above):
                break
            self._ready[at] = above
            above.place = at + 1
            at = (at - 1) >> 1
        self._ready[at] = group
        group.place = at + 1
        return 0

    def _sink(self, at, group):
        end = len(self._ready)
        child = 2 * at + 1
        while child < end:
            below = self._ready[child]
            if child + 1 < end and waits_longer(self._ready[child + 1], below):
                child += 1
                below = self._ready[child]
            if not waits_longer(below, group):
                break
            self._ready[at] = below
            below.place = at + 1
            at = child
            child = 2 * at + 1
        self._ready[at] = group
        group.place = at + 1
        return 0


def waits_longer(one, other):
    return one.since < other.since or (one.since == other.since and one.number < other.number)


class Lines:
    """Chooses which group of a store each consumer gets next.

        free      the Line of the free groups
        now       the Line of the consumer being served
        due       OrderedDict whose keys are Lines with ready groups; their consumers are to be served
        _bound    {consumer: its Line} of the served consumer and of consumers with bound groups
        _served   deque of (number, Group) of groups that became free without waiting messages
        _number   the last ``Group.number`` that was given to a group
    """

    __slots__ = ("free", "now", "due", "_bound", "_served", "_number")

    def __init__(self):
        self.free = Line(None)
        self.now = Line(None)
        self.due = OrderedDict()
        self._bound = {None: self.now}
        self._served = deque()
        self._number = 0

    def turn_to(self, taker):
        """Serve the consumer ``taker`` from now on."""
        if self.now.taker is taker:
            return 0
        if self.now.bound == 0:
            self._forget(self.now)
        self.now = self._bound.get(taker)
        if self.now is None:
            self.now = self._bound[taker] = Line(taker)
        return 0

    def first(self):
        """Of the free groups and the groups of the served consumer, return the ready Group that has waited
        longest; None without one.
        """
        free = self.free.first()
        if self.now.count == 0:
            return free
        own = self.now.first()
        return free if own is None or (free is not None and waits_longer(free, own)) else own

    def offer(self, taker):
        """Add the Line of consumer ``taker`` to ``due`` if it has ready groups. Returns whether it has."""
        line = self._bound.get(taker)
        return line is not None and self.note_due(line)

    def note_due(self, line):
        """Add the Line to ``due`` if it has ready groups. Returns whether it has any."""
        if line.count == 0 or line.first() is None:
            return False
        if not line.is_due:
            line.is_due = True
            self.due[line] = None
        return True

    def next_due(self):
        """Remove the first Line from ``due`` and return it."""
        line, _ = self.due.popitem(last=False)
        line.is_due = False
        return line

    def bound_count(self):
        """Return the number of groups that are bound to consumers."""
        count = 0
        for line in self._bound.values():
            count += line.bound
        return count

    def served_count(self):
        """Return an upper bound of the number of remembered free groups without messages."""
        return len(self._served)

    def bind(self, group):
        """Bind a free group to the served consumer."""
        self._move(group, self.now)
        self.now.bound += 1
        return 0

    def release(self, group):
        """Make a bound group free."""
        line = group.line
        self._move(group, self.free)
        line.bound -= 1
        if line.bound == 0 and line is not self.now:
            self._forget(line)
        return 0

    def make_ready(self, group, since):
        """Make a group ready for delivery. ``since``: location at which its wait begins."""
        self._number += 1
        group.number = self._number
        is_earlier, group.since = since < group.since, since
        if group.place:
            group.line.moved(group, is_earlier)
        else:
            group.line.add(group)
        return self.note(group.line)

    def note(self, line):
        """Add a Line with a ready group to ``due``, unless it is ``free`` or ``now``."""
        if line is not self.free and line is not self.now and not line.is_due:
            line.is_due = True
            self.due[line] = None
        return 0

    def note_served(self, group, since):
        """Remember a free group without messages, so that its next message does not overtake others."""
        self._number += 1
        group.number = self._number
        group.since = since
        self._served.append((group.number, group))
        return 0

    def next_forgotten(self, at_cursor):
        """Remove and return a remembered free group that can be forgotten, or None. Such a group became free
        before the location ``at_cursor``, or is the oldest of more than SERVED_MAX.
        """
        while self._served:
            number, group = self._served[0]
            is_served = group.number == number and group.count == 0 and group.out == 0
            if is_served and group.since > at_cursor and len(self._served) <= SERVED_MAX:
                break
            self._served.popleft()
            if is_served:
                return group
        return None

    def _forget(self, line):
        del self._bound[line.taker]
        if line.is_due:
            line.is_due = False
            del self.due[line]
        return 0

    def _move(self, group, line):
        if group.place:
            group.line.remove(group)
        group.line.count -= group.count
        line.count += group.count
        group.line = line
        return 0
