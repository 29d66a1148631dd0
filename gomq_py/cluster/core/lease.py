"""Lease: the time until which a leader may act as leader, by its own clock.

The coordinator ends a lease ``ttl_s`` after a keepalive has *reached* it. A leader stops ``0.8 * ttl_s``
after the keepalive was *sent*. So it has stopped before another node is elected, if clocks run at the same
speed. No confirm depends on this: it only keeps two leaders from delivering at once. ``now_s``: seconds of a
clock that includes the machine's sleep (CLOCK_BOOTTIME).
"""
# Part of ttl_s for which a keepalive counts, and between two of them.
COUNTS, EVERY = 0.8, 0.2
NEVER_S = float("-inf")


class Lease:
    """One lease of the coordinator. Its grant counts as a keepalive."""

    __slots__ = ("ttl_s", "is_lost", "_deadline_s", "_sent_s")

    def __init__(self, ttl_s: float) -> None:
        self.ttl_s = ttl_s
        self.is_lost = False  # the coordinator has ended it
        self._deadline_s = self._sent_s = NEVER_S

    def sent(self, now_s: float) -> None:
        self._sent_s = now_s

    def answered(self, sent_s: float, is_alive: bool) -> None:
        """Note the answer to the keepalive that was sent at ``sent_s``.

        ``is_alive``: whether the lease exists.
        """
        if is_alive:
            self._deadline_s = max(self._deadline_s, sent_s + COUNTS * self.ttl_s)
        else:
            self.is_lost = True

    @property
    def deadline_s(self) -> float:
        """The clock time at which the leader must stop delivering; -inf without a live lease."""
        return NEVER_S if self.is_lost else self._deadline_s

    def is_past(self, now_s: float) -> bool:
        """Return whether the deadline has passed, so that the leader must not deliver."""
        return now_s >= self.deadline_s

    def is_due(self, now_s: float) -> bool:
        """Return whether a keepalive is due. Also True after the clock was set back."""
        return not self._sent_s <= now_s < self._sent_s + EVERY * self.ttl_s
