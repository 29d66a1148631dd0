"""Stream pace: delays deliveries of a stream with several readers by up to 2 ms, to send messages together.

A message for a hundred readers costs a hundred system calls, whether a call carries one message or fifty. The
first message after a pause goes at once. A message published less than PACE_MS after a delivery waits for the
rest of that time. Large batches, and readers that have waited for credit, are served at once. An idle stream
has no timer. Never switches greenlets.
"""

# Streams with fewer readers never wait: their calls are few.
READERS = 4
# 2 ms: with a hundred readers and 2000 messages a second a call carries four messages instead of one, and
# nobody notices the delay.
PACE_MS = 2
# A batch of this size does not wait.
MESSAGES = 64


class StreamPace:
    """Decides when one stream may deliver. ``wake()`` schedules the stream's next delivery."""

    def __init__(self, timers, wake):
        self._timers = timers
        self._wake = wake
        self._timer = None
        self._turned_ms = 0
        self._turned_at = 0
        self._is_urgent = False

    def is_waiting(self):
        return self._timer is not None

    def hurry(self):
        """Do not delay the next delivery."""
        self._is_urgent = True

    def must_wait(self, now_ms, next_offset):
        """True if deliveries must wait for the timer, which then runs. ``next_offset``: the stream's next
        offset, which shows whether many messages were published since the last delivery.
        """
        since_ms = now_ms - self._turned_ms
        if not self._is_urgent and 0 <= since_ms < PACE_MS and next_offset - self._turned_at < MESSAGES:
            if self._timer is None:
                self._timer = self._timers.start(PACE_MS - since_ms, self._ring)
            return True
        self.stop()
        self._is_urgent = False
        self._turned_ms = now_ms
        self._turned_at = next_offset
        return False

    def stop(self):
        if self._timer is not None:
            self._timer.stop()
            self._timer = None

    def _ring(self):
        self._timer = None
        self._is_urgent = True
        self._wake()
