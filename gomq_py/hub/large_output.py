"""Large output: one budget for large messages that have been delivered but not read,
over all connections of a hub.

Beside delivery, which asks before it copies a message that is larger than the hub's output buffer, or has it
sent from its file. Such a copy, or file, stays with its connection until the socket has taken it; a hundred
consumers that read nothing would hold a hundred of them. Beyond three quarters of the limit only those get
one that are within their share of the rest (budget); the others wait for each other, and whoever reads too
slowly while others wait is given up. Without a copy under way one is always admitted, whatever its size.
Never holds a message itself.
"""
import time

import gevent

from gomq_py.hub.budget import Budget


class LargeOutput(Budget):
    """A consumer has what every holder has; its progress is what its ``output`` has sent."""

    def __init__(self, limit, call_later=gevent.spawn_later, clock=time.monotonic):
        super().__init__(limit * 3 // 4, limit, call_later, clock)
        self._called = None  # the waiter that was resumed last and has not asked yet

    def admit(self, consumer, octets):
        """Whether a copy of ``octets`` may be made now. If not, ``consumer.resume_held()`` is called once
        it may.
        """
        if consumer is self._called:
            self._called = None
        if self._is_within_share(consumer.output, octets) or (
            self._fits(octets) and (not self._waiting or consumer is self._next())
        ):
            self.forget(consumer)
            return True
        self._wait(consumer, octets)
        return False

    def written(self, consumer, octets):
        """A copy went to the consumer's output, which has not sent all of it."""
        self._hold(consumer, octets)
        consumer.output.call_when_drained(lambda: self._let_go_of(consumer))

    def _let_go_of(self, holder):
        if self._let_go(holder) and self._waiting:
            self._call_next()

    def _lacks_room(self):
        return self.held + sum(self._waiting.values()) > self.limit

    def _call_next(self):
        """Resume those who may have theirs now, in order: each asks, or has nothing to ask for any more."""
        while self._waiting:
            consumer = self._next()
            if not self._fits(self._waiting[consumer]):
                break
            if consumer is self._called:
                self.forget(consumer)
                continue
            self._called = consumer
            self._resume([consumer])
            if self._waiting and self._next() is consumer:
                break  # it asks in its turn

    def _fits(self, octets):
        return not self._holders or self.held + octets <= self.limit

    def _next(self):
        """Who has waited longest of those whose user has the least."""
        return min(self._waiting, key=lambda one: self._of_account.get(one.output.account, 0))

    def _progress(self, holder, held):
        return holder.output.sent_octets

    def _may_be_judged(self, holder):
        return True

    def _why(self, held, speed):
        return (
            f"the client reads only {int(speed * held.octets)} octets in a second of a message of "
            f"{held.octets} octets while others wait for memory")
