"""Unasked: methods that a peer sends to a link without being asked, which are few.

A leaf. Brokers say now and then that they take nothing for a while, or ask for a pause. Each such method is
dealt with in Python, and many are answered: who sends nothing else keeps the loop from everybody.
"""
import time

from gomq_py.amqp.wire.errors import UnexpectedFrame

# A broker whose alarm comes and goes sends a few in a second.
MOST, INTERVAL_S = 200, 10.0


class Unasked:
    """Of one connection."""

    __slots__ = ("_count", "_ends_s")

    def __init__(self):
        self._count, self._ends_s = 0, time.monotonic() + INTERVAL_S

    def count(self):
        """One more. Raises UnexpectedFrame where there are too many."""
        self._count += 1
        if self._count > MOST:
            now = time.monotonic()
            if now < self._ends_s:
                raise UnexpectedFrame(
                    f"more than {MOST} methods within {INTERVAL_S:.0f} s that nobody has asked for")
            self._count, self._ends_s = 1, now + INTERVAL_S
