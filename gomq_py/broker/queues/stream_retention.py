"""Stream retention: drops a stream's oldest segment files by count of messages, size or age.

Whole segments are dropped, never the newest, so a stream may exceed its limits by up to a segment. The stream
queue calls this module when a segment has begun, the settings have changed, or the timer has fired. The timer
runs only if a segment will become too old. Never switches greenlets.
"""
# Segments dropped before others get their turn: each costs the closing and later the unlinking of a file.
SLICE = 32

# Delay allowed for the timer, so that a stream of many small segments does not wake up for each.
SLACK_MS = 1000


class StreamRetention:
    """Drops old segments of a stream. ``wake()`` schedules a delivery round, which calls ``apply``."""

    def __init__(self, store, timers, wake):
        self._store = store
        self._timers = timers
        self._wake = wake
        self._timer = None
        self._max_length = self._max_bytes = self._max_age_ms = None

    def configure(self, settings):
        self._max_length, self._max_bytes, self._max_age_ms = (
            settings.max_length, settings.max_bytes, settings.max_age_ms
        )
        if settings.segment_bytes is not None:
            self._store.set_segment_bytes(settings.segment_bytes)
        self.close()
        self._store.rolled = True
        self._wake()

    def apply(self):
        """Drop the oldest segments beyond the limits, at most SLICE segments in each delivery round."""
        store = self._store
        store.rolled = False
        octets = 0 if self._max_bytes is None else store.record_bytes()
        for _ in range(SLICE):
            oldest = store.oldest()
            if oldest is None or not self._is_too_much(store.ready_count, octets, oldest[2]):
                self._wait_for(oldest)
                return
            octets -= oldest[1]
            store.drop_oldest()
        store.rolled = True
        self._wake()

    def close(self):
        if self._timer is not None:
            self._timer.stop()
            self._timer = None

    def _is_too_much(self, count, octets, last_ms):
        return (
            self._max_length is not None and count > self._max_length
            or self._max_bytes is not None and octets > self._max_bytes
            or self._max_age_ms is not None and last_ms + self._max_age_ms < self._timers.now_ms()
        )

    def _wait_for(self, oldest):
        if self._max_age_ms is not None and oldest is not None and self._timer is None:
            due_ms = oldest[2] + self._max_age_ms + SLACK_MS
            self._timer = self._timers.start_at(due_ms, self._fired)

    def _fired(self):
        self._timer = None
        self._store.rolled = True
        self._wake()
