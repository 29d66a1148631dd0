"""Cancelling: tells the consumers of a deleted queue, in slices if they are very many.

Beside queue, which has dropped them before and delivers to none of them.
"""
from gomq_py.hub.scheduler import Job, SliceClock

# Consumers that are told without a slice: some 5 us each.
FEW = 64


class Cancelling(Job):
    """Tells ``consumers``, from the end of the list."""

    name = "cancelling consumers"

    def __init__(self, queue, consumers, reason):
        super().__init__()
        self._queue = queue
        self._consumers = consumers
        self._reason = reason

    def step(self):
        """Tell some."""
        clock = SliceClock()
        while self._consumers:
            self._consumers.pop().cancelled_by(self._queue, self._reason)
            if clock.is_over():
                break
        return bool(self._consumers)

    def failed(self, error):
        """Go on with the others."""
        return True


def cancel_all(queue, consumers, reason):
    """Cancel the consumers of a queue without a ring, in their order. Empties the list."""
    consumers.reverse()
    cancelling = Cancelling(queue, consumers, reason)
    if len(consumers) > FEW:
        queue.scheduler.start(cancelling)
    else:
        while consumers:
            cancelling.step()
