"""Large output: one budget for large messages that have been delivered but not read,
over all connections of a hub.

Beside delivery, which asks before it copies a message that is larger than the hub's output buffer, or has it
sent from its file. Such a copy, or file, stays with its connection until the socket has taken it; a hundred
consumers that read nothing would hold a hundred of them. Beyond three quarters of the limit only those get
one that are within their share of the rest (budget); the others wait for each other, and whoever reads too
slowly while others wait is given up. Without a copy under way one is always admitted, whatever its size; and
where all have only their shares, one at a time beyond the limit, which counts in nobody else's share.
Never holds a message itself.
"""
import time

from gomq_py.hub.budget import WINDOW_S, Budget


class LargeOutput(Budget):
    """A consumer has what every holder has; its progress is what its ``output`` has sent."""

    def __init__(self, limit, timers, clock=time.monotonic):
        super().__init__(limit * 3 // 4, limit, timers, clock)
        self._called = None  # the waiter that was resumed last and has not asked yet
        self._past = None  # who may have one beyond the limit, or has
        self._past_octets = 0
        self._got_on_s = 0.0  # when one that waited had its turn, or nobody waited

    def admit(self, consumer, octets):
        """Whether a copy of ``octets`` may be made now. If not, ``consumer.resume_held()`` is called once
        it may.
        """
        if consumer is self._called:
            self._called = None
        if self._is_within_share(consumer.output, octets) or (
            self._fits(octets) and (not self._waiting or consumer is self._next())
        ) or self._is_let_past(consumer):
            self.forget(consumer)
            return True
        if not self._waiting:
            self._got_on_s = self._clock()
        self._wait(consumer, octets)
        return False

    def written(self, consumer, octets):
        """A copy went to the consumer's output, which has not sent all of it."""
        if consumer not in self._holders:
            consumer.output.call_when_drained(lambda: self._let_go_of(consumer))
        self._hold(consumer, octets)
        if consumer is self._past:
            self._past_octets += octets

    def _let_go_of(self, holder):
        if holder is self._past:
            self._past, self._past_octets = None, 0
        if self._let_go(holder) and self._waiting:
            self._call_next()

    def _is_let_past(self, consumer):
        """Once: from now on it waits until that one has been read."""
        return consumer is self._past and not self._past_octets

    def _shares(self, octets=0):
        return super()._shares(octets - self._past_octets)

    def _look(self):
        if self._past is not None and (not self._past_octets or self._is_within_share(self._past.output)):
            self._past, self._past_octets = None, 0  # did not ask, or its client took it at once
        now_s = self._clock()
        if self._past is None and self._waiting and now_s - self._got_on_s >= 2 * WINDOW_S:
            self._past, self._got_on_s = self._next(), now_s
            self._resume([self._past])
        super()._look()

    def _lacks_room(self):
        return self.held + self._wanted > self.limit

    def _call_next(self):
        """Resume those who may have theirs now, in order: each asks, or has nothing to ask for any more.

        Whether the one that was called last is such a one: the next one is to be asked soon.
        """
        was_in_vain = False
        while self._waiting:
            consumer = self._next()
            if not self._fits(self._waiting[consumer][0]):
                break
            if consumer is self._called:
                self.forget(consumer)
                was_in_vain = True
                continue
            self._called, self._got_on_s = consumer, self._clock()
            self._resume([consumer])
            if self._waiting and self._next() is consumer:
                break  # it asks in its turn
        return was_in_vain

    def _fits(self, octets):
        return not self._holders or self.held + octets <= self.limit

    def _next(self):
        """Who has waited longest of the user that has the least."""
        account = min(self._rows, key=lambda one: self._of_account.get(one, 0))
        return next(iter(self._rows[account]))

    def _progress(self, holder, held):
        return holder.output.sent_octets

    def _may_be_judged(self, holder):
        return True

    def _why(self, held, speed):
        return (
            f"the client reads only {int(speed * held.octets)} octets in a second of a message of "
            f"{held.octets} octets while others wait for memory")
