"""Idle segments: returns a store's write segment to the pool when the store has been empty for a while.

An empty queue costs no disk and no mapping. Otherwise ten thousand queues that each had one message would
keep 600 MB and twenty thousand mappings. Stores report when they become empty. One timer per broker runs only
while an empty store has a segment. A store that got a message since the last check is checked again later, so
a busy queue that is empty for a moment keeps its segment.
"""
from collections import deque

# Interval of checks; an empty store gives its segment back if nothing came in between.
REST_MS = 10_000
# Most segments given back, and most stores checked, before the next pause: some 0.1 ms each, and as much
# again when their names are flushed, all in one flush (0.2 s). Ten thousand take half a minute.
GIVEN_AT_ONCE = 10
LOOKED_AT_ONCE = 1000
PAUSE_MS = 25


class Resting:
    """Returns the segments of idle stores to the pool. ``start(after_ms, callback)`` starts and returns a
    timer, which has ``stop()``. If ``start`` is None, all stores keep their segments.
    """

    def __init__(self, start):
        self._start = start
        self._stores = {}  # store -> writer's position at the last check; 0: not checked
        self._to_look_at = deque()
        self._timer = None

    @property
    def count(self):
        """Number of empty stores that still have a segment."""
        return len(self._stores)

    def note(self, store):
        """Watch a store that has become empty and has a write segment. Call it again for this store only
        after the store's ``forgotten()`` was called.
        """
        if self._start is None:
            return
        self._stores[store] = 0
        if self._timer is None:
            self._stores[store] = store.resting_at()  # REST_MS until the next check
            self._timer = self._start(REST_MS, self._look)

    def stop(self):
        """Stop the timer. All stores then keep their segments."""
        self._stores.clear()
        self._to_look_at.clear()
        self._start = None
        if self._timer is not None:
            self._timer.stop()
            self._timer = None

    def _look(self):
        self._timer = None
        if not self._to_look_at:
            self._to_look_at.extend(self._stores)
        given = 0
        for _ in range(min(LOOKED_AT_ONCE, len(self._to_look_at))):
            given += self._look_at(self._to_look_at.popleft())
            if given == GIVEN_AT_ONCE:
                break
        if self._stores:
            self._timer = self._start(PAUSE_MS if self._to_look_at else REST_MS, self._look)

    def _look_at(self, store):
        """Return a store's segment to the pool, and stop watching the store, if nothing was appended since
        the last check. Also stop watching if the store is not empty. Returns whether the segment was
        returned.
        """
        at = store.resting_at()
        if at and at != self._stores[store]:
            self._stores[store] = at
            return False
        del self._stores[store]
        store.forgotten()
        if at:
            try:
                store.give_segment_back()
            except OSError as error:
                store.fence(error)
        return at != 0
