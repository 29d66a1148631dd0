"""Large output: the budget for large messages that have been delivered but not read, over all connections.

Delivery asks before it copies a message larger than the hub's output buffer, or sends it from its file. The
copy stays until the socket has taken it; a hundred consumers that read nothing would hold a hundred copies.
Beyond three quarters of the limit only consumers within their share of the rest get one (budget). The others
wait, and a client that reads too slowly meanwhile is given up. Without a copy under way one is always
admitted, whatever its size; and when all have their shares, one at a time beyond the limit, which counts in
no other's share.
"""
import time

from gomq_py.hub.budget import WINDOW_S, Budget


class LargeOutput(Budget):
    """Consumers are the holders; their progress is what their ``output`` has sent."""

    def __init__(self, limit, timers, clock=time.monotonic):
        super().__init__(limit * 3 // 4, limit, timers, clock)
        self._called = None  # the waiter that was resumed last and has not asked yet
        self._past = None  # the consumer that may have, or has, a copy beyond the limit
        self._past_octets = 0
        self._got_on_s = 0.0  # when a waiter last had its turn, or nobody waited

    def admit(self, consumer, octets):
        """Whether a copy of ``octets`` may be made now. If not, ``consumer.resume_held()`` follows later."""
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
        """Count a copy that went to the consumer's output, which has not sent all of it."""
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
        """True once; then the consumer waits until that copy has been read."""
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
        """Resume waiters for which there is room, in order. True if the last one had nothing to ask for any
        more: look again soon.
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
        """The oldest waiter of the account that holds least."""
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
