"""Guard: the interface of a queue's limits (broker.queues.limits), apart because limits imports the queue.

A queue without limits has no guard and pays one comparison with None per call.
"""


# Answers of admits(): refuse; store; accept and drop.
REFUSED, ADMITTED, DUPLICATE = 0, 1, 2


# How a message comes back: end of its channel; basic.nack or basic.recover; basic.reject. Bits, so that a
# setting can combine them.
LOST, RETURNED, FAILED = 1, 2, 4


class QueueGuard:
    """Has no effect."""

    __slots__ = ()

    def admits(self, message):
        """Before a message is stored: REFUSED, ADMITTED or DUPLICATE."""
        return ADMITTED

    def appended(self):
        """A message was stored."""

    def asked(self):
        """basic.get will look at the head; no consumer was ready."""

    def peek(self, message):
        """Fill ``message`` with the next deliverable one, as Queue.peek does."""
        return False

    def settle(self):
        """The queue's turn is over."""

    def returned(self, location, how):
        """An unacked message comes back (LOST, RETURNED, FAILED). True: it left or waits; do not requeue it.
        """
        return False

    def came_back(self):
        """An unacked message is ready again."""

    def rejected(self, location):
        """An unacked message was rejected without requeue."""

    def used(self):
        """The queue was used: a get, a declare, a departing consumer."""

    def close(self):
        """The queue was deleted or closed."""
