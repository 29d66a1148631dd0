"""Gathering: how long a flush waits for more to flush, and what it will cover.

Beside group_commit, whose cycle it holds up; above flusher, which pauses. A flush costs the processor some
150 us and waits for the disk, so on a fast disk 10 000 confirmed messages a second would be thousands of
flushes a second. Where flushes overlap, or answer several asks, they begin apart. Whoever waits for one
confirm before the next publish never overlaps with a flush of its own, and is not held up. Never flushes.
"""
import time

# How far the beginnings of two flushes lie apart, at least, where somebody asked for the second one while
# the first was running, or where the first one answered so many.
GATHER_S = 0.0005
GATHER_FROM = 3
# Where asks come steadily, a flush begins with the first one after that, if it comes within so long: the loop
# is awake for it. A timer that wakes the loop costs the processor some 20 us.
GRACE_S = 0.00012


class Coming:
    """The flush that begins next. Until it ``has_begun`` it covers whatever is marked, so that who waits for
    it may be told of that with the same callback, and says so (``join``); ``joined`` counts how often
    somebody did.
    """

    __slots__ = ("has_begun", "joined", "_gathering")

    def __init__(self, gathering=None):
        self.has_begun = False
        self.joined = 0
        self._gathering = gathering

    def join(self):
        """Somebody who waits for it already has marked more."""
        self.joined += 1
        if self._gathering is not None:
            self._gathering.asked()


class Gathering:
    """``coming``: the flush that begins next. ``asked()`` is called whenever somebody asks for it."""

    __slots__ = ("coming", "_may_begin_s", "_due_s", "_is_steady", "_pausing")

    def __init__(self):
        self.coming = Coming(self)
        self._may_begin_s = 0.0  # the next flush, by time.monotonic(); 0: whenever it likes
        # when a flush was due, until somebody has asked after that; 0: somebody has, or none was held up
        self._due_s = 0.0
        self._is_steady = False  # somebody asked soon after the last flush that was held up was due
        self._pausing = None  # the Flusher that pauses

    def begin(self):
        """A flush begins."""
        self.coming.has_begun = True
        self.coming = Coming(self)

    def flushed(self, began_s, overlaps, answered):
        """A flush that began then, by time.monotonic(), is over. ``overlaps``: somebody asked for the next
        one meanwhile; ``answered``: how many asks it answers.
        """
        self._may_begin_s = began_s + GATHER_S if overlaps or answered >= GATHER_FROM else 0.0

    def hold_up(self, flusher):
        """Return when the next flush may begin. ``flusher``: what pauses; None: nothing does. May switch."""
        due, self._may_begin_s = self._may_begin_s, 0.0
        left = due - time.monotonic() if due and flusher is not None else 0.0
        if left > 0:
            if self._is_steady:
                left += GRACE_S
            self._is_steady = False
            self._due_s = due
            self._pausing = flusher
            try:
                flusher.pause(left)
            finally:
                self._pausing = None

    def asked(self):
        """Somebody asks for the flush that begins next: one that is due begins, when the loop has had its
        turn.
        """
        if self._due_s:
            late = time.monotonic() - self._due_s
            if late >= 0:
                self._due_s = 0.0
                self._is_steady = late <= GRACE_S
                if self._pausing is not None:
                    self._pausing.end_pause()
