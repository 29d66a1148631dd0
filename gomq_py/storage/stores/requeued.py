"""Requeued messages: keeps the locations of messages to redeliver, in order, and counts their failed
deliveries.

Also counts the deliveries that were excused: given back without a failure. Locations and counts lie in typed
arrays, without a Python object per message. A message_store makes a Requeued when it needs one.
"""
from array import array

from gomq_py.observability.log import logger
from gomq_py.storage.format import record
from gomq_py.storage.format.record import due_value
from gomq_py.storage.segments import segment as _segment

LOG = logger("storage")

# Growth of an acks file when messages keep coming back: 2048 counts.
ACKS_GROWTH_BYTES = 32768

# Slots of a new table; each doubling rehashes.
FIRST_SLOTS = 16


class LocationHeap:
    """A binary heap of locations, the lowest (oldest message) first. Takes 8 bytes per location."""

    __slots__ = ("count", "_items", "_room")

    def __init__(self):
        self.count = 0
        self._room = FIRST_SLOTS
        self._items = array("Q", bytes(8 * FIRST_SLOTS))

    def first(self):
        """Return the lowest location. The heap must not be empty."""
        return self._items[0]

    def push(self, location):
        if self.count == self._room:
            self._resize(self._room * 2)
        at = self.count
        self.count += 1
        return self._sift_up(at, location)

    def pop(self):
        """Remove and return the lowest location. The heap must not be empty."""
        lowest = self._items[0]
        self.count -= 1
        if self.count:
            self._sift_down(0, self._items[self.count])
        if self._room > FIRST_SLOTS and self.count * 4 < self._room:
            self._resize(self._room // 2)
        return lowest

    def remove(self, location):
        """Remove a location, which must be in the heap. Slow: searches the heap."""
        found = self.discard(location)
        assert found, location

    def discard(self, location):
        """Remove a location. Returns False if it is not in the heap. Slow: searches the heap."""
        at = 0
        while at < self.count and self._items[at] != location:
            at += 1
        if at == self.count:
            return False
        self.count -= 1
        if at == self.count:
            return True
        moved = self._items[self.count]
        if at > 0 and self._items[(at - 1) >> 1] > moved:
            self._sift_up(at, moved)
        else:
            self._sift_down(at, moved)
        return True

    def by_segment(self):
        """Return {segment number: number of locations}. All locations must have one priority level."""
        counted = {}
        number = count = 0
        for at in range(self.count):
            if record.number_of(self._items[at]) != number:  # neighbours mostly share a segment
                if count:
                    counted[number] = counted.get(number, 0) + count
                number = record.number_of(self._items[at])
                count = 0
            count += 1
        if count:
            counted[number] = counted.get(number, 0) + count
        return counted

    def snapshot(self):
        """Return all locations as an array, unsorted."""
        locations = array("Q")
        locations.frombytes(memoryview(self._items[:self.count]).cast("B"))
        return locations

    def _sift_up(self, at, location):
        while at > 0:
            parent = (at - 1) >> 1
            if self._items[parent] <= location:
                break
            self._items[at] = self._items[parent]
            at = parent
        self._items[at] = location

    def _sift_down(self, at, location):
        child = 2 * at + 1
        while child < self.count:
            if child + 1 < self.count and self._items[child + 1] < self._items[child]:
                child += 1
            if self._items[child] >= location:
                break
            self._items[at] = self._items[child]
            at = child
            child = 2 * at + 1
        self._items[at] = location

    def _resize(self, room):
        items = array("Q", bytes(8 * room))
        for at in range(self.count):
            items[at] = self._items[at]
        self._items = items
        self._room = room


class DeliveryCounts:
    """Hash table from the location of a message to its failed deliveries and its COUNT entry. The COUNT entry
    is the place of the count in the acks file, as index + 1; 0: none.
    """

    __slots__ = ("count", "_keys", "_values", "_mask")

    def __init__(self):
        self.count = 0
        self._allocate(FIRST_SLOTS)

    def get(self, location):
        """Return the failed deliveries of a message; 0 if none is recorded."""
        at = self._slot(location)
        return self._values[at] >> 32 if self._keys[at] else 0

    def get_entry(self, location):
        """Return index + 1 of the message's COUNT entry in the acks file; 0 if none."""
        at = self._slot(location)
        return self._values[at] & 0xFFFFFFFF if self._keys[at] else 0

    def put(self, location, failed, entry):
        """Set a message's failed deliveries, and index + 1 of its COUNT entry in the acks file (0: none)."""
        at = self._slot(location)
        if self._keys[at] == 0:
            if (self.count + 1) * 3 > (self._mask + 1) * 2:
                self._grow()
                at = self._slot(location)
            self._keys[at] = location
            self.count += 1
        self._values[at] = failed << 32 | entry

    def discard(self, location):
        """Remove a location if it is in the table."""
        at = self._slot(location)
        if self._keys[at] == 0:
            return 0
        self.count -= 1
        # Close the gap: later entries move up unless that would put them before their own first slot.
        following = at
        while True:
            following = (following + 1) & self._mask
            if self._keys[following] == 0:
                break
            home = self._home(self._keys[following])
            if ((following - home) & self._mask) >= ((following - at) & self._mask):
                self._keys[at] = self._keys[following]
                self._values[at] = self._values[following]
                at = following
        self._keys[at] = 0
        return 0

    def tally(self, bounds, counted):
        """Add all messages to the histogram ``counted`` of failed deliveries; see Store.failed_deliveries."""
        for at in range(self._mask + 1):
            if self._keys[at]:
                failed = self._values[at] >> 32
                slot = 0
                while slot < len(bounds) and failed > bounds[slot]:
                    slot += 1
                counted[slot] += 1

    def _home(self, location):
        # The golden ratio in 31 bits, which C multiplies without a Python object: neighbouring locations land
        # far apart (Knuth, TAOCP 3, 6.4).
        return (location * 0x61C88647 >> 32) & self._mask

    def _slot(self, location):
        """Return the slot that has the location, or an empty slot for it."""
        at = self._home(location)
        while self._keys[at] != 0 and self._keys[at] != location:
            at = (at + 1) & self._mask
        return at

    def _grow(self):
        keys, values, slots = self._keys, self._values, self._mask + 1
        self._allocate(slots * 2)
        for old in range(slots):
            if keys[old]:
                at = self._slot(keys[old])
                self._keys[at] = keys[old]
                self._values[at] = values[old]

    def _allocate(self, slots):
        self._keys = array("Q", bytes(8 * slots))
        self._values = array("Q", bytes(8 * slots))
        self._mask = slots - 1


class Requeued:
    """The requeued messages of one store. ``heap``: LocationHeap of the ready messages. ``counts``: failed
    deliveries of ready and unacked messages. ``excused``: their deliveries that were no failures.
    """

    __slots__ = ("heap", "counts", "excused")

    def __init__(self):
        self.heap = LocationHeap()
        self.counts = DeliveryCounts()
        self.excused = DeliveryCounts()

    def come_back(self, location):
        """Add an unacked message to the ready messages, with one more failed delivery."""
        self.counts.put(location, self.counts.get(location) + 1, self.counts.get_entry(location))
        self.heap.push(location)

    def forget(self, location):
        self.counts.discard(location)
        self.excused.discard(location)

    def excuse(self, log, segment, location, more):
        """Add ``more`` to a message's saved number of deliveries without failure. Returns the new number."""
        count, entry = self.excused.get(location), self.excused.get_entry(location)
        if count == 0 and segment.recovered is not None:
            count, entry = segment.recovered.excused_before(record.position_of(location))
        if more:
            count += more
            if segment.acks is not None:
                entry = self._write_count(log, segment, location, count, entry, -1, record.EXCUSED)
            self.excused.put(location, count, entry)
        return count

    def take(self, location):
        """Remove the ready message that was peeked."""
        # Another message may be the first by now.
        if self.heap.first() == location:
            self.heap.pop()
        else:
            self.heap.remove(location)

    def take_early(self, location):
        """Remove a ready message, which need not be the first. Returns False if the message is not ready."""
        return self.counts.get(location) > 0 and self.heap.discard(location)

    def redeliver(self, log, segment, location, failed, entry):
        """Save that a message is being delivered, so that a crash now counts as a failed delivery. ``log``:
        the store. ``failed``, ``entry``: values for DeliveryCounts.put().
        """
        if segment.acks is not None:
            entry = self._write_count(log, segment, location, failed + 1, entry, -1, record.COUNT)
        self.counts.put(location, failed, entry)

    def wait_until(self, log, segment, location, count, due_s):
        """Save for later runs that a message of this segment must wait until ``due_s``, in Unix seconds."""
        entry = self.counts.get_entry(location)
        entry = self._write_count(log, segment, location, count, entry, due_value(due_s, count), record.COUNT)
        self.counts.put(location, self.counts.get(location), entry)

    def _write_count(self, log, segment, location, count, entry, due, kind):
        """Write a count of deliveries into the acks file, which grows if necessary. Returns the index + 1 of
        the entry with the count, or 0. See Segment.put_count() for the arguments.
        """
        if (entry == 0 or due >= 0) and segment.spare_entries() < (2 if due < 0 else 3):
            try:
                log.files.extend(segment.acks, segment.acks.size + ACKS_GROWTH_BYTES)
            except OSError as error:
                LOG.warning(
                    "delivery counts of %s are not kept over a restart: %s", segment.path(), error
                )
            segment.attach(segment.msgs, segment.acks)
        written = segment.put_count(record.position_of(location), count, entry, due, kind)
        if entry and written == entry:
            log.entries_changed(segment, entry - 1, entry if due < 0 else entry + 1)
        log.announce_acks(segment)
        return written or entry

    def empty(self, segments, write, keeps_counts):
        """Remove all ready messages, for a purge.

        Returns (Segments that can be dropped as a whole, sorted locations of the other ready messages).
        ``write``: the write segment. ``keeps_counts``: keep the failed deliveries of unacked messages.
        """
        heap, self.heap = self.heap, LocationHeap()
        whole = {}
        counted = heap.by_segment()
        for number, count in counted.items():
            segment = segments[number]
            if segment.taken - segment.acked == count and (
                segment is not write or segment.count - segment.acked >= _segment.SMALLEST_RUN
            ):
                whole[number] = segment
        if len(whole) == len(counted) and not keeps_counts:
            self.counts, self.excused = DeliveryCounts(), DeliveryCounts()
            return list(whole.values()), []
        others = []
        for location in heap.snapshot():
            if record.number_of(location) in whole:
                self.forget(location)
            else:
                others.append(location)
        return list(whole.values()), sorted(others)
