"""Cancelling: tells consumers that their queue was deleted or closed, in slices if they are very many.

The queue has dropped these consumers before, and no longer delivers to them.
"""
from gomq_py.hub.scheduler import Job, SliceClock

# Consumers that are told at once, without slices: some 5 us each.
FEW = 64


class Cancelling(Job):
    """Cancels ``consumers``, from the end of the list."""

    name = "cancelling consumers"

    def __init__(self, queue, consumers, reason):
        super().__init__()
        self._queue = queue
        self._consumers = consumers
        self._reason = reason

    def step(self):
        """Cancel some consumers. Returns True if more are left."""
        clock = SliceClock()
        while self._consumers:
            self._consumers.pop().cancelled_by(self._queue, self._reason)
            if clock.is_over():
                break
        return bool(self._consumers)

    def failed(self, error):
        """Go on with the other consumers."""
        return True


def cancel_all(queue, consumers, reason):
    """Cancel, in order, the consumers that a queue has dropped, at once or by a job. Empties the list."""
    consumers.reverse()
    cancelling = Cancelling(queue, consumers, reason)
    if len(consumers) > FEW:
        queue.scheduler.start(cancelling)
    else:
        while consumers:
            cancelling.step()
