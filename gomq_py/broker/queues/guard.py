"""Guard: what a queue asks before and after it changes, where it has limits to observe.

The interface; broker.queues.limits is the one that matters.

A queue without limits has none and pays one comparison with None per call. It stands apart from limits
because that one needs to see the queue.
"""


# What admits() answers: the message is refused, may be stored, or is taken and thrown away.
REFUSED, ADMITTED, DUPLICATE = 0, 1, 2


# How a message comes back: its channel ended, basic.nack or basic.recover, basic.reject. Bits, so that a
# setting can mean several.
LOST, RETURNED, FAILED = 1, 2, 4


class QueueGuard:
    """Observes nothing."""

    __slots__ = ()

    def admits(self, message):
        """Before a message is stored: whether it may be (REFUSED, ADMITTED, DUPLICATE)."""
        return ADMITTED

    def appended(self):
        """A message was stored."""

    def asked(self):
        """basic.get is about to look at the head, behind the consumers that were ready."""

    def peek(self, message):
        """Fill ``message`` with the next one that may still be delivered, as Queue.peek does."""
        return False

    def settle(self):
        """The turn of the queue is over."""

    def returned(self, location, how):
        """An unacked message is to be requeued (LOST, RETURNED, FAILED); True: it was not, because it went
        elsewhere, or waits.
        """
        return False

    def came_back(self):
        """An unacked message is ready again."""

    def rejected(self, location):
        """An unacked message is not wanted back."""

    def used(self):
        """Somebody showed interest in the queue: a get, a declare, a consumer that went."""

    def close(self):
        """The queue is gone or closed."""
