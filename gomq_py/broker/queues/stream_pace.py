"""Stream pace: how often a stream with several readers gives its turns, so that what is published in between
goes out together.

Beside stream_queue, which asks before a turn. A message for each of a hundred readers is a hundred system
calls, whether the call carries one message or fifty: where messages come one by one, nearly all of the cost.
The first message after a pause goes at once; the next ones within PACE_MS of that turn wait for the end of
that time. Readers that are behind for want of credit do not wait, and neither does much that came at once.
Never yields; a stream at rest has no timer running.
"""

# Fewer readers than this are never made to wait: their calls are few.
READERS = 4
# 2 ms: with a hundred readers and 2000 messages a second a call carries four instead of one, and nobody sees
# 2 ms.
PACE_MS = 2
# Messages that make a call worth its while.
MESSAGES = 64


class StreamPace:
    """Made by a stream with its ``timers``; ``wake()`` gives it a turn."""

    def __init__(self, timers, wake):
        self._timers = timers
        self._wake = wake
        self._timer = None
        self._turned_ms = 0
        self._turned_at = 0
        self._is_urgent = False

    def is_waiting(self):
        """Whether a turn comes by itself."""
        return self._timer is not None

    def hurry(self):
        """The next turn does not wait: a reader may go on, or the last turn was not done."""
        self._is_urgent = True

    def holds(self, now_ms, next_offset):
        """Whether a turn at this time has to wait; if so it comes by itself.

        If not, it is the one that counts for the next.
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
        """No turn comes by itself any more."""
        if self._timer is not None:
            self._timer.stop()
            self._timer = None

    def _ring(self):
        self._timer = None
        self._is_urgent = True
        self._wake()
