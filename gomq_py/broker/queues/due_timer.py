"""Due timer: a priority queue of waiting messages, ordered by due time, with one timer.

Delayed messages (broker.transfer.delayed) and retry back-offs (broker.queues.retry) use it. The messages stay
in their stores; this module keeps only their locations, in 16 to 18 bytes a message. Never switches
greenlets.
"""
import heapq
from array import array

FIRST_SLOTS = 64
# A full heap grows by an eighth: at most 18 octets a message, while each number is copied some eight times in
# all.
GROWTH_SHIFT = 3


class DueTimer:
    """Calls ``on_due()`` when the first message is due. The owner then calls ``take`` for each due message,
    and ``arm`` to start the timer for the next message.
    """

    __slots__ = (
        "_timers", "_on_due", "_heap", "_timer", "_timer_ms", "_now_ms", "_stopped", "_hastened",
    )

    def __init__(self, timers, on_due):
        self._timers = timers
        self._on_due = on_due
        self._heap = DueHeap()
        self._timer = None
        self._timer_ms = 0
        self._now_ms = 0  # the time at the last take()
        self._stopped = self._hastened = False

    @property
    def count(self):
        return self._heap.count

    def first(self, count):
        """List the ``count`` messages that are due first, in order, as (due_ms, location)."""
        return self._heap.first(count)

    def push(self, due_ms, location):
        """Add a message due at ``due_ms`` (Unix milliseconds). The caller must then call ``arm``."""
        self._heap.push(due_ms, location)

    def take(self):
        """Remove the first message if it is due, and return its location; otherwise None."""
        if self.has_due():
            return self._heap.pop()
        self._now_ms = 0
        return None

    def has_due(self):
        if not self._heap.count:
            return False
        due_ms = self._heap.first_due_ms()
        if not self._hastened and due_ms > self._now_ms:
            self._now_ms = self._timers.now_ms()
            return due_ms <= self._now_ms
        return True

    def arm(self):
        """Start or advance the timer, so that it fires when the first message is due."""
        if self._stopped or not self._heap.count:
            return
        due_ms = self._heap.first_due_ms()
        if self._timer is not None:
            if self._timer_ms <= due_ms:
                return
            self._timer.stop()
        self._timer_ms = due_ms
        self._timer = self._timers.start_at(due_ms, self._first_is_due)

    def hasten(self):
        self._hastened = True
        self._stop_timer()
        self._first_is_due()

    def stop(self):
        """Stop for good and forget all messages, which stay in their store."""
        self._stopped = True
        self._stop_timer()
        self._heap = DueHeap()

    def _first_is_due(self):
        self._timer = None
        if not self._stopped:
            self._on_due()

    def _stop_timer(self):
        if self._timer is not None:
            self._timer.stop()
            self._timer = None


class DueHeap:
    """A binary heap of (due_ms, location), both unsigned 64-bit numbers, in typed arrays. The earliest time
    comes first; of equal times, the smaller location.
    """

    __slots__ = ("count", "_due", "_locations", "_room")

    def __init__(self):
        self.count = 0
        self._room = FIRST_SLOTS
        self._due = array("Q", (0,)) * FIRST_SLOTS
        self._locations = array("Q", (0,)) * FIRST_SLOTS

    def first_due_ms(self):
        """Return when the first message is due, in Unix milliseconds. Requires ``count`` > 0."""
        return self._due[0]

    def first(self, count):
        """List the first ``count`` messages, in order, as (due_ms, location)."""
        found = []
        ahead = [(self._due[0], self._locations[0], 0)] if self.count else []
        while ahead and len(found) < count:
            due_ms, location, at = heapq.heappop(ahead)
            found.append((due_ms, location))
            for child in (2 * at + 1, 2 * at + 2):
                if child < self.count:
                    heapq.heappush(ahead, (self._due[child], self._locations[child], child))
        return found

    def push(self, due_ms, location):
        if self.count == self._room:
            self._resize(self._room + (self._room >> GROWTH_SHIFT))
        at = self.count
        self.count += 1
        while at > 0:
            parent = (at - 1) >> 1
            if (
                self._due[parent] < due_ms
                or (self._due[parent] == due_ms and self._locations[parent] < location)
            ):
                break
            self._due[at] = self._due[parent]
            self._locations[at] = self._locations[parent]
            at = parent
        self._due[at] = due_ms
        self._locations[at] = location

    def pop(self):
        """Remove the first message and return its location. Requires ``count`` > 0."""
        first = self._locations[0]
        self.count -= 1
        if self.count:
            self._sift_down(self._due[self.count], self._locations[self.count])
        if self._room > FIRST_SLOTS and self.count * 4 < self._room:
            self._resize(max(self._room // 2, FIRST_SLOTS))
        return first

    def _sift_down(self, due_ms, location):
        at = 0
        child = 1
        while child < self.count:
            if child + 1 < self.count and self._before(child + 1, child):
                child += 1
            if (
                due_ms < self._due[child]
                or (due_ms == self._due[child] and location < self._locations[child])
            ):
                break
            self._due[at] = self._due[child]
            self._locations[at] = self._locations[child]
            at = child
            child = 2 * at + 1
        self._due[at] = due_ms
        self._locations[at] = location
        return 0

    def _before(self, one, other):
        return (
            self._due[one] < self._due[other]
            or (self._due[one] == self._due[other] and self._locations[one] < self._locations[other])
        )

    def _resize(self, room):
        self._due = moved(self._due, self.count, room)
        self._locations = moved(self._locations, self.count, room)
        self._room = room
        return 0


def moved(items, count, room):
    """Return a new array of ``room`` numbers that begins with the first ``count`` numbers of ``items``."""
    larger = array("Q", (0,)) * room  # avoids a bytes object of that size
    memoryview(larger).cast("B")[:8 * count] = memoryview(items).cast("B")[:8 * count]
    return larger
